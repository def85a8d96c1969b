"""One session being imported into the log, which may hold some of it already.

Theory of operation. A source is read from its start each time; what the log has is recognised by uuid and content,
in order; JSON that a copy writes with other spaces, escapes or order of keys is the same content.

1. The log has nothing: every fact is appended.
2. The longest source read into it is this one's first bytes (`is_extension`): facts it knows are skipped, the others
   are appended once all it knows were met. (A reader says what it still holds at the end of a file, so the last few
   facts of a grown file may come in another order than the first time.)
3. Else the log has an interrupted import, a newer or an older copy, or the file was rewritten: facts are skipped as
   long as they are the log's. One that is not, before all of the log's were met, means a rewritten file.
   A source with just these bytes was read before (`is_known`): the log has all of it, whatever came since.
4. A fact with a known uuid and other content cannot be changed (L1): a reply of which the last import saw half, or a
   rewritten file.

In cases 3 and 4 the session goes on as a fork behind the last fact both have, named `<session>~2`, `~3`, …, and a note
says why. Nothing is merged. An older copy, all of whose facts are known, changes nothing.

Memory: uuids and seqs, for a changed file also marks, and one batch (`importers.load` has the figure).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Literal

from msgspec.structs import replace

from transom.core.block import Block, Image, Opaque, Text, Thought, ToolCall, ToolResultRaw
from transom.core.event import (
    Draft,
    EpochOpened,
    Event,
    Fact,
    HostSaid,
    Link,
    ModelReplied,
    Observed,
    SessionOpened,
    SourceRead,
    ToolReturned,
    UserSaid,
    WindowOpened,
    encode_fact,
)
from transom.measuring import bare
from transom.ports import Log

__all__ = ["QUARANTINED", "Status", "Track"]

Status = Literal["new", "grown", "unchanged", "fork"]

QUARANTINED = "quarantined"
"""The kind of an `Observed` that holds a line nobody could read."""

_BATCH = 256
_BATCH_CHARS = 4 << 20
"""A batch is appended at this many facts or characters: big enough that a commit is shared, small enough to hold."""

_AHEAD = 4096
"""Facts that wait for the log's to be met. A reader's own reordering is a few dozen; more means a rewritten file."""


class Track:
    """A session of the source on its way into the log. `parent` is the track a fork continues, with its last seq."""

    def __init__(
        self,
        log: Log,
        weigh: Callable[[Fact], Fact],
        session_id: str,
        opened: Draft,
        parent: tuple[Track, int] | None = None,
    ) -> None:
        self.session_id = session_id
        self.status: Status = "new"
        self.appended = 0
        self.windows: int = parent[0].windows if parent else 0
        """Windows opened so far in the source's order."""
        self.notes: list[str] = []
        self.read_before: set[str] = set()
        """sha256 of every source read into this session before."""
        self._log = log
        self._weigh = weigh
        self._base = session_id
        self._opened = opened
        self._parent = parent
        self._head = parent[1] if parent else 0
        self._last_at = opened.at
        self._seqs: dict[str, int] = {}
        self._said: set[str] = {opened.uuid}
        """uuids said so far, while the log has facts that were not met: then `_seqs` has more than those."""
        self._pending: list[Draft] = []
        self._pending_chars = 0
        self._is_extension = False
        self._is_known = False
        self._marks: dict[str, bytes] = {}
        self._order: list[str] = []
        """uuids of the log's facts that were not met yet begin at `_met`."""
        self._met = 0
        self._ahead: list[Draft] = []

    # -- what the log holds

    def start(self, sha256: str, is_prefix: Callable[[SourceRead], bool]) -> None:
        """Find the session in the log, or open it. `is_prefix` tells whether this source, of this digest, starts with
        what was read."""
        names = self._names()
        if not names:
            self._append(self._opened)
            return
        self.status = "unchanged"
        reads = {name: self._reads(name) for name in reversed(names)}
        known = [name for name, facts in reads.items() if any(fact.sha256 == sha256 for fact in facts)]
        # What starts with a shorter one may still be an older copy of the longest.
        longest = {name: max(facts, key=lambda fact: fact.size) for name, facts in reads.items() if facts}
        grown = [name for name, fact in longest.items() if not known and is_prefix(fact)]
        self._is_known, self._is_extension = bool(known), bool(grown)
        self.session_id = next(iter(known or grown), names[-1])
        self._recall(frozenset(names))

    def _reads(self, name: str) -> list[SourceRead]:
        return [event.fact for event in self._log.read(name) if isinstance(event.fact, SourceRead)]

    def _names(self) -> list[str]:
        names: list[str] = []
        name = self._base
        while self._log.sessions(name):
            names.append(name)
            name = f"{self._base}~{len(names) + 1}"
        return names

    def _recall(self, names: frozenset[str]) -> None:
        """Take in what the log has of this session; what a fork inherits from another track is that track's."""
        for event in self._log.read(self.session_id):
            self._head = event.seq
            if event.session_id not in names:
                continue
            self._seqs[event.uuid] = event.seq
            fact = event.fact
            if isinstance(fact, SourceRead):
                self.read_before.add(fact.sha256)
            elif not isinstance(fact, SessionOpened) and not _is_quarantined(fact):
                self._order.append(event.uuid)
                self._marks[event.uuid] = _mark(fact)

    # -- what the source says

    def say(self, draft: Draft) -> None:
        """One more fact, in the source's order."""
        draft = self._named(draft)
        self._last_at = draft.at or self._last_at
        if isinstance(draft.fact, WindowOpened):
            self.windows += 1
        if self._is_known:
            return
        mark = self._marks.get(draft.uuid)
        if self._met == len(self._order):
            if mark is None and not (_is_quarantined(draft.fact) and draft.uuid in self._seqs):
                self._append(draft)
        elif mark is None:
            self._unknown(draft)
        elif mark == _mark(draft.fact) or self._is_older(draft):
            self._meet(draft)
        else:
            self._diverge(f"{draft.uuid} says something else than at the last import", draft)

    def seq_of(self, uuid: str) -> int:
        """Where a fact stands; 0 if it is not known. A fork knows its parent's."""
        seq = self._seqs.get(uuid, 0)
        if seq or self._parent is None:
            return seq
        track, last = self._parent
        seq = track.seq_of(uuid)
        return seq if seq <= last else 0

    def event(self, seq: int) -> Event | None:
        """A fact of this session or its ancestors, from the log."""
        self.flush()
        return next(iter(self._log.read(self.session_id, seq - 1, seq)), None) if seq else None

    def link(self, uuid: str) -> Link | None:
        """The place a fork or child can name as its parent; without a uuid, the newest one."""
        event = self.event(self.seq_of(uuid) if uuid else self._head)
        return Link(session_id=event.session_id, seq=event.seq, digest=event.digest.hex()) if event else None

    def finish(self) -> None:
        """The source has ended. If facts of the log were not met, it is an older copy. If it is a grown one, the last
        import said something at the cut end that the whole file does not say: the session goes on without it, if it
        goes on at all."""
        is_news = any(waiting.uuid not in self._marks for waiting in self._ahead)
        if self._met < len(self._order) and self._is_extension and is_news:
            self._diverge(f"{self._order[self._met]} was there at the last import and is gone", None)
        elif self._met < len(self._order):
            self.notes.append("an older copy of a session the log knows to a later point: nothing is new")
        self.flush()

    def flush(self) -> None:
        """Append what is pending, as one."""
        if self._pending:
            start = self._head - len(self._pending)
            self._log.append(self.session_id, start, self._pending)
            self.appended += len(self._pending)
            self._pending = []
            self._pending_chars = 0

    def close(self, read: SourceRead) -> None:
        """The end of an import of this session."""
        draft = Draft(fact=read, uuid=f"read-{read.sha256[:16]}", at=self._last_at)
        self._log.append(self.session_id, self._head, [draft])

    # -- steps

    def _named(self, draft: Draft) -> Draft:
        """The draft under a uuid that is said once."""
        said = self._said if self._order else self._seqs
        uuid, number = draft.uuid, 0
        while uuid in said:
            number += 1
            uuid = f"{draft.uuid}~{number}"
        if self._order:
            self._said.add(uuid)
        return replace(draft, uuid=uuid) if number else draft

    def _append(self, draft: Draft) -> None:
        if self.status == "unchanged":
            self.status = "grown"
        fact = self._weigh(draft.fact)
        self._pending.append(replace(draft, fact=fact))
        self._pending_chars += _size(fact)
        self._head += 1
        self._seqs[draft.uuid] = self._head
        if len(self._pending) >= _BATCH or self._pending_chars >= _BATCH_CHARS:
            self.flush()

    def _meet(self, draft: Draft) -> None:
        """A fact the log has. Those met out of order wait, in case the session forks before them."""
        if draft.uuid != self._order[self._met]:
            self._wait(draft)
            return
        self._met += 1
        early = {waiting.uuid for waiting in self._ahead}
        while self._met < len(self._order) and self._order[self._met] in early:
            self._met += 1
        if self._met == len(self._order):
            waiting, self._ahead = self._ahead, []
            for item in waiting:
                if item.uuid not in self._marks:
                    self._append(item)

    def _unknown(self, draft: Draft) -> None:
        """A fact the log lacks, while it has others that were not met."""
        if self._is_extension or _is_quarantined(draft.fact):
            if draft.uuid not in self._seqs:
                self._wait(draft)
        else:
            self._diverge(f"{draft.uuid} stands where {self._order[self._met]} was at the last import", draft)

    def _wait(self, draft: Draft) -> None:
        self._ahead.append(draft)
        if len(self._ahead) > _AHEAD:
            self._diverge(f"{self._order[self._met]} was there at the last import and is gone", None)

    def _diverge(self, why: str, draft: Draft | None) -> None:
        """Go on as a fork behind the last fact that the log and the source have in common."""
        common = self._seqs[self._order[self._met]] - 1
        link = self._link_at(common)
        old = self.session_id
        self.session_id = f"{self._base}~{len(self._names()) + 1}"
        self.status = "fork"
        self.notes.append(f"{old} was rewritten: {why}; it goes on as {self.session_id} behind event {common}")
        self._head = common
        self._seqs = {uuid: seq for uuid, seq in self._seqs.items() if seq <= common}
        self._marks, self._order, self._met = {}, [], 0
        waiting, self._ahead = self._ahead, []
        fact = self._opened.fact
        assert isinstance(fact, SessionOpened)
        self._append(replace(self._opened, fact=replace(fact, kind="fork", parent=link)))
        for item in [*waiting, *([draft] if draft else [])]:
            self._append(item)

    def _link_at(self, seq: int) -> Link:
        event = next(iter(self._log.read(self.session_id, seq - 1, seq)))
        return Link(session_id=event.session_id, seq=event.seq, digest=event.digest.hex())

    def _is_older(self, draft: Draft) -> bool:
        """Whether the draft is a reply of which the log has more."""
        if not isinstance(draft.fact, ModelReplied):
            return False
        event = self.event(self._seqs[draft.uuid])
        if event is None or not isinstance(event.fact, ModelReplied):
            return False
        logged = bare(event.fact)
        assert isinstance(logged, ModelReplied)
        return logged.blocks[: len(draft.fact.blocks)] == draft.fact.blocks


def _is_quarantined(fact: Fact) -> bool:
    return isinstance(fact, Observed) and fact.kind == QUARANTINED


def _mark(fact: Fact) -> bytes:
    """By which a fact is known again, however a copy writes its JSON."""
    fact = bare(fact)
    match fact:
        case Observed():
            fact = replace(fact, raw=_same(fact.raw))
        case UserSaid() | ModelReplied() | ToolReturned() | HostSaid():
            fact = replace(fact, blocks=tuple(map(_plain, fact.blocks)))
        case EpochOpened():
            fact = replace(fact, tools=tuple(replace(tool, schema=_same(tool.schema)) for tool in fact.tools))
        case WindowOpened():
            fact = replace(
                fact, seed=tuple(replace(seed, blocks=tuple(map(_plain, seed.blocks))) for seed in fact.seed)
            )
        case _:
            pass
    return hashlib.blake2b(encode_fact(fact), digest_size=8).digest()


def _plain(block: Block) -> Block:
    match block:
        case ToolCall():
            return replace(block, arguments=_same(block.arguments))
        case Opaque():
            return replace(block, raw=_same(block.raw))
        case Thought():
            return replace(block, opaque=_same(block.opaque))
        case Text() | ToolResultRaw():
            return replace(block, text=_same(block.text))
        case _:
            return block


def _same(raw: str) -> str:
    """JSON in one form: its keys in order, nothing between. Other text as it is."""
    if not raw.startswith(("{", "[", '"')):
        return raw
    try:
        return json.dumps(json.loads(raw), sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        return raw


def _size(fact: Fact) -> int:
    """Characters held, roughly: what can be large."""
    match fact:
        case Observed():
            return len(fact.raw)
        case UserSaid() | ModelReplied() | ToolReturned() | HostSaid():
            return sum(
                len(block.arguments)
                if isinstance(block, ToolCall)
                else len(block.raw)
                if isinstance(block, Opaque)
                else 0
                if isinstance(block, Image)
                else len(block.text)
                for block in fact.blocks
            )
        case _:
            return 0
