"""Rewriting: what a fact does to messages that the window already has, and how the cache contract learns of it (L5).

A block is shown as another, or not at all; its place stays, so that the log's indices hold. What was rewritten after a
request had shown it is a miss, and the fact's kind is its name.
"""

from __future__ import annotations

from transom.core import pace
from transom.core.block import Block, Text
from transom.core.epochs import known_of
from transom.core.event import BlockReplaced, Fact, HostSaid, How, Replacement, ToolReturned, WindowOpened
from transom.core.literals import constraints
from transom.core.pairing import may_replace
from transom.core.state import Item, State, add_counts, replaced

__all__ = ["declare", "is_own_form", "replace", "rules_in"]


def declare(state: State, reason: str) -> None:
    """The next request may differ from the last one, for this reason."""
    if state.requests and reason not in state.declared:
        state.declared.append(reason)


def is_own_form(fact: Fact) -> bool:
    """Whether a gateway can no longer pass a client's requests on: from here on upstream sees another history than the
    client's, in the form that the kernel gives it."""
    match fact:
        case BlockReplaced() | WindowOpened():
            return True
        case HostSaid():
            return fact.kind != "injected"
        case ToolReturned():
            return fact.by == "host"
        case _:
            return False


def rules_in(blocks: tuple[Block, ...]) -> tuple[str, ...]:
    """The sentences of a user's words that oblige, forbid, or take that back."""
    return tuple(line for block in blocks if isinstance(block, Text) for line in constraints(block.text))


def replace(state: State, fact: BlockReplaced) -> None:
    window = state.window
    for target in fact.targets:
        _replace_first(state, target, fact.how)
        place = window.place.get(target.seq)
        if place is None or not may_replace(window.items[place], target):
            continue
        item = window.items[place]
        window.items[place] = after = replaced(item, target, fact.how)
        window.counts = add_counts(add_counts(window.counts, item.counts, -1), after.counts)
        if item.role == "tool":
            window.results = add_counts(add_counts(window.results, item.counts, -1), after.counts)
        window.edits.append(place)
        if item.states:
            window.known = known_of(window.items)
        state.known_prompt = 0
        if place < window.sent:
            declare(state, f"reset:{fact.how}")
            pace.rewritten(state)
        if item.role == "user":
            _reworded(state, after)
    if fact.how in ("mask", "prune"):
        state.refused_tokens = 0


def _replace_first(state: State, target: Replacement, how: How) -> None:
    """The first message is shown again by later windows, so what was hidden in it stays hidden there."""
    for place, item in enumerate(state.first):
        if item.seq == target.seq and may_replace(item, target):
            state.first[place] = after = replaced(item, target, how)
            if item.role == "user":
                _reworded(state, after)


def _reworded(state: State, item: Item) -> None:
    """A user's words were redacted: no seed brings them back."""
    for words in state.words:
        if words.seq == item.seq:
            words.blocks, words.counts = item.blocks, item.counts
            words.constraints = rules_in(item.blocks)
