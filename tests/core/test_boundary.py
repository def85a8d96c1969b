from __future__ import annotations

import re

import msgspec
import pytest

from transom.core.block import Text, ToolResultRaw
from transom.core.boundary import prompt_tokens
from transom.core.event import (
    BlockReplaced,
    EpochOpened,
    Event,
    Fact,
    Handoff,
    HostSaid,
    RolloverDeclared,
    Section,
    TodoChanged,
    TodoItem,
    ToolReturned,
    Usage,
    UserDisposed,
    WindowOpened,
    WindowRefused,
)
from transom.core.policy import PRESETS, How, Policy
from transom.core.surface import FALLBACK_CHANCES
from transom.errors import OverBudget
from transom.testing.builders import Story, call, result, rules, text, thought

LINES = "a line of output that somebody wanted to see\n"


def story_of(policy: str | Policy, limit: int = 8_000) -> Story:
    made = Story(rules(policy, limit))
    made.user("Build the thing. You must never touch a.py.")
    return made


def facts(events: tuple[Event, ...]) -> list[Fact]:
    return [event.fact for event in events]


def fill(story: Story, tokens: int) -> None:
    """Steps until the prompt is at least this large."""
    while prompt_tokens(story.session.state) < tokens:
        story.session.request()
        number = story.numbers()
        story.reply(call(f"c{number}", "bash", f'{{"command":"run {number}"}}'))
        story.returned(f"c{number}", LINES * 30)


def opened(story: Story) -> list[WindowOpened]:
    return [event.fact for event in story.events() if isinstance(event.fact, WindowOpened)]


def refused(story: Story) -> list[WindowRefused]:
    return [event.fact for event in story.events() if isinstance(event.fact, WindowRefused)]


# -- settle, dispose, strip, offload


def test_a_call_without_a_result_is_closed_by_the_host() -> None:
    """L10."""
    story = story_of("raw")
    story.step()
    story.reply(call("a"), call("b"))
    story.returned("b")
    (fact,) = facts(story.session.boundary())
    assert isinstance(fact, ToolReturned)
    assert (fact.call_id, fact.by, fact.is_error) == ("a", "host", True)
    assert story.session.boundary() == ()


def test_what_the_host_closed_stands_in_the_window_that_opens_with_it() -> None:
    """L10: the result has no place in the log when the boundary decides, and is kept all the same."""
    story = story_of("rollover")
    fill(story, 6_900)
    story.session.request()
    story.reply("x " * 800, call("open"))
    story.session.boundary()
    assert [one.cause for one in opened(story)] == ["hard-limit"]
    last = story.session.state.window.items[-2:]
    assert [(item.role, item.call_id) for item in last] == [("assistant", ""), ("tool", "open")]
    assert opened(story)[-1].tokens_after == prompt_tokens(story.session.state)


def test_a_user_message_is_answered_by_a_finished_turn_once_the_user_speaks_again() -> None:
    story = story_of("rollover")
    story.step()
    story.reply("Done.")
    assert facts(story.session.boundary()) == []
    story.user("And now?")
    assert facts(story.session.boundary()) == [UserDisposed(seq=2, disposition="answered", by=4)]
    assert story.session.boundary() == ()


def test_thoughts_that_the_provider_drops_when_the_user_speaks_are_dropped() -> None:
    story = story_of("raw")
    story.step()
    story.reply(thought("deep"), "Done.")
    story.session.state.drop_votes = 1
    assert facts(story.session.boundary()) == []
    story.user("And now?")
    (_, fact) = facts(story.session.boundary())
    assert isinstance(fact, BlockReplaced)
    assert fact.how == "prune"


def test_a_large_result_is_offloaded_before_it_is_ever_sent_even_a_late_one() -> None:
    story = story_of("rollover", 100_000)
    story.step()
    story.reply(call("a"))
    story.returned("a", LINES * 1000)
    story.returned("nobody", LINES * 1000)
    events = story.session.boundary()
    assert [type(fact) for fact in facts(events)] == [BlockReplaced]
    assert story.shown().count("[offloaded result: 1000 lines") == 2
    assert story.session.request().verdict.kind == "hit"
    assert facts(story.session.boundary()) == []


# -- policies at their moment


def test_raw_and_recorded_are_never_governed() -> None:
    for name in ("raw", "recorded"):
        story = story_of(name)
        fill(story, 20_000)
        assert story.session.boundary() == ()


def test_a_mask_hides_old_observations_in_one_batch_and_then_leaves_the_window_alone() -> None:
    story = story_of("mask", 16_000)
    fill(story, 10_600)
    (fact,) = facts(story.session.boundary())
    assert isinstance(fact, BlockReplaced)
    assert fact.how == "mask"
    assert len(fact.targets) > 5
    assert story.session.request().verdict.reasons == ("reset:mask",)
    assert story.step().verdict.kind == "hit"


def test_a_mask_that_frees_too_little_is_refused_once_until_the_window_has_grown() -> None:
    story = story_of(msgspec.structs.replace(PRESETS["mask"], keep_steps=28), 16_000)
    fill(story, 10_600)
    story.session.boundary()
    assert [one.cause for one in refused(story)] == ["mask"]
    assert re.fullmatch(r"would free [\d,]+ tokens, less than the stated minimum of 1,400", refused(story)[0].reason)
    fill(story, prompt_tokens(story.session.state) + 300)
    story.session.boundary()
    assert len(refused(story)) == 1
    fill(story, prompt_tokens(story.session.state) + 800)
    story.session.boundary()
    assert len(refused(story)) == 2 or any(isinstance(event.fact, BlockReplaced) for event in story.events())


def test_a_mask_with_nothing_to_hide_says_nothing() -> None:
    story = story_of("mask")
    story.user("word " * 4500)
    assert 0.75 * 7000 < prompt_tokens(story.session.state) < 7000
    assert story.session.boundary() == ()


def test_what_the_model_has_not_seen_is_not_masked_even_if_no_step_is_kept() -> None:
    story = story_of(msgspec.structs.replace(PRESETS["mask"], keep_steps=0), 16_000)
    fill(story, 10_600)
    (fact,) = facts(story.session.boundary())
    assert isinstance(fact, BlockReplaced)
    items = story.session.state.window.items
    assert items[-1].seq not in {target.seq for target in fact.targets}
    assert items[-3].seq in {target.seq for target in fact.targets}


def test_a_projection_rewrites_first_and_opens_a_window_when_that_gains_too_little() -> None:
    story = story_of(msgspec.structs.replace(PRESETS["gssc"], keep_steps=28), 16_000)
    fill(story, 10_600)
    story.session.boundary()
    assert [one.cause for one in opened(story)] == ["watermark"]
    after = opened(story)[0].tokens_after
    assert after < 0.5 * story.rules.bounds.hard + 600
    keen = story_of(msgspec.structs.replace(PRESETS["gssc"], keep_steps=2), 16_000)
    fill(keen, 10_600)
    keen.session.boundary()
    assert opened(keen) == []
    assert prompt_tokens(keen.session.state) < 0.5 * keen.rules.bounds.hard


def test_a_rollover_may_have_the_watermark_or_every_step_as_its_moment() -> None:
    mark = story_of(Policy(name="x", when="watermark"))
    fill(mark, 5_300)
    mark.session.boundary()
    assert [one.cause for one in opened(mark)] == ["watermark"]
    step = story_of(Policy(name="x", when="step"))
    fill(step, 2_000)
    step.session.boundary()
    assert [one.cause for one in opened(step)] == ["watermark"]


def test_no_way_to_compress_waits_for_the_hard_limit() -> None:
    story = story_of(Policy(name="x", when="watermark", how="none"))
    fill(story, 5_300)
    assert story.session.boundary() == ()
    fill(story, 7_000)
    story.session.boundary()
    assert [one.cause for one in opened(story)] == ["hard-limit"]


def test_fifo_keeps_the_newest_steps_and_says_that_it_dropped_the_rest() -> None:
    story = story_of("fifo")
    fill(story, 5_300)
    story.session.boundary()
    (window,) = opened(story)
    assert window.cause == "fifo"
    assert window.tokens_after <= 0.5 * story.rules.bounds.hard + 60
    assert story.shown().startswith("[host] Older messages were dropped")
    assert "Build the thing" not in story.shown()
    assert story.session.request().verdict.reasons == ("reset:fifo",)


def test_fifo_may_wait_for_the_hard_limit() -> None:
    story = story_of(Policy(name="x", when="limit", how="fifo"))
    fill(story, 6_500)
    assert story.session.boundary() == ()
    fill(story, 7_000)
    story.session.boundary()
    assert [one.cause for one in opened(story)] == ["fifo"]


def test_fifo_at_the_hard_limit_cuts_what_is_new_to_fit() -> None:
    story = story_of("fifo")
    story.step()
    story.reply(call("a"))
    story.returned("a", LINES * 2000)
    story.session.boundary()
    assert [one.cause for one in opened(story)] == ["fifo"]
    assert "[offloaded result: 2000 lines" in story.shown()
    assert story.session.request().tokens < story.rules.bounds.hard


def test_fifo_that_would_drop_too_little_is_refused_below_the_hard_limit() -> None:
    story = story_of("fifo")
    story.step()
    story.reply(call("a"))
    story.returned("a", LINES * 550)
    assert 6_000 < prompt_tokens(story.session.state) < 7_000
    story.session.boundary()
    assert [one.cause for one in refused(story)] == ["fifo"]
    assert story.session.boundary() == ()
    assert "[offloaded" not in story.shown()


# -- the hard limit


@pytest.mark.parametrize("policy", ["mask", "fifo", "rollover", "gssc"])
@pytest.mark.parametrize("what", ["result", "reply", "arguments", "hidden", "host", "images"])
def test_no_single_message_of_a_model_a_tool_or_the_host_breaks_the_limit(policy: str, what: str) -> None:
    story = story_of(policy)
    story.step()
    match what:
        case "result":
            story.reply(call("a"))
            story.returned("a", LINES * 4000)
        case "reply":
            story.reply("word " * 30_000)
        case "arguments":
            story.reply(call("a", "write", "word " * 30_000), call("b", "write", "word " * 30_000))
        case "hidden":
            story.reply("Yes.", usage=Usage(output=60_000))
        case "host":
            story.host("word " * 30_000)
        case _:
            story.reply(call("a"))
            many = tuple(msgspec.structs.replace(result(""), tokens=1500) for _ in range(9))
            story.say(ToolReturned(call_id="a", blocks=many))
            story.say(ToolReturned(call_id="b", blocks=(msgspec.structs.replace(result("x" * 9000), tokens=9000),)))
    prepared = story.step()
    assert prepared.tokens <= story.rules.bounds.hard


def test_a_user_who_says_too_much_is_told_the_numbers() -> None:
    story = story_of("rollover")
    seq = story.user("word " * 9_000).seq
    with pytest.raises(OverBudget, match=r"the head and the user's own words alone are [\d,]+ tokens, over the 7,000"):
        story.session.boundary()
    assert story.session.state.seq == seq


def test_protected_words_count_once_whether_open_or_first() -> None:
    story = story_of("rollover")
    story.step()
    story.reply("hm")
    story.user("word " * 9_000)
    with pytest.raises(OverBudget, match="the head and the user's own words"):
        story.session.boundary()


def test_a_head_that_does_not_fit_is_told_with_the_numbers() -> None:
    story = story_of("fifo")
    story.say(EpochOpened(sections=(Section(key="s", text="x", tokens=9000),)))
    with pytest.raises(OverBudget, match="the head and the newest messages alone are"):
        story.session.boundary()


def test_a_protected_result_that_does_not_fit_is_told_with_the_numbers() -> None:
    story = story_of("rollover")
    story.step()
    story.reply(call("a"))
    story.returned("a", ToolResultRaw(text="x", tokens=9000, is_protected=True))
    with pytest.raises(OverBudget, match="the newest messages alone are"):
        story.session.boundary()


@pytest.mark.parametrize("hands_over", [False, True])
def test_where_a_new_window_would_be_no_smaller_the_old_one_is_cut_in_place(*, hands_over: bool) -> None:
    """L11: head and words leave room for a step, but not for a seed."""
    story = story_of("rollover")
    story.user(Text(text="It is large.", tokens=5_600))
    story.say(TodoChanged(items=tuple(TodoItem(text="word " * 30, status="pending") for _ in range(20))))
    story.step()
    story.reply("Now I look.", call("a"))
    story.returned("a", LINES * 100)
    assert prompt_tokens(story.session.state) > 7_000
    if hands_over:
        story.say(RolloverDeclared(call_id="n", handoff=Handoff()))
    story.session.boundary(model_hands_over=hands_over)
    assert opened(story) == []
    assert [one.cause for one in refused(story)] == ["model" if hands_over else "hard-limit"]
    assert story.session.request().tokens <= 7_000


def test_injected_text_that_fills_the_first_message_does_not_stand_in_later_windows() -> None:
    story = Story(rules("rollover", 8_000))
    story.host("context " * 3_500)
    story.user("Build it.")
    fill(story, 7_000)
    story.session.boundary()
    assert "context context" not in story.shown()
    assert "Build it." in story.shown()


def test_a_hard_limit_rollover_says_what_it_opens_to_the_token() -> None:
    story = story_of("rollover")
    fill(story, 7_000)
    before = prompt_tokens(story.session.state)
    story.session.boundary()
    (window,) = opened(story)
    assert (window.cause, window.generation, window.tokens_before) == ("hard-limit", 1, before)
    assert window.tokens_after == prompt_tokens(story.session.state)
    assert window.declared_by == ""
    assert "You must never touch a.py." in story.shown()


# -- a live model


def declare(story: Story) -> str:
    story.step()
    story.reply(call("n", "new_context"))
    uuid = story.say(RolloverDeclared(call_id="n", handoff=Handoff(unverified=("speed",))))[0].uuid
    story.returned("n", "the window closes after this step", effect="none")
    return uuid


def test_a_declared_rollover_is_committed_once_with_the_declared_handoff() -> None:
    """L4."""
    story = story_of("rollover")
    fill(story, 4_000)
    uuid = declare(story)
    story.session.boundary(model_hands_over=True)
    (window,) = opened(story)
    assert (window.cause, window.declared_by) == ("model", uuid)
    assert f"message_uuid: {uuid}" in story.shown()
    assert "- speed" in story.shown()
    assert story.session.boundary(model_hands_over=True) == ()


def test_a_declared_rollover_that_frees_too_little_is_refused_and_the_model_told() -> None:
    """L11."""
    story = story_of("rollover", 64_000)
    story.say(HostSaid(kind="fallback", blocks=(text("full"),)))
    declare(story)
    (no, told) = facts(story.session.boundary(model_hands_over=True))
    assert isinstance(no, WindowRefused)
    assert isinstance(told, HostSaid)
    assert told.kind == "refusal"
    assert "[host] No new window was opened: it would free" in story.shown()
    assert not story.session.state.fallbacks
    assert story.session.boundary(model_hands_over=True) == ()


def test_a_policy_that_governs_nothing_still_keeps_a_declaration() -> None:
    story = story_of("raw")
    fill(story, 4_000)
    declare(story)
    story.session.boundary()
    assert [one.cause for one in opened(story)] == ["model"]


def test_a_model_is_reminded_once_then_narrowed_three_times_then_rolled_over() -> None:
    story = story_of("rollover")
    bounds = story.rules.bounds
    fill(story, bounds.base - bounds.reminder)
    (fact,) = facts(story.session.boundary(model_hands_over=True))
    assert isinstance(fact, HostSaid)
    assert fact.kind == "reminder"
    assert re.search(r"\[host\] About [\d,]+ tokens are left in this window\.", story.shown())
    assert story.session.boundary(model_hands_over=True) == ()
    fill(story, bounds.base)
    for number, reasons in enumerate(((), ("change:params",), ("change:params", "change:tools")), 1):
        (fact,) = facts(story.session.boundary(model_hands_over=True))
        assert isinstance(fact, HostSaid)
        assert fact.kind == "fallback"
        assert story.session.state.fallbacks == number
        assert tuple(story.session.state.declared) == reasons
        assert story.session.boundary(model_hands_over=True) == ()  # no request was made with it yet
        story.session.request()
    story.session.boundary(model_hands_over=True)
    assert [one.cause for one in opened(story)] == ["hard-limit"]
    assert not story.session.state.reminder_claimed
    assert not story.session.state.fallbacks


def test_a_used_up_fallback_that_frees_too_little_is_refused_once_and_waits_for_the_hard_limit() -> None:
    """L11: no storm of boundaries between the base and the hard limit."""
    story = story_of("rollover")
    story.user(Text(text="It is large.", tokens=5_700))
    story.step()
    for _ in range(FALLBACK_CHANCES):
        story.session.boundary(model_hands_over=True)
        story.session.request()
    for _ in range(2):
        story.session.boundary(model_hands_over=True)
        assert [one.cause for one in refused(story)] == ["hard-limit"]
        assert not story.session.state.fallbacks  # there is room to work in: the surface is whole again
    assert opened(story) == []


def test_a_fallback_stage_goes_on_to_its_end_also_if_the_provider_counts_less_than_was_thought() -> None:
    story = story_of("rollover")
    fill(story, story.rules.bounds.base)
    for number in range(1, FALLBACK_CHANCES + 1):
        story.session.boundary(model_hands_over=True)
        assert story.session.state.fallbacks == number
        story.session.request()
        story.reply("I read on.", usage=Usage(uncached=story.rules.bounds.base // 2, output=4))
    story.session.boundary(model_hands_over=True)
    assert [one.cause for one in opened(story)] == ["hard-limit"]


def test_a_window_that_opens_at_the_watermark_is_not_reminded_in_the_same_gap() -> None:
    story = story_of("gssc")
    fill(story, 6_900)
    story.session.boundary(model_hands_over=True)
    assert [one.cause for one in opened(story)] == ["watermark"]
    assert not any(isinstance(event.fact, HostSaid) for event in story.events())


def test_new_results_take_their_reply_with_them_into_a_new_window() -> None:
    """L10: a request that was sent while results were still coming in."""
    story = story_of("rollover")
    fill(story, 6_000)
    story.session.request()
    story.reply("old words", call("a"), call("b"))
    story.returned("a", "A")
    story.user("quick question")
    story.session.state.window.sent = story.session.state.window.seen = len(story.session.state.window.items)
    story.returned("b", LINES * 200)
    story.session.boundary()
    roles = [(item.role, item.call_id) for item in story.session.state.window.items]
    assert roles[-4:] == [("assistant", ""), ("tool", "a"), ("user", ""), ("tool", "b")]
    assert text("old words") in story.session.state.window.items[-4].blocks


def quota(how: How) -> Policy:
    return Policy(name="quota", when="quota", how=how, keep_steps=2)


def test_results_that_outgrow_their_share_are_masked_under_a_quota() -> None:
    story = story_of(quota("mask"))
    for _ in range(30):
        story.work(LINES * 14)
    story.session.boundary()
    masked = [fact for fact in facts(tuple(story.events())) if isinstance(fact, BlockReplaced)]
    assert masked
    assert all(fact.how == "mask" for fact in masked)


def test_words_that_outgrow_their_share_open_a_window_under_a_quota() -> None:
    story = story_of(quota("rollover"))
    hard = story.rules.bounds.hard
    for number in range(12):
        story.user(f"Then number {number}: " + "say something about it. " * 40)
        story.reply("I did as you said. " * 20)
        story.step()
    assert opened(story)
    assert opened(story)[0].tokens_before < 0.75 * hard


def test_a_window_within_its_shares_is_left_alone_under_a_quota() -> None:
    story = story_of(quota("mask"))
    story.work("ok")
    story.session.boundary()
    assert not any(isinstance(event.fact, BlockReplaced | WindowOpened) for event in story.events())
