"""Golden request streams: the bytes of every request of a story, from the real renderers, whatever process makes them.

A change of the renderer that changes these bytes would make every stored session drift at its next request; then the
golden file is written again (`python tests/flows/stream.py`), and the changelog says so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from transom import compose
from transom.adapters.memory_log import MemoryLog
from transom.core.block import Text, Thought, ToolCall, ToolResultRaw
from transom.core.cache import Verdict
from transom.core.event import (
    BlockReplaced,
    EpochOpened,
    Fact,
    HostSaid,
    How,
    Replacement,
    Section,
    Seed,
    WindowCause,
    WindowOpened,
)
from transom.core.ledger import requests
from transom.core.pricing import find_price
from transom.core.state import MISS_OF, Head
from transom.core.wire import Rendering
from transom.ports import Outgoing
from transom.session import Session
from transom.testing.builders import Story, call, result, rules, text, thought

from .stream import APIS, GOLDEN, OUTCOMES, asked, facts, rules_for, sent, streamed

DIALECTS = tuple(APIS)
STEPS = range(len(OUTCOMES))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_bytes_are_the_golden_ones(dialect: str) -> None:
    golden = json.loads(GOLDEN.read_text("utf-8"))[dialect]
    assert [one["body"] for one in streamed(dialect)] == golden, "see the head of this file"


def test_every_request_is_the_same_bytes_from_a_process_of_its_own(tmp_path: Path) -> None:
    """A new interpreter with another hash seed between any two steps, and no miss that nobody declared."""
    expected = {dialect: streamed(dialect) for dialect in DIALECTS}
    for step in STEPS:
        running = {dialect: started(tmp_path / dialect, dialect, step) for dialect in DIALECTS}
        for dialect, process in running.items():
            out, err = process.communicate(timeout=60)
            assert process.returncode == 0, err
            found = json.loads(out)
            assert found == expected[dialect][step]
            assert (found["verdict"], found["reasons"]) == OUTCOMES[step]


def started(folder: Path, dialect: str, step: int) -> subprocess.Popen[str]:
    script = Path(__file__).with_name("stream.py")
    return subprocess.Popen(
        [sys.executable, str(script), str(folder), dialect, str(step)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": str(step + 1)},
    )


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_hit_begins_with_all_bytes_of_the_request_before(dialect: str) -> None:
    found = streamed(dialect)
    for before, after in pairwise(found):
        if after["verdict"] == "hit":
            assert after["segments"][: len(before["segments"])] == before["segments"]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("restart", STEPS[1:])
def test_a_restart_before_any_step_changes_no_byte_and_no_verdict(dialect: str, restart: int) -> None:
    log, whole = MemoryLog(), streamed(dialect)
    found = [sent(log, dialect, 0)]
    session = Session.open(log, "s", rules_for(dialect, 1))
    for step in STEPS[1:]:
        if step == restart:
            session = Session.open(log, "s", rules_for(dialect, step))
        session.rules = replace(rules_for(dialect, step), dialect=session.rules.dialect)
        found.append(asked(session, dialect, step))
    assert found == whole


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_ledger_renders_each_request_as_it_was_sent(dialect: str) -> None:
    log = MemoryLog()
    for step in STEPS:
        sent(log, dialect, step)
    table = compose.prices()
    found = list(requests(log.read("s"), APIS[dialect].dialect, lambda model: find_price(table, model)))
    assert [one.is_as_sent for one in found] == [True] * len(OUTCOMES)


# -- what each change is called


def begun(dialect: str) -> Story:
    """Three steps of the story's session, in one process."""
    made = Story(rules=rules("raw", 200_000, dialect=APIS[dialect].dialect))
    for step in range(3):
        made.say(*facts(step, made.session.state))
        made.step()
    return made


def moved(made: Story, change: Callable[[Head], Head]) -> Verdict:
    """The head changes under the kernel's feet: a host that renders it anew."""
    made.session.state.head = change(made.session.state.head)
    made.session._rendering = Rendering(made.rules.dialect)
    return made.step().verdict


def described(head: Head) -> Head:
    tools = tuple(
        msgspec.structs.replace(tool, description="Other.") if tool.name == "a" else tool for tool in head.tools
    )
    return msgspec.structs.replace(head, tools=tools)


def permuted(head: Head) -> Head:
    return msgspec.structs.replace(head, tools=tuple(sorted(head.tools, key=lambda tool: tool.name)))


def dated(head: Head) -> Head:
    sections = tuple(Section(key=one.key, text="2026-01-02") if one.key == "date" else one for one in head.sections)
    return msgspec.structs.replace(head, sections=sections)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("change", "named"),
    [(permuted, "drift:tools"), (described, "drift:tools:a"), (dated, "drift:system:date")],
)
def test_a_head_that_changed_without_a_fact_is_drift_by_its_own_name_until_it_is_undone(
    dialect: str, change: Callable[[Head], Head], named: str
) -> None:
    made = begun(dialect)
    before = made.session.state.head
    for _ in range(2):
        verdict = moved(made, change)
        assert (verdict.kind, verdict.reasons) == ("drift", (named,))
        made.session.state.head = before
    assert moved(made, lambda head: head).kind == "hit"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_head_that_changed_by_a_fact_is_the_miss_the_fact_names_and_no_other_component(dialect: str) -> None:
    made = begun(dialect)
    head = made.session.state.head
    made.say(EpochOpened(sections=head.sections, tools=permuted(head).tools, reason="change:tools"))
    assert made.step().verdict.reasons == ("change:tools",)
    both = EpochOpened(sections=dated(head).sections, tools=described(head).tools, reason="change:tools")
    made.say(both)
    assert made.step().verdict.reasons == ("drift:system:date",)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_new_date_and_a_new_skill_are_appended_and_miss_nothing(dialect: str) -> None:
    found = streamed(dialect)
    for step, said in ((2, "2026-01-02"), (4, "review")):
        assert (found[step]["verdict"], found[step]["reasons"]) == ("hit", [])
        assert said in found[step]["segments"][-1]
        assert not any(said in segment for segment in found[step]["segments"][:-1])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_redacted_secret_is_a_named_miss_and_is_in_no_later_request(dialect: str) -> None:
    found = streamed(dialect)
    assert any("sk-123" in segment for segment in found[2]["segments"])
    assert found[3]["reasons"] == ["reset:redact"]
    assert not any("sk-123" in segment for one in found[3:7] for segment in one["segments"])


def test_a_moved_breakpoint_is_no_miss() -> None:
    made = begun("anthropic")
    made.say(*facts(7, made.session.state))
    before = made.session.request()
    after = made.session.request()
    bodies = {
        APIS["anthropic"].body(Outgoing(wire=one.wire, model="m", max_output_tokens=9, kept=kept))
        for one, kept in ((before, 7), (after, 2))
    }
    assert len(bodies) == 2
    assert (after.verdict.kind, after.verdict.reasons) == ("hit", ())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_setting_that_changed_over_a_restart_is_named(dialect: str) -> None:
    made = begun(dialect)
    keyed = replace(made.rules.dialect.keyed, model="other")
    made.rules = replace(made.rules, dialect=replace(made.rules.dialect, keyed=keyed))
    made.reopen()
    assert made.step().verdict.reasons == ("change:model",)
    assert made.step().verdict.kind == "hit"


# -- every way to rewrite


def sites() -> Iterator[tuple[str, str, int, Callable[[Story], tuple[Fact, ...]]]]:
    """(name, reason, the first message that is other bytes, the facts)."""
    for how in get_args(How):
        for role, index in (("tool", 0), ("assistant", 1)):
            yield f"{how} of a {role}'s block", f"reset:{how}", 2 if role == "tool" else 1, _replaced(how, role, index)
    yield "prune of a thought", "reset:prune", 1, _replaced("prune", "assistant", 0)
    yield "redaction of a user's words", "reset:redact", 0, _replaced("redact", "user", 0)
    for cause in get_args(WindowCause):
        yield f"window: {cause}", MISS_OF[cause], 1, _opened(cause)


def _replaced(how: How, role: str, index: int) -> Callable[[Story], tuple[Fact, ...]]:
    def made(story: Story) -> tuple[Fact, ...]:
        item = next(item for item in story.session.state.window.items if item.role == role)
        block = item.blocks[index]
        shown = None if isinstance(block, Thought) else _other(block)
        return (BlockReplaced(how=how, targets=(Replacement(seq=item.seq, index=index, block=shown),)),)

    return made


def _other(block: object) -> Text | ToolCall | ToolResultRaw:
    match block:
        case ToolCall():
            return msgspec.structs.replace(block, arguments='{"other":1}')
        case ToolResultRaw():
            return ToolResultRaw(text="other")
        case _:
            return Text(text="other")


def _opened(cause: WindowCause) -> Callable[[Story], tuple[Fact, ...]]:
    def made(story: Story) -> tuple[Fact, ...]:
        first = story.session.state.first[0].seq
        seed = Seed(role="host", blocks=(text("What was done."),))
        return (WindowOpened(cause=cause, generation=1, kept_head=(first,), seed=(seed,)),)

    return made


SITES = list(sites())


def worked() -> Story:
    story = Story(rules=rules("raw", 200_000))
    story.user("Fix it.")
    for number in range(3):
        story.step()
        story.reply(thought("hm", '{"type":"thinking","thinking":"hm"}'), call(f"c{number}", arguments='{"n":1}'))
        story.returned(f"c{number}", result(f"output {number}"))
    story.step()
    return story


@pytest.mark.parametrize(("name", "reason", "message", "change"), SITES, ids=[site[0] for site in SITES])
def test_every_rewrite_is_a_miss_that_names_its_reason_and_its_first_message(
    name: str, reason: str, message: int, change: Callable[[Story], tuple[Fact, ...]]
) -> None:
    story = worked()
    story.say(*change(story))
    verdict = story.step().verdict
    assert (verdict.kind, verdict.reasons, verdict.kept) == ("miss", (reason,), message), name
    assert story.step().verdict.kind == "hit"


@pytest.mark.parametrize(("name", "reason", "message", "change"), SITES, ids=[site[0] for site in SITES])
def test_a_rewrite_that_forgets_to_declare_itself_is_drift_that_names_its_first_message(
    name: str, reason: str, message: int, change: Callable[[Story], tuple[Fact, ...]]
) -> None:
    """The mutation: the same rewrite, its declaration lost. It stays drift, and the pin stays where it was."""
    story = worked()
    story.say(*change(story))
    pin = story.session.state.pin
    for _ in range(2):
        story.session.state.declared.clear()
        verdict = story.step().verdict
        assert (verdict.kind, verdict.reasons) == ("drift", (f"drift:message[{message}]",)), (name, reason)
    assert story.session.state.pin == pin


def test_a_narrowed_surface_names_its_miss() -> None:
    story = worked()
    story.say(EpochOpened(tools=(), reason="change:tools"))
    story.step()
    named = []
    for _ in range(3):
        story.say(HostSaid(kind="fallback", blocks=(text("full"),)))
        named.append(story.step().verdict.reasons)
    assert named == [(), ("change:params",), ()]
