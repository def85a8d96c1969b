"""A use is a handle of a call that stood earlier in the session; its places are where it can be seen."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from transom.core.block import Block, Image, Opaque, Text, Thought, ToolCall, ToolResultRaw
from transom.core.event import Event, Fact, ModelReplied, Observed, ToolReturned, UserSaid
from transom.lab.recall import RECALL_TOKENS, build, excerpt


def event(seq: int, fact: Fact) -> Event:
    return Event(session_id="s", seq=seq, uuid=f"u{seq}", at=0, fact=fact)


def said(seq: int, text: str) -> Event:
    return event(seq, UserSaid(blocks=(Text(text=text),)))


def called(seq: int, *blocks: Block, **arguments: object) -> Event:
    call = ToolCall(call_id=f"c{seq}", name="run", arguments=json.dumps(arguments))
    return event(seq, ModelReplied(blocks=(*blocks, call)))


def returned(seq: int, text: str) -> Event:
    return event(seq, ToolReturned(call_id=f"c{seq - 1}", blocks=(ToolResultRaw(text=text),)))


def test_a_call_uses_what_stood_earlier_and_not_what_it_writes_itself() -> None:
    index = build([said(1, "fix src/a.py"), called(2, command="cat src/a.py src/new.py"), returned(3, "x")])
    assert index.uses(2) == ("src/a.py",)
    assert index.uses(1) == ()
    assert list(index.occurrences("src/a.py")) == [1, 2]
    assert list(index.occurrences("src/new.py")) == []


def test_a_handle_the_model_itself_brought_up_earlier_counts() -> None:
    index = build([called(1, command="touch src/new.py"), called(2, command="cat src/new.py")])
    assert (index.uses(1), index.uses(2)) == ((), ("src/new.py",))


def test_the_end_of_a_path_and_a_path_with_a_line_are_occurrences_of_the_path() -> None:
    index = build([said(1, "/repo/src/a.py:12 is wrong"), returned(2, "no a.pyc here"), called(3, path="src/a.py")])
    assert index.uses(3) == ("src/a.py",)
    assert list(index.places("src/a.py")) == [(1, 0), (3, 0)]


def test_places_name_the_block_so_a_hidden_thought_is_not_the_reply() -> None:
    reply = event(
        1, ModelReplied(blocks=(Thought(text="look at src/a.py"), Text(text="hm"), Text(text="see src/a.py")))
    )
    assert list(build([reply, called(2, path="src/a.py")]).places("src/a.py")) == [(1, 0), (1, 2), (2, 0)]


def test_the_places_before_an_event_come_newest_first() -> None:
    index = build([said(1, "src/a.py"), returned(2, "src/a.py"), called(3, path="src/a.py"), returned(4, "src/a.py")])
    assert list(index.before("src/a.py", 3)) == [(2, 0), (1, 0)]
    assert list(index.before("src/other.py", 3)) == []


def test_a_quoted_phrase_of_an_earlier_error_line_is_a_handle() -> None:
    error = returned(1, "ok\nValueError: cannot convert float NaN to integer\n")
    index = build(
        [error, called(2, command='grep -r "cannot convert float NaN" src'), called(3, q="'not in any error line'")]
    )
    assert index.uses(2) == ("cannot convert float NaN",)
    assert index.uses(3) == ()


def test_arguments_are_read_through_their_escapes_and_raw_when_they_are_no_json() -> None:
    patch = event(3, ModelReplied(blocks=(ToolCall(call_id="c", name="patch", arguments="*** Update src/b.py\n{"),)))
    events = [
        said(1, "src/a.py and src/b.py, user_name"),
        called(2, items=["x\nsrc/a.py", {"k": "user_name"}, 7]),
        patch,
    ]
    index = build(events)
    assert index.uses(2) == ("src/a.py", "user_name")
    assert index.uses(3) == ("src/b.py",)


def test_deep_json_lone_surrogates_pictures_and_what_was_never_sent_do_no_harm() -> None:
    deep = ToolCall(call_id="c", name="run", arguments="[" * 10_000 + "]" * 10_000)
    cut = ToolCall(call_id="d", name="run", arguments='"\ud83d src/a.py"')
    blocks = (deep, cut, Image(media_type="image/png"), Opaque(kind="x", raw="{}"))
    hidden = event(1, Observed(kind="progress", raw="src/a.py"))
    assert build([hidden, event(2, ModelReplied(blocks=blocks))]).uses(2) == ()
    assert build([said(1, "src/a.py"), event(2, ModelReplied(blocks=blocks))]).uses(2) == ("src/a.py",)


@given(
    st.lists(
        st.lists(st.sampled_from(["src/a.py", "b_name", "c/d/e.ts:3", "0f1e2d3", "plain"]), max_size=4), max_size=8
    )
)
def test_every_use_has_an_earlier_place_whose_text_contains_it(texts: list[list[str]]) -> None:
    events = [
        event(seq, ModelReplied(blocks=(ToolCall(call_id="c", name="run", arguments=json.dumps(words)),)))
        for seq, words in enumerate(texts, start=1)
    ]
    index = build(events)
    for seq in range(1, len(events) + 1):
        for literal in index.uses(seq):
            places = index.occurrences(literal)
            assert places[0] < seq
            assert all(any(literal in word for word in texts[place - 1]) for place in places)


def words_in(text: str) -> int:
    return len(text.split())


def test_an_excerpt_is_whole_lines_around_the_handle_within_the_limit() -> None:
    text = "\n".join(f"line {n} of the log" for n in range(2_000))
    found = excerpt("line 1000 of", text, words_in)
    assert words_in(found) <= RECALL_TOKENS
    assert "line 1000 of" in found
    assert set(found.split("\n")) <= set(text.split("\n"))
    assert words_in(found) > RECALL_TOKENS // 2


def test_an_excerpt_of_a_short_text_is_the_text_and_of_one_without_the_handle_nothing() -> None:
    assert excerpt("b", "a b c", words_in) == "a b c"
    assert excerpt("z", "a b c", words_in) == ""


def test_an_excerpt_of_dense_text_shrinks_to_the_handle() -> None:
    assert excerpt("x" * 500, "y" * 9_000 + "x" * 500 + "y" * 9_000, len) == "x" * 500
