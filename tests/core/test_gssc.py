from __future__ import annotations

import json
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.core.block import Block, Image, Opaque, Text, Thought, ToolCall, ToolResultRaw, ToolResultRef
from transom.core.event import TodoChanged, TodoItem, UserDisposed
from transom.core.gssc import abridge, elide, masks, newest, offload, prunes, tail
from transom.core.policy import PRESETS
from transom.core.state import Item, Role, Words, counts_of
from transom.testing.builders import COUNTER, Story, call, image, result, rules, text, thought

MEASURE = COUNTER.measure
LONG = "one more line of output, long enough to matter\n" * 400


def item(role: Role, *blocks: Block, seq: int = 4) -> Item:
    return Item(seq=seq, uuid=f"u{seq}", role=role, blocks=blocks, turn=0, step=0, counts=counts_of(blocks))


@dataclass(frozen=True)
class Shape:
    role: Role
    tokens: int


@given(
    st.lists(st.builds(Shape, st.sampled_from(("assistant", "tool", "user", "host")), st.integers(0, 9)), max_size=20),
    st.integers(0, 60),
    st.integers(0, 20),
)
def test_a_run_of_the_newest_fits_its_room_and_never_starts_inside_a_batch(
    shapes: list[Shape], room: int, new: int
) -> None:
    """L10: what is kept starts at a reply, or where no result behind it belongs to a reply before it."""
    items = [
        msgspec.structs.replace(item(shape.role, seq=place + 1), counts=(shape.tokens, 0, 0, 0, 0))
        for place, shape in enumerate(shapes)
    ]
    whole_from = max(0, len(items) - new)
    start = newest(items, lambda one: one.counts[0], room, whole_from=whole_from)
    assert start <= whole_from
    if start < whole_from:
        assert sum(one.counts[0] for one in items[start:]) <= room
        first = next((one.role for one in items[start:whole_from] if one.role in ("assistant", "tool")), "assistant")
        assert first == "assistant"


def test_a_run_does_not_start_at_a_seed() -> None:
    items = [item("host", text("seed"), seq=0), item("user", text("x"), seq=5)]
    assert newest(items, lambda _: 1, 100, whole_from=2) == 1


def test_only_results_above_the_threshold_are_offloaded_and_only_to_something_smaller() -> None:
    big, small = result(LONG), result("short")
    protected = msgspec.structs.replace(big, is_protected=True)
    wide = ToolResultRaw(text="\n".join(f"error: {number}" + "失败" * 200 for number in range(6)), tokens=600)
    (target,) = offload(item("tool", small, big, protected, wide, image(9000)), 500, MEASURE)
    assert (target.seq, target.index) == (4, 1)
    stub = target.block
    assert isinstance(stub, ToolResultRef)
    assert stub.text.startswith(f"[offloaded result: 400 lines, {len(LONG)} bytes, {big.tokens} tokens; recall it by ")
    assert "message_uuid u4]" in stub.text
    assert stub.tokens == MEASURE(stub.text).tokens < 300


def test_a_stub_shows_first_and_last_lines_and_the_lines_that_say_what_failed() -> None:
    (target,) = offload(item("tool", result(f"start\n{LONG}ValueError: 42\n{LONG}end")), 500, MEASURE)
    assert isinstance(target.block, ToolResultRef)
    lines = target.block.text.split("\n")
    assert lines[1] == "start"
    assert lines[-1] == "end"
    assert lines[lines.index("[matched error lines]") + 1] == "ValueError: 42"
    (flat,) = offload(item("tool", result("x y " * 4000)), 500, MEASURE)
    assert isinstance(flat.block, ToolResultRef)
    assert "[last lines]" not in flat.block.text
    assert "[matched error lines]" not in flat.block.text


def test_masking_hides_observations_and_leaves_what_is_small_hidden_or_protected() -> None:
    big = result(LONG)
    tool = item("tool", big, image(1500), result("ok"), msgspec.structs.replace(big, is_protected=True))
    found = masks([tool, item("assistant", text(LONG)), item("user", text(LONG)), item("host", text(LONG))], MEASURE)
    assert [target.index for target in found] == [0, 1]
    hidden = found[0].block
    assert isinstance(hidden, ToolResultRef)
    assert hidden.text == f"[old result hidden: {big.tokens} tokens; recall it by message_uuid u4]"
    assert masks([item("tool", msgspec.structs.replace(hidden, tokens=900))], MEASURE) == []
    stub = ToolResultRef(text="stub " * 100, tokens=100)
    assert [target.index for target in masks([item("host", stub)], MEASURE)] == [0]


def test_pruning_takes_thoughts_and_what_was_counted_but_not_shown() -> None:
    reply = item("assistant", text("a"), thought("deep"), thought("", '{"x":1}'), thought(""))
    kept = Thought(text="keep", tokens=3, is_protected=True)
    hidden = msgspec.structs.replace(item("assistant", text("b"), seq=6), counts=(1, 0, 0, 0, 50))
    found = prunes([reply, item("assistant", kept, seq=5), hidden, item("user", text("c"), seq=7)])
    assert [(target.seq, target.index, target.block) for target in found] == [(4, 1, None), (4, 2, None), (6, 1, None)]


def test_the_last_resort_makes_references_of_all_that_is_large_and_not_protected() -> None:
    arguments = json.dumps({"file_path": 'a"\\\x1b.py', "content": LONG})
    blocks = (
        text(LONG),
        call("c1", "write", arguments),
        result(LONG),
        image(4000),
        thought(LONG),
        Opaque(kind="x", raw="{}", tokens=5000),
        text("short"),
        Text(text=LONG, tokens=4000, is_protected=True),
    )
    found = {target.index: target.block for target in elide([item("assistant", *blocks)], MEASURE)}
    assert list(found) == [0, 1, 2, 3]
    words, shortened, stub, picture = found.values()
    assert isinstance(words, Text)
    assert words.text.startswith(LONG[:400])
    assert words.text.endswith("tokens offloaded; recall them by message_uuid u4]")
    assert isinstance(shortened, ToolCall)
    assert (shortened.call_id, shortened.name) == ("c1", "write")
    assert json.loads(shortened.arguments)["offloaded"].endswith('write: a"\\\x1b.py')
    assert isinstance(stub, ToolResultRef)
    assert isinstance(picture, ToolResultRef)
    assert all(block.tokens < 400 for block in (words, shortened, stub, picture))


def test_half_an_emoji_in_arguments_does_not_stop_the_last_resort() -> None:
    (target,) = elide([item("assistant", call("c", "bash", "\ud800" + LONG))], MEASURE)
    assert isinstance(target.block, ToolCall)
    assert json.loads(target.block.arguments)["offloaded"].endswith("…")


@pytest.fixture
def story() -> Story:
    return Story(rules("gssc"))


def test_a_flat_window_and_one_without_words_have_no_tail(story: Story) -> None:
    assert tail(story.session.state, PRESETS["gssc"], 5000) == ""
    story.user("Do it.")
    assert tail(story.session.state, PRESETS["rollover"], 5000) == ""


def test_the_tail_anchors_task_rules_and_open_items(story: Story) -> None:
    story.user("You must never\n touch a.py.")
    story.user("Do the other thing. " + "x" * 500)
    items = [TodoItem(text=f"t{number} </host_reminder>", status="pending") for number in range(10)]
    story.say(TodoChanged(items=(TodoItem(text="done", status="completed"), *items)))
    lines = tail(story.session.state, PRESETS["gssc"], 12_345).split("\n")
    assert lines[0] == "<host_reminder>"
    assert lines[1].startswith(f"Task (message_uuid {story.session.state.words[1].uuid}): Do the other thing. xxx")
    assert lines[1].endswith("x…")
    assert lines[2] == "The user's own constraints:"
    assert "- [pending] t7 &lt;/host_reminder>" in lines
    assert "- and 2 more" in lines
    assert not any("done" in line for line in lines)
    assert lines[-2:] == ["About 12k tokens are left in this window.", "</host_reminder>"]
    assert "tokens are left" not in tail(story.session.state, PRESETS["gssc"], 0)


def test_the_tail_shows_the_newest_rules_in_order_and_says_that_there_are_more(story: Story) -> None:
    for number in range(20):
        story.user(f"You must keep rule {number}.")
    for words in story.session.state.words:
        story.say(UserDisposed(seq=words.seq, disposition="answered"))
    lines = tail(story.session.state, PRESETS["gssc"], 0).split("\n")
    assert lines[1].endswith("rule 19.")
    assert lines[2] == "The user's own constraints (the newest 12; more stand above):"
    assert lines[3:15] == [f"- You must keep rule {number}." for number in range(8, 20)]


def test_an_image_alone_is_a_task_without_words(story: Story) -> None:
    story.user(Image(media_type="image/png"))
    assert "Task (message_uuid u2): \n" in tail(story.session.state, PRESETS["gssc"], 0)


@pytest.mark.parametrize(("said", "is_abridged"), [(LONG, True), ("word " * 20, False)])
def test_a_user_message_is_abridged_only_where_that_is_smaller(said: str, *, is_abridged: bool) -> None:
    blocks = (text(said),)
    words = Words(seq=4, uuid="u4", blocks=blocks, counts=counts_of(blocks))
    assert bool(abridge(words, 20, MEASURE)) is is_abridged
