"""What the inside asks of the outside: small protocols, owned here, implemented in `adapters`.

Each port has a conformance kit in `transom.testing.conformance`; an adapter is one that passes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from transom.core.block import Block, Measure, ToolCall
from transom.core.epochs import Sample
from transom.core.event import Draft, Effect, Event, Link, Tool, Usage
from transom.core.wire import Dialect, Wire

__all__ = [
    "Blobs",
    "Counter",
    "Delta",
    "Hit",
    "Log",
    "Measure",
    "Outcome",
    "Outgoing",
    "Provider",
    "Reply",
    "Sample",
    "Sandbox",
    "SessionRow",
    "Snapshots",
    "Sources",
    "Tools",
    "Verified",
    "Workspace",
]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A request as a provider sends it. `wire` holds the bytes of head, body and tail in the provider's own dialect."""

    wire: Wire
    model: str
    max_output_tokens: int
    forced_tool: str = ""
    """The only tool the model may choose; empty = its own choice."""
    withheld: frozenset[str] = frozenset()
    """Tools taken out of the catalogue: the last and dearest way to narrow the surface."""
    kept: int | None = None
    """Messages of the body that are the same bytes as in the request before; None: all of them. Says where cache marks
    stand (`core.breakpoints`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """A piece of an answer as it streams, for a person's eye only. `notice` is no part of it: what the adapter does
    about passing trouble, and when."""

    kind: Literal["text", "thought", "call", "notice"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A whole answer. Blocks carry no counts yet; opaque items are the provider's own bytes."""

    blocks: tuple[Block, ...]
    stop_reason: str
    usage: Usage | None
    model: str
    response_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a tool gave back. `blocks` are what the model sees, before admission."""

    blocks: tuple[Block, ...]
    is_error: bool = False
    exit_code: int | None = None


class Provider(Protocol):
    """A model behind an API. One request at a time; retries of what is passing are its own affair."""

    @property
    def dialect(self) -> Dialect:
        """How requests to it look; a session renders with this."""
        ...

    def send(self, request: Outgoing) -> Iterator[Delta | Reply]:
        """The answer as it comes; the last item is the one `Reply`. Closing the iterator cancels the request.

        Raises `Overflow` (the request is larger than the model's window), `Unavailable` (passing trouble that
        outlasted the retries), `ProviderError` (anything else; the message says what to do).
        """
        ...


class Tools(Protocol):
    """The tools of an agent that touch the world. The host's own (new_context, recall, …) are not among them."""

    def catalogue(self) -> tuple[Tool, ...]:
        """In a fixed order: its bytes are part of the head."""
        ...

    def effect(self, call: ToolCall) -> Effect:
        """What running `call` can change, as declared; decides what a resume may run again."""
        ...

    def run(self, call: ToolCall) -> Outcome:
        """Run one call. What goes wrong is an `Outcome` with `is_error`, said to the model; nothing raises but
        `KeyboardInterrupt`."""
        ...


class Sources(Protocol):
    """What stands around an agent and may change: sections of its head. Asked at the boundary only, never pushed."""

    def sample(self) -> tuple[Sample, ...]:
        """What each source says now: always the same keys in the same order, none twice. Never raises for what cannot
        be read: that is an unavailable sample."""
        ...


class Workspace(Protocol):
    """The files an agent works on. Every path is checked: relative, normalised, inside, symlinks resolved."""

    @property
    def root(self) -> Path: ...

    @property
    def hidden(self) -> tuple[Path, ...]:
        """Real paths, inside or not, of which nothing is shown to a model, nor of what lies below them."""
        ...

    def resolve(self, path: str) -> Path:
        """The real path. Raises `PathEscaped` with the reason."""
        ...

    def text(self, path: str) -> str | None:
        """The text of a file, None if there is none; undecodable bytes are replaced. Raises `PathEscaped`."""
        ...


class Sandbox(Protocol):
    """What stands around a command that a model wrote. It runs the command or it does not; it never runs it with less
    around it than it says."""

    @property
    def contained(self) -> str:
        """What is contained and what is not, in a few sentences for a person."""
        ...

    @property
    def most_processes(self) -> int:
        """Processes and threads of one command; above it, the command is killed."""
        ...

    @property
    def has_keeper(self) -> bool:
        """Whether the first process only keeps the command: when it dies, all of the command dies at once."""
        ...

    def argv(self, command: str) -> tuple[str, ...]:
        """How to start `command` by a shell, in the workspace's root."""
        ...


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

    def find(self, session_id: str, uuid: str) -> Event | None:
        """The newest event of that name in the session or what it continues; None if there is none."""
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
