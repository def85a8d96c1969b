from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.core.cache import REASONS, check, pin_of
from transom.core.state import Item, State, Window
from transom.core.wire import Dialect, Rendering, Segment, Wire, common_prefix
from transom.testing.builders import Story, rules, text


def request(head: Sequence[str] = ("tools:a", "tools:b", "system:s"), body: Sequence[str] = ("1", "2", "3")) -> Wire:
    """A wire whose head segments are their own names and whose messages are single words."""
    dialect = Dialect(
        name="plain",
        head=lambda _: tuple(Segment(name=name.split("=")[0], data=name.encode()) for name in head),
        message=lambda group: b"".join(block.text.encode() for block in group[0].blocks if hasattr(block, "text")),
        tail=str.encode,
    )
    items = [
        Item(seq=n, uuid="", role="assistant", blocks=(text(word),), turn=n, step=0, counts=(0, 0, 0, 0, 0))
        for n, word in enumerate(body, 1)
    ]
    return Rendering(dialect).wire(State(window=Window(items=items)))


def test_the_first_request_is_a_named_miss() -> None:
    verdict = check(None, request(), ["reset:rollover"])
    assert (verdict.kind, verdict.reasons, verdict.head_kept, verdict.kept) == ("miss", ("initial",), False, 0)


def test_the_same_and_a_longer_request_are_hits() -> None:
    pin = pin_of(request())
    for body in (("1", "2", "3"), ("1", "2", "3", "4")):
        verdict = check(pin, request(body=body), ["reset:rollover"])
        assert (verdict.kind, verdict.reasons, verdict.head_kept, verdict.kept) == ("hit", (), True, 3)


@pytest.mark.parametrize(
    ("head", "drift"),
    [
        (("tools:a", "tools:b=x", "system:s"), "drift:tools:b"),
        (("tools:b", "tools:a", "system:s"), "drift:tools"),
        (("tools:a", "system:s"), "drift:tools:b"),
        (("tools:a", "tools:b", "tools:c", "system:s"), "drift:tools:c"),
        (("tools:a", "tools:b", "system:s=x"), "drift:system:s"),
        (("tools:a", "tools:b"), "drift:system:s"),
    ],
)
def test_a_head_that_moved_is_drift_and_names_the_segment(head: Sequence[str], drift: str) -> None:
    verdict = check(pin_of(request()), request(head), ())
    assert (verdict.kind, verdict.reasons, verdict.head_kept) == ("drift", (drift,), False)


def test_an_excuse_is_for_its_component_only() -> None:
    pin = pin_of(request())
    moved = request(("tools:a=x", "tools:b", "system:s=x"), ("1", "x", "3"))
    assert check(pin, moved, ()).reasons == ("drift:tools:a", "drift:system:s", "drift:message[1]")
    assert check(pin, moved, ["change:tools"]).reasons == ("drift:system:s", "drift:message[1]")
    assert check(pin, moved, ["reset:mask", "change:tools"]).reasons == ("drift:system:s",)
    assert check(pin, moved, ["change:mode"]).reasons == ("drift:message[1]",)
    named = check(pin, moved, ["change:tools", "change:system", "reset:mask", "reset:prune"])
    assert (named.kind, named.kept) == ("miss", 1)
    assert named.reasons == ("change:tools", "change:system", "reset:mask", "reset:prune")
    assert check(pin, moved, ["change:model", "reset:mask"]).reasons == ("change:model", "reset:mask")


def test_a_shorter_body_is_drift_at_its_end() -> None:
    verdict = check(pin_of(request()), request(body=("1", "2")), ())
    assert (verdict.kind, verdict.reasons, verdict.kept) == ("drift", ("drift:message[2]",), 2)
    assert check(pin_of(request()), request(body=()), ()).reasons == ("drift:message[0]",)


def test_every_reason_a_window_declares_is_in_the_closed_list() -> None:
    story = Story(rules())
    story.work()
    assert set(story.step().verdict.reasons) <= set(REASONS)


@given(st.lists(st.sampled_from("ab"), max_size=9), st.lists(st.sampled_from("ab"), max_size=9))
def test_the_shared_prefix_is_what_a_walk_from_the_start_finds(left: list[str], right: list[str]) -> None:
    one, other = request(body=left), request(body=right)
    walked = next((n for n, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
    assert common_prefix(one.rolling, one.messages, other.rolling, other.messages) == walked
