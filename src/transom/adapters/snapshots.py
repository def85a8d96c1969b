"""Saved states, so that reopening a session costs its window and not its history.

A snapshot is a cache and never a truth: it names the event it stands behind, by chain digest, and the kernel that made
it, by the digest of the kernel's own source. One that is damaged, that stands on another chain or that another kernel
made is not used, and the log is folded from its start instead. Deleting the folder loses nothing.

A file is `sha256 of the rest · chain digest · kernel digest · state`, written whole and renamed.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from importlib import resources
from pathlib import Path
from tempfile import NamedTemporaryFile

__all__ = ["DirSnapshots"]

_DIGEST = 32
_KEPT = 2
"""Per session: the newest, and the one before it in case the newest is cut short by a crash."""


class DirSnapshots:
    """The `Snapshots` port over a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, session_id: str, seq: int, digest: bytes, state: bytes) -> None:
        folder = self._of(session_id)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        body = digest + _kernel() + state
        with NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(hashlib.sha256(body).digest() + body)
        Path(file.name).replace(folder / f"{seq:012d}")
        for old in sorted(folder.glob("0*"))[:-_KEPT]:
            old.unlink(missing_ok=True)

    def newest(self, session_id: str) -> list[tuple[int, bytes, bytes]]:
        found = []
        for path in sorted(self._of(session_id).glob("0*"), reverse=True):
            data = path.read_bytes()
            body = data[_DIGEST:]
            if hashlib.sha256(body).digest() == data[:_DIGEST] and body[_DIGEST : 2 * _DIGEST] == _kernel():
                found.append((int(path.name), body[:_DIGEST], body[2 * _DIGEST :]))
        return found

    def _of(self, session_id: str) -> Path:
        return self._folder / hashlib.sha256(os.fsencode(session_id)).hexdigest()[:32]


@cache
def _kernel() -> bytes:
    """The digest of the code that folds: a state of another fold is not this one's."""
    hasher = hashlib.sha256()
    for path in sorted(resources.files("transom.core").iterdir(), key=lambda path: path.name):
        if path.name.endswith(".py"):
            hasher.update(path.read_bytes())
    return hasher.digest()
