"""What a replay is driven by: one session's conversation, and what its recording knows about counts and usage.

A recording is folded once. That teaches the calibration (tokens of the session's model per counted token), shows how
large the head is that most recordings do not hold (the first reported prompt less what we count of it), and says how
far our counts are off. Every arm is then driven with the same facts: what was said, replied and returned. Reported
usage belongs to the recorded windows, so an arm's replies keep only their output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import msgspec

from transom.core.boundary import counted_tokens, head_tokens
from transom.core.calibration import Calibration, calibration_for
from transom.core.event import (
    BlockReplaced,
    EpochOpened,
    Event,
    HostSaid,
    ModelReplied,
    SectionChanged,
    SessionOpened,
    SourceRead,
    ToolReturned,
    Usage,
    UserSaid,
    WindowOpened,
)
from transom.core.gssc import prunes
from transom.core.projection import fold
from transom.core.state import State
from transom.errors import BadInput
from transom.lab.recall import HandleIndex, build
from transom.ports import Log

__all__ = ["CountCheck", "Script", "script_of"]

_CONVERSATION = (UserSaid, HostSaid, ModelReplied, ToolReturned, EpochOpened, SectionChanged)
_CUT = 0.8
"""A reported prompt below this share of the one before, with no rewrite recorded between them, is an unrecorded cut."""
_AS_GOOD = 0.005
"""Medians of the relative error that differ by less say nothing."""
_REWRITES = (WindowOpened, BlockReplaced)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountCheck:
    """One reported prompt beside our count of it, made before that report was learnt from."""

    step: int
    counted: int
    reported: int

    @property
    def error(self) -> float:
        return self.counted / self.reported - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One session, ready to be replayed."""

    session_id: str
    format: str
    agent: str
    model: str
    provider: str
    title: str
    events: tuple[Event, ...]
    """What arms are driven with, the recorded rewrites among it (only the `recorded` arm applies those)."""
    steps: int
    calibration: Calibration
    unseen_tokens: int
    """Tokens of the head that the recording does not hold; below zero where we count too much of what it holds."""
    checks: tuple[CountCheck, ...]
    """Up to the first recorded compaction, or the first cut that nobody recorded."""
    cut_at: int
    """The step at which the reported prompt fell though the recording only grew; 0 = nowhere."""
    usages: tuple[Usage | None, ...]
    """As reported, one a reply."""
    compactions: int
    index: HandleIndex
    drop_votes: int
    """1 where the reported prompts are met better by a provider that drops the thoughts of earlier turns, else 0."""

    @property
    def counter_error(self) -> float | None:
        """Median of our count over the reported one, less one; null without usage."""
        return median(check.error for check in self.checks) if self.checks else None


def script_of(log: Log, session_id: str) -> Script:
    """Read and fold a recorded session. Raises `BadInput` if no model ever replied in it."""
    events = tuple(log.read(session_id))
    replies = [event.fact for event in events if isinstance(event.fact, ModelReplied)]
    if not replies:
        raise BadInput(f"session {session_id}: no model reply in it, so there is nothing to replay")
    model = _most_used(replies)
    learnt = _learnt(events, model)
    first = events[0].fact
    opened = first if isinstance(first, SessionOpened) else SessionOpened(format=0)
    read = next((event.fact for event in reversed(events) if isinstance(event.fact, SourceRead)), None)
    return Script(
        session_id=session_id,
        format=read.format if read else opened.agent,
        agent=opened.agent,
        model=model,
        provider=opened.provider,
        title=opened.title,
        events=_driving(events, model, learnt),
        steps=len(replies),
        calibration=learnt.state.calibration,
        unseen_tokens=learnt.unseen,
        checks=tuple(learnt.checks),
        cut_at=learnt.cut_at,
        usages=tuple(reply.usage for reply in replies),
        compactions=sum(isinstance(event.fact, WindowOpened) for event in events),
        index=build(events),
        drop_votes=learnt.drop_votes,
    )


def _most_used(replies: Sequence[ModelReplied]) -> str:
    counts: dict[str, int] = {}
    for reply in replies:
        counts[reply.model] = counts.get(reply.model, 0) + 1
    return max(counts, key=lambda name: (counts[name], name))


class _Learning:
    """The fold of a recording, watched at each reported prompt."""

    def __init__(self, model: str, drop_votes: int) -> None:
        self.state = State(model=model, calibration=calibration_for(model), drop_votes=drop_votes)
        self.drop_votes = drop_votes
        self.unseen = 0
        self.checks: list[CountCheck] = []
        self.cut_at = 0
        self._is_first = True
        self._is_whole = True
        self._reported = 0

    def error(self) -> float:
        return median(abs(check.error) for check in self.checks) if self.checks else 0.0

    def take(self, event: Event) -> None:
        fact = event.fact
        state = self.state
        if isinstance(fact, SessionOpened):
            fact = msgspec.structs.replace(fact, model=state.model)
            event = msgspec.structs.replace(event, fact=fact)
        elif isinstance(fact, ModelReplied):
            self._compare(fact)
            event = msgspec.structs.replace(event, fact=msgspec.structs.replace(fact, model=""))
        elif isinstance(fact, _REWRITES):
            self._is_whole = False
        fold(state, event)
        if isinstance(fact, UserSaid) and self.drop_votes > 0:
            self._drop_thoughts(event)
        if isinstance(fact, EpochOpened) and self.unseen:
            state.head.unseen_tokens = self.unseen

    def _drop_thoughts(self, event: Event) -> None:
        """What the boundary of an arm does too (`boundary`, step 2)."""
        targets = prunes(self.state.window.items)
        if targets:
            fold(self.state, msgspec.structs.replace(event, fact=BlockReplaced(how="prune", targets=tuple(targets))))

    def _compare(self, reply: ModelReplied) -> None:
        if reply.usage is None or reply.usage.prompt <= 0:
            return
        if self._is_first:
            self._is_first = False
            # Below zero where we count more of a recorded head than the provider does (a tool's schema as JSON).
            self.unseen = max(-head_tokens(self.state), reply.usage.prompt - counted_tokens(self.state))
            self.state.head.unseen_tokens = self.unseen
            self._reported = reply.usage.prompt
            return
        if self._is_whole and reply.usage.prompt < _CUT * self._reported:
            self._is_whole, self.cut_at = False, self.state.steps + 1
        self._reported = reply.usage.prompt
        if self._is_whole:
            check = CountCheck(
                step=self.state.steps + 1, counted=counted_tokens(self.state), reported=reply.usage.prompt
            )
            self.checks.append(check)


def _learnt(events: Sequence[Event], model: str) -> _Learning:
    """Fold twice, with and without dropping the thoughts of earlier turns: the one that meets the reported prompts
    better; where they are as good, what each prompt after a user message voted for."""
    keeping, dropping = _learn(events, model, 0), _learn(events, model, 1)
    lead = keeping.error() - dropping.error()
    if abs(lead) > _AS_GOOD:
        return dropping if lead > 0 else keeping
    return dropping if keeping.state.drop_votes > 0 else keeping


def _learn(events: Sequence[Event], model: str, drop_votes: int) -> _Learning:
    learning = _Learning(model, drop_votes)
    for event in events:
        learning.take(event)
    return learning


def _driving(events: Sequence[Event], model: str, learnt: _Learning) -> tuple[Event, ...]:
    """The facts an arm is driven with. A head is there from the start, with what the recording lacks of it."""
    driving: list[Event] = []
    has_head = False
    for event in events:
        fact = event.fact
        if isinstance(fact, SessionOpened):
            if not driving:
                driving.append(_with(event, msgspec.structs.replace(fact, model=model, kind="root", parent=None)))
        elif isinstance(fact, ModelReplied):
            driving.append(_with(event, _plain_reply(fact)))
        elif isinstance(fact, EpochOpened):
            has_head = True
            driving.append(_with(event, msgspec.structs.replace(fact, unseen_tokens=learnt.unseen)))
        elif isinstance(fact, _CONVERSATION + _REWRITES):
            driving.append(event)
    if not has_head and driving:
        head = EpochOpened(unseen_tokens=learnt.unseen)
        driving.insert(1, msgspec.structs.replace(driving[0], uuid=f"{driving[0].uuid}.head", seq=0, fact=head))
    return tuple(driving)


def _with(event: Event, fact: ModelReplied | EpochOpened | SessionOpened) -> Event:
    return msgspec.structs.replace(event, fact=fact)


def _plain_reply(fact: ModelReplied) -> ModelReplied:
    output = fact.usage.output if fact.usage is not None else 0
    return msgspec.structs.replace(fact, model="", usage=Usage(output=output) if output > 0 else None)
