"""Opening: what a new window would hold, before anybody decides that there is one.

A plan reads the state and the overlay of the boundary at hand; the boundary carries it out or not. A window by code
holds the first wire message, a seed made from state, what of the host's words stands, and what the model has not seen,
which stays whole (`a_b` of the cost model); under a policy that projects, the newest steps of the history quota too.
Changes of the head that it would not show are said again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from transom.core import gssc
from transom.core.block import Measure, Text
from transom.core.budget import Limits, require
from transom.core.epochs import Update, updated
from transom.core.event import Replacement, Seed, WindowCause
from transom.core.handoff import seed
from transom.core.overlay import Overlay, Plan
from transom.core.policy import Policy
from transom.core.state import NOTHING, Item, State, add_counts, counts_of
from transom.core.surface import NEW_CONTEXT, is_notice

__all__ = ["Opening"]

_MIN_SEED = 300
"""o200k tokens: anchors, handoff frame and some state; a seed never gets less room."""
_DROPPED = "[host] Older messages were dropped from this window; recall finds them by their words."


class Opening:
    """Plans of new windows at one boundary."""

    def __init__(
        self, state: State, policy: Policy, bounds: Limits, window: Overlay, update: Update, *, since: int = 0
    ) -> None:
        """`since`: as `boundary.before_step`."""
        self._state = state
        self._since = since
        self._policy = policy
        self._bounds = bounds
        self._measure = update.measure
        self._window = window
        self._update = update

    @classmethod
    def now(cls, state: State, policy: Policy, bounds: Limits, measure: Callable[[str], Measure]) -> Opening:
        """For looking only: as a boundary that has decided nothing yet and was told of no change."""
        window = Overlay(state, bounds, measure, 0)
        return cls(state, policy, bounds, window, updated(state.head, state.window.known, (), measure))

    def must_fit(self, more: int = 0) -> bool:
        """At the hard limit even what the model has not seen is cut, and the minimum gain is not asked for; nor is it
        where the provider says that its window is smaller, in a window in which it has answered."""
        state = self._state
        is_smaller = state.is_overflowed and state.steps > state.window.step
        return is_smaller or self._window.tokens + more >= self._bounds.hard

    def first_new(self) -> int:
        """The first position of what has just arrived, which is kept whole. New results go with the reply that called
        for them."""
        items = self._state.window.items
        place = max(self._state.window.seen, self._arrived() if self._since else 0)
        new = next((item for item in items[place:] if item.role in ("tool", "assistant")), None)
        if new is not None and new.role == "tool":
            while place > 0 and items[place].role != "assistant":
                place -= 1
        return place

    def _arrived(self) -> int:
        """Of a history that came with answers in it, nobody knows what of it a model has seen: all is new, unless that
        is more than half of a window; then what stands before its last answer is not."""
        items = self._state.window.items
        first = next((place for place, item in enumerate(items) if item.seq > self._since), len(items))
        if 2 * sum(self._window.cost(item) for item in items[first:]) <= self._bounds.hard:
            return first
        return next((place for place in reversed(range(first, len(items))) if items[place].role == "assistant"), first)

    def fifo(self) -> Plan:
        """The newest messages down to the low water, whatever they say; what is new stays and is cut to fit."""
        items = self._state.window.items
        room = int(self._policy.low_water * self._bounds.hard) - self._window.fixed
        start = gssc.newest(items, self._window.cost, room, whole_from=self.first_new())
        found = self._measure(_DROPPED)
        note = Text(text=_DROPPED, tokens=found.tokens, content=found.content)
        kept = list(range(start, len(items)))
        seeds = (Seed(role="host", blocks=(note,)), *self._update.again(items[start:]))
        return self._window.plan([], seeds, kept, must_fit=self.must_fit())

    def rollover(self, cause: WindowCause) -> tuple[Plan, list[Replacement]]:
        """A window by code, or from the handoff that was declared: then with what becomes of the call that did so (the
        overlay has it already). Raises `OverBudget` for the user's words alone if they are what does not fit."""
        hard = self._bounds.hard
        items = self._state.window.items
        first = self.first_message()
        heads = {item.seq for item in first}
        start = self.first_new()
        said_again: frozenset[int] = frozenset()
        taken: list[Replacement] = []
        if cause == "model":
            said_again, taken = gssc.handed_over(items, start, NEW_CONTEXT, self._measure)
            self._window.replace("offload", taken)

        def plan(start: int, share: float) -> Plan:
            places = [*self._standing(start), *(at for at in range(start, len(items)) if at not in said_again)]
            places = [place for place in places if not is_notice(items[place])]
            kept = [place for place in places if items[place].seq not in heads]
            shown = frozenset(heads | {items[place].seq for place in kept})
            again = self._update.again((*first, *(self._window.shown(items[place]) for place in kept)))
            return self._window.plan(first, (*self._seed(shown, share), *again), kept, must_fit=self.must_fit())

        made = plan(start, self._policy.seed)
        if self._policy.how == "project":
            new = sum(self._window.cost(item) for item in items[start:])
            room = min(int(self._policy.history * hard), new + int(self._policy.low_water * hard) - made.tokens)
            wider = gssc.newest(items, self._window.cost, room, whole_from=start)
            if wider < start:
                start, made = wider, plan(wider, self._policy.seed)
        if made.tokens > self._window.room:
            made = plan(start, 0.0)
        self._protect(first, made)
        return made, taken

    def _standing(self, start: int) -> list[int]:
        """Positions before `start` of the host's words that still hold."""
        newest = {item.stands: place for place, item in enumerate(self._state.window.items) if item.stands}
        return sorted(place for place in newest.values() if place < start)

    @property
    def tokens(self) -> int:
        """Of the prompt as it stands."""
        return self._window.tokens

    def pinned_tokens(self) -> int:
        """Of what a new window has in common with this one from the start: the head, and the first message."""
        return self._window.fixed + sum(self._window.cost(item) for item in self.first_message())

    def new_tokens(self) -> int:
        """Of what has just arrived, which a new window keeps."""
        return sum(self._window.cost(item) for item in self._state.window.items[self.first_new() :])

    def seed_tokens(self) -> int:
        """Of the seed that a window by code would start with here, whether or not it should."""
        kept = self._state.window.items[self.first_new() :]
        shown = frozenset(item.seq for item in (*self.first_message(), *kept))
        counts = counts_of(block for one in self._seed(shown, self._policy.seed) for block in one.blocks)
        return self._state.calibration.estimate(counts, 0)

    def first_message(self) -> list[Item]:
        """The first wire message whole, so that its bytes stay cached; only the user's own words of it if injected text
        makes it larger than two fifths of the window."""
        first = [self._window.shown(item) for item in self._state.first]
        size = sum(self._window.cost(item) for item in first)
        if size > 0.4 * self._bounds.hard:
            return [item for item in first if item.role == "user"]
        return first

    def _seed(self, shown: frozenset[int], share: float) -> tuple[Seed, ...]:
        items = self._state.window.items
        last = next((item.uuid for item in reversed(items) if item.role == "assistant"), "")
        room = max(_MIN_SEED, int(share * self._bounds.hard / self._state.calibration.blended))
        return seed(
            self._state,
            message_uuid=self._state.intent_uuid or last,
            shown=shown,
            room=room,
            measure=self._measure,
            is_tight=share == 0,
        )

    def _protect(self, first: Sequence[Item], made: Plan) -> None:
        if made.tokens <= self._bounds.hard or not self.must_fit():
            return
        words = NOTHING
        for item in first:
            words = add_counts(words, item.counts)
        heads = {item.seq for item in first}
        for said in self._state.words:
            if said.disposition == "open" and said.seq not in heads:
                words = add_counts(words, said.counts)
        require(
            self._bounds, protected=self._window.size(words, len(first) + 1), what="the head and the user's own words"
        )
