"""The cost model: the worked example to the digit, the optimum against every schedule there is."""

from __future__ import annotations

import itertools
import time
from math import inf

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.core.economics import (
    Optimum,
    Parameters,
    Trace,
    break_even,
    cost,
    optimum,
    parameters_of,
    period,
    regret,
)
from transom.core.pricing import CacheRules, Price
from transom.errors import OverBudget, UsageError

EVEN = Trace(pinned=12_000, appended=(1_500,) * 400, output=(0,) * 400)
ROOM = 10**9


def _parameters(r: float, w: float, handoff: int = 0) -> Parameters:
    return Parameters(r=r, w=w, k=5.0, seed=4_000, handoff=handoff, limit=ROOM)


@pytest.mark.parametrize(
    ("r", "w", "handoff", "overhead", "thumb", "mean_period", "single_over_best"),
    [
        (0.1, 1.25, 0, 5_000, 8.2, 8.0, 7.20),
        (0.1, 1.25, 1_500, 12_500, 12.9, 12.9, 6.24),
        (0.02, 1.0, 0, 4_000, 16.3, 16.0, 3.36),
    ],
    ids=["by-code", "handoff", "cheap-reads"],
)
def test_the_worked_example_comes_out(  # noqa: PLR0917  (one row of the table)
    r: float, w: float, handoff: int, overhead: float, thumb: float, mean_period: float, single_over_best: float
) -> None:
    parameters = _parameters(r, w, handoff)
    best = optimum(EVEN, parameters)
    assert w * 4_000 + 5.0 * handoff == overhead
    assert period(overhead, 1_500, r) == pytest.approx(thumb, abs=0.05)
    assert 400 / len(best.schedule) == pytest.approx(mean_period, abs=0.05)
    assert regret(cost(EVEN, [1], parameters), best) == pytest.approx(single_over_best, abs=0.005)
    assert cost(EVEN, best.schedule, parameters) == pytest.approx(best.cost)


@pytest.mark.parametrize(
    ("r", "w", "handoff_k", "steps"),
    [(0.1, 1.25, 5, (1.3, 3.6, 4.2, 19.9)), (0.02, 1.0, 4, (5.3, 15.2, 17.3, 83.6)), (0.1, 1.0, 8, None)],
)
def test_a_rollover_breaks_even_where_the_formula_says(
    r: float, w: float, handoff_k: float, steps: tuple[float, ...] | None
) -> None:
    """Handoff of 1,500 tokens, 12,000 pinned; windows 150k and 60k against 20k and 40k."""
    pairs = ((150_000, 20_000), (150_000, 40_000), (60_000, 20_000), (60_000, 40_000))
    found = [break_even(old=old, new=new, pinned=12_000, handoff=1_500, r=r, w=w, k=handoff_k) for old, new in pairs]
    if steps:
        assert found == pytest.approx(steps, abs=0.06)
    assert found == sorted(found)


def test_a_window_that_saves_nothing_never_pays() -> None:
    assert break_even(old=20_000, new=20_000, pinned=0, handoff=0, r=0.1, w=1, k=5) == inf
    assert break_even(old=20_000, new=10_000, pinned=0, handoff=0, r=0.0, w=1, k=5) == inf


@st.composite
def cases(draw: st.DrawFn, steps: int = 7) -> tuple[Trace, Parameters]:
    n = draw(st.integers(1, steps))
    seen = tuple(tuple(draw(st.lists(st.integers(1, t - 1), max_size=3)) if t > 1 else ()) for t in range(1, n + 1))
    trace = Trace(
        pinned=draw(st.integers(0, 300)),
        appended=tuple(draw(st.lists(st.integers(0, 200), min_size=n, max_size=n))),
        output=(0,) * n,
        seen=draw(st.sampled_from([seen, ()])),
        gaps=draw(st.sampled_from([(), tuple(draw(st.lists(st.integers(0, 600), min_size=n, max_size=n)))])),
        seeds=draw(st.sampled_from([(), tuple(draw(st.lists(st.integers(0, 90), min_size=n, max_size=n)))])),
    )
    parameters = Parameters(
        r=draw(st.sampled_from([0.02, 0.1, 0.5, 1.0])),
        w=draw(st.sampled_from([1.0, 1.25, 2.0])),
        k=5.0,
        seed=draw(st.integers(0, 120)),
        handoff=draw(st.sampled_from([0, 10])),
        side=draw(st.sampled_from([0.0, 25.0])),
        recall=draw(st.sampled_from([0, 40, 400])),
        limit=draw(st.sampled_from([900, 1_500, ROOM])),
        watermark=draw(st.sampled_from([0.5, 0.75, 1.0])),
        min_prefix_tokens=draw(st.sampled_from([0, 256])),
        granularity=draw(st.sampled_from([1, 64])),
        ttl_seconds=draw(st.sampled_from([0, 300])),
    )
    return trace, parameters


def _plain_cost(trace: Trace, schedule: tuple[int, ...], p: Parameters) -> float | None:
    """The cost model read aloud, for one schedule; None if it is not allowed."""
    n = len(trace.appended)
    total = 0.0
    for index, b in enumerate(schedule):
        end = schedule[index + 1] - 1 if index + 1 < len(schedule) else n
        s = 0 if b == 1 else (trace.seeds[b - 1] if trace.seeds else p.seed)
        sizes: list[int] = []
        for t in range(b, end + 1):
            recalls = sum(h < b for i in range(b, t + 1) for h in (trace.seen[i - 1] if trace.seen else ()))
            size = trace.pinned + s + sum(trace.appended[b - 1 : t]) + p.recall * recalls
            if size > p.limit or (size > p.watermark * p.limit and t > b):
                return None
            kept = sizes[-1] if sizes else (trace.pinned if b > 1 else 0)
            cold = bool(p.ttl_seconds and trace.gaps and trace.gaps[t - 1] > p.ttl_seconds)
            cached = 0 if cold or kept < p.min_prefix_tokens else kept // p.granularity * p.granularity
            total += p.r * cached + p.w * (size - cached)
            if t == b > 1:
                total += p.k * p.handoff + p.side
            sizes.append(size)
    return total


def _schedules(n: int) -> list[tuple[int, ...]]:
    return [(1, *rest) for size in range(n) for rest in itertools.combinations(range(2, n + 1), size)]


@given(case=cases())
def test_the_optimum_is_the_cheapest_of_all_schedules(case: tuple[Trace, Parameters]) -> None:
    trace, parameters = case
    prices: dict[tuple[int, ...], float] = {}
    for schedule in _schedules(len(trace.appended)):
        plain = _plain_cost(trace, schedule, parameters)
        if plain is None:
            with pytest.raises(OverBudget):
                cost(trace, schedule, parameters)
        else:
            prices[schedule] = plain
            assert cost(trace, schedule, parameters) == pytest.approx(plain)
    if not prices:
        with pytest.raises(OverBudget):
            optimum(trace, parameters)
        return
    best = optimum(trace, parameters)
    assert best.cost == pytest.approx(min(prices.values()))
    assert prices[best.schedule] == pytest.approx(best.cost)


@given(case=cases(steps=30), field=st.sampled_from(["r", "w", "k", "seed", "handoff", "side", "recall"]))
def test_a_dearer_world_never_makes_the_optimum_cheaper(case: tuple[Trace, Parameters], field: str) -> None:
    trace, parameters = case
    # One token more can lift a prompt over the least cached size or to the next step of what is cached, and be a bargain.
    parameters = msgspec.structs.replace(parameters, limit=ROOM, min_prefix_tokens=0, granularity=1)
    # A read never costs more than a write, or a cold moment would be one.
    step = 0.001 if field == "r" else 1
    if field == "r" and parameters.r + step > parameters.w:
        return
    dearer = msgspec.structs.replace(parameters, **{field: getattr(parameters, field) + step})
    before, after = optimum(trace, parameters), optimum(trace, dearer)
    assert after.cost >= before.cost - 1e-6 * before.cost


@given(case=cases(steps=30))
def test_more_room_never_costs_more(case: tuple[Trace, Parameters]) -> None:
    trace, parameters = case
    try:
        tight = optimum(trace, parameters)
    except OverBudget:
        return
    roomy = msgspec.structs.replace(parameters, limit=parameters.limit + 500, watermark=1.0)
    assert optimum(trace, roomy).cost <= tight.cost * (1 + 1e-9)


def test_a_handle_last_seen_in_an_earlier_window_is_recalled_there() -> None:
    trace = Trace(pinned=0, appended=(100, 100, 100, 100), output=(0,) * 4, seen=((), (), (1, 2), (3,)))
    parameters = Parameters(r=0.0, w=1.0, k=0.0, limit=ROOM, recall=10)
    assert cost(trace, [1], parameters) == 400
    assert cost(trace, [1, 2], parameters) == 400 + 10
    assert cost(trace, [1, 3], parameters) == 400 + 20
    assert cost(trace, [1, 4], parameters) == 400 + 10


def test_a_cold_moment_is_the_time_to_open_a_window() -> None:
    gaps = [0.0] * 40
    gaps[20] = 4_000.0
    trace = Trace(pinned=5_000, appended=(800,) * 40, output=(0,) * 40, gaps=tuple(gaps))
    parameters = Parameters(r=0.1, w=1.25, k=5.0, seed=12_000, limit=ROOM, ttl_seconds=300)
    assert optimum(trace, parameters).schedule == (1, 21)
    assert optimum(msgspec.structs.replace(trace, gaps=()), parameters).schedule == (1,)


def test_a_step_larger_than_the_watermark_has_a_window_of_its_own() -> None:
    trace = Trace(pinned=100, appended=(100, 700, 100), output=(0,) * 3)
    parameters = Parameters(r=0.1, w=1.0, k=0.0, limit=1_000, watermark=0.5)
    assert optimum(trace, parameters).schedule == (1, 2, 3)
    with pytest.raises(OverBudget, match="step 3 does not fit a window opened at step 2"):
        cost(trace, [1, 2], parameters)
    with pytest.raises(OverBudget, match="limit 700 tokens"):
        optimum(trace, msgspec.structs.replace(parameters, limit=700))


@pytest.mark.parametrize("schedule", [[], [2], [1, 9], [0, 1]])
def test_a_schedule_outside_the_trace_is_refused(schedule: list[int]) -> None:
    trace = Trace(pinned=1, appended=(1,) * 4, output=(0,) * 4)
    with pytest.raises(UsageError, match="starts at step 1"):
        cost(trace, schedule, Parameters(r=0.1, w=1, k=1, limit=ROOM))


@pytest.mark.parametrize(
    ("trace", "said"),
    [
        (Trace(pinned=1, appended=(), output=()), "at least one step"),
        (Trace(pinned=1, appended=(1, 2), output=(0,)), "output has one entry a step: 2, not 1"),
        (Trace(pinned=1, appended=(1, 2), output=(0, 0), gaps=(1.0,)), "gaps"),
        (Trace(pinned=1, appended=(1, 2), output=(0, 0), seen=((), (2,))), "step 2 uses a handle"),
        (Trace(pinned=1, appended=(1, 2), output=(0, 0), seen=((), (0,))), "step 2 uses a handle"),
    ],
)
def test_a_trace_that_does_not_hold_together_is_refused(trace: Trace, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        optimum(trace, Parameters(r=0.1, w=1, k=1, limit=ROOM))


def test_parameters_follow_from_a_price() -> None:
    price = Price(
        name="x",
        provider="x",
        models=("x",),
        date="2026-10",
        source="a test",
        input=2.0,
        cached=0.5,
        write=2.5,
        write_1h=4.0,
        output=8.0,
        context_window=0,
        max_output=0,
        rules=CacheRules(min_prefix_tokens=1024, granularity_tokens=128, ttl_seconds=300),
    )
    found = parameters_of(price, limit=32_000, seed=4_000, handoff=1_500, watermark=0.75, side=7.0)
    assert (found.r, found.w, found.k) == (0.25, 1.25, 4.0)
    assert (found.limit, found.seed, found.handoff, found.watermark, found.side) == (32_000, 4_000, 1_500, 0.75, 7.0)
    assert (found.min_prefix_tokens, found.granularity, found.ttl_seconds) == (1024, 128, 300)


def test_a_trace_is_written_in_the_letters_of_the_cost_model() -> None:
    trace = Trace(pinned=1, appended=(2,), output=(3,))
    assert msgspec.json.decode(msgspec.json.encode(trace)) == {
        "P": 1,
        "a": [2],
        "o": [3],
        "seen": [],
        "gap": [],
        "s": [],
    }
    parameters = Parameters(r=0.1, w=1.25, k=5, limit=9)
    assert {"r", "w", "k", "s", "O", "rho", "limit", "watermark", "minimum", "granularity", "ttl", "side"} == set(
        msgspec.json.decode(msgspec.json.encode(parameters))
    )
    assert msgspec.json.decode(msgspec.json.encode(parameters), type=Parameters) == parameters


def test_two_thousand_steps_are_solved_in_a_time_that_grows_with_their_square_at_most() -> None:
    parameters = Parameters(
        r=0.1, w=1.25, k=5.0, seed=4_000, limit=ROOM, min_prefix_tokens=1024, granularity=128, ttl_seconds=300
    )

    def seconds(steps: int) -> float:
        seen = tuple((step // 2, step - 1) if step > 1 else () for step in range(1, steps + 1))
        trace = Trace(pinned=12_000, appended=(1_500,) * steps, output=(0,) * steps, seen=seen, gaps=(5.0,) * steps)
        start = time.process_time()
        assert isinstance(optimum(trace, parameters), Optimum)
        return time.process_time() - start

    assert seconds(2_000) < 40 * min(seconds(500) for _ in range(2))  # 16 is the square, 64 the cube
