"""Overlay: the window as facts that are not appended yet would leave it. Sizes only; `boundary` decides.

A boundary asks three things of it: how large the window is now, how large it would be after a rewrite, and what a new
window of given messages would be (`plan`). A plan that must fit is cut until there is room for another step. Carrying
it out or not is the boundary's choice, and what a plan says is what the fold will make of it, to the token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from transom.core import gssc
from transom.core.block import Block, Measure
from transom.core.budget import Limits
from transom.core.event import How, Replacement, Seed
from transom.core.state import NOTHING, Counts, Item, State, add_counts, counts_of, replaced

__all__ = ["CUTS", "Cut", "Overlay", "Plan", "counted_tokens", "head_tokens", "prompt_tokens"]

Cut = tuple[How, Sequence[Replacement]]
CUTS: tuple[How, ...] = ("prune", "offload")
"""What makes a message smaller when nothing else helps, in this order."""
_WORTH_CUTTING = 600
"""Tokens: a smaller message is hardly smaller as a reference (a stub is up to about 300), and is cut only if the window
would not fit at all."""
_LEAST_EDGE = 400
"""Characters shown of each end of a long user message; an eighth of the hard limit where that is more."""
_ROOM_AFTER = 0.9
"""A new window is made smaller until it fits this share of the base limit, so the next step does not roll again."""


def head_tokens(state: State) -> int:
    """The head in the model's tokens: sections and tools counted, and what the recording does not hold."""
    head = state.head
    prose = sum(section.tokens for section in head.sections)
    code = sum(tool.tokens for tool in head.tools)
    if not prose and not code:
        return head.unseen_tokens
    return head.unseen_tokens + state.calibration.estimate((prose, code, 0, 0, 0), 0)


def counted_tokens(state: State) -> int:
    """The next request without its tail, in the model's tokens, by our count alone."""
    window = state.window
    return head_tokens(state) + state.calibration.estimate(window.counts, len(window.items))


def prompt_tokens(state: State) -> int:
    """The next request without its tail, in the model's tokens: the last reported prompt and our count of what came
    since; our count alone where the window was rewritten since, or nothing was reported."""
    if not state.known_prompt:
        return counted_tokens(state)
    window = state.window
    added = add_counts(window.counts, state.known_counts, -1)
    return state.known_prompt + state.calibration.estimate(added, len(window.items) - state.known_items)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A new window, not yet decided on. `kept` are seqs; `cuts` make what is kept fit; `tokens` is the prompt then."""

    first: tuple[int, ...]
    seeds: tuple[Seed, ...]
    kept: tuple[int, ...]
    cuts: tuple[Cut, ...]
    tokens: int

    @property
    def seed_counts(self) -> Counts:
        return counts_of(block for seed in self.seeds for block in seed.blocks)


class Overlay:
    """`fixed`: the tokens of head and tail, which stand beside the window whatever is in it."""

    def __init__(self, state: State, bounds: Limits, measure: Callable[[str], Measure], tail_tokens: int) -> None:
        self.fixed = head_tokens(state) + tail_tokens
        self._tail = tail_tokens
        self._hard = bounds.hard
        self._measure = measure
        self.room = int(bounds.base * _ROOM_AFTER)
        self._state = state
        self._counts = state.window.counts
        self._changed: dict[int, Item] = {}
        self._added: list[int] = []
        self._added_counts = NOTHING
        self._cut: dict[How, Callable[[Iterable[Item]], list[Replacement]]] = {
            "prune": gssc.prunes,
            "offload": partial(gssc.elide, measure=measure),
        }

    @property
    def tokens(self) -> int:
        """The prompt as it stands; as the provider counts it, unless a rewrite made that number useless."""
        if self._changed or not self._state.known_prompt:
            return self._window(self._counts)
        added = self._state.calibration.estimate(self._added_counts, len(self._added))
        return self._tail + prompt_tokens(self._state) + added

    def size(self, counts: Counts, messages: int) -> int:
        """A prompt of such a window."""
        return self.fixed + self._state.calibration.estimate(counts, messages)

    def shown(self, item: Item) -> Item:
        return self._changed.get(item.seq, item) if item.seq else item

    def shown_of(self, items: list[Item]) -> list[Item]:
        return [self.shown(item) for item in items] if self._changed else items

    def cost(self, item: Item) -> int:
        return self._state.calibration.estimate(self.shown(item).counts, 1)

    def add(self, seq: int, blocks: tuple[Block, ...]) -> None:
        """A message that will have this seq (an append fails if the log's head has moved); a new window keeps it."""
        self._added.append(seq)
        self._added_counts = add_counts(self._added_counts, counts_of(blocks))

    def replace(self, how: How, targets: Iterable[Replacement]) -> None:
        self._counts = self._overlay(how, targets, self._counts, self._changed)

    def tokens_if(self, rewrites: Iterable[tuple[How, Iterable[Replacement]]]) -> int:
        """The prompt after these rewrites, which are not done."""
        trial, counts = dict(self._changed), self._counts
        for how, targets in rewrites:
            counts = self._overlay(how, targets, counts, trial)
        return self._window(counts)

    def abridged(self, most: int) -> list[Replacement]:
        """What to show of the user's messages, the longest first, so that all of them and the head are at most `most`
        tokens, if that is enough."""
        said = [words for words in self._state.words if words.seq in self._state.window.place]
        counts = NOTHING
        for words in said:
            counts = add_counts(counts, words.counts)
        found: list[Replacement] = []
        for words in sorted(said, key=lambda words: -sum(words.counts)):
            if self.size(counts, len(said)) <= most:
                break
            shorter = gssc.abridge(words, max(_LEAST_EDGE, self._hard // 8), self._measure)
            for target in shorter:
                counts = add_counts(counts, counts_of((words.blocks[target.index],)), -1)
                counts = add_counts(counts, counts_of((target.block,) if target.block else ()))
            found.extend(shorter)
        return found

    def plan(
        self, first: Sequence[Item], seeds: tuple[Seed, ...], kept: Sequence[int], *, must_fit: bool = True
    ) -> Plan:
        """The window of these; `kept` are positions. If it must fit, the largest of what is kept are cut first, none of
        the user's. Old seeds are never kept; what closes a call without a result is no event and comes with its reply
        (`pairing`)."""
        items = self._state.window.items
        kept = [place for place in kept if items[place].seq or items[place].role == "tool"]
        counts = self._added_counts
        for item in first:
            counts = add_counts(counts, item.counts)
        for one in seeds:
            counts = add_counts(counts, counts_of(one.blocks))
        for place in kept:
            counts = add_counts(counts, self.shown(items[place]).counts)
        messages = len(first) + len(seeds) + len(kept) + len(self._added)
        cuts: tuple[Cut, ...] = ()
        if must_fit:
            cuts, counts = self._cuts(kept, counts, messages)
        return Plan(
            first=tuple(item.seq for item in first),
            seeds=seeds,
            kept=(*(items[place].seq for place in kept if items[place].seq), *self._added),
            cuts=cuts,
            tokens=self.size(counts, messages),
        )

    def shrink(self) -> Plan:
        """The window as it is, cut: where so much is protected that a new one would be no smaller."""
        items = self._state.window.items
        messages = len(items) + len(self._added)
        counts = add_counts(self._counts, self._added_counts)
        cuts, counts = self._cuts(range(len(items)), counts, messages)
        return Plan(first=(), seeds=(), kept=(), cuts=cuts, tokens=self.size(counts, messages))

    def _cuts(self, places: Iterable[int], counts: Counts, messages: int) -> tuple[tuple[Cut, ...], Counts]:
        """What to cut at these places, the largest first, and the counts then."""
        items = self._state.window.items
        trial = dict(self._changed)
        cuts: list[Cut] = []
        for place in sorted(places, key=lambda place: -self.cost(items[place])):
            item = self.shown(items[place])
            now = self.size(counts, messages)
            if now <= self.room or (now <= self._hard and self.cost(item) <= _WORTH_CUTTING):
                break
            if item.role != "user" and item.seq:
                for how in CUTS:
                    found = self._cut[how]((trial.get(item.seq, item),))
                    counts = self._overlay(how, found, counts, trial)
                    cuts.append((how, found))
        return tuple(cuts), counts

    def _window(self, counts: Counts) -> int:
        return self.size(add_counts(counts, self._added_counts), len(self._state.window.items) + len(self._added))

    def _overlay(self, how: How, targets: Iterable[Replacement], counts: Counts, changed: dict[int, Item]) -> Counts:
        window = self._state.window
        for target in targets:
            item = changed.get(target.seq) or window.items[window.place[target.seq]]
            after = replaced(item, target, how)
            counts = add_counts(add_counts(counts, item.counts, -1), after.counts)
            changed[target.seq] = after
        return counts
