"""Content-addressed bodies in a directory: `ab/cd/<sha256>`.

A body is written to a temporary file beside its place and renamed, so it is whole or absent (L12); with `is_synced`
it is on the disk before its name is given out. A reader trusts no body it has not hashed: a whole read is always
checked, a range read checks the whole once per process and then trusts the file as long as its size and times stay.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from transom.errors import ArtifactMissing, Unwritable

__all__ = ["DirBlobs"]

_NAME_LENGTH = 64


class DirBlobs:
    """The `Blobs` port over a directory, made on first use with mode 0700; bodies are 0600."""

    def __init__(self, root: Path, *, is_synced: bool = True) -> None:
        self._root = root
        self._is_synced = is_synced
        self._checked: dict[str, tuple[int, int]] = {}

    def put(self, data: bytes) -> str:
        artifact_id = hashlib.sha256(data).hexdigest()
        path = self._path(artifact_id)
        if self._is_whole(path, len(data), artifact_id):
            return artifact_id
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder in (path.parent.parent, path.parent):
                folder.mkdir(mode=0o700, exist_ok=True)
            self._write(path, data)
        except OSError as error:
            raise Unwritable(f"{path}: the body could not be stored: {error.strerror}") from error
        return artifact_id

    def get(self, artifact_id: str, start: int = 0, end: int | None = None) -> bytes:
        path = self._path(artifact_id)
        try:
            with path.open("rb") as file:
                status = os.fstat(file.fileno())
                stamp = (status.st_size, status.st_mtime_ns)
                if (start, end) != (0, None) and self._checked.get(artifact_id) == stamp:
                    first, last, _ = slice(start, end).indices(status.st_size)
                    file.seek(first)
                    return file.read(max(0, last - first))
                data = file.read()
        except OSError as error:
            raise ArtifactMissing(f"artifact {artifact_id}: {path} cannot be read: {error.strerror}") from error
        found = hashlib.sha256(data).hexdigest()
        if found != artifact_id:
            raise ArtifactMissing(f"artifact {artifact_id}: {path} holds other bytes (their sha256 is {found})")
        self._checked[artifact_id] = stamp
        return data[start:end]

    def has(self, artifact_id: str) -> bool:
        return _is_name(artifact_id) and self._path(artifact_id).is_file()

    def ids(self) -> Iterator[str]:
        for path in self._root.glob("??/??/*"):
            if _is_name(path.name):
                yield path.name

    def _path(self, artifact_id: str) -> Path:
        if not _is_name(artifact_id):
            raise ArtifactMissing(f"artifact {artifact_id!r}: not a sha256 in 64 small hex digits")
        return self._root / artifact_id[:2] / artifact_id[2:4] / artifact_id

    def _is_whole(self, path: Path, size: int, artifact_id: str) -> bool:
        """Whether the body is already there. One that was damaged is written again: putting heals it."""
        try:
            if path.stat().st_size != size:
                return False
            self.get(artifact_id)
        except (OSError, ArtifactMissing):
            return False
        return True

    def _write(self, path: Path, data: bytes) -> None:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")  # mkstemp makes it 0600
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                if self._is_synced:
                    file.flush()
                    os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        if self._is_synced:
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def _is_name(artifact_id: str) -> bool:
    return len(artifact_id) == _NAME_LENGTH and not artifact_id.strip("0123456789abcdef")
