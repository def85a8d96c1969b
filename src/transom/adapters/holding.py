"""Who runs a session: an advisory lock on a file, which the system frees with the process, whatever its end.

The log itself needs no lock, since an append that lost a race is decided again. This is about tools: two processes that
go on with one session would both run its open calls.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transom.errors import UsageError

__all__ = ["hold"]


@contextmanager
def hold(folder: Path, session_id: str) -> Iterator[None]:
    """Hold `session_id` as long as this lasts. Raises `UsageError` with the process that does."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / hashlib.sha256(os.fsencode(session_id)).hexdigest()[:32]
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read(20).strip() or "another one"
            raise UsageError(
                f"session {session_id} is run by process {holder} now; wait for its end, or end it"
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
