"""Plain message arrays of the OpenAI and Anthropic chat APIs, and LiteLLM's completion log.

1. Read are: an array of messages; a request (`messages`, with `system`, `tools`, `model`); LiteLLM's log of a call
   (a request with its `response`); and JSONL of any of these. A line that is a message continues the one
   conversation of its file. A line that is a request is a conversation of its own, unless its messages begin with
   those of the line before: then it is the same conversation's next call, and only what is new is said.
2. LiteLLM's log holds the last call of a run, and so the whole history. Beside `NAME.completion.json`,
   `NAME.usage.jsonl` has one line a call; `n_messages` says how many messages it sent, so its reply is the message
   at that place.
3. System and developer messages before the first other message are the head; later ones are `HostSaid`.
4. The formats do not tell typed words from those an agent injected, except by tags known from well-spread clients.
5. Nothing here has an id or, but for those calls, a time: uuids are places in the array or lines of the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

import msgspec

from transom.core.block import Block, Text, ToolCall
from transom.core.canon import FORMAT as LOG_FORMAT
from transom.core.event import (
    EpochOpened,
    HostSaid,
    ModelReplied,
    Observed,
    Section,
    SessionOpened,
    ToolReturned,
    Usage,
    UserSaid,
)
from transom.importers.draft import Item, Said, Unknown
from transom.importers.effects import effect_of
from transom.importers.fields import ABSENT, raw_text, read
from transom.importers.messages import (
    Message,
    Scribe,
    catalogue,
    content_blocks,
    is_absent,
    read_nested,
    reply_blocks,
    result_blocks,
    seconds_ms,
    session_key,
    usage_of,
)
from transom.importers.source import Record, Source
from transom.ports import Blobs

__all__ = ["FORMAT", "parse", "sniff"]

FORMAT = "openai-chat"

_SNIFFED = 1 << 20
"""Bytes looked at: a system prompt may stand before the first message."""

_MESSAGES = re.compile(r'"messages"\s*:\s*\[\s*(?=\{)')
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_ROLE = re.compile(rf'"role"\s*:\s*"(?:{"|".join(_ROLES)})"')
_OBJECT = json.JSONDecoder(strict=False)

_INJECTED = ("<system-reminder>", "<environment_context>", "<user_instructions>", "# AGENTS.md instructions")


class _Request(msgspec.Struct):
    """A request, a log of one, or, with a `role`, a single message."""

    messages: list[msgspec.Raw] | None = None
    role: str | None = None
    system: str | list[msgspec.Raw] | None = None
    tools: list[msgspec.Raw] | None = None
    model: str | None = None
    response: msgspec.Raw = ABSENT
    kwargs: msgspec.Raw = ABSENT
    cost: msgspec.Raw = ABSENT
    timestamp: float | None = None


class _Kwargs(msgspec.Struct):
    tools: list[msgspec.Raw] | None = None
    model: str | None = None


class _Choice(msgspec.Struct):
    message: msgspec.Raw
    finish_reason: str | None = None


class _Response(msgspec.Struct):
    """OpenAI's answer has `choices`; Anthropic's is itself the message."""

    id: str = ""
    model: str = ""
    choices: list[_Choice] | None = None
    usage: msgspec.Raw = ABSENT
    role: str = ""
    stop_reason: str | None = None


class _Call(msgspec.Struct):
    """A line of `.usage.jsonl`."""

    n_messages: int
    timestamp: float | None = None
    usage: msgspec.Raw = ABSENT
    cost: msgspec.Raw = ABSENT
    finish_reason: str | None = None


class _Result(msgspec.Struct):
    type: str = ""
    tool_use_id: str = ""
    content: str | list[msgspec.Raw] | None = None
    is_error: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What is known of a reply beside its message."""

    model: str = ""
    stop_reason: str = ""
    response_id: str = ""
    usage: Usage | None = None
    at: int = 0


_ANY = msgspec.json.Decoder(_Request | list[msgspec.Raw])
_RAW = msgspec.json.Decoder(msgspec.Raw)
_KWARGS = msgspec.json.Decoder(_Kwargs)
_RESPONSE = msgspec.json.Decoder(_Response)
_COST = msgspec.json.Decoder(float)
_CALL = msgspec.json.Decoder(_Call)
_MESSAGE = msgspec.json.Decoder(Message)
_RESULT = msgspec.json.Decoder(_Result)


def sniff(source: Source) -> bool:
    """Whether a message of a role that is known stands where one belongs: a log of requests to a model server has them
    too, further inside."""
    text = source.head(_SNIFFED).decode("utf-8", "replace").lstrip()
    if not text.startswith(("[", "{")):
        return False
    try:
        value, _ = _OBJECT.raw_decode(text)
    except (ValueError, RecursionError):  # longer than what is looked at
        messages = _MESSAGES.search(text)
        start = messages.end() if messages is not None else text.find("{")
        return start >= 0 and _is_message_at(text, start)
    listed = value.get("messages", value) if isinstance(value, dict) else value
    return any(map(_is_message, listed if isinstance(listed, list) else [listed]))


def _is_message_at(text: str, start: int) -> bool:
    """Of a message that is itself longer than `text`, its first words must say so."""
    try:
        return _is_message(_OBJECT.raw_decode(text, start)[0])
    except (ValueError, RecursionError):
        return _ROLE.search(text, start, start + 100) is not None


def _is_message(value: object) -> bool:
    if not isinstance(value, dict) or not ("content" in value or "tool_calls" in value):
        return False
    role = value.get("role")
    return isinstance(role, str) and role in _ROLES


def parse(source: Source, blobs: Blobs) -> Iterator[Item]:
    if _is_lines(source.head(_SNIFFED)):
        yield from _lines(source, blobs)
        return
    document = source.document(_ANY)
    request = _Request(messages=document) if isinstance(document, list) else document
    if request.messages is None and request.role is None:
        yield Unknown(kind="document without messages")
        return
    messages = request.messages or []
    conversation = _Conversation(session_key(_label(source), messages), blobs)
    yield from conversation.request(request, "m", _calls(source))


def _is_lines(head: bytes) -> bool:
    """Whether this is JSONL: a whole value on the first line, and more behind it."""
    first, _, rest = head.lstrip().partition(b"\n")
    return bool(rest.strip()) and read(first, _RAW) is not None


def _label(source: Source) -> str:
    name = PurePosixPath(source.name.replace("!", "/")).name
    for suffix in (".gz", ".zst", ".json", ".jsonl", ".completion"):
        name = name.removesuffix(suffix)
    return name


def _calls(source: Source) -> dict[int, _Answer]:
    """Place of the reply in the array -> what the usage file beside says of it."""
    beside = source.beside(f"{_label(source)}.usage.jsonl")
    lines = beside.lines(_CALL) if beside is not None else ()
    return {
        call.n_messages: _Answer(
            stop_reason=call.finish_reason or "",
            usage=usage_of(call.usage, read(call.cost, _COST)),
            at=seconds_ms(call.timestamp),
        )
        for call in (line.value for line in lines if isinstance(line, Record))
    }


def _lines(source: Source, blobs: Blobs) -> Iterator[Item]:
    single: _Conversation | None = None
    running: _Conversation | None = None
    for line in source.lines(_ANY):
        if not isinstance(line, Record):
            yield line
            continue
        request = _Request(messages=line.value) if isinstance(line.value, list) else line.value
        if request.messages is not None:
            if running is None or not running.is_continued_by(request.messages):
                key = session_key(f"{_label(source)}-{line.line}", request.messages)
                running = _Conversation(key, blobs)
            yield from running.request(request, f"{line.line}.", {})
            continue
        if single is None:
            single = _Conversation(session_key(_label(source), [line.raw]), blobs)
            yield from single.open(request)
        yield from single.message(line.raw, str(line.line), _Answer())
    if single is not None:
        yield from single.close()


class _Conversation:
    """One session: says each message once."""

    def __init__(self, key: str, blobs: Blobs) -> None:
        self._scribe = Scribe(key)
        self._blobs = blobs
        self._tools: dict[str, str] = {}
        self._head: list[Section] = []
        self._request = _Request()
        self._model = ""
        self._is_open = False
        self._is_headed = False
        self._said: list[bytes] = []
        self._has_replied = False

    def is_continued_by(self, messages: list[msgspec.Raw]) -> bool:
        said = self._said
        return len(messages) >= len(said) and all(bytes(messages[i]) == raw for i, raw in enumerate(said))

    def open(self, request: _Request) -> Iterator[Said]:
        """Say that the session opened, once; the head follows before its first message."""
        if self._is_open:
            return
        self._is_open = True
        kwargs = read_nested(request.kwargs, _KWARGS) if not is_absent(request.kwargs) else None
        if kwargs is not None:
            request.tools = request.tools or kwargs.tools
            request.model = request.model or kwargs.model
        self._request = request
        response = read(request.response, _RESPONSE) if not is_absent(request.response) else None
        self._model = request.model or (response.model if response is not None else "")
        yield self._scribe.say(SessionOpened(format=LOG_FORMAT, agent=FORMAT, model=self._model), "open")
        if not is_absent(request.kwargs):
            yield self._scribe.say(Observed(kind="kwargs", raw=raw_text(request.kwargs)), "kwargs")
        self._section(content_blocks(request.system, self._blobs))

    def request(self, request: _Request, prefix: str, answers: dict[int, _Answer]) -> Iterator[Item]:
        """Say what of a request is new, and its response."""
        yield from self.open(request)
        messages = request.messages or []
        start = len(self._said)
        if self._has_replied and start < len(messages):
            start += 1  # the reply that the response before already said
        for place in range(start, len(messages)):
            yield from self.message(messages[place], f"{prefix}{place + 1}", answers.get(place, _Answer()))
        self._said = [bytes(raw) for raw in messages]
        yield from self.close()
        self._has_replied = not is_absent(request.response)
        if self._has_replied:
            known = answers.get(len(messages), _Answer(at=seconds_ms(request.timestamp)))
            cost = read(request.cost, _COST)
            yield from self._response(request.response, f"{prefix}{len(messages) + 1}", known, cost)

    def close(self) -> Iterator[Said]:
        """Say a head that no message followed."""
        if not self._is_headed and (self._head or self._request.tools):
            tools = catalogue(self._request.tools or ())
            yield self._scribe.say(EpochOpened(sections=tuple(self._head), tools=tools), "head")
        self._is_headed = True

    def message(self, raw: msgspec.Raw | bytes, uuid: str, answer: _Answer) -> Iterator[Item]:
        message = read(raw, _MESSAGE)
        role = message.role if message is not None else ""
        if message is not None and role in {"system", "developer"} and not self._is_headed:
            self._section(content_blocks(message.content, self._blobs))
            return
        yield from self.close()
        match role:
            case "assistant" if message is not None:
                yield self._reply(message, uuid, answer)
            case "user" if message is not None:
                yield from self._user(message, uuid)
            case "system" | "developer" if message is not None:
                yield self._scribe.say(
                    HostSaid(kind="injected", blocks=content_blocks(message.content, self._blobs)), uuid
                )
            case "tool" | "function" if message is not None:
                yield self._result(message, uuid)
            case _:
                yield Unknown(kind=f"message of role {role or '?'}")
                yield self._scribe.say(Observed(kind="message", raw=raw_text(bytes(raw))), uuid)

    def _section(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            if isinstance(block, Text):
                key = "system" if not self._head else f"system.{len(self._head) + 1}"
                self._head.append(Section(key=key, text=block.text))

    def _reply(self, message: Message, uuid: str, answer: _Answer) -> Said:
        blocks = reply_blocks(message, self._blobs, uuid)
        self._tools.update((block.call_id, block.name) for block in blocks if isinstance(block, ToolCall))
        fact = ModelReplied(
            blocks=blocks,
            model=answer.model or self._model,
            stop_reason=answer.stop_reason,
            usage=answer.usage,
            response_id=answer.response_id,
        )
        return self._scribe.say(fact, uuid, answer.at)

    def _result(self, message: Message, uuid: str) -> Said:
        call_id = message.tool_call_id or next(
            (known for known, name in reversed(self._tools.items()) if name == message.name), message.name or ""
        )
        name = self._tools.get(call_id) or message.name or ""
        blocks = result_blocks(message.content, self._blobs)
        return self._scribe.say(ToolReturned(call_id=call_id, blocks=blocks, effect=effect_of(name)), uuid)

    def _user(self, message: Message, uuid: str) -> Iterator[Said]:
        """Anthropic's user messages hold results beside words; results are said first, as the API demands."""
        words: list[msgspec.Raw] = []
        for raw in message.content if isinstance(message.content, list) else ():
            result = read(raw, _RESULT)
            if result is None or result.type != "tool_result":
                words.append(raw)
                continue
            fact = ToolReturned(
                call_id=result.tool_use_id,
                blocks=result_blocks(result.content, self._blobs),
                is_error=bool(result.is_error),
                effect=effect_of(self._tools.get(result.tool_use_id, "")),
            )
            yield self._scribe.say(fact, uuid)
        content = message.content if isinstance(message.content, str) else words
        blocks = content_blocks(content, self._blobs)
        injected = tuple(block for block in blocks if _is_injected(block))
        typed = tuple(block for block in blocks if not _is_injected(block))
        if injected:
            yield self._scribe.say(HostSaid(kind="injected", blocks=injected), uuid)
        if typed:
            yield self._scribe.say(UserSaid(blocks=typed), uuid)

    def _response(self, raw: msgspec.Raw, uuid: str, known: _Answer, cost: float | None) -> Iterator[Item]:
        response = read(raw, _RESPONSE)
        choice = response.choices[0] if response is not None and response.choices else None
        body = raw if choice is None else choice.message
        message = read(body, _MESSAGE)
        if response is None or message is None or message.role != "assistant":
            yield Unknown(kind="response")
            yield self._scribe.say(Observed(kind="response", raw=raw_text(raw)), uuid)
            return
        stop = response.stop_reason if choice is None else choice.finish_reason
        answer = _Answer(
            model=response.model,
            stop_reason=stop or known.stop_reason,
            response_id=response.id,
            usage=known.usage or usage_of(response.usage, cost),
            at=known.at,
        )
        yield self._reply(message, uuid, answer)


def _is_injected(block: Block) -> bool:
    return isinstance(block, Text) and block.text.lstrip().startswith(_INJECTED)
