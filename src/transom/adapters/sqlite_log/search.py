"""Search: the index proposes, the event decides.

1. Pending events are indexed first, in batches, so a query sees everything appended before it.
2. The index's proposals are checked for the literal, best first (newest first where all of them are shown).
3. If it found none at all, the events themselves are scanned, newest first: what stands inside a word, spans
   punctuation or is punctuation is found this way. The price is reading the scope once.
4. `Observed` is not indexed, only scanned, and last: it was never in a window, and recordings repeat in it what the
   results already say. In ten recorded Claude Code and Codex sessions it is half of 23 MB; the index over the other
   half takes 4.4 MB, and a search that finds nothing at all reads everything in 0.17 s.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

from transom.adapters.sqlite_log.index import Mark, SearchIndex
from transom.adapters.sqlite_log.rows import Fetch, Stretch, fact_of, payload_of
from transom.adapters.sqlite_log.schema import SEQ_MASK, event_id, is_passing, mended, refusal
from transom.core.canon import canonical
from transom.core.event import Fact
from transom.core.searchable import excerpt, find, fold_case, phrases, prepare, text_of
from transom.errors import ArtifactMissing, Unwritable
from transom.ports import Blobs, Hit

__all__ = ["Search"]

_BATCH = 2**20
"""Characters indexed in one transaction, a page more or less: what FTS5 gathers in memory before it writes (its
`hashsize`). Larger batches are no faster and leave more free pages behind (bench/store.py)."""

_PAGE = 64
"""Events fetched at once; at the log's inline limit that is 8 MiB."""

_REF = b'"artifact_id":"'

_SELECT = """SELECT e.id, s.id, e.id & 0xFFFFFFFFFF, e.uuid, e.kind, e.digest, e.payload, e.artifact
FROM event e JOIN session s ON s.key = e.id >> 40 WHERE """
_HEADS = """SELECT s.key, (SELECT max(id) FROM event WHERE id BETWEEN s.key << 40 AND s.key << 40 | 0xFFFFFFFFFF)
FROM session s ORDER BY s.key"""
_ALL = [(0, 2**63 - 1)]


class _Found(NamedTuple):
    event_id: int
    session_id: str
    seq: int
    uuid: str
    kind: str
    digest: bytes
    payload: bytes | None
    artifact: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    query: str
    folded: str
    limit: int
    ranges: Sequence[tuple[int, int]]
    """First and last event id, oldest first."""


T = TypeVar("T")


class Search:
    """Over the events `fetch` reads, with the artifacts in `blobs`."""

    def __init__(self, fetch: Fetch, blobs: Blobs, index: SearchIndex) -> None:
        self._fetch = fetch
        self._blobs = blobs
        self._index = index
        self._lock = threading.RLock()
        self._version: list[object] = []

    def close(self) -> None:
        with self._lock:
            self._index.close()

    def flush(self) -> None:
        """Bring the index up to the last committed event."""
        with self._lock:
            self._mending(self._catch_up)

    def problem(self) -> str:
        """What is wrong with the index, if anything is."""
        with self._lock:
            return self._index.problem()

    def hits(self, query: str, scope: Sequence[Stretch] | None, limit: int) -> list[Hit]:
        """Events of the scope (None: all) that hold the literal."""
        folded = fold_case(query)
        if not folded or limit < 1:
            return []
        wanted = _Wanted(query=query, folded=folded, limit=limit, ranges=_ALL if scope is None else _ranges(scope))
        with self._lock:
            if found := self._by_index(wanted):
                return found
        return self._scanned("e.kind <> 'observed'", wanted) or self._scanned("e.kind = 'observed'", wanted)

    def _by_index(self, wanted: _Wanted) -> list[Hit]:
        """Nothing where the disk has no room for the index, or another process holds it: the events are there."""
        try:
            return self._mending(partial(self._indexed, wanted))
        except Unwritable:
            return []

    def _mending(self, work: Callable[[], T]) -> T:
        """Do it; if the index turns out damaged, make it anew from the log and do it again."""
        try:
            return work()
        except sqlite3.DatabaseError as error:
            if is_passing(error):
                raise refusal(self._index.path, error) from error
        self._index.discard()
        self._version = []
        with mended(self._index.path):
            return work()

    def _catch_up(self) -> None:
        # SQLite counts other connections' commits; the writer's are among them.
        version = self._fetch("PRAGMA data_version", ())
        if version == self._version:
            return
        while pending := self._pending():
            self._add(pending)
        self._version = version

    def _pending(self) -> list[tuple[int, Mark | None]]:
        """Sessions with events beyond the index, and where it stands in them."""
        covered = self._index.covered()
        pending: list[tuple[int, Mark | None]] = []
        for key, head in self._fetch(_HEADS, ()):
            mark = covered.get(key)
            if head is not None and head > event_id(key, mark[0] if mark else 0):
                found = self._fetch("SELECT digest FROM event WHERE id = ?", (event_id(key, mark[0]),)) if mark else []
                if mark and found != [(mark[1],)]:
                    raise sqlite3.DatabaseError(f"{self._index.path}: is the index of another log")
                pending.append((key, mark))
        return pending

    def _add(self, pending: Sequence[tuple[int, Mark | None]]) -> None:
        """Index the next batch of the pending sessions in one transaction."""
        texts: list[tuple[int, str]] = []
        marks: dict[int, Mark] = {}
        size = 0
        for key, mark in pending:
            after, last = event_id(key, mark[0] if mark else 0), event_id(key, SEQ_MASK)
            while size < _BATCH and (page := self._page(after, last)):
                prepared = list(self._prepared(page))
                texts += prepared
                size += sum(len(text) for _, text in prepared) + len(page)
                after = page[-1].event_id
                marks[key] = (page[-1].seq, page[-1].digest)
        self._index.add(texts, {key: mark for key, mark in pending if key in marks}, marks)

    def _page(self, after: int, last: int) -> list[_Found]:
        return self._select("e.id > ? AND e.id <= ? ORDER BY e.id LIMIT ?", after, last, _PAGE)

    def _prepared(self, page: list[_Found]) -> Iterator[tuple[int, str]]:
        for found in page:
            if found.kind != "observed":
                text = text_of(self._fact(found), self._body)
                if text:
                    yield found.event_id, prepare(text)

    def _indexed(self, wanted: _Wanted) -> list[Hit]:
        self._catch_up()
        for phrase in phrases(wanted.query):
            if found := self._proposed(phrase, wanted):
                return found
        return []

    def _proposed(self, phrase: str, wanted: _Wanted) -> list[Hit]:
        hits: list[Hit] = []
        for proposal in self._index.proposals(phrase, wanted.ranges, wanted.limit):
            for found in self._select("e.id = ?", proposal):
                hits.extend(self._checked(found, wanted))
            if len(hits) >= wanted.limit:
                break
        return hits

    def _scanned(self, kinds: str, wanted: _Wanted) -> list[Hit]:
        """Newest first. A payload that cannot hold the literal is left without decoding it."""
        needle = fold_case(canonical(wanted.query)[1:-1].decode())
        hits: list[Hit] = []
        for first, last in wanted.ranges[::-1]:
            before = last
            while len(hits) < wanted.limit:
                page = self._select(
                    f"{kinds} AND e.id BETWEEN ? AND ? ORDER BY e.id DESC LIMIT ?", first, before, _PAGE
                )
                for found in page:
                    payload = self._payload(found)
                    if _REF in payload or find(payload.decode(), needle) >= 0:
                        hits.extend(self._checked(found, wanted))
                if len(page) < _PAGE:
                    break
                before = page[-1].event_id - 1
        return hits[: wanted.limit]

    def _checked(self, found: _Found, wanted: _Wanted) -> Iterator[Hit]:
        text = text_of(self._fact(found), self._body)
        offset = find(text, wanted.folded)
        if offset >= 0:
            yield Hit(
                session_id=found.session_id,
                seq=found.seq,
                uuid=found.uuid,
                kind=found.kind,
                offset=offset,
                text=excerpt(text, offset, len(wanted.query)),
            )

    def _select(self, where: str, *values: int) -> list[_Found]:
        return [_Found(*row) for row in self._fetch(_SELECT + where, values)]

    def _payload(self, found: _Found) -> bytes:
        return payload_of(self._blobs, found.payload, found.artifact)

    def _fact(self, found: _Found) -> Fact:
        return fact_of(found.session_id, found.seq, self._payload(found))

    def _body(self, artifact_id: str) -> str:
        """An offloaded result's text. An absent one has nothing to find; that it is absent is for `verify` to say."""
        try:
            return self._blobs.get(artifact_id).decode("utf-8", "replace")
        except ArtifactMissing:
            return ""


def _ranges(scope: Sequence[Stretch]) -> list[tuple[int, int]]:
    return [(event_id(stretch.key, stretch.base + 1), event_id(stretch.key, stretch.last)) for stretch in scope]
