"""The benchmarks still run, and find that every fast path gives the bytes of the slow one. Their timings are
`make bench`'s business."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[1]
_GOALS = {
    "store": {"P1", "P1b", "P1c", "P1d", "P2", "P7", "P10", "P10c"},
    "counting": {"P6", "P6b"},
    "importing": {"P11"},
    "kernel": {"P3", "P3b", "P3c", "P4", "P8"},
    "cache": {"C1", "C1b", "C2"},
    "live": {"P3", "P13"},
    "lab": {"P9"},
    "start": {"P13", "P14"},
    "gateway": {"P5", "P5b", "P5c", "P5d", "P5e", "P13", "P14"},
    "generations": {"D7"},
}


@pytest.mark.parametrize("name", sorted(_GOALS))
def test_a_small_benchmark_runs_and_names_its_goals(name: str) -> None:
    command = [sys.executable, "-m", "bench", name, "--scale", "0.01"]
    run = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    missing = {goal for goal in _GOALS[name] if f" {goal} " not in run.stdout}
    assert not missing, run.stdout


def test_an_unknown_benchmark_is_refused_with_the_names_there_are() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "bench", "speed"], cwd=_ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 2
    assert "no benchmark is called speed; there are store, counting, importing, kernel, cache, " in run.stderr
