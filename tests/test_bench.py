"""The benchmarks still run, and find that every fast path gives the bytes of the slow one. Their timings are
`make bench`'s business."""

from __future__ import annotations

import os
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


def test_of_a_session_behind_the_gateway_every_break_of_the_prefix_is_a_declared_one() -> None:
    sample = "src/transom/data/sample/fix-retry-after.jsonl.gz"
    options = ["--limit", "16000", "--steps", "60", "--policy", "rollover"]
    command = [sys.executable, "-m", "bench.gateway_bill", sample, *options]
    run = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=True, env={**os.environ, "PATH": ""})
    (row,) = (line for line in run.stdout.splitlines() if "transom rollover" in line)
    *_, cost, kept, breaks, declared, _, failed = (cell.strip() for cell in row.strip("│").split("│"))
    assert int(breaks) == int(declared) > 0
    assert float(cost) < 0.5
    assert float(kept) > 0.9
    assert int(failed) == 0


def test_clients_at_once_get_their_own_answers_in_flat_memory() -> None:
    options = ["--clients", "6", "--minutes", "0.1", "--pause", "0.3"]
    command = [sys.executable, "-m", "bench.gateway_load", *options]
    run = subprocess.run(
        command, cwd=_ROOT, capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "200"}
    )
    (errors,) = (line for line in run.stdout.splitlines() if "no error" in line)
    assert "; 0 " in errors, run.stdout
    assert "none damaged" in run.stdout
