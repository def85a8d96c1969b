"""Search: the index proposes, the event decides.

1. Pending events are indexed first, in batches, so a query sees everything appended before it.
2. The index's proposals are checked for the literal, best first.
3. If it found none at all, the events themselves are scanned, newest first: what stands inside a word, spans
   punctuation or is punctuation is found this way. The price is reading the scope once.
4. `Observed` is not indexed, only scanned, and last: it was never in a window, and recordings repeat in it what the
   results already say.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from transom.adapters.sqlite_log.index import SearchIndex
from transom.adapters.sqlite_log.rows import Fetch, Stretch, fact_of, payload_of
from transom.adapters.sqlite_log.schema import is_passing, mended
from transom.core.canon import canonical
from transom.core.event import Fact
from transom.core.searchable import excerpt, find, fold_case, phrase, prepare, text_of
from transom.errors import ArtifactMissing
from transom.ports import Blobs, Hit

__all__ = ["Search"]

_BATCH = 512
"""Events indexed in one transaction: beyond some hundred the time per event no longer falls (bench/store.py)."""

_SCAN = 64
"""Events fetched at once by a scan; at the log's inline limit that is 8 MiB."""

_REF = b'"artifact_id":"'

_SELECT = """SELECT e.id, s.id, e.session, e.seq, e.uuid, e.kind, e.digest, e.payload, e.artifact
FROM event e JOIN session s ON s.key = e.session WHERE """


class _Found(NamedTuple):
    event_id: int
    session_id: str
    key: int
    seq: int
    uuid: str
    kind: str
    digest: bytes
    payload: bytes | None
    artifact: str | None


T = TypeVar("T")


class Search:
    """Over the events `fetch` reads, with the artifacts in `blobs`."""

    def __init__(self, fetch: Fetch, blobs: Blobs, index: SearchIndex) -> None:
        self._fetch = fetch
        self._blobs = blobs
        self._index = index
        self._lock = threading.RLock()

    def close(self) -> None:
        with self._lock:
            self._index.close()

    def flush(self) -> None:
        """Bring the index up to the last committed event."""
        with self._lock:
            self._mending(self._catch_up)

    def hits(self, query: str, scope: Sequence[Stretch] | None, limit: int) -> list[Hit]:
        """Events of the scope (None: all) that hold the literal."""
        folded = fold_case(query)
        if not folded or limit < 1:
            return []
        with self._lock:
            found = self._mending(lambda: self._proposed(query, folded, scope, limit))
        if found:
            return found
        found = self._scanned("e.kind <> 'observed'", query, folded, scope, limit)
        return found or self._scanned("e.kind = 'observed'", query, folded, scope, limit)

    def _mending(self, work: Callable[[], T]) -> T:
        """Do it; if the index turns out damaged, make it anew from the log and do it again."""
        with mended(self._index.path):
            try:
                return work()
            except sqlite3.DatabaseError as error:
                if is_passing(error):
                    raise
                self._index.discard()
                return work()

    def _catch_up(self) -> None:
        last, digest = self._index.covered()
        if last and self._fetch("SELECT digest FROM event WHERE id = ?", (last,)) != [(digest,)]:
            self._index.discard()
            last = 0
        while page := self._select("e.id > ? ORDER BY e.id LIMIT ?", last, _BATCH):
            self._index.add(last, self._prepared(page), page[-1].event_id, page[-1].digest)
            last, _ = self._index.covered()

    def _prepared(self, page: list[_Found]) -> Iterator[tuple[int, int, str]]:
        for found in page:
            if found.kind != "observed":
                text = text_of(self._fact(found), self._body)
                if text:
                    yield found.event_id, found.key, prepare(text)

    def _proposed(self, query: str, folded: str, scope: Sequence[Stretch] | None, limit: int) -> list[Hit]:
        self._catch_up()
        hits: list[Hit] = []
        keys = None if scope is None else [stretch.key for stretch in scope]
        ends = None if scope is None else {stretch.key: stretch.last for stretch in scope}
        for event_id in self._index.proposals(phrase(query), keys):
            for found in self._select("e.id = ?", event_id):
                if ends is None or found.seq <= ends[found.key]:
                    hits.extend(self._checked(found, query, folded))
            if len(hits) >= limit:
                break
        return hits

    def _scanned(self, kinds: str, query: str, folded: str, scope: Sequence[Stretch] | None, limit: int) -> list[Hit]:
        """Newest first. A payload that cannot hold the literal is left without decoding it."""
        needle = fold_case(canonical(query)[1:-1].decode())
        where, values = _within(scope)
        hits: list[Hit] = []
        before = 2**63 - 1
        while True:
            page = self._select(
                f"{kinds} AND e.id < ? AND ({where}) ORDER BY e.id DESC LIMIT ?", before, *values, _SCAN
            )
            for found in page:
                payload = self._payload(found)
                if _REF in payload or find(payload.decode(), needle) >= 0:
                    hits.extend(self._checked(found, query, folded))
            if len(page) < _SCAN or len(hits) >= limit:
                return hits[:limit]
            before = page[-1].event_id

    def _checked(self, found: _Found, query: str, folded: str) -> Iterator[Hit]:
        text = text_of(self._fact(found), self._body)
        offset = find(text, folded)
        if offset >= 0:
            yield Hit(
                session_id=found.session_id,
                seq=found.seq,
                uuid=found.uuid,
                kind=found.kind,
                offset=offset,
                text=excerpt(text, offset, len(query)),
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


def _within(scope: Sequence[Stretch] | None) -> tuple[str, tuple[int, ...]]:
    if scope is None:
        return "TRUE", ()
    values = tuple(value for stretch in scope for value in (stretch.key, stretch.last))
    return " OR ".join(["(e.session = ? AND e.seq <= ?)"] * len(scope)), values
