"""The log in memory: lists and the chain. Same rules and digests as any other log, nothing durable.

The lab drives strategies over it; tests use it where a file would only be slower. Search reads every event.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from transom.core.canon import envelope, link
from transom.core.chain import conflict, kind_of, opening, place, start_of
from transom.core.event import Draft, Event, Link, Observed, SessionOpened, encode_fact
from transom.core.searchable import excerpt, find, fold_case, text_of
from transom.errors import UsageError
from transom.ports import Hit, SessionRow, Verified

__all__ = ["MemoryLog"]


@dataclass(slots=True)
class _Session:
    opened: SessionOpened
    base: int
    start: bytes
    events: list[Event] = field(default_factory=list)


class MemoryLog:
    """The `Log` port over lists."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}

    def append(self, session_id: str, after: int, drafts: Sequence[Draft]) -> tuple[Event, ...]:
        if not drafts:
            return ()
        session = self._sessions.get(session_id)
        is_new = session is None
        if session is None:
            session = self._new(session_id, after, drafts[0])
        seq, digest = session.base, session.start
        if session.events:
            seq, digest = session.events[-1].seq, session.events[-1].digest
        if after != seq:
            raise conflict(session_id, after, seq)
        events = tuple(event for event, _ in place(session_id, seq, digest, drafts, is_new=is_new))
        session.events.extend(events)
        self._sessions[session_id] = session
        return events

    def read(self, session_id: str, after: int = 0, until: int | None = None) -> Iterator[Event]:
        lineage = self._lineage(session_id, until)
        return (event for session, last in lineage for event in _own(session, after, last))

    def sessions(self, session_id: str | None = None) -> list[SessionRow]:
        names = self._sessions if session_id is None else [session_id] if session_id in self._sessions else []
        rows = [_row(name, self._sessions[name]) for name in names]
        return sorted(rows, key=lambda row: row.last_at, reverse=True)

    def find(self, session_id: str, uuid: str) -> Event | None:
        return next((event for event in reversed(list(self.read(session_id))) if event.uuid == uuid), None)

    def search(self, query: str, session_id: str | None = None, limit: int = 20) -> list[Hit]:
        folded = fold_case(query)
        if not folded:
            return []
        if session_id is None:
            lineage = [(session, session.events[-1].seq) for session in self._sessions.values()]
        else:
            lineage = self._lineage(session_id, None)
        events = [event for session, last in lineage for event in _own(session, 0, last)]
        events.sort(key=lambda event: (isinstance(event.fact, Observed), -event.at, -event.seq))
        hits: list[Hit] = []
        for event in events:
            text = text_of(event.fact)
            offset = find(text, folded)
            if offset >= 0 and len(hits) < limit:
                hits.append(
                    Hit(
                        session_id=event.session_id,
                        seq=event.seq,
                        uuid=event.uuid,
                        kind=kind_of(event.fact),
                        offset=offset,
                        text=excerpt(text, offset, len(query)),
                    )
                )
        return hits

    def verify(self, session_id: str | None = None) -> list[Verified]:
        if session_id is None:
            return [_verified(name, session) for name, session in self._sessions.items()]
        return [
            _verified(session.events[0].session_id, session) for session, _ in self._lineage(session_id, None)[::-1]
        ]

    def _new(self, session_id: str, after: int, draft: Draft) -> _Session:
        opened = opening(session_id, after, draft)
        digest = None
        parent = opened.parent
        if parent is not None and parent.session_id in self._sessions:
            found = list(self.read(parent.session_id, parent.seq - 1, parent.seq))
            digest = found[0].digest if found else None
        start = start_of(session_id, opened, digest)
        return _Session(opened=opened, base=after, start=start)

    def _lineage(self, session_id: str, until: int | None) -> list[tuple[_Session, int]]:
        """The session and the ancestors it continues, oldest first, each with the last seq that counts."""
        session = self._sessions.get(session_id)
        if session is None:
            raise UsageError(f"session {session_id}: unknown to this log; `sessions` lists what it holds")
        last = session.events[-1].seq if until is None else min(until, session.events[-1].seq)
        lineage = [(session, last)]
        while session.opened.kind == "fork" and session.opened.parent:
            last = min(last, session.base)
            session = self._sessions[session.opened.parent.session_id]
            lineage.append((session, last))
        return lineage[::-1]


def _own(session: _Session, after: int, last: int) -> list[Event]:
    return session.events[max(0, after - session.base) : max(0, last - session.base)]


def _row(session_id: str, session: _Session) -> SessionRow:
    opened, last = session.opened, session.events[-1]
    return SessionRow(
        session_id=session_id,
        kind=opened.kind,
        agent=opened.agent,
        model=opened.model,
        title=opened.title,
        workspace=opened.workspace,
        parent_id=opened.parent.session_id if opened.parent else "",
        events=len(session.events),
        opened_at=session.events[0].at,
        last_at=last.at,
        head=Link(session_id=session_id, seq=last.seq, digest=last.digest.hex()),
    )


def _verified(session_id: str, session: _Session) -> Verified:
    digest = session.start
    for event in session.events:
        digest = link(digest, envelope(session_id, event.seq, event.uuid, event.at, encode_fact(event.fact)))
        if digest != event.digest:
            problem = f"session {session_id}, event {event.seq}: its digest does not follow from the event before"
            return Verified(session_id=session_id, events=len(session.events), problem=problem)
    return Verified(session_id=session_id, events=len(session.events))
