"""What a session shows of its own cost is folded from facts; the boundary opens a window when that pays."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from transom.core import pace
from transom.core.costrule import Estimates, Outlook, Tariff
from transom.core.event import (
    BlockReplaced,
    HostSaid,
    RequestSent,
    TodoChanged,
    TodoItem,
    WindowOpened,
    WindowRefused,
)
from transom.core.policy import PRESETS, Policy
from transom.core.projection import project
from transom.core.surface import GUIDANCE
from transom.testing.builders import Story, rules, text
from transom.testing.live import Live, Shelf, handoff, step

WARM = Tariff(r=0.1, w=1.25, k=5.0, ttl_seconds=300)
LINES = "a line of output that somebody wanted to see\n"
LIMIT = 200_000


def story_of(tariff: Tariff | None = WARM, policy: str | Policy = "rollover-cost", limit: int = LIMIT) -> Story:
    made = Story(rules(policy, limit, tariff=tariff))
    made.user("Build the thing. You must never touch a.py.")
    return made


def opened(story: Story) -> list[WindowOpened]:
    return [event.fact for event in story.events() if isinstance(event.fact, WindowOpened)]


def known(story: Story) -> Estimates:
    return story.session.state.estimates


def at(story: Story, ms: int) -> None:
    """From here on the clock shows this."""
    story.session.rules = replace(story.session.rules, clock=lambda: ms)


# -- what is folded


def test_growth_is_what_a_step_appends() -> None:
    story = story_of(None)
    for _ in range(60):
        story.work(LINES * 30)
    state = story.session.state
    real = state.calibration.estimate(state.window.counts, len(state.window.items)) / 60
    assert known(story).growth_tokens == pytest.approx(real, rel=0.05)


def test_a_restart_has_the_same_estimates() -> None:
    story = story_of()
    for number in range(40):
        story.work(LINES * 20, arguments=f'{{"path":"src/file_{number % 7}.py"}}')
    assert opened(story)
    before = msgspec.json.encode(story.session.state.estimates)
    assert msgspec.json.encode(story.reopen().state.estimates) == before
    assert project(story.events()) == story.session.state


def test_the_growth_of_a_step_that_opens_a_window_counts_once() -> None:
    whole, cut = story_of(None), story_of(None)
    for number in range(30):
        whole.work(LINES * 30)
        cut.work(LINES * 30)
        if number % 10 == 9:
            cut.session.rules = replace(cut.session.rules, policy=_now)
            cut.session.boundary()
            cut.session.rules = replace(cut.session.rules, policy=PRESETS["rollover"])
    assert len(opened(cut)) == 3
    assert known(cut).growth_tokens == pytest.approx(known(whole).growth_tokens, rel=0.05)
    assert known(cut).growth_weight == pytest.approx(known(whole).growth_weight, rel=0.01)


_now = Policy(name="now", when="watermark", how="rollover", watermark=0.001, low_water=0.0, min_gain=0.0)


def test_what_is_looked_up_again_is_no_growth_but_the_price_of_the_window() -> None:
    story = story_of(None)
    story.say(HostSaid(kind="recall", blocks=(text(LINES * 40),)))
    run(story, 3)
    assert known(story).lookups == 0, "the first window has nothing to look up"
    _reopen(story)
    growth = known(story).growth_tokens
    story.say(HostSaid(kind="recall", blocks=(text(LINES * 40),)))
    story.work(LINES)
    assert known(story).lookups > 300
    assert known(story).growth_tokens <= growth


def test_a_file_read_in_an_earlier_window_is_looked_up_again_once() -> None:
    story = story_of(None)
    looked_up = []
    for number in range(5):
        story.work(LINES * 40, name="read", arguments='{"path":"src/a.py"}')
        looked_up.append(known(story).fetched)
        if number == 2:
            _reopen(story)
    assert looked_up == [0, 0, 0, looked_up[3], 0]
    assert looked_up[3] > 300


def test_a_recall_by_the_model_is_looked_up_and_a_new_file_is_not() -> None:
    story = story_of(None)
    run(story, 3)
    _reopen(story)
    story.work(LINES * 40, name="read", arguments='{"path":"src/new.py"}')
    assert known(story).fetched == 0
    story.work(LINES * 40, name="recall", arguments='{"query":"x"}')
    assert known(story).fetched > 300


def _reopen(story: Story) -> None:
    given = story.session.rules
    story.session.rules = replace(given, policy=_now)
    story.session.boundary()
    story.session.rules = given
    assert story.session.state.window.generation > 0


def test_reuse_is_counted_over_calls_and_not_where_the_last_one_said_it() -> None:
    story = story_of(None)
    for number in range(12):
        story.work("ok", arguments=f'{{"path":"src/file_{number}.py"}}')
    fresh = pace.reuse_in(story.session.state).rate
    for _ in range(12):
        story.work("ok", arguments='{"path":"src/file_1.py"}')
    assert pace.reuse_in(story.session.state).rate < fresh, "named by the call before: it still stands there"
    for number in range(12):
        story.work("ok", arguments=f'{{"path":"src/file_{number}.py and src/file_{number + 3}.py"}}')
    assert pace.reuse_in(story.session.state).rate > fresh


# -- what the boundary makes of it


def run(story: Story, steps: int, lines: int = 120) -> None:
    for _ in range(steps):
        story.work(LINES * lines)


def test_windows_open_when_that_is_cheaper_and_say_so() -> None:
    story = story_of()
    run(story, 60)
    causes = {fact.cause for fact in opened(story)}
    assert causes == {"cost"}
    assert 2 <= len(opened(story)) <= 12
    assert all(fact.tokens_before - fact.tokens_after >= 6_000 for fact in opened(story))
    reasons = [
        reason for event in story.events() if isinstance(event.fact, RequestSent) for reason in event.fact.reasons
    ]
    assert reasons.count("reset:rollover") == len(opened(story))
    assert max(fact.tokens_before for fact in opened(story)) < 0.2 * story.session.rules.bounds.hard


def test_without_prices_nothing_is_weighed_and_the_watermark_rules() -> None:
    story = story_of(None, limit=16_000)
    run(story, 60)
    assert {fact.cause for fact in opened(story)} == {"watermark"}


def test_no_window_waits_past_the_watermark_whatever_it_costs() -> None:
    free = Tariff(r=0.0, w=1.0, k=1.0)
    story = story_of(free, limit=16_000)
    line = story.session.rules.policy.watermark * story.session.rules.bounds.hard
    for _ in range(60):
        story.work(LINES * 40)
        sent = [event.fact for event in story.events() if isinstance(event.fact, RequestSent)]
        assert sent[-1].tokens <= line
    assert {fact.cause for fact in opened(story)} == {"watermark"}


def test_a_dearer_read_opens_windows_more_often() -> None:
    counts = []
    for r in (0.02, 0.1, 0.5):
        story = story_of(msgspec.structs.replace(WARM, r=r))
        run(story, 60)
        counts.append(len(opened(story)))
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


def test_a_cold_cache_opens_a_window_at_once() -> None:
    """The clock stands still, so the cache is warm until it jumps."""
    cheap = msgspec.structs.replace(WARM, r=0.02)
    story = story_of(cheap)
    at(story, 1_000_000)
    run(story, 12, lines=60)
    assert not opened(story)
    at(story, 1_000_000 + 300_000)
    story.session.boundary()
    assert not opened(story), "to the second it is warm"
    at(story, 1_000_000 + 301_000)
    story.session.boundary()
    assert [fact.cause for fact in opened(story)] == ["cost"]


def test_a_task_that_ends_brings_the_moment_nearer() -> None:
    items = tuple(TodoItem(text=f"task {number}", status="pending") for number in range(4))
    done = (msgspec.structs.replace(items[0], status="completed"), *items[1:])
    story = story_of()
    story.say(TodoChanged(items=items))
    run(story, 3)

    def weighed(gain: int) -> Outlook:
        return pace.outlook(story.session.state, WARM, gain=gain, seed=1_000, pinned=1_000, now=0)

    assert pace.tasks(story.session.state) == (4, 0)
    assert weighed(0).remaining == 50
    story.say(TodoChanged(items=done))
    almost = int(0.9 * weighed(0).due_at)
    assert weighed(almost).is_due
    story.session.boundary()
    story.session.request()
    assert not weighed(almost).is_due


def test_masks_are_refused_by_name_where_they_would_not_pay() -> None:
    """Reading costs next to nothing, so writing what stands behind the first mask again never comes back."""
    costly = Tariff(r=0.001, w=1.25, k=5.0)
    policy = Policy(name="mask", when="watermark", how="mask", watermark=0.5, low_water=0.3)
    found = {}
    for name, tariff in (("paid", WARM), ("lost", costly)):
        story = story_of(tariff, policy, limit=16_000)
        run(story, 40, lines=40)
        masks = [
            event for event in story.events() if isinstance(event.fact, BlockReplaced) and event.fact.how == "mask"
        ]
        refusals = [event.fact for event in story.events() if isinstance(event.fact, WindowRefused)]
        found[name] = (len(masks), [fact.reason for fact in refusals if "would write" in fact.reason])
    assert found["paid"][0] > 0
    assert not found["paid"][1]
    assert found["lost"][0] == 0
    assert "that pays after" in found["lost"][1][0]


def test_large_results_can_stay_whole_until_they_are_old() -> None:
    later = Policy(name="later", when="step", how="offload", offload_above=200, keep_steps=3, min_gain=0.01)
    story = story_of(WARM, later, limit=16_000)
    run(story, 8)
    shown = story.session.state.window.items
    refs = [
        any(block.__class__.__name__ == "ToolResultRef" for block in item.blocks)
        for item in shown
        if item.role == "tool"
    ]
    assert any(refs)
    assert not any(refs[-3:])
    reasons = [
        reason for event in story.events() if isinstance(event.fact, RequestSent) for reason in event.fact.reasons
    ]
    assert "reset:offload" in reasons


# -- a live model


def live_of(steps: list[dict[str, object]], reactions: list[dict[str, object]]) -> Live:
    given = rules("rollover-cost", LIMIT, tariff=WARM)
    live = Live(steps, reactions=reactions, given=given, shelf=Shelf({"big": LINES * 120}), system=GUIDANCE)
    live.user("Go on. You must never push.")
    return live


READ = step("I read.", ("read", {"path": "big"}), times=80, anyway=True)


def test_a_live_model_is_told_once_and_hands_over_itself() -> None:
    told = {"text": "sent again with every request"}
    live = live_of([READ], [step("", handoff(("You must never push.", "{user}")), when=told, times=0)])
    for _ in range(40):
        live.step()
    windows = live.windows()
    assert windows
    assert {fact.cause for fact in windows} == {"model"}
    assert len(live.notices("reminder")) - len(windows) in (0, 1)
    assert live.session.state.handoff is not None
    assert live.session.state.estimates.handoff != Estimates().handoff


def test_a_live_model_that_does_not_hear_is_rolled_over_when_waiting_has_cost_as_much() -> None:
    live = live_of([READ], [])
    for _ in range(60):
        live.step()
    windows, notices = live.windows(), live.notices("reminder")
    assert {fact.cause for fact in windows} == {"cost"}
    assert len(notices) - len(windows) in (0, 1)
    facts = live.facts()
    first = next(place for place, fact in enumerate(facts) if isinstance(fact, HostSaid) and fact.kind == "reminder")
    rolled = next(place for place, fact in enumerate(facts) if isinstance(fact, WindowOpened))
    waited = sum(isinstance(fact, RequestSent) for fact in facts[first:rolled])
    assert waited >= 3
    assert max(fact.tokens_before for fact in windows) < 0.75 * live.session.rules.bounds.hard
