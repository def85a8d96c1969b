"""A server of a benchmark as a process of its own: started, asked until it is ready, and weighed by what the system
keeps of it: the CPU time of its tree of processes, its memory and the peak of that."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["Served", "Silent", "python"]

_PATIENCE = 120.0
_LOOK = 0.02


class Silent(Exception):
    """It ended, or does not answer in time."""


class Served:
    """Use as a context. `base_url` is filled in from what the process prints as its port, if none is given."""

    def __init__(
        self, command: Sequence[str], *, base_url: str = "", ready: str = "", env: Mapping[str, str] | None = None
    ) -> None:
        """`ready`: the path that answers once the server does; none: the printed port says so."""
        self.base_url, self._ready = base_url, ready
        self._process = subprocess.Popen(
            list(command),
            stdout=subprocess.DEVNULL if base_url else subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **(env or {})},
        )

    def __enter__(self) -> Self:
        if self._process.stdout is not None:
            self.base_url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        end = time.monotonic() + _PATIENCE
        while self._ready and not self._answers():
            if time.monotonic() > end or self._process.poll() is not None:
                self._stop()
                raise Silent(f"{self._process.args!r} does not answer at {self.base_url}{self._ready}")
            time.sleep(_LOOK)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(self.base_url + self._ready, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def cpu(self) -> float:
        """Seconds of CPU so far, of the process and of what it started and still runs."""
        # The clock of another process: clock_getcpuclockid(3) makes this number of its id.
        return sum(time.clock_gettime((~pid << 3) | 2) for pid in self._tree())

    def resident(self) -> int:
        """Bytes of memory."""
        return sum(_status(pid, "VmRSS") for pid in self._tree())

    def peak(self) -> int:
        """The most there ever was of it, summed over the processes."""
        return sum(_status(pid, "VmHWM") for pid in self._tree())

    def _tree(self) -> list[int]:
        found = [self._process.pid]
        for pid in found:
            with suppress(OSError):
                for task in Path(f"/proc/{pid}/task").iterdir():
                    found.extend(map(int, (task / "children").read_text().split()))
        return found


def _status(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    return 0


def python(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", module, *arguments]
