"""The lab: strategies over long sessions. `python -m bench.lab` prints P9.

What is timed is what a replay does for each arm: every recorded fact appended and folded, and at every reply the
boundary, the request with its verdict, what was kept of the last one, and its price. Reading the recording and finding
its handles is done once for all arms and stands beside it.

The control, read_and_parse, reads the same events as rows of a plain SQLite file and parses each as JSON.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec

from bench.figure import Figure, cpu, exponent, judge, rounds, table
from bench.workload import conversation, opened
from transom.adapters.counter import open_counter
from transom.adapters.memory_log import MemoryLog
from transom.adapters.price_table import load_prices
from transom.adapters.provider_anthropic import DIALECT
from transom.core.budget import limits
from transom.core.event import Event, encode_fact
from transom.core.policy import PRESETS
from transom.core.pricing import Price, find_price
from transom.lab.arms import Setting, drive
from transom.lab.metrics import run_of
from transom.lab.script import Script, script_of

__all__ = ["run"]

_ARMS = ("raw", "fifo", "mask", "gssc", "rollover")
_LIMIT = 128_000
_SHARE = 0.15


def run(scale: float = 1.0, seed: int = 1) -> list[Figure]:
    """All figures; `scale` makes the workloads smaller or larger: 3.4 is 100,000 events, of which reading alone takes
    a minute."""
    sizes = [max(60, int(number * scale)) for number in (1000, 3000, 10_000, 30_000)]
    log = MemoryLog()
    log.append("s", 0, [opened(), *conversation(sizes[-1], seed)])
    made: list[Script] = []
    reading = cpu(lambda: made.append(script_of(log, "s")))
    lab = _Lab(made[0])
    with _stored(lab.script.events) as control:
        figures = [_arm(lab, name, sizes, control) for name in _ARMS]
    shared = 1e6 * reading / len(lab.script.events)
    return [*figures, *_several(sizes[1], shared)]


class _Lab:
    """One recording, replayed up to any event of it."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.setting = Setting(bounds=limits(_LIMIT), counter=open_counter(), dialect=DIALECT)
        self.price: Price = find_price(load_prices(), "claude-sonnet-4-5")

    def replay(self, name: str, events: int) -> None:
        script = replace(self.script, events=self.script.events[:events])
        *_, arm = drive(script, PRESETS[name], self.setting, MemoryLog())
        made = run_of(script, arm, self.price, context_limit=_LIMIT, seconds=0.0)
        assert made.result.undeclared_misses == made.result.unpaired_calls == 0


@contextmanager
def _stored(events: Sequence[Event]) -> Iterator[Callable[[int], None]]:
    """read_and_parse of the first so many events."""
    decode = msgspec.json.Decoder().decode
    with tempfile.TemporaryDirectory(prefix="bench-lab-") as name:
        db = sqlite3.connect(Path(name) / "plain.db")
        db.execute("CREATE TABLE event (seq INTEGER PRIMARY KEY, payload BLOB)")
        rows = ((seq, encode_fact(event.fact)) for seq, event in enumerate(events, 1))
        with db:
            db.executemany("INSERT INTO event VALUES (?, ?)", rows)

        def control(count: int) -> None:
            for (payload,) in db.execute("SELECT payload FROM event WHERE seq <= ? ORDER BY seq", (count,)):
                decode(payload)

        yield control
        db.close()


def _arm(lab: _Lab, name: str, sizes: Sequence[int], control: Callable[[int], None]) -> Figure:
    points: list[tuple[float, float]] = []
    shares: list[float] = []
    for size in sizes:
        spent = rounds(
            {
                "ours": lambda size=size: cpu(lambda: lab.replay(name, size)),  # type: ignore[misc]
                "control": lambda size=size: cpu(lambda: control(size)),  # type: ignore[misc]
            },
            7 if size <= sizes[1] else 3 if size <= sizes[2] else 1,
        )
        points.append((size, spent["ours"]))
        shares.append(spent["control"] / spent["ours"])
    slope = exponent(points)
    share = shares[-1]
    return Figure(
        id="P9",
        what=f"{name} over a recording",
        goal=f"exponent <= 1.1, >= {_SHARE} x read_and_parse",
        value=f"{slope:.2f}, {share:.2f} x",
        verdict=judge(slope <= 1.1 and share >= _SHARE),
        detail=", ".join(f"{size:,}: {size / seconds:,.0f} events/s" for size, seconds in points),
    )


def _several(size: int, shared: float) -> list[Figure]:
    """K strategies against one, the reading of the recording included in both."""
    log = MemoryLog()
    log.append("s", 0, [opened(), *conversation(size)])

    def work(arms: Sequence[str]) -> None:
        one = _Lab(script_of(log, "s"))
        for name in arms:
            one.replay(name, size)

    spent = rounds({"one": lambda: cpu(lambda: work(["gssc"])), "all": lambda: cpu(lambda: work(_ARMS))}, 3)
    ratio = spent["all"] / spent["one"]
    most = 0.5 * len(_ARMS) + 1
    return [
        Figure(
            id="P9",
            what=f"{len(_ARMS)} strategies against one, reading included, {size:,} events",
            goal="at most 0.5 K + 1",
            value=f"{ratio:.2f}",
            verdict=judge(ratio <= most),
            detail=f"reading, folding and the index of handles: {shared:.0f} us an event, once for all arms",
        )
    ]


if __name__ == "__main__":
    table(run(), "Lab")
