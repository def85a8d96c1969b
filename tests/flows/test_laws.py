"""The laws of the kernel as properties of random histories. `docs/invariants.md` says which test holds which law."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

from hypothesis import given
from hypothesis import strategies as st

from transom.adapters.blobs import DirBlobs
from transom.adapters.memory_log import MemoryLog
from transom.adapters.provider_anthropic import DIALECT
from transom.adapters.sqlite_log import SqliteLog
from transom.core.block import Text, ToolResultRaw
from transom.core.boundary import prompt_tokens
from transom.core.cache import REASONS, check, pin_of
from transom.core.canon import canonical
from transom.core.epochs import known_of, text_of_section
from transom.core.event import (
    Draft,
    EpochOpened,
    Event,
    RequestSent,
    RolloverDeclared,
    Section,
    WindowOpened,
    WindowRefused,
)
from transom.core.gssc import tail
from transom.core.handoff import escape_tags
from transom.core.policy import Policy
from transom.core.projection import project
from transom.core.state import Head, State
from transom.core.wire import Rendering, Segment, Wire, head_digests
from transom.errors import OverBudget, Unwritable, UsageError
from transom.ports import Log
from transom.session import Session
from transom.testing.builders import Story, call, rules
from transom.testing.histories import LIMIT, Kind, Move, Play, histories, policies


def rows(log: Log, session_id: str = "s") -> list[bytes]:
    """Every event as bytes, its digest too."""
    return [canonical(event) for event in log.read(session_id)]


def same(left: State, right: State) -> bool:
    """Equal to the last field and in the order of every map."""
    return left == right and [list(found) for found in maps(left)] == [list(found) for found in maps(right)]


def maps(state: State) -> tuple[dict[Any, Any], ...]:
    board, window = state.board, state.window
    return board.failures, board.files, board.commands, window.calls, window.place, state.head.changes


def content(wire: Wire) -> tuple[object, ...]:
    """Everything a wire says, views cut to what belongs to it."""
    end = wire.messages
    return (
        wire.segments(),
        wire.head_digests,
        list(wire.rolling[: end + 1]),
        [wire.counts(place) for place in range(end + 1)],
        list(wire.ends[: end + 1]),
        wire.tail_text,
    )


def fresh(session: Session, state: State) -> Wire:
    """The wire of a state from nothing, with the tail the session's policy gives it."""
    words = tail(state, session.rules.policy, session.rules.bounds.base - prompt_tokens(state))
    return Rendering(DIALECT).wire(state, words)


def messages(wire: Wire) -> list[dict[str, Any]]:
    return [json.loads(data) for data in wire.body[: wire.messages]]


def unpaired(wire: Wire) -> list[str]:
    """What is wrong with the calls and results of a wire, as sentences."""
    found: list[str] = []
    waiting: list[str] = []
    for number, message in enumerate(messages(wire)):
        blocks = message["content"]
        if message["role"] == "assistant":
            found.extend(f"{call_id} has no result before message {number}" for call_id in waiting)
            waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
            if len(set(waiting)) < len(waiting):
                found.append(f"message {number} uses an id twice")
            continue
        for block in blocks:
            if block["type"] == "tool_result":
                if block["tool_use_id"] in waiting:
                    waiting.remove(block["tool_use_id"])
                else:
                    found.append(f"message {number} answers {block['tool_use_id']}, which was not called")
    found.extend(f"{call_id} has no result at the end" for call_id in waiting)
    return found


# -- L1, L2, L3


@given(histories(), policies())
def test_whatever_a_session_does_earlier_rows_stay_byte_for_byte(moves: list[Move], policy: Policy) -> None:
    """L1: the log only grows."""
    play = Play(policy)
    before = rows(play.story.log)
    for move in moves:
        play.move(move)
        now = rows(play.story.log)
        assert now[: len(before)] == before
        before = now


@given(histories(largest=6, longest=8), policies())
def test_a_durable_log_only_grows_too_and_holds_the_same_events(moves: list[Move], policy: Policy) -> None:
    """L1: with SQLite; and the same history has the same rows in memory."""
    with tempfile.TemporaryDirectory() as folder:
        with SqliteLog(Path(folder) / "log.db", DirBlobs(Path(folder) / "blobs")) as log:
            play = Play(policy, log=log)
            before = rows(log)
            for move in moves:
                play.move(move)
                now = rows(log)
                assert now[: len(before)] == before
                before = now
        assert before == rows(Play(policy).run(moves).story.log)


@given(histories(), policies())
def test_the_same_events_make_the_same_state_and_the_same_bytes(moves: list[Move], policy: Policy) -> None:
    """L2: folding from nothing equals folding as it happened, and rendering from nothing equals rendering on, after
    each request, under each policy, over restarts."""
    play = Play(policy)

    def look(session: Session) -> None:
        state = project(play.story.log.read("s", until=session.state.seq))
        assert same(state, session.state)
        sent = state.seq
        asked = project(play.story.log.read("s", until=sent - 1))
        assert content(fresh(session, asked)) == content(play.sent[-1].wire)

    play.watch = look
    play.run(moves)
    state = play.session.state
    assert same(project(play.story.log.read("s", until=state.seq)), state)


@given(histories(), policies(), st.data())
def test_a_session_cut_anywhere_reopens_to_what_it_was_there(
    moves: list[Move], policy: Policy, data: st.DataObject
) -> None:
    """L2: any prefix of a log is a session, and a restart there changes no byte and no verdict."""
    play = Play(policy).run(moves)
    events = play.story.events()
    cut = data.draw(st.integers(1, len(events)), label="cut")
    copy = MemoryLog()
    copy.append("s", 0, [Draft(fact=event.fact, uuid=event.uuid, at=event.at) for event in events[:cut]])
    one, other = (Session.open(copy, "s", rules(policy, LIMIT)) for _ in range(2))
    assert same(one.state, project(events[:cut]))
    assert content(fresh(one, one.state)) == content(fresh(other, other.state))


@given(histories(), policies(), policies())
def test_projecting_and_rendering_never_decide(moves: list[Move], policy: Policy, other: Policy) -> None:
    """L3: a log holds every decision. Read under another policy it gives the same state and body, and reading it
    appends nothing."""
    play = Play(policy).run(moves)
    before = rows(play.story.log)
    mine = Session.open(play.story.log, "s", rules(policy, LIMIT))
    theirs = Session.open(play.story.log, "s", rules(other, 3 * LIMIT))
    assert same(mine.state, theirs.state)
    one, two = (Rendering(DIALECT).wire(session.state) for session in (mine, theirs))
    assert content(one) == content(two)
    assert rows(play.story.log) == before


# -- L4, L12: faults


class Failing:
    """A log whose disk fails at the append number `at`: before anything is stored, or with the answer lost."""

    def __init__(self, log: Log, at: int, *, stores: bool) -> None:
        self._log = log
        self._left = at
        self._stores = stores
        self.read = log.read
        self.sessions = log.sessions
        self.search = log.search
        self.find = log.find
        self.verify = log.verify

    def append(self, session_id: str, after: int, drafts: Sequence[Draft]) -> tuple[Event, ...]:
        self._left -= 1
        if self._left == 0:
            if self._stores:
                self._log.append(session_id, after, drafts)
            raise Unwritable("no space left on device")
        return self._log.append(session_id, after, drafts)


@given(histories(longest=14), policies(), st.integers(3, 40), st.booleans())
def test_a_crash_between_any_two_appends_leaves_a_session_that_goes_on(
    moves: list[Move], policy: Policy, at: int, stores: bool
) -> None:
    """L4: a boundary is one append, so it stands whole or not at all; what was declared before a crash is committed by
    the next boundary, once. The session object is abandoned at the crash."""
    log = MemoryLog()
    play = Play(policy, log=Failing(log, at, stores=stores))
    for move in moves:
        try:
            play.move(move)
        except Unwritable:
            play.story.log = log
            play.story.reopen()
    play.story.log = log
    play.story.reopen()
    assert same(play.session.state, project(log.read("s")))
    if play.step():
        assert not unpaired(play.sent[-1].wire)
        assert not play.session.state.intent
    declared = [event for event in log.read("s") if isinstance(event.fact, RolloverDeclared)]
    facts = [event.fact for event in log.read("s")]
    by = [fact.declared_by for fact in facts if isinstance(fact, WindowOpened) and fact.cause == "model"]
    assert len(by) == len(set(by))
    assert set(by) <= {event.uuid for event in declared}


@given(
    histories(*(kind for kind in get_args(Kind) if kind != "rival"), longest=14),
    policies(),
    st.integers(3, 40),
    st.booleans(),
)
def test_a_failed_append_never_leaves_the_state_ahead_of_the_log(
    moves: list[Move], policy: Policy, at: int, stores: bool
) -> None:
    """L12: after any exception the session is where the log is, or, if the answer was lost, where it was before; and
    the same session goes on once the disk has room."""
    log = MemoryLog()
    play = Play(policy, log=Failing(log, at, stores=stores))
    for move in moves:
        try:
            _tried(play, move)
        except Unwritable:
            state = play.session.state
            assert same(state, project(log.read("s", until=state.seq)))
            assert stores or state.seq == sum(1 for _ in log.read("s"))
    play.session.log = log
    if _tried(play, Move("step")) or _tried(play, Move("step")):
        assert content(play.sent[-1].wire) == content(
            fresh(play.session, project(log.read("s", until=play.session.state.seq - 1)))
        )
    assert same(play.session.state, project(log.read("s")))


@given(histories(), policies("rollover", "gssc", "mask", "fifo"))
def test_a_declared_rollover_is_committed_or_refused_once_at_the_next_boundary(
    moves: list[Move], policy: Policy
) -> None:
    """L4: intent is one fact, commit another, in one append with all else that boundary decided."""
    play = Play(policy).run(moves)
    play.boundary()
    waiting = ""
    for event in play.story.events():
        fact = event.fact
        if isinstance(fact, RolloverDeclared):
            waiting = event.uuid
        elif isinstance(fact, WindowOpened) and fact.cause == "model":
            assert fact.declared_by == waiting != ""
            waiting = ""
        elif isinstance(fact, WindowOpened) or (isinstance(fact, WindowRefused) and fact.cause == "model"):
            waiting = ""
        elif isinstance(fact, RequestSent) and play.story.calls == []:
            assert not waiting
    assert play.refused or not play.session.state.intent


# -- L5


def mutated(wire: Wire, how: int, place: int) -> tuple[Wire, str]:
    """The wire with one undeclared change, and what the drift is called. An empty name: nothing was there to change."""
    head, body = list(wire.head), list(wire.body[: wire.messages])
    tools = [segment for segment in head if segment.name.startswith("tools:")]
    system = [segment for segment in head if segment.name.startswith("system:")]
    name = ""
    if how == 0:
        tools[0] = Segment(name=tools[0].name, data=tools[0].data + b" ")
        name = f"drift:{tools[0].name}"
    elif how == 1:
        tools.reverse()
        name = "drift:tools"
    elif how == 2:
        gone = tools.pop(place % len(tools))
        name = f"drift:{gone.name}"
    elif how == 3:
        system[-1] = Segment(name=system[-1].name, data=system[-1].data.replace(b"You", b"Yoo"))
        name = f"drift:{system[-1].name}"
    elif body and how == 4:
        place %= len(body)
        data = body[place]
        at = len(data) // 2
        body[place] = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        name = f"drift:message[{place}]"
    elif body and how == 5:
        place %= len(body)
        same_follow = [number for number in range(place, len(body) - 1) if body[number] != body[number + 1]]
        name = f"drift:message[{same_follow[0] if same_follow else len(body) - 1}]"
        del body[place]
    return remade(wire, [*tools, *system], body), name


def remade(wire: Wire, head: Sequence[Segment], body: Sequence[bytes]) -> Wire:
    """The wire with other segments; its digests are derived here once more, as the file head of `wire` says."""
    hasher = hashlib.sha256()
    rolling = [hasher.digest()]
    for data in body:
        hasher.update(b"%d:" % len(data) + data)
        rolling.append(hasher.digest())
    return replace(
        wire, head=tuple(head), head_digests=head_digests(head), body=body, rolling=rolling, messages=len(body)
    )


@given(histories(longest=12), policies(), st.integers(0, 5), st.integers(0, 99))
def test_an_undeclared_change_is_drift_that_names_its_segment_until_it_is_undone(
    moves: list[Move], policy: Policy, how: int, place: int
) -> None:
    """L5: a changed, permuted or missing tool, an edited section, one flipped bit of a message, a dropped message; a
    declaration excuses its own component and no other."""
    play = Play(policy).run([*moves, Move("step")])
    if play.refused or not play.sent:
        return
    wire = play.sent[-1].wire
    pin = pin_of(wire)
    changed, name = mutated(wire, how, place)
    if not name:
        return
    for _ in range(2):
        assert check(pin, changed, ()).kind == "drift"
        assert check(pin, changed, ()).reasons == (name,)
    own, foreign = {
        "tools": ("change:tools", ("reset:rollover", "change:system")),
        "syste": ("change:system", ("reset:rollover", "change:tools")),
        "messa": ("reset:rollover", ("change:tools", "change:system", "resume")),
    }[name[6:11]]
    assert check(pin, changed, foreign).reasons == (name,)
    assert check(pin, changed, (own,)).kind == "miss"
    assert check(pin, changed, (own,)).reasons == (own,)
    assert check(pin, wire, ()).kind == "hit"


@given(histories(), policies())
def test_every_request_is_a_hit_or_a_miss_with_a_name(moves: list[Move], policy: Policy) -> None:
    """L5: whatever happens through facts is declared by them; nothing a session does is drift. What an epoch changes
    beyond its reason is, since a reason excuses its own component only; here it never does."""
    play = Play(policy).run(moves)
    for number, prepared in enumerate(play.sent):
        verdict = prepared.verdict
        assert verdict.kind != "drift", verdict
        assert (verdict.kind == "hit") == (verdict.reasons == ())
        assert set(verdict.reasons) <= set(REASONS)
        assert ("initial" in verdict.reasons) == (number == 0 and not any(m.kind == "rival" for m in moves)) or any(
            m.kind == "rival" for m in moves
        )


@given(histories(longest=10), histories(longest=6), policies(), st.booleans())
def test_a_drifting_session_says_so_at_each_request_and_its_pin_does_not_move(
    moves: list[Move], later: list[Move], policy: Policy, restarts: bool
) -> None:
    """L5: a host that renders its head differently without a fact: reported at every request, over restarts, until it
    renders as before; what was declared meanwhile is not forgotten."""
    wrong: list[bool] = []

    def head(given_head: Head) -> tuple[Segment, ...]:
        made = DIALECT.head(given_head)
        return (*made[:-1], replace(made[-1], data=made[-1].data + b" ")) if wrong and made else made

    play = Play(policy)
    play.story.rules = replace(play.story.rules, dialect=replace(DIALECT, head=head))
    play.story.reopen()
    play.run([*(move for move in moves if move.kind != "epoch"), Move("step")])
    if play.refused:
        return
    before = play.session.state.pin
    wrong.append(True)
    play.story.reopen()
    count = len(play.sent)
    for move in later:
        if move.kind not in ("epoch", "rival"):
            play.move(move)
            if restarts:
                play.story.reopen()
    for prepared in play.sent[count:]:
        assert prepared.verdict.kind == "drift"
        assert prepared.verdict.reasons == ("drift:system:s0",)
        assert play.session.state.pin == before
    wrong.clear()
    play.story.reopen()
    if play.step():
        assert play.sent[-1].verdict.kind in ("hit", "miss")
        assert not any(reason.startswith("drift") for reason in play.sent[-1].verdict.reasons)


@given(histories(), policies())
def test_every_window_knows_what_has_become_of_the_head(moves: list[Move], policy: Policy) -> None:
    """L5: what changes around the agent is appended to a head that stays, and stands in every request from then on,
    through new windows, rewrites, restarts and rivals; each word of it is said once, and never taken back by a stub."""
    play = Play(policy)

    def look(session: Session) -> None:
        state = session.state
        assert state.window.known == known_of(state.window.items)
        frozen = {section.key: section.text for section in state.head.sections}
        seen = frozen | state.window.known
        for key in (*state.head.order, *state.window.known):
            assert seen.get(key) == text_of_section(state.head, key)
        said = [key for item in state.window.items if item.states for key, _ in item.states]
        shown = "\n".join(block.text for item in state.window.items for block in item.blocks if isinstance(block, Text))
        assert len(said) == sum(shown.count(f"\n[{key}]\n") for key in ("s0", "rules", "date"))

    play.watch = look
    play.run(moves)


# -- L6


def _stands(session: Session, number: int) -> bool:
    """Is user message `number` in the window to the letter?"""
    words = session.state.words[number]
    for item in session.state.window.items:
        if item.seq == words.seq and item.blocks == words.blocks:
            return True
        if item.of == words.seq and item.blocks[1:] == words.blocks:
            return True
    return False


_FAILED = re.compile(r"failed attempts[^\n]*:\n(.*?)(?=\n[a-z][^\n]*:\n|\n</)", re.DOTALL)
_MORE = re.compile(r"^\((\d+) more", re.MULTILINE)


@given(histories(*(kind for kind in get_args(Kind) if kind != "dispose")), policies("rollover", "gssc"))
def test_what_a_user_said_and_what_failed_stand_in_every_new_window(moves: list[Move], policy: Policy) -> None:
    """L6: specification, constraints and open messages to the letter; failures, todo and files there or counted."""
    play = Play(policy)

    def look(session: Session) -> None:
        state = session.state
        shown = "\n".join(block.text for item in state.window.items for block in item.blocks if isinstance(block, Text))
        firsts = {item.seq for item in state.first if item.role == "user"}
        for number, words in enumerate(state.words):
            if words.seq in firsts or words.disposition == "open":
                assert _stands(session, number), words
            for line in words.constraints:
                assert line in shown
        if state.window.generation and state.board.failures:
            seeds = "\n".join(
                block.text
                for item in state.window.items
                if not item.seq
                for block in item.blocks
                if isinstance(block, Text)
            )
            since = {one.uuid for one in state.board.failures.values() if one.seq > state.window.opened}
            told = _FAILED.search(seeds)
            old = [one for one in state.board.failures.values() if one.uuid not in since]
            there = [
                one
                for one in old
                if escape_tags(one.attempt) in seeds and escape_tags(one.error.split("\n")[0]) in seeds
            ]
            if len(there) < len(old):
                assert told is not None
                assert _MORE.search(told[1]) is not None

    play.watch = look
    play.run(moves)


# -- L10


@given(histories(), policies())
def test_every_call_has_its_result_on_the_wire_and_every_result_its_call(moves: list[Move], policy: Policy) -> None:
    """L10: with interrupted and parallel calls, ids used twice, late and unknown results, rewrites by others."""
    play = Play(policy).run([*moves, Move("step")])
    for prepared in play.sent:
        assert not unpaired(prepared.wire)


@given(histories(), policies(), policies(), st.data())
def test_calls_and_results_are_paired_however_a_log_is_cut_and_under_whatever_policy_it_goes_on(
    moves: list[Move], policy: Policy, other: Policy, data: st.DataObject
) -> None:
    """L10: a copy of the log up to any event, continued by another policy."""
    events = Play(policy).run(moves).story.events()
    cut = data.draw(st.integers(1, len(events)), label="cut")
    copy = MemoryLog()
    copy.append("s", 0, [Draft(fact=event.fact, uuid=event.uuid, at=event.at) for event in events[:cut]])
    session = Session.open(copy, "s", rules(other, LIMIT))
    try:
        session.boundary()
    except OverBudget:
        return
    assert not unpaired(session.request().wire)


# -- L11 and the limit


@given(histories(), policies("fifo", "mask", "rollover", "gssc"))
def test_no_request_is_larger_than_the_limit_leaves_for_a_prompt(moves: list[Move], policy: Policy) -> None:
    """L11: and where the user's own words alone are larger, the refusal says the numbers."""
    play = Play(policy).run(moves)
    for prepared in play.sent:
        assert prepared.tokens <= play.story.rules.bounds.hard
    for refusal in play.refused:
        assert re.search(r"[\d,]+ tokens, over the [\d,]+ .* at least [\d,]+", str(refusal))


@given(histories(), policies("fifo", "mask", "rollover", "gssc"))
def test_a_new_window_frees_the_stated_minimum_or_was_forced_and_a_refusal_is_named(
    moves: list[Move], policy: Policy
) -> None:
    """L11: and the size a boundary promises is the size it has."""
    play = Play(policy).run(moves)
    hard = play.story.rules.bounds.hard
    least = int(policy.min_gain * hard)
    for event in play.story.events():
        fact = event.fact
        if isinstance(fact, WindowOpened):
            assert fact.tokens_before - fact.tokens_after >= least or fact.tokens_before >= hard
            if policy.where == "flat":
                assert prompt_tokens(project(play.story.log.read("s", until=event.seq))) == fact.tokens_after
        if isinstance(fact, WindowRefused):
            assert fact.cause
            assert re.search(r"[\d,]+ tokens, less than .* [\d,]+", fact.reason)


@given(
    policies("fifo", "mask", "rollover", "gssc"),
    st.sampled_from((8_000, 32_000)),
    st.integers(0, 25),
    st.integers(1, 20),
    st.integers(1, 10),
)
def test_under_steady_traffic_every_window_lasts(policy: Policy, limit: int, head: int, spec: int, step: int) -> None:
    """L11: head and specification up to 45 % of the prompt, each step up to 10 %: no storm of boundaries."""
    story = Story(rules(policy, limit))
    hard = story.rules.bounds.hard
    ratio = story.session.state.calibration.ratios[0]
    if head:
        story.say(EpochOpened(sections=(Section(key="s", text="x", tokens=int(hard * head / 100 / ratio)),)))
    story.user(Text(text="Build it.", tokens=int(hard * spec / 100 / ratio)))
    opened: list[int] = []
    for number in range(40):
        story.step()
        if story.session.state.window.generation > len(opened):
            opened.append(number)
        story.reply(call(f"c{number}", "bash", f'{{"n":{number}}}'))
        size = int(hard * step / 100 / ratio)
        story.returned(f"c{number}", ToolResultRaw(text=f"output {number}", tokens=size, content="prose"))
    assert all(later - sooner >= 2 for sooner, later in pairwise(opened)), opened
    refused = sum(isinstance(event.fact, WindowRefused) for event in story.events())
    assert refused <= 20


# -- two sessions


def _tried(play: Play, move: Move) -> bool:
    """A request on top of a rival's open calls is refused; the session has read them then."""
    count = len(play.sent)
    try:
        play.move(move)
    except UsageError:
        assert play.story.calls
    return len(play.sent) > count


_SHARED = tuple(kind for kind in get_args(Kind) if kind != "epoch")  # a head made from a stale one is drift


@given(histories(*_SHARED, longest=8), histories(*_SHARED, longest=8), policies(), st.lists(st.booleans(), max_size=16))
def test_two_sessions_on_one_log_never_disagree(
    left: list[Move], right: list[Move], policy: Policy, order: list[bool]
) -> None:
    """L12: each append follows the state it was decided on; the loser reads what won, and decides again."""
    one = Play(policy)
    two = Play(policy, log=MemoryLog())
    two.story.log = one.story.log
    two.story.rules = one.story.rules
    two.story.reopen()
    moves = {True: iter(left), False: iter(right)}
    for is_left in order:
        play = one if is_left else two
        move = next(moves[is_left], Move("step"))
        if move.kind != "restart":
            play.number += 1000 * (not is_left)
            _tried(play, move)
    for play in (one, two):
        if _tried(play, Move("step")) or _tried(play, Move("step")):
            assert not unpaired(play.sent[-1].wire)
        assert all(prepared.verdict.kind != "drift" for prepared in play.sent)
        state = play.session.state
        assert same(state, project(one.story.log.read("s", until=state.seq)))
