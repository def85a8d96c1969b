"""Claude Code's session files: JSONL, one record a line, a tree by `parentUuid`.

Records come in the order they happened. Which session one belongs to follows from its parent: a user message or a
reply whose parent lies before the newest turn is a rewind, and starts a fork there (parallel calls, results, progress
and what the client says itself start none). Records of a sub-agent, inline (`isSidechain`) or inside `progress`
(`data.agentId`), are a child session. A `compact_boundary` and the summary after it are one `Compacted`.

Model-visible attachments are said as the text they carry, which is near to what the client sends, not equal to it:
the file does not hold the exact words.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import msgspec

from transom.core import canon
from transom.core.block import Block, Text, ToolResultRaw
from transom.core.event import HostSaid, Observed, Seed, SessionOpened, UserSaid
from transom.importers.claude_lines import LINE, Line, agent_step, aside_of, message_of, words
from transom.importers.claude_message import SYNTHETIC, Message, Result, blocks, contents, is_injected
from transom.importers.claude_thread import OPENED, Thread
from transom.importers.draft import Cleared, Compacted, Item, Note, Quarantined, Said, Unknown
from transom.importers.fields import iso_ms, raw_text
from transom.importers.source import Record, Source
from transom.ports import Blobs

__all__ = ["FORMAT", "parse", "sniff"]

FORMAT = "claude-code"

_PREFACE = 400
"""Records looked at before the first is said, for the model, the title and the workspace. In the recorded sessions
the first reply stands within the first 20."""

_SNIFFED = 60
_CLEARED = "[Old tool result content cleared]"
_SILENT = frozenset(
    {
        "file-history-snapshot",
        "queue-operation",
        "last-prompt",
        "permission-mode",
        "mode",
        "ai-title",
        "custom-title",
        "agent-name",
        "pr-link",
        "summary",
        "progress",
        "system",
    }
)
"""Record types that are known and were never sent to the model."""


def sniff(source: Source) -> bool:
    """A JSONL file with a conversation record of Claude Code among its first ones."""
    if not source.head(512).lstrip(b"\xef\xbb\xbf \t\r\n\0").startswith(b"{"):
        return False
    return any(_is_marked(record) for record in islice(source.lines(LINE), _SNIFFED))


def _is_marked(record: Record[Line] | Quarantined | Note) -> bool:
    if not isinstance(record, Record):
        return False
    line = record.value
    return bool(line.uuid and line.sessionId and line.type and line.isSidechain is not None)


def parse(source: Source, blobs: Blobs) -> Iterator[Item]:
    """Every fact of the file, in the order the model saw things."""
    reader = _Reader(blobs, _preface(source))
    yield from reader.open()
    for record in source.lines(LINE):
        if isinstance(record, Record):
            yield from reader.take(record)
        else:
            yield record
    yield from reader.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Preface:
    session: str
    parent: str
    agent_version: str
    model: str
    workspace: str
    title: str


def _preface(source: Source) -> _Preface:
    session = parent = version = model = workspace = summary = title = ""
    for record in islice(source.lines(LINE), _PREFACE):
        if not isinstance(record, Record):
            continue
        line = record.value
        if not session and line.sessionId:
            session = f"{line.sessionId}/agent-{line.agentId}" if line.agentId and line.isSidechain else line.sessionId
            parent = line.sessionId if line.agentId and line.isSidechain else ""
        version = version or line.version or ""
        workspace = workspace or line.cwd or ""
        summary = summary or line.summary or ""
        title = line.customTitle or title or line.aiTitle or ""
        if line.type == "assistant":
            said = message_of(line.message)
            model = said.model if said and said.model != SYNTHETIC else ""
            if model:
                break
    return _Preface(
        session=session,
        parent=parent,
        agent_version=version,
        model=model,
        workspace=workspace,
        title=title or summary,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """Where a record stands: its session, the newest fact on its own chain, and that fact's turn."""

    thread: Thread
    uuid: str
    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Early:
    uuid: str
    record: str
    at: int
    result: Result


class _Reader:
    def __init__(self, blobs: Blobs, preface: _Preface) -> None:
        self._blobs = blobs
        self._preface = preface
        self._main = Thread(preface.session)
        self._threads = [self._main]
        self._agents: dict[str, Thread] = {}
        self._nodes: dict[str, _Node] = {}
        self._results: dict[str, str] = {}
        """call id -> uuid of its result."""
        self._early: dict[str, _Early] = {}
        """call id -> result, where the client wrote the result a line before its call."""
        self._boundary: Compacted | None = None

    def open(self) -> Iterator[Item]:
        """The session itself. A sub-agent's own file is a child whose parent may be in no log."""
        parent = (self._preface.parent, "") if self._preface.parent else None
        yield self._opened(self._main, "root" if parent is None else "child", parent, at=0)

    def close(self) -> Iterator[Item]:
        """What was still being held: callers first, so that a child stands behind the call that started it."""
        yield from self._end_boundary()
        for early in self._early.values():
            yield from self._late(self._main, early)
        for thread in self._threads:
            yield from thread.close()

    def take(self, record: Record[Line]) -> Iterator[Item]:
        """One record."""
        line = record.value
        name = line.uuid or f"L{record.line}"
        at = iso_ms(line.timestamp or "")
        node = self._node(line)
        if line.type in {"user", "assistant"} and not line.isCompactSummary:
            yield from self._end_boundary()
        match line.type:
            case "user" if (message := message_of(line.message)) is not None:
                yield from self._user(line, name, at, node, message)
            case "assistant" if (message := message_of(line.message)) is not None:
                yield from self._assistant(line, name, at, node, message)
            case "attachment":
                yield from self._attachment(record, name, at, node.thread)
            case "system":
                yield from self._system(record, name, at, node.thread)
            case "progress":
                yield from self._progress(record, name, at, node)
            case _:
                if line.type not in _SILENT:
                    yield Unknown(kind=line.type or "(no type)")
                yield self._observed(node.thread, name, at, line.type or "unknown", record.raw)
        if line.uuid:
            self._nodes.setdefault(line.uuid, node)

    # -- where a record belongs

    def _node(self, line: Line) -> _Node:
        parent = line.parentUuid or line.logicalParentUuid
        found = self._nodes.get(parent) if parent else None
        return found or _Node(thread=self._main, uuid=self._main.last, turn=self._main.turn)

    def _stand(self, name: str, thread: Thread) -> None:
        """The record `name` said something: what names it as its parent continues from there."""
        self._nodes[name] = _Node(thread=thread, uuid=thread.last, turn=thread.turn)

    def _thread(self, line: Line, name: str, at: int, node: _Node) -> Generator[Item, None, Thread]:
        """The thread to say something in: a fork if the record rewinds, a child if it starts a sub-agent."""
        if line.isSidechain and node.thread is self._main and not self._preface.parent:
            child = Thread(f"{self._main.session}/{name}", caller=self._main)
            self._threads.append(child)
            parent = (self._main.session, self._main.last)
            yield from self._main.say(self._opened(child, "child", parent, at))
            return child
        if node.turn >= node.thread.turn:
            return node.thread
        yield from node.thread.close()
        fork = Thread(f"{self._main.session}#{name}", forked_from=node.thread)
        fork.turn, fork.last = node.turn, node.uuid
        self._threads.append(fork)
        yield self._opened(fork, "fork", (node.thread.session, node.uuid), at)
        return fork

    def _opened(
        self, thread: Thread, kind: Literal["root", "fork", "child"], parent: tuple[str, str] | None, at: int
    ) -> Said:
        preface = self._preface
        fact = SessionOpened(
            format=canon.FORMAT,
            kind=kind,
            agent=FORMAT,
            agent_version=preface.agent_version,
            model="" if kind == "child" else preface.model,
            provider="anthropic",
            workspace=preface.workspace,
            title=preface.title,
        )
        return Said(session=thread.session, uuid=OPENED, at=at, fact=fact, parent=parent)

    def _late(self, thread: Thread, early: _Early) -> Iterator[Item]:
        yield from thread.result(early.uuid, early.at, early.result)
        self._stand(early.record, thread)

    # -- what a record says

    def _user(self, line: Line, name: str, at: int, node: _Node, message: Message) -> Iterator[Item]:
        found, said = contents(message.content, self._blobs)
        for number, result in enumerate(found):
            uuid = f"{name}.{number}" if number else name
            self._results[result.call_id] = uuid
            if line.parentUuid and line.parentUuid not in self._nodes:
                self._early[result.call_id] = _Early(uuid=uuid, record=name, at=at, result=result)
                continue
            yield from node.thread.result(uuid, at, result)
            self._stand(name, node.thread)
        uuid = f"{name}.{len(found)}" if found else name
        if line.isCompactSummary:
            yield from self._summary(node.thread, uuid, at, said)
            self._stand(name, node.thread)
        elif said:
            thread = yield from self._thread(line, name, at, node)
            is_typed = not line.isMeta and not is_injected(_first_text(said))
            yield from self._say(thread, uuid, at, said, is_typed=is_typed)
            self._stand(name, thread)
        if bytes(line.toolUseResult) not in {b"", b"null"}:
            uuid = f"{name}.{len(found) + bool(said)}"
            yield from node.thread.say(
                self._observed(node.thread, uuid, at, "toolUseResult", bytes(line.toolUseResult))
            )

    def _say(self, thread: Thread, uuid: str, at: int, said: tuple[Block, ...], *, is_typed: bool) -> Iterator[Item]:
        """Words in the user's role. In a sub-agent they are its caller's, not a person's."""
        fact: UserSaid | HostSaid
        if is_typed:
            fact = UserSaid(blocks=said, by="user" if thread.caller is None else "operator")
            yield from thread.close()
            thread.turn += 1
        else:
            fact = HostSaid(kind="injected", blocks=said)
        yield from thread.say(Said(session=thread.session, uuid=uuid, at=at, fact=fact))
        thread.last = uuid

    def _assistant(self, line: Line, name: str, at: int, node: _Node, message: Message) -> Iterator[Item]:
        if message.model == SYNTHETIC:
            said = blocks(message.content, self._blobs)
            yield from self._say(node.thread, name, at, said, is_typed=False)
            self._stand(name, node.thread)
            return
        response_id = message.id or name
        thread = node.thread
        if not thread.is_open_for(response_id):
            thread = yield from self._thread(line, name, at, node)
        yield from thread.reply(name, at, msgspec.structs.replace(message, id=response_id), self._blobs)
        self._stand(name, thread)
        for call_id in [call_id for call_id in self._early if call_id in thread.names]:
            yield from self._late(thread, self._early.pop(call_id))

    def _system(self, record: Record[Line], name: str, at: int, thread: Thread) -> Iterator[Item]:
        line = record.value
        kind = f"system:{line.subtype or ''}"
        if line.subtype == "compact_boundary":
            yield from self._end_boundary()
            before = line.compactMetadata.preTokens if line.compactMetadata else 0
            self._boundary = Compacted(session=thread.session, uuid=name, at=at, seed=(), tokens_before=before or 0)
            yield self._observed(thread, f"{name}.1", at, kind, record.raw)
            return
        if line.subtype == "microcompact_boundary" and line.microcompactMetadata:
            ids = (self._results.get(call_id) for call_id in line.microcompactMetadata.compactedToolIds)
            targets = tuple((uuid, ToolResultRaw(text=_CLEARED)) for uuid in ids if uuid)
            yield from thread.close()
            yield Cleared(session=thread.session, uuid=name, at=at, how="mask", targets=targets)
            yield self._observed(thread, f"{name}.1", at, kind, record.raw)
            return
        yield self._observed(thread, name, at, kind, record.raw)

    def _summary(self, thread: Thread, uuid: str, at: int, said: tuple[Block, ...]) -> Iterator[Item]:
        """The summary a window was compacted to; old clients write no boundary before it."""
        boundary, self._boundary = self._boundary, None
        yield from thread.close()
        before = boundary.tokens_before if boundary else 0
        seed = (Seed(role="user", blocks=said),)
        yield Compacted(session=thread.session, uuid=uuid, at=at, seed=seed, tokens_before=before)
        thread.turn += 1
        thread.last = uuid

    def _end_boundary(self) -> Iterator[Item]:
        """A boundary that no summary followed: the window was cleared all the same."""
        boundary, self._boundary = self._boundary, None
        if boundary:
            for thread in self._threads:
                if thread.session == boundary.session:
                    yield from thread.close()
            yield boundary

    def _attachment(self, record: Record[Line], name: str, at: int, thread: Thread) -> Iterator[Item]:
        attachment = aside_of(record.value)
        if attachment is None:
            yield Unknown(kind="attachment")
            yield self._observed(thread, name, at, "attachment", record.raw)
            return
        if attachment.type == "queued_command":
            said = blocks(attachment.prompt, self._blobs)
            is_typed = attachment.commandMode == "prompt" and not is_injected(_first_text(said))
            yield from self._say(thread, name, at, said, is_typed=is_typed)
        elif spoken := words(attachment):
            yield from self._say(thread, name, at, (Text(text=spoken),), is_typed=False)
        else:
            yield self._observed(thread, name, at, f"attachment:{attachment.type}", record.raw)
            return
        self._stand(name, thread)

    def _progress(self, record: Record[Line], name: str, at: int, node: _Node) -> Iterator[Item]:
        nested = agent_step(record.value.data)
        if nested is None:
            yield self._observed(node.thread, name, at, "progress", record.raw)
            return
        agent_id, step, message = nested
        thread = self._agents.get(agent_id)
        if thread is None:
            thread = Thread(f"{self._main.session}/agent-{agent_id}", caller=node.thread)
            self._threads.append(thread)
            self._agents[agent_id] = thread
            yield from thread.say(self._opened(thread, "child", (node.thread.session, node.uuid), at))
        uuid = step.uuid or name
        at = iso_ms(step.timestamp) or at
        if step.type == "assistant":
            yield from thread.reply(uuid, at, message, self._blobs)
            return
        found, said = contents(message.content, self._blobs)
        for number, result in enumerate(found):
            yield from thread.result(f"{uuid}.{number}" if number else uuid, at, result)
        if said:
            yield from self._say(thread, uuid, at, said, is_typed=not is_injected(_first_text(said)))

    @staticmethod
    def _observed(thread: Thread, uuid: str, at: int, kind: str, raw: bytes) -> Said:
        return Said(session=thread.session, uuid=uuid, at=at, fact=Observed(kind=kind, raw=raw_text(raw)))


def _first_text(said: tuple[Block, ...]) -> str:
    return next((block.text for block in said if isinstance(block, Text)), "")
