"""What `--trace` says can be computed again by a program that knows nothing but the cost model and the JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypedDict

import msgspec
import pytest

from transom import compose
from transom.adapters.memory_log import MemoryLog
from transom.core.budget import limits
from transom.core.costrule import follow
from transom.core.economics import Parameters, Trace, cost, optimum
from transom.core.policy import PRESETS
from transom.core.pricing import choose_price
from transom.importers.load import load
from transom.lab.arms import Setting
from transom.lab.replay import Replayed, replay_session
from transom.lab.trace import write_trace
from transom.testing.builders import COUNTER

ARMS = ("raw", "mask", "rollover", "rollover-cost")


class Told(TypedDict):
    """A trace as the JSON has it."""

    P: int
    a: list[int]
    seen: list[list[int]]
    gap: list[float]
    s: list[int]


def cheapest(trace: Told, at: dict[str, float]) -> tuple[float, list[int]]:
    """The optimum, from the text of the cost model: no code of the package, no cleverness."""
    n = len(trace["a"])
    pinned = trace["P"]

    def read(kept: float) -> float:
        return 0 if kept < at["minimum"] else kept // at["granularity"] * at["granularity"]

    def is_cold(t: int) -> bool:
        return bool(at["ttl"] and trace["gap"] and trace["gap"][t - 1] > at["ttl"])

    def window(b: int) -> list[float]:
        """Cost of the window opened at b through each of its steps, as far as it is allowed."""
        found: list[float] = []
        total = 0.0
        size = 0.0
        kept: float
        for t in range(b, n + 1):
            q = sum(h < b for h in trace["seen"][t - 1]) if b > 1 and trace["seen"] else 0
            if t == b:
                seed = (trace["s"][b - 1] if trace["s"] else at["s"]) if b > 1 else 0
                size = pinned + seed + trace["a"][b - 1] + at["rho"] * q
                kept = pinned if b > 1 else 0
                total += (at["k"] * at["O"] + at["side"]) if b > 1 else 0
            else:
                kept = size
                size += trace["a"][t - 1] + at["rho"] * q
            if size > at["limit"] or (t > b and size > at["watermark"] * at["limit"]):
                break
            cached = 0 if is_cold(t) or (t == 1) else read(kept)
            total += at["r"] * cached + at["w"] * (size - cached)
            found.append(total)
        return found

    best = [0.0] + [float("inf")] * n
    last = [0] * (n + 1)
    for b in range(1, n + 1):
        for t, spent in enumerate(window(b), b):
            if best[b - 1] + spent < best[t]:
                best[t], last[t] = best[b - 1] + spent, b
    schedule, t = [], n
    while t:
        schedule.append(last[t])
        t = last[t] - 1
    return best[n], schedule[::-1]


@pytest.fixture(scope="module", params=["claude-sonnet-4.5", "gpt-5.6-terra", "deepseek-flash"])
def replayed(request: pytest.FixtureRequest) -> Replayed:
    log = MemoryLog()
    with compose.sample() as path:
        (imported,) = load(path, log=log, blobs=NoBlobs(), counter=COUNTER)  # type: ignore[arg-type]
    setting = Setting(bounds=limits(64_000), counter=COUNTER, dialect=compose.dialect_for())
    price = choose_price(compose.prices(), request.param)
    policies = [PRESETS[arm] for arm in ARMS]
    return replay_session(log, imported.session_id, policies, setting, price=lambda _: price, scratch=MemoryLog)


class NoBlobs:
    def put(self, data: bytes) -> str:
        raise AssertionError(f"{len(data)} bytes of picture")


def test_an_independent_program_finds_the_same_optimum(replayed: Replayed, tmp_path: Path) -> None:
    write_trace(tmp_path / "trace.json", [replayed])
    (session,) = json.loads((tmp_path / "trace.json").read_bytes())
    assert session["trace"]["s"], "seeds were measured"
    for one in (session, *session["offloaded"]):
        best, schedule = cheapest(one["trace"], session["parameters"])
        assert one["optimum_cost"] == pytest.approx(best, rel=1e-6)
        assert one["optimum_schedule"] == schedule
        assert len(schedule) > 2


def test_regrets_follow_from_costs(replayed: Replayed, tmp_path: Path) -> None:
    write_trace(tmp_path / "trace.json", [replayed])
    (session,) = json.loads((tmp_path / "trace.json").read_bytes())
    arms = {arm["arm"]: arm for arm in session["arms"]}
    (offloaded,) = session["offloaded"]
    results = {run.result.arm: run.result for run in replayed.runs}
    for name, arm in arms.items():
        assert arm["regret"] == pytest.approx(arm["cost"] / session["optimum_cost"])
        assert results[name].regret == arm["regret"]
    assert arms["mask"]["schedule_cost"] is None
    assert arms["raw"]["schedule_regret"] == pytest.approx(arms["raw"]["schedule_cost"] / session["optimum_cost"])
    governed = arms["rollover-cost"]
    assert governed["schedule_regret"] == pytest.approx(governed["schedule_cost"] / offloaded["optimum_cost"])
    assert 1 <= governed["schedule_regret"] < arms["raw"]["schedule_regret"]
    assert governed["regret"] < arms["rollover"]["regret"]


def test_the_rule_is_nearer_the_optimum_than_going_on(replayed: Replayed) -> None:
    whole = replayed.yardsticks[0]
    assert whole.best is not None
    found = cost(whole.trace, follow(whole.trace, whole.parameters), whole.parameters)
    assert whole.best.cost <= found < 1.35 * whole.best.cost


def test_a_trace_in_json_is_the_trace(replayed: Replayed) -> None:
    whole = replayed.yardsticks[0]
    again = msgspec.json.decode(msgspec.json.encode(whole.trace), type=Trace)
    at = msgspec.json.decode(msgspec.json.encode(whole.parameters), type=Parameters)
    assert optimum(again, at) == whole.best
