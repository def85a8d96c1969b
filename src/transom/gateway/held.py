"""What a gateway holds in memory: the conversations last used, and by what the others are found in the log again.

Sessions of one key are named by the key and a number, roots and forks alike, so that after a restart they are found
without an index. When a key is met, the newest of them are opened. Those before, and what had to make room since, are
known by their ends: a request that goes on with one has in it the last element that it was sent, and the answer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from uuid import UUID, uuid5

from transom.gateway.conversation import Conversation
from transom.gateway.face import Call, Face
from transom.gateway.identity import Identity
from transom.gateway.known import End, answer_in, digest_of, end_of
from transom.ports import Log

__all__ = ["Held", "Histories", "session_name"]

_NAMES = UUID("6f0b7a52-9a0e-5c41-8d52-6d1c3f0e7b11")
"""The namespace of session ids made from a client's key."""
_HELD, _HELD_BYTES = 64, 256 << 20
"""Conversations in memory, and bytes of their last requests; the longest idle ones go first, and none that is at work.
A conversation takes about four times its request."""
_NEWEST = 16
"""Sessions of a key that are opened when it is met."""
_ENDS = 256
"""Sessions of a key that are known by their ends alone, the newest."""
_LAST = 64
"""Events at the end of a session in which its last request is looked for."""
_BACK = 32
"""Elements at the end of a request among which an end is looked for: more than a step adds."""
_ALIKE = 4
"""Sessions with the same end that are opened."""


def session_name(key: str, number: int) -> str:
    return str(uuid5(_NAMES, f"{key}\n{number}"))


@dataclass(slots=True)
class Histories:
    """Of one key: how many sessions it has, the conversations in memory, and the ends of others by session."""

    key: str
    is_named: bool
    count: int
    open: dict[str, Conversation] = field(default_factory=dict)
    ends: dict[str, End] = field(default_factory=dict)
    unread: range = range(0)
    """Numbers of sessions whose ends were not read yet."""

    @property
    def next_id(self) -> str:
        return session_name(self.key, self.count)

    def keep(self, session_id: str, end: End | None) -> None:
        if end is not None:
            self.ends[session_id] = end
        if len(self.ends) > _ENDS:
            del self.ends[next(iter(self.ends))]


class Held:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._histories: dict[str, Histories] = {}
        self._used: OrderedDict[str, tuple[Histories, Conversation]] = OrderedDict()
        """By session, the longest unused first."""

    @property
    def conversations(self) -> list[Conversation]:
        """The longest unused first."""
        return [one for _, one in self._used.values()]

    def of(self, identity: Identity, opened: Callable[[str], Conversation]) -> Histories:
        """What there is of a key."""
        key = identity.key
        found = self._histories.get(key)
        if found is None:
            count = 0
            while self._log.sessions(session_name(key, count)):
                count += 1
            first = max(0, count - _NEWEST)
            found = Histories(key, identity.is_named, count, unread=range(max(0, first - _ENDS), first))
            self._histories[key] = found
            for number in range(first, count):
                self.use(found, opened(session_name(key, number)))
        return found

    def key_of(self, face: Face, call: Call, identity: Identity) -> str:
        """The key under which a request goes on. A client without a name of its own may begin otherwise each time (its
        system text says what time it is): it is known by all that was said so far, and answered."""
        if identity.is_named or identity.key in self._histories:
            return identity.key
        others = ((found.key, one) for found, one in self._used.values() if one.face is face and not found.is_named)
        return next((key for key, one in others if one.is_answered_in(call)), identity.key)

    def use(self, histories: Histories, one: Conversation) -> None:
        """It comes last."""
        histories.open.pop(one.session_id, None)
        histories.open[one.session_id] = one
        self._used[one.session_id] = (histories, one)
        self._used.move_to_end(one.session_id)

    def add(self, histories: Histories, one: Conversation) -> Conversation:
        """A new session of the key."""
        histories.count += 1
        self.use(histories, one)
        return one

    def missing(self, histories: Histories, face: Face, call: Call) -> list[str]:
        """Sessions that are not in memory and end with what a request says last of what it shares with any."""
        for number in histories.unread:
            session_id = session_name(histories.key, number)
            (row,) = self._log.sessions(session_id)
            histories.keep(session_id, end_of(self._log.read(session_id, max(0, row.head.seq - _LAST))))
        histories.unread = range(0)
        found = _matching(histories.ends, face, call)
        for session_id in found:
            del histories.ends[session_id]
        return found

    def make_room(self, busy: Collection[str]) -> list[Conversation]:
        """Let go of what is too much; what was let go."""
        gone: list[Conversation] = []
        for session_id in [one for one in self._used if one not in busy]:
            if len(self._used) == 1 or not self._is_full():
                break
            gone.append(self._drop(session_id))
        return gone

    def forget(self, key: str) -> list[Conversation]:
        """All of a key; it is read from the log if it is wanted again."""
        found = self._histories.get(key)
        gone = [self._drop(session_id) for session_id in list(found.open)] if found else []
        self._histories.pop(key, None)
        return gone

    def _drop(self, session_id: str) -> Conversation:
        histories, gone = self._used.pop(session_id)
        del histories.open[session_id]
        histories.keep(session_id, gone.known.end)
        if not histories.open:
            self._histories.pop(histories.key, None)
        return gone

    def _is_full(self) -> bool:
        asked = [one.asked for _, one in self._used.values()]
        return len(asked) > _HELD or sum(call.outline.size for call in asked if call is not None) > _HELD_BYTES


def _matching(ends: Mapping[str, End], face: Face, call: Call) -> list[str]:
    """The newest of those that end with what a request says last of what it shares with any."""
    digests = {end.digest for end in ends.values()}
    elements = call.elements[call.lead :]
    for place in reversed(range(max(0, len(elements) - _BACK), len(elements)) if ends else ()):
        digest = digest_of(face, elements[place])
        if digest in digests:
            alike = [session_id for session_id, end in ends.items() if end.digest == digest]
            answer = answer_in(face, elements[place + 1 :])
            same = [session_id for session_id in alike if ends[session_id].answer == answer]
            return (same or alike)[-_ALIKE:]
    return []
