"""Files a command writes: checked before the work, whole or absent after it."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from transom.errors import BadInput, Unwritable, UsageError

__all__ = ["check_target", "write"]


def check_target(option: str, path: Path | None) -> None:
    """Raises `BadInput` if `path` could not be written: better now than after minutes of work. `-` is stdout."""
    if path is None or str(path) == "-":
        return
    if str(path).startswith("--"):
        raise UsageError(f"{option} needs a file; {path} is an option")
    folder = path.parent
    if path.is_dir():
        raise BadInput(f"{option} {path}: is a folder; name a file")
    if not folder.is_dir():
        raise BadInput(f"{option} {path}: the folder {folder} is not there; make it first")
    if not os.access(folder, os.W_OK):
        raise BadInput(f"{option} {path}: the folder {folder} cannot be written to")


def write(path: Path, data: bytes) -> None:
    """Write all of `data` or nothing; `-` is stdout."""
    if str(path) == "-":
        sys.stdout.write(data.decode("utf-8", "replace"))
        sys.stdout.flush()
        return
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(name).chmod(0o666 & ~_umask())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as problem:
        raise Unwritable(f"{path}: cannot be written: {problem.strerror}; nothing was changed") from problem


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
