"""`replay`: sessions x policies -> figures. Everything a session is needed for is read once and shared by its arms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

from transom.core.policy import Policy
from transom.core.pricing import Price
from transom.lab.arms import Arm, Setting, drive
from transom.lab.figures import Run
from transom.lab.metrics import run_of
from transom.lab.script import Script, script_of
from transom.ports import Log

__all__ = ["Progress", "Replayed", "replay_script", "replay_session"]

Progress = Callable[[str, int, int], None]
"""Called with (arm, steps done, steps in all)."""

_EVERY = 64
"""Steps between two calls of `Progress`: often enough for an eye, too rare to cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """One session under all its arms. `arms` stand in the order of `runs`."""

    script: Script
    price: Price
    runs: tuple[Run, ...]
    arms: tuple[Arm, ...]


def replay_session(
    log: Log,
    session_id: str,
    policies: Sequence[Policy],
    setting: Setting,
    *,
    price: Callable[[str], Price],
    scratch: Callable[[], Log],
    progress: Progress | None = None,
) -> Replayed:
    """Replay one recorded session. `price` maps its model to a price, `scratch` makes an empty log for each arm.

    Raises `BadInput` if nothing in it can be replayed.
    """
    script = script_of(log, session_id)
    return replay_script(script, policies, setting, price=price(script.model), scratch=scratch, progress=progress)


def replay_script(
    script: Script,
    policies: Sequence[Policy],
    setting: Setting,
    *,
    price: Price,
    scratch: Callable[[], Log],
    progress: Progress | None = None,
) -> Replayed:
    """Replay a session that was read already, by a caller whose limit or price depends on what is in it."""
    runs, arms = [], []
    for policy in policies:
        started = perf_counter()
        arm = Arm(policy=policy)
        for number, arm in enumerate(drive(script, policy, setting, scratch())):  # noqa: B007 - the last one
            if progress and number % _EVERY == 0:
                progress(policy.name, number, script.steps)
        seconds = perf_counter() - started
        runs.append(run_of(script, arm, price, context_limit=setting.bounds.context_limit, seconds=seconds))
        arms.append(arm)
    return Replayed(script=script, price=price, runs=tuple(runs), arms=tuple(arms))
