from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from transom.adapters.memory_log import MemoryLog
from transom.adapters.provider_anthropic import DIALECT
from transom.core.event import (
    Draft,
    EpochOpened,
    Event,
    HostSaid,
    ModelReplied,
    RequestSent,
    Section,
    SessionOpened,
    Tool,
    Usage,
    UserSaid,
    WindowOpened,
)
from transom.core.projection import project
from transom.core.state import Head
from transom.core.wire import Segment
from transom.errors import OverBudget, SequenceConflict, UsageError
from transom.session import Session
from transom.testing.builders import Story, call, rules, text


def head_of(story: Story) -> None:
    story.say(EpochOpened(sections=(Section(key="s", text="You."),), tools=(Tool(name="a"), Tool(name="b"))))


def test_an_id_that_is_taken_cannot_be_started_again() -> None:
    story = Story(rules())
    with pytest.raises(SequenceConflict, match="head is event 1; the id is taken: open that session"):
        Story(rules(), log=story.log)


def test_facts_are_appended_as_one_with_their_own_names() -> None:
    story = Story(rules())
    two = story.say(UserSaid(blocks=()), HostSaid(kind="injected", blocks=()))
    assert [event.seq for event in two] == [2, 3]
    assert two[0].uuid != two[1].uuid
    (event,) = story.session.append(UserSaid(blocks=()), uuid="mine", at=77)
    assert (event.uuid, event.at) == ("mine", 77)
    assert story.say() == ()


def test_one_name_is_not_given_to_two_facts() -> None:
    story = Story(rules())
    with pytest.raises(UsageError, match="uuid mine names one fact, not 2"):
        story.session.append(UserSaid(blocks=()), UserSaid(blocks=()), uuid="mine")
    assert story.session.state.seq == 1


def test_no_request_is_made_while_calls_are_open() -> None:
    """L4, L10."""
    story = Story(rules())
    story.step()
    story.reply(call("a"), call("b"))
    with pytest.raises(UsageError, match="2 calls have no result yet"):
        story.session.request()
    assert story.step().verdict.kind == "hit"


def test_the_verdict_is_in_the_log_before_anything_is_sent() -> None:
    story = Story(rules())
    head_of(story)
    story.user("hi")
    prepared = story.session.request()
    fact = story.events()[-1].fact
    assert isinstance(fact, RequestSent)
    assert (fact.verdict, fact.reasons, fact.tokens) == ("miss", ("initial",), prepared.tokens)
    assert fact.body == prepared.wire.rolling[1].hex()
    assert fact.body_messages == 1
    assert fact.head == "".join(prepared.wire.head_digests[name] for name in ("tools", "system", "params"))


def test_a_tail_costs_its_own_tokens_and_no_miss() -> None:
    story = Story(rules("gssc"))
    first = story.step()
    assert (first.wire.tail, first.tail_tokens) == (b"", 0)
    story.user("You must never touch a.py.")
    prepared = story.step()
    assert b"You must never touch a.py." in prepared.wire.segments()[-1]
    assert prepared.tail_tokens > 0
    story.reply("ok")
    story.user("You must never touch b.py.")
    assert story.step().verdict.kind == "hit"


def test_a_session_reopens_with_its_pin_and_names_what_moved_meanwhile() -> None:
    """L2, L5."""
    story = Story(rules())
    head_of(story)
    story.user("hi")
    story.step()
    story.reply("yes")
    story.user("more")
    story.reopen()
    verdict = story.step().verdict
    assert (verdict.kind, verdict.kept) == ("hit", 1)


def test_a_window_that_opened_just_before_a_crash_is_a_named_miss_with_the_same_count_of_kept_messages() -> None:
    """L2: the pin is rendered from the state it was made of."""
    story = Story(rules())
    head_of(story)
    story.user("spec")
    for _ in range(3):
        story.step()
        story.reply("yes")
        story.user("more")
    story.say(WindowOpened(cause="operator", generation=1, kept_head=(3,), kept_tail=(story.session.state.seq,)))
    kept = Session.open(story.log, "s", story.rules)
    copied = MemoryLog()
    copied.append("s", 0, [Draft(fact=one.fact, uuid=one.uuid, at=one.at) for one in story.events()])
    there = story.step().verdict
    kept = Session.open(copied, "s", story.rules)
    assert kept.request().verdict == there
    assert (there.kind, there.reasons, there.kept) == ("miss", ("reset:rollover",), 1)


def test_another_kernel_that_renders_the_body_differently_finds_drift_from_the_start() -> None:
    story = Story(rules())
    head_of(story)
    story.user("spec")
    story.step()
    story.reply("yes")
    story.user("more")
    story.step()
    story.rules = replace(story.rules, dialect=replace(DIALECT, message=lambda group: DIALECT.message(group) + b" "))
    story.reopen()
    verdict = story.step().verdict
    assert (verdict.kind, verdict.reasons) == ("drift", ("drift:message[0]",))
    assert story.step().verdict.kind == "drift"


def test_another_kernel_that_renders_the_head_differently_finds_drift() -> None:
    story = Story(rules())
    head_of(story)
    story.step()

    def head(given: Head) -> tuple[Segment, ...]:
        return tuple(Segment(name=one.name, data=one.data + b" ") for one in DIALECT.head(given))

    story.rules = replace(story.rules, dialect=replace(DIALECT, head=head))
    story.reopen()
    assert story.step().verdict.reasons == ("drift:tools:a", "drift:system:s")


def test_a_rival_that_sent_the_last_request_moved_the_pin() -> None:
    """L5: what the rival declared and sent is no drift of ours."""
    story = Story(rules())
    head_of(story)
    story.user("spec")
    story.step()
    rival = Session.open(story.log, "s", story.rules)
    rival.append(EpochOpened(sections=(Section(key="s", text="New."),), reason="change:system"), uuid="")
    rival.append(EpochOpened(sections=(Section(key="s", text="New."),), tools=(Tool(name="c"),), reason="change:tools"))
    rival.append(UserSaid(blocks=(text("theirs"),)))
    assert rival.request().verdict.kind == "miss"
    story.user("mine")
    prepared = story.step()
    assert prepared.verdict.kind == "hit"
    assert b"theirs" in prepared.wire.body[1]


class Racing:
    """A log where a rival gets one append in before each of the next `races` of ours."""

    def __init__(self, log: MemoryLog, races: int) -> None:
        self._log = log
        self.races = races
        self.read = log.read
        self.sessions = log.sessions
        self.search = log.search
        self.find = log.find
        self.verify = log.verify

    def append(self, session_id: str, after: int, drafts: Sequence[Draft]) -> tuple[Event, ...]:
        if self.races > 0 and after:
            self.races -= 1
            rival = Draft(fact=UserSaid(blocks=(text(f"rival {self.races}"),)), uuid=f"r{self.races}", at=0)
            self._log.append(session_id, after, (rival,))
        return self._log.append(session_id, after, drafts)


def test_a_lost_race_is_read_decided_again_and_retried() -> None:
    log = Racing(MemoryLog(), 0)
    story = Story(rules(), log=log)
    log.races = 7
    story.user("mine")
    assert story.shown().endswith("rival 0\nmine")
    log.races = 3
    prepared = story.session.request()
    assert b"rival 0" in prepared.wire.body[prepared.wire.messages - 1]
    assert story.session.state == project(story.events())


def test_a_race_that_is_lost_again_and_again_is_reported() -> None:
    log = Racing(MemoryLog(), 0)
    story = Story(rules(), log=log)
    log.races = 8
    with pytest.raises(SequenceConflict, match="8 appends in a row"):
        story.user("mine")
    assert story.session.state == project(story.events())
    story.user("mine")
    assert story.session.state == project(story.events())


def test_a_refused_boundary_appends_nothing() -> None:
    story = Story(rules("rollover", 4_000))
    story.user("word " * 9_000)
    before = story.session.state.seq
    with pytest.raises(OverBudget):
        story.session.boundary()
    assert story.session.state.seq == before == len(story.events())


@dataclass
class Saved:
    """The `Snapshots` port over a list."""

    rows: list[tuple[int, bytes, bytes]] = field(default_factory=list)

    def save(self, session_id: str, seq: int, digest: bytes, state: bytes) -> None:
        self.rows.insert(0, (seq, digest, state))

    def newest(self, session_id: str) -> list[tuple[int, bytes, bytes]]:
        return self.rows


def played(saved: Saved, words: str = "go") -> tuple[MemoryLog, Session]:
    log, given = MemoryLog(), rules("rollover", 8_000)
    session = Session.start(log, "s", SessionOpened(format=1), given, saved)
    session.append(UserSaid(blocks=(text(words),)))
    for _ in range(7):
        session.request()
        session.append(ModelReplied(blocks=(text("yes"),)))
        session.append(HostSaid(kind="injected", blocks=(text("word " * 1200),)))
        session.boundary()
    return log, session


def test_a_saved_state_opens_to_the_same_session() -> None:
    """L2: a snapshot is the fold of the events up to it."""
    saved = Saved()
    log, session = played(saved)
    assert saved.rows
    opened = Session.open(log, "s", session.rules, saved)
    assert opened.state == session.state == project(log.read("s"))
    assert opened.request().verdict == session_verdict(log, session)


def session_verdict(log: MemoryLog, session: Session) -> object:
    copy = MemoryLog()
    events = list(log.read("s", until=session.state.seq))
    copy.append("s", 0, [Draft(fact=one.fact, uuid=one.uuid, at=one.at) for one in events])
    return Session.open(copy, "s", session.rules).request().verdict


def test_a_saved_state_of_another_history_is_not_used() -> None:
    saved = Saved()
    played(saved, "another story")
    log, session = played(Saved())
    saved.rows.append((999, b"", b""))
    assert Session.open(log, "s", session.rules, saved).state == session.state


def test_half_an_emoji_in_the_window_only_costs_the_snapshot() -> None:
    saved = Saved()
    log, session = played(saved, "go \ud800")
    assert saved.rows == []
    assert Session.open(log, "s", session.rules, saved).state == session.state


def test_a_tail_is_counted_once_although_the_reported_prompt_had_it() -> None:
    story = Story(rules("gssc", 20_000))
    story.user("Build it. You must never touch a.py.")
    first = story.step()
    assert first.tail_tokens > 0
    story.reply("I begin.", usage=Usage(uncached=first.tokens, output=2))
    second = story.step()
    grown = second.tokens - first.tokens
    assert 0 < grown < 20 + abs(second.tail_tokens - first.tail_tokens)
