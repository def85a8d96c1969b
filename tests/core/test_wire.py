from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from transom.adapters.provider_anthropic import DIALECT
from transom.core.block import Text
from transom.core.event import BlockReplaced, EpochOpened, Replacement, Section, Tool
from transom.core.wire import Rendering, groups
from transom.testing.builders import Story, call, rules


def test_messages_are_replies_alone_and_all_of_a_turn_between_them() -> None:
    story = Story(rules())
    story.user("one")
    story.host("two")
    story.step()
    story.reply("three", call("a"), call("b"))
    story.returned("a")
    story.user("four")
    story.returned("b")
    story.step()
    story.reply("five")
    assert groups(story.session.state.window.items) == [(0, 2), (2, 3), (3, 6), (6, 7)]
    assert groups(story.session.state.window.items, 6) == [(6, 7)]
    assert groups([]) == []


def test_rolling_digests_are_over_messages_framed_by_their_length() -> None:
    story = Story(rules())
    story.user("one")
    story.step()
    story.reply("two")
    story.user("three")
    wire = story.step().wire
    hasher = hashlib.sha256()
    for number, data in enumerate(wire.body[: wire.messages]):
        assert wire.rolling[number] == hasher.digest()
        hasher.update(str(len(data)).encode() + b":" + data)
    assert wire.rolling[wire.messages] == hasher.digest()
    assert list(wire.ends[: wire.messages + 1]) == [0, 1, 2, 3]
    assert sum(wire.counts(wire.messages)) == sum(sum(item.counts) for item in story.session.state.window.items)


def test_a_wire_keeps_its_bytes_when_the_session_goes_on() -> None:
    story = Story(rules("mask", 8_000))
    story.user("go")
    wires = [(wire := story.work("long line of output\n" * 40).wire, wire.segments()) for _ in range(30)]
    assert story.session.state.window.edits
    assert all(wire.segments() == segments for wire, segments in wires)


def test_a_message_with_nothing_to_show_is_no_message() -> None:
    story = Story(rules())
    story.user("go")
    story.step()
    story.reply("   ", Text(text=""))
    assert story.step().wire.messages == 1
    story.user("more")
    assert story.step().wire.messages == 2


def test_an_edit_before_the_first_request_is_seen_by_a_rendering_that_looked_earlier() -> None:
    """L2: a rendering may look at a window between requests."""
    story = Story(rules())
    seq = story.user("go").seq
    rendering = Rendering(DIALECT)
    assert b"go" in rendering.wire(story.session.state).body[0]
    story.say(BlockReplaced(how="redact", targets=(Replacement(seq=seq, index=0, block=Text(text="hidden")),)))
    assert b"hidden" in rendering.wire(story.session.state).body[0]


def test_a_rendering_that_keeps_no_bytes_has_the_same_digests_and_shows_them_when_it_is_asked_to() -> None:
    story = Story(rules("mask", 8_000))
    story.user("go")
    bare = Rendering(DIALECT)
    bare.show(shows=False)
    for _ in range(30):
        wire = story.work("long line of output\n" * 40).wire
        hidden = bare.wire(story.session.state)
        whole = Rendering(DIALECT).wire(story.session.state)
        assert (hidden.rolling, hidden.sums, hidden.ends) == (whole.rolling, whole.sums, whole.ends)
        assert (hidden.blocks, hidden.replies, hidden.messages) == (whole.blocks, whole.replies, whole.messages)
        assert not any(hidden.body)
    assert wire.messages
    assert story.session.state.window.edits
    bare.show(shows=True)
    assert bare.wire(story.session.state).segments() == whole.segments()


def test_a_message_looked_at_before_it_was_complete_is_rendered_again() -> None:
    story = Story(rules())
    story.user("one")
    rendering = Rendering(DIALECT)
    first = rendering.wire(story.session.state)
    story.user("two")
    second = rendering.wire(story.session.state)
    assert (first.messages, second.messages) == (1, 1)
    assert b"two" not in first.body[0]
    assert b"two" in second.body[0]


@given(st.lists(st.integers(0, 2), max_size=6))
def test_the_head_is_rendered_once_an_epoch(epochs: list[int]) -> None:
    story = Story(rules())
    for number in epochs:
        story.say(EpochOpened(sections=(Section(key="s", text=f"v{number}"),), tools=(Tool(name="t"),)))
        wire = story.step().wire
        assert story.step().wire.head is wire.head
        assert [segment.name for segment in wire.head] == ["tools:t", "system:s"]
        assert f"v{number}".encode() in wire.head[1].data
