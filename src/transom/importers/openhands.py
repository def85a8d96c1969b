"""OpenHands conversations: a folder or tar of event files (V1). `openhands_v0` reads the older `output.jsonl`.

1. One session a conversation: `events/event-NNNNN-<id>.json` in the order of their numbers, and `base_state.json`.
2. `ActionEvent`s of one `llm_response_id` are one reply with several calls. Usage stands in `base_state.json`, by
   response; what belongs to no reply there (the condenser's calls) is `Observed`. `prompt_tokens` includes what was
   read from the cache and leaves out what was written to it.
3. The result as the model saw it is not recorded, but its pieces are: a command's output with what is known of its
   run (`Shell`), else `content`, `output` or `message`, else the error. An edit tool's own word for its command says
   whether the call read or wrote; the whole file it wrote was not sent: `Observed`.
4. `Condensation` is a recorded compaction (`condensation`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import msgspec

from transom.core.block import Block, Opaque, Text, Thought, ToolCall, ToolResultRaw
from transom.core.canon import FORMAT as LOG_FORMAT
from transom.core.event import (
    Effect,
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
from transom.errors import BadInput
from transom.importers import openhands_v0
from transom.importers.condensation import Visible
from transom.importers.draft import Item, Quarantined, Said, Unknown
from transom.importers.effects import effect_of
from transom.importers.fields import ABSENT, iso_ms, raw_text, read
from transom.importers.messages import (
    Message,
    Scribe,
    call_blocks,
    catalogue,
    content_blocks,
    is_absent,
    reply_blocks,
    result_blocks,
)
from transom.importers.openhands_v0 import Metrics, Shell, TokenUsage
from transom.importers.source import Source
from transom.importers.wrapping import root_of
from transom.ports import Blobs

__all__ = ["FORMAT", "parse", "sniff"]

FORMAT = "openhands"

_EVENT_FILE = re.compile(r"events/event-(\d+)-[^/]*\.json")
_SILENT = frozenset(
    {
        "PauseEvent",
        "CondensationRequest",
        "CondensationSummaryEvent",
        "ConversationStateUpdateEvent",
        "ConversationErrorEvent",
        "LLMCompletionLogEvent",
        "TokenEvent",
    }
)
"""Kinds that are known and never part of a prompt."""


class _Llm(msgspec.Struct):
    model: str = ""
    max_input_tokens: int | None = None


class _ToolParams(msgspec.Struct):
    working_dir: str | None = None


class _AgentTool(msgspec.Struct):
    params: _ToolParams | None = None


class _Agent(msgspec.Struct):
    llm: _Llm = msgspec.field(default_factory=_Llm)
    tools: list[_AgentTool] = []


class _Stats(msgspec.Struct):
    service_to_metrics: dict[str, Metrics] = {}


class _BaseState(msgspec.Struct):
    id: str = ""
    agent: msgspec.Raw = ABSENT
    stats: msgspec.Raw = ABSENT


class _Words(msgspec.Struct):
    text: str = ""


class _Event(msgspec.Struct):
    kind: str = ""
    id: str = ""
    timestamp: str = ""
    source: str = ""
    system_prompt: _Words | None = None
    tools: list[msgspec.Raw] | None = None
    llm_message: Message | None = None
    extended_content: list[msgspec.Raw] | None = None
    thought: list[msgspec.Raw] | None = None
    reasoning_content: str | None = None
    thinking_blocks: list[msgspec.Raw] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    tool_call: msgspec.Raw = ABSENT
    llm_response_id: str | None = None
    observation: msgspec.Raw = ABSENT
    error: str | None = None
    rejection_reason: str | None = None
    forgotten_event_ids: list[str] | None = None
    summary: str | None = None
    summary_offset: int | None = None


class _Observation(msgspec.Struct):
    kind: str = ""
    content: str | list[msgspec.Raw] | None = None
    output: str | list[msgspec.Raw] | None = None
    message: str | None = None
    error: str | bool | None = None
    is_error: bool | None = None
    exit_code: int | None = None
    command: str | None = None
    metadata: Shell | None = None
    new_content: str | None = None


_RAW = msgspec.json.Decoder(msgspec.Raw)
_BASE = msgspec.json.Decoder(_BaseState)
_AGENT = msgspec.json.Decoder(_Agent)
_STATS = msgspec.json.Decoder(_Stats)
_USAGE = msgspec.json.Decoder(TokenUsage)
_EVENT = msgspec.json.Decoder(_Event)
_OBSERVATION = msgspec.json.Decoder(_Observation)


def sniff(source: Source) -> bool:
    return root_of(source, _EVENT_FILE) is not None or openhands_v0.sniff(source)


def parse(source: Source, blobs: Blobs) -> Iterator[Item]:
    root = root_of(source, _EVENT_FILE)
    if root is None:
        yield from openhands_v0.parse(source, blobs)
        return
    members = source.members()
    numbered = [(found, path) for path in members if (found := _EVENT_FILE.fullmatch(path, len(root)))]
    files = [members[path] for found, path in sorted(numbered, key=lambda pair: (int(pair[0][1]), pair[1]))]
    state = _BaseState()
    kept: list[Item] = []
    base = members.get(f"{root}base_state.json")
    if base is not None:
        try:
            state = base.document(_BASE)
        except BadInput as error:
            kept.append(_unreadable(base, 1, error))
    agent = read(state.agent, _AGENT) or _Agent()
    stats = read(state.stats, _STATS) or _Stats()
    session = state.id or root.rstrip("/") or PurePosixPath(source.name).name
    telling = _Telling(Scribe(session), blobs, agent.llm.model, _usages(stats))
    folders = (tool.params.working_dir for tool in agent.tools if tool.params is not None)
    opened = SessionOpened(
        format=LOG_FORMAT,
        agent=FORMAT,
        model=agent.llm.model,
        workspace=next((folder for folder in folders if folder), ""),
        context_limit=agent.llm.max_input_tokens or 0,
    )
    yield telling.scribe.say(opened, "open")
    yield from kept
    for number, file in enumerate(files, 1):
        try:
            raw = file.document(_RAW)
        except BadInput as error:
            yield _unreadable(file, number, error)
            continue
        yield from telling.event(raw, number)
    yield from telling.flush()
    yield from telling.rest(stats)


def _unreadable(file: Source, number: int, error: BadInput) -> Quarantined:
    return Quarantined(line=number, why=str(error), raw=file.head().decode("utf-8", "replace"))


def _usages(stats: _Stats) -> dict[str, Usage]:
    """What each response cost, of every service."""
    found: dict[str, Usage] = {}
    for metrics in stats.service_to_metrics.values():
        found.update(openhands_v0.usages(metrics))
    return found


@dataclass(slots=True, kw_only=True)
class _Held:
    """A reply whose further calls may follow in events of their own."""

    uuid: str
    at: int
    response_id: str
    blocks: list[Block] = field(default_factory=list)


class _Telling:
    """The events of one conversation as facts."""

    def __init__(self, scribe: Scribe, blobs: Blobs, model: str, usages: dict[str, Usage]) -> None:
        self.scribe = scribe
        self._blobs = blobs
        self._model = model
        self._usages = usages
        self._used: set[str] = set()
        self._held: _Held | None = None
        self._visible = Visible()

    def event(self, raw: msgspec.Raw, number: int) -> Iterator[Item]:
        event = read(raw, _EVENT)
        if event is None:
            yield from self.flush()
            yield Unknown(kind="event of unknown shape")
            yield self.scribe.say(Observed(kind="event", raw=raw_text(raw)), f"event{number}")
            return
        event.id = event.id or f"event{number}"
        if event.kind == "ActionEvent":
            yield from self._acted(event)
            return
        yield from self.flush()
        match event.kind:
            case "SystemPromptEvent":
                yield self._prompted(event)
            case "MessageEvent" if event.llm_message is not None:
                yield from self._spoke(event, event.llm_message)
            case "ObservationEvent" | "AgentErrorEvent" | "UserRejectObservation":
                yield from self._returned(event)
            case "Condensation":
                yield self._visible.condense(
                    self.scribe.session,
                    self.scribe.name(event.id),
                    iso_ms(event.timestamp),
                    forgotten=frozenset(event.forgotten_event_ids or ()),
                    summary=event.summary or "",
                    offset=event.summary_offset,
                )
            case kind:
                if kind not in _SILENT:
                    yield Unknown(kind=kind or "event without kind")
                yield self.scribe.say(Observed(kind=kind, raw=raw_text(raw)), event.id, iso_ms(event.timestamp))

    def flush(self) -> Iterator[Said]:
        """Say the reply that was held."""
        held, self._held = self._held, None
        if held is None:
            return
        usage = self._usages.get(held.response_id) if held.response_id not in self._used else None
        self._used.add(held.response_id)
        reply = ModelReplied(blocks=tuple(held.blocks), model=self._model, usage=usage, response_id=held.response_id)
        yield Said(session=self.scribe.session, uuid=held.uuid, at=held.at, fact=reply)

    def rest(self, stats: _Stats) -> Iterator[Said]:
        """Say what was paid for calls that are no reply here."""
        for service, metrics in stats.service_to_metrics.items():
            for raw in metrics.token_usages:
                usage = read(raw, _USAGE)
                if usage is None or usage.response_id not in self._used:
                    yield self.scribe.say(Observed(kind=f"usage of {service}", raw=raw_text(raw)), "usage")

    def _acted(self, event: _Event) -> Iterator[Said]:
        response_id = event.llm_response_id or ""
        held = self._held
        if held is None or not response_id or held.response_id != response_id:
            yield from self.flush()
            held = _Held(uuid=self.scribe.name(event.id), at=iso_ms(event.timestamp), response_id=response_id)
            self._held = held
        thoughts: tuple[Block, ...] = content_blocks(event.thinking_blocks, self._blobs)
        if not thoughts and event.reasoning_content:
            thoughts = (Thought(text=event.reasoning_content),)
        calls = () if is_absent(event.tool_call) else call_blocks([event.tool_call], event.id)
        held.blocks += thoughts + content_blocks(event.thought, self._blobs) + calls
        called = next((block.call_id for block in calls if isinstance(block, ToolCall)), "")
        self._visible.add(event.id, held.uuid, called=called)

    def _prompted(self, event: _Event) -> Said:
        text = event.system_prompt.text if event.system_prompt is not None else ""
        self._visible.add(event.id, "")
        head = EpochOpened(sections=(Section(key="system", text=text),), tools=catalogue(event.tools or ()))
        return self.scribe.say(head, event.id, iso_ms(event.timestamp))

    def _spoke(self, event: _Event, message: Message) -> Iterator[Said]:
        at = iso_ms(event.timestamp)
        if message.role == "assistant":
            response_id = event.llm_response_id or ""
            usage = self._usages.get(response_id) if response_id not in self._used else None
            self._used.add(response_id)
            blocks = reply_blocks(message, self._blobs, event.id)
            reply = ModelReplied(blocks=blocks, model=self._model, usage=usage, response_id=response_id)
            said = self.scribe.say(reply, event.id, at)
            self._visible.add(event.id, said.uuid)
            yield said
            return
        blocks = content_blocks(message.content, self._blobs)
        fact = UserSaid(blocks=blocks) if event.source == "user" else HostSaid(kind="injected", blocks=blocks)
        said = self.scribe.say(fact, event.id, at)
        self._visible.add(event.id, said.uuid)
        yield said
        added = content_blocks(event.extended_content, self._blobs)
        if added:
            said = self.scribe.say(HostSaid(kind="injected", blocks=added), event.id, at)
            self._visible.add(event.id, said.uuid)
            yield said

    def _returned(self, event: _Event) -> Iterator[Said]:
        call_id = event.tool_call_id or ""
        seen = read(event.observation, _OBSERVATION) or _Observation()
        message = event.error or event.rejection_reason
        shell = seen.metadata or Shell(exit_code=seen.exit_code)
        fact = ToolReturned(
            call_id=call_id,
            blocks=(ToolResultRaw(text=message),) if message else self._result(seen, event.observation),
            is_error=bool(message or seen.is_error or seen.error),
            effect=_effect(seen, event.tool_name or ""),
            exit_code=shell.known_code,
        )
        at = iso_ms(event.timestamp)
        said = self.scribe.say(fact, event.id, at)
        self._visible.add(event.id, said.uuid, answered=call_id)
        yield said
        if seen.new_content is not None:
            yield self.scribe.say(Observed(kind="observation", raw=raw_text(event.observation)), event.id, at)

    def _result(self, seen: _Observation, raw: msgspec.Raw) -> tuple[Block, ...]:
        words = next((text for text in (seen.content, seen.output, seen.message) if text is not None), None)
        if words is None and not isinstance(seen.error, str):
            return (Opaque(kind=seen.kind, raw=raw_text(raw)),)
        blocks: list[Block] = list(content_blocks(words, self._blobs))
        if isinstance(seen.error, str) and seen.error:
            blocks.append(Text(text=seen.error))
        if seen.metadata is not None:
            text = "".join(block.text for block in blocks if isinstance(block, Text))
            blocks = [
                Text(text=seen.metadata.framed(text)),
                *(block for block in blocks if not isinstance(block, Text)),
            ]
        shown = tuple(ToolResultRaw(text=block.text) if isinstance(block, Text) else block for block in blocks)
        return shown or result_blocks("", self._blobs)


def _effect(seen: _Observation, tool: str) -> Effect:
    is_edit_tool = seen.command is not None and "Editor" in seen.kind
    return effect_of(seen.command if is_edit_tool and seen.command else tool)
