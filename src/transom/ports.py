"""What the inside asks of the outside: small protocols, owned here, implemented in `adapters`.

Each port has a conformance kit in `transom.testing.conformance`; an adapter is one that passes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from transom.core.block import Measure
from transom.core.event import Draft, Event, Link

__all__ = ["Blobs", "Counter", "Hit", "Log", "Measure", "SessionRow", "Snapshots", "Verified"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """One line of a session list; all of it is derived from the session's own events."""

    session_id: str
    kind: str
    agent: str
    model: str
    title: str
    workspace: str
    parent_id: str
    events: int
    """Own events; a fork's inherited ones are not counted."""
    opened_at: int
    """ms since the epoch of the first event."""
    last_at: int
    head: Link


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A place where a query was found. `text` is an excerpt around the literal, `offset` the character at which the
    literal starts in the event's searchable text, `kind` the fact's tag."""

    session_id: str
    seq: int
    uuid: str
    kind: str
    offset: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The outcome of re-deriving a session's chain. `problem` is empty, or a sentence naming the first bad place."""

    session_id: str
    events: int
    problem: str = ""


class Log(Protocol):
    """The append-only log. Guarantees: an append is all or nothing and durable when it returns; `seq` is dense; a
    lost race raises `SequenceConflict` and changes nothing; what `append` returned is found by the next `search`;
    nothing is ever changed or removed."""

    def append(self, session_id: str, after: int, drafts: Sequence[Draft]) -> tuple[Event, ...]:
        """Append `drafts` behind event `after` (the caller's head; 0 = the session is new, or, for a fork, the parent's
        seq named in its `SessionOpened`). Raises `SequenceConflict` if the head is elsewhere, `UsageError` if the first
        event of a session is not `SessionOpened` or names a parent that does not exist."""
        ...

    def read(self, session_id: str, after: int = 0, until: int | None = None) -> Iterator[Event]:
        """Events with `after < seq <= until` in order; a fork's inherited events come from its ancestors. Raises
        `UsageError` for an unknown session, `LogDamaged` where a row cannot be decoded."""
        ...

    def sessions(self, session_id: str | None = None) -> list[SessionRow]:
        """All sessions, newest `last_at` first; or the one named (empty if unknown)."""
        ...

    def search(self, query: str, session_id: str | None = None, limit: int = 20) -> list[Hit]:
        """Events whose searchable text contains `query` literally (case-insensitive), best first. Covers everything
        appended before the call. With `session_id`, that session and its ancestors up to the fork."""
        ...

    def verify(self, session_id: str | None = None) -> list[Verified]:
        """Re-derive the chain of one or all sessions, and everything derived that is stored beside it."""
        ...


class Blobs(Protocol):
    """Content-addressed bodies. Guarantees: a body is whole or absent; putting twice is a no-op; what is read is
    checked against its name."""

    def put(self, data: bytes) -> str:
        """Store and return the `artifact_id` (sha256, hex)."""
        ...

    def get(self, artifact_id: str, start: int = 0, end: int | None = None) -> bytes:
        """Bytes `start:end`. Raises `ArtifactMissing` if absent or if the whole does not match its digest."""
        ...

    def has(self, artifact_id: str) -> bool: ...

    def ids(self) -> Iterator[str]:
        """Every stored id, in no order."""
        ...


class Snapshots(Protocol):
    """Saved states of sessions: a cache that may be lost at any time."""

    def save(self, session_id: str, seq: int, digest: bytes, state: bytes) -> None:
        """Keep the encoded state behind event `seq`, whose chain digest is `digest`."""
        ...

    def newest(self, session_id: str) -> list[tuple[int, bytes, bytes]]:
        """(seq, digest, state) of what is whole and of this kernel, newest first."""
        ...


class Counter(Protocol):
    """Token counts of text, offline."""

    @property
    def name(self) -> str:
        """Written to `SessionOpened.counter`."""
        ...

    def measure(self, text: str) -> Measure:
        """Count and classify one text. Never raises on any `str`."""
        ...
