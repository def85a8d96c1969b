"""One arm: the real kernel driven through a recorded session under one policy.

Before each recorded reply the session does what a live one does: boundary, request, verdict. What the recording cannot
tell is modelled and said so: a handle that the reply uses and the arm's window lacks is recalled first (at most
`RECALL_TOKENS` tokens, cut from the log), and the provider's cache is simulated by its published rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

import msgspec

from transom.core.block import Block, Text, ToolCall
from transom.core.boundary import head_tokens, prompt_tokens
from transom.core.budget import Limits
from transom.core.costrule import Tariff
from transom.core.event import (
    BlockReplaced,
    Event,
    HostSaid,
    ModelReplied,
    Replacement,
    SessionOpened,
    ToolReturned,
    UserSaid,
    WindowOpened,
)
from transom.core.opening import Opening
from transom.core.policy import Policy
from transom.core.state import NOTHING, Item, add_counts, counts_of
from transom.core.wire import Dialect
from transom.errors import OverBudget
from transom.lab.recall import RECALL_TOKENS, block_text, excerpt
from transom.lab.script import Script
from transom.ports import Counter, Log
from transom.session import Rules, Session

__all__ = ["Arm", "Setting", "Step", "drive"]

_REWRITES = (WindowOpened, BlockReplaced)
_MESSAGES = (UserSaid, HostSaid, ModelReplied, ToolReturned)


class Step(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request of an arm. Tokens are the session's model's."""

    tokens: int
    kept: int
    """Tokens of the prompt that are the same bytes as the last request's, from the start."""
    head: int
    """Tokens of the head."""
    blocks: int
    """Content blocks behind the kept ones, for a cache that looks back only so far."""
    tail: int
    output: int
    gap_ms: int
    reasons: tuple[str, ...]
    verdict: str
    causes: tuple[str, ...]
    seed: int
    """Seed tokens, where a window opened."""
    recalls: int
    aside: int
    """Of the recalls, those that found no room in the window."""
    seq: int
    """The recorded reply it asks for."""


@dataclass(slots=True, kw_only=True)
class Arm:
    """What happened under one policy."""

    policy: Policy
    steps: list[Step] = field(default_factory=list)
    handles: int = 0
    visible: int = 0
    recallable: int = 0
    lost: int = 0
    constraints: dict[str, bool] = field(default_factory=dict)
    """Each constraint a user stated -> whether it stood word for word in every window since."""
    unpaired: int = 0
    refused: str = ""
    needs: int = 0
    """A context limit under which the refused step fits; later ones may need more."""
    events: int = 0
    pinned: int = 0
    """Tokens of head and first message: `P` of the cost model."""
    seeds: list[int] = field(default_factory=list)
    """Per step, tokens of the seed of a window that had opened there, if that was asked for: `s`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all arms of a replay share."""

    bounds: Limits
    counter: Counter
    dialect: Dialect
    tariff: Tariff | None = None
    """What is paid; without it nothing is done because it is cheaper."""
    measures_seeds: bool = False
    """An arm that never opens a window notes at each step what the seed of one would be."""


def drive(script: Script, policy: Policy, setting: Setting, log: Log) -> Iterator[Arm]:
    """Replay `script` under `policy` into `log` (an empty one); yields the arm after each step, so that a caller can
    show progress or stop. The last one yielded is complete."""
    run = _Run(script, policy, setting, log)
    for event in script.events[1:]:
        if isinstance(event.fact, ModelReplied):
            try:
                run.step(event)
            except OverBudget as refusal:
                run.arm.refused = f"step {len(run.arm.steps) + 1}: {refusal.problem}"
                run.arm.needs = refusal.needs
                break
            yield run.arm
        run.take(event)
    run.arm.events = run.session.state.seq
    yield run.arm


class _Run:
    def __init__(self, script: Script, policy: Policy, setting: Setting, log: Log) -> None:
        self.script = script
        self.arm = Arm(policy=policy)
        self.is_recorded = policy.how == "recorded"
        self.counter = setting.counter
        self.measures_seeds = setting.measures_seeds and policy.when == "never" and not self.is_recorded
        self._now = script.events[0].at
        ids = count(1)
        rules = Rules(
            policy=policy,
            bounds=setting.bounds,
            counter=setting.counter,
            dialect=setting.dialect,
            clock=lambda: self._now,
            ids=lambda: f"arm-{next(ids)}",
            tariff=setting.tariff,
        )
        opened = script.events[0].fact
        assert isinstance(opened, SessionOpened)
        self.session = Session.start(log, script.session_id, opened, rules)
        self.session.state.calibration = script.calibration
        self.session.state.drop_votes = script.drop_votes
        self.seqs: dict[int, int] = {script.events[0].seq: 1}
        self.blocks: dict[int, tuple[Block, ...]] = {}
        self.recalled: list[tuple[int, str]] = []
        self.aside = 0
        self.seed_text = ""
        self.first_through = 0
        """The last seq of the messages that the window repeats from the session's start."""
        self.oldest = 0
        """The first seq of its other messages."""
        self.opened: list[WindowOpened] = []
        """Windows opened since the last request."""
        self.asked_at = 0
        self.checked_words = 0

    # -- facts

    def take(self, event: Event) -> None:
        """Append a recorded fact."""
        fact = event.fact
        if isinstance(fact, _REWRITES):
            if not self.is_recorded:
                return
            fact = self._moved(fact)
        self._now = event.at
        (placed,) = self.session.append(fact, uuid=event.uuid, at=event.at)
        self.seqs[event.seq] = placed.seq
        if isinstance(fact, _MESSAGES):
            self.blocks[event.seq] = fact.blocks
        if isinstance(fact, WindowOpened):
            self.opened.append(fact)
            self._window_opened(fact)

    def _moved(self, fact: WindowOpened | BlockReplaced) -> WindowOpened | BlockReplaced:
        """A recorded rewrite with its seqs turned into this arm's."""
        if isinstance(fact, WindowOpened):
            return msgspec.structs.replace(
                fact,
                kept_head=tuple(self.seqs[seq] for seq in fact.kept_head if seq in self.seqs),
                kept_tail=tuple(self.seqs[seq] for seq in fact.kept_tail if seq in self.seqs),
            )
        targets = (
            Replacement(seq=self.seqs[one.seq], index=one.index, block=one.block)
            for one in fact.targets
            if one.seq in self.seqs
        )
        return msgspec.structs.replace(fact, targets=tuple(targets))

    # -- one step

    def step(self, reply: Event) -> None:
        """What stands before recorded reply `reply`: boundary, recalls it would have needed, request."""
        made = [event.fact for event in self.session.boundary() if isinstance(event.fact, WindowOpened)]
        if made:
            self._window_opened(made[-1])
        opened, self.opened = [*self.opened, *made], []
        self._check_words()
        if self.measures_seeds:
            rules = self.session.rules
            opening = Opening.now(self.session.state, rules.policy, rules.bounds, rules.counter.measure)
            self.arm.seeds.append(opening.seed_tokens())
        self.aside = 0
        recalls = self._handles(reply.seq)
        prepared = self.session.request()
        state = self.session.state
        head = head_tokens(state)
        self.arm.pinned = self.arm.pinned or self._pinned()
        fact = reply.fact
        assert isinstance(fact, ModelReplied)
        output = fact.usage.output if fact.usage else state.calibration.visible(counts_of(fact.blocks))
        self.arm.unpaired += _unpaired(state.window.items)
        wire, kept = prepared.wire, prepared.verdict.kept
        gap = max(0, reply.at - self.asked_at) if self.asked_at and reply.at else 0
        self.asked_at = reply.at or self.asked_at
        self.arm.steps.append(
            Step(
                tokens=prepared.tokens,
                kept=head + state.calibration.estimate(wire.counts(kept), wire.ends[kept])
                if prepared.verdict.head_kept
                else 0,
                head=head,
                blocks=len(state.window.items) - wire.ends[kept],
                tail=prepared.tail_tokens,
                output=output,
                gap_ms=gap,
                reasons=prepared.verdict.reasons,
                verdict=prepared.verdict.kind,
                causes=tuple(one.cause for one in opened),
                seed=sum(self._tokens(block) for one in opened for seed in one.seed for block in seed.blocks),
                recalls=recalls,
                aside=self.aside,
                seq=reply.seq,
            )
        )

    def _tokens(self, block: Block) -> int:
        return self.session.state.calibration.estimate(counts_of((block,)))

    def _pinned(self) -> int:
        state = self.session.state
        words = NOTHING
        for item in state.first:
            words = add_counts(words, item.counts)
        return head_tokens(state) + state.calibration.estimate(words, len(state.first))

    # -- handles

    def _handles(self, seq: int) -> int:
        """Sort the handles that reply `seq` uses; recall those out of sight. Returns how many were recalled."""
        recalled = 0
        for literal in self.script.index.uses(seq):
            self.arm.handles += 1
            if self._is_visible(literal, seq):
                self.arm.visible += 1
            elif self.is_recorded:
                self.arm.lost += 1  # the recorded agent had no way to look it up
            else:
                found = self._recall(literal, seq)
                self.arm.recallable += found
                self.arm.lost += not found
                recalled += found
        return recalled

    def _is_visible(self, literal: str, seq: int) -> bool:
        index = self.script.index
        for source, _ in index.before(literal, seq):
            place = self.seqs.get(source, 0)
            if 0 < place < self.oldest:
                break
            if self._is_shown(literal, source):
                return True
        for source, _ in index.places(literal):
            if self.seqs.get(source, 0) > self.first_through or source >= seq:
                break
            if self._is_shown(literal, source):
                return True
        return literal in self.seed_text or any(literal in text for _, text in self.recalled)

    def _is_shown(self, literal: str, source: int) -> bool:
        window = self.session.state.window
        place = window.place.get(self.seqs.get(source, 0))
        if place is None:
            return False
        blocks = window.items[place].blocks
        return blocks is self.blocks[source] or any(literal in block_text(block) for block in blocks)

    def _recall(self, literal: str, seq: int) -> bool:
        """Bring the newest place of `literal` into the window, as the recall tool would."""
        for source, index in self.script.index.before(literal, seq):
            whole = block_text(self.blocks[source][index])
            text = excerpt(literal, whole, lambda part: self.counter.measure(part).tokens)
            if not text:
                continue
            state = self.session.state
            if prompt_tokens(state) + RECALL_TOKENS > self.session.rules.bounds.hard:
                self.aside += 1  # no room is left beside the newest message: looked up in a request of its own
                return True
            block = Text(text=text, tokens=round(RECALL_TOKENS / state.calibration.ratios[0]))
            (placed,) = self.session.append(HostSaid(kind="recall", blocks=(block,)))
            self.recalled.append((placed.seq, text))
            return True
        return False

    # -- the user's words

    def _window_opened(self, fact: WindowOpened) -> None:
        items, place = self.session.state.window.items, self.session.state.window.place
        self.first_through = max(fact.kept_head, default=0)
        self.oldest = min((seq for seq in place if seq not in fact.kept_head), default=self.session.state.seq)
        self.recalled = [(seq, text) for seq, text in self.recalled if seq in place]
        self.seed_text = "\n".join(block_text(block) for item in items if not item.seq for block in item.blocks)
        shown = "\n".join(block_text(block) for item in items if item.role != "tool" for block in item.blocks)
        for text, is_kept in self.arm.constraints.items():
            if is_kept and text not in shown:
                self.arm.constraints[text] = False

    def _check_words(self) -> None:
        words = self.session.state.words
        for said in words[self.checked_words :]:
            for text in said.constraints:
                self.arm.constraints.setdefault(text, True)
        self.checked_words = len(words)


def _unpaired(items: Sequence[Item]) -> int:
    """Calls of the newest reply without a result behind it, and results without a call."""
    answered: list[str] = []
    for item in reversed(items):
        if item.role == "assistant":
            calls = {block.call_id for block in item.blocks if isinstance(block, ToolCall)}
            return len(calls.difference(answered)) + sum(call_id not in calls for call_id in answered)
        if item.role == "tool":
            answered.append(item.call_id)
    return len(answered)
