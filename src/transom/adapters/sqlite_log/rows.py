"""Stored rows: how a session's own events and those it inherits are walked, and checked while they are read.

A row is trusted only as far as the chain carries it: each is linked to the one before as it is read, so a changed
byte is an error that names its place and never a different event (L12). Rows are fetched in pages that follow the
key, so no statement stays open while others append.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

from transom.adapters.sqlite_log.schema import SEQ_MASK, event_id
from transom.core.canon import GENESIS, envelope, link
from transom.core.event import Event, Fact, decode_fact
from transom.errors import ArtifactMissing, LogDamaged
from transom.ports import Blobs

__all__ = ["Fetch", "Row", "Stretch", "decoded", "digest_at", "fact_of", "lineage", "payload_of", "walked"]

_PAGE = 128
"""Rows fetched at once. With the inline limit of `log` a page is at most 16 MiB; more rows are not faster."""

Fetch: TypeAlias = Callable[[str, tuple[int | str | None, ...]], list[Any]]
"""Runs one SELECT and returns all its rows."""

Row: TypeAlias = tuple[int, str, int, bytes, bytes]
"""seq, uuid, at, digest, payload (whole, wherever it was stored)."""

_ROWS = """SELECT id & 0xFFFFFFFFFF, uuid, at, kind, digest, payload, artifact FROM event
WHERE id > ? AND id <= ? ORDER BY id LIMIT ?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """The events of one session that count for a lineage: those with `base < seq <= last`."""

    key: int
    session_id: str
    base: int
    last: int


def lineage(fetch: Fetch, session_id: str) -> list[Stretch]:
    """The session and the ancestors it continues, oldest first; empty if unknown."""
    found = fetch("SELECT key, id, parent, base FROM session WHERE id = ?", (session_id,))
    stretches: list[Stretch] = []
    last = SEQ_MASK
    while found:
        key, name, parent, base = found[0]
        if not (isinstance(base, int) and isinstance(name, str)):
            raise LogDamaged(f"session {session_id}: the row of it or of an ancestor holds values of the wrong type")
        stretches.append(Stretch(key=key, session_id=name, base=base, last=last))
        last = min(last, base)
        # A parent is always older; a damaged row must not send us round in a circle.
        found = fetch("SELECT key, id, parent, base FROM session WHERE key = ? AND key < ?", (parent, key))
    return stretches[::-1]


def digest_at(fetch: Fetch, stretches: Sequence[Stretch], seq: int) -> bytes | None:
    """The stored digest after event `seq` of a lineage; None if it has no such event."""
    for stretch in stretches:
        if stretch.base < seq <= stretch.last:
            found = fetch("SELECT digest FROM event WHERE id = ?", (event_id(stretch.key, seq),))
            return bytes(found[0][0]) if found else None
    return None


def payload_of(blobs: Blobs, payload: bytes | None, artifact: str | None) -> bytes:
    """The payload, from the row or from the blob store."""
    if payload is not None:
        return payload
    return blobs.get(str(artifact))


def walked(
    fetch: Fetch, blobs: Blobs, stretch: Stretch, after: int, previous: bytes, *, until: int = SEQ_MASK
) -> Iterator[Row]:
    """Rows of a stretch with `after < seq <= until`, each found to be dense, linked to the one before (`previous` is
    the digest after event `after`) and of the kind its column says."""
    name, stop = stretch.session_id, min(until, stretch.last)
    first, rows = event_id(stretch.key, max(after, stretch.base)), _PAGE
    while True:
        try:
            page = fetch(_ROWS, (first, event_id(stretch.key, stop), rows))
        except LogDamaged as error:
            if rows == 1:
                raise LogDamaged(f"session {name}, event {after + 1}: cannot be read: {error}") from error
            rows = 1  # what stands before the damage can be read
            continue
        for seq, uuid, at, kind, digest, inline, artifact in page:
            if seq != after + 1:
                raise LogDamaged(f"session {name}, event {after + 1}: is missing; the next stored one is {seq}")
            payload = inline if inline is not None else _absent(blobs, name, seq, artifact)
            if not (type(uuid) is type(kind) is str and type(at) is int and type(payload) is bytes):
                raise LogDamaged(f"session {name}, event {seq}: its row holds values of the wrong type")
            previous = link(previous, envelope(name, seq, uuid, at, payload))
            if previous != digest:
                raise LogDamaged(f"session {name}, event {seq}: its digest does not follow from event {after}")
            if _tag(kind) not in payload:
                raise LogDamaged(f"session {name}, event {seq}: its kind column says {kind}, its payload does not")
            after = seq
            yield seq, uuid, at, digest, payload
        if len(page) < rows:
            return
        first = event_id(stretch.key, after)


def _absent(blobs: Blobs, name: str, seq: int, artifact: str | None) -> bytes:
    try:
        return payload_of(blobs, None, artifact)
    except ArtifactMissing as error:
        raise LogDamaged(f"session {name}, event {seq}: its payload is gone: {error}") from error


@lru_cache(64)
def _tag(kind: str) -> bytes:
    """How a fact of this kind names itself in its payload. In text the quotes would be escaped, so it is found nowhere
    else."""
    return b'"fact":"%b"' % kind.encode()


def fact_of(session_id: str, seq: int, payload: bytes) -> Fact:
    """The fact of a payload. Raises `LogDamaged` with the place and what the decoder says of the byte."""
    try:
        return decode_fact(payload)
    except msgspec.MsgspecError as error:
        raise LogDamaged(f"session {session_id}, event {seq}: cannot be decoded: {error}") from error


def decoded(fetch: Fetch, blobs: Blobs, stretches: Sequence[Stretch], after: int, until: int) -> Iterator[Event]:
    """Checked events of a lineage with `after < seq <= until`."""
    previous = GENESIS if after <= 0 else digest_at(fetch, stretches, after)
    if previous is None:
        return
    after = max(after, 0)
    for stretch in stretches:
        if after < min(until, stretch.last):
            for seq, uuid, at, digest, payload in walked(fetch, blobs, stretch, after, previous, until=until):
                fact = fact_of(stretch.session_id, seq, payload)
                yield Event(session_id=stretch.session_id, seq=seq, uuid=uuid, at=at, fact=fact, digest=digest)
                after, previous = seq, digest
