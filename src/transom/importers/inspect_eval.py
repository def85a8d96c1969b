"""Inspect logs: a `.eval` archive or one `.json` document, one session a sample and epoch.

1. `messages` of the sample is the conversation; `events` tell what happened around it. Both are walked together. A
   `model` event whose output is one of the messages gives that reply its usage, model, stop reason and time, and the
   reply is said where the event stands; a `tool` event gives its result the time. The pairing is by the message's id,
   else by its call ids, else by its words.
2. A `model` event that made no message (a monitor, a discarded try) is `Observed` as `model NAME`, its usage inside.
3. The head is that of the first paired `model` event: its tools, and the system messages of its input. `messages` may
   lack them. When another head is sent later, a new epoch opens.
4. Long strings stand aside as `attachment://<hash>`: they are put back before anything is read.
5. `input_tokens` leaves out cached tokens for some providers and includes them for others; `total_tokens` tells which.
6. The sample's input, and what an operator typed, is `UserSaid`; other user messages come from the scaffold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from transom.core.block import Block, Text, ToolCall, ToolResultRaw
from transom.core.canon import FORMAT as LOG_FORMAT
from transom.core.event import (
    EpochCause,
    EpochOpened,
    Fact,
    HostSaid,
    ModelReplied,
    Observed,
    Section,
    SessionOpened,
    Tool,
    ToolReturned,
    Usage,
    UserSaid,
)
from transom.errors import BadInput
from transom.importers.draft import Item, Note, Quarantined, Said, Unknown
from transom.importers.effects import effect_of
from transom.importers.fields import ABSENT, iso_ms, raw_text, read
from transom.importers.messages import (
    Message,
    Scribe,
    catalogue,
    content_blocks,
    is_absent,
    reply_blocks,
    result_blocks,
)
from transom.importers.source import Source
from transom.ports import Blobs

__all__ = ["FORMAT", "parse", "sniff"]

FORMAT = "inspect"

_ATTACHMENT = re.compile(rb"attachment://([0-9a-f]{32})")


class _Eval(msgspec.Struct):
    run_id: str = ""
    task: str = ""
    model: str = ""
    packages: dict[str, str] = {}


class _Header(msgspec.Struct):
    eval: msgspec.Raw = ABSENT


class _Document(msgspec.Struct):
    eval: msgspec.Raw
    samples: list[msgspec.Raw] | None = None


class _Sample(msgspec.Struct):
    messages: list[msgspec.Raw]
    id: int | str = ""
    epoch: int = 1
    events: list[msgspec.Raw] | None = None
    attachments: dict[str, msgspec.Raw] | None = None
    target: msgspec.Raw = ABSENT
    metadata: msgspec.Raw = ABSENT
    scores: msgspec.Raw = ABSENT
    error: msgspec.Raw = ABSENT
    limit: msgspec.Raw = ABSENT


class _ToolError(msgspec.Struct):
    type: str = ""
    message: str = ""


class _Sent(Message):
    id: str | None = None
    source: str | None = None
    model: str | None = None
    function: str | None = None
    error: _ToolError | None = None


class _Usage(msgspec.Struct):
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    input_tokens_cache_read: int | None = None
    input_tokens_cache_write: int | None = None
    reasoning_tokens: int | None = None


class _Choice(msgspec.Struct):
    message: msgspec.Raw
    stop_reason: str = ""


class _Output(msgspec.Struct):
    model: str = ""
    choices: list[_Choice] = []
    usage: msgspec.Raw = ABSENT
    time: float | None = None


class _Event(msgspec.Struct):
    event: str = ""
    timestamp: str = ""
    completed: str | None = None
    model: msgspec.Raw = ABSENT
    input: list[msgspec.Raw] | None = None
    tools: list[msgspec.Raw] | None = None
    output: msgspec.Raw = ABSENT
    id: str | None = None


_EVAL = msgspec.json.Decoder(_Eval)
_HEADER = msgspec.json.Decoder(_Header)
_DOCUMENT = msgspec.json.Decoder(_Document)
_RAW = msgspec.json.Decoder(msgspec.Raw)
_SAMPLE = msgspec.json.Decoder(_Sample)
_MESSAGE = msgspec.json.Decoder(_Sent)
_OUTPUT = msgspec.json.Decoder(_Output)
_EVENT = msgspec.json.Decoder(_Event)
_NAME = msgspec.json.Decoder(str)
_USAGE = msgspec.json.Decoder(_Usage)


def sniff(source: Source) -> bool:
    head = source.head().lstrip()
    if head:
        return head.startswith(b"{") and b'"eval"' in head and b'"run_id"' in head and b'"task"' in head
    members = source.members()
    return "_journal/start.json" in members or ("header.json" in members and any(map(_is_sample, members)))


def parse(source: Source, blobs: Blobs) -> Iterator[Item]:
    members = source.members()
    if not members:
        document = source.document(_DOCUMENT)
        header = read(document.eval, _EVAL) or _Eval()
        for raw in document.samples or ():
            yield from _sample(raw, header, blobs)
        if not document.samples:
            yield Note(text="the log holds no samples: the run failed before the first, or was written without them")
        return
    header = _Eval()
    for name in ("_journal/start.json", "header.json"):
        if name in members:
            header = read(members[name].document(_HEADER).eval, _EVAL) or header
    for number, path in enumerate(filter(_is_sample, members), 1):
        try:
            raw = members[path].document(_RAW)
        except BadInput as error:
            yield Quarantined(line=number, why=str(error), raw=members[path].head().decode("utf-8", "replace"))
            continue
        yield from _sample(raw, header, blobs)


def _is_sample(path: str) -> bool:
    return path.startswith("samples/") and path.endswith(".json")


def _sample(raw: msgspec.Raw, header: _Eval, blobs: Blobs) -> Iterator[Item]:
    sample = read(raw, _SAMPLE)
    if sample is None:
        yield Unknown(kind="sample of unknown shape")
        yield Quarantined(line=0, why="a sample without a list of messages", raw=raw_text(raw))
        return
    scribe = Scribe(f"{header.run_id}-{sample.id}-{sample.epoch}".lstrip("-"))
    opened = SessionOpened(
        format=LOG_FORMAT,
        agent=FORMAT,
        agent_version=header.packages.get("inspect_ai", ""),
        model=header.model,
        title=f"{header.task} {sample.id}".strip(),
    )
    yield scribe.say(opened, "open")
    yield from _Telling(scribe, sample, blobs).tell()
    beside = {"target": sample.target, "metadata": sample.metadata, "scores": sample.scores}
    for kind, value in (beside | {"error": sample.error, "limit": sample.limit}).items():
        if not is_absent(value):
            yield scribe.say(Observed(kind=kind, raw=raw_text(value)), kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What a `model` event says of the reply it made."""

    model: str = ""
    stop_reason: str = ""
    usage: Usage | None = None
    at: int = 0


class _Telling:
    """One sample as facts."""

    def __init__(self, scribe: Scribe, sample: _Sample, blobs: Blobs) -> None:
        self._scribe = scribe
        self._blobs = blobs
        self._attachments = {name: _inner(raw) for name, raw in (sample.attachments or {}).items()}
        self._raws = [self._whole(raw) for raw in sample.messages]
        self._messages = [read(raw, _MESSAGE) for raw in self._raws]
        self._events = [self._whole(raw) for raw in sample.events or ()]
        self._next = 0
        """The first message not yet said."""
        self._head: tuple[tuple[str, ...], tuple[Tool, ...]] | None = None
        self._has_task = False
        self._tools: dict[str, str] = {}
        self._times: dict[str, int] = {}
        self._results = {
            message.tool_call_id for message in self._messages if message is not None and message.role == "tool"
        }
        self._replies: dict[tuple[str, ...], list[int]] = {}
        for place, message in enumerate(self._messages):
            if message is not None and message.role == "assistant":
                for key in _keys(message, blobs):
                    self._replies.setdefault(key, []).append(place)

    def tell(self) -> Iterator[Item]:
        first = read(self._events[0], _EVENT) if self._events else None
        start = iso_ms(first.timestamp) if first is not None else 0
        at = start
        for number, raw in enumerate(self._events, 1):
            event = read(raw, _EVENT)
            at = iso_ms(event.timestamp) if event is not None and event.timestamp else at
            if event is not None and event.event == "model":
                yield from self._called(event, raw, number, at)
            elif event is not None and event.event == "tool" and event.id in self._results:
                self._times[event.id or ""] = iso_ms(event.completed or event.timestamp)
            else:
                kind = event.event if event is not None and event.event else "event"
                yield self._scribe.say(Observed(kind=kind, raw=raw_text(raw)), f"v{number}", at)
        yield from self._until(len(self._messages), start)

    def _whole(self, raw: msgspec.Raw) -> bytes:
        """The JSON with its attachments in place; one that is missing stays named."""
        text = bytes(raw)
        if b"attachment://" not in text:
            return text
        return _ATTACHMENT.sub(lambda found: self._attachments.get(found[1].decode(), found[0]), text)

    def _called(self, event: _Event, raw: bytes, number: int, at: int) -> Iterator[Item]:
        output = read(event.output, _OUTPUT) or _Output()
        choice = output.choices[0] if output.choices else None
        made = read(choice.message, _MESSAGE) if choice is not None else None
        place = self._place(made) if made is not None else None
        if place is None or choice is None:
            name = read(event.model, _NAME) or output.model
            yield self._scribe.say(Observed(kind=f"model {name}".strip(), raw=raw_text(raw)), f"v{number}", at)
            return
        yield from self._opened(event, number, at)
        done = iso_ms(event.completed or "") or (at + round((output.time or 0) * 1000) if at else 0)
        yield from self._until(place, at)
        answer = _Answer(model=output.model, stop_reason=choice.stop_reason, usage=_split(output.usage), at=done)
        yield from self._message(place, answer)
        self._next = place + 1

    def _place(self, made: _Sent) -> int | None:
        """Of the message that is this output and not said yet."""
        for key in _keys(made, self._blobs):
            for place in self._replies.get(key, ()):
                if place >= self._next:
                    return place
        return None

    def _opened(self, event: _Event, number: int, at: int) -> Iterator[Said]:
        texts: list[str] = []
        for raw in event.input or ():
            message = read(raw, _MESSAGE)
            if message is None or message.role != "system":
                break
            texts.append(
                "\n".join(
                    block.text for block in content_blocks(message.content, self._blobs) if isinstance(block, Text)
                )
            )
        tools = catalogue(event.tools or ())
        head = (tuple(texts), tools)
        if head != self._head:
            reason: EpochCause = "initial"
            if self._head is not None:
                reason = "change:tools" if self._head[1] != tools else "change:system"
            self._head = head
            yield self._scribe.say(EpochOpened(sections=_sections(texts), tools=tools, reason=reason), f"v{number}", at)

    def _until(self, place: int, at: int) -> Iterator[Item]:
        """Say the messages before `place` that no event announced."""
        while self._next < place:
            yield from self._message(self._next, _Answer(at=at))
            self._next += 1

    def _message(self, place: int, answer: _Answer) -> Iterator[Item]:
        message, raw = self._messages[place], self._raws[place]
        uuid = (message.id if message is not None else None) or f"m{place + 1}"
        if message is None or message.role not in {"system", "user", "assistant", "tool"}:
            yield Unknown(kind=f"message of role {message.role if message is not None else '?'}")
            yield self._scribe.say(Observed(kind="message", raw=raw_text(raw)), uuid, answer.at)
            return
        fact, at = self._fact(message, uuid, answer)
        if fact is not None:
            yield self._scribe.say(fact, uuid, at)
        if message.role == "tool" and message.error is not None and message.content:
            yield self._scribe.say(Observed(kind="result beside an error", raw=raw_text(raw)), uuid, at)

    def _fact(self, message: _Sent, uuid: str, answer: _Answer) -> tuple[Fact | None, int]:
        match message.role:
            case "assistant":
                blocks = reply_blocks(message, self._blobs, uuid)
                self._tools.update((block.call_id, block.name) for block in blocks if isinstance(block, ToolCall))
                model = answer.model or message.model or ""
                reply = ModelReplied(blocks=blocks, model=model, stop_reason=answer.stop_reason, usage=answer.usage)
                return reply, answer.at
            case "tool":
                return self._result(message), self._times.get(message.tool_call_id or "", answer.at)
            case "system":
                if self._head is not None:  # the model event that opened the epoch had it
                    return None, answer.at
                blocks = content_blocks(message.content, self._blobs)
                texts = [block.text for block in blocks if isinstance(block, Text)]
                self._head = (tuple(texts), ())
                return EpochOpened(sections=_sections(texts)), answer.at
            case _:
                blocks = content_blocks(message.content, self._blobs)
                is_input = message.source == "input" or not self._has_task
                self._has_task = True
                if message.source == "operator":
                    return UserSaid(blocks=blocks, by="operator"), answer.at
                return (UserSaid(blocks=blocks) if is_input else HostSaid(kind="injected", blocks=blocks)), answer.at

    def _result(self, message: _Sent) -> ToolReturned:
        """The model is shown the error in place of the content."""
        call_id = message.tool_call_id or ""
        error = message.error
        blocks: tuple[Block, ...] = (
            (ToolResultRaw(text=error.message),) if error is not None else result_blocks(message.content, self._blobs)
        )
        effect = effect_of(self._tools.get(call_id) or message.function or "")
        return ToolReturned(call_id=call_id, blocks=blocks, is_error=error is not None, effect=effect)


def _inner(raw: msgspec.Raw) -> bytes:
    """A JSON string without its quotes."""
    return bytes(raw)[1:-1]


def _sections(texts: list[str]) -> tuple[Section, ...]:
    return tuple(Section(key=f"system.{at}" if at > 1 else "system", text=text) for at, text in enumerate(texts, 1))


def _keys(message: _Sent, blobs: Blobs) -> Iterator[tuple[str, ...]]:
    """What a message may be known by, surest first."""
    if message.id:
        yield "id", message.id
    blocks = reply_blocks(message, blobs, "")
    calls = tuple(block.call_id for block in blocks if isinstance(block, ToolCall))
    if calls:
        yield "calls", *calls
        return
    yield "words", *(block.text for block in blocks if isinstance(block, Text))


def _split(raw: msgspec.Raw) -> Usage | None:
    usage = read(raw, _USAGE)
    if usage is None:
        return None
    cached = max(usage.input_tokens_cache_read or 0, 0)
    written = max(usage.input_tokens_cache_write or 0, 0)
    is_apart = usage.total_tokens == usage.input_tokens + cached + written + usage.output_tokens
    uncached = usage.input_tokens if is_apart else usage.input_tokens - cached - written
    reasoning = usage.reasoning_tokens
    return Usage(
        uncached=max(uncached, 0),
        cached=cached,
        written=written,
        output=max(usage.output_tokens, 0),
        reasoning=-1 if reasoning is None else max(reasoning, 0),
    )
