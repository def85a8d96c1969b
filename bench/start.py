"""The process: how long it takes to start, how much memory it holds. `python -m bench.start` prints P14 and P13.

Both are measured in processes of their own, by the figures the system keeps for a child.
"""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from bench.figure import Figure, judge, table
from bench.kernel import PLAIN, grown, ours, pairs_of, rules_for
from bench.workload import conversation
from transom.adapters.blobs import DirBlobs
from transom.adapters.sqlite_log import SqliteLog
from transom.session import Session

__all__ = ["peak", "resident", "run"]

_IMPORT_MS = 150
_COMMAND_MS = 250
_RUNS = 7
_SESSIONS = 8
_STEPS = 200
_SIZE = 4_000_000
_CACHES = _SESSIONS * 2 * 2_048_000 + 8_400_000
"""Bytes: two connections a log, each with SQLite's default page cache, and the counter's memo (`adapters.counter`)."""


def run(scale: float = 1.0, seed: int = 1) -> list[Figure]:
    """All figures; `scale` makes the sessions of P13 smaller or larger."""
    return [*_start(), *_memory(scale, seed)]


# -- P14


def _start() -> list[Figure]:
    commands = {
        "bare": [sys.executable, "-c", "pass"],
        "import": [sys.executable, "-c", "from transom import Session"],
        "help": [sys.executable, "-m", "transom", "--help"],
        "run": [sys.executable, "-m", "transom", "run", "--help"],
    }
    spent: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(_RUNS + 1):
        for name, command in commands.items():
            spent[name].append(_child_cpu(command))
    # The first of each writes the bytecode.
    usual = {name: 1e3 * median(values[1:]) for name, values in spent.items()}
    worst = 1e3 * max(spent["run"][1:])
    added = usual["import"] - usual["bare"]
    return [
        Figure(
            id="P14",
            what="`from transom import Session`",
            goal=f"at most {_IMPORT_MS} ms CPU",
            value=f"{usual['import']:.0f} ms",
            verdict=judge(usual["import"] <= _IMPORT_MS),
            detail=f"bare python {usual['bare']:.0f} ms, so {added:.0f} ms are ours",
        ),
        Figure(
            id="P14",
            what="`transom --help`",
            goal="-",
            value=f"{usual['help']:.0f} ms",
            verdict="told",
        ),
        Figure(
            id="P14",
            what="`transom run --help`",
            goal=f"at most {_COMMAND_MS} ms CPU",
            value=f"{usual['run']:.0f} ms",
            verdict=judge(usual["run"] <= _COMMAND_MS),
            detail=f"the slowest of {_RUNS} processes {worst:.0f} ms; bare python {usual['bare']:.0f} ms",
        ),
    ]


def _child_cpu(command: list[str]) -> float:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


# -- P13


def _memory(scale: float, seed: int) -> list[Figure]:
    command = [
        sys.executable,
        "-m",
        "bench.start",
        str(int(_SIZE * scale)),
        str(max(4, int(_STEPS * scale))),
        str(seed),
    ]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    start, live, middle, live_middle, end, live_end, peak = map(int, said.split())
    times = (peak - start - _CACHES) / live_end
    grown_by, added = end - middle, live_end - live_middle
    return [
        Figure(
            id="P13",
            what=f"peak of memory, {_SESSIONS} sessions of {live / _SESSIONS / 1e6:.1f} MB",
            goal=f"at most 3 x the live bodies + {_CACHES / 1e6:.0f} MB of caches",
            value=f"{times:.2f} x",
            verdict=judge(times <= 3),
            detail=f"{(peak - start) / 1e6:.0f} MB in all for bodies of {live_end / 1e6:.0f} MB",
        ),
        Figure(
            id="P13",
            what="growth in the second half of the steps",
            goal="at most 3 x what the bodies grew by",
            value=f"{grown_by / added:.2f} x",
            verdict=judge(grown_by <= 3 * added),
            detail=f"{grown_by / 1e6:.1f} MB while the bodies grew by {added / 1e6:.1f} MB",
        ),
    ]


def _hold(size: int, steps: int, seed: int) -> None:
    """In the child: print the memory at the start, and memory and live bytes when grown, half-way and at the end."""
    with tempfile.TemporaryDirectory(prefix="bench-start-") as name:
        folder = Path(name)
        rules_for(PLAIN).counter.measure("the vocabulary is loaded")
        start = resident()
        sessions = []
        drafts = []
        for number in range(_SESSIONS):
            log = SqliteLog(folder / str(number) / "log.db", DirBlobs(folder / str(number) / "blobs", is_synced=False))
            # A seed of its own: sessions of the same texts would share them.
            drafts.append(conversation(3 * (size // 1700 + steps), seed + number))
            sessions.append(grown(log, drafts[-1], rules_for(PLAIN), until=size))
        told = [start, _live(sessions)]
        for step in range(1, steps + 1):
            for session, following in zip(sessions, drafts, strict=True):
                ours(session, pairs_of(following, 1)[0])
            if step in (steps // 2, steps):
                gc.collect()
                told += [resident(), _live(sessions)]
        print(*told, peak())


def _live(sessions: list[Session]) -> int:
    return sum(sum(map(len, session._rendering.body)) for session in sessions)


def peak() -> int:
    """Of this program: `ru_maxrss` would also be that of the process that started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _hold(*map(int, sys.argv[1:]))
    else:
        table(run(), "The process")
