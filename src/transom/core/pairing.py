"""Pairing: calls and results belong together, under any cut of any log (L10).

No provider accepts a call without a result behind it, a result without its call, or an id used twice in one reply. Real
logs hold all three. What the window shows instead:

- a call whose reply was followed by another reply, or whose result a new window left out, is closed by the host;
- a result nobody waits for stands as host text, so its words are not lost;
- an id used again in the same reply gets a suffix, and results are matched in order;
- a rewrite may change what a call says, never that it is there.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import msgspec

from transom.core.block import Block, Text, ToolCall, ToolResultRaw
from transom.core.event import Replacement
from transom.core.state import Item, add_counts, counts_of

__all__ = ["NO_RESULT", "awaited", "closed", "distinct", "may_replace", "paired", "stray"]

NO_RESULT = ToolResultRaw(text="[no result: this call did not finish]", tokens=9, content="prose")
"""What the host closes a call with."""
_AGAIN = "_again"


def distinct(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """The blocks of a reply with each call under its own id."""
    calls = [block.call_id for block in blocks if isinstance(block, ToolCall)]
    if len(set(calls)) == len(calls):
        return blocks
    taken: set[str] = set()
    out: list[Block] = []
    for block in blocks:
        if isinstance(block, ToolCall):
            call_id = _free(block.call_id, taken)
            taken.add(call_id)
            out.append(block if call_id == block.call_id else msgspec.structs.replace(block, call_id=call_id))
        else:
            out.append(block)
    return tuple(out)


def _free(call_id: str, taken: Container[str]) -> str:
    number, name = 1, call_id
    while name in taken:
        number += 1
        name = f"{call_id}{_AGAIN}{number}"
    return name


def awaited(call_id: str, calls: Mapping[str, object]) -> str:
    """The open call that a result of `call_id` answers: that one, or the first of the same id."""
    if call_id in calls:
        return call_id
    return next((name for name in calls if name.startswith(f"{call_id}{_AGAIN}")), call_id)


def closed(call_id: str, *, turn: int, step: int) -> Item:
    """The host's result for a call that has none. It is no event."""
    blocks = (NO_RESULT,)
    return Item(
        seq=0,
        uuid="",
        role="tool",
        blocks=blocks,
        turn=turn,
        step=step,
        counts=counts_of(blocks),
        call_id=call_id,
        is_error=True,
    )


def stray(item: Item) -> Item:
    """A result without its call, as host text. The note comes last, so that the blocks keep the indices of the log."""
    note = Text(text=f"[the above is the late result of call {item.call_id}]", tokens=14)
    return msgspec.structs.replace(
        item,
        role="host",
        blocks=(*item.blocks, note),
        counts=add_counts(item.counts, counts_of((note,))),
        call_id="",
        is_error=False,
        wire="",
    )


def may_replace(item: Item, target: Replacement) -> bool:
    """Whether a rewrite leaves the pairs whole."""
    if target.index < 0:
        return False
    old = item.blocks[target.index] if target.index < len(item.blocks) else None
    if isinstance(old, ToolCall):
        return isinstance(target.block, ToolCall) and target.block.call_id == old.call_id
    return not isinstance(target.block, ToolCall)


def paired(
    items: Sequence[Item], calls: Mapping[str, tuple[str, str]]
) -> tuple[list[Item], dict[str, tuple[str, str]]]:
    """The items a new window shows for `items`, and which of the open `calls` are still to be answered in it."""
    out: list[Item] = []
    waiting: dict[str, Item] = {}
    for item in items:
        if item.role == "assistant":
            out.extend(_closings(waiting))
            waiting = {block.call_id: item for block in item.blocks if isinstance(block, ToolCall)}
        elif item.role == "tool" and waiting.pop(item.call_id, None) is None:
            out.append(stray(item))
            continue
        out.append(item)
    out.extend(_closings({call_id: item for call_id, item in waiting.items() if call_id not in calls}))
    return out, {call_id: call for call_id, call in calls.items() if call_id in waiting}


def _closings(waiting: Mapping[str, Item]) -> list[Item]:
    return [closed(call_id, turn=reply.turn + 1, step=reply.step + 1) for call_id, reply in waiting.items()]
