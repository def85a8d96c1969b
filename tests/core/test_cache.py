from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.core.cache import REASONS, Verdict, check, episodes, pin_of, restored, sent
from transom.core.event import EpochCause, EpochOpened, How, WindowCause
from transom.core.state import MISS_OF, Item, State, Window
from transom.core.wire import Dialect, Keyed, Rendering, Segment, Wire, common_prefix
from transom.testing.builders import Story, rules, text


def request(
    head: Sequence[str] = ("tools:a", "tools:b", "system:s"),
    body: Sequence[str] = ("1", "2", "3"),
    keyed: Keyed | None = None,
) -> Wire:
    """A wire whose head segments are their own names and whose messages are single words."""
    dialect = Dialect(
        name="plain",
        head=lambda _: tuple(Segment(name=name.split("=")[0], data=name.encode()) for name in head),
        message=lambda group: b"".join(block.text.encode() for block in group[0].blocks if hasattr(block, "text")),
        tail=str.encode,
        keyed=keyed or Keyed(),
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


ASKED = Keyed(provider="p", model="m")


@pytest.mark.parametrize(
    ("now", "named", "kept"),
    [
        (Keyed(provider="p", model="n"), "change:model", 3),
        (Keyed(provider="p", model="m", fields="f"), "change:params", 0),
        (Keyed(), "", 3),
    ],
)
def test_a_changed_setting_names_itself_and_excuses_no_head_of_other_words(now: Keyed, named: str, kept: int) -> None:
    pin = pin_of(request(keyed=ASKED))
    same = check(pin, request(keyed=now), ())
    assert (same.kind, same.reasons, same.kept) == ("miss" if named else "hit", (named,) if named else (), kept)
    moved = request(("tools:a=x", "tools:b", "system:s"), keyed=now)
    assert check(pin, moved, ()).reasons == ("drift:tools:a",)
    assert check(pin, moved, ["change:tools"]).kind == "miss"


def test_another_model_is_not_shown_the_thoughts_of_the_first() -> None:
    pin = pin_of(request(keyed=ASKED))
    other = request(body=("1", "3"), keyed=Keyed(provider="p", model="n"))
    verdict = check(pin, other, ())
    assert (verdict.kind, verdict.reasons, verdict.kept) == ("miss", ("change:model",), 1)
    assert check(pin, request(body=("1", "3"), keyed=ASKED), ()).reasons == ("drift:message[1]",)


def test_another_provider_is_shown_all_of_it_in_another_form() -> None:
    pin = pin_of(request(keyed=ASKED))
    other = request(("tools:a=x", "tools:b=x", "system:s=x"), ("x", "y"), Keyed(provider="q", model="m"))
    verdict = check(pin, other, ())
    assert (verdict.kind, verdict.reasons, verdict.head_kept, verdict.kept) == ("miss", ("change:provider",), False, 0)


def test_who_was_asked_outlives_a_restart() -> None:
    first = request(keyed=ASKED)
    fact = sent(first, check(None, first, ()), 7)
    assert (fact.provider, fact.model, fact.fields, fact.tokens, fact.reasons) == ("p", "m", "", 7, ("initial",))
    later = request(keyed=Keyed(provider="p", model="n"))
    assert check(restored(fact, later), later, ()).reasons == ("change:model",)
    assert check(restored(fact, first), first, ()).kind == "hit"


def test_a_pin_that_the_present_renderer_does_not_give_counts_as_lost() -> None:
    first = request()
    fact = sent(first, check(None, first, ()), 7)
    for other in (request(("tools:a=x", "tools:b", "system:s"), ("x", "2", "3")), request(body=("1",))):
        verdict = check(restored(fact, other), other, ())
        assert (verdict.kind, verdict.kept) == ("drift", 0)


def test_a_run_of_drift_is_one_episode() -> None:
    assert episodes([]) == episodes(["hit", "miss"]) == 0
    assert episodes(["drift"] * 40) == 1
    assert episodes(["drift", "hit", "drift", "drift", "miss", "drift"]) == 3


@given(
    st.sets(st.sampled_from(["tools", "system", "params", "body"])),
    st.sets(st.sampled_from([one for one in REASONS if one not in ("initial", "ttl", "evicted")])),
)
def test_each_component_that_moved_needs_a_reason_of_its_own(moved: set[str], declared: set[str]) -> None:
    whole = declared & {"change:model", "change:provider", "change:mode", "resume"}
    head = (f"tools:a{'=x' * ('tools' in moved)}", f"system:s{'=x' * ('system' in moved)}")
    verdict = checked(head, ("1", "x" if "body" in moved else "2"), is_forced="params" in moved, declared=declared)
    excused = {name for name in moved if (whole and name != "body") or f"change:{name}" in declared}
    excused |= moved & {"body"} if any(one.startswith("reset:") for one in declared) else set()
    assert verdict.kind == ("drift" if moved - excused else "miss" if moved else "hit")
    assert len(verdict.reasons) >= bool(moved)
    if verdict.kind == "drift":
        parts = {"body" if "message" in one else one.split(":")[1] for one in verdict.reasons}
        assert parts == moved - excused


def checked(head: Sequence[str], body: Sequence[str], *, is_forced: bool, declared: set[str]) -> Verdict:
    pin = pin_of(request(("tools:a", "system:s"), ("1", "2")))
    now = request(head, body)
    if is_forced:
        now.head_digests["params"] = "other"
    return check(pin, now, sorted(declared))


def test_what_may_rewrite_a_window_or_a_head_has_a_reason_of_the_closed_list() -> None:
    hows = get_args(How)
    assert {f"reset:{how}" for how in hows} <= set(REASONS)
    assert set(MISS_OF) == set(get_args(WindowCause))
    assert set(MISS_OF.values()) <= set(REASONS)
    assert set(get_args(EpochCause)) <= set(REASONS)
    assert EpochOpened().reason == "initial"


def test_every_reason_a_window_declares_is_in_the_closed_list() -> None:
    story = Story(rules())
    story.work()
    assert set(story.step().verdict.reasons) <= set(REASONS)


@given(st.lists(st.sampled_from("ab"), max_size=9), st.lists(st.sampled_from("ab"), max_size=9))
def test_the_shared_prefix_is_what_a_walk_from_the_start_finds(left: list[str], right: list[str]) -> None:
    one, other = request(body=left), request(body=right)
    walked = next((n for n, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
    assert common_prefix(one.rolling, one.messages, other.rolling, other.messages) == walked
