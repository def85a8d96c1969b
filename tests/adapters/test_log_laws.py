"""L1 and L12 for both logs side by side: the same appends give the same events, digests and answers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.adapters.blobs import DirBlobs
from transom.adapters.memory_log import MemoryLog
from transom.adapters.sqlite_log import SqliteLog
from transom.core.block import Text
from transom.core.canon import FORMAT
from transom.core.event import Draft, SessionOpened, UserSaid
from transom.ports import Log
from transom.testing.strategies import drafts, texts

# Each example opens files; two thousand of them on busy cores take minutes.
pytestmark = pytest.mark.timeout(1800)

_OPENED = Draft(fact=SessionOpened(format=FORMAT), uuid="o", at=0)


@contextmanager
def fresh() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def log_in(folder: Path) -> SqliteLog:
    return SqliteLog(folder / "log.db", DirBlobs(folder / "blobs", is_synced=False))


@given(st.lists(st.lists(drafts(), min_size=1, max_size=3), max_size=4))
def test_a_reopened_log_holds_exactly_what_was_acknowledged_l1_l12(steps: list[list[Draft]]) -> None:
    memory = MemoryLog()
    with fresh() as folder:
        for number, step in enumerate([[_OPENED], *steps]):
            with log_in(folder) as log:
                head = log.sessions("s")[0].head.seq if number else 0
                assert log.append("s", head, step) == memory.append("s", head, step)
        with log_in(folder) as log:
            assert list(log.read("s")) == list(memory.read("s"))
            assert log.sessions() == memory.sessions()
            # Made-up artifacts are nowhere, and only the log that knows the blob store can say so.
            assert all("artifact" in row.problem or not row.problem for row in log.verify())


@given(st.lists(texts(), min_size=1, max_size=4), st.data())
def test_any_piece_of_any_text_is_found_by_both_logs(said: list[str], data: st.DataObject) -> None:
    step = [
        _OPENED,
        *(Draft(fact=UserSaid(blocks=(Text(text=text),)), uuid=f"u{n}", at=n) for n, text in enumerate(said)),
    ]
    whole = data.draw(st.sampled_from(said))
    start = data.draw(st.integers(0, len(whole)))
    query = whole[start : data.draw(st.integers(start, len(whole)))]
    memory: Log = MemoryLog()
    memory.append("s", 0, step)
    with fresh() as folder, log_in(folder) as log:
        log.append("s", 0, step)
        hits = log.search(query)
        true = {(hit.seq, hit.offset, hit.text) for hit in memory.search(query)}
        assert bool(hits) == bool(query)
        assert {(hit.seq, hit.offset, hit.text) for hit in hits} <= true
