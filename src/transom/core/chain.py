"""How drafts become events: the one place that numbers and links them (L1, L12).

Every store uses these rules, so that a session has the same digests wherever it lies:

1. A session starts with `SessionOpened` and holds no other. A root or a child starts at seq 1 from `GENESIS`; a fork
   continues its parent's numbering and chain at the named link.
2. A parent is named by seq and digest, and both must be true of a stored event.
3. What is accepted can be read again: a fact that would not decode is refused before it is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import msgspec

from transom.core.canon import GENESIS, envelope, link
from transom.core.event import Draft, Event, Fact, SessionOpened, decode_fact, encode_fact
from transom.errors import SequenceConflict, UsageError

__all__ = ["Placed", "conflict", "kind_of", "opening", "place", "placing", "start_of"]

_INT64 = 2**63
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(Fact).decode

Placed: TypeAlias = tuple[Event, bytes]
"""An event and its fact's canonical bytes, the form a store keeps."""


def kind_of(fact: Fact) -> str:
    """The fact's tag."""
    tag = type(fact).__struct_config__.tag
    assert isinstance(tag, str)
    return tag


def conflict(session_id: str, after: int, head: int) -> SequenceConflict:
    """The lost race, naming both heads; behind event 0 it is the name that is taken."""
    what = "the id is taken: open that session to go on with it, or start one under another"
    return _parted(session_id, after, head, "read what was appended since and try again" if after else what)


def _parted(session_id: str, after: int, head: int, what: str) -> SequenceConflict:
    return SequenceConflict(
        f"session {session_id}: the append was to follow event {after}, but the log's head is event {head}; {what}"
    )


def opening(session_id: str, after: int, draft: Draft) -> SessionOpened:
    """The fact that opens a new session, checked against the head the caller expects."""
    fact = draft.fact
    if not isinstance(fact, SessionOpened):
        raise UsageError(
            f"session {session_id}: unknown, and a new session starts with session_opened, not {kind_of(fact)}"
        )
    if (fact.parent is None) != (fact.kind == "root"):
        raise UsageError(f"session {session_id}: a fork or child names its parent, a root has none")
    expected = fact.parent.seq if fact.kind == "fork" and fact.parent else 0
    if after != expected:
        raise _parted(session_id, after, expected, "a fork follows the event that it names")
    return fact


def start_of(session_id: str, opened: SessionOpened, parent_digest: bytes | None) -> bytes:
    """The digest a new session's first event follows. `parent_digest` is the stored digest at the named parent event,
    None if there is no such event."""
    parent = opened.parent
    if parent is None:
        return GENESIS
    if parent_digest is None:
        raise UsageError(
            f"session {session_id}: its parent {parent.session_id} has no event {parent.seq}; append the parent first"
        )
    if parent_digest.hex() != parent.digest:
        raise UsageError(
            f"session {session_id}: event {parent.seq} of its parent {parent.session_id} has digest "
            f"{parent_digest.hex()}, not {parent.digest}"
        )
    return parent_digest if opened.kind == "fork" else GENESIS


def place(session_id: str, seq: int, digest: bytes, drafts: Sequence[Draft], *, is_new: bool) -> list[Placed]:
    """Number and link `drafts` behind event `seq`, after which the chain's digest is `digest`."""
    return list(placing(session_id, seq, digest, drafts, is_new=is_new))


def placing(session_id: str, seq: int, digest: bytes, drafts: Sequence[Draft], *, is_new: bool) -> Iterator[Placed]:
    """`place`, one after the other, for a store that writes each before it takes the next: together they may be
    millions of bytes. What is refused is refused when its turn comes."""
    _check_name("session_id", session_id)
    is_first = True
    for draft in drafts:
        if isinstance(draft.fact, SessionOpened) and not (is_first and is_new):
            raise UsageError(f"session {session_id}: session_opened can only be the first event")
        is_first = False
        seq += 1
        payload = _payload(session_id, draft)
        digest = link(digest, envelope(session_id, seq, draft.uuid, draft.at, payload))
        yield (
            Event(session_id=session_id, seq=seq, uuid=draft.uuid, at=draft.at, fact=draft.fact, digest=digest),
            payload,
        )


def _payload(session_id: str, draft: Draft) -> bytes:
    _check_name("uuid", draft.uuid)
    if not isinstance(draft.at, int) or not -_INT64 <= draft.at < _INT64:  # `time() * 1000` is a float
        raise UsageError(
            f"session {session_id}: the time {draft.at!r} of {draft.uuid} is no whole number of ms within 64 bits"
        )
    try:
        payload = encode_fact(draft.fact)
        _check(draft.fact, payload)
    except (msgspec.MsgspecError, OverflowError, TypeError, ValueError) as error:
        raise UsageError(
            f"session {session_id}: {kind_of(draft.fact)} {draft.uuid} cannot be stored: {error}"
        ) from error
    return payload


def _check(fact: Fact, payload: bytes) -> None:
    """Raise if the payload would not decode. A copy in MessagePack goes through the same types and limits, and has no
    escapes to undo: a fifth of the time for a common result."""
    try:
        packed = _pack(fact)
    except UnicodeEncodeError:
        decode_fact(payload)  # half an emoji has no form there
        return
    _unpack(packed)


def _check_name(what: str, name: str) -> None:
    """Names are keys of every store and sink, and not all of them take what text may hold."""
    if not name or "\0" in name or not (name.isascii() or _is_unicode(name)):
        raise UsageError(f"{what} {name!r} is no name: it must be non-empty Unicode text without NUL")


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)
