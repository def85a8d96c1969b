"""Reading an answer of the Anthropic Messages API, streamed or whole, into blocks.

A block is read as the API opened it, each delta put where it belongs: text to text, JSON pieces to a call's raw
arguments. A kind of block or delta that is not known is put together the same way, by its fields, and kept as an
`Opaque`. Thoughts keep their whole item with its signature: that is what goes back.
"""

from __future__ import annotations

import msgspec

from transom.adapters.provider_api import counted, kind_of, read_figures, read_loosely
from transom.adapters.provider_errors import Failure, failure_of
from transom.adapters.provider_writing import input_object, string, written_array, written_object
from transom.core.block import Block, Opaque, Text, Thought, ToolCall
from transom.core.event import Usage
from transom.ports import Delta, Reply

__all__ = ["AnthropicReader"]


class _CacheCreation(msgspec.Struct):
    ephemeral_1h_input_tokens: int | None = None


class _OutputDetails(msgspec.Struct):
    thinking_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_creation: _CacheCreation | None = None
    output_tokens_details: _OutputDetails | None = None


class _Message(msgspec.Struct):
    id: str = ""
    model: str = ""
    type: str = ""
    content: list[msgspec.Raw] = []
    stop_reason: str | None = None
    usage: msgspec.Raw = msgspec.Raw(b"null")


class _Stop(msgspec.Struct):
    stop_reason: str | None = None


class _Event(msgspec.Struct):
    """Every event's fields; `delta` is read by the kind of its event."""

    type: str = ""
    index: int = 0
    message: _Message | str | None = None
    content_block: msgspec.Raw = msgspec.Raw(b"{}")
    delta: msgspec.Raw = msgspec.Raw(b"{}")
    usage: msgspec.Raw = msgspec.Raw(b"null")


class _Delta(msgspec.Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    citation: msgspec.Raw = msgspec.Raw(b"{}")


class _Block(msgspec.Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    id: str = ""
    name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"{}")


_EVENT = msgspec.json.Decoder(_Event)
_MESSAGE = msgspec.json.Decoder(_Message)
_DELTA = msgspec.json.Decoder(_Delta)
_STOP = msgspec.json.Decoder(_Stop)
_BLOCK = msgspec.json.Decoder(_Block)
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_USAGE = msgspec.json.Decoder(_Usage | None, strict=False)
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class _Open:
    """A block while it streams: its opening item and what came since, field by field."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.kind = kind_of(raw)
        self.grown: dict[str, list[str]] = {}
        self.replaced: dict[str, bytes] = {}
        self.listed: dict[str, list[bytes]] = {}

    def grow(self, field: str, text: str) -> None:
        self.grown.setdefault(field, []).append(text)

    def item(self) -> bytes:
        """The whole item: bytes as they came where nothing was added."""
        if not self.grown and not self.replaced and not self.listed:
            return self.raw
        fields = {name: bytes(value) for name, value in _FIELDS.decode(self.raw).items()}
        for name, texts in self.grown.items():
            text = "".join(texts)
            if name == "input":
                if text.strip():
                    fields[name] = input_object(text)  # cut off by the output limit it would be no JSON
                continue
            opened = fields.get(name, b"")
            start = msgspec.json.decode(opened, type=str) if opened.startswith(b'"') else ""
            fields[name] = string(start + text)
        for name, values in self.listed.items():
            opened = fields.get(name, b"")
            fields[name] = written_array([*(_LIST.decode(opened) if opened.startswith(b"[") else ()), *values])
        return written_object({**fields, **self.replaced})


class AnthropicReader:
    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._message = _Message()
        self._usage = _Usage()
        self._stop = ""
        self._blocks: dict[int, _Open] = {}
        self.is_done = False

    def event(self, data: str) -> Delta | Failure | None:
        event = read_loosely(data, _EVENT)
        match event.type:
            case "message_start":
                if isinstance(event.message, _Message):
                    self._message = event.message
                    self._count(event.message.usage)
            case "content_block_start":
                self._blocks[event.index] = opened = _Open(bytes(event.content_block))
                if opened.kind == "tool_use":
                    return Delta(kind="call", text=_BLOCK.decode(opened.raw).name + " ")
            case "content_block_delta":
                return self._delta(event)
            case "message_delta":
                self._stop = _STOP.decode(event.delta).stop_reason or self._stop
                self._count(event.usage)
            case "message_stop":
                self.is_done = True
            case "error":
                return failure_of(0, data.encode())
            case _:
                pass  # ping, and whatever comes to be
        return None

    def _delta(self, event: _Event) -> Delta | None:
        block = self._blocks.get(event.index)
        if block is None:
            return None
        delta = _DELTA.decode(event.delta)
        match delta.type:
            case "text_delta":
                block.grow("text", delta.text)
                return Delta(kind="text", text=delta.text)
            case "thinking_delta":
                block.grow("thinking", delta.thinking)
                return Delta(kind="thought", text=delta.thinking)
            case "signature_delta":
                block.grow("signature", delta.signature)
            case "input_json_delta":
                block.grow("input", delta.partial_json)
                if block.kind == "tool_use":
                    return Delta(kind="call", text=delta.partial_json)
            case "citations_delta":
                block.listed.setdefault("citations", []).append(bytes(delta.citation))
            case _:
                for name, value in _FIELDS.decode(event.delta).items():
                    raw = bytes(value)
                    if name != "type" and raw.startswith(b'"'):
                        block.grow(name, msgspec.json.decode(raw, type=str))
                    elif name != "type":
                        block.replaced[name] = raw
        return None

    def _count(self, said: bytes) -> None:
        """The last figure given counts: `message_delta` repeats and completes those of the start."""
        usage = read_figures(said, _USAGE)
        for name in _Usage.__struct_fields__ if usage is not None else ():
            if (figure := getattr(usage, name)) is not None:
                setattr(self._usage, name, figure)

    def whole(self, data: bytes) -> Reply | Failure:
        message = read_loosely(data, _MESSAGE)
        if message.type != "message":
            return failure_of(0, data)
        self._message, self._stop, self.is_done = message, message.stop_reason or "", True
        self._count(message.usage)
        self._blocks = {place: _Open(bytes(raw)) for place, raw in enumerate(message.content)}
        return self._whole()

    def reply(self) -> Reply | None:
        return self._whole() if self.is_done or self._stop else None

    def items(self) -> tuple[bytes, ...]:
        """The API's own items that the reply's blocks are read from, one each: what the API takes back of them."""
        return tuple(self._blocks[place].item() for place in sorted(self._blocks))

    def _whole(self) -> Reply:
        return Reply(
            blocks=tuple(self._block(self._blocks[place]) for place in sorted(self._blocks)),
            stop_reason=self._stop,
            usage=_split(self._usage),
            model=self._message.model,
            response_id=self._message.id,
        )

    def _block(self, opened: _Open) -> Block:
        if opened.kind == "tool_use":
            start = _BLOCK.decode(opened.raw)
            arguments = "".join(opened.grown.get("input", ())) or bytes(start.input).decode()
            return ToolCall(call_id=start.id, name=start.name, arguments=arguments)
        item = opened.item()
        match opened.kind:
            case "text":
                return Text(text=_BLOCK.decode(item).text)
            case "thinking" | "redacted_thinking":
                block = _BLOCK.decode(item)
                if block.type == "thinking" and not block.signature:  # cut off by the output limit
                    return Thought(text=block.thinking)
                return Thought(text=block.thinking, opaque=item.decode(), origin=self._origin)
            case kind:
                return Opaque(kind=kind, raw=item.decode(), origin=self._origin)


def _split(usage: _Usage) -> Usage | None:
    if usage.input_tokens is None:
        return None
    hour = usage.cache_creation.ephemeral_1h_input_tokens if usage.cache_creation is not None else None
    details = usage.output_tokens_details
    reasoning = details.thinking_tokens if details is not None else None
    found = Usage(
        uncached=usage.input_tokens,
        cached=usage.cache_read_input_tokens or 0,
        written=usage.cache_creation_input_tokens or 0,
        written_1h=hour or 0,
        output=usage.output_tokens or 0,
        reasoning=-1 if reasoning is None else reasoning,
    )
    return counted(found)
