"""`replay`: sessions x policies -> figures. Everything a session is needed for is read once and shared by its arms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import msgspec

from transom.core.budget import Limits, limits
from transom.core.costrule import tariff_of
from transom.core.economics import regret
from transom.core.policy import Policy
from transom.core.pricing import Price
from transom.lab.arms import Arm, Setting, drive
from transom.lab.figures import Run
from transom.lab.metrics import run_of
from transom.lab.regret import Yardstick, measuring, spent, yardstick
from transom.lab.script import Script, script_of
from transom.ports import Log

__all__ = ["Progress", "Replayed", "enough", "replay_script", "replay_session"]

Progress = Callable[[str, int, int], None]
"""Called with (arm, steps done, steps in all)."""

_TRIES = 12
"""Limits that are tried for arms that were refused, each an eighth larger than the one before: four times the first."""

_EVERY = 64
"""Steps between two calls of `Progress`: often enough for an eye, too rare to cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """One session under all its arms. `arms` stand in the order of `runs`; `yardsticks` by the size above which results
    are offloaded at admission (0: none are), one for each that an arm has."""

    script: Script
    price: Price
    runs: tuple[Run, ...]
    arms: tuple[Arm, ...]
    yardsticks: Mapping[int, Yardstick]


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
    setting = replace(setting, tariff=tariff_of(price), measures_seeds=True)

    def driven(policy: Policy, bounds: Limits = setting.bounds) -> Arm:
        arm = Arm(policy=policy)
        under = replace(setting, bounds=bounds)
        for number, arm in enumerate(drive(script, policy, under, scratch())):  # noqa: B007 - the last one
            if progress and number % _EVERY == 0:
                progress(policy.name, number, script.steps)
        return arm

    arms, seconds = [], []
    for policy in policies:
        started = perf_counter()
        arms.append(driven(policy))
        seconds.append(perf_counter() - started)
    _advise([arm for arm in arms if arm.refused], driven)
    limit = setting.bounds.context_limit
    runs = [
        run_of(script, arm, price, context_limit=limit, seconds=took) for arm, took in zip(arms, seconds, strict=True)
    ]
    shown = {arm.policy.admits_below: arm for arm in arms if arm.seeds}
    yardsticks = {
        above: yardstick(script, shown.get(above) or driven(measuring(above)), price, setting.bounds.hard)
        for above in sorted({0, *(policy.admits_below for policy in policies)})
    }
    measured = (_measured(run, arm, yardsticks[0], price) for run, arm in zip(runs, arms, strict=True))
    return Replayed(script=script, price=price, runs=tuple(measured), arms=tuple(arms), yardsticks=yardsticks)


def _advise(refused: Sequence[Arm], driven: Callable[[Policy, Limits], Arm]) -> None:
    """Say a context limit under which all refused arms get to the session's end: they were driven under it."""
    needs = max((arm.needs for arm in refused), default=0)
    limit = enough(needs, lambda bounds: [driven(arm.policy, bounds) for arm in refused]) if needs else 0
    for arm in refused if limit else ():
        arm.refused += f"; raise --context-limit to at least {limit:,}: that is enough to its end"


def enough(needs: int, driven: Callable[[Limits], Sequence[Arm]]) -> int:
    """A context limit under which none of the arms that `driven` drives is refused, from `needs` on; 0 if none was
    found."""
    limit = needs
    for _ in range(_TRIES):
        short = [arm.needs for arm in driven(limits(limit)) if arm.refused]
        if not short:
            return limit
        limit = max(*short, limit + limit // 8)
    return 0


def _measured(run: Run, arm: Arm, by: Yardstick, price: Price) -> Run:
    """With its regret, if it went to its end and there is an optimum."""
    if by.best is None or arm.refused:
        return run
    result = msgspec.structs.replace(run.result, regret=regret(spent(arm, price), by.best))
    return msgspec.structs.replace(run, result=result)
