"""One measured figure with its goal, and the table of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from statistics import fmean, median
from time import perf_counter, process_time
from typing import Literal

from rich.console import Console
from rich.table import Table

__all__ = ["Figure", "Verdict", "cpu", "exponent", "judge", "rounds", "table", "wall"]

Verdict = Literal["met", "not met", "told"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """`id` is the goal's; `what` the metric; `goal` as it is written; `verdict` is `told` where there is no goal."""

    id: str
    what: str
    goal: str
    value: str
    verdict: Verdict
    detail: str = ""


def judge(is_met: bool) -> Verdict:
    return "met" if is_met else "not met"


def cpu(work: Callable[[], object]) -> float:
    """Seconds of CPU the process spends on `work`."""
    start = process_time()
    work()
    return process_time() - start


def wall(work: Callable[[], object]) -> float:
    """Seconds on the clock."""
    start = perf_counter()
    work()
    return perf_counter() - start


def rounds(arms: Mapping[str, Callable[[], float]], count: int = 7) -> dict[str, float]:
    """The median of each arm over interleaved rounds; an arm returns the seconds of what it times, and no more."""
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(count):
        for name, arm in arms.items():
            seconds[name].append(arm())
    return {name: median(values) for name, values in seconds.items()}


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """The slope of a log-log line through (size, cost)."""
    xs, ys = [log(size) for size, _ in points], [log(cost) for _, cost in points]
    x, y = fmean(xs), fmean(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)


def table(figures: Sequence[Figure], title: str) -> None:
    """Print the figures for a person."""
    grid = Table(title=title, title_justify="left")
    for name in ("id", "what", "goal", "value", "verdict", "detail"):
        grid.add_column(name, overflow="fold", no_wrap=name == "id")
    style = {"met": "green", "not met": "red", "told": "dim"}
    for figure in figures:
        verdict = f"[{style[figure.verdict]}]{figure.verdict}[/]"
        grid.add_row(figure.id, figure.what, figure.goal, figure.value, verdict, figure.detail)
    Console().print(grid)
