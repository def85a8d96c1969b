"""Stored rows: how a session's own events and those it inherits are walked, and checked while they are read.

A row is trusted only as far as the chain carries it: each is linked to the one before as it is read, so a changed
byte is an error that names its place and never a different event (L12). Rows are fetched in pages that follow the
key, so no statement stays open while others append.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from transom.adapters.sqlite_log.schema import SEQ_MASK, event_id
from transom.core.canon import GENESIS, envelope, link
from transom.core.event import Event, Fact, decode_fact
from transom.errors import ArtifactMissing, LogDamaged
from transom.ports import Blobs

__all__ = ["Fetch", "Row", "Stretch", "checked", "decoded", "digest_at", "fact_of", "lineage", "payload_of", "stored"]

_PAGE = 128
"""Rows fetched at once. With the inline limit of `log` a page is at most 16 MiB; more rows are not faster."""

Fetch: TypeAlias = Callable[[str, tuple[int | str | None, ...]], list[Any]]
"""Runs one SELECT and returns all its rows."""

Row: TypeAlias = tuple[int, str, int, str, bytes, bytes]
"""seq, uuid, at, kind, digest, payload (whole, wherever it was stored)."""


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


def stored(fetch: Fetch, blobs: Blobs, stretch: Stretch, after: int, until: int) -> Iterator[Row]:
    """Rows of a stretch with `after < seq <= until`, as they stand. Raises `LogDamaged` for an absent payload."""
    after, until = max(after, stretch.base), min(until, stretch.last)
    while after < until:
        page = fetch(
            "SELECT id & 0xFFFFFFFFFF, uuid, at, kind, digest, payload, artifact FROM event "
            "WHERE id > ? AND id <= ? ORDER BY id LIMIT ?",
            (event_id(stretch.key, after), event_id(stretch.key, until), _PAGE),
        )
        for seq, uuid, at, kind, digest, payload, artifact in page:
            try:
                whole = payload_of(blobs, payload, artifact)
            except ArtifactMissing as error:
                raise LogDamaged(f"session {stretch.session_id}, event {seq}: its payload is gone: {error}") from error
            yield seq, uuid, at, kind, digest, whole
        if len(page) < _PAGE:
            return
        after = page[-1][0]


def checked(stretch: Stretch, rows: Iterator[Row], after: int, previous: bytes) -> Iterator[Row]:
    """The rows, each found to be dense, linked to the one before, and of the kind its column says."""
    name = stretch.session_id
    for row in rows:
        seq, uuid, at, kind, digest, payload = row
        if seq != after + 1:
            raise LogDamaged(f"session {name}, event {after + 1}: is missing; the next stored one is {seq}")
        if not (type(uuid) is type(kind) is str and type(at) is int and type(payload) is bytes):
            raise LogDamaged(f"session {name}, event {seq}: its row holds values of the wrong type")
        previous = link(previous, envelope(name, seq, uuid, at, payload))
        if previous != digest:
            raise LogDamaged(f"session {name}, event {seq}: its digest does not follow from event {after}")
        # A tag inside text would stand there with escaped quotes, so this finds the fact's own.
        if b'"fact":"%b"' % kind.encode() not in payload:
            raise LogDamaged(f"session {name}, event {seq}: its kind column says {kind}, its payload does not")
        after = seq
        yield row


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
        rows = stored(fetch, blobs, stretch, after, until)
        for seq, uuid, at, _, digest, payload in checked(stretch, rows, after, previous):
            fact = fact_of(stretch.session_id, seq, payload)
            yield Event(session_id=stretch.session_id, seq=seq, uuid=uuid, at=at, fact=fact, digest=digest)
            after, previous = seq, digest
