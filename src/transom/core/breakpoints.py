"""Where a request's cache marks stand, for providers that want them: a pure function of the wire.

A mark makes the provider remember the prompt up to it, and look there, and some blocks before it, for what it remembers
already. It takes four. They stand behind

    the head           what every window, and every session with this head, has in common
    the first message  the pinned specification: what every window after a rollover still has
    the last stable    the end of the newest answered request whose bytes are all still there: its cache is found
                       however long the step since was, whatever failed in between, and after a rewrite too
    the moving end     the last message before the tail

In a long tool turn, where the end is more than `LOOKBACK` blocks behind the last stable one, an extra mark stands
`STRIDE` blocks or more after that, so that a rewrite or a failure inside the turn does not lose all of it. Where four
stand already it takes the place of the head's, which the first message's finds by looking back.

Marks are no part of the digests: a moved mark is not a miss.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from transom.core.wire import Wire

__all__ = ["LOOKBACK", "MARKS", "STRIDE", "breakpoints"]

MARKS = 4
"""Anthropic, prompt caching (October 2026): marks a request may carry."""
LOOKBACK = 20
"""The same: content blocks looked at before a mark."""
STRIDE = 15
"""Their advice for long tool turns: short enough that the marks' looking back overlaps."""


def breakpoints(wire: Wire, kept: int | None = None) -> tuple[int, ...]:
    """Behind how many messages of the body a mark stands, ascending; 0 is the head. `kept`: messages that are the same
    bytes as in the request before (`Verdict.kept`); None: all of them."""
    last = wire.messages
    if not last:
        return (0,)
    stable = _stable(wire, last if kept is None else kept)
    chosen = {0, 1, stable, last}
    behind = wire.blocks[stable]
    if stable and wire.blocks[last] - behind > LOOKBACK:
        chosen.add(bisect_left(wire.blocks, behind + STRIDE, stable + 1, last))
        if len(chosen) > MARKS:
            chosen.discard(0 if wire.blocks[1] <= LOOKBACK else 1)
    return tuple(sorted(chosen))


def _stable(wire: Wire, kept: int) -> int:
    """The end of the newest answered request in the first `kept` messages: what stands before a reply was sent."""
    place = bisect_right(wire.replies, kept)
    while place and wire.replies[place - 1] > wire.messages - 1:
        place -= 1  # a view on a list that has grown since
    return wire.replies[place - 1] if place else 0
