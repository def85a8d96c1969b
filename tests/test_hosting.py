from __future__ import annotations

import json

import pytest

from transom.core.block import ToolCall, ToolResultRaw
from transom.core.event import (
    Draft,
    EpochOpened,
    Fact,
    Handoff,
    NegativeNoted,
    RecallMissed,
    RolloverDeclared,
    SessionOpened,
    TodoChanged,
    ToolReturned,
    WindowOpened,
)
from transom.core.evidence import Files
from transom.core.surface import HOST_TOOLS
from transom.hosting import PAGE_CHARS, Desk, is_hosted, refused, said
from transom.session import Session
from transom.testing.builders import COUNTER, Story, call, rules, text

NO_FILES = Files(resolve=lambda path: path, text=lambda _: None)


def story_of(*, limit: int = 32_000) -> Story:
    story = Story(rules(limit=limit))
    story.say(EpochOpened(tools=HOST_TOOLS))
    return story


def ask(story: Story, name: str, arguments: object, *, above: int = 0) -> tuple[Fact, ...]:
    """One call of the model's, answered and settled."""
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    number = story.numbers()
    asked = call(f"h{number}", name, raw)
    event = story.reply(asked)
    facts = desk(story, event.seq, above=above).answer(asked)
    story.say(*facts)
    return facts


def desk(story: Story, before: int, *, above: int = 0) -> Desk:
    return Desk(
        state=story.session.state,
        log=story.log,
        files=NO_FILES,
        hard_limit=28_000,
        before=before,
        fits=lambda words: not above or COUNTER.measure(words).tokens <= above,
    )


def words(facts: tuple[Fact, ...]) -> str:
    last = facts[-1]
    assert isinstance(last, ToolReturned)
    assert last.by == "host"
    assert last.effect == "none"
    (block,) = last.blocks
    assert isinstance(block, ToolResultRaw)
    return block.text


def is_refused(facts: tuple[Fact, ...]) -> bool:
    return isinstance(facts[-1], ToolReturned) and facts[-1].is_error


def test_the_hosts_own_tools_are_known_by_name() -> None:
    assert all(is_hosted(tool.name) for tool in HOST_TOOLS)
    assert not is_hosted("bash")


BROKEN = [
    "",
    "{",
    "\x00",
    '"\ud800"',
    '"\\ud800"',
    "7",
    "[]",
    "null",
    '{"query":7,"artifact_id":7,"todos":7,"attempt":7}',
    '{"query":null,"artifact_id":null,"todos":null,"attempt":null}',
    '{"todos":[7]}',
    '{"todos":[{"status":"pending"}]}',
    '{"todos":[{"content":"x","status":"perhaps"}]}',
    '{"artifact_id":"x","offset":"far"}',
    '{"artifact_id":"x","offset":' + "9" * 400 + "}",
    "[" * 100_000,
    '{"x":"' + "a" * 1_000_000,
    "a" * 1_000_000,
]


@pytest.mark.parametrize("name", ["recall", "read_artifact", "todo", "note_failure", "new_context"])
@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_broken_arguments_are_refused_as_the_calls_result(name: str, number: int) -> None:
    """L9, L10: whatever a model writes, the call has its one result and nothing is raised."""
    story = story_of()
    asked = call("c", name, BROKEN[number])
    event = story.reply(asked)
    now = desk(story, event.seq)
    facts = now.declare([asked]) if name == "new_context" else now.answer(asked)
    assert len(facts) == 1
    assert is_refused(facts)
    assert words(facts).startswith(name)
    assert len(words(facts)) < 2_000
    story.say(*facts)
    assert story.step().verdict.kind == "miss"


@pytest.mark.parametrize("value", ["\x00", "a" * 1_000_000, "..", "\ud800"])
def test_odd_values_are_answered_within_bounds(value: str) -> None:
    story = story_of()
    for name, field in (("recall", "query"), ("recall", "message_uuid"), ("read_artifact", "artifact_id")):
        assert len(words(ask(story, name, json.dumps({field: value})))) < 2_000
    story.step()


# -- recall


def test_a_recall_finds_words_said_before_it_with_their_place() -> None:
    story = story_of()
    event = story.user("The port is 8472.")
    found = words(ask(story, "recall", {"query": "port is"}))
    assert found == f"[message_uuid {event.uuid}, offset 4]\nThe port is 8472."


def test_chinese_and_parts_of_identifiers_are_found() -> None:
    story = story_of()
    story.user("重试次数是三。 see HTTPServerError_42")
    for query in ("次数", "ServerError_4"):
        assert "重试次数是三" in words(ask(story, "recall", {"query": query}))


def test_a_recall_never_finds_itself_its_echo_or_a_notice() -> None:
    """The firewall: neither the step that asks, nor an earlier recall's question, answer or refusal."""
    story = story_of()
    number = story.numbers()
    asked = call(f"h{number}", "recall", '{"query":"ghost"}')
    event = story.reply("Where is the ghost?", asked)
    (missed, *rest) = desk(story, event.seq).answer(asked)
    assert missed == RecallMissed(query="ghost")
    story.say(missed, *rest)
    story.say(WindowOpened(cause="operator", generation=1))
    story.user("go on")
    story.reply("I look again.")
    found = ask(story, "recall", {"query": "nowhere ghost"})
    assert isinstance(found[0], RecallMissed)


def test_a_miss_spends_the_query_and_narrower_ones_for_this_window_only() -> None:
    story = story_of()
    assert isinstance(ask(story, "recall", {"query": "ghost"})[0], RecallMissed)
    for query in ("ghost", "GHOST ", "ghost town"):
        (fact,) = ask(story, "recall", {"query": query})
        assert is_refused((fact,))
        assert "recall was not run" in words((fact,))
    assert isinstance(ask(story, "recall", {"query": "host"})[0], RecallMissed)
    story.say(WindowOpened(cause="operator", generation=1))
    assert isinstance(ask(story, "recall", {"query": "ghost"})[0], RecallMissed)


def test_marks_that_miss_spend_no_words() -> None:
    story = story_of()
    story.user("The port is 8472")
    assert isinstance(ask(story, "recall", {"query": "..."})[0], RecallMissed)
    assert "8472" in words(ask(story, "recall", {"query": "port"}))


def test_hits_are_few_and_bounded() -> None:
    story = story_of()
    for number in range(30):
        story.user(f"needle {number} " + "x" * 1000)
    found = words(ask(story, "recall", {"query": "needle"}))
    assert found.count("[message_uuid") == 4
    assert len(found) < 1_700
    for number in range(30):
        story.user(f"pin {number}")
    assert words(ask(story, "recall", {"query": "pin"})).count("[message_uuid") == 5


def test_a_recall_of_a_crowded_step_still_finds_what_stood_before_it() -> None:
    story = story_of()
    story.user("The needle is here.")
    asked = call("h", "recall", '{"query":"needle"}')
    event = story.reply(asked, *(call(f"s{number}") for number in range(30)))
    for number in range(30):
        story.returned(f"s{number}", f"needle {number}")
    assert "The needle is here." in words(desk(story, event.seq).answer(asked))


def test_another_session_is_never_searched_and_an_ancestor_is_up_to_the_fork() -> None:
    story = story_of()
    before = story.user("ours before")
    parent = story.log.sessions("s")[0].head
    after = story.user("ours after")
    theirs = Story(story.rules, log=story.log, session_id="other").user("theirs secret")
    forked = Story(story.rules, log=story.log, session_id="scratch")
    forked.session = Session.open(story.log, "s", story.rules)
    (opened,) = story.log.append(
        "fork", parent.seq, [Draft(fact=SessionOpened(format=1, kind="fork", parent=parent), uuid="f", at=9)]
    )
    assert opened.seq == parent.seq + 1
    forked.session = Session.open(story.log, "fork", story.rules)
    assert "ours before" in words(ask(forked, "recall", {"query": "ours before"}))
    assert "ours before" in words(ask(forked, "recall", {"message_uuid": before.uuid}))
    for query in ("ours after", "theirs secret"):
        assert isinstance(ask(forked, "recall", {"query": query})[0], RecallMissed)
    for event in (after, theirs):
        assert isinstance(ask(forked, "recall", {"message_uuid": event.uuid})[0], RecallMissed)
        assert is_refused(ask(forked, "read_artifact", {"artifact_id": event.uuid}))


def test_a_message_is_recalled_by_its_uuid_with_what_it_called() -> None:
    story = story_of()
    event = story.reply("I run it.", call("c", "bash", '{"command":"make all"}'))
    story.returned("c")
    found = words(ask(story, "recall", {"message_uuid": event.uuid}))
    assert found.startswith(f"[message_uuid {event.uuid}, characters 0 to ")
    assert "I run it." in found
    assert '{"command":"make all"}' in found


def test_the_message_that_declared_a_rollover_is_recalled() -> None:
    """The anchor of every seed resolves."""
    story = story_of()
    (event,) = story.say(RolloverDeclared(call_id="c", handoff=Handoff(conflicts=("E42",))))
    assert "E42" in words(ask(story, "recall", {"message_uuid": event.uuid}))


@pytest.mark.parametrize("form", ["{}", " {} ", "message_uuid: {}", "message_uuid {}"])
def test_a_message_is_found_by_its_name_however_the_name_is_copied(form: str) -> None:
    story = story_of()
    name = form.format(story.user("Port the client.").uuid)
    for asked in ({"message_uuid": name}, {"query": name}, {"query": "of another", "message_uuid": name}):
        assert words(ask(story, "recall", asked)).endswith("]\nPort the client.")
    assert words(ask(story, "read_artifact", {"artifact_id": name})).endswith("]\nPort the client.")


def test_a_uuid_beside_words_that_do_stand_there_falls_back_to_the_words() -> None:
    story = story_of()
    story.user("The port is 8472")
    assert "8472" in words(ask(story, "recall", {"message_uuid": "gone", "query": "port"}))
    assert isinstance(ask(story, "recall", {"message_uuid": "gone"})[0], RecallMissed)


def test_the_present_step_and_what_has_no_words_are_not_recalled_by_uuid() -> None:
    story = story_of()
    asked = call("h", "recall", "{}")
    event = story.reply("hm", asked)
    silent = story.log.find("s", story.events()[0].uuid)
    assert silent is not None
    for uuid in (event.uuid, story.session.append(WindowOpened(cause="operator", generation=1))[0].uuid):
        (missed, _) = desk(story, event.seq).answer(call("h", "recall", json.dumps({"message_uuid": uuid})))
        assert missed == RecallMissed(query=uuid)


def test_a_recall_of_nothing_is_refused() -> None:
    assert is_refused(ask(story_of(), "recall", {"query": " ", "message_uuid": ""}))


# -- read_artifact


def test_an_artifact_is_read_page_by_page_to_its_end() -> None:
    story = story_of()
    whole = "".join(f"line {number}\n" for number in range(2000))
    story.reply(call("c"))
    event = story.returned("c", whole)
    pages, offset = [], 0
    while offset < len(whole):
        found = words(ask(story, "read_artifact", {"artifact_id": event.uuid, "offset": offset}))
        page = found.split("\n", 1)[1]
        assert len(page) <= PAGE_CHARS
        pages.append(page)
        offset += len(page)
        assert (f'"offset":{offset}' in found) == (offset < len(whole))
    assert "".join(pages) == whole


@pytest.mark.parametrize("dense", ["漢字假名" * 5000, "QUJD/+x9" * 5000])
def test_a_page_is_never_offloaded_again(dense: str) -> None:
    story = story_of()
    story.reply(call("c"))
    event = story.returned("c", dense)
    page = words(ask(story, "read_artifact", {"artifact_id": event.uuid}, above=2048))
    assert COUNTER.measure(page).tokens <= 2048
    least = words(ask(story, "read_artifact", {"artifact_id": event.uuid}, above=1))
    assert len(least) < 500


def test_offsets_outside_are_moved_inside() -> None:
    story = story_of()
    event = story.user("short")
    assert words(ask(story, "read_artifact", {"artifact_id": event.uuid, "offset": -5})).endswith("\nshort")
    far = words(ask(story, "read_artifact", {"artifact_id": event.uuid, "offset": 10**9}))
    assert "characters 5 to 5 of 5]" in far


def test_an_artifact_that_is_none_is_refused() -> None:
    story = story_of()
    silent = story.events()[0].uuid
    for name in ("gone", silent):
        assert is_refused(ask(story, "read_artifact", {"artifact_id": name})) == (name == "gone")
    asked = call("c", "read_artifact", "{}")
    event = story.reply("now", asked)
    same = ToolCall(call_id="c", name="read_artifact", arguments=json.dumps({"artifact_id": event.uuid}))
    assert is_refused(desk(story, event.seq).answer(same))


# -- todo and note_failure


def test_a_todo_list_replaces_the_one_before_and_stands_on_the_board() -> None:
    story = story_of()
    facts = ask(story, "todo", {"todos": [{"content": "a", "status": "completed"}, {"content": "b"}]})
    assert isinstance(facts[0], TodoChanged)
    assert words(facts) == "2 items, 1 closed."
    assert [(item.text, item.status) for item in story.session.state.board.todo] == [
        ("a", "completed"),
        ("b", "pending"),
    ]
    ask(story, "todo", {"todos": []})
    assert story.session.state.board.todo == ()


def test_a_refused_todo_list_changes_nothing() -> None:
    story = story_of()
    ask(story, "todo", {"todos": [{"content": "a"}]})
    for todos in ([{"content": "b", "status": "perhaps"}], [{"content": "b"}] * 101, [{"content": "b" * 501}]):
        assert is_refused(ask(story, "todo", {"todos": todos}))
    story.reply(call("never answered", "todo", '{"todos":[{"content":"c"}]}'))
    assert [item.text for item in story.session.state.board.todo] == ["a"]


def test_a_noted_failure_stands_on_the_board_with_its_literal_error() -> None:
    story = story_of()
    facts = ask(story, "note_failure", {"attempt": "pip install x", "outcome": "error: E1234 no wheel"})
    assert facts[0] == NegativeNoted(attempt="pip install x", outcome="error: E1234 no wheel")
    (failure,) = story.session.state.board.failures.values()
    assert (failure.attempt, failure.error) == ("noted: pip install x", "error: E1234 no wheel")
    assert is_refused(ask(story, "note_failure", {"attempt": " ", "outcome": "x"}))
    assert is_refused(ask(story, "note_failure", {"attempt": "x", "outcome": ""}))


# -- new_context


def handed(call_id: str, handoff: object) -> ToolCall:
    return call(call_id, "new_context", json.dumps({"handoff": handoff}))


def test_the_last_valid_of_several_handoffs_is_declared_and_each_call_has_its_result() -> None:
    story = story_of()
    calls = [handed("a", {"inferences": ["one"]}), handed("b", {"inferences": ["two"]}), handed("c", {})]
    event = story.reply(*calls)
    facts = desk(story, event.seq).declare(calls)
    *results, declared = facts
    assert isinstance(declared, RolloverDeclared)
    assert declared.call_id == "b"
    assert [one.text for one in declared.handoff.inferences] == ["two"]
    found = {one.call_id: (one.is_error, words((one,))) for one in results if isinstance(one, ToolReturned)}
    assert list(found) == ["a", "b", "c"]
    assert [is_error for is_error, _ in found.values()] == [True, False, True]
    assert "a later call of the same step was taken" in found["a"][1]
    assert "the handoff is empty" in found["c"][1]


def test_a_batch_without_a_valid_handoff_declares_nothing() -> None:
    story = story_of()
    facts = desk(story, 0).declare([handed("a", {}), handed("b", {"inferences": ["x" * 20_000]})])
    assert [type(fact) for fact in facts] == [ToolReturned, ToolReturned]
    assert "20,000 characters, of at most 11,200" in words(facts)


def test_the_receipt_says_what_was_demoted() -> None:
    story = story_of()
    asked = handed("a", {"requirements": [{"text": "Drop it.", "source": "u9"}, "Because."]})
    receipt = words(desk(story, 0).declare([asked])[:1])
    assert "- moved to inferences: Drop it. (u9: there is no such user message and no such file)" in receipt
    assert "- moved to inferences: Because. (no source: names no source)" in receipt


def test_a_result_of_the_host_says_whether_it_is_a_refusal() -> None:
    asked = call("a")
    assert not said(asked, "yes").is_error
    assert refused(asked, "no").is_error
    assert text("x").tokens
