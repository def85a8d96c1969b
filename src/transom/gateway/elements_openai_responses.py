"""Input items of the Responses API: whose they are, by what they are known again, what facts they say, how they are
written.

Each item is a block of its own, and goes back as it came unless it says nothing beyond its block. The API knows calls
of many kinds (functions, custom tools, a shell, a search for tools), each with results of its kind, and a result
that is replaced must still be of the kind of its call. So the kernel knows a call that is no plain function's as
`KIND:call_id`, and a function in a namespace as `NAMESPACE::name`: neither can stand in an id or a name of the API.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import msgspec

from transom.adapters.provider_writing import raw_object, string
from transom.core.block import Block, Opaque, Text, Thought, ToolCall, ToolResultRaw
from transom.core.event import Fact, HostSaid, ModelReplied, ToolReturned, UserSaid
from transom.core.state import Item, Role
from transom.core.wire import Dialect
from transom.gateway.face import Speaker, standing
from transom.gateway.face_openai import (
    array_of,
    asides,
    object_of,
    own_wire,
    sorted_or_raw,
    string_of,
    unmarked,
    voice,
    wire_of,
    words,
)
from transom.importers.codex_lines import Content, content_block
from transom.importers.fields import raw_text, read
from transom.ports import Blobs

__all__ = [
    "call_ids",
    "called",
    "canonical_of",
    "compacted",
    "facts_of",
    "is_head",
    "kind_of",
    "reply_blocks",
    "speaker_of",
    "text_of",
    "wire_of_reply",
    "written",
]

_HEAD_ROLES = frozenset({"system", "developer"})
_HEAD_KINDS = frozenset({"additional_tools", "configuration_update"})
_CLIENT_KINDS = re.compile(r"additional_tools|agent_message|.*_(update|trigger|response|output)")
"""Items without a role that a client puts in; all others are put out by a model or on its behalf."""
_FUNCTION = "function_call"
_CUSTOM = "custom_tool_call"
_COMPACTED = "compaction"
_SEARCH, _FOUND = "tool_search_call", "tool_search_output"
_KEY = re.compile(r"([a-z_]+_call):(.*)", re.DOTALL)
_IN = "::"
_NOWHERE = frozenset({"", "functions"})
_NO_PROMPT = ("id", "status", "internal_chat_message_metadata_passthrough")
"""Bookkeeping: an id matters only where it is all there is (`item_reference`)."""
_TEXTS = frozenset({"input_text", "output_text", "text"})
_WORDS = _TEXTS | {"refusal"}
_CONTENT = msgspec.json.Decoder(Content)


class _Summary(msgspec.Struct):
    text: str = ""


class _Reasoning(msgspec.Struct):
    summary: list[_Summary] | None = None
    content: list[_Summary] | None = None


class _Typed(msgspec.Struct):
    type: str = ""


_REASONING = msgspec.json.Decoder(_Reasoning)
_TYPED = msgspec.json.Decoder(_Typed)


def kind_of(fields: Mapping[str, bytes]) -> str:
    """What an item is; one with a role and nothing more is a message."""
    return string_of(fields.get("type", b"")) or ("message" if "role" in fields else "")


def is_head(element: bytes) -> bool:
    """Whether an item belongs to the head if it stands at the start."""
    fields = object_of(element)
    kind = kind_of(fields)
    return kind in _HEAD_KINDS or (kind == "message" and _text(fields, "role") in _HEAD_ROLES)


def compacted(elements: Sequence[bytes]) -> int:
    """How many items at the start are what the provider's own compaction left of a history: what people said, and one
    item that only the provider reads. 0: it is no such history."""
    found = 0
    for place, element in enumerate(elements, 1):
        if kind_of(object_of(element)) == _COMPACTED:
            found = place
        elif speaker_of(element) not in ("user", "host"):
            break
    return found


def speaker_of(element: bytes) -> Speaker:
    fields = object_of(element)
    kind = kind_of(fields)
    if kind == "message":
        match _text(fields, "role"):
            case "assistant":
                return "assistant"
            case "user":
                return voice(words(_listed(fields.get("content", b""))))
            case _:
                return "host"
    if kind.endswith("_output") and "call_id" in fields:
        return "tool"
    return "host" if not kind or _CLIENT_KINDS.fullmatch(kind) else "assistant"


def call_ids(element: bytes) -> tuple[str, ...]:
    fields = object_of(element)
    kind, call_id = kind_of(fields), _text(fields, "call_id")
    return (_key(kind, call_id),) if kind.endswith("_call") and call_id else ()


def text_of(element: bytes) -> str:
    fields = object_of(element)
    return "\n\n".join(words(_listed(fields.get("content", b"")))) if kind_of(fields) == "message" else ""


# -- ids and names that say what kind of call it is


def called(fields: Mapping[str, bytes]) -> str:
    """The name of a called tool; `functions` is what the API calls the tools that are in no namespace."""
    inside, name = _text(fields, "namespace"), _text(fields, "name")
    if not name:
        return kind_of(fields).removesuffix("_call")
    return name if inside in _NOWHERE else f"{inside}{_IN}{name}"


def _key(kind: str, call_id: str) -> str:
    return call_id if kind == _FUNCTION else f"{kind}:{call_id}"


def _unkeyed(key: str) -> tuple[str, str]:
    """(kind of the call, its id at the API)."""
    found = _KEY.fullmatch(key)
    return (found[1], found[2]) if found else (_FUNCTION, key)


def _call_kind(result: str) -> str:
    return _SEARCH if result == _FOUND else result.removesuffix("_output")


def _result_kind(call: str) -> str:
    return _FOUND if call == _SEARCH else f"{call}_output"


# -- known again


def canonical_of(element: bytes, *, keeps_arguments: bool = False) -> bytes:
    """As `Face.canonical`; `keeps_arguments` for comparing what we write with what a client wrote."""
    return sorted_or_raw(element, lambda value: _canonical(value, keeps_arguments=keeps_arguments))


def _canonical(value: object, *, keeps_arguments: bool) -> object:
    if not isinstance(value, dict):
        return value
    found = unmarked(value) if value.get("type") == "item_reference" else unmarked(value, *_NO_PROMPT)
    if "role" in found:
        found.setdefault("type", "message")
    for name in ("content", "output"):
        listed = found.get(name)
        if isinstance(listed, list):
            found[name] = _content(listed)
    if found.get("type") == _FUNCTION and not keeps_arguments:
        found.pop("arguments", None)
    return found


def _content(parts: Sequence[object]) -> object:
    shown = [_part(part) if isinstance(part, dict) else part for part in parts]
    only = shown[0] if len(shown) == 1 else None
    if isinstance(only, dict) and set(only) == {"type", "text"}:
        kind = only["type"]
        return only["text"] if isinstance(kind, str) and kind in _TEXTS else shown
    return shown


def _part(part: Mapping[str, object]) -> object:
    empty = [name for name in ("annotations", "logprobs") if part.get(name) == []]
    usual = ["detail"] if part.get("detail") == "auto" else []
    return unmarked(part, *empty, *usual)


# -- facts


def facts_of(elements: Sequence[bytes], blobs: Blobs, dialect: Dialect) -> Iterator[Fact]:
    run: list[bytes] = []
    for element in elements:
        if speaker_of(element) == "assistant":
            run.append(element)
            continue
        if run:
            yield _reply(run, dialect)
            run = []
        yield _said(element, blobs, dialect)
    if run:
        yield _reply(run, dialect)


def _reply(elements: Sequence[bytes], dialect: Dialect) -> Fact:
    blocks = reply_blocks(elements)
    return ModelReplied(blocks=blocks, wire=wire_of_reply(dialect, blocks, elements))


def wire_of_reply(dialect: Dialect, blocks: tuple[Block, ...], elements: Sequence[bytes]) -> str:
    return _wire(dialect, "assistant", blocks, "", elements)


def reply_blocks(elements: Sequence[bytes]) -> tuple[Block, ...]:
    """What a model put out, item by item."""
    return tuple(block for element in elements if (block := _put_out(element)) is not None)


def _put_out(element: bytes) -> Block | None:
    fields = object_of(element)
    kind, raw = kind_of(fields), raw_text(element)
    call_id = _text(fields, "call_id")
    match kind:
        case "message" if _is_words(fields.get("content", b"")):
            text = "".join(words(_listed(fields.get("content", b""))))
            return Text(text=text) if text else None
        case "reasoning":
            found = read(element, _REASONING) or _Reasoning()
            shown = found.summary or found.content or ()
            return Thought(text="\n\n".join(one.text for one in shown if one.text), opaque=raw)
        case "function_call" | "custom_tool_call":
            arguments = _text(fields, "arguments" if kind == _FUNCTION else "input")
            return ToolCall(call_id=_key(kind, call_id), name=called(fields), arguments=arguments)
        case _ if kind.endswith("_call") and call_id:  # all of it stands for its arguments
            return ToolCall(call_id=_key(kind, call_id), name=called(fields), arguments=raw)
        case _:
            return Opaque(kind=kind or "item", raw=raw)


def _said(element: bytes, blobs: Blobs, dialect: Dialect) -> Fact:
    fields = object_of(element)
    kind, speaker = kind_of(fields), speaker_of(element)
    whole: tuple[Block, ...] = (Opaque(kind=kind or "item", raw=raw_text(element)),)
    if speaker == "tool":
        key = _key(_call_kind(kind), _text(fields, "call_id"))
        blocks = _result_blocks(fields.get("output", b""), blobs) or whole
        return ToolReturned(call_id=key, blocks=blocks, wire=_wire(dialect, "tool", blocks, key, (element,)))
    blocks = tuple(_blocks(fields.get("content", b""), blobs)) if kind == "message" else whole
    if speaker == "user":
        blocks = asides(blocks)
        return UserSaid(blocks=blocks, wire=_wire(dialect, "user", blocks, "", (element,)))
    wire = _wire(dialect, "host", blocks, "", (element,))
    return HostSaid(kind="injected", blocks=blocks, wire=wire, stands=_stands(element, blocks))


def _stands(element: bytes, blocks: tuple[Block, ...]) -> str:
    """As `HostSaid.stands`: settings replace the ones before, tools come to those that are there."""
    fields = object_of(element)
    kind, role = kind_of(fields), _text(fields, "role")
    if kind == "additional_tools":
        return f"{kind} {hashlib.sha256(element).hexdigest()[:12]}"
    if kind == "message":
        return standing(role, blocks) if role in _HEAD_ROLES else ""
    return kind if kind in _HEAD_KINDS else ""


def _blocks(content: bytes, blobs: Blobs) -> Iterator[Block]:
    if content.startswith(b'"'):
        text = string_of(content)
        if text:
            yield Text(text=text)
        return
    for raw in array_of(content):
        part = read(raw, _CONTENT)
        block = content_block(blobs, part, msgspec.Raw(raw)) if part is not None else None
        if not isinstance(block, Text) or block.text:
            yield block or Opaque(kind="content", raw=raw_text(raw))


def _result_blocks(output: bytes, blobs: Blobs) -> tuple[Block, ...]:
    """Nothing for an output of another shape."""
    if output.startswith(b'"'):
        return (ToolResultRaw(text=string_of(output)),)
    listed = _blocks(output, blobs)
    return tuple(ToolResultRaw(text=block.text) if isinstance(block, Text) else block for block in listed)


# -- written anew


def written(provider: Dialect, item: Item) -> bytes:
    """The input items that an item is, joined by commas."""
    if own := own_wire(item, _unkeyed(item.call_id)[1]):
        return own
    if item.role == "assistant":
        return b",".join(filter(None, (_block(provider, item, block) for block in item.blocks)))
    return _result(provider, item) if item.role == "tool" else provider.message((item,))


def _block(provider: Dialect, item: Item, block: Block) -> bytes:
    if not isinstance(block, ToolCall):
        return provider.message((msgspec.structs.replace(item, blocks=(block,)),))
    kind, call_id = _unkeyed(block.call_id)
    inside, is_inside, name = block.name.rpartition(_IN)
    if kind == _FUNCTION:
        plain = msgspec.structs.replace(block, name=name)
        data = provider.message((msgspec.structs.replace(item, blocks=(plain,)),))
    elif kind == _CUSTOM:
        data = b'{"type":"custom_tool_call","call_id":%b,"name":%b,"input":%b}' % (
            string(call_id),
            string(name),
            string(block.arguments),
        )
    else:
        return raw_object(block.arguments)
    return data[:-1] + b',"namespace":%b}' % string(inside) if is_inside else data


def _result(provider: Dialect, item: Item) -> bytes:
    kind, call_id = _unkeyed(item.call_id)
    only = item.blocks[0] if len(item.blocks) == 1 else None
    if isinstance(only, Opaque) and only.kind == _result_kind(kind):
        return raw_object(only.raw)
    if kind == _SEARCH:
        return b'{"type":"tool_search_output","call_id":%b,"tools":[]}' % string(call_id)
    data = provider.message((msgspec.structs.replace(item, call_id=call_id),))
    return data.replace(b"function_call_output", _result_kind(kind).encode(), 1)


# -- small things


def _text(fields: Mapping[str, bytes], name: str) -> str:
    return string_of(fields.get(name, b""))


def _listed(content: bytes) -> str | list[msgspec.Raw]:
    return string_of(content) if content.startswith(b'"') else [msgspec.Raw(raw) for raw in array_of(content)]


def _is_words(content: bytes) -> bool:
    parts = (read(raw, _TYPED) for raw in array_of(content))
    return all(part is not None and part.type in _WORDS for part in parts)


def _wire(dialect: Dialect, role: Role, blocks: tuple[Block, ...], call_id: str, elements: Sequence[bytes]) -> str:
    return wire_of(dialect, (role, blocks, call_id), elements, partial(canonical_of, keeps_arguments=True))
