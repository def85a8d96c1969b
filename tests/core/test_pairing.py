from __future__ import annotations

from transom.core.block import Block, Text, ToolCall
from transom.core.event import Replacement
from transom.core.pairing import awaited, closed, distinct, may_replace, paired, stray
from transom.core.state import Item, Role, counts_of
from transom.testing.builders import call, result, text


def item(seq: int, role: Role, *blocks: Block, call_id: str = "") -> Item:
    return Item(
        seq=seq, uuid=f"u{seq}", role=role, blocks=blocks, turn=seq, step=0, counts=counts_of(blocks), call_id=call_id
    )


def test_an_id_used_again_in_a_reply_gets_a_suffix_and_results_are_matched_in_order() -> None:
    blocks = distinct((call("a"), text("x"), call("b"), call("a"), call("a_again2"), call("a")))
    ids = [block.call_id for block in blocks if isinstance(block, ToolCall)]
    assert ids == ["a", "b", "a_again2", "a_again2_again2", "a_again3"]
    waiting = dict.fromkeys(ids, ("bash", "{}"))
    for expected in ("a", "a_again2", "a_again2_again2", "a_again3"):
        assert awaited("a", waiting) == expected
        del waiting[expected]
    assert awaited("a", waiting) == "a"


def test_a_reply_with_different_ids_stays_the_same_object() -> None:
    blocks = (call("a"), call("b"))
    assert distinct(blocks) is blocks


def test_a_stray_result_keeps_the_indices_of_its_blocks_and_says_what_it_is() -> None:
    shown = stray(item(4, "tool", result("out"), call_id="c9"))
    assert (shown.role, shown.call_id) == ("host", "")
    assert shown.blocks[0] == result("out")
    assert shown.blocks[1] == Text(text="[the above is the late result of call c9]", tokens=14)
    assert shown.counts == counts_of(shown.blocks)


def test_what_a_window_keeps_is_paired_again() -> None:
    kept = [
        item(2, "tool", result("late"), call_id="gone"),
        item(3, "assistant", call("a"), call("b")),
        item(4, "user", text("hm")),
        item(5, "tool", result("A"), call_id="a"),
        item(6, "assistant", call("c"), call("d")),
        item(7, "tool", result("C"), call_id="c"),
    ]
    items, calls = paired(kept, {"d": ("bash", "{}"), "elsewhere": ("bash", "{}")})
    assert [(one.seq, one.role, one.call_id) for one in items] == [
        (2, "host", ""),
        (3, "assistant", ""),
        (4, "user", ""),
        (5, "tool", "a"),
        (0, "tool", "b"),
        (6, "assistant", ""),
        (7, "tool", "c"),
    ]
    assert calls == {"d": ("bash", "{}")}
    assert items[4] == closed("b", turn=4, step=1)
    assert [one.call_id for one in paired(kept, {})[0]][-1] == "d"


def test_a_rewrite_may_change_what_a_call_says_and_nothing_about_pairs() -> None:
    reply = item(3, "assistant", text("x"), call("a"))
    allowed = {
        (1, call("a", arguments='{"offloaded":1}')): True,
        (1, call("b")): False,
        (1, None): False,
        (0, None): True,
        (0, call("a")): False,
        (2, None): True,
        (-1, None): False,
    }
    for (index, block), is_allowed in allowed.items():
        assert may_replace(reply, Replacement(seq=3, index=index, block=block)) is is_allowed
