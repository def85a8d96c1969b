"""Codex rollouts: `response_item` is the conversation, `event_msg` repeats it for the screen.

1. A response has no mark of its own. Its items (reasoning, message, calls) stand one after another; it ends at its
   `token_count` (one with a new total; totals repeat when only the rate limits moved), at the first output of a call,
   or at the end of the turn. The next item of the model opens the next response. So every distinct total is one reply.
2. Where the `token_count` stands depends on the version: before the items (0.58), after them and before the outputs
   (0.118 to 0.130), after the outputs (0.140 on). A total that comes while no response is open says the first form
   holds (`leads`); one that comes to an open response without usage says it does not. A reply whose usage is
   still to come is held, with what follows it, so that it is said before its results.
3. A response that the file ends in the middle of is not said: no later prompt held it, and the grown file will have it
   whole. Its lines are quarantined. Versions that write `task_started` write a `token_count` after each response.
4. A reply without usage broke off (`aborted`) or its version counts no tokens.
5. Roles lie: user messages hold AGENTS.md, the environment and interruption marks beside what a person typed. Those
   and developer messages are `HostSaid`.
6. `compacted` holds the whole new window: its messages are the seed. No readable summary exists; the encrypted one is
   an `Opaque` block.
7. `thread_rolled_back` takes turns off the end: what follows is a fork from before the first of them.
8. A sub-agent's rollout is a file of its own: a child of the thread that spawned it, wherever that one is. It, and
   a rollout that a person forked, repeat the history they continue, so their window is whole without the other file.
9. A web search runs at the provider, within the response: an `Opaque` block, not a call that waits for a result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal, assert_never

import msgspec

from transom.core.block import Block, Opaque, Text, Thought, ToolCall
from transom.core.canon import FORMAT as LOG_FORMAT
from transom.core.event import (
    EpochOpened,
    Fact,
    HostSaid,
    ModelReplied,
    Observed,
    Section,
    Seed,
    SessionOpened,
    Tool,
    ToolReturned,
    Usage,
    UserSaid,
)
from transom.importers import codex_lines as lines
from transom.importers.draft import Compacted, Item, Note, Quarantined, Said, Unknown
from transom.importers.effects import effect_of
from transom.importers.fields import iso_ms, raw_text
from transom.importers.mending import decode
from transom.importers.source import Record, Source
from transom.ports import Blobs

__all__ = ["FORMAT", "parse", "sniff"]

FORMAT = "codex"

_OPENING = 256
"""Items held back at most until the model and its window are known: a handful comes before the first reply."""


def sniff(source: Source) -> bool:
    """A rollout opens with its `session_meta` line."""
    first = source.head(4096)
    return b'"session_meta"' in first and b'"payload"' in first


def parse(source: Source, blobs: Blobs) -> Iterator[Item]:
    rollout = _Rollout(blobs=blobs)
    for record in source.lines(lines.LINE):
        if isinstance(record, Record):
            rollout.read(record)
        else:
            rollout.say(record)
        yield from rollout.ready()
    rollout.end()
    yield from rollout.ready()


@dataclass(slots=True, kw_only=True)
class _Reply:
    """A response being read. `pieces` are its lines and its results', should it turn out to be unfinished."""

    uuid: str
    at: int
    model: str
    usage: Usage | None
    blocks: list[Block] = field(default_factory=list)
    pieces: list[Quarantined] = field(default_factory=list)
    is_closed: bool = False
    stop_reason: str = ""


@dataclass(slots=True, kw_only=True)
class _Rollout:
    """What is known while reading: the present session and turn, the open reply and what waits behind it."""

    blobs: Blobs
    meta: lines.Meta = field(default_factory=lines.Meta)
    session: str = ""
    model: str = ""
    context_limit: int = 0
    out: list[Item] = field(default_factory=list)
    held: list[Item] = field(default_factory=list)
    reply: _Reply | None = None
    is_open: bool = False
    has_replied: bool = False
    has_turns: bool = False
    leads: bool | None = None
    waiting: Usage | None = None
    totals: lines.Tokens | None = None
    window_tokens: int = 0
    tools: dict[str, str] = field(default_factory=dict)
    turns: list[tuple[str, str]] = field(default_factory=list)
    last: tuple[str, str] = ("", "")
    line: int = 0
    on_line: int = 0

    # -- saying

    def say(self, item: Item) -> None:
        if isinstance(item, Said | Compacted):
            self.last = (item.session, item.uuid)
        (self.held if self.reply else self.out).append(item)

    def ready(self) -> Iterator[Item]:
        """What can be handed on. The opening waits for the first reply: only then are model and window known."""
        if not self.is_open:
            if not self.has_replied and len(self.out) < _OPENING:
                return
            self.is_open = True
            yield from self.opening()
        yield from self.out
        self.out.clear()

    def opening(self) -> Iterator[Item]:
        first = next((item for item in self.out if isinstance(item, Said)), None)
        session, at = (first.session, first.at) if first else ("main", 0)
        spawner = lines.spawner_of(self.meta)
        opened = self.opened("child" if spawner else "root")
        yield Said(session=session, uuid="session", at=at, fact=opened, parent=(spawner, "") if spawner else None)
        prompt = self.meta.base_instructions
        sections = (Section(key="base_instructions", text=prompt.text),) if prompt else ()
        tools = tuple(
            Tool(name=tool.name, description=tool.description, schema=raw_text(tool.schema))
            for tool in self.meta.dynamic_tools or ()
        )
        if sections or tools:
            yield Said(session=session, uuid="epoch", at=at, fact=EpochOpened(sections=sections, tools=tools))
        if self.meta.forked_from_id and not spawner:
            yield Note(text=f"this rollout continues thread {self.meta.forked_from_id}, which is another file")

    def opened(self, kind: Literal["root", "fork", "child"]) -> SessionOpened:
        return SessionOpened(
            format=LOG_FORMAT,
            kind=kind,
            agent="codex",
            agent_version=self.meta.cli_version,
            model=self.model,
            provider=self.meta.model_provider or "",
            workspace=self.meta.cwd,
            context_limit=self.context_limit,
        )

    def uuid(self, line: int) -> str:
        """The line number; `.1`, `.2`, … for more facts of one line (two values torn onto one, a mixed message)."""
        self.on_line = self.on_line + 1 if line == self.line else 0
        self.line = line
        return f"{line}.{self.on_line}" if self.on_line else str(line)

    def fact(self, record: Record[lines.Line], fact: Fact) -> Said:
        at = iso_ms(record.value.timestamp)
        return Said(session=self.session, uuid=self.uuid(record.line), at=at, fact=fact)

    def observe(self, record: Record[lines.Line], kind: str) -> None:
        self.say(self.fact(record, Observed(kind=kind, raw=raw_text(record.raw))))

    # -- reading

    def read(self, record: Record[lines.Line]) -> None:
        line = record.value
        try:
            if not self.session:
                self.meta = decode(bytes(line.payload), lines.META)[0] if line.type == "session_meta" else self.meta
                self.session = self.meta.id or "main"
            match line.type:
                case "response_item":
                    self.response_item(record, decode(bytes(line.payload), lines.ITEM)[0])
                case "event_msg":
                    self.event(record, decode(bytes(line.payload), lines.EVENT)[0])
                case "compacted":
                    self.compacted(record, decode(bytes(line.payload), lines.COMPACTED)[0])
                case "turn_context":
                    self.model = decode(bytes(line.payload), lines.TURN)[0].model or self.model
                    self.observe(record, line.type)
                case "session_meta":
                    self.observe(record, line.type)
                case _:
                    self.strange(record)
        except (msgspec.DecodeError, RecursionError):
            self.strange(record)

    def strange(self, record: Record[lines.Line]) -> None:
        """A type nobody understands, or a known one of another shape."""
        self.session = self.session or "main"
        kind = f"{record.value.type}/{lines.kind_of(record.value.payload)}"
        self.observe(record, kind)
        self.say(Unknown(kind=kind))

    def response_item(self, record: Record[lines.Line], item: lines.ResponseItem) -> None:
        match item:
            case lines.Message(role="assistant"):
                self.model_said(record, self.blocks(record, item.content))
            case lines.Message():
                self.message(record, item)
            case lines.Output() | lines.CustomOutput() | lines.ToolSearchOutput():
                self.returned(record, item)
            case lines.Snapshot():
                self.observe(record, "response_item/ghost_snapshot")
            case lines.EncryptedSummary():
                opaque = Opaque(kind="compaction", raw=raw_text(record.value.payload))
                self.say(self.fact(record, HostSaid(kind="injected", blocks=(opaque,))))
            case _:
                self.model_said(record, (self.model_block(item, raw_text(record.value.payload)),))

    def blocks(self, record: Record[lines.Line], contents: tuple[lines.Content, ...]) -> tuple[Block, ...]:
        return tuple(lines.content_block(self.blobs, content, record.value.payload) for content in contents)

    def message(self, record: Record[lines.Line], message: lines.Message) -> None:
        """One fact for each run of blocks a person typed, or the client put in."""
        if self.reply:
            self.close()
        before = self.last
        runs = groupby(
            self.blocks(record, message.content), lambda block: message.role == "user" and lines.is_typed(block)
        )
        for is_user, run in runs:
            if is_user:
                self.turns.append(before)
                self.say(self.fact(record, UserSaid(blocks=tuple(run))))
            else:
                self.say(self.fact(record, HostSaid(kind="injected", blocks=tuple(run))))

    def model_block(self, item: lines.ModelItem, raw: str) -> Block:
        match item:
            case lines.Reasoning():
                text = "\n\n".join(content.text for content in item.summary or item.content or ())
                return Thought(text=text, opaque=raw)
            case lines.FunctionCall():
                name = f"{item.namespace}__{item.name.lstrip('_')}" if item.namespace else item.name
                return self.call(item.call_id, name, item.arguments)
            case lines.CustomCall():
                return self.call(item.call_id, item.name, item.input)
            case lines.ToolSearch():
                return self.call(item.call_id or "", "tool_search", raw_text(item.arguments))
            case lines.ShellCall():
                return self.call(item.call_id or "", "local_shell", raw_text(item.action))
            case lines.WebSearch():
                return Opaque(kind="web_search_call", raw=raw)
            case lines.Drawing():
                return Opaque(kind="image_generation_call", raw=raw)
            case _:
                assert_never(item)

    def call(self, call_id: str, name: str, arguments: str) -> ToolCall:
        self.tools[call_id] = name
        return ToolCall(call_id=call_id, name=name, arguments=arguments)

    def model_said(self, record: Record[lines.Line], blocks: tuple[Block, ...]) -> None:
        if self.reply and self.reply.is_closed:
            self.flush()
        uuid, at = self.uuid(record.line), iso_ms(record.value.timestamp)
        if not self.reply:
            self.reply = _Reply(uuid=uuid, at=at, model=self.model, usage=self.waiting)
            self.waiting = None
            self.last = (self.session, uuid)
        self.reply.blocks.extend(blocks)
        self.reply.pieces.append(_piece(record))

    def returned(self, record: Record[lines.Line], item: lines.Answer) -> None:
        if self.reply:
            self.close()
        if self.reply:
            self.reply.pieces.append(_piece(record))
        text, blocks = lines.result_of(self.blobs, item, record.value.payload)
        fact = ToolReturned(
            call_id=item.call_id or "",
            blocks=blocks,
            is_error=text.startswith(lines.NEVER_RAN),
            effect=effect_of(self.tools.pop(item.call_id or "", "")),
            exit_code=lines.exit_code_of(text),
        )
        self.say(self.fact(record, fact))

    def compacted(self, record: Record[lines.Line], compacted: lines.CompactedLine) -> None:
        self.flush()
        seed = tuple(lines.seed_of(self.blobs, raw) for raw in compacted.replacement_history or ())
        if compacted.message:
            seed = (*seed, Seed(role="host", blocks=(Text(text=compacted.message),)))
        self.say(
            Compacted(
                session=self.session,
                uuid=self.uuid(record.line),
                at=iso_ms(record.value.timestamp),
                seed=seed,
                tokens_before=self.window_tokens,
            )
        )

    def event(self, record: Record[lines.Line], event: lines.ScreenEvent) -> None:
        self.observe(record, f"event_msg/{event.type}")
        self.context_limit = event.model_context_window or self.context_limit
        self.has_turns = self.has_turns or event.type == "task_started"
        match event.type:
            case "token_count" if event.info:
                self.context_limit = event.info.model_context_window or self.context_limit
                self.counted(event.info)
            case "task_started" | "task_complete" | "turn_aborted" if self.reply:
                if event.type == "turn_aborted" and not self.reply.usage:
                    self.reply.stop_reason = "aborted"
                self.flush()
            case "thread_rolled_back":
                self.roll_back(record, event.num_turns)
            case _:
                pass

    def counted(self, info: lines.Info) -> None:
        if info.total_token_usage == self.totals:
            return
        self.totals = info.total_token_usage
        self.window_tokens = max(0, info.last_token_usage.total_tokens)
        usage = lines.usage_of(info.last_token_usage)
        if self.reply:
            self.leads = False
            self.reply.usage = usage
            self.flush()
        elif self.leads is not False:
            self.leads = True
            self.waiting = usage

    def close(self) -> None:
        """The open reply is whole; it is said now if its usage is known."""
        assert self.reply
        self.reply.is_closed = True
        if self.reply.usage:
            self.flush()

    def flush(self) -> None:
        if not self.reply:
            return
        reply, self.reply = self.reply, None
        fact = ModelReplied(
            blocks=tuple(reply.blocks), model=reply.model, stop_reason=reply.stop_reason, usage=reply.usage
        )
        self.out.append(Said(session=self.session, uuid=reply.uuid, at=reply.at, fact=fact))
        self.out.extend(self.held)
        self.held.clear()
        self.has_replied = True

    def roll_back(self, record: Record[lines.Line], turns: int) -> None:
        self.flush()
        if turns <= 0 or not self.turns:
            return
        parent = self.turns[-turns:][0]
        del self.turns[-turns:]
        root = self.session.partition("~")[0]
        self.session = f"{root}~{record.line}"
        at = iso_ms(record.value.timestamp)
        self.say(Said(session=self.session, uuid="session", at=at, fact=self.opened("fork"), parent=parent))

    def end(self) -> None:
        reply = self.reply
        if reply and self.is_unfinished(reply):
            self.reply = None
            self.out.extend(reply.pieces)
            self.out.extend(item for item in self.held if not _is_result(item))
        self.flush()
        self.has_replied = bool(self.is_open or self.out)

    def is_unfinished(self, reply: _Reply) -> bool:
        """Whether the file ends before the response's `token_count`, or before a response that it led is whole."""
        if reply.usage:
            return not (reply.blocks and isinstance(reply.blocks[-1], Text))
        return self.has_turns if self.leads is None else not self.leads


def _piece(record: Record[lines.Line]) -> Quarantined:
    why = "part of a response that the file ends in: it is read when the file has the rest"
    return Quarantined(line=record.line, why=why, raw=raw_text(record.raw))


def _is_result(item: Item) -> bool:
    return isinstance(item, Said) and isinstance(item.fact, ToolReturned)
