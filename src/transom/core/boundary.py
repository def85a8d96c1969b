"""The boundary: the one place of decision (L3, L4).

`before_step` is asked in the gap after every call of a step has settled and before the next request is derived. It
returns the facts to append, as one append, in this order:

1. settle     a call without a result gets one from the host, so pairs stay whole (L10)
2. dispose    user messages that a finished turn answered are closed; thoughts the provider drops then are dropped
3. offload    results over the policy's threshold become references before they are ever sent
4. budget     remind, fall back, or roll over (`budget.evaluate`)
5. compress   what the policy does at its moment: fifo, mask, state projection
6. last line  a window that would not fit is rolled over by code, whatever the policy (all but `raw`)

Deciding needs sizes after each of these, so a boundary works on an overlay of the window; nothing is folded until the
facts are appended. A step that gains too little is refused and named (L11).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from transom.core import gssc
from transom.core.block import Measure, Text, ToolResultRaw
from transom.core.budget import Limits, evaluate, require
from transom.core.event import (
    BlockReplaced,
    Fact,
    HostSaid,
    How,
    Replacement,
    Seed,
    ToolReturned,
    UserDisposed,
    WindowCause,
    WindowOpened,
    WindowRefused,
)
from transom.core.handoff import seed
from transom.core.policy import Policy
from transom.core.state import NOTHING, Counts, Item, State, add_counts, counts_of, replaced

__all__ = ["before_step", "counted_tokens", "head_tokens", "prompt_tokens"]

_MIN_SEED = 300
"""o200k tokens: anchors, handoff frame and a few lines of state; a seed never gets less room."""
_WORTH_CUTTING = 600
"""Tokens: a smaller message is hardly smaller as a reference (a stub is up to about 300)."""
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


def before_step(
    state: State,
    policy: Policy,
    bounds: Limits,
    measure: Callable[[str], Measure],
    *,
    model_hands_over: bool = False,
    tail_tokens: int = 0,
) -> tuple[Fact, ...]:
    """The facts this boundary appends. `model_hands_over`: a live model is there to be reminded and to declare a
    rollover itself; without one (replay) the fallback stage goes straight to a rollover by code.

    Raises `OverBudget` with the numbers if the head and the user's own words alone do not fit.
    """
    desk = _Desk(state, policy, bounds, measure, tail_tokens)
    desk.settle()
    desk.dispose()
    desk.strip()
    if policy.how == "recorded":
        return tuple(desk.facts)
    desk.offload()
    if policy.when != "never":
        desk.budget(model_hands_over)
    return tuple(desk.facts)


class _Desk:
    """One boundary's work: the facts so far and the window as they would leave it."""

    def __init__(
        self, state: State, policy: Policy, bounds: Limits, measure: Callable[[str], Measure], tail_tokens: int
    ) -> None:
        self.state = state
        self.policy = policy
        self.bounds = bounds
        self.measure = measure
        self.facts: list[Fact] = []
        self.counts = state.window.counts
        self.changed: dict[int, Item] = {}
        self.fixed = head_tokens(state) + tail_tokens
        self.off = prompt_tokens(state) - counted_tokens(state)
        """By how much our count of the window as it stands is off the last report."""
        self.added: list[int] = []
        """The seqs these messages will have (an append fails if the log's head has moved): a new window keeps them."""
        self.pending = 0
        """Tokens of facts that add to the window and have no item yet (host results, reminders)."""

    # -- sizes

    @property
    def items(self) -> Sequence[Item]:
        return self.state.window.items

    def tokens(self, counts: Counts, messages: int) -> int:
        return self.state.calibration.estimate(counts, messages)

    def current(self) -> int:
        return self.off + self.fixed + self.pending + self.tokens(self.counts, len(self.items))

    def shown(self, place: int) -> Item:
        item = self.items[place]
        return self.changed.get(item.seq, item) if item.seq else item

    def cost(self, item: Item) -> int:
        found = self.changed.get(item.seq, item) if item.seq else item
        return self.tokens(found.counts, 1)

    # -- the steps, in order

    def settle(self) -> None:
        for call_id in self.state.window.calls:
            block = ToolResultRaw(text="[no result: this call did not finish]", tokens=9, content="prose")
            self.add(ToolReturned(call_id=call_id, blocks=(block,), is_error=True, effect="none", by="host"))

    def dispose(self) -> None:
        words = self.state.words
        answered = self.state.answered_through
        if len(words) > 1 and words[-1].seq > answered:
            self.facts.extend(
                UserDisposed(seq=said.seq, disposition="answered", by=answered)
                for said in words[:-1]
                if said.disposition == "open" and said.seq < answered
            )

    def strip(self) -> None:
        """What some providers do themselves when the user speaks: drop the thoughts of the turns before."""
        state = self.state
        new = self.items[state.window.sent :]
        if state.drop_votes > 0 and any(item.role == "user" for item in new):
            self.replace("prune", gssc.prunes(self.items[: state.window.sent + 1]))

    def offload(self) -> None:
        above = self.policy.offload_above
        if above:
            fresh = [item for item in self.items[self.state.window.sent :] if item.role == "tool"]
            self.replace("offload", [found for item in fresh for found in gssc.offload(item, above, self.measure)])

    def budget(self, model_hands_over: bool) -> None:
        state = self.state
        action = evaluate(
            self.bounds,
            current=self.current(),
            declared=state.intent is not None,
            reminder_claimed=state.reminder_claimed or not model_hands_over,
            fallback_claimed=state.fallback_claimed or not model_hands_over,
        )
        if action.kind == "remind":
            self.say("reminder", f"[host] About {action.remaining:,} tokens are left before this window must be handed "
                     "over. Finish the step at hand, then call new_context with a handoff.")  # fmt: skip
        elif action.kind == "fallback":
            self.say("fallback", "[host] The window is full: the only call accepted now is new_context.")
        elif action.kind == "rollover" and action.cause == "model":
            self.rollover("model")
            return
        if self.policy.when == "watermark" and self.current() > self.policy.watermark * self.bounds.hard:
            self.compress()
        if self.current() >= self.bounds.hard:
            if self.policy.how == "fifo":
                self.fifo()
            else:
                self.rollover("hard-limit")

    def say(self, kind: str, text: str) -> None:
        found = self.measure(text)
        block = Text(text=text, tokens=found.tokens, content=found.content)
        self.add(HostSaid(kind="reminder" if kind == "reminder" else "fallback", blocks=(block,)))

    def add(self, fact: ToolReturned | HostSaid) -> None:
        """A message of the host's own."""
        self.added.append(self.state.seq + 1 + len(self.facts))
        self.facts.append(fact)
        self.pending += self.tokens(counts_of(fact.blocks), 1)

    # -- rewriting

    def replace(self, how: How, targets: list[Replacement]) -> None:
        if not targets:
            return
        self.facts.append(BlockReplaced(how=how, targets=tuple(targets)))
        self.counts = self.overlay(how, targets, self.counts, self.changed)

    def overlay(self, how: How, targets: Sequence[Replacement], counts: Counts, changed: dict[int, Item]) -> Counts:
        for target in targets:
            item = changed.get(target.seq) or self.items[self.state.window.place[target.seq]]
            after = replaced(item, target, how)
            counts = add_counts(add_counts(counts, item.counts, -1), after.counts)
            changed[target.seq] = after
        return counts

    def compress(self) -> None:
        """What the policy does at the watermark, unless it was refused and the window has hardly grown since."""
        least = int(self.policy.min_gain * self.bounds.hard)
        if self.state.refused_tokens and self.current() < self.state.refused_tokens + least // 2:
            return
        if self.policy.how == "fifo":
            self.fifo()
            return
        if self.policy.how not in ("mask", "project"):
            return
        if self.policy.how == "mask":
            self.rewrite(least)
            return
        # A projection that only just gets below the watermark would be rewritten again at once.
        if self.rewrite(max(least, self.current() - int(self.policy.low_water * self.bounds.hard))):
            return
        self.rollover("watermark", least=least)

    def rewrite(self, least: int) -> bool:
        """One batch of masks (and, projecting, prunes) if it frees at least `least` tokens."""
        old = self.old(self.policy.keep_steps)
        targets: list[tuple[How, list[Replacement]]] = [("mask", gssc.masks(old, self.measure))]
        if self.policy.how == "project":
            targets.insert(0, ("prune", gssc.prunes(self.old(self.policy.thought_turns))))
        trial = dict(self.changed)
        counts = self.counts
        for how, found in targets:
            counts = self.overlay(how, found, counts, trial)
        before = self.current()
        after = before - self.tokens(self.counts, 0) + self.tokens(counts, 0)
        if before - after < least:
            if any(found for _, found in targets) and self.policy.how == "mask":
                self.refuse("mask", before, after, least)
            return False
        for how, found in targets:
            self.replace(how, found)
        return True

    def old(self, steps: int) -> list[Item]:
        newest = self.state.steps - steps
        return [self.changed.get(item.seq, item) for item in self.items if item.seq and item.step <= newest]

    def refuse(self, cause: str, before: int, after: int, least: int) -> None:
        reason = f"would free {before - after:,} tokens, less than the stated minimum of {least:,}"
        self.facts.append(WindowRefused(cause=cause, reason=reason, tokens_before=before, tokens_after=after))

    # -- new windows

    def fifo(self) -> None:
        """Drop the oldest messages down to the low water, whatever they say; what is new stays and is cut to fit."""
        start = gssc.newest(
            self.items,
            self.cost,
            int(self.policy.low_water * self.bounds.hard) - self.fixed,
            whole_from=self.first_new(),
        )
        kept = list(range(start, len(self.items)))
        before, after = self.current(), self.after(kept, NOTHING, 0)
        least = int(self.policy.min_gain * self.bounds.hard)
        if before < self.bounds.hard and before - after < least:
            self.refuse("fifo", before, after, least)
            return
        self.fit(kept, NOTHING, 0)
        after = self.after(kept, NOTHING, 0)
        require(self.bounds, protected=after, what="the head and the newest message")
        self.open("fifo", before, (), (), kept)

    def first_new(self) -> int:
        """The first position of what has just arrived: kept whole (COST-MODEL: `a_b` goes into the new window)."""
        place = gssc.unseen(self.state)
        while place < len(self.items) and self.items[place].role == "tool" and place > 0:
            place -= 1  # results go with the reply that called for them
        return place

    def rollover(self, cause: WindowCause, least: int = 0) -> None:
        """A new window by code: first message, seed from state, and what the model has not seen (with the newest steps
        of the history quota when the policy projects)."""
        hard = self.bounds.hard
        before = self.current()
        first = self.first_message()
        start = self.first_new()
        if self.policy.how == "project":
            start = gssc.newest(self.items, self.cost, int(self.policy.history * hard), whole_from=start)
        heads = {item.seq for item in first}
        kept = [place for place in range(start, len(self.items)) if self.items[place].seq not in heads]
        stays = frozenset(heads | {self.items[place].seq for place in kept})
        base = add_counts(NOTHING, NOTHING)
        for item in first:
            base = add_counts(base, item.counts)
        self.protected(first, stays)
        made, size = self.seed(stays, int(self.policy.seed * hard))
        self.fit(kept, add_counts(base, size), len(first) + len(made))
        after = self.after(kept, add_counts(base, size), len(first) + len(made))
        if after > self.bounds.hard * _ROOM_AFTER:
            made, size = self.seed(stays, _MIN_SEED)
            after = self.after(kept, add_counts(base, size), len(first) + len(made))
        if least and before - after < least:
            self.refuse(cause, before, after, least)
            return
        require(self.bounds, protected=after, what="the head, the user's own words and the newest message")
        self.open(cause, before, tuple(item.seq for item in first), made, kept)

    def first_message(self) -> list[Item]:
        """The first wire message whole, so that its bytes stay cached; only the user's own words of it if injected text
        makes it larger than two fifths of the window."""
        first = self.state.first
        size = sum(self.tokens(item.counts, 1) for item in first)
        if size > 0.4 * self.bounds.hard:
            return [item for item in first if item.role == "user"]
        return first

    def seed(self, shown: frozenset[int], room: int) -> tuple[tuple[Seed, ...], Counts]:
        last = next((item.uuid for item in reversed(self.items) if item.role == "assistant"), "")
        made = seed(self.state, message_uuid=last, shown=shown, room=room, measure=self.measure)
        size = NOTHING
        for one in made:
            size = add_counts(size, counts_of(one.blocks))
        return made, size

    def protected(self, first: Sequence[Item], shown: frozenset[int]) -> None:
        words = NOTHING
        for item in first:
            words = add_counts(words, item.counts)
        for said in self.state.words:
            if said.disposition == "open" and said.seq not in shown:
                words = add_counts(words, said.counts)
        size = self.fixed + self.tokens(words, len(first) + 1)
        require(self.bounds, protected=size, what="the head and the user's own words")

    def after(self, kept: Sequence[int], base: Counts, messages: int) -> int:
        total = base
        for place in kept:
            total = add_counts(total, self.shown(place).counts)
        return self.fixed + self.pending + self.tokens(total, messages + len(kept))

    def fit(self, kept: Sequence[int], base: Counts, messages: int) -> None:
        """Cut what is kept, the largest blocks first, until the window leaves room for another step."""
        room = int(self.bounds.base * _ROOM_AFTER)
        for place in sorted(kept, key=lambda place: -self.cost(self.items[place])):
            if self.after(kept, base, messages) <= room:
                return
            item = self.shown(place)
            if item.role in ("tool", "assistant") and item.seq and self.cost(item) > _WORTH_CUTTING:
                self.replace("offload", gssc.elide(item, self.measure))

    def open(
        self, cause: WindowCause, before: int, head: tuple[int, ...], made: tuple[Seed, ...], kept: Sequence[int]
    ) -> None:
        seqs = (*(self.items[place].seq for place in kept if self.items[place].seq), *self.added)
        total = NOTHING
        for one in made:
            total = add_counts(total, counts_of(one.blocks))
        for item in self.state.first:
            if item.seq in head:
                total = add_counts(total, item.counts)
        self.facts.append(
            WindowOpened(
                cause=cause,
                generation=self.state.window.generation + 1,
                seed=made,
                kept_head=head,
                kept_tail=seqs,
                tokens_before=before,
                tokens_after=self.after(kept, total, len(head) + len(made)),
                declared_by=self.state.intent_uuid if cause == "model" else "",
            )
        )
        self.counts = total
        for place in kept:
            self.counts = add_counts(self.counts, self.shown(place).counts)
