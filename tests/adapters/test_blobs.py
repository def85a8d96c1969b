from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from transom.adapters.blobs import DirBlobs
from transom.errors import ArtifactMissing, Unwritable
from transom.testing.conformance import BLOBS_CASES, BlobsCase


@pytest.mark.parametrize("is_synced", [True, False])
@pytest.mark.parametrize("case", BLOBS_CASES, ids=lambda case: case.__name__)
def test_a_directory_of_blobs_keeps_its_port(case: BlobsCase, is_synced: bool, tmp_path: Path) -> None:
    numbers: Iterator[int] = count()
    case(lambda: DirBlobs(tmp_path / str(next(numbers)), is_synced=is_synced))


def test_a_body_is_private_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    blobs = DirBlobs(tmp_path / "blobs")
    name = blobs.put(b"secret")
    files = [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]
    assert [path.name for path in files] == [name]
    assert files[0].stat().st_mode & 0o777 == 0o600
    assert files[0].parent.stat().st_mode & 0o077 == 0


def test_a_changed_body_is_missing_by_name_and_putting_heals_it(tmp_path: Path) -> None:
    blobs = DirBlobs(tmp_path)
    name = blobs.put(b"0123456789")
    assert blobs.get(name, 2, 4) == b"23"
    path = next(tmp_path.glob(f"*/*/{name}"))
    path.write_bytes(b"0123456x89")
    for bounds in ((0, None), (2, 4)):
        with pytest.raises(ArtifactMissing, match=f"{name}.*other bytes"):
            blobs.get(name, *bounds)
    path.write_bytes(b"012")
    with pytest.raises(ArtifactMissing):
        blobs.get(name)
    assert blobs.put(b"0123456789") == name
    assert blobs.get(name) == b"0123456789"


def test_a_failed_write_leaves_no_temporary_file(tmp_path: Path) -> None:
    blobs = DirBlobs(tmp_path)
    name = blobs.put(b"x")
    path = next(tmp_path.glob(f"*/*/{name}"))
    path.unlink()
    (path / "in the way").mkdir(parents=True)
    with pytest.raises(Unwritable):
        blobs.put(b"x")
    assert [each.name for each in path.parent.iterdir()] == [name]
    assert not blobs.has(name)


def test_a_body_that_cannot_be_written_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_text("a file where the folder should be")
    with pytest.raises(Unwritable, match="could not be stored"):
        DirBlobs(tmp_path / "blobs").put(b"x")
