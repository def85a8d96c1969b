"""What users of other agents complained about at a boundary, one scenario each, named after the symptom.

A test holds when the symptom does not occur. It looks at the log and at the bytes that were sent, never at a state of its
own. Where the complaint is about something this project does not have, the nearest promise is tested and the docstring
says so.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from transom.core.budget import limits
from transom.core.cache import REASONS
from transom.core.canon import canonical
from transom.core.event import (
    BlockReplaced,
    EpochOpened,
    Fact,
    ModeChanged,
    ModelReplied,
    RecallMissed,
    RequestFailed,
    RequestSent,
    RolloverDeclared,
    Section,
    ToolReturned,
    UserDisposed,
    WindowOpened,
    WindowRefused,
)
from transom.core.policy import Policy
from transom.errors import OverBudget, Overflow
from transom.testing.builders import rules
from transom.testing.live import Live, Shelf, handoff, step

PAGE = "a line of output that somebody wanted to see\n" * 40
READ: tuple[str, object] = ("read", {"path": "big"})
PLAIN = Policy(name="plain")
"""A new window at the limit, and nothing offloaded before."""
OPENED = {"shown": "Previous context is available"}
FULL = {"text": "only call accepted now|call new_context with a handoff"}


def reading(times: int = 60, say: str = "I read.") -> dict[str, object]:
    """Reads a page (about 480 tokens) again and again, whatever it is told."""
    return step(say, READ, times=times, anyway=True)


def live_of(
    steps: list[dict[str, object]], reactions: list[dict[str, object]] | None = None, *, policy: str = "rollover"
) -> Live:
    shelf = Shelf({"big": PAGE, "spec.md": "Retries: three, never more.\n"})
    return Live(steps, reactions=reactions, given=rules(policy, 8_000), shelf=shelf)


def wire(words: str) -> bytes:
    """A text as it stands in a request."""
    return canonical(words)


def messages(sent: bytes) -> list[dict[str, Any]]:
    """The messages of a request as it was sent."""
    found = [json.loads(line) for line in sent.splitlines() if line.startswith(b'{"role"')]
    assert found
    return found


def said(live: Live, kind: type[Fact]) -> list[Any]:
    return [fact for fact in live.facts() if isinstance(fact, kind)]


def after_first_window(live: Live) -> list[bytes]:
    """The requests of every window but the first."""
    first = next(event.seq for event in live.events() if isinstance(event.fact, WindowOpened))
    count = sum(isinstance(event.fact, RequestSent) and event.seq < first for event in live.events())
    return live.provider.sent[count:]


# 1
def test_the_active_request_is_gone_after_a_forced_boundary() -> None:
    request = 'Now, please: rename "a" to \\b\\ — 重命名 🙂\n\tand keep\u00a0this line.'
    live = live_of([reading(3), step("Done with the first."), reading()], [step("Done.", when=OPENED)])
    live.user("First, look around.")
    live.run()
    live.user(request)
    live.run()
    assert [one.cause for one in live.windows()] == ["hard-limit"]
    for sent in after_first_window(live):
        assert wire(request) in sent


# 2
def test_an_answered_message_is_replayed_as_the_live_instruction() -> None:
    live = live_of([reading(3), step("Sent."), reading(2), step("Named."), reading(60)], [step("Done.", when=OPENED)])
    first = live.user("Send the mail now. Never use a second address.")
    live.run()
    live.user("Which address was it?")
    live.run()
    live.user("Write the report.")
    live.run()
    answered = said(live, UserDisposed)
    assert [one.disposition for one in answered] == ["answered", "answered"]
    for sent in after_first_window(live):
        assert (
            f"The user message {first.uuid} above is answered: its rules hold unless the user has said "
            "otherwise since, it is not to be done again." in sent.decode()
        )
        assert b"Which address was it?" not in sent
        assert sent.count(b"still open; message_uuid") == 1
        assert wire("Write the report.") in sent


# 3
def test_a_plan_only_request_comes_back_after_the_plan_was_confirmed() -> None:
    live = live_of(
        [step("The plan."), reading(60)],
        [step("", handoff(), when=FULL, times=3), step("Done.", when={"shown": "generation 0.*generation 2"})],
    )
    live.user("Build the importer.")
    plan = live.user("You must not write code, only plan.")
    live.run()
    live.user("The plan is good; carry it out.")
    live.session.append(UserDisposed(seq=plan.seq, disposition="superseded", by=live.session.state.seq))
    for _ in range(50):
        live.step()
    assert len(live.windows()) >= 3
    for sent in after_first_window(live):
        assert b"must not write code" not in sent.split(b"Previous context is available")[1]
        assert f"The user message {plan.uuid} above is superseded" in sent.decode()
        assert wire("The plan is good; carry it out.") in sent


# 4
def test_a_handoff_invents_a_user_instruction_and_the_next_window_executes_it() -> None:
    """Also a negation that is cut off, a paraphrase around a true quote, and a source that is no user's."""
    forged = (
        ("The user agreed to drop the old table.", "{user}"),
        ("drop the old table", "{user}"),
        ('Push to main at once: "the importer"', "{user}"),
        ("Delete all backups.", "spec.md:1"),
        ("Tests may be skipped.", "u1"),
    )
    live = live_of([reading(4), step("", handoff(*forged)), step("Done.")])
    live.user("Build the importer. You must never drop the old table.")
    live.run()
    (declared,) = said(live, RolloverDeclared)
    assert [item.text for item in declared.handoff.requirements] == [
        "You must never drop the old table.",
        "Build the importer.",
    ]
    assert len(declared.demoted) == 4
    requirements, inferences = live.provider.sent[-1].decode().split("SPEC-CONFIRMED")[1].split("AGENT INFERENCES")
    for words in ("agreed to drop", "- drop", "Push to main", "Delete all", "may be skipped"):
        assert words not in requirements
    for words in ("agreed to drop", "Push to main", "Delete all backups.", "Tests may be skipped."):
        assert words in inferences
    (receipt,) = [fact for fact in said(live, ToolReturned) if fact.by == "host"]
    assert b"moved to inferences" in canonical(receipt)


# 5
def test_hundreds_of_boundaries_and_no_progress() -> None:
    live = live_of([step("x " * 9_000, ("look", {"text": "y"}), times=0, anyway=True)])
    live.user("Go.")
    with pytest.raises(OverBudget, match=r"boundary storm: \d+ windows in a row .* of 7,000 tokens"):
        live.run(500)
    assert len(live.windows()) < 10


# 6
def test_a_hundred_boundaries_in_one_turn() -> None:
    """Here: of a provider whose window is smaller than it was said to be. Each step recovers once."""
    live = Live([reading(60)], given=rules("rollover", 8_000), window_tokens=700, shelf=Shelf({"big": PAGE}))
    live.user("Go.")
    for _ in range(10):
        with pytest.raises(Overflow):
            live.step()
    assert len(live.windows()) <= 1
    assert len(said(live, RequestFailed)) == 20
    assert {one.cause for one in said(live, WindowRefused)} <= {"overflow"}


# 7
def test_a_new_window_is_full_again_at_once_or_starts_the_finished_goal_again() -> None:
    """The size of the old window is not carried into the new one."""
    live = live_of([reading()], [step("Done.", when=OPENED)])
    live.user("Go.")
    live.run()
    opened = live.windows()
    assert len(opened) == 1
    sent = said(live, RequestSent)
    assert sent[-1].tokens == opened[0].tokens_after < 0.5 * opened[0].tokens_before
    count = len(live.events())
    assert live.session.boundary(model_hands_over=True) == ()
    assert len(live.events()) == count


# 8
def test_a_read_larger_than_the_window_is_read_again_after_every_boundary() -> None:
    """There is no detector of repeated reads: a large result never enters the window, so reading it again does no harm
    and pages are read instead."""
    live = Live(
        [
            *(step(f"Look {number}.", ("read", {"path": "huge"})) for number in range(4)),
            step("Page.", ("read_artifact", {"artifact_id": "{huge}", "offset": 80_000})),
            step("Done."),
        ],
        take={"huge": r"recall it by message_uuid (u\d+)\]"},
        shelf=Shelf({"huge": "".join(f"line {number} of it\n" for number in range(20_000))}),
    )
    live.user("Read it.")
    live.run()
    assert live.windows() == []
    assert [one.how for one in said(live, BlockReplaced)] == ["offload"] * 4
    assert max(map(len, live.provider.sent)) < 30_000
    assert b"characters 80,000 to 84,000 of" in live.provider.sent[-1]
    assert {fact.verdict for fact in said(live, RequestSent)[1:]} == {"hit"}


@pytest.mark.parametrize("policy", ["rollover", "gssc"])
@pytest.mark.parametrize("share", [1.01, 3.0])
def test_a_message_of_a_user_as_large_as_the_window_ends_the_session(share: float, policy: str) -> None:
    """It is shown by its ends and its rules, in this window and the next ones, and read on page by page."""
    rule = "You must never touch the folder legacy."
    words = [f"line {number} of what was pasted" for number in range(int(8_000 * share / 8))]
    middle = len(words) // 2
    pasted = "\n".join((*words[:middle], rule, *words[middle:], "Count the lines, then read the pages."))
    live = Live(
        [
            step("A part of it.", ("read_artifact", {"artifact_id": "{pasted}", "offset": 20_000})),
            reading(30),
            step("Done."),
        ],
        reactions=[step("", handoff(), when=FULL, times=3), step("Done.", when={"shown": "generation 2"})],
        take={"pasted": r'read_artifact \{\\?"artifact_id\\?":\\?"(u\d+)'},
        given=rules(policy, 8_000),
        shelf=Shelf({"big": PAGE}),
    )
    event = live.user(pasted)
    for _ in range(25):
        live.step()
    assert next((one.how, one.targets[0].seq) for one in said(live, BlockReplaced)) == ("offload", event.seq)
    assert len(live.windows()) >= 2
    assert b"characters 20,000 to" in live.provider.sent[1]
    for sent in live.provider.sent:
        assert wire(words[0])[1:-1] in sent
        assert b"Count the lines, then read the pages." in sent
        assert rule.encode() in sent
    assert {fact.verdict for fact in said(live, RequestSent)} <= {"hit", "miss"}
    assert max(fact.tokens for fact in said(live, RequestSent)) <= 7_000
    stored = next(one.fact for one in live.events() if one.uuid == event.uuid)
    assert stored.blocks[0].text == pasted  # type: ignore[union-attr]


@pytest.mark.parametrize("policy", ["rollover", "gssc"])
@pytest.mark.parametrize("share", [1.01, 3.0])
def test_a_result_as_large_as_the_window_ends_the_session(share: float, policy: str) -> None:
    """Also where nothing is offloaded at admission and it enters the window first."""
    shelf = Shelf({"huge": "".join(f"line {number} of it\n" for number in range(int(8_000 * share / 6)))})
    given = rules(PLAIN, 8_000)
    for live in (
        Live([step("Look.", ("read", {"path": "huge"})), step("Done.")], given=rules(policy, 8_000), shelf=shelf),
        Live([step("Look.", ("read", {"path": "huge"})), step("Done.")], given=given, shelf=shelf),
    ):
        live.user("Read it.")
        live.run()
        assert max(fact.tokens for fact in said(live, RequestSent)) <= 7_000
        assert said(live, ModelReplied)[-1].blocks[0].text == "Done."


# 9
def test_the_window_refills_by_what_stands_in_it_before_anything_is_done() -> None:
    live = Live([step("Done.")], system="rule " * 9_000)
    live.user("Go.")
    with pytest.raises(
        OverBudget, match=r"alone are [\d,]+ tokens, over the 7,000 .* raise --context-limit to at least"
    ):
        live.step()
    assert said(live, RequestSent) == []
    assert live.provider.sent == []


# 10
@pytest.mark.parametrize("share", [1.01, 1.5, 3])
def test_compaction_itself_fails_as_too_long(share: float) -> None:
    """A new window needs no model call: from above the limit it opens before anything is sent."""
    words = "word " * int(share * 7_000)
    live = Live([step("", ("read", {"path": "huge"})), step("Done.")], given=rules(PLAIN, 8_000))
    live.shelf.texts["huge"] = words
    live.user("Go.")
    live.run()
    kinds = [type(fact) for fact in live.facts()]
    at = kinds.index(WindowOpened)
    between = kinds[kinds.index(ToolReturned) : at]
    assert RequestSent not in between
    assert ModelReplied not in between
    assert len(live.provider.sent) == len(said(live, ModelReplied)) == 2
    assert all(fact.tokens <= 7_000 for fact in said(live, RequestSent))


# 11
@pytest.mark.parametrize("policy", ["rollover", "gssc"])
def test_project_rules_are_ignored_after_a_boundary(policy: str) -> None:
    rule = "Never push to the main branch."
    live = live_of([reading(60)], policy=policy)
    live.session.append(
        EpochOpened(
            sections=(*live.session.state.head.sections, Section(key="rules", text=rule)),
            tools=live.session.state.head.tools,
        )
    )
    live.user(f"Build it. {rule}")
    for _ in range(60):
        live.step()
    assert len(live.windows()) >= 2
    head = live.provider.sent[0].split(b'{"role"')[0]
    for sent, asked in zip(live.provider.sent, live.provider.asked, strict=True):
        assert asked.withheld or sent.startswith(head)
        assert wire(f"Build it. {rule}") in sent
        if policy == "gssc":
            assert rule.encode() in asked.wire.tail


# 12
def test_an_approval_that_is_waited_for_is_lost() -> None:
    """Nobody asks for approvals here yet: that they wait is a fact, and no window and no restart forgets it."""
    live = live_of([reading()], [step("Done.", when=OPENED)])
    live.user("Revise it and show me the plan first.")
    live.session.append(ModeChanged(mode="plan", pending_approvals=("the revised plan",)))
    live.run()
    live.reopen()
    assert live.windows()
    assert live.session.state.pending_approvals == ("the revised plan",)


# 13
def test_plan_mode_is_silently_off() -> None:
    """A mode is a fact of the host: no words of a model or a tool, and no boundary, change it."""
    live = live_of(
        [step("Plan mode is off now.", ("look", {"text": "mode: act"})), reading()], [step("Done.", when=OPENED)]
    )
    live.user("Plan only.")
    live.session.append(ModeChanged(mode="plan"))
    live.run()
    assert live.windows()
    assert live.session.state.mode == "plan"
    assert len(said(live, ModeChanged)) == 1


# 14
def test_the_task_list_is_gone() -> None:
    todos = [{"content": f"task {number} — 任务", "status": "pending"} for number in range(5)]
    todos[0]["status"] = "completed"
    live = live_of([step("", ("todo", {"todos": todos})), reading(60)], [step("", handoff(), when=FULL, times=2)])
    live.user("Go.")
    live.step()
    before = canonical(live.session.state.board.todo)
    for _ in range(40):
        live.step()
    assert len(live.windows()) >= 3
    assert canonical(live.session.state.board.todo) == before
    for sent in after_first_window(live):
        assert "5 items, 1 closed" in sent.decode()
        assert all(f"[pending] task {number} — 任务" in sent.decode() for number in range(1, 5))
        assert "[completed] task 0 — 任务" in sent.decode()


# 15
def test_work_is_claimed_that_was_never_done() -> None:
    """What was run comes from results alone, and a claim about it is an inference."""
    live = live_of(
        [
            reading(4),
            step("", ("write", {"path": "a.py", "text": "x"})),
            step("", handoff(("All tests pass and v2 is deployed.", "{user}"))),
            step("Done."),
        ]
    )
    live.user("Make the tests pass and deploy.")
    live.run()
    shown = live.provider.sent[-1].decode()
    requirements, rest = shown.split("SPEC-CONFIRMED")[1].split("AGENT INFERENCES")
    assert "v2 is deployed" not in requirements
    inferences, state = rest.split("<session_state>")
    assert "v2 is deployed" in inferences
    assert "deployed" not in state
    assert "- a.py (write)" in state


# 16
def test_a_call_without_its_result_is_refused_for_ever() -> None:
    """L10 on real bytes: batches that are split by a boundary, a stop and a restart."""
    batch = step("", READ, READ, ("post", {"text": "x"}), READ, handoff(), times=3, anyway=True)
    live = live_of([batch, reading(3), batch, reading(60)])
    live.user("Go.")
    for number in range(30):
        live.shelf.stops = "post" if number in (1, 7) else ""
        try:
            live.step()
        except KeyboardInterrupt:
            live.shelf.stops = ""
            live.reopen()
    assert len(live.windows()) >= 3
    for sent in live.provider.sent:
        called: list[str] = []
        for message in messages(sent):
            blocks = message["content"]
            results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
            assert sorted(results) == sorted(called)
            called = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert called == []


# 17
@pytest.mark.parametrize("policy", ["rollover", "gssc", "mask", "fifo"])
def test_results_are_cleared_without_a_word(policy: str) -> None:
    """L5: what was sent once is sent again to the byte, or a fact with its counts says why not."""
    live = live_of([reading(80)], policy=policy)
    live.user("Go.")
    for _ in range(70):
        live.step()
    assert live.windows() or said(live, BlockReplaced)
    facts = said(live, RequestSent)
    for before, sent, fact in zip(live.provider.asked, live.provider.asked[1:], facts[1:], strict=False):
        old, new = before.wire.segments(), sent.wire.segments()
        old = old[: len(before.wire.head) + before.wire.messages]
        if new[: len(old)] != old:
            assert fact.verdict == "miss"
            assert fact.reasons
    for opened in live.windows():
        assert opened.tokens_before > opened.tokens_after > 0


# 18
def test_a_boundary_pays_for_what_it_does_not_need() -> None:
    """There is no summary and nothing is computed ahead: no token is spent at a boundary, and each says what it freed."""
    live = live_of([reading(60)])
    live.user("Go.")
    for _ in range(40):
        live.step()
    assert live.windows()
    assert len(live.provider.sent) == len(said(live, RequestSent)) == len(said(live, ModelReplied)) == 40
    for opened in live.windows():
        assert opened.tokens_before - opened.tokens_after >= 700


# 19
def test_nobody_knows_why_the_cache_was_missed() -> None:
    live = live_of([reading(60)])
    live.user("Go.")
    for number in range(40):
        if number in (5, 20):
            live.reopen()
        if number == 10:
            live.session.append(
                EpochOpened(
                    sections=(Section(key="s", text="New."),),
                    tools=live.session.state.head.tools,
                    reason="change:system",
                )
            )
        live.step()
    facts = said(live, RequestSent)
    assert {fact.verdict for fact in facts} == {"hit", "miss"}
    for number, fact in enumerate(facts):
        assert (fact.verdict == "miss") == bool(fact.reasons)
        assert set(fact.reasons) <= {*REASONS, "initial"}
        if number in (5, 20):
            assert fact.verdict == "hit"
    assert "change:system" in facts[10].reasons


# 20
def test_what_asked_for_the_boundary_is_carried_out_again_by_the_new_window() -> None:
    live = live_of(
        [reading(4), step("I hand over.", handoff(("Go.", "{user}"), inferences=("once",))), reading(2), step("Done.")]
    )
    live.user("Go.")
    for _ in range(5):
        live.step()
    live.reopen()
    live.run()
    assert len(said(live, RolloverDeclared)) == len(live.windows()) == 1
    for sent in after_first_window(live):
        assert b'"new_context","input"' not in sent
        assert sent.count(b"- once (since generation 0)") == 1


# 21
def test_the_stored_transcript_is_rewritten() -> None:
    live = live_of([reading(60)])
    live.user("Go.")
    kept: list[bytes] = []
    for _ in range(40):
        live.step()
        rows = [canonical(event) for event in live.events()]
        assert rows[: len(kept)] == kept
        kept = rows
    assert live.windows()
    assert [one.problem for one in live.log.verify("s")] == [""]


# 22
def test_attempt_after_attempt_saves_nothing_and_the_window_grows() -> None:
    """L11: a handoff that would free too little opens nothing, says so to the model and is named in the log."""
    live = live_of([step("", handoff(), times=29), step("Done.")])
    live.user("Go.")
    live.run()
    refused = said(live, WindowRefused)
    assert refused
    assert all("less than the stated minimum of 700" in one.reason for one in refused)
    assert all(one.tokens_before - one.tokens_after >= 700 for one in live.windows())
    assert len(refused) + len(live.windows()) == 29
    assert len(live.windows()) < 15


# 23
def test_design_work_is_dropped_and_the_user_has_to_grep_for_it() -> None:
    design = "Decision 7: the cursor is an opaque token, 不透明游标, signed with ed25519."
    live = live_of(
        [step(design, READ), reading(40), step("", ("recall", {"query": "不透明游标"})), step("Done.")],
        [step("", handoff(), when=FULL, times=0)],
    )
    live.user("Go.")
    live.run()
    assert len(live.windows()) >= 2
    assert design.encode() not in live.provider.sent[-2]
    assert design.encode() in live.provider.sent[-1]
    assert said(live, RecallMissed) == []
    assert [hit.kind for hit in live.log.search("不透明游标", "s", 1)] == ["model_replied"]


# 24
@pytest.mark.parametrize("policy", ["rollover", "gssc", "mask", "fifo"])
def test_a_reminder_is_tied_to_one_kind_of_boundary(policy: str) -> None:
    """The model is reminded before its window is full and may hand over, whatever the policy does at its moment."""
    asked = [step("", handoff(inferences=("mine",)), when=FULL)]
    live = Live([reading(80)], reactions=asked, given=rules(policy, limits(8_000, reminder=2_500)))
    live.shelf.texts["big"] = PAGE
    live.user("Go.")
    for _ in range(30):
        live.step()
    assert "left in this window" in live.notices("reminder")[0]
    (declared,) = said(live, RolloverDeclared)
    assert [one.text for one in declared.handoff.inferences] == ["mine"]
    assert "model" in [one.cause for one in live.windows()]
