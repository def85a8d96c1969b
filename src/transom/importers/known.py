"""Which sources the log has read whole, so that they need not be read again: what an import found, told by sha256."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from transom.core.event import SourceRead
from transom.importers.source import Fingerprint, Source
from transom.importers.track import Status
from transom.ports import Log

__all__ = ["Imported", "Known"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What an import did to one session."""

    session_id: str
    path: str
    format: str
    appended: int
    status: Status
    notes: tuple[str, ...] = ()
    unknown: tuple[tuple[str, int], ...] = ()
    quarantined: tuple[tuple[int, str], ...] = ()


class Known:
    """Which sources the log has read whole. Asked by sha256, so that a copy under another name is known too."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._prints: dict[str, Fingerprint] = {}

    @cached_property
    def _sessions(self) -> dict[str, list[tuple[str, str]]]:
        """sha256 -> (session, format) of the sessions that end with it, the source's first one first."""
        first: dict[str, tuple[str, str]] = {}
        others: dict[str, list[tuple[str, str]]] = {}
        for row in self._log.sessions():
            for event in self._log.read(row.session_id, max(0, row.head.seq - 1)):
                if not isinstance(event.fact, SourceRead):
                    continue
                entry = (row.session_id, event.fact.format)
                if event.fact.records:
                    first[event.fact.sha256] = entry
                else:
                    others.setdefault(event.fact.sha256, []).append(entry)
        return {sha256: [entry, *sorted(others.get(sha256, []))] for sha256, entry in first.items()}

    def holds(self, source: Source) -> bool:
        """Whether a source was read whole. A folder is not hashed before it is known to be one transcript."""
        return not source.is_folder and self.print_of(source).sha256 in self._sessions

    def print_of(self, source: Source) -> Fingerprint:
        found = self._prints.get(source.name)
        if found is None:
            found = self._prints[source.name] = source.fingerprint()
        return found

    def sessions(self, source: Source) -> list[Imported]:
        """What an import finds of a source whose print is known and was read whole."""
        whole = self._prints.get(source.name)
        return [
            Imported(session_id=session_id, path=source.name, format=format_, appended=0, status="unchanged")
            for session_id, format_ in (self._sessions.get(whole.sha256, []) if whole else [])
        ]

    def learn(self, sha256: str, done: list[Imported]) -> None:
        self._sessions.setdefault(sha256, [(imported.session_id, imported.format) for imported in done])
