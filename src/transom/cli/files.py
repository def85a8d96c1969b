"""Files a command writes: checked before the work, whole or absent after it.

A regular file is replaced in one move, a link's target in its place. What is no regular file (a terminal, a pipe,
`/dev/null`) is written into: a move would put a file where the device was.
"""

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
    try:
        is_folder, is_device = path.is_dir(), _is_device(path)
    except OSError as problem:
        raise BadInput(f"{option} {path}: {problem.strerror}; name another file") from None
    if is_folder:
        raise BadInput(f"{option} {path}: is a folder; name a file")
    if is_device:
        return
    folder = Path(os.path.realpath(path)).parent if path.is_symlink() else path.parent
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
        path = Path(os.path.realpath(path))
        if _is_device(path):
            path.write_bytes(data)
            return
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


def _is_device(path: Path) -> bool:
    return path.exists() and not path.is_file()


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
