"""Reading an answer of the Responses API, streamed or whole, into blocks.

A stream is read for its whole items (`response.output_item.done`), as the raw bytes they came in; deltas are for a
person's eye only. Its end is the event that says completed or incomplete; failed is a failure. Items of a kind that is
not known are kept as `Opaque`.
"""

from __future__ import annotations

import msgspec

from transom.adapters.provider_api import counted, kind_of, read_figures, read_loosely
from transom.adapters.provider_errors import Failure, failure_of
from transom.core.block import Block, Opaque, Text, Thought, ToolCall
from transom.core.event import Usage
from transom.ports import Delta, Reply

__all__ = ["ResponsesReader"]


class _InputDetails(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int = 0
    output_tokens: int = 0
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


class _Incomplete(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    id: str = ""
    model: str = ""
    status: str | None = None
    error: msgspec.Raw = msgspec.Raw(b"null")
    incomplete_details: _Incomplete | None = None
    output: list[msgspec.Raw] | None = None
    usage: msgspec.Raw = msgspec.Raw(b"null")


class _Event(msgspec.Struct):
    type: str = ""
    output_index: int = 0
    delta: msgspec.Raw = msgspec.Raw(b"null")
    item: msgspec.Raw = msgspec.Raw(b"null")
    response: _Response | None = None


class _Content(msgspec.Struct):
    type: str = ""
    text: str = ""
    refusal: str = ""


class _Item(msgspec.Struct):
    type: str = ""
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    content: list[_Content] | None = None
    summary: list[_Content] | None = None


_EVENT = msgspec.json.Decoder(_Event)
_RESPONSE = msgspec.json.Decoder(_Response)
_USAGE = msgspec.json.Decoder(_Usage | None, strict=False)
_ITEM = msgspec.json.Decoder(_Item)
_KNOWN = frozenset({"message", "function_call", "reasoning"})
_UNKNOWN = _Item()


class ResponsesReader:
    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._response = _Response()
        self._items: dict[int, bytes] = {}
        self.is_done = False

    def event(self, data: str) -> Delta | Failure | None:
        event = read_loosely(data, _EVENT)
        match event.type:
            case "response.output_text.delta" | "response.refusal.delta":
                return Delta(kind="text", text=_words(event.delta))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return Delta(kind="thought", text=_words(event.delta))
            case "response.function_call_arguments.delta":
                return Delta(kind="call", text=_words(event.delta))
            case "response.output_item.added":
                if kind_of(event.item) == "function_call":
                    return Delta(kind="call", text=_ITEM.decode(event.item).name + " ")
            case "response.output_item.done":
                self._items[event.output_index] = bytes(event.item)
            case "response.completed" | "response.incomplete" | "response.failed":
                return self._ended(event.response or _Response())
            case "error":
                return failure_of(0, data.encode())
            case _:
                pass  # the rest repeats what the items hold, or is not known
        return None

    def whole(self, data: bytes) -> Reply | Failure:
        response = read_loosely(data, _RESPONSE)
        failure = self._ended(response) if response.status else failure_of(0, data)
        return failure or self._whole()

    def reply(self) -> Reply | None:
        return self._whole() if self.is_done else None

    def _ended(self, response: _Response) -> Failure | None:
        if bytes(response.error) != b"null":
            return failure_of(0, b'{"error":%b}' % bytes(response.error))
        if response.status not in {"completed", "incomplete"}:
            return Failure(kind="unavailable", message=f"the answer ended as {response.status or 'nothing'}")
        self._response, self.is_done = response, True
        output = response.output or ()
        if len(output) > len(self._items):  # servers leave events out, or give all of them one index
            self._items = {place: bytes(raw) for place, raw in enumerate(output)}
        return None

    def _whole(self) -> Reply:
        response = self._response
        items = [self._items[place] for place in sorted(self._items)]
        stop = response.status or ""
        if response.incomplete_details is not None and response.incomplete_details.reason:
            stop = response.incomplete_details.reason
        elif any(content.refusal for raw in items for content in _read(raw).content or ()):
            stop = "refusal"
        return Reply(
            blocks=tuple(block for raw in items if (block := self._block(raw)) is not None),
            stop_reason=stop,
            usage=_split(read_figures(response.usage, _USAGE)),
            model=response.model,
            response_id=response.id,
        )

    def _block(self, raw: bytes) -> Block | None:
        item = _read(raw)
        match item.type:
            case "message":
                text = "".join(content.text or content.refusal for content in item.content or ())
                return Text(text=text) if text else None
            case "function_call":
                return ToolCall(call_id=item.call_id, name=item.name, arguments=item.arguments)
            case "reasoning":
                shown = item.summary or item.content or ()
                words = "\n\n".join(content.text for content in shown if content.text)
                return Thought(text=words, opaque=raw.decode(), origin=self._origin)
            case _:
                return Opaque(kind=kind_of(raw), raw=raw.decode(), origin=self._origin)


def _read(raw: bytes) -> _Item:
    """The item, if it is of a kind and shape we know; else an empty one."""
    if kind_of(raw) in _KNOWN:
        try:
            return _ITEM.decode(raw)
        except msgspec.ValidationError:
            return _UNKNOWN
    return _UNKNOWN


def _words(raw: msgspec.Raw) -> str:
    return msgspec.json.decode(raw, type=str) if bytes(raw).startswith(b'"') else ""


def _split(usage: _Usage | None) -> Usage | None:
    if usage is None:
        return None
    given, made = usage.input_tokens_details, usage.output_tokens_details
    cached = (given.cached_tokens if given is not None else None) or 0
    written = (given.cache_write_tokens if given is not None else None) or 0
    reasoning = made.reasoning_tokens if made is not None else None
    found = Usage(
        uncached=max(usage.input_tokens - cached - written, 0),
        cached=cached,
        written=written,
        output=usage.output_tokens,
        reasoning=-1 if reasoning is None else reasoning,
    )
    return counted(found)
