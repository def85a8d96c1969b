"""The log in one SQLite file: `log` appends and reads, `schema` opens, `index` searches, `verify` re-derives."""

from __future__ import annotations

from transom.adapters.sqlite_log.log import SqliteLog

__all__ = ["SqliteLog"]
