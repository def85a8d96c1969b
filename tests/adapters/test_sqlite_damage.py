"""L12 for a file at rest: whatever is cut or changed, nothing is ever read as another event without a word."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from transom.adapters.blobs import DirBlobs
from transom.adapters.sqlite_log import SqliteLog
from transom.core.block import Text, ToolResultRaw
from transom.core.canon import FORMAT
from transom.core.event import Draft, Event, Fact, SessionOpened, ToolReturned, UserSaid
from transom.errors import KernelError
from transom.ports import SessionRow

Content = tuple[list[SessionRow], dict[str, list[Event]]]


def log_in(folder: Path) -> SqliteLog:
    return SqliteLog(folder / "log.db", DirBlobs(folder / "blobs", is_synced=False))


def content_of(log: SqliteLog) -> Content:
    rows = log.sessions()
    return rows, {row.session_id: list(log.read(row.session_id)) for row in rows}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Content]:
    folder = tmp_path_factory.mktemp("small")
    rng = random.Random(7)
    with log_in(folder) as log:
        for name in ("one", "two"):
            facts: list[Fact] = [SessionOpened(format=FORMAT, title=name), UserSaid(blocks=(Text(text="压缩"),))]
            facts += [
                ToolReturned(call_id="c", blocks=(ToolResultRaw(text=rng.randbytes(rng.randrange(1500)).hex()),))
                for _ in range(7)
            ]
            log.append(name, 0, [Draft(fact=fact, uuid=f"{name}{n}", at=n) for n, fact in enumerate(facts)])
        head = log.sessions("one")[0].head
        opened = SessionOpened(format=FORMAT, kind="fork", parent=head)
        log.append("fork", head.seq, [Draft(fact=opened, uuid="f", at=99)])
        content = content_of(log)
    return (folder / "log.db").read_bytes(), content


def told_or_same(folder: Path, data: bytes, content: Content) -> bool:
    """Whether opening or `verify` speaks of damage; if neither does, everything must read as it was."""
    folder.mkdir()
    (folder / "log.db").write_bytes(data)
    try:
        with log_in(folder) as log:
            if any(row.problem for row in log.verify()):
                return True
            assert content_of(log) == content
    except KernelError:
        return True
    return False


def edits(size: int, count: int) -> Iterator[tuple[int, int]]:
    """(offset, new value xor old): every 97th byte, the whole header, and `count` at random."""
    rng = random.Random(3)
    for offset in sorted({*range(0, size, 97), *range(100)}):
        yield offset, rng.randrange(1, 256)
    for _ in range(count):
        yield rng.randrange(size), 1 << rng.randrange(8)


def one_byte_at_a_time(small: tuple[bytes, Content], folder: Path, count: int) -> None:
    data, content = small
    told = 0
    for number, (offset, change) in enumerate(edits(len(data), count)):
        edited = bytearray(data)
        edited[offset] ^= change
        told += told_or_same(folder / str(number), bytes(edited), content)
    assert told > 100


def test_a_changed_byte_is_told_or_changes_nothing_l12(small: tuple[bytes, Content], tmp_path: Path) -> None:
    one_byte_at_a_time(small, tmp_path, 100)


@pytest.mark.slow
def test_any_changed_byte_is_told_or_changes_nothing_l12(small: tuple[bytes, Content], tmp_path: Path) -> None:
    one_byte_at_a_time(small, tmp_path, 6000)


def test_a_file_cut_anywhere_is_told_l12(small: tuple[bytes, Content], tmp_path: Path) -> None:
    data, content = small
    for number, size in enumerate([1, 15, 16, 99, 100, 4095, *range(4096, len(data), 1371), len(data) - 1]):
        assert told_or_same(tmp_path / str(number), data[:size], content), size


def test_a_cut_wal_gives_a_prefix_of_what_was_acknowledged_l12(tmp_path: Path) -> None:
    """The state a killed process leaves: a WAL that was never folded in. Cut it anywhere."""
    source = tmp_path / "source"
    with log_in(source) as log:
        log.append("s", 0, [Draft(fact=SessionOpened(format=FORMAT), uuid="0", at=0)])
        for seq in range(1, 12):
            log.append("s", seq, [Draft(fact=UserSaid(blocks=(Text(text="x" * 900),)), uuid=f"{seq}", at=seq)])
        events = list(log.read("s"))
        data, wal = ((source / name).read_bytes() for name in ("log.db", "log.db-wal"))
    lengths = set()
    for number, size in enumerate(range(0, len(wal) + 1, 997)):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "log.db").write_bytes(data)
        (folder / "log.db-wal").write_bytes(wal[:size])
        with log_in(folder) as log:
            kept = list(log.read("s")) if log.sessions("s") else []
            assert kept == events[: len(kept)]
            assert not any(row.problem for row in log.verify())
            lengths.add(len(kept))
    assert len(lengths) > 5
