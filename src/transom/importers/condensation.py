"""OpenHands' condensation: which events stand in the window after some were forgotten.

A condensation names the events it forgets and the place of its summary among those that remain, the system prompt
counted. An earlier summary goes with it. OpenHands then drops what lost its other half, so a result whose call is
forgotten, or a call whose result is, leaves the window too.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from transom.core.block import Text
from transom.core.event import Seed
from transom.importers.draft import Compacted

__all__ = ["Visible"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    event_id: str
    uuid: str
    """Empty for the system prompt, which is the head and no part of the body."""
    called: str
    answered: str


class Visible:
    """The events of one session that the next request would hold, in order."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []

    def add(self, event_id: str, uuid: str, *, called: str = "", answered: str = "") -> None:
        """An event became visible; `called` and `answered` are the call ids it makes and settles."""
        self._entries.append(_Entry(event_id=event_id, uuid=uuid, called=called, answered=answered))

    def event_ids(self) -> tuple[str, ...]:
        return tuple(entry.event_id for entry in self._entries)

    def condense(
        self, session: str, uuid: str, at: int, *, forgotten: Collection[str], summary: str, offset: int | None
    ) -> Compacted:
        """The window after a condensation. Without an offset the summary stands first."""
        lost = {entry.answered for entry in self._entries if entry.event_id in forgotten and entry.answered}
        remaining = [entry for entry in self._entries if entry.event_id not in forgotten]
        called = {entry.called for entry in remaining if entry.called}
        place = max(offset or 0, 0)
        head = [entry for entry in remaining[:place] if _is_whole(entry, called, lost)]
        tail = [entry for entry in remaining[place:] if _is_whole(entry, called, lost)]
        self._entries = head + tail
        return Compacted(
            session=session,
            uuid=uuid,
            at=at,
            seed=(Seed(role="host", blocks=(Text(text=summary),)),) if summary else (),
            kept_head=_uuids(head),
            kept_tail=_uuids(tail),
        )


def _is_whole(entry: _Entry, called: Collection[str], lost: Collection[str]) -> bool:
    if entry.answered:
        return entry.answered in called
    return not entry.called or entry.called not in lost


def _uuids(entries: list[_Entry]) -> tuple[str, ...]:
    """Of the facts in order, each once: a reply may be several events."""
    return tuple(dict.fromkeys(entry.uuid for entry in entries if entry.uuid))
