"""What the faces of OpenAI's two APIs have in common: heads, request bodies, and when an item needs its own bytes.

A request is sent on in one of two ways. While the client's own elements stand in it, it is the client's body with a few
values put in or exchanged, and every other byte as it came. Where the elements are ours, its fields are written anew in
the client's order, each as the raw JSON it was.

A tool of the client's is a `Tool` without a description whose `schema` is the raw JSON of all of it: that is how it
goes upstream, and by which a change of it is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from transom.adapters.provider_writing import string, written_array
from transom.core.block import Block, Opaque, Text
from transom.core.canon import canonical
from transom.core.event import Section, Tool
from transom.core.state import NOTHING, Head, Item, Role
from transom.core.wire import Dialect, Segment
from transom.errors import BadInput
from transom.gateway.face import Call
from transom.gateway.outline import LISTED, written
from transom.gateway.reading import exchanged, extended, fields_of, items_of, value_of
from transom.importers.codex_lines import is_typed
from transom.importers.fields import read

__all__ = [
    "array_of",
    "asides",
    "client_tool",
    "digits_of",
    "error",
    "is_set",
    "named_tool",
    "object_of",
    "offered",
    "own_wire",
    "section",
    "segments",
    "sent_on",
    "sorted_or_raw",
    "string_of",
    "unmarked",
    "voice",
    "wire_of",
    "words",
]

_KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded"}
_REMINDER, _REMINDED = "<system-reminder>", "</system-reminder>"


class _Named(msgspec.Struct):
    name: str = ""


class _Tool(msgspec.Struct):
    """Chat nests a tool's name, Responses does not; a tool of the provider's own has only a type."""

    type: str = ""
    name: str = ""
    function: _Named | None = None
    custom: _Named | None = None
    defer_loading: bool | None = None


class _Part(msgspec.Struct):
    text: str = ""
    refusal: str = ""


_SAID = frozenset({"role", "content", "type"})
_TOOL = msgspec.json.Decoder(_Tool)
_PART = msgspec.json.Decoder(_Part)
_STRING = msgspec.json.Decoder(str)
_NUMBER = msgspec.json.Decoder(int)


# -- values of any shape: what is not of the wanted one is as if it were not there


def object_of(raw: bytes) -> dict[str, bytes]:
    try:
        return fields_of(raw)
    except BadInput:
        return {}


def array_of(raw: bytes) -> tuple[bytes, ...]:
    try:
        return items_of(raw)
    except BadInput:
        return ()


def string_of(raw: bytes) -> str:
    return read(raw, _STRING) or ""


def digits_of(raw: bytes) -> int:
    return read(raw, _NUMBER) or 0


def is_set(raw: bytes | None) -> bool:
    return raw not in (None, b"", b"null")


# -- the head


def named_tool(raw: bytes) -> str:
    """The name by which a tool is called or, where the provider runs it, its type."""
    tool = read(raw, _TOOL) or _Tool()
    inner = tool.function or tool.custom
    return tool.name or (inner.name if inner is not None else "") or tool.type


def client_tool(raw: bytes) -> Tool | None:
    """A tool as it stands in a request; None if the API keeps it out of the prompt until it is searched for."""
    tool = read(raw, _TOOL)
    if tool is not None and tool.defer_loading:
        return None
    return Tool(name=named_tool(raw), schema=raw.decode("utf-8", "replace"))


def section(place: int, element: bytes) -> Section:
    """System text that a canonical element says, as it reads if it is nothing else. `place` counts from 0."""
    fields = object_of(element)
    kind, role = (string_of(fields.get(name, b"")) for name in ("type", "role"))
    content = fields.get("content", b"")
    is_text = content.startswith(b'"') and set(fields) <= _SAID
    key = (role if kind in {"", "message"} else kind) or "system"
    return Section(
        key=f"{key}.{place + 1}" if place else key,
        text=string_of(content) if is_text else element.decode("utf-8", "replace"),
    )


def segments(write: Callable[[Head], tuple[Segment, ...]], head: Head) -> tuple[Segment, ...]:
    """The head's segments: the client's tools as they are, the host's as `write` writes them."""
    found: list[Segment] = []
    for tool in head.tools:
        if tool.description:
            found.extend(write(Head(tools=(tool,))))
        else:
            found.append(Segment(name=f"tools:{tool.name}", data=tool.schema.encode("utf-8", "replace")))
    found.extend(write(Head(sections=head.sections)))
    return tuple(found)


# -- elements


def words(content: str | Sequence[msgspec.Raw] | None) -> tuple[str, ...]:
    """The texts of a message's content; blanks and what is no text are left out."""
    if isinstance(content, str) or content is None:
        return (content,) if content else ()
    parts = (read(raw, _PART) for raw in content)
    return tuple(text for part in parts if part is not None and (text := part.text or part.refusal))


def voice(texts: Sequence[str]) -> Literal["user", "host"]:
    """Whose a message with the role of a user is. A client that injects text beside a person's words in one message
    leaves it the person's: it stays one message."""
    return "host" if texts and all(map(_is_injected, texts)) else "user"


def asides(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """A person's message in which a client's own text is none of the person's words: no requirement, no title."""
    return tuple(
        Opaque(kind="injected", raw=string(block.text).decode())
        if isinstance(block, Text) and _is_injected(block.text)
        else block
        for block in blocks
    )


def _is_injected(text: str) -> bool:
    """Whether all of a text is the client's: words behind its reminders are the person's."""
    if text.lstrip().startswith(_REMINDER):
        return not text.rpartition(_REMINDED)[2].strip() or _REMINDED not in text
    return not is_typed(Text(text=text))


def sorted_or_raw(element: bytes, form: Callable[[object], object]) -> bytes:
    """The canonical bytes of what `form` makes of an element; the element itself where nothing reads it."""
    try:
        return canonical(form(value_of(element)))
    except (BadInput, RecursionError):
        return element


def unmarked(value: Mapping[str, object], *names: str) -> dict[str, object]:
    """The fields without cache marks, those `names`, and what is null, which says what a missing one says."""
    dropped = {"cache_control", *names}
    return {name: one for name, one in value.items() if one is not None and name not in dropped}


def wire_of(
    dialect: Dialect,
    item: tuple[Role, tuple[Block, ...], str],
    elements: Sequence[bytes],
    canonical_of: Callable[[bytes], bytes],
) -> str:
    """The raw elements, where what `dialect` makes of an item (role, blocks, call id) is something else."""
    role, blocks, call_id = item
    shown = dialect.message(
        (Item(seq=1, uuid="", role=role, blocks=blocks, turn=0, step=0, counts=NOTHING, call_id=call_id),)
    )
    made = array_of(b"[%b]" % shown)
    if len(made) == len(elements):
        pairs = zip(made, elements, strict=True)
        if all(one == other or canonical_of(one) == canonical_of(other) for one, other in pairs):
            return ""
    return b",".join(elements).decode("utf-8", "replace")


def own_wire(item: Item, call_id: str) -> bytes:
    """The client's own bytes of an item; nothing if it has none, or if they answer the call under another id (one that
    was used twice in a reply has another one now)."""
    if item.role == "tool" and string(call_id)[1:-1].decode() not in item.wire:
        return b""
    return item.wire.encode("utf-8", "replace")


# -- the request for upstream


def offered(raw: bytes, ours: Sequence[bytes], withheld: frozenset[str]) -> bytes:
    """A client's array of tools (or nothing) without those `withheld`, `ours` behind it."""
    if not is_set(raw):
        return written_array(ours)
    if withheld:
        kept = [tool for tool in array_of(raw) if named_tool(tool) not in withheld]
        return written_array([*kept, *ours])
    return extended(raw, ours) if raw.startswith(b"[") else raw


def sent_on(
    call: Call, changes: Mapping[str, bytes], *, history: str = "", elements: Sequence[bytes] | None = None
) -> bytes:
    """The client's request with other values, behind the last field if it has none of that name. With other `elements`
    in its `history` it is written anew; an empty value then takes the field away."""
    if elements is not None:
        merged = {**call.fields, **changes}
        merged.setdefault(history, LISTED)
        return written({name: value for name, value in merged.items() if value}, history, elements)
    return exchanged(call.body, call.outline.spans, changes)


def error(status: int, message: str) -> bytes:
    kind = _KINDS.get(status) or ("server_error" if status >= 500 else "invalid_request_error")
    code = string(_CODES[status]) if status in _CODES else b"null"
    return b'{"error":{"message":%b,"type":"%b","param":null,"code":%b}}' % (string(message), kind.encode(), code)
