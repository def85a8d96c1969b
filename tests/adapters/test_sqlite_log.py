from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from transom.adapters.blobs import DirBlobs
from transom.adapters.sqlite_log import SqliteLog
from transom.testing.conformance import LOG_CASES, LogCase


@pytest.mark.parametrize("case", LOG_CASES, ids=lambda case: case.__name__)
def test_the_sqlite_log_keeps_its_port(case: LogCase, tmp_path: Path) -> None:
    numbers: Iterator[int] = count()
    opened: list[SqliteLog] = []

    def make() -> SqliteLog:
        folder = tmp_path / str(next(numbers))
        opened.append(SqliteLog(folder / "log.db", DirBlobs(folder / "blobs", is_synced=False)))
        return opened[-1]

    case(make)
    for log in opened:
        log.close()
