"""The cost rule: a schedule from the past alone, near the period of the cost model, and never past the watermark."""

from __future__ import annotations

from math import inf

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.core.costrule import (
    Estimates,
    Moment,
    Reuse,
    Tariff,
    follow,
    note_growth,
    note_handoff,
    note_lookups,
    payback,
    remaining_steps,
    reuse_of,
    tariff_of,
    weigh,
)
from transom.core.economics import Parameters, Trace, break_even, cost, optimum, period, regret
from transom.core.pricing import CacheRules, Price
from transom.errors import OverBudget

ROOM = 10**9
WARM = Tariff(r=0.1, w=1.25, k=5.0)
NO_REUSE = Reuse(rate=0.0)


@st.composite
def traces(draw: st.DrawFn, most: int = 60) -> Trace:
    n = draw(st.integers(1, most))
    sizes = st.one_of(st.integers(0, 3_000), st.integers(0, 30_000))
    seen = tuple(tuple(draw(st.lists(st.integers(1, t - 1), max_size=4)) if t > 1 else ()) for t in range(1, n + 1))
    return Trace(
        pinned=draw(st.integers(0, 20_000)),
        appended=tuple(draw(st.lists(sizes, min_size=n, max_size=n))),
        output=(0,) * n,
        seen=draw(st.sampled_from([seen, ()])),
        gaps=draw(st.sampled_from([(), tuple(draw(st.lists(st.integers(0, 900), min_size=n, max_size=n)))])),
        seeds=draw(st.sampled_from([(), tuple(draw(st.lists(st.integers(0, 9_000), min_size=n, max_size=n)))])),
    )


@st.composite
def parameters(draw: st.DrawFn, limit: int = 0) -> Parameters:
    return Parameters(
        r=draw(st.sampled_from([0.0, 0.02, 0.1, 0.5, 1.0])),
        w=draw(st.sampled_from([1.0, 1.25])),
        k=draw(st.sampled_from([1.0, 5.0])),
        seed=draw(st.integers(0, 9_000)),
        handoff=draw(st.sampled_from([0, 1_500])),
        recall=draw(st.sampled_from([0, 400])),
        limit=limit or draw(st.sampled_from([60_000, 200_000, ROOM])),
        watermark=draw(st.sampled_from([0.5, 0.75, 1.0])),
        min_prefix_tokens=draw(st.sampled_from([0, 1_024])),
        granularity=draw(st.sampled_from([1, 128])),
        ttl_seconds=draw(st.sampled_from([0, 300])),
    )


def shortened(trace: Trace, steps: int) -> Trace:
    return msgspec.structs.replace(
        trace,
        appended=trace.appended[:steps],
        output=trace.output[:steps],
        seen=trace.seen[:steps],
        gaps=trace.gaps[:steps],
        seeds=trace.seeds[:steps],
    )


# -- on a whole trace


@given(trace=traces(), at=parameters(), share=st.floats(0.0, 1.0))
def test_what_comes_later_changes_no_decision(trace: Trace, at: Parameters, share: float) -> None:
    steps = max(1, int(share * len(trace.appended)))
    assert follow(shortened(trace, steps), at) == tuple(step for step in follow(trace, at) if step <= steps)


@given(trace=traces(), at=parameters())
def test_the_rule_never_waits_past_the_watermark(trace: Trace, at: Parameters) -> None:
    """Its schedule is allowed wherever any schedule is: a window above the line holds a single step."""
    try:
        best = optimum(trace, at)
    except OverBudget:
        return
    try:
        assert cost(trace, follow(trace, at), at) >= best.cost * (1 - 1e-9)
    except OverBudget:
        # What a step has just looked up, with its seed and what arrived, is more than the limit itself.
        alone = [trace.pinned + (trace.seeds[t] if trace.seeds else at.seed) + a for t, a in enumerate(trace.appended)]
        recalls = [at.recall * len(handles) for handles in trace.seen or [()] * len(alone)]
        assert any(size + recalled > at.limit for size, recalled in zip(alone, recalls, strict=True))


@pytest.mark.parametrize(
    ("r", "w", "handoff", "optimum_period"), [(0.1, 1.25, 0, 8.0), (0.1, 1.25, 1_500, 12.9), (0.02, 1.0, 0, 16.0)]
)
def test_on_the_worked_example_the_rule_is_near_the_cheapest_schedule(
    r: float, w: float, handoff: int, optimum_period: float
) -> None:
    even = Trace(pinned=12_000, appended=(1_500,) * 400, output=(0,) * 400)
    at = Parameters(r=r, w=w, k=5.0, seed=4_000, handoff=handoff, limit=ROOM)
    found = follow(even, at)
    # It does not know at first that nothing is ever looked up, so its first windows are longer.
    assert optimum_period <= 400 / len(found) <= 1.25 * optimum_period
    assert regret(cost(even, found, at), optimum(even, at)) < 1.02


def test_a_cold_cache_is_the_moment_for_a_new_window() -> None:
    gaps = [0.0] * 40
    gaps[20] = 4_000.0
    trace = Trace(pinned=5_000, appended=(800,) * 40, output=(0,) * 40, gaps=tuple(gaps))
    at = Parameters(r=0.02, w=1.25, k=5.0, seed=2_000, limit=ROOM, ttl_seconds=300)
    assert 21 in follow(trace, at)
    assert 21 not in follow(msgspec.structs.replace(trace, gaps=()), at)


def test_free_reads_need_no_new_window_until_the_watermark() -> None:
    trace = Trace(pinned=0, appended=(1_000,) * 100, output=(0,) * 100)
    at = Parameters(r=0.0, w=1.0, k=1.0, seed=1_000, limit=40_000, watermark=0.75)
    found = follow(trace, at)
    assert found[:3] == (1, 31, 60)


# -- at one boundary


def moment(gain: int, seed: int = 4_000, pinned: int = 12_000, **more: float) -> Moment:
    return msgspec.convert({"gain": gain, "seed": seed, "pinned": pinned, **more}, Moment)


def settled(growth: int = 1_500) -> Estimates:
    """A session that has grown evenly for long and never looked anything up."""
    known = Estimates()
    for age in range(400):
        note_growth(known, growth)
        note_lookups(known, age % 10, 0)
    return known


def test_with_even_growth_and_nothing_looked_up_the_period_is_the_formula() -> None:
    found = weigh(settled(), WARM, NO_REUSE, moment(0, steps=10_000))
    assert found.period == pytest.approx(period(5_000, 1_500, 0.1), abs=1)
    assert found.due_at == pytest.approx(found.period * 1_500)


@given(st.integers(0, 60_000), st.integers(0, 60_000), st.booleans())
def test_if_a_gain_is_enough_so_is_a_larger_one(one: int, other: int, is_cold: bool) -> None:
    less, more = sorted((one, other))
    tariff = msgspec.structs.replace(WARM, ttl_seconds=300)
    gap = 900.0 if is_cold else 10.0
    found = [weigh(Estimates(), tariff, Reuse(), moment(gain, gap_seconds=gap, steps=80)) for gain in (less, more)]
    assert found[1].is_due or not found[0].is_due
    assert found[1].saving >= found[0].saving


@pytest.mark.parametrize("field", ["seed", "handoff", "side"])
def test_a_dearer_opening_is_due_later(field: str) -> None:
    cheap = weigh(Estimates(), WARM, Reuse(), moment(20_000, steps=80))
    dear = weigh(Estimates(), WARM, Reuse(), moment(20_000, steps=80, **{field: 9_000}))
    assert dear.due_at > cheap.due_at
    assert dear.price > cheap.price


def test_more_to_look_up_is_due_later_and_a_reply_that_used_much_sooner() -> None:
    due = [weigh(Estimates(), WARM, reuse, moment(0)).due_at for reuse in (NO_REUSE, Reuse(rate=2.0), Reuse(rate=6.0))]
    assert due == sorted(due)
    assert weigh(Estimates(), WARM, Reuse(rate=6.0, busy=3.0), moment(0)).due_at < due[-1]


def test_the_end_of_a_task_and_a_cold_cache_come_sooner() -> None:
    due_at = weigh(Estimates(), WARM, Reuse(), moment(0)).due_at
    almost = int(0.9 * due_at)
    assert not weigh(Estimates(), WARM, Reuse(), moment(almost)).is_due
    assert weigh(Estimates(), WARM, Reuse(), moment(almost, is_task_end=True)).is_due
    cold = msgspec.structs.replace(WARM, ttl_seconds=300)
    found = weigh(Estimates(), cold, Reuse(), moment(almost, gap_seconds=301))
    assert (found.is_cold, found.is_due) == (True, True)
    assert not weigh(Estimates(), cold, Reuse(), moment(almost, gap_seconds=300)).is_due
    assert not weigh(Estimates(), cold, Reuse(), moment(0, gap_seconds=301)).is_due


def test_a_head_that_is_too_short_to_be_cached_is_paid_for_at_every_opening() -> None:
    short = msgspec.structs.replace(WARM, min_prefix_tokens=20_000)
    assert weigh(Estimates(), short, Reuse(), moment(0)).price > weigh(Estimates(), WARM, Reuse(), moment(0)).price


@pytest.mark.parametrize(("r", "w", "k"), [(0.1, 1.25, 5.0), (0.02, 1.0, 4.0)])
@pytest.mark.parametrize(("old", "new"), [(150_000, 20_000), (150_000, 40_000), (60_000, 20_000), (60_000, 40_000)])
def test_the_break_even_is_that_of_the_cost_model(r: float, w: float, k: float, old: int, new: int) -> None:
    found = weigh(
        settled(),
        Tariff(r=r, w=w, k=k),
        NO_REUSE,
        moment(old - new, seed=new - 12_000, handoff=1_500),
    )
    assert found.pays_after == pytest.approx(break_even(old=old, new=new, pinned=12_000, handoff=1_500, r=r, w=w, k=k))


def test_a_window_that_saves_nothing_never_pays() -> None:
    found = weigh(Estimates(), WARM, Reuse(), moment(0))
    assert (found.pays_after, found.is_due) == (inf, False)
    assert not weigh(Estimates(), WARM, Reuse(), moment(-500)).is_due


def test_a_session_goes_on_for_as_long_as_it_did_or_for_its_open_tasks() -> None:
    assert remaining_steps(3) == 50
    assert remaining_steps(180) == 180
    assert remaining_steps(100, open_tasks=6, closed_tasks=2) == 300
    assert remaining_steps(100, open_tasks=6) == 100


def test_estimates_follow_what_is_seen() -> None:
    known = Estimates()
    for _ in range(60):
        note_growth(known, 400)
    assert known.growth_tokens == pytest.approx(400, rel=0.02)
    assert known.growth_spread < 100
    note_growth(known, 20_000)
    assert known.growth_spread > 3_000
    note_handoff(known, 500)
    assert known.handoff == 1_000


def test_reuse_follows_the_newest_steps_and_tells_when_they_are_busy() -> None:
    assert reuse_of([]).rate == Reuse().rate
    assert reuse_of([10] * 200).rate == pytest.approx(10, rel=0.02)
    assert reuse_of([10] * 200, scale=2.0).rate == pytest.approx(20, rel=0.02)
    assert reuse_of([4] * 50).busy == pytest.approx(1, abs=0.05)
    assert 1.5 < reuse_of([*[4] * 50, 20]).busy <= 3
    assert reuse_of([*[4] * 50, 0, 0, 0]).busy < 0.8


def test_a_rewrite_pays_when_what_it_frees_has_been_read_often_enough() -> None:
    assert payback(WARM, behind=100_000, freed=60_000) == pytest.approx(1.15 * 100_000 / 6_000)
    assert payback(WARM, behind=100_000, freed=0) == inf
    assert payback(Tariff(r=0.0, w=1.0, k=1.0), behind=1, freed=1) == inf


def test_a_tariff_follows_from_a_price() -> None:
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
        rules=CacheRules(min_prefix_tokens=1024, ttl_seconds=300),
    )
    assert tariff_of(price) == Tariff(
        r=0.25, w=1.25, k=4.0, min_prefix_tokens=1024, ttl_seconds=300, usd_per_million=2.0
    )


def test_a_session_that_does_not_grow_needs_no_new_window() -> None:
    known = settled(growth=0)
    for _ in range(400):
        note_growth(known, 0)
    found = weigh(known, WARM, NO_REUSE, moment(50_000))
    assert (found.due_at, found.is_due) == (inf, False)


def test_what_a_step_looks_up_goes_into_a_new_window_where_this_one_cannot_hold_it() -> None:
    """Reading is free, so only the watermark opens windows: before step 3, and at step 5 for its ten recalls."""
    trace = Trace(pinned=0, appended=(4_000, 4_000, 4_000, 100, 100), output=(0,) * 5, seen=((), (), (), (), (1,) * 10))
    at = Parameters(r=0.0, w=1.0, k=1.0, seed=500, recall=400, limit=11_500, watermark=0.7)
    assert follow(trace, at) == (1, 3, 5)
    assert cost(trace, (1, 3, 5), at) > 0
