"""Pace: how fast a session grows and how much it looks back, folded from facts into `State.estimates`; and what the
cost rule says of the boundary at hand.

A step's growth is what arrived between two requests of one window, without what was looked up again there: that is no
need of the task but a price of having opened the window. Looked up again are what the host's recall brought, and files
read that an earlier window had read. All sizes are calibrated counts; what a provider reports is in the calibration.
"""

from __future__ import annotations

from transom.core.blackboard import paths_of, reused
from transom.core.costrule import (
    Moment,
    Outlook,
    Reuse,
    Tariff,
    note_growth,
    note_handoff,
    note_lookups,
    reuse_of,
    weigh,
)
from transom.core.event import Effect
from transom.core.state import NOTHING, Counts, State, add_counts

__all__ = [
    "asked",
    "brought",
    "declared",
    "opened",
    "opening",
    "outlook",
    "reminded",
    "replied",
    "returned",
    "reuse_in",
    "rewritten",
    "tasks",
]

_LOOKUPS = frozenset({"recall", "read_artifact"})


def asked(state: State, at: int) -> None:
    """A request was made."""
    known = state.estimates
    known.asked_at = at or known.asked_at
    known.closed = tasks(state)[1]


def replied(state: State, at: int, output: int, calls: int) -> None:
    """A reply came to the window as it stands; it is not in it yet."""
    known = state.estimates
    known.size = _grown(state)
    if state.window.generation:
        note_lookups(known, state.steps - state.window.step, known.fetched)
    known.fetched, known.is_counted = 0, False
    known.output = output
    known.calls += calls
    if not state.requests:  # a recording
        asked(state, at)


def opening(state: State) -> None:
    """The window is about to be another one: what arrived last is in it still."""
    state.estimates.size = _grown(state)
    state.estimates.fetched = 0


def opened(state: State) -> None:
    """The window is the new one."""
    known = state.estimates
    known.size, known.is_counted = _size(state), True
    known.read.clear()
    seeds = NOTHING
    for item in state.window.items:
        if not item.seq:
            seeds = add_counts(seeds, item.counts)
    known.seed = state.calibration.estimate(seeds)


def rewritten(state: State) -> None:
    """What a request had shown was hidden or shortened: the next size tells nothing of growth."""
    state.estimates.size = 0


def brought(state: State, counts: Counts) -> None:
    """The host looked something up and put it into the window."""
    state.estimates.fetched += state.calibration.estimate(counts, 1)


def returned(state: State, call: tuple[str, str], effect: Effect, counts: Counts) -> None:
    """A tool's result: looked up again, or new? Asked before the blackboard has it."""
    name, arguments = call
    known = state.estimates
    if name in _LOOKUPS:
        brought(state, counts)
    elif effect == "read":
        paths = paths_of(arguments)
        is_again = any(path in state.board.files and path not in known.read for path in paths)
        known.read.update(paths)
        if is_again and state.window.generation:
            brought(state, counts)


def declared(state: State) -> None:
    """The newest reply handed over."""
    note_handoff(state.estimates, state.estimates.output)


def reminded(state: State) -> None:
    """The window's reminder was said."""
    state.estimates.reminded = state.steps


def tasks(state: State) -> tuple[int, int]:
    """Open and closed items of the task list."""
    todo = state.board.todo
    closed = sum(item.status in ("completed", "cancelled") for item in todo)
    return len(todo) - closed, closed


def reuse_in(state: State) -> Reuse:
    """How many handles the session uses again, as far as its calls tell."""
    return reuse_of(reused(state.board), state.estimates.calls / max(1, state.steps))


def outlook(
    state: State,
    tariff: Tariff,
    *,
    gain: int,
    seed: int,
    pinned: int,
    now: int,
    handoff: int = 0,
    reuse: Reuse | None = None,
) -> Outlook:
    """What the rule says of opening a window here that makes the next request smaller by `gain`, with `seed` tokens
    besides the pinned and the new ones. `now` in ms; 0: not known. `handoff`: output tokens, where the model writes it.
    """
    known = state.estimates
    still_open, closed = tasks(state)
    new = state.window.items[state.window.sent :]
    return weigh(
        known,
        tariff,
        reuse or reuse_in(state),
        Moment(
            gain=gain,
            seed=seed,
            pinned=pinned,
            handoff=handoff,
            gap_seconds=(now - known.asked_at) / 1000 if now and known.asked_at else 0.0,
            steps=state.steps,
            open_tasks=still_open,
            closed_tasks=closed,
            is_task_end=closed > known.closed or any(item.role == "user" for item in new),
        ),
    )


def _size(state: State) -> int:
    return state.calibration.estimate(state.window.counts, len(state.window.items))


def _grown(state: State) -> int:
    """Note what arrived since the last comparable size; returns the size now."""
    known = state.estimates
    size = _size(state)
    if known.size and not known.is_counted:
        note_growth(known, max(0, size - known.size - known.fetched))
    return size
