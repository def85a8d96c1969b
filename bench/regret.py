"""How near the cost rule comes to the cheapest schedule of windows. `python -m bench.regret PATH…` reads transcripts
and prints, for sessions of at least `--least` replies and three prices, what each strategy costs over the optimum
(cost model; output left out): the median over the sessions, nine tenths of them, and the worst.

    rollover-cost            the rule on the trace: it sees the past alone
    one window               nothing is ever opened
    rollover at 50/75/90 %   a window by code whenever that share of the limit is full
    compaction               as rollover, where the recorded agent compacted (else at 80 %), with what its summary left
                             in the window (else 30,000 tokens) for a seed; the writing of the summary not counted
    as recorded              what the recorded provider reported, of the sessions that have it
    rollover-cost, kernel    the preset in a replay: what its requests cost by the provider's simulated cache; large
                             results offloaded, handles that its seeds show not looked up; and its schedule alone, on
                             the trace of what it admits

`--each` adds a line a session, `--offload` a table of offloading at admission, later, and not at all.

Among the rooms of `python -m bench` this one stands with the time the optimum and the rule take.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import msgspec

from bench.figure import Figure, cpu, judge
from transom import compose
from transom.cli.terms import market, terms_of
from transom.core.budget import limits
from transom.core.costrule import follow, tariff_of
from transom.core.economics import Parameters, Trace, cost, optimum
from transom.core.event import ModelReplied, WindowOpened
from transom.core.policy import PRESETS, Policy
from transom.core.pricing import Price, choose_price
from transom.lab.arms import Arm, Setting, drive
from transom.lab.metrics import run_of
from transom.lab.regret import Yardstick, measuring, placed, spent, yardstick
from transom.lab.report import tokens
from transom.lab.script import Script, script_of

__all__ = ["run"]

_PRICES = {
    "Anthropic, 5 min": "claude-sonnet-4.5",
    "OpenAI 5.6": "gpt-5.6-terra",
    "DeepSeek": "deepseek-flash",
}
_RULE, _KERNEL = "rollover-cost", PRESETS["rollover-cost"]
_COMPACTS_AT, _SUMMARY = 0.8, 30_000
"""Where a recording shows no compaction: Claude Code's at 155k to 167k of 200k leaves 43k to 66k, Codex' at nine tenths
17k to 39k."""
_ROOMY = 10**12
_STEPS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    script: Script
    setting: Setting
    whole: Arm
    offloaded: Arm


def run(scale: float = 1.0, seed: int = 1) -> list[Figure]:  # noqa: ARG001 - the signature of a room
    """How long the optimum and the rule take on a trace of 2,000 steps."""
    steps = max(50, int(_STEPS * scale))
    seen = tuple((step // 2, step - 1) if step > 1 else () for step in range(1, steps + 1))
    trace = Trace(
        pinned=12_000, appended=(1_500,) * steps, output=(0,) * steps, seen=seen, gaps=(5.0,) * steps, seeds=()
    )
    at = Parameters(
        r=0.1, w=1.25, k=5.0, seed=4_000, limit=_ROOMY, min_prefix_tokens=1024, granularity=128, ttl_seconds=300
    )
    best = cpu(lambda: optimum(trace, at))
    rule = cpu(lambda: follow(trace, at))
    return [
        Figure(
            id="regret",
            what=f"the optimum of {steps:,} steps",
            goal="<= 1 s",
            value=f"{best:.2f} s",
            verdict=judge(best <= 1),
            detail=f"the rule's own schedule: {1e6 * rule / steps:.0f} us a step",
        )
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.regret", description=__doc__, add_help=True)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="transcripts, folders or archives")
    parser.add_argument("--least", type=int, default=100, help="replies a session has at least")
    parser.add_argument("--most", type=int, default=10**9, help="and at most")
    parser.add_argument("--each", action="store_true", help="a line a session")
    parser.add_argument("--offload", action="store_true", help="offloading at admission against later")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-regret-") as folder:
        found = list(_sessions(options.paths, Path(folder), options.least, options.most))
        _print_regret(found, has_each=options.each)
        if options.offload:
            _print_offloading(found)


def _sessions(paths: Sequence[Path], folder: Path, least: int, most: int) -> Iterator[_Session]:
    """Every session long enough, with its arms that open no window: they are the same whatever is paid."""
    counter = compose.counter()
    terms = market("", "")
    with compose.store(folder) as kept:
        for path in paths:
            compose.import_file(path, kept, counts=counter)
        for row in kept.log.sessions():
            replies = sum(isinstance(event.fact, ModelReplied) for event in kept.log.read(row.session_id))
            if not least <= replies <= most:
                continue
            script = script_of(kept.log, row.session_id)
            bounds = limits(terms_of(script, terms, None).limit)
            setting = Setting(bounds=bounds, counter=counter, dialect=compose.dialect_for(), measures_seeds=True)
            yield _Session(
                script=script,
                setting=setting,
                whole=_driven(script, measuring(0), setting),
                offloaded=_driven(script, measuring(_KERNEL.offload_above), setting),
            )


def _driven(script: Script, policy: Policy, setting: Setting) -> Arm:
    *_, arm = drive(script, policy, setting, compose.scratch_log())
    return arm


# -- regret


def _print_regret(found: Sequence[_Session], *, has_each: bool) -> None:
    table = compose.prices()
    columns: dict[str, dict[str, list[float]]] = {}
    for title, name in _PRICES.items():
        price = choose_price(table, name)
        rows: dict[str, list[float]] = {}
        for one in found:
            whole = yardstick(one.script, one.whole, price, one.setting.bounds.hard)
            if whole.best is None:
                continue
            costs = {**_costs(one, whole), **_of_kernel(one, price, whole)}
            for strategy, ratio in costs.items():
                rows.setdefault(strategy, []).append(ratio)
            if has_each:
                words = ", ".join(f"{strategy} {ratio:.2f}" for strategy, ratio in costs.items())
                windows = len(whole.best.schedule)
                print(f"{title}: {one.script.session_id}, {one.script.steps} steps, optimum {windows} windows: {words}")
        columns[title] = rows
    print(f"\n{len(found)} sessions; cost over the optimum's: median / nine tenths / worst\n")
    print("| |", " | ".join(columns), "|")
    print("|---|" + "---|" * len(columns))
    for strategy in next(iter(columns.values())):
        cells = [_spread(rows.get(strategy, [])) for rows in columns.values()]
        count = max(len(rows.get(strategy, [])) for rows in columns.values())
        fewer = f" ({count} sessions)" if count < len(found) else ""
        print(f"| {strategy}{fewer} |", " | ".join(cells), "|")


def _spread(ratios: list[float]) -> str:
    if not ratios:
        return "–"
    ordered = sorted(ratios)
    return f"{median(ordered):.2f} / {ordered[int(0.9 * len(ordered))]:.2f} / {ordered[-1]:.2f}"


def _costs(one: _Session, by: Yardstick) -> Mapping[str, float]:
    """What each strategy costs on the trace, over the optimum."""
    trace, at = by.trace, by.parameters
    assert by.best is not None
    roomy = msgspec.structs.replace(at, limit=_ROOMY, watermark=1.0)
    line, seed = _recorded_compaction(one.script, at.limit, trace.pinned)
    compacted = msgspec.structs.replace(trace, seeds=())
    summary = msgspec.structs.replace(roomy, seed=seed)
    found = {
        _RULE: cost(trace, follow(trace, at), at),
        "one window": cost(trace, (1,), roomy),
        **{
            f"rollover at {share} %": cost(trace, _full_at(trace, at, share * at.limit // 100), roomy)
            for share in (50, 75, 90)
        },
        "compaction": cost(compacted, _full_at(compacted, summary, line), summary),
    }
    known = [usage for usage in one.script.usages if usage is not None and usage.prompt]
    if len(known) == one.script.steps:
        found["as recorded"] = sum(
            usage.uncached + at.r * usage.cached + at.w * usage.written
            if usage.written or at.w == 1.0
            # a provider that reports no writes: all that was not read was written
            else at.r * usage.cached + at.w * usage.uncached
            for usage in known
        )
    return {strategy: spent_tokens / by.best.cost for strategy, spent_tokens in found.items()}


def _full_at(trace: Trace, at: Parameters, line: int) -> tuple[int, ...]:
    """A window opens whenever what the next request needs would pass `line` tokens."""
    schedule = [1]
    size = trace.pinned
    for step, arriving in enumerate(trace.appended, 1):
        handles = trace.seen[step - 1] if trace.seen else ()
        if step > 1 and size + arriving > line:
            schedule.append(step)
            size = trace.pinned + (trace.seeds[step - 1] if trace.seeds else at.seed)
        size += arriving + at.recall * sum(seen < schedule[-1] for seen in handles)
    return tuple(schedule)


def _recorded_compaction(script: Script, limit: int, pinned: int) -> tuple[int, int]:
    """At how many tokens the recorded agent compacted, and what that left beside the pinned ones: medians."""
    windows = [event.fact for event in script.events if isinstance(event.fact, WindowOpened)]
    known = [fact for fact in windows if fact.tokens_before > fact.tokens_after > 0]
    if not known:
        return int(_COMPACTS_AT * limit), _SUMMARY
    before = median(fact.tokens_before for fact in known)
    after = median(fact.tokens_after for fact in known)
    return int(before), max(0, int(after) - pinned)


def _of_kernel(one: _Session, price: Price, whole: Yardstick) -> Mapping[str, float]:
    """The preset itself, in a replay."""
    arm = _driven(one.script, _KERNEL, replace(one.setting, tariff=tariff_of(price), measures_seeds=False))
    own = yardstick(one.script, one.offloaded, price, one.setting.bounds.hard)
    alone = placed(arm, own)
    assert whole.best is not None
    found = {f"{_RULE}, kernel": spent(arm, price) / whole.best.cost}
    if alone is not None and own.best is not None:
        found[f"{_RULE}, kernel, its schedule"] = alone / own.best.cost
    return found


# -- offloading


def _print_offloading(found: Sequence[_Session]) -> None:
    """The same windows, at the hard limit; only when large results become references differs."""
    above = _KERNEL.offload_above
    policies = {
        "never": Policy(name="never", when="limit", how="rollover"),
        "at admission": Policy(name="admission", when="limit", how="rollover", offload_above=above),
        "when 10 steps old, if it pays": Policy(
            name="later", when="step", how="offload", offload_above=above, min_gain=0.01
        ),
    }
    print(f"\nResults of more than {above:,} tokens offloaded, {len(found)} sessions\n")
    print("| price | offloaded | input | cached | misses | cost | handles seen / recalled |")
    print("|---|---|---|---|---|---|---|")
    table = compose.prices()
    for title, name in _PRICES.items():
        price = choose_price(table, name)
        for words, policy in policies.items():
            print(f"| {title} | {words} | {_offloaded(found, policy, price)} |")


def _offloaded(found: Sequence[_Session], policy: Policy, price: Price) -> str:
    results = []
    for one in found:
        arm = _driven(one.script, policy, replace(one.setting, tariff=tariff_of(price), measures_seeds=False))
        made = run_of(one.script, arm, price, context_limit=one.setting.bounds.context_limit, seconds=0.0)
        results.append(made.result)
    total = sum(result.input_tokens for result in results)
    cached = sum(result.cached_tokens for result in results)
    misses = sum(result.misses.get("reset:offload", 0) for result in results)
    recalls = [result.handle_recall for result in results]
    handles = sum(one.n for one in recalls)
    seen = sum(one.visible for one in recalls) / handles
    recalled = sum(one.recallable for one in recalls) / handles
    dollars = sum(result.cost_usd or 0.0 for result in results)
    return f"{tokens(total)} | {cached / total:.1%} | {misses:,} | ${dollars:,.2f} | {seen:.1%} / {recalled:.1%}"


if __name__ == "__main__":
    main()
