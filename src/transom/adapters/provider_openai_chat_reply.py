"""Reading an answer of a Chat Completions API, streamed or whole, into blocks: thoughts, text, calls, in this order.

Servers differ in what they stream. A call's id and name may come once or with every piece, and its index may be missing
or always 0, so a new id opens a new call, and where there are no ids a new name or arguments behind whole ones do. The
answer is whole once a finish reason was seen; usage may follow it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from transom.adapters.provider_api import counted, micro_dollars, read_figures, read_loosely
from transom.adapters.provider_errors import Failure, failure_of
from transom.adapters.provider_writing import string, written_object
from transom.core.block import Block, Opaque, Text, Thought, ToolCall
from transom.core.event import Usage
from transom.ports import Delta, Reply

__all__ = ["ChatReader"]

_DONE = "[DONE]"


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _CompletionDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    cost: float | None = None


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: msgspec.Raw = msgspec.Raw(b"null")
    """A string by the book; some servers send the object itself."""


class _Call(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    type: str | None = None
    function: _Function | None = None


class _Content(msgspec.Struct):
    type: str = ""
    text: str | None = None


class _Message(msgspec.Struct):
    content: str | list[msgspec.Raw] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[msgspec.Raw] | None = None
    tool_calls: list[msgspec.Raw] | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    delta: _Message | None = None
    message: _Message | None = None
    finish_reason: str | None = None


class _Answer(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: msgspec.Raw = msgspec.Raw(b"null")
    error: msgspec.Raw = msgspec.Raw(b"null")


_ANSWER = msgspec.json.Decoder(_Answer)
_USAGE = msgspec.json.Decoder(_Usage | None, strict=False)
_CALL = msgspec.json.Decoder(_Call)
_CONTENT = msgspec.json.Decoder(_Content)

_FAILED: dict[str, Failure] = {
    "error": Failure(kind="unavailable", message="the server broke the answer off (finish reason error)"),
    "network_error": Failure(kind="unavailable", message="the server broke the answer off (network_error)"),
}
"""Finish reasons of answers that are none."""
_FULL = "model_context_window_exceeded"


@dataclass(slots=True)
class _Pending:
    number: int
    call_id: str
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    other: bytes = b""
    """The raw item, if it is no function call."""


class ChatReader:
    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._id = ""
        self._model = ""
        self._stop = ""
        self._usage: _Usage | None = None
        self._texts: list[str] = []
        self._refusals: list[str] = []
        self._reasoned: dict[str, list[str]] = {}
        self._details: list[bytes] = []
        self._others: list[Block] = []
        self._calls: list[_Pending] = []
        self._open: dict[int, _Pending] = {}
        self.pieces: list[tuple[int, str | None]] = []
        """Of the last event's pieces of calls: which call of the answer it belongs to, counted from 0, and its name; ""
        if it has not come yet, None if it is no function call."""
        self.is_done = False

    def event(self, data: str) -> Delta | Failure | None:
        if data.strip() == _DONE:
            self.is_done = bool(self._stop)
            return None
        found = self._read(data)
        return found if isinstance(found, Delta | Failure) else None

    def whole(self, data: bytes) -> Reply | Failure:
        found = self._read(data)
        if isinstance(found, Failure):
            return found
        if not self._stop:
            return failure_of(0, data)
        self.is_done = True
        return self._whole()

    def reply(self) -> Reply | None:
        return self._whole() if self._stop else None

    def _read(self, data: str | bytes) -> Delta | Failure | None:
        self.pieces = []
        answer = read_loosely(data, _ANSWER)
        if bytes(answer.error) != b"null":
            return failure_of(0, data.encode() if isinstance(data, str) else data)
        self._id = self._id or answer.id or ""
        self._model = self._model or answer.model or ""
        self._usage = read_figures(answer.usage, _USAGE) or self._usage
        for choice in answer.choices or ():
            if choice.index:
                continue
            message = choice.delta or choice.message
            shown = self._take(message) if message is not None else None
            self._stop = choice.finish_reason or self._stop
            if self._stop in _FAILED:
                return _FAILED[self._stop]
            if self._stop == _FULL and not self._texts and not self._calls:
                return Failure(kind="overflow", message="the server ended the answer before its first word: " + _FULL)
            return shown
        return None

    def _take(self, message: _Message) -> Delta | None:
        shown: Delta | None = None
        for name in ("reasoning_content", "reasoning"):
            reasoned: str | None = getattr(message, name)
            if reasoned:
                self._reasoned.setdefault(name, []).append(reasoned)
                shown = Delta(kind="thought", text=reasoned)
        self._details.extend(bytes(raw) for raw in message.reasoning_details or ())
        text = message.content if isinstance(message.content, str) else self._listed(message.content or ())
        if text:
            self._texts.append(text)
            shown = Delta(kind="text", text=text)
        if message.refusal:
            self._refusals.append(message.refusal)
            shown = Delta(kind="text", text=message.refusal)
        for raw in message.tool_calls or ():
            shown = Delta(kind="call", text=self._call(bytes(raw)))
        return shown

    def _listed(self, contents: Sequence[msgspec.Raw]) -> str:
        """The words of content in list form; what is no text is kept as it came."""
        words = []
        for raw in contents:
            content = _CONTENT.decode(raw)
            if content.type == "text":
                words.append(content.text or "")
            else:
                self._others.append(Opaque(kind=content.type, raw=bytes(raw).decode(), origin=self._origin))
        return "".join(words)

    def _call(self, raw: bytes) -> str:
        call = _CALL.decode(raw)
        place = call.index
        if place is None:
            is_opening = call.id or (call.function is not None and call.function.name)
            place = len(self._calls) if is_opening else max(len(self._calls) - 1, 0)
        pending = self._open.get(place)
        if pending is None or _is_another(call, pending):
            pending = _Pending(number=len(self._calls), call_id=call.id or "")
            self._calls.append(pending)
            self._open[place] = pending
        pending.call_id = pending.call_id or call.id or ""
        function = call.function
        if function is None:
            if call.type not in (None, "function"):
                pending.other = pending.other or raw
            self.pieces.append((pending.number, None if pending.other else pending.name))
            return ""
        is_new = bool(function.name) and not pending.name
        pending.name = pending.name or function.name or ""
        self.pieces.append((pending.number, None if pending.other else pending.name))
        raw = bytes(function.arguments)
        text = msgspec.json.decode(raw, type=str) if raw.startswith(b'"') else "" if raw == b"null" else raw.decode()
        pending.arguments.append(text)
        return f"{pending.name} {text}" if is_new else text

    def _whole(self) -> Reply:
        text, refusal = "".join(self._texts), "".join(self._refusals)
        blocks: list[Block] = [*self._thoughts()]
        blocks.extend(Text(text=words) for words in (text, refusal) if words)
        blocks.extend(self._others)
        blocks.extend(self._block(number, pending) for number, pending in enumerate(self._calls, 1))
        is_refused = refusal and self._stop == "stop"
        return Reply(
            blocks=tuple(blocks),
            stop_reason="refusal" if is_refused else self._stop,
            usage=_split(self._usage),
            model=self._model,
            response_id=self._id,
        )

    def _thoughts(self) -> tuple[Block, ...]:
        """One thought with the fields to send back; `reasoning_details` carries what `reasoning` only shows."""
        shown = {name: "".join(texts) for name, texts in self._reasoned.items()}
        fields = {name: string(text) for name, text in shown.items()}
        if self._details:
            fields = {"reasoning_details": b"[%b]" % b",".join(self._details)}
        if not fields:
            return ()
        words = shown.get("reasoning_content") or shown.get("reasoning") or ""
        return (Thought(text=words, opaque=written_object(fields).decode(), origin=self._origin),)

    def _block(self, number: int, pending: _Pending) -> Block:
        if pending.other:
            return Opaque(kind="tool_call", raw=pending.other.decode(), origin=self._origin)
        call_id = pending.call_id or f"call_{self._id}_{number}"
        return ToolCall(call_id=call_id, name=pending.name, arguments="".join(pending.arguments))


def _is_another(call: _Call, pending: _Pending) -> bool:
    """Whether a piece opens a call of its own at a place that is taken: it has another id; or, where a server gives
    none, another name, or arguments behind whole ones."""
    if call.id and pending.call_id:
        return call.id != pending.call_id
    function = call.function
    if call.id or pending.call_id or function is None or not function.name or not pending.name:
        return False
    is_empty = bytes(function.arguments) in (b"null", b'""')
    return function.name != pending.name or (not is_empty and _is_whole("".join(pending.arguments)))


def _is_whole(arguments: str) -> bool:
    try:
        msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True


def _split(usage: _Usage | None) -> Usage | None:
    if usage is None or usage.prompt_tokens is None:
        return None
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    cached = (prompt.cached_tokens if prompt is not None else None) or usage.prompt_cache_hit_tokens or 0
    written = (prompt.cache_write_tokens if prompt is not None else None) or 0
    reasoning = completion.reasoning_tokens if completion is not None else None
    found = Usage(
        uncached=max(usage.prompt_tokens - cached - written, 0),
        cached=cached,
        written=written,
        output=usage.completion_tokens or 0,
        reasoning=-1 if reasoning is None else reasoning,
        cost_microusd=micro_dollars(usage.cost),
    )
    return counted(found)
