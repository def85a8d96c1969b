"""The search index: a contentless FTS5 table in a file of its own, computed from the log and free to be thrown away.

Of its own, because it takes most of the bytes that are written and none of the truth: its damage is not the log's, and
filling it never holds the log's write lock. Contentless, because what is shown comes from the event itself (the
second copy of the text would be the larger half of the file). `covered` says through which event of each session it
goes, with that event's digest, so an index beside another log is noticed and made anew.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from transom.adapters.sqlite_log.schema import connect, is_passing, refusal, writing

__all__ = ["Mark", "SearchIndex"]

Mark: TypeAlias = tuple[int, bytes]
"""seq and digest of an event."""

_VERSION = 1
"""Of the table and of `searchable.prepare`: change it with either, and old indexes are made anew."""


_IN_RANGE = "FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ?"
_NEWEST = f"SELECT rowid {_IN_RANGE} ORDER BY rowid DESC LIMIT ?"
_RANKED = f"SELECT rank, rowid {_IN_RANGE} ORDER BY rank"


class SearchIndex:
    """Opened on first use. Every method may raise `sqlite3.Error`; `discard` then makes it new."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db: sqlite3.Connection | None = None

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def discard(self) -> None:
        """Remove the file. It is made again, empty, on the next use."""
        self.close()
        for suffix in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    def covered(self) -> dict[int, Mark]:
        """Per session key the seq and digest of the last event the index holds or has passed over."""
        rows = self._open().execute("SELECT session, seq, digest FROM covered")
        return {key: (seq, digest) for key, seq, digest in rows}

    def add(self, texts: Iterable[tuple[int, str]], seen: Mapping[int, Mark | None], marks: Mapping[int, Mark]) -> None:
        """Add (event id, prepared text) in ascending order and set the marks of their sessions, unless another process
        has moved one of them from where it was `seen`."""
        db = self._open()
        with writing(db):
            now = self.covered()
            if all(now.get(key) == mark for key, mark in seen.items()):
                db.executemany("INSERT INTO words (rowid, said) VALUES (?, ?)", texts)
                rows = [(key, seq, digest) for key, (seq, digest) in marks.items()]
                db.executemany("INSERT OR REPLACE INTO covered VALUES (?, ?, ?)", rows)

    def proposals(self, phrase: str, ranges: Sequence[tuple[int, int]], few: int) -> Iterator[int]:
        """Ids of events in the ranges that may hold the phrase: newest first if they are `few`, else best first.
        Ranking reads every place twice, which for a rare word costs more than finding it."""
        db = self._open()
        newest = [
            row[0]
            for first, last in ranges[::-1]
            for row in db.execute(_NEWEST, (phrase, first, last, few + 1)).fetchall()
        ]
        if len(newest) <= few:
            return iter(newest)
        ranked = [db.execute(_RANKED, (phrase, first, last)) for first, last in ranges]
        return (event_id for _, event_id in heapq.merge(*ranked))

    def problem(self) -> str:
        """What does not hold together in the file, or nothing. Nothing is written for it: an index that was never made,
        or is of another version, is sound."""
        if not self.path.exists():
            return ""
        try:
            db = connect(self.path, "NORMAL", is_reader=True)
            try:
                problems = [row[0] for row in db.execute("PRAGMA integrity_check(1)")]
                if problems == ["ok"] and db.execute("PRAGMA user_version").fetchone()[0] == _VERSION:
                    _check_words(db)
            finally:
                db.close()
        except sqlite3.Error as error:
            if is_passing(error):
                return str(refusal(self.path, error))
            problems = [str(error)]
        return "" if problems == ["ok"] else f"{self.path}: {problems[0]}; delete it, the next search makes it anew"

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            db = connect(self.path, "NORMAL")
            try:
                if db.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
                    _make(db)
            except BaseException:
                db.close()
                raise
            self._db = db
        return self._db


def _check_words(db: sqlite3.Connection) -> None:
    """FTS5's own check, a statement that asks for the write lock and writes nothing. Raises what it finds; where the
    lock is not to be had, that is no news of the index."""
    try:
        db.execute("PRAGMA busy_timeout = 0")
        db.execute("INSERT INTO words (words) VALUES ('integrity-check')")
    except sqlite3.Error as error:
        if not is_passing(error):
            raise


def _make(db: sqlite3.Connection) -> None:
    with writing(db):
        if db.execute("PRAGMA user_version").fetchone()[0] == _VERSION:
            return
        db.execute("DROP TABLE IF EXISTS words")
        db.execute("DROP TABLE IF EXISTS covered")
        db.execute("CREATE VIRTUAL TABLE words USING fts5 (said, content='', tokenize='unicode61')")
        db.execute("CREATE TABLE covered (session INTEGER PRIMARY KEY, seq INTEGER NOT NULL, digest BLOB NOT NULL)")
        db.execute(f"PRAGMA user_version = {_VERSION}")
