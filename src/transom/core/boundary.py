"""The boundary: the one place of decision (L3, L4).

`before_step` is asked in the gap after every call of a step has settled and before the next request is derived. It
returns the facts to append, as one append, in this order:

1. settle     a call without a result gets one from the host, so pairs stay whole (L10)
2. dispose    user messages that a finished turn answered are closed; thoughts the provider drops then are dropped
3. tell       what has changed around the agent, and what of it the window does not show, is said (`epochs`)
4. offload    large results become references before they are ever sent, user messages that leave no room to work too
5. declared   a rollover that a model asked for is committed, or refused (L4)
6. compress   what the policy does at its moment: fifo, mask, state projection, rollover; rewrites only if they pay
7. budget     remind, fall back, or roll over by code: no window outgrows the hard limit (all but `raw`'s)

At most one window opens. Deciding needs sizes after each of these, so a boundary works on an overlay of the window;
nothing is folded until the facts are appended (`overlay`). What gains too little is refused and named (L11).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, assert_never

from transom.core import epochs, gssc, pace
from transom.core.block import Measure, Text
from transom.core.budget import Limits, evaluate, require
from transom.core.costrule import Outlook, Reuse, Tariff, payback, remaining_steps
from transom.core.event import (
    BlockReplaced,
    Fact,
    HostSaid,
    How,
    Replacement,
    ToolReturned,
    UserDisposed,
    WindowCause,
    WindowOpened,
    WindowRefused,
)
from transom.core.opening import Opening
from transom.core.overlay import CUTS, Overlay, Plan, counted_tokens, head_tokens, prompt_tokens
from transom.core.pairing import NO_RESULT
from transom.core.policy import Policy
from transom.core.state import Item, State
from transom.core.surface import (
    FALLBACK_CHANCES,
    NOTICE_TOKENS,
    cost_notice,
    fallback_notice,
    hosted,
    reminder_notice,
)
from transom.errors import OverBudget

__all__ = ["before_step", "counted_tokens", "disposed", "head_tokens", "prompt_tokens"]

_WORDS_SHARE = 0.75
"""Of the hard limit: head and user's words may fill a window this far (source document 004 reserves a quarter)."""
_KEPT = "the head, the user's own words and the newest messages"
_PATIENCE = 3
"""Steps a live model has to finish what it is at and to hand over, before code does it for cost alone."""
_STORM = 6
"""Windows in a row that were full again after one result or none: recorded storms were hundreds of boundaries long,
while a large result on its own fills one window or two."""


def before_step(
    state: State,
    policy: Policy,
    bounds: Limits,
    measure: Callable[[str], Measure],
    *,
    model_hands_over: bool = False,
    tail_tokens: int = 0,
    samples: Sequence[epochs.Sample] = (),
    tariff: Tariff | None = None,
    now: int = 0,
    since: int = 0,
) -> tuple[Fact, ...]:
    """The facts this boundary appends. `model_hands_over`: a live model is there to be reminded and to declare a
    rollover itself; without one (replay) the fallback stage goes straight to a rollover by code. `samples`: what the
    sources say now. `tariff`: what is paid; without it nothing is weighed. `now`: ms since the epoch; 0: not known, and
    the cache never cold.

    Raises `OverBudget` with the numbers if the head and the user's own words alone do not fit, or if window after
    window of a live model is full before anything was done in it.
    """
    update = epochs.updated(state.head, state.window.known, samples, measure)
    desk = _Desk(state, policy, bounds, Overlay(state, bounds, measure, tail_tokens), update, since=since)
    desk.tariff, desk.now = tariff, now
    desk.settle()
    desk.facts.extend(disposed(state))
    desk.strip()
    if policy.how == "recorded":
        return tuple(desk.facts)
    desk.tell()
    desk.offload()
    desk.abridge()
    if policy.when != "never" or state.intent is not None:
        desk.budget(model_hands_over)
    return tuple(desk.facts)


def disposed(state: State) -> tuple[UserDisposed, ...]:
    """User messages that a finished turn has answered are closed."""
    words, answered = state.words, state.answered_through
    is_over = len(words) > 1 and words[-1].seq > answered > words[0].seq
    closed = [said.seq for said in words[:-1] if is_over and said.disposition == "open" and said.seq < answered]
    return tuple(UserDisposed(seq=seq, disposition="answered", by=answered) for seq in closed)


class _Desk:
    """One boundary's work: the facts so far, and the window as they would leave it."""

    def __init__(
        self, state: State, policy: Policy, bounds: Limits, window: Overlay, update: epochs.Update, *, since: int
    ) -> None:
        self.state = state
        self.policy = policy
        self.bounds = bounds
        self.measure = update.measure
        self.facts: list[Fact] = []
        self.window = window
        self.update = update
        self.opening = Opening(state, policy, bounds, window, update, since=since)
        self.must_fit = self.opening.must_fit
        self.least = int(policy.min_gain * bounds.hard)
        self.has_opened = self.is_live = False
        self.taken: list[Replacement] = []
        self.tariff: Tariff | None = None
        self.now = 0

    @property
    def items(self) -> Sequence[Item]:
        return self.state.window.items

    def current(self) -> int:
        return self.window.tokens

    # -- the steps, in order

    def settle(self) -> None:
        for call_id in self.state.window.calls:
            self.add(ToolReturned(call_id=call_id, blocks=(NO_RESULT,), is_error=True, effect="none", by="host"))

    def strip(self) -> None:
        """What some providers do themselves when the user speaks: drop the thoughts of the turns before."""
        state = self.state
        new = self.items[state.window.sent :]
        if state.drop_votes > 0 and any(item.role == "user" for item in new):
            self.replace("prune", gssc.prunes(self.items[: state.window.sent + 1]))

    def tell(self) -> None:
        self.facts.extend(self.update.changed)
        if self.update.said is not None:
            self.add(self.update.said)

    def offload(self) -> None:
        above = self.policy.admits_below
        if above:
            fresh = [item for item in self.items[self.state.window.sent :] if item.role in ("tool", "host")]
            self.replace("offload", [found for item in fresh for found in gssc.offload(item, above, self.measure)])

    def abridge(self) -> None:
        """Where the user's words leave no room to work, the longest are shown by their ends; a host's tool reads on."""
        most = int(_WORDS_SHARE * self.bounds.hard)
        if self.current() > most and hosted(self.state):
            self.replace("offload", self.window.abridged(most))

    def budget(self, model_hands_over: bool) -> None:
        policy = self.policy
        self.is_live = model_hands_over
        if self.state.intent is not None:
            self.rollover("model")
            return
        if self.state.is_overflowed:
            self.rollover("overflow")
            return
        if self.is_due():
            self.compress()
        elif policy.when == "cost" and self.tariff is not None:
            self.economise(self.tariff)
        action = evaluate(
            self.bounds,
            current=max(self.current(), self.bounds.base if self.state.fallbacks else 0),  # a stage goes to its end
            declared=False,
            reminder_claimed=self.state.reminder_claimed or not model_hands_over,
            fallback_claimed=self.state.fallbacks >= FALLBACK_CHANCES and self.is_answered(),
        )
        # Nobody hands over in a replay, so the room that is kept for it may be used.
        must = self.must_fit(NOTICE_TOKENS * model_hands_over) or (action.kind == "rollover" and model_hands_over)
        if self.has_opened or not (must or model_hands_over):
            return
        if must and policy.how == "fifo":
            self.fifo()
        elif must:
            self.rollover("hard-limit")
        elif action.kind == "remind":
            self.say("reminder", reminder_notice(action.remaining))
        elif action.kind == "fallback" and self.is_answered() and not self.is_refused():
            self.say("fallback", fallback_notice(self.state))

    def economise(self, tariff: Tariff) -> None:
        """A new window where that is cheaper than going on. A live model is told so and hands over itself; it is done
        by code when the cache is cold anyway, or when waiting has cost as much as opening does."""
        state, known = self.state, self.state.estimates
        is_told = self.is_live and not state.reminder_claimed
        pinned = self.opening.pinned_tokens()
        handoff = round(known.handoff) if is_told else 0

        def weighed(gain: int, seed: int, reuse: Reuse) -> Outlook:
            return pace.outlook(
                state, tariff, gain=gain, seed=seed, pinned=pinned, now=self.now, handoff=handoff, reuse=reuse
            )

        # The dearer a question, the later it is asked: what calls use again, then what a window would really hold.
        guess = self.current() - pinned - self.opening.new_tokens() - known.seed
        if guess <= 0 or not weighed(guess, known.seed, Reuse(rate=0.0)).is_due:
            return
        reuse = pace.reuse_in(state)
        if not weighed(guess, known.seed, reuse).is_due:
            return
        made, _ = self.opening.rollover("cost")
        gain = self.current() - made.tokens
        found = weighed(gain, self.window.size(made.seed_counts, 0) - self.window.fixed, reuse)
        waited = state.steps - known.reminded
        if not found.is_due:
            return
        if is_told and not found.is_cold:
            self.say("reminder", cost_notice(gain))
        elif not self.is_live or found.is_cold or (waited >= _PATIENCE and waited * found.saving >= found.price):
            self.open("cost", made, _KEPT)

    def is_answered(self) -> bool:
        """The newest fallback notice, if there is one, has been in a request."""
        return not self.state.fallbacks or self.state.turn > self.state.fallback_turn

    def is_due(self) -> bool:
        """Whether the policy's moment has come (`Policy.when`)."""
        policy, hard = self.policy, self.bounds.hard
        match policy.when:
            case "step":
                return True
            case "watermark" | "cost":
                return self.current() > policy.watermark * hard
            case "quota":
                results = self.state.calibration.estimate(self.state.window.results, 0)
                rest = self.current() - self.window.fixed - results
                return results > policy.tools * hard or rest > policy.history * hard
            case "never" | "limit":
                return False
            case _:
                assert_never(policy.when)

    def say(self, kind: Literal["reminder", "fallback", "refusal"], text: str) -> None:
        found = self.measure(text)
        self.add(HostSaid(kind=kind, blocks=(Text(text=text, tokens=found.tokens, content=found.content),)))

    def add(self, fact: ToolReturned | HostSaid) -> None:
        """A message of the host's own."""
        self.window.add(self.state.seq + 1 + len(self.facts), fact.blocks)
        self.facts.append(fact)

    # -- rewriting

    def replace(self, how: How, targets: Sequence[Replacement]) -> None:
        if targets:
            self.facts.append(BlockReplaced(how=how, targets=tuple(targets)))
            self.window.replace(how, targets)

    def cut(self, made: Plan) -> None:
        for how in CUTS:
            self.replace(how, [target for kind, found in made.cuts if kind == how for target in found])

    def compress(self) -> None:
        """What the policy does at its moment, unless it was refused and the window has hardly grown."""
        if self.is_refused():
            return
        match self.policy.how:
            case "fifo":
                self.fifo()
            case "mask" | "offload":
                self.rewrite(self.least)
            case "rollover":
                self.rollover("watermark")
            case "project":
                # A projection that only just gets below the watermark would be rewritten again at once.
                low = self.current() - int(self.policy.low_water * self.bounds.hard)
                if not self.rewrite(max(self.least, low)):
                    self.rollover("watermark")
            case "none" | "recorded":
                pass
            case _:
                assert_never(self.policy.how)

    def is_refused(self) -> bool:
        refused = self.state.refused_tokens
        return refused > 0 and self.current() < min(refused + self.least // 2, self.bounds.hard)

    def rewrite(self, least: int) -> bool:
        """One batch of masks (and, projecting, prunes) if it frees at least `least` tokens."""
        policy = self.policy
        old = self.old(policy.keep_steps)
        targets: list[tuple[How, list[Replacement]]]
        if policy.how == "offload":
            above = policy.offload_above
            targets = [("offload", [found for item in old for found in gssc.offload(item, above, self.measure)])]
        else:
            targets = [("mask", gssc.masks(old, self.measure))]
        if policy.how == "project":
            targets.insert(0, ("prune", gssc.prunes(self.old(self.policy.thought_turns))))
        before, after = self.current(), self.window.tokens_if(targets)
        places = [self.state.window.place[target.seq] for _, found in targets for target in found]
        loss = self.loss(min(places), before - after) if places else ""
        if before - after < least or loss:
            if places and policy.how != "project":
                self.refuse(policy.how, before, after, loss if before - after >= least else "")
            return False
        for how, found in targets:
            self.replace(how, found)
        return True

    def loss(self, first: int, freed: int) -> str:
        """Why a rewrite from position `first` on costs more than it saves while the session is expected to last."""
        if self.tariff is None:
            return ""
        behind = sum(self.window.cost(item) for item in self.items[first:]) - freed
        steps = payback(self.tariff, behind=behind, freed=freed)
        left = remaining_steps(self.state.steps, *pace.tasks(self.state))
        if steps <= left:
            return ""
        return (
            f"would write {behind:,} tokens again to free {freed:,}; that pays after {steps:,.0f} steps, and about "
            f"{left:,.0f} are expected"
        )

    def old(self, steps: int) -> list[Item]:
        """Items older than `steps` replies, which the model has seen."""
        newest = self.state.steps - steps
        seen = self.items[: self.opening.first_new()]
        return self.window.shown_of([item for item in seen if item.seq and item.step <= newest])

    def refuse(self, cause: str, before: int, after: int, reason: str = "") -> None:
        reason = reason or f"would free {before - after:,} tokens, less than the stated minimum of {self.least:,}"
        self.facts.append(WindowRefused(cause=cause, reason=reason, tokens_before=before, tokens_after=after))
        if cause == "model":
            self.say("refusal", f"[host] No new window was opened: it {reason}. Go on in this one.")

    # -- new windows

    def fifo(self) -> None:
        self.open("fifo", self.opening.fifo(), "the head and the newest messages")

    def rollover(self, cause: WindowCause) -> None:
        made, self.taken = self.opening.rollover(cause)
        self.open(cause, made, _KEPT)

    def open(self, cause: WindowCause, made: Plan, what: str) -> None:
        """Carry out a plan: at the hard limit whatever it frees, else only if that is the stated minimum (L11). What
        would be too large even so is refused; if cutting the window as it stands makes it fit, that is done instead."""
        before = self.current()
        if not self.must_fit() and before - made.tokens < self.least:
            if not self.is_refused() or cause == "model" or self.state.fallbacks:
                self.refuse(cause, before, made.tokens)
            return
        if made.tokens > self.bounds.hard:
            self.refuse(cause, before, made.tokens)
            shrunk = self.window.shrink()
            require(self.bounds, protected=min(made.tokens, shrunk.tokens), what=what)
            self.cut(shrunk)
            return
        if self.is_live and cause != "model":
            self.break_storm(made.tokens)
        if self.taken:
            self.facts.append(BlockReplaced(how="offload", targets=tuple(self.taken)))
        self.cut(made)
        self.facts.append(
            WindowOpened(
                cause=cause,
                generation=self.state.window.generation + 1,
                seed=made.seeds,
                kept_head=made.first,
                kept_tail=made.kept,
                tokens_before=before,
                tokens_after=made.tokens,
                declared_by=self.state.intent_uuid if cause == "model" else "",
            )
        )
        self.has_opened = True

    def break_storm(self, tokens: int) -> None:
        """Stop a live session whose windows are full before anything is done in them (L11)."""
        if self.state.crowded >= _STORM:
            raise OverBudget(
                f"boundary storm: {self.state.crowded} windows in a row were full after one result or none, and the "
                f"next would start with {tokens:,} of {self.bounds.hard:,} tokens; nothing is lost. Raise "
                f"--context-limit above {self.bounds.context_limit:,}, or say how to go on with smaller steps"
            )
