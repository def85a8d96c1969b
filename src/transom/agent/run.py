"""The run loop: `Session.step` until the user is answered, a bound is reached, or somebody says stop.

    say       a user message, and beside it the name it can be cited by
    run       steps; what ends them is named (`End`)
    open      the head is there, and what a dead process left open is settled

Whatever ends a run, everything is in the log and an agent opened on it goes on from there. A bound is looked at between
steps, so the last step may pass it. Two guards have no option: replies that are cut off or empty are continued a few
times, and windows that open one after the other with nothing answered and nothing changed between them end the run.
Steps that look alike are not judged: waiting and trying again look like that too.

Ctrl-C: the first lets the step end, the second ends it at once (`Stop`). A step that only waits to ask a provider again
has nothing to end: the first is enough, and once it was asked for no further try is made.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

from transom.agent.tally import Tally
from transom.core.block import Text
from transom.core.canon import plain_text
from transom.core.epochs import retooled
from transom.core.event import EpochOpened, Event, HostSaid, SectionChanged, UserSaid
from transom.core.usage import answers
from transom.ports import Delta
from transom.session import Session, World

__all__ = ["Agent", "Bounds", "End", "Ended", "Stop"]

End = Literal["answered", "interrupted", "steps", "spend", "time", "idle-windows", "cut-off", "refused"]

_CONTINUED = 3
"""Replies in a row that were cut off or empty before the run ends: a model that goes on does so at the first."""
_REFUSALS = frozenset({"refusal", "content_filter"})
"""Stop reasons by which a model, or who serves it, says no: asking again is the user's to decide."""
_CONTINUE = "[host] Your last reply was cut off or empty. Go on: make the next call, or answer the user in words."


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What ends a run; 0 = no bound. `steps` and `seconds` are of one run, `microusd` is of the session."""

    steps: int = 0
    microusd: int = 0
    seconds: float = 0
    idle_windows: int = 12
    """Windows in a row in which nobody was answered, nothing was changed and no command ended well. The kernel stops
    windows that are full at once; these are used, for looks that lead nowhere. Reading alone may take a few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """Why a run ended, with a sentence about it, and how many steps it made."""

    reason: End
    sentence: str
    steps: int


class _WaitEnded(Exception):
    """A request that failed is not asked again."""


class Stop:
    """Whether somebody wants the run to end. As a context it listens to Ctrl-C, in the main thread."""

    def __init__(self) -> None:
        self.is_asked = False
        self.is_waiting = False
        """Whether the step does no more than wait to ask again."""

    def ask(self) -> None:
        self.is_asked = True

    @contextmanager
    def listening(self) -> Iterator[None]:
        before = signal.signal(signal.SIGINT, self._interrupted)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _interrupted(self, _number: int, _frame: object) -> None:
        if self.is_asked:
            raise KeyboardInterrupt
        self.is_asked = True
        if self.is_waiting:
            raise _WaitEnded
        # A buffered stream may be in the middle of a write here.
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"\nstopping after this step; Ctrl-C again: now\n")


class Agent:
    """A session and the world it acts on. `now` gives seconds that only grow."""

    def __init__(
        self,
        session: Session,
        world: World,
        tally: Tally,
        *,
        bounds: Bounds | None = None,
        stop: Stop | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.session = session
        self.tally = tally
        self.stop = stop or Stop()
        self._bounds = bounds or Bounds()
        self._now = now
        self._show, self._told = world.show, world.told
        self._world = replace(world, show=self._shown, told=self._tell)

    @property
    def is_answered(self) -> bool:
        """Whether nobody waits for an answer: nothing was said yet, or all of it was answered."""
        words = self.session.state.words
        return not words or words[-1].seq < self.session.state.answered_through

    def say(self, words: str) -> None:
        """A user message. Its name stands beside it, so that a handoff can cite it."""
        self._append(UserSaid(blocks=(Text(text=plain_text(words)),)))
        self._name_words()

    def run(self) -> Ended:
        """Raises what `Session.step` raises; the log holds all that was done."""
        began, before, cuts = self._now(), self.tally.steps, 0
        while True:
            reached = self._reached(self.tally.steps - before, self._now() - began)
            if reached is not None:
                return Ended(reason=reached[0], sentence=reached[1], steps=self.tally.steps - before)
            try:
                stepped = self.session.step(self._world)
            except _WaitEnded:
                continue  # the bounds say why it ends
            finally:
                self.stop.is_waiting = False
            if not stepped.is_turn_over:
                cuts = 0
            elif answers(stepped.reply):
                return Ended(reason="answered", sentence="answered", steps=self.tally.steps - before)
            elif stepped.reply.stop_reason in _REFUSALS:
                sentence = f"the model refused (stop reason {stepped.reply.stop_reason})"
                return Ended(reason="refused", sentence=sentence, steps=self.tally.steps - before)
            else:
                cuts += 1
                if cuts > _CONTINUED:
                    sentence = f"{cuts} replies in a row were cut off or empty"
                    return Ended(reason="cut-off", sentence=sentence, steps=self.tally.steps - before)
                self._append(HostSaid(kind="continue", blocks=(Text(text=_CONTINUE),)))

    def open(self, head: EpochOpened) -> None:
        """Take `head` if the session has none, or its tools if they are others; settle what a dead process left open.
        What else has changed is for the next boundary to see."""
        state = self.session.state
        self.tally.idle_windows = 0  # somebody has looked and wants it to go on
        if not state.head.epoch:
            self._append(head)
        elif [(one.name, one.schema) for one in state.head.tools] != [(one.name, one.schema) for one in head.tools]:
            self._append(*retooled(state.head, head.tools))
        self.session.resume(self._world)
        last = state.window.items[-1] if state.window.items else None
        if last is not None and last.role == "user":
            self._name_words()
        elif last is not None and last.role == "assistant" and not self.is_answered:
            self._append(HostSaid(kind="continue", blocks=(Text(text=_CONTINUE),)))

    def _name_words(self) -> None:
        name = self.session.state.words[-1].uuid
        self._append(
            HostSaid(kind="injected", blocks=(Text(text=f"[message_uuid of the user message above: {name}]"),))
        )

    def _append(self, *facts: UserSaid | HostSaid | EpochOpened | SectionChanged) -> None:
        for event in self.session.append(*facts):
            self._tell(event)

    def _shown(self, piece: Delta) -> None:
        self._show(piece)
        self.stop.is_waiting = piece.kind == "notice"
        if self.stop.is_waiting and self.stop.is_asked:
            raise _WaitEnded

    def _tell(self, event: Event) -> None:
        self.stop.is_waiting = False  # an answer may come whole
        self.tally.see(event)
        self._told(event)

    def _reached(self, steps: int, seconds: float) -> tuple[End, str] | None:
        bounds, tally = self._bounds, self.tally
        if self.stop.is_asked:
            return "interrupted", "stopped on request"
        if bounds.steps and steps >= bounds.steps:
            return "steps", f"{steps} step{'s were' if steps != 1 else ' was'} made, the most that were allowed"
        if bounds.microusd and tally.microusd >= bounds.microusd:
            return "spend", f"${tally.microusd / 1e6:.4f} were spent, of at most ${bounds.microusd / 1e6:.4f}"
        if bounds.seconds and seconds >= bounds.seconds:
            return "time", f"{seconds:.0f} seconds have passed, of at most {bounds.seconds:.0f}"
        if bounds.idle_windows and tally.idle_windows >= bounds.idle_windows:
            sentence = f"{tally.idle_windows} windows in a row opened with nothing answered and nothing changed"
            return "idle-windows", f"{sentence}; the context limit may be too small for the task"
        return None
