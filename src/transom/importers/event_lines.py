"""Transom's own transcript: a session as lines that anyone can verify, and that any store takes back to the letter.

    {"digest":"<hex>","at":…,"fact":{…},"seq":…,"session_id":…,"uuid":…}      an event
    {"artifact_id":"<sha256>","base64":"…"}                                    a body that a later event refers to

Without its `digest` an event's line is its canonical bytes: digest(n) = sha256(tag, digest(n-1), those bytes). What the
session continues, or was started by, stands before it. Every line is derived again as it is read, whatever a store
already holds, so a changed line is always named; taking back keeps what stands before it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated

import msgspec

from transom.core.block import Block, Image, ToolResultRef
from transom.core.canon import GENESIS, envelope, link
from transom.core.chain import place
from transom.core.event import (
    BlockReplaced,
    Draft,
    Event,
    Fact,
    HostSaid,
    ModelReplied,
    SessionOpened,
    ToolReturned,
    UserSaid,
    WindowOpened,
    encode_fact,
)
from transom.errors import BadInput, UsageError
from transom.importers.draft import Note, Quarantined
from transom.importers.source import Record, Source
from transom.ports import Blobs, Log

__all__ = ["FORMAT", "lines", "sniff", "take_back", "verified"]

FORMAT = "transom"

_BATCH = 256
_START = b'{"digest":"'
_BODY = b'{"artifact_id":"'
_REST = len(_START) + 64 + len(b'",')
"""Where the digested bytes of an event's line go on, behind its digest."""


class _Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")] = ""
    at: int = 0
    fact: Fact | None = None
    seq: int = 0
    session_id: str = ""
    uuid: str = ""
    artifact_id: str = ""
    base64: str = ""


_DECODER = msgspec.json.Decoder(_Line)


def sniff(source: Source) -> bool:
    """Whether a source is such an export."""
    head = source.head(512)
    return head.startswith((_START, _BODY)) and (b'"fact":' in head or b'"base64":' in head)


# -- out


def lines(log: Log, blobs: Blobs, session_id: str) -> Iterator[bytes]:
    """The session's lines, after those of what it continues or was started by."""
    written: set[str] = set()
    for event in _events(log, session_id, None):
        for artifact_id in _artifacts(event.fact):
            if artifact_id not in written:
                written.add(artifact_id)
                yield b'%b%b","base64":"%b"}\n' % (
                    _BODY,
                    artifact_id.encode(),
                    base64.b64encode(blobs.get(artifact_id)),
                )
        digested = envelope(event.session_id, event.seq, event.uuid, event.at, encode_fact(event.fact))
        yield b'%b%b",%b\n' % (_START, event.digest.hex().encode(), digested[1:])


def _events(log: Log, session_id: str, until: int | None) -> Iterator[Event]:
    events = log.read(session_id, 0, until)
    for first in islice(events, 1):
        opened = first.fact
        if isinstance(opened, SessionOpened) and opened.kind == "child" and opened.parent:
            yield from _events(log, opened.parent.session_id, opened.parent.seq)
        yield first
    yield from events


def _artifacts(fact: Fact) -> list[str]:
    blocks: list[Block | None] = []
    match fact:
        case UserSaid() | HostSaid() | ModelReplied() | ToolReturned():
            blocks = [*fact.blocks]
        case WindowOpened():
            blocks = [block for seed in fact.seed for block in seed.blocks]
        case BlockReplaced():
            blocks = [target.block for target in fact.targets]
        case _:
            pass
    return [block.artifact_id for block in blocks if isinstance(block, Image | ToolResultRef) and block.artifact_id]


# -- in


@dataclass(slots=True, kw_only=True)
class _Returning:
    """A session on its way back."""

    seq: int
    digest: bytes
    is_new: bool
    stored: dict[int, bytes]
    appended: int = 0
    waiting: list[tuple[int, Draft, str]] = field(default_factory=list)
    """(line, draft, digest) of events behind `seq`."""


def verified(source: Source) -> dict[str, int]:
    """Derive every digest of an export again, without any store: session -> events. Raises `BadInput` at the first line
    that is none, does not follow, or names a body that stands nowhere before it."""
    chain = _Chain(lambda _session, _seq: None)
    bodies: set[str] = set()
    for where, record in _records(source):
        if record.value.artifact_id:
            _body(record.value, where)
            bodies.add(record.value.artifact_id)
        else:
            chain.follow(record, where)
            _check_bodies(record.value, where, bodies.__contains__)
    return chain.events()


def take_back(source: Source, *, log: Log, blobs: Blobs) -> dict[str, int]:
    """Append what the log lacks of an export: session -> events appended. Raises `BadInput` at the first line that is
    none, does not follow, or contradicts the log; what stood before it is kept."""
    sessions: dict[str, _Returning] = {}
    chain = _Chain(lambda session_id, seq: _digest_at(log, session_id, seq))
    try:
        for where, record in _records(source):
            if record.value.artifact_id:
                blobs.put(_body(record.value, where))
            else:
                chain.follow(record, where)
                _check_bodies(record.value, where, blobs.has)
                _take(record, where, sessions, log)
    except BadInput as problem:
        raise BadInput(f"{problem}. What stands before it is kept") from problem
    finally:
        for session_id, returning in sessions.items():
            _flush(source.name, session_id, returning, log)
    return {session_id: returning.appended for session_id, returning in sessions.items()}


def _records(source: Source) -> Iterator[tuple[str, Record[_Line]]]:
    """Each line, and what a person is told of where it stands."""
    for item in source.lines(_DECODER):
        if isinstance(item, Note):
            continue
        where = f"{source.name}: line {item.line}"
        if isinstance(item, Quarantined):
            raise BadInput(f"{where}: {item.why}; export the session again")
        yield where, item


class _Chain:
    """The digests of a file's events, each derived from the bytes of its line. `stored` knows what stands before a file
    that does not begin at the beginning."""

    def __init__(self, stored: Callable[[str, int], bytes | None]) -> None:
        self._stored = stored
        self._digests: dict[str, dict[int, bytes]] = {}
        """Of each session by seq; its first entry is what its first event follows."""

    def follow(self, record: Record[_Line], where: str) -> None:
        line = record.value
        if line.fact is None:
            raise BadInput(f"{where}: has no fact; export the session again")
        if line.session_id not in self._digests:
            self._digests[line.session_id] = self._start(line, line.fact, where)
        known = self._digests[line.session_id]
        before = known.get(line.seq - 1)
        if before is None or link(before, b"{" + record.raw[_REST:]).hex() != line.digest:
            raise BadInput(
                f"{where}: its digest does not follow from the event before; the file was changed or lines of it are "
                "missing"
            )
        known[line.seq] = bytes.fromhex(line.digest)

    def events(self) -> dict[str, int]:
        return {session_id: len(known) - 1 for session_id, known in self._digests.items()}

    def _start(self, line: _Line, fact: Fact, where: str) -> dict[int, bytes]:
        if not isinstance(fact, SessionOpened):
            digest = self._stored(line.session_id, line.seq - 1)
            if digest is None:
                raise BadInput(f"{where}: the events of {line.session_id} before this one are missing")
            return {line.seq - 1: digest}
        parent = fact.parent
        if parent is not None:
            digest = self._digests.get(parent.session_id, {}).get(parent.seq)
            digest = digest or self._stored(parent.session_id, parent.seq)
            if digest is None or digest.hex() != parent.digest:
                is_known = "is missing" if digest is None else "is another one"
                raise BadInput(f"{where}: event {parent.seq} of {parent.session_id}, which it names, {is_known}")
            if fact.kind == "fork":
                return {parent.seq: digest}
        return {0: GENESIS}


def _digest_at(log: Log, session_id: str, seq: int) -> bytes | None:
    if seq < 1 or not log.sessions(session_id):
        return None
    return next((event.digest for event in log.read(session_id, seq - 1, seq)), None)


def _check_bodies(line: _Line, where: str, has: Callable[[str], bool]) -> None:
    for artifact_id in _artifacts(line.fact) if line.fact else ():
        if not has(artifact_id):
            raise BadInput(f"{where}: the body {artifact_id} that it refers to is not there; export the session again")


def _take(record: Record[_Line], where: str, sessions: dict[str, _Returning], log: Log) -> None:
    line = record.value
    assert line.fact is not None, "it was followed"
    returning = sessions.get(line.session_id)
    if returning is None:
        for session_id, other in sessions.items():  # a fork needs what it continues
            _flush(where.rpartition(": line")[0], session_id, other, log)
        returning = sessions[line.session_id] = _returning(line, log)
    known = returning.stored.get(line.seq)
    if known is not None:
        if known.hex() != line.digest:
            raise BadInput(
                f"{where}: event {line.seq} of {line.session_id} is another one in this store; use a store of its own"
            )
        return
    draft = Draft(fact=line.fact, uuid=line.uuid, at=line.at)
    returning.waiting.append((record.line, draft, line.digest))
    if len(returning.waiting) >= _BATCH:
        _flush(where.rpartition(": line")[0], line.session_id, returning, log)


def _body(line: _Line, where: str) -> bytes:
    """The body of a line. Raises `BadInput` if it is not the one that its id names."""
    try:
        data = base64.b64decode(line.base64, validate=True)
    except binascii.Error as problem:
        raise BadInput(f"{where}: base64: {problem}; export the session again") from problem
    if hashlib.sha256(data).hexdigest() != line.artifact_id:
        raise BadInput(f"{where}: the body is not the one its artifact_id names; export the session again")
    return data


def _returning(line: _Line, log: Log) -> _Returning:
    rows = log.sessions(line.session_id)
    if rows:
        stored = {event.seq: event.digest for event in log.read(line.session_id)}
        head = rows[0].head
        return _Returning(seq=head.seq, digest=bytes.fromhex(head.digest), is_new=False, stored=stored)
    fact = line.fact
    parent = fact.parent if isinstance(fact, SessionOpened) and fact.kind == "fork" else None
    if parent is None:
        return _Returning(seq=0, digest=GENESIS, is_new=True, stored={})
    return _Returning(seq=parent.seq, digest=bytes.fromhex(parent.digest), is_new=True, stored={})


def _flush(name: str, session_id: str, returning: _Returning, log: Log) -> None:
    """Append what waits, as far as its digests follow."""
    waiting, returning.waiting = returning.waiting, []
    if not waiting:
        return
    drafts = [draft for _, draft, _ in waiting]
    try:
        placed = place(session_id, returning.seq, returning.digest, drafts, is_new=returning.is_new)
    except UsageError as problem:
        raise BadInput(f"{name}: line {waiting[0][0]} or behind it: {problem}") from problem
    wrong = next((at for at, (event, _) in enumerate(placed) if event.digest.hex() != waiting[at][2]), None)
    good = drafts if wrong is None else drafts[:wrong]
    if good:
        try:
            events = log.append(session_id, returning.seq, good)
        except UsageError as problem:
            raise BadInput(f"{name}: line {waiting[0][0]}: {problem}") from problem
        returning.seq, returning.digest = events[-1].seq, events[-1].digest
        returning.is_new = False
        returning.appended += len(events)
    if wrong is not None:
        raise BadInput(
            f"{name}: line {waiting[wrong][0]}: this Transom would not store it as it is written: it says what is "
            "unknown here; use the version that wrote it"
        )
