"""The search index: a contentless FTS5 table in a file of its own, computed from the log and free to be thrown away.

Of its own, because it takes most of the bytes that are written and none of the truth: its damage is not the log's, and
filling it never holds the log's write lock. Contentless, because what is shown comes from the event itself (the
second copy of the text would be the larger half of the file). `covered` says through which event it goes, with that
event's digest, so an index beside another log is noticed and made anew.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from transom.adapters.sqlite_log.schema import connect, writing

__all__ = ["SearchIndex"]

_VERSION = 1
"""Of the table and of `searchable.prepare`: change it with either, and old indexes are made anew."""


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

    def covered(self) -> tuple[int, bytes]:
        """The id and digest of the last event the index holds or has passed over."""
        found: tuple[int, bytes] = self._open().execute("SELECT id, digest FROM covered").fetchone()
        return found

    def add(self, seen: int, texts: Iterable[tuple[int, int, str]], last: int, digest: bytes) -> None:
        """Add (event id, session key, prepared text), unless another process has gone beyond event `seen`."""
        db = self._open()
        with writing(db):
            if self.covered()[0] == seen:
                db.executemany("INSERT INTO words (rowid, session, said) VALUES (?, 's' || ?, ?)", texts)
                db.execute("UPDATE covered SET id = ?, digest = ?", (last, digest))

    def proposals(self, phrase: str, keys: Sequence[int] | None) -> Iterator[int]:
        """Ids of events that may hold the phrase, best first."""
        expression = f"said : {phrase}"
        if keys is not None:
            expression = f"session : ({' OR '.join(f's{key}' for key in keys)}) AND {expression}"
        found = self._open().execute("SELECT rowid FROM words WHERE words MATCH ? ORDER BY rank", (expression,))
        return (row[0] for row in found)

    def check(self) -> None:
        """Raise `sqlite3.Error` if the file or the index in it does not hold together."""
        db = self._open()
        for (problem,) in db.execute("PRAGMA integrity_check(1)"):
            if problem != "ok":
                raise sqlite3.DatabaseError(problem)
        db.execute("INSERT INTO words (words) VALUES ('integrity-check')")

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


def _make(db: sqlite3.Connection) -> None:
    with writing(db):
        if db.execute("PRAGMA user_version").fetchone()[0] == _VERSION:
            return
        db.execute("DROP TABLE IF EXISTS words")
        db.execute("DROP TABLE IF EXISTS covered")
        # Only `said` is ranked: the session's own word is in all of its events.
        db.execute("CREATE VIRTUAL TABLE words USING fts5 (session, said, content='', tokenize='unicode61')")
        db.execute("INSERT INTO words (words, rank) VALUES ('rank', 'bm25(0.0, 1.0)')")
        db.execute("CREATE TABLE covered (id INTEGER NOT NULL, digest BLOB NOT NULL)")
        db.execute("INSERT INTO covered VALUES (0, x'')")
        db.execute(f"PRAGMA user_version = {_VERSION}")
