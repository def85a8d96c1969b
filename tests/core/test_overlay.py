from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from transom.core.boundary import before_step
from transom.core.event import BlockReplaced, Draft, EpochOpened, Replacement, Section, Tool, Usage, WindowOpened
from transom.core.overlay import Overlay, counted_tokens, head_tokens, prompt_tokens
from transom.core.projection import project
from transom.testing.builders import COUNTER, Story, call, result, rules, text


def overlay(story: Story, tail_tokens: int = 0) -> Overlay:
    return Overlay(story.session.state, story.rules.bounds, COUNTER.measure, tail_tokens)


def test_a_head_nobody_counted_is_the_tokens_it_was_reported_to_have() -> None:
    story = Story(rules())
    assert head_tokens(story.session.state) == 0
    story.say(EpochOpened(unseen_tokens=700))
    assert head_tokens(story.session.state) == 700
    story.say(
        EpochOpened(
            unseen_tokens=700, sections=(Section(key="s", text="x", tokens=100),), tools=(Tool(name="t", tokens=9),)
        )
    )
    assert head_tokens(story.session.state) == 700 + story.session.state.calibration.estimate((100, 9, 0, 0, 0), 0)


def test_a_prompt_is_what_was_reported_and_what_came_since() -> None:
    story = Story(rules())
    story.user("do it")
    assert prompt_tokens(story.session.state) == counted_tokens(story.session.state)
    assert overlay(story, 30).tokens == counted_tokens(story.session.state) + 30
    story.step()
    story.reply("yes", usage=Usage(uncached=5000, output=2))
    state = story.session.state
    assert 5000 < prompt_tokens(state) < 5100
    sheet = overlay(story, 30)
    assert sheet.tokens == prompt_tokens(state) + 30
    sheet.add(99, (text("one two three"),))
    assert sheet.tokens == prompt_tokens(state) + 30 + state.calibration.estimate(
        (text("one two three").tokens, 0, 0, 0, 0), 1
    )


def test_a_trial_changes_nothing_and_a_rewrite_does() -> None:
    story = Story(rules())
    seq = story.user("word " * 500).seq
    sheet = overlay(story)
    before = sheet.tokens
    targets = [Replacement(seq=seq, index=0, block=text("short"))]
    after = sheet.tokens_if([("redact", targets)])
    assert after < before == sheet.tokens
    sheet.replace("redact", targets)
    assert sheet.tokens == after
    story.say(BlockReplaced(how="redact", targets=tuple(targets)))
    assert counted_tokens(story.session.state) == after
    item = story.session.state.window.items[0]
    assert sheet.shown(item) == item


@given(st.lists(st.integers(1, 4000), min_size=1, max_size=6), st.integers(0, 3))
def test_a_plan_says_to_the_token_what_the_fold_makes_of_it(sizes: list[int], new: int) -> None:
    story = Story(rules("rollover", 8_000))
    story.user("do it")
    for size in sizes:
        story.step()
        story.reply("ok", call(f"c{size}_{story.session.state.seq}"))
        story.returned(story.calls[0], result(f"{size} " * size))
    sheet = overlay(story)
    kept = list(range(max(0, len(story.session.state.window.items) - 2 * new), len(story.session.state.window.items)))
    if kept and story.session.state.window.items[kept[0]].role == "tool":
        kept = kept[1:]
    plan = sheet.plan(story.session.state.first, (), [place for place in kept if place > 0])
    for how, targets in plan.cuts:
        if targets:
            story.say(BlockReplaced(how=how, targets=tuple(targets)))
    story.say(WindowOpened(cause="operator", generation=1, kept_head=plan.first, kept_tail=plan.kept))
    assert counted_tokens(story.session.state) == plan.tokens


def test_a_boundary_decides_the_same_for_the_same_state() -> None:
    """L3: and reads the state without changing it."""
    story = Story(rules("gssc", 8_000))
    story.user("do it")
    for _ in range(12):
        story.work("a line of output\n" * 60)
    state = story.session.state
    before = repr(state)
    ask = (state, story.rules.policy, story.rules.bounds, COUNTER.measure)
    assert before_step(*ask) == before_step(*ask)
    assert repr(state) == before
    drafts = [Draft(fact=event.fact, uuid=event.uuid, at=event.at) for event in story.events()]
    assert len(drafts) == state.seq
    assert before_step(project(story.events()), *ask[1:]) == before_step(*ask)
