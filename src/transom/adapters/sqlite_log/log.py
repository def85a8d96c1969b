"""The `Log` port over one SQLite file.

An append numbers and links its drafts in memory, then writes them all in one transaction: one commit per call. A row's
key is made of its session and seq, so it decides a race between processes; the loser learns both heads. NORMAL
survives the death of the process at any instruction; FULL also the death of the machine, at one fsync a commit.

Reads have their own connection: they see only what is committed and never wait for a writer. What was appended is put
into the search index in batches, before a query and at `close`; the index is another file and may be deleted.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, TypeAlias

from transom.adapters.sqlite_log import rows, verify
from transom.adapters.sqlite_log.index import SearchIndex
from transom.adapters.sqlite_log.schema import SEQ_MASK, connect, event_id, mended, open_log, refusal, writing
from transom.adapters.sqlite_log.search import Search
from transom.core.chain import Placed, conflict, kind_of, opening, placing, start_of
from transom.core.event import Draft, Event, Link, SessionOpened
from transom.errors import LogDamaged, UsageError
from transom.ports import Blobs, Hit, SessionRow, Verified

__all__ = ["INLINE_LIMIT", "SqliteLog"]

INLINE_LIMIT = 128 * 1024
"""Bytes of a payload kept in its row; a larger one is a blob. SQLite's own measurements (its page "Internal Versus
External BLOBs") have it read bodies up to about 100 KB faster than the file system does; above, a row only makes the
WAL and every copy bigger."""


_SESSIONS = """
SELECT s.id, s.base, first.at, first.payload, first.artifact, last.id & 0xFFFFFFFFFF, last.at, last.digest
FROM session s
JOIN event first ON first.id = (s.key << 40) + s.base + 1
JOIN event last ON last.id = (SELECT max(id) FROM event WHERE id BETWEEN s.key << 40 AND s.key << 40 | 0xFFFFFFFFFF)
WHERE ?1 IS NULL OR s.id = ?1
ORDER BY last.at DESC, last.id DESC"""
_HEAD = """
SELECT s.key, e.id & 0xFFFFFFFFFF, e.digest FROM session s
JOIN event e ON e.id = (SELECT max(id) FROM event WHERE id BETWEEN s.key << 40 AND s.key << 40 | 0xFFFFFFFFFF)
WHERE s.id = ?"""


class _SessionFound(NamedTuple):
    session_id: str
    base: int
    opened_at: int
    payload: bytes | None
    artifact: str | None
    seq: int
    last_at: int
    digest: bytes


class _Head(NamedTuple):
    key: int
    seq: int
    digest: bytes


_Kept: TypeAlias = tuple[int, str, int, str, bytes, bytes | None, str | None]
"""seq, uuid, at, kind, digest, payload, artifact."""

_NAMED = "SELECT id & 0xFFFFFFFFFF FROM event WHERE id > ? AND id <= ? AND uuid = ? ORDER BY id DESC LIMIT 1"
_INSERT = "INSERT INTO event (id, uuid, at, kind, digest, payload, artifact) VALUES (?, ?, ?, ?, ?, ?, ?)"


class SqliteLog:
    """The log in the file `path`, large payloads in `blobs`. May be shared by threads. `is_reader`: who only reads is
    served on a full disk as well."""

    def __init__(
        self,
        path: Path,
        blobs: Blobs,
        *,
        synchronous: Literal["NORMAL", "FULL"] = "NORMAL",
        is_reader: bool = False,
    ) -> None:
        self._path = path
        self._blobs = blobs
        self._heads: dict[str, _Head] = {}
        self._has_appended = False
        self._write_lock = threading.Lock()
        self._read_lock = threading.Lock()
        self._db = open_log(path, synchronous, is_reader=is_reader)
        with mended(path):
            self._reader = connect(path, synchronous, is_reader=is_reader)
            self._reader.execute("PRAGMA query_only = ON")
        self._search = Search(self._fetch, blobs, SearchIndex(path.with_name(f"{path.stem}.search{path.suffix}")))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Index what was appended here, fold the WAL into the file, and let go of it."""
        try:
            if self._has_appended:
                self._search.flush()
                self._has_appended = False
        finally:
            self._search.close()
            self._reader.close()
            self._db.close()

    def append(self, session_id: str, after: int, drafts: Sequence[Draft]) -> tuple[Event, ...]:
        if not drafts:
            return ()
        with self._write_lock:
            head = self._head(session_id, after)
            opened = opening(session_id, after, drafts[0]) if head is None else None
            if opened is not None:
                parent_key, digest = self._parent(session_id, opened)
                head = _Head(parent_key, after, digest)
            assert head is not None
            if head.seq != after:
                raise conflict(session_id, after, head.seq)
            events: list[Event] = []
            placed = placing(session_id, head.seq, head.digest, drafts, is_new=opened is not None)
            key = self._write(session_id, head, opened, self._each_kept(placed, events), is_one=len(drafts) == 1)
            self._heads[session_id] = _Head(key, events[-1].seq, events[-1].digest)
            self._has_appended = True
        return tuple(events)

    def read(self, session_id: str, after: int = 0, until: int | None = None) -> Iterator[Event]:
        stretches = self._known(session_id)
        return rows.decoded(self._fetch, self._blobs, stretches, after, SEQ_MASK if until is None else until)

    def sessions(self, session_id: str | None = None) -> list[SessionRow]:
        found = self._fetch(_SESSIONS, (session_id,))
        return [self._row(_SessionFound(*row)) for row in found]

    def search(self, query: str, session_id: str | None = None, limit: int = 20) -> list[Hit]:
        return self._search.hits(query, None if session_id is None else self._known(session_id), limit)

    def find(self, session_id: str, uuid: str) -> Event | None:
        for stretch in reversed(self._known(session_id)):
            span = (event_id(stretch.key, stretch.base), event_id(stretch.key, stretch.last), uuid)
            found = self._fetch(_NAMED, span)
            if found:
                return next(self.read(session_id, found[0][0] - 1, found[0][0]))
        return None

    def verify(self, session_id: str | None = None) -> list[Verified]:
        """Re-derive every chain, hash every blob referred to, and check the structure of the log's file and of the
        search index. A problem of a file as a whole stands first, under the empty session id.

        Not detectable from the file alone: that whole events are missing from a session's end, or whole sessions, if
        the file was cut back consistently (an older copy; damage in the WAL of a process that died, which SQLite reads
        as commits that never were). Whoever holds a later `Link` can tell: `read` up to it and compare the digest."""
        names = None if session_id is None else [stretch.session_id for stretch in self._known(session_id)[::-1]]
        problems = [
            problem for problem in (verify.file_problem(self._fetch, self._path), self._search.problem()) if problem
        ]
        of_files = [Verified(session_id="", events=0, problem=problem) for problem in problems]
        return of_files + verify.verified(self._fetch, self._blobs, names)

    def _fetch(self, statement: str, values: tuple[int | str | None, ...]) -> list[Any]:
        with self._read_lock:
            try:
                return self._reader.execute(statement, values).fetchall()
            except sqlite3.Error as error:
                raise refusal(self._path, error) from error

    def _known(self, session_id: str) -> list[rows.Stretch]:
        stretches = rows.lineage(self._fetch, session_id)
        if not stretches:
            raise UsageError(f"session {session_id}: unknown to {self._path}; `transom sessions` lists what it holds")
        return stretches

    def _head(self, session_id: str, after: int) -> _Head | None:
        """The head as far as `after` needs it: one that was seen there is still right, since events never change, and
        whether it is still the last is for the unique key to say."""
        head = self._heads.get(session_id)
        return head if head is not None and head.seq == after else self._stored_head(session_id)

    def _stored_head(self, session_id: str) -> _Head | None:
        found = self._fetch(_HEAD, (session_id,))
        return _Head(found[0][0], found[0][1], bytes(found[0][2])) if found else None

    def _parent(self, session_id: str, opened: SessionOpened) -> tuple[int, bytes]:
        """The key of the session a new one continues (0 for none), and the digest its first event follows."""
        if opened.parent is None:
            return 0, start_of(session_id, opened, None)
        stretches = rows.lineage(self._fetch, opened.parent.session_id)
        digest = start_of(session_id, opened, rows.digest_at(self._fetch, stretches, opened.parent.seq))
        return stretches[-1].key if opened.kind == "fork" else 0, digest

    def _each_kept(self, placed: Iterable[Placed], events: list[Event]) -> Iterator[_Kept]:
        """The rows, made one by one as they are written; the events are left in `events`."""
        for event, payload in placed:
            events.append(event)
            yield self._kept(event, payload)

    def _kept(self, event: Event, payload: bytes) -> _Kept:
        kind = kind_of(event.fact)
        if len(payload) <= INLINE_LIMIT:
            return event.seq, event.uuid, event.at, kind, event.digest, payload, None
        return event.seq, event.uuid, event.at, kind, event.digest, None, self._blobs.put(payload)

    def _write(
        self, session_id: str, head: _Head, opened: SessionOpened | None, kept: Iterator[_Kept], *, is_one: bool
    ) -> int:
        """One transaction; returns the session's key."""
        key = head.key
        try:
            if opened is None and is_one:
                # A lone statement is its own transaction, and takes the write lock as BEGIN IMMEDIATE does.
                lone = next(kept)
                self._db.execute(_INSERT, (event_id(key, lone[0]), *lone[1:]))
                return key
            with writing(self._db):
                if opened is not None:
                    row = (session_id, head.key or None, head.seq)
                    key = (
                        self._db.execute("INSERT INTO session (id, parent, base) VALUES (?, ?, ?)", row).lastrowid or 0
                    )
                self._db.executemany(_INSERT, ((event_id(key, seq), *row) for seq, *row in kept))
        except sqlite3.IntegrityError as error:
            stored = self._stored_head(session_id)
            raise conflict(session_id, head.seq, stored.seq if stored else 0) from error
        except sqlite3.Error as error:
            raise refusal(self._path, error) from error
        return key

    def _row(self, found: _SessionFound) -> SessionRow:
        session_id = found.session_id
        payload = rows.payload_of(self._blobs, found.payload, found.artifact)
        fact = rows.fact_of(session_id, found.base + 1, payload)
        if not isinstance(fact, SessionOpened):
            raise LogDamaged(f"session {session_id}: its first event is {kind_of(fact)}, not session_opened")
        return SessionRow(
            session_id=session_id,
            kind=fact.kind,
            agent=fact.agent,
            model=fact.model,
            title=fact.title,
            workspace=fact.workspace,
            parent_id=fact.parent.session_id if fact.parent else "",
            events=found.seq - found.base,
            opened_at=found.opened_at,
            last_at=found.last_at,
            head=Link(session_id=session_id, seq=found.seq, digest=found.digest.hex()),
        )
