"""Saved states: used when they are this log's and this kernel's, and never missed when they are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from transom.adapters.snapshots import DirSnapshots

STATE = b"a state"
DIGEST = b"d" * 32


@pytest.fixture
def snapshots(tmp_path: Path) -> DirSnapshots:
    return DirSnapshots(tmp_path / "snapshots")


def test_what_is_saved_is_found_newest_first_and_older_ones_go(snapshots: DirSnapshots) -> None:
    for seq in (5, 90, 1200):
        snapshots.save("s", seq, DIGEST, STATE)
    assert snapshots.newest("s") == [(1200, DIGEST, STATE), (90, DIGEST, STATE)]
    assert snapshots.newest("another") == []


def test_a_damaged_snapshot_is_not_used(snapshots: DirSnapshots, tmp_path: Path) -> None:
    snapshots.save("s", 5, DIGEST, STATE)
    (path,) = (path for path in tmp_path.rglob("0*") if path.is_file())
    data = bytearray(path.read_bytes())
    for place in range(len(data)):
        data[place] ^= 1
        path.write_bytes(bytes(data))
        assert snapshots.newest("s") == []
        data[place] ^= 1
    path.write_bytes(bytes(data[:-1]))
    assert snapshots.newest("s") == []


def test_a_snapshot_of_another_kernel_is_not_used(snapshots: DirSnapshots, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots.save("s", 5, DIGEST, STATE)
    monkeypatch.setattr("transom.adapters.snapshots._kernel", lambda: b"k" * 32)
    assert snapshots.newest("s") == []
