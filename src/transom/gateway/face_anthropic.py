"""The Anthropic Messages API as a gateway meets it: requests read and written, a client's history as facts.

A request that is only passed on gets the host's tools at the end of its own and is otherwise the client's, byte for
byte. A projected one has the client's fields in the client's order with other messages in it. The client's head keeps
its cache marks; the marks it had in its history are replaced by ours, in the client's own form (its time to live), as
many as its head leaves of the API's four.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from transom.adapters.provider_anthropic import dialect
from transom.adapters.provider_writing import Reach, string, written_array, written_object
from transom.core.block import Block, Opaque, Thought
from transom.core.event import Fact, HostSaid, ModelReplied, Section, Tool, UserSaid
from transom.core.state import NOTHING, Head, Item, Role
from transom.core.wire import Dialect, Segment
from transom.errors import BadInput
from transom.gateway.content_anthropic import (
    Message,
    blocks_of,
    calls_of,
    is_same,
    kind_of,
    message_of,
    plain,
    result_of,
    role_of,
    whole,
    words_of,
)
from transom.gateway.face import Call, Speaker, Splice, standing
from transom.gateway.marks_anthropic import free_marks, mark_of, marked
from transom.gateway.outline import LISTED, Outline, outline, written
from transom.gateway.reading import exchanged, extended, fields_of, listed, value_of, without
from transom.gateway.splice_anthropic import AnthropicSplice
from transom.importers.fields import raw_text, read
from transom.importers.messages import catalogue
from transom.ports import Blobs

__all__ = ["AnthropicFace"]

_WHOLE = '{"role":'
_ASSISTANT = b'{"role":"assistant","content":['
_USER = b'{"role":"user","content":['
_END = b"]}"
_TOOL_FIELDS = frozenset({"name", "description", "input_schema", "cache_control"})
_TEXT_FIELDS = frozenset({"type", "text", "cache_control"})
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class _Outline(msgspec.Struct):
    """What of a tool or a system block says what it is."""

    type: str = ""
    name: str = ""
    text: str = ""
    defer_loading: bool | None = None


_OUTLINE = msgspec.json.Decoder(_Outline)


class AnthropicFace:
    """`blobs`: where pictures lie that the log holds."""

    def __init__(self, blobs: Blobs | None = None) -> None:
        self._provider = dialect(Reach(blobs=blobs, keeps_ids=True))
        self._dialect = Dialect(name="anthropic", head=self._shown_head, message=self._shown, tail=self._provider.tail)

    @property
    def name(self) -> str:
        return "anthropic"

    @property
    def dialect(self) -> Dialect:
        return self._dialect

    # -- a request as it is read

    def call(self, body: bytes, known: Iterable[Outline] = ()) -> Call:
        found = outline(body, "messages", known)
        fields, elements = found.fields, found.items
        if fields.get("messages") != LISTED:
            raise BadInput("no request of the Messages API: it has no messages")
        limit = value_of(fields.get("max_tokens", b"0"))
        model = value_of(fields.get("model", b'""'))
        lead = 0
        while lead < len(elements) and role_of(elements[lead]) == "system":
            lead += 1
        return Call(
            body=body,
            outline=found,
            elements=elements,
            lead=lead,
            model=model if isinstance(model, str) else "",
            is_streamed=fields.get("stream") == b"true",
            max_output_tokens=limit if isinstance(limit, int) else 0,
            has_tools=bool(listed(fields, "tools")),
        )

    def head(self, call: Call) -> tuple[tuple[Section, ...], tuple[Tool, ...]]:
        """A section is a system block's text, a tool its name, description and schema; the block or the tool itself, as
        raw JSON, where it has other fields (`_shown_head` knows it by its first letters)."""
        system = call.fields.get("system", b"null")
        blocks = (b'{"type":"text","text":%b}' % system,) if system.startswith(b'"') else listed(call.fields, "system")
        sections = [Section(key=f"client.{place}", text=_section(block)) for place, block in enumerate(blocks)]
        for place, element in enumerate(call.elements[: call.lead]):
            sections.append(Section(key=f"lead.{place}", text=raw_text(whole(message_of(element)))))
        return tuple(sections), tuple(_tool(raw) for raw in listed(call.fields, "tools") if not _is_deferred(raw))

    def canonical(self, element: bytes) -> bytes:
        return plain(element)

    def speaker(self, element: bytes) -> Speaker:
        role = role_of(element)
        if role == "assistant":
            return "assistant"
        if role != "user":
            return "host"
        kinds = {kind_of(piece) for piece in message_of(element).pieces}
        if "result" in kinds:
            return "tool"
        return "host" if kinds == {"injected"} else "user"

    def calls(self, element: bytes) -> tuple[str, ...]:
        return calls_of(message_of(element).pieces) if role_of(element) == "assistant" else ()

    def text(self, element: bytes) -> str:
        try:
            return words_of(message_of(element).pieces)
        except BadInput:
            return ""

    # -- a history as facts

    def facts(self, elements: Sequence[bytes], blobs: Blobs) -> tuple[Fact, ...]:
        found: list[Fact] = []
        for is_reply, run in groupby(elements, lambda element: role_of(element) == "assistant"):
            if is_reply:
                found.append(self._replied([message_of(element) for element in run], blobs))
                continue
            for element in run:
                found.extend(self._said(element, blobs))
        return tuple(found)

    def _replied(self, messages: Sequence[Message], blobs: Blobs) -> ModelReplied:
        pieces = [piece for message in messages for piece in message.pieces]
        own = {name: value for message in messages for name, value in message.own.items()}
        blocks = blocks_of(pieces, blobs)
        return ModelReplied(blocks=blocks, wire=self._wire("assistant", blocks, pieces, own))

    def _said(self, element: bytes, blobs: Blobs) -> Iterator[Fact]:
        try:
            message = message_of(element)
        except BadInput:
            yield _malformed(element)
            return
        if not message.role:
            yield _malformed(element)
            return
        if message.role != "user":
            blocks = blocks_of(message.pieces, blobs)
            wire = raw_text(whole(message)) if blocks else ""
            stands = standing(message.role, blocks) if message.role == "system" else ""
            yield HostSaid(kind="injected", blocks=blocks, wire=wire, stands=stands)
            return
        own = message.own
        for kind, run in groupby(message.pieces, kind_of):
            pieces = list(run)
            for fact in (
                self._results(pieces, own, blobs) if kind == "result" else self._words(kind, pieces, own, blobs)
            ):
                yield fact
                own = {}

    def _results(self, pieces: Sequence[bytes], own: dict[str, bytes], blobs: Blobs) -> Iterator[Fact]:
        for piece in pieces:
            fact = result_of(piece, blobs)
            if fact is None:
                yield UserSaid(blocks=(Opaque(kind="malformed", raw=raw_text(piece)),), wire=raw_text(piece))
                continue
            wire = self._wire("tool", fact.blocks, [piece], own, call_id=fact.call_id, is_error=fact.is_error)
            yield msgspec.structs.replace(fact, wire=wire)
            own = {}

    def _words(self, kind: str, pieces: Sequence[bytes], own: dict[str, bytes], blobs: Blobs) -> Iterator[Fact]:
        blocks = blocks_of(pieces, blobs)
        if not blocks:
            return
        if kind == "injected":
            yield HostSaid(kind="injected", blocks=blocks, wire=self._wire("host", blocks, pieces, own))
        else:
            yield UserSaid(blocks=blocks, wire=self._wire("user", blocks, pieces, own))

    def _wire(
        self,
        role: Role,
        blocks: tuple[Block, ...],
        pieces: Sequence[bytes],
        own: dict[str, bytes],
        *,
        call_id: str = "",
        is_error: bool = False,
    ) -> str:
        """What an item has to carry beside its blocks, to be shown as the pieces are."""
        if own:
            speaker = "assistant" if role == "assistant" else "user"
            return raw_text(whole(Message(role=speaker, pieces=tuple(pieces), own=own)))
        item = Item(
            seq=1, uuid="", role=role, blocks=blocks, turn=0, step=0, counts=NOTHING, call_id=call_id, is_error=is_error
        )
        rendered = self._rendered(item)
        return "" if is_same([rendered] if rendered else [], pieces) else raw_text(b",".join(pieces))

    def _reply_wire(self, blocks: tuple[Block, ...], items: Sequence[bytes]) -> str:
        """`Splice.wire`, from the answer's blocks and the API's items they were read from. A thought that was cut off
        has no signature, and the API takes none back without."""
        kept = [raw for block, raw in zip(blocks, items, strict=True) if not isinstance(block, Thought) or block.opaque]
        return self._wire("assistant", blocks, kept, {})

    # -- items on the wire

    def _shown(self, group: Sequence[Item]) -> bytes:
        """One message, or several with commas between them where one of the system stands in the middle."""
        if group[0].role == "assistant":
            return self._shown_reply(group)
        made: list[bytes] = []
        results: list[bytes] = []
        words: list[bytes] = []
        own: dict[str, bytes] = {}
        for item in group:
            data = _wire_of(item) or self._rendered(item)
            if item.wire.startswith(_WHOLE):
                message = message_of(data)
                if message.role != "user":
                    made.extend(_joined("user", own, results + words))
                    made.append(data)
                    own, results, words = {}, [], []
                    continue
                own.update(message.own)
                data = b",".join(message.pieces)
            if item.wire and item.role == "tool":
                data = _answering(data, item.call_id)
            if data:
                (results if item.role == "tool" else words).append(data)
        made.extend(_joined("user", own, results + words))
        return b",".join(made)

    def _shown_reply(self, group: Sequence[Item]) -> bytes:
        own: dict[str, bytes] = {}
        shown: list[bytes] = []
        for item in group:
            data = _wire_of(item) or self._rendered(item)
            if item.wire.startswith(_WHOLE):
                message = message_of(data)
                own.update(message.own)
                data = b",".join(message.pieces)
            if data:
                shown.append(data)
        return b"".join(_joined("assistant", own, shown))

    def _rendered(self, item: Item) -> bytes:
        """The pieces of an item's blocks. An unsigned thought is one that was cut off: the API takes none back."""
        if item.role == "assistant":
            blocks = tuple(block for block in item.blocks if not isinstance(block, Thought) or block.opaque)
            item = item if len(blocks) == len(item.blocks) else msgspec.structs.replace(item, blocks=blocks)
        data = self._provider.message((item,))
        return data[len(_ASSISTANT if item.role == "assistant" else _USER) : -len(_END)]

    def _shown_head(self, head: Head) -> tuple[Segment, ...]:
        """Only for digests and counts: a request has the client's own head."""
        found: list[Segment] = []
        for tool in head.tools:
            is_raw = (
                tool.schema.startswith("{") and not tool.description and _name_of(tool.schema.encode()) == tool.name
            )
            (segment,) = self._provider.head(Head(tools=(tool,)))
            found.append(Segment(name=segment.name, data=tool.schema.encode()) if is_raw else segment)
        return (*found, *self._provider.head(Head(sections=head.sections)))

    # -- a request as it is written

    def body(
        self,
        call: Call,
        *,
        tools: Sequence[Tool],
        messages: Sequence[bytes] | None = None,
        tail: bytes = b"",
        marks: Sequence[int] | None = None,
        forced: str = "",
        withheld: frozenset[str] = frozenset(),
    ) -> bytes:
        ours = [segment.data for segment in self._provider.head(Head(tools=tuple(tools)))]
        if messages is None and not forced and not withheld:
            catalogue = extended(call.fields.get("tools", b""), ours)
            return exchanged(call.body, call.outline.spans, {"tools": catalogue} if ours else {})
        fields = dict(call.fields)
        if withheld:
            offered = [*listed(fields, "tools"), *ours]
            fields["tools"] = written_array([tool for tool in offered if _name_of(tool) not in withheld])
        elif ours:
            fields["tools"] = extended(fields.get("tools", b""), ours)
        shown: Sequence[bytes] = call.elements
        if messages is not None:
            places = (1, len(messages)) if marks is None else marks
            lead = call.elements[: call.lead]
            free = free_marks(fields, lead)
            shown = [*lead, *marked(messages, places, free, mark_of(call.elements)), *([tail] if tail else [])]
        if forced:
            fields = _unthinking(fields)
            fields["tool_choice"] = b'{"type":"tool","name":%b}' % string(forced)
        return written(fields, "messages", shown)

    def splice(self, *, is_streamed: bool) -> Splice:
        return AnthropicSplice(is_streamed=is_streamed, wire_of=self._reply_wire)

    def error(self, status: int, message: str) -> bytes:
        kind = _ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return b'{"type":"error","error":{"type":"%b","message":%b}}' % (kind.encode(), string(message))


def _malformed(element: bytes) -> HostSaid:
    return HostSaid(kind="injected", blocks=(Opaque(kind="malformed", raw=raw_text(element)),))


def _section(block: bytes) -> str:
    if not block.startswith(b"{"):
        return raw_text(block)
    outline, fields = read(block, _OUTLINE), fields_of(block)
    if outline is not None and outline.type == "text" and fields.keys() <= _TEXT_FIELDS:
        return outline.text
    return raw_text(written_object(without(fields, "cache_control")))


def _tool(raw: bytes) -> Tool:
    fields = fields_of(raw) if raw.startswith(b"{") else {}
    if fields.keys() <= _TOOL_FIELDS:
        (tool,) = catalogue((msgspec.Raw(raw),))
        return tool
    return Tool(name=_name_of(raw), schema=raw_text(written_object(without(fields, "cache_control"))))


def _name_of(tool: bytes) -> str:
    outline = read(tool, _OUTLINE)
    return outline.name if outline is not None else ""


def _is_deferred(tool: bytes) -> bool:
    outline = read(tool, _OUTLINE) if b"defer_loading" in tool else None
    return outline is not None and bool(outline.defer_loading)


def _joined(role: str, own: dict[str, bytes], pieces: Sequence[bytes]) -> list[bytes]:
    if not pieces:
        return []
    if own:
        return [whole(Message(role=role, pieces=tuple(pieces), own=own))]
    return [b"".join((_ASSISTANT if role == "assistant" else _USER, b",".join(pieces), _END))]


def _wire_of(item: Item) -> bytes:
    return item.wire.encode("utf-8", "backslashreplace")


def _answering(result: bytes, call_id: str) -> bytes:
    """The result for the id that its call has in this window."""
    fields = fields_of(result)
    ours = string(call_id)
    return result if fields.get("tool_use_id") == ours else written_object({**fields, "tool_use_id": ours})


def _unthinking(fields: dict[str, bytes]) -> dict[str, bytes]:
    """The request without thinking, which the API refuses beside a forced tool, and without what needs it."""
    left = without(fields, "thinking")
    if b"clear_thinking" not in left.get("context_management", b""):
        return left
    management = fields_of(left["context_management"])
    edits = [edit for edit in listed(management, "edits") if b'"clear_thinking' not in edit]
    if not edits:
        return without(left, "context_management")
    left["context_management"] = written_object({**management, "edits": written_array(edits)})
    return left
