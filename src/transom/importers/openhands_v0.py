"""OpenHands V0 evaluation output: one instance a line, its `history` a list of actions and observations.

1. An instance is a session. The first user message is the task (`UserSaid`); nobody types in an evaluation, so later
   ones are the harness (`HostSaid`).
2. An action that a model asked for carries the whole response (`tool_call_metadata.model_response`). Its message is the
   reply; further actions of the same response are its further calls and say nothing new. Actions without it, of the
   agent, are calls by their `action` and `args`.
3. An observation settles the call of the action it names as `cause`. A command's is put together from its recorded
   pieces as OpenHands does it. One without (a reply the agent could not parse) is
   what the model was told: `HostSaid`.
4. `recall` and what the agent does by itself was never sent in this form: `Observed`.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from transom.core.block import Block, Text, ToolCall, ToolResultRaw
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
from transom.importers.condensation import Visible
from transom.importers.draft import Item, Said, Unknown
from transom.importers.effects import effect_of
from transom.importers.fields import ABSENT, iso_ms, raw_text, read
from transom.importers.messages import (
    Message,
    Scribe,
    catalogue,
    is_absent,
    micro_dollars,
    reply_blocks,
    usage_of,
)
from transom.importers.source import Record, Source
from transom.ports import Blobs

__all__ = ["Metrics", "Shell", "TokenUsage", "parse", "sniff", "usages"]

_CALLS = frozenset(
    {
        "run",
        "run_ipython",
        "read",
        "write",
        "edit",
        "browse",
        "browse_interactive",
        "call_tool_mcp",
        "delegate",
        "think",
        "finish",
        "reject",
        "task_tracking",
    }
)
"""Actions a model asks for."""


class TokenUsage(msgspec.Struct):
    """`prompt_tokens` includes what was read from the cache, and leaves out what was written to it."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int | None = None
    response_id: str = ""


class _Cost(msgspec.Struct):
    cost: float | None = None


class Metrics(msgspec.Struct):
    token_usages: list[msgspec.Raw] = []
    costs: list[_Cost] = []


class _LlmConfig(msgspec.Struct):
    model: str = ""


class _MetaData(msgspec.Struct):
    llm_config: _LlmConfig = msgspec.field(default_factory=_LlmConfig)
    start_time: str = ""


class _Instance(msgspec.Struct):
    instance_id: str = ""
    metadata: msgspec.Raw = ABSENT
    metrics: msgspec.Raw = ABSENT
    history: list[msgspec.Raw] | None = None
    error: msgspec.Raw = ABSENT
    test_result: msgspec.Raw = ABSENT
    instance: msgspec.Raw = ABSENT


class _Choice(msgspec.Struct):
    message: Message
    finish_reason: str | None = None


class _Response(msgspec.Struct):
    id: str = ""
    model: str = ""
    choices: list[_Choice] = []
    usage: msgspec.Raw = ABSENT


class _CallData(msgspec.Struct):
    tool_call_id: str = ""
    function_name: str = ""
    model_response: _Response | None = None


class _Args(msgspec.Struct):
    content: str | None = None
    thought: str | None = None
    tools: list[msgspec.Raw] | None = None
    forgotten_event_ids: list[int] | None = None
    forgotten_events_start_id: int | None = None
    forgotten_events_end_id: int | None = None
    summary: str | None = None
    summary_offset: int | None = None


class Shell(msgspec.Struct):
    """What is known of a command that ran; an exit code of -1 means that it still runs, or that nobody knows."""

    exit_code: int | None = None
    prefix: str = ""
    suffix: str = ""
    working_dir: str | None = None
    py_interpreter_path: str | None = None

    @property
    def known_code(self) -> int | None:
        return None if self.exit_code == -1 else self.exit_code

    def framed(self, output: str) -> str:
        """The result as OpenHands shows it to the model, which it does not record."""
        lines = [f"{self.prefix}{output}{self.suffix}"]
        if self.working_dir:
            lines.append(f"[Current working directory: {self.working_dir}]")
        if self.py_interpreter_path:
            lines.append(f"[Python interpreter: {self.py_interpreter_path}]")
        if self.known_code is not None:
            lines.append(f"[Command finished with exit code {self.known_code}]")
        return "\n".join(lines)


class _Extras(msgspec.Struct):
    metadata: Shell | None = None
    exit_code: int | None = None


class _Event(msgspec.Struct):
    id: int | None = None
    timestamp: str = ""
    source: str = ""
    action: str | None = None
    observation: str | None = None
    cause: int | None = None
    content: str | None = None
    args: msgspec.Raw = ABSENT
    extras: msgspec.Raw = ABSENT
    tool_call_metadata: _CallData | None = None


_INSTANCE = msgspec.json.Decoder(_Instance)
_PAIR = msgspec.json.Decoder(list[msgspec.Raw])
_META = msgspec.json.Decoder(_MetaData)
_METRICS = msgspec.json.Decoder(Metrics)
_USAGE = msgspec.json.Decoder(TokenUsage)
_EVENT = msgspec.json.Decoder(_Event)
_ARGS = msgspec.json.Decoder(_Args)
_EXTRAS = msgspec.json.Decoder(_Extras)


def sniff(source: Source) -> bool:
    head = source.head().lstrip()
    return head.startswith(b"{") and b'"instance_id"' in head and (b'"test_result"' in head or b'"llm_config"' in head)


def usages(metrics: Metrics) -> dict[str, Usage]:
    """Response -> its usage; its cost too where there is one for each."""
    costs = [cost.cost for cost in metrics.costs]
    if len(costs) != len(metrics.token_usages):
        costs = [None] * len(metrics.token_usages)
    found: dict[str, Usage] = {}
    for raw, cost in zip(metrics.token_usages, costs, strict=True):
        usage = read(raw, _USAGE)
        if usage is not None and usage.response_id:
            found[usage.response_id] = Usage(
                uncached=max(usage.prompt_tokens - usage.cache_read_tokens, 0),
                cached=max(usage.cache_read_tokens, 0),
                written=max(usage.cache_write_tokens, 0),
                output=max(usage.completion_tokens, 0),
                reasoning=-1 if usage.reasoning_tokens is None else max(usage.reasoning_tokens, 0),
                cost_microusd=micro_dollars(cost),
            )
    return found


def parse(source: Source, blobs: Blobs) -> Iterator[Item]:
    for line in source.lines(_INSTANCE):
        if not isinstance(line, Record):
            yield line
            continue
        instance = line.value
        meta = read(instance.metadata, _META) or _MetaData()
        metrics = read(instance.metrics, _METRICS) or Metrics()
        started = f"-{meta.start_time}" if meta.start_time else ""
        scribe = Scribe(f"{instance.instance_id or f'line {line.line}'}{started}")
        telling = _Telling(scribe, blobs, meta.llm_config.model, usages(metrics))
        opened = SessionOpened(
            format=LOG_FORMAT, agent="openhands", model=meta.llm_config.model, title=instance.instance_id
        )
        yield scribe.say(opened, "open")
        for number, raw in enumerate(_flat(instance.history or []), 1):
            yield from telling.event(raw, f"h{number}")
        yield from telling.rest(metrics)
        beside = {"instance": instance.instance, "test_result": instance.test_result, "error": instance.error}
        for kind, raw in beside.items():
            if not is_absent(raw):
                yield scribe.say(Observed(kind=kind, raw=raw_text(raw)), kind)


def _flat(history: list[msgspec.Raw]) -> Iterator[msgspec.Raw]:
    """The events; the first files paired each action with its observation."""
    for raw in history:
        if bytes(raw).startswith(b"["):
            yield from read(raw, _PAIR) or ()
        else:
            yield raw


class _Telling:
    """The history of one instance as facts."""

    def __init__(self, scribe: Scribe, blobs: Blobs, model: str, known: dict[str, Usage]) -> None:
        self._scribe = scribe
        self._blobs = blobs
        self._model = model
        self._usages = known
        self._used: set[str] = set()
        self._calls: dict[int, tuple[str, str]] = {}
        """Event of an action -> its call and tool."""
        self._has_task = False
        self._visible = Visible()

    def event(self, raw: msgspec.Raw, fallback: str) -> Iterator[Item]:
        event = read(raw, _EVENT)
        if event is None:
            yield Unknown(kind="event of unknown shape")
            yield self._scribe.say(Observed(kind="event", raw=raw_text(raw)), fallback)
            return
        uuid = fallback if event.id is None else f"e{event.id}"
        at = iso_ms(event.timestamp)
        args = read(event.args, _ARGS) or _Args()
        match event.action, event.source:
            case None, _:
                yield self._observed(event, raw, uuid, at)
            case "system", _:
                self._visible.add(uuid, "")
                sections = (Section(key="system", text=args.content or ""),)
                yield self._scribe.say(EpochOpened(sections=sections, tools=catalogue(args.tools or ())), uuid, at)
            case "message", "user":
                yield self._asked(args, uuid, at)
            case "condensation", _:
                yield self._visible.condense(
                    self._scribe.session,
                    self._scribe.name(uuid),
                    at,
                    forgotten=_forgotten(args, self._visible.event_ids()),
                    summary=args.summary or "",
                    offset=args.summary_offset,
                )
            case action, "agent" if event.tool_call_metadata is not None or action in {"message", *_CALLS}:
                yield from self._acted(event, action, args, uuid, at)
            case action, _:
                yield self._scribe.say(Observed(kind=action, raw=raw_text(raw)), uuid, at)

    def rest(self, metrics: Metrics) -> Iterator[Said]:
        """Say what was paid for calls that are no reply here."""
        for raw in metrics.token_usages:
            usage = read(raw, _USAGE)
            if usage is None or usage.response_id not in self._used:
                yield self._scribe.say(Observed(kind="usage", raw=raw_text(raw)), "usage")

    def _asked(self, args: _Args, uuid: str, at: int) -> Said:
        blocks = (Text(text=args.content or ""),)
        fact = HostSaid(kind="continue", blocks=blocks) if self._has_task else UserSaid(blocks=blocks)
        self._has_task = True
        said = self._scribe.say(fact, uuid, at)
        self._visible.add(uuid, said.uuid)
        return said

    def _acted(self, event: _Event, action: str, args: _Args, uuid: str, at: int) -> Iterator[Said]:
        data = event.tool_call_metadata or _CallData(tool_call_id=f"{uuid}.call", function_name=action)
        response = data.model_response or _Response()
        if event.id is not None and action != "message":
            self._calls[event.id] = data.tool_call_id, action
        called = "" if action == "message" else data.tool_call_id
        if response.id and response.id in self._used:
            self._visible.add(uuid, self._last_reply, called=called)
            return
        choice = next(iter(response.choices), None)
        blocks = (
            reply_blocks(choice.message, self._blobs, uuid)
            if choice is not None
            else _by_action(action, args, event.args, data.tool_call_id)
        )
        self._used.add(response.id)
        fact = ModelReplied(
            blocks=blocks,
            model=response.model or self._model,
            stop_reason=(choice.finish_reason or "") if choice is not None else "",
            usage=self._usages.get(response.id) or usage_of(response.usage),
            response_id=response.id,
        )
        said = self._scribe.say(fact, uuid, at)
        self._last_reply = said.uuid
        self._visible.add(uuid, said.uuid, called=called)
        yield said

    _last_reply = ""
    """Of the reply said last: a further action of its response stands for the same words."""

    def _observed(self, event: _Event, raw: msgspec.Raw, uuid: str, at: int) -> Said:
        kind = event.observation or "event"
        data = event.tool_call_metadata
        call_id, tool = self._calls.get(-1 if event.cause is None else event.cause, ("", ""))
        if not call_id and data is not None:
            call_id, tool = data.tool_call_id, data.function_name
        extras = read(event.extras, _EXTRAS) or _Extras()
        output = event.content or ""
        text = output if extras.metadata is None else extras.metadata.framed(output)
        if call_id:
            returned = ToolReturned(
                call_id=call_id,
                blocks=(ToolResultRaw(text=text),),
                is_error=kind == "error",
                effect=effect_of(tool),
                exit_code=(extras.metadata or Shell(exit_code=extras.exit_code)).known_code,
            )
            said = self._scribe.say(returned, uuid, at)
            self._visible.add(uuid, said.uuid, answered=call_id)
            return said
        if kind == "error":
            said = self._scribe.say(HostSaid(kind="injected", blocks=(Text(text=text),)), uuid, at)
            self._visible.add(uuid, said.uuid)
            return said
        return self._scribe.say(Observed(kind=kind, raw=raw_text(raw)), uuid, at)


def _by_action(action: str, args: _Args, raw: msgspec.Raw, call_id: str) -> tuple[Block, ...]:
    if action == "message":
        return (Text(text=args.content or ""),)
    words: tuple[Block, ...] = (Text(text=args.thought),) if args.thought else ()
    return (*words, ToolCall(call_id=call_id, name=action, arguments=raw_text(raw)))


def _forgotten(args: _Args, visible: tuple[str, ...]) -> frozenset[str]:
    if args.forgotten_event_ids is not None:
        return frozenset(f"e{number}" for number in args.forgotten_event_ids)
    first, last = args.forgotten_events_start_id, args.forgotten_events_end_id
    if first is None or last is None:
        return frozenset()
    return frozenset(name for name in visible if name[1:].isdigit() and first <= int(name[1:]) <= last)
