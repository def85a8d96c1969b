from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from transom.core.difference import Difference, first_difference, head_changes
from transom.core.state import Item, State, Window
from transom.core.wire import Dialect, Rendering, Segment, Wire, head_digests
from transom.testing.builders import text


def wire(head: Sequence[str] = ("tools:a", "system:s"), body: Sequence[str] = ("one", "two"), forced: str = "") -> Wire:
    segments = tuple(Segment(name=name.split("=")[0], data=name.encode()) for name in head)
    dialect = Dialect(
        name="plain",
        head=lambda _: segments,
        message=lambda group: b"".join(block.text.encode() for block in group[0].blocks if hasattr(block, "text")),
        tail=str.encode,
    )
    items = [
        Item(seq=n, uuid="", role="assistant", blocks=(text(word),), turn=n, step=0, counts=(0, 0, 0, 0, 0))
        for n, word in enumerate(body, 1)
    ]
    made = Rendering(dialect).wire(State(window=Window(items=items)))
    made.head_digests.update(head_digests(segments, forced))
    return made


def parted(before: Wire, after: Wire) -> tuple[str, int, bytes, bytes]:
    found = first_difference(before, after)
    assert found is not None
    return found.segment, found.byte, found.before, found.after


def test_what_extends_does_not_part() -> None:
    assert first_difference(wire(), wire()) is None
    assert first_difference(wire(), wire(body=("one", "two", "three"))) is None


def test_the_first_segment_in_the_providers_order_is_named_with_its_byte() -> None:
    assert parted(wire(), wire(("tools:a=x", "system:s"), ("1",))) == ("tools:a", 7, b"tools:a", b"tools:a=x")
    assert parted(wire(), wire(("tools:a", "system:s=y"))) == ("system:s", 8, b"system:s", b"system:s=y")
    assert parted(wire(), wire(body=("one", "too"))) == ("message[1]", 1, b"two", b"too")
    assert parted(wire(), wire(body=("one",))) == ("message[1]", 0, b"two", b"")


def test_what_is_gone_moved_or_new_in_the_head_is_named() -> None:
    assert parted(wire(), wire(("system:s",)))[0] == "tools:a"
    assert parted(wire(), wire(("tools:b", "tools:a", "system:s"))) == ("tools:b", 0, b"", b"tools:b")
    assert parted(wire(), wire(("tools:a", "tools:b", "system:s"))) == ("tools:b", 0, b"", b"tools:b")
    assert parted(wire(), wire(("system:s", "tools:a"))) == ("tools:a", 0, b"tools:a", b"system:s")
    assert parted(wire(), wire(("tools:a",))) == ("system:s", 0, b"system:s", b"")
    assert head_changes(wire(), wire(("tools:b", "tools:c", "system:s"))) == (("tools:b", "tools:c"), ("tools:a",))
    assert parted(wire(), wire(("tools:a", "system:s", "system:t"))) == ("system:t", 0, b"", b"system:t")


def test_a_forced_call_has_no_text_to_show() -> None:
    assert first_difference(wire(), wire(forced="t")) == Difference(segment="params", byte=0, before=b"", after=b"")


words = st.lists(st.sampled_from(["a", "ab", "abc", "b"]), max_size=6)


@given(words, words)
def test_the_byte_named_is_the_first_that_differs(left: list[str], right: list[str]) -> None:
    found = first_difference(wire(body=left), wire(body=right))
    if right[: len(left)] == left:
        assert found is None
        return
    assert found is not None
    assert found.before[: found.byte] == found.after[: found.byte]
    assert found.before[found.byte : found.byte + 1] != found.after[found.byte : found.byte + 1]
