from __future__ import annotations

import msgspec
import pytest

from transom.core.block import Block, Opaque, Text, ToolCall, ToolResultRaw
from transom.core.event import (
    BlockReplaced,
    CheckpointAccepted,
    Coverage,
    EpochOpened,
    Event,
    How,
    ModeChanged,
    ModelReplied,
    NodeCheckpointed,
    Observed,
    RecallMissed,
    Replacement,
    RequestFailed,
    RequestSent,
    SectionChanged,
    Seed,
    SessionOpened,
    SourceRead,
    TaskPicked,
    TodoChanged,
    TodoItem,
    ToolDispatched,
    ToolReturned,
    Usage,
    UserDisposed,
    UserSaid,
    WindowOpened,
    WindowRefused,
)
from transom.core.projection import fold, project
from transom.core.state import State, counts_of
from transom.testing.builders import Story, call, image, result, rules, text, thought


@pytest.fixture
def story() -> Story:
    return Story(rules("raw"))


def roles(story: Story) -> list[str]:
    return [item.role for item in story.session.state.window.items]


def hide(story: Story, seq: int, index: int, block: Block | None = None, how: How = "redact") -> None:
    story.say(BlockReplaced(how=how, targets=(Replacement(seq=seq, index=index, block=block),)))


def test_what_was_never_sent_to_a_model_leaves_no_trace_in_the_window(story: Story) -> None:
    story.say(
        Observed(kind="progress", raw="{}"),
        SourceRead(path="x", format="y", size=1, sha256="00"),
        RequestFailed(kind="rate", message="slow down"),
        TaskPicked(task_id="t", attempt=1),
        NodeCheckpointed(run_id="r", node="n", commit="c"),
    )
    assert roles(story) == []
    assert story.session.state.seq == 6


def test_the_first_message_is_what_was_said_before_the_first_request_or_reply(story: Story) -> None:
    story.host("context")
    story.user("do it")
    story.say(WindowOpened(cause="operator", generation=1, kept_head=(2, 3)))
    assert [item.seq for item in story.session.state.first] == [2, 3]
    story.step()
    story.user("more")
    assert [item.seq for item in story.session.state.first] == [2, 3]


def test_a_window_opened_before_any_request_declares_nothing(story: Story) -> None:
    story.user("do it")
    story.say(WindowOpened(cause="operator", generation=1, kept_head=(2,)))
    assert story.session.state.declared == []
    assert story.step().verdict.reasons == ("initial",)


@pytest.mark.parametrize(
    ("stop_reason", "words", "answers"),
    [
        ("end_turn", "Done.", True),
        ("", "Done.", True),
        ("error", "Do", False),
        ("aborted", "Do", False),
        ("max_tokens", "Do", False),
        ("end_turn", "  ", False),
    ],
)
def test_only_words_that_were_not_broken_off_answer_a_user(
    story: Story, stop_reason: str, words: str, *, answers: bool
) -> None:
    story.user("do it")
    story.step()
    story.reply(thought("hm"), words, stop_reason=stop_reason)
    assert bool(story.session.state.answered_through) is answers


def test_a_disposition_is_set_by_seq_and_an_unknown_one_is_nothing(story: Story) -> None:
    seq = story.user("do it").seq
    story.say(UserDisposed(seq=99, disposition="answered"), UserDisposed(seq=seq, disposition="superseded"))
    assert [words.disposition for words in story.session.state.words] == ["superseded"]
    empty = Story(rules("raw"))
    empty.say(UserDisposed(seq=9, disposition="answered"))
    assert empty.session.state.words == []


def test_a_reply_closes_what_the_reply_before_it_left_open(story: Story) -> None:
    """L10."""
    story.reply(call("a"), call("b"))
    story.returned("a")
    story.reply("next")
    items = story.session.state.window.items
    assert roles(story) == ["assistant", "tool", "tool", "assistant"]
    assert (items[2].seq, items[2].call_id, items[2].is_error) == (0, "b", True)
    story.returned("b", "late")
    assert roles(story)[-1] == "host"
    assert "late" in story.shown()


def test_one_id_used_twice_in_a_reply_is_two_calls_with_two_results(story: Story) -> None:
    """L10."""
    story.reply(call("a", arguments='{"n":1}'), call("a", arguments='{"n":2}'))
    story.returned("a", "one", effect="write")
    assert story.calls == ["a_again2"]
    story.returned("a", "two", is_error=True)
    assert story.calls == []
    assert [item.call_id for item in story.session.state.window.items] == ["", "a", "a_again2"]
    assert [failure.attempt for failure in story.session.state.board.failures.values()] == ['bash: {"n":2}']


def test_a_result_the_host_made_is_no_failed_attempt(story: Story) -> None:
    story.reply(call("a"))
    story.say(ToolReturned(call_id="a", blocks=(result("Error: killed"),), is_error=True, by="host"))
    assert not story.session.state.board.failures


def test_a_dispatched_call_is_one_until_it_has_its_result(story: Story) -> None:
    story.reply(call("a"), call("b"))
    story.say(ToolDispatched(call_ids=("a", "b")))
    story.returned("a")
    assert story.session.state.dispatched == {"b"}


def test_a_missed_recall_counts_for_its_window(story: Story) -> None:
    story.say(RecallMissed(query="x"))
    assert story.session.state.missed == ["x"]
    story.say(WindowOpened(cause="operator", generation=1))
    assert story.session.state.missed == []


def test_a_rewrite_of_an_unknown_event_or_block_changes_nothing(story: Story) -> None:
    seq = story.user("do it").seq
    before = msgspec.to_builtins(story.session.state.window.items)
    hide(story, 99, 0)
    hide(story, seq, -1)
    hide(story, seq, 7)
    assert msgspec.to_builtins(story.session.state.window.items) == before


def test_a_call_cannot_be_hidden_from_its_result(story: Story) -> None:
    """L10."""
    seq = story.reply("x", call("a")).seq
    story.returned("a")
    hide(story, seq, 1)
    hide(story, seq, 1, Text(text="gone"))
    hide(story, seq, 1, call("other"))
    hide(story, seq, 0, call("b"))
    assert [type(block) for block in story.session.state.window.items[0].blocks] == [Text, ToolCall]
    hide(story, seq, 1, call("a", arguments='{"short":1}'), how="offload")
    assert story.session.state.window.items[0].blocks[1] == call("a", arguments='{"short":1}')


def test_what_a_user_said_and_took_back_is_in_no_later_window(story: Story) -> None:
    seq = story.user("You must never say hunter2.").seq
    story.step()
    later = story.user("You must never say hunter3.").seq
    for one in (seq, later):
        hide(story, one, 0, Text(text="[redacted]"))
    state = story.session.state
    assert [words.constraints for words in state.words] == [(), ()]
    assert state.declared == ["reset:redact"]
    story.say(WindowOpened(cause="fifo", generation=1))
    story.say(WindowOpened(cause="operator", generation=2, kept_head=(seq,)))
    assert story.shown() == "[redacted]"
    assert "hunter" not in repr(state)


def test_host_words_of_the_first_message_are_hidden_for_good_too(story: Story) -> None:
    seq = story.host("secret").seq
    hide(story, seq, 0, Text(text="[redacted]"))
    story.say(WindowOpened(cause="operator", generation=1, kept_head=(seq,)))
    assert story.shown() == "[redacted]"


def test_a_rewrite_of_what_no_request_has_shown_is_no_miss(story: Story) -> None:
    story.step()
    story.reply(call("a"))
    seq = story.returned("a", "long").seq
    hide(story, seq, 0, ToolResultRaw(text="short", tokens=1), how="offload")
    assert story.session.state.declared == []
    assert story.step().verdict.kind == "hit"
    hide(story, seq, 0, ToolResultRaw(text="", tokens=0), how="mask")
    hide(story, seq, 0, ToolResultRaw(text="x", tokens=1), how="mask")
    assert story.session.state.declared == ["reset:mask"]


def test_a_new_window_shows_head_seed_and_tail_in_this_order_and_skips_what_is_unknown(story: Story) -> None:
    story.user("spec")
    story.step()
    story.reply("old", call("a"))
    story.returned("a", "old result")
    story.step()
    story.reply("new")
    seqs = [item.seq for item in story.session.state.window.items]
    seed = (Seed(role="host", blocks=(text("seed"),)), Seed(role="user", blocks=(text("open"),), of=2))
    story.say(WindowOpened(cause="recorded", generation=1, seed=seed, kept_head=(2, 77), kept_tail=(seqs[-1], 78)))
    assert [item.seq for item in story.session.state.window.items] == [2, 0, 0, seqs[-1]]
    assert story.shown() == "spec\nseed\nopen\nnew"
    assert story.session.state.window.items[2].of == 2
    assert story.step().verdict.reasons == ("reset:checkpoint",)


def test_a_window_that_drops_a_waiting_reply_does_not_wait_for_its_result(story: Story) -> None:
    """L10."""
    story.user("spec")
    story.reply(call("a"))
    story.say(WindowOpened(cause="fifo", generation=1))
    assert story.calls == []
    story.returned("a", "late")
    assert roles(story) == ["host"]


def test_a_refusal_is_remembered_until_the_window_is_rewritten(story: Story) -> None:
    story.say(WindowRefused(cause="mask", reason="small", tokens_before=700))
    assert story.session.state.refused_tokens == 700
    hide(story, 99, 0, how="offload")
    assert story.session.state.refused_tokens == 700
    hide(story, 99, 0, how="mask")
    assert story.session.state.refused_tokens == 0


def test_an_epoch_replaces_the_head_and_says_why_once(story: Story) -> None:
    story.say(EpochOpened(), SectionChanged(key="date", text="today"))
    assert story.session.state.head.changes == {"date": "today"}
    story.step()
    story.say(EpochOpened(), EpochOpened(reason="change:tools"), EpochOpened(reason="change:tools"))
    assert story.session.state.declared == ["change:system", "change:tools"]
    assert story.session.state.head.changes == {}


def test_declarations_stay_until_a_request_is_accepted(story: Story) -> None:
    """L5: drift does not use them up."""
    story.step()
    story.say(WindowOpened(cause="cost", generation=1))
    sent = RequestSent(head="", body="", body_messages=0, verdict="drift", reasons=("drift:tools",))
    pin = story.session.state.pin
    story.say(sent)
    assert story.session.state.declared == ["reset:rollover"]
    assert story.session.state.pin == pin
    story.say(msgspec.structs.replace(sent, verdict="miss"))
    assert story.session.state.declared == []
    assert story.session.state.pin_seq == story.session.state.seq


def test_other_state_is_kept_as_it_was_said(story: Story) -> None:
    todo = (TodoItem(text="x", status="pending"),)
    accepted = CheckpointAccepted(coverage=Coverage(through_seq=1, digest=""), text="", model="", prompt_version="")
    story.say(ModeChanged(mode="plan", pending_approvals=("a",)), TodoChanged(items=todo), accepted)
    state = story.session.state
    assert (state.mode, state.pending_approvals, state.board.todo) == ("plan", ("a",), todo)
    assert state.checkpoint == accepted


def test_another_model_starts_its_own_calibration(story: Story) -> None:
    story.say(ModelReplied(blocks=(), model="claude-sonnet-4-5"))
    state = story.session.state
    assert state.model == "claude-sonnet-4-5"
    assert state.calibration != Story(rules("raw")).session.state.calibration
    story.say(ModelReplied(blocks=(), model="claude-sonnet-4-5"))
    assert state.steps == 2


def test_output_beyond_what_is_visible_is_counted_with_the_reply(story: Story) -> None:
    story.reply("short", usage=Usage(uncached=100, output=500))
    assert story.session.state.window.items[0].counts[4] == 500 - story.session.state.calibration.visible(
        counts_of((text("short"),))
    )
    story.reply("short", usage=Usage(uncached=-900, output=-5))
    assert story.session.state.window.items[1].counts[4] == 0
    assert story.session.state.known_prompt == 0


def event(seq: int, fact: SessionOpened | UserSaid | ModelReplied) -> Event:
    return Event(session_id="s" if seq < 3 else "fork", seq=seq, uuid=f"u{seq}", at=0, fact=fact)


def test_a_fork_goes_on_with_what_was_learnt_about_the_same_model() -> None:
    state = project(
        [event(1, SessionOpened(format=1, model="m")), event(2, ModelReplied(blocks=(Opaque(kind="x", raw="{}"),)))]
    )
    learnt = state.calibration = msgspec.structs.replace(state.calibration, samples=9)
    fold(state, event(3, SessionOpened(format=1, kind="fork", model="m")))
    assert (state.session_id, state.calibration) == ("fork", learnt)
    fold(state, event(4, SessionOpened(format=1, kind="fork", model="claude-opus-4-6")))
    assert state.calibration != learnt


def test_projecting_goes_on_from_a_state_that_is_given() -> None:
    events = [event(1, SessionOpened(format=1)), event(2, UserSaid(blocks=(image(), text("hi"))))]
    assert project(events[1:], project(events[:1])) == project(events)
    assert project([]) == State()
