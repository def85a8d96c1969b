"""Empty logs and controls, each in a file of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from bench.workload import opened
from transom.adapters.blobs import DirBlobs
from transom.adapters.sqlite_log import SqliteLog
from transom.core.event import Draft

__all__ = ["Fresh", "fill"]


class Fresh:
    """A new file name at every call, and the log or control in it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._count = 0

    def path(self) -> Path:
        self._count += 1
        return self._folder / str(self._count) / "log.db"

    def log(self, synchronous: str = "NORMAL") -> SqliteLog:
        path = self.path()
        blobs = DirBlobs(path.parent / "blobs", is_synced=False)
        return SqliteLog(path, blobs, synchronous="FULL" if synchronous == "FULL" else "NORMAL")

    def control(self, synchronous: str = "NORMAL", *, has_words: bool = False) -> sqlite3.Connection:
        path = self.path()
        path.parent.mkdir()
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {synchronous}")
        db.execute("CREATE TABLE event (seq INTEGER PRIMARY KEY, payload BLOB, text TEXT, digest BLOB)")
        if has_words:
            db.execute("CREATE VIRTUAL TABLE words USING fts5 (text, content='event', content_rowid='seq')")
        return db


def fill(log: SqliteLog, drafts: Sequence[Draft], count: int, after: int = 0) -> int:
    """Append in big batches, over and over the same drafts, up to `count` events; returns the head."""
    if after == 0:
        log.append("s", 0, [opened()])
        after = 1
    while after < count:
        batch = drafts[: count - after]
        log.append("s", after, batch)
        after += len(batch)
    return after
