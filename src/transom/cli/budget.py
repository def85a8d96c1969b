"""`transom budget`: whether a new window would pay now, in numbers and in words."""

from __future__ import annotations

import json as stdlib_json
from math import isfinite, log
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from transom import compose
from transom.cli.files import check_target, write
from transom.cli.naming import LATEST, find_session
from transom.cli.options import AsJson, SessionName, StoreFolder
from transom.cli.standing import Standing, standing_of
from transom.cli.terminal import out, printable
from transom.core import pace
from transom.core.budget import limits
from transom.core.policy import PRESETS
from transom.lab.report import dollars

__all__ = ["budget", "figures", "plain", "sentences", "span", "write_page"]

_LEGEND = (
    "pinned: the head and the first message, with which a new window begins as this one does; seed: what it is left by "
    "the window before; generation: windows handed over so far; handles: paths, lines, ids, SHAs, error codes; plain "
    "input: prompt tokens that no cache serves."
)

_ODDS = 0.8
"""Of the remaining steps, the span that is said has these odds."""


def budget(
    session: SessionName = LATEST,
    /,
    *,
    price: Annotated[str, Parameter(help="An entry of the price table, or FILE.toml; else the model's own.")] = "",
    context_limit: Annotated[str, Parameter(help="The model's window: 32k, 128000, 1M; else what is known.")] = "",
    html: Annotated[Path | None, Parameter(help="Write the same as one page with plots.")] = None,
    json: AsJson = False,
    store: StoreFolder = None,
) -> int:
    """Say whether a new window would pay now: what it costs, what it saves a step, and how sure that is."""
    check_target("--html", html)
    with compose.store(store, is_new_allowed=False) as kept:
        row = find_session(kept.log, session, is_replied=True)
        found = standing_of(kept, row, price=price, context_limit=context_limit, has_points=html is not None)
    if html:
        write_page(html, found)
    console = out()
    if json:
        console.print(Text(stdlib_json.dumps(plain(found), indent=1)), soft_wrap=True)
        return 0
    console.print(Text(printable(f"{found.session_id} · {found.model or 'model unknown'}"), style="bold"))
    for name, words in figures(found):
        console.print(Text(f"{name:<10} {printable(words)}"), soft_wrap=True)
    console.print(Text(_LEGEND, style="dim"))
    console.print()
    for sentence in sentences(found):
        console.print(Text(printable(sentence)), soft_wrap=True)
    return 0


def write_page(path: Path, found: Standing) -> None:
    """The plots, with the words."""
    from transom.lab.breakeven import page

    write(path, page(found.session_id, found, sentences(found)).encode("utf-8", "replace"))


def figures(found: Standing) -> list[tuple[str, str]]:
    """What the rule went by."""
    known, paid, weighed = found.state.estimates, found.tariff, found.outlook
    still_open, closed = pace.tasks(found.state)
    tasks = f"; the task list has {still_open} open and {closed} closed" if still_open or closed else ""
    low, high = span(weighed.remaining)
    assumed = ", assumed" if found.price.assumed else ""
    looked_up = "; what windows in fact looked up is in it" if known.exposure else ""
    window = f"{found.prompt:,} tokens of {found.limit:,}, as counted here"
    market = f"reading {paid.r:g}, writing {paid.w:g}, output {paid.k:g} times plain input"
    fresh = f"{found.pinned:,} pinned, {found.seed:,} of a seed, {found.new:,} that have just arrived"
    again = f"calls use {found.reuse.rate:.1f} earlier handles a step"
    return [
        ("prices", f"{found.price.name}, {found.price.date}{assumed}: {market} at ${paid.usd_per_million:g} a million"),
        ("window", f"{window}; generation {found.state.window.generation}"),
        ("a new one", f"{found.prompt - found.gain:,} tokens: {fresh}"),
        ("growth", f"{known.growth_tokens:,.0f} tokens a step, give or take {known.growth_spread:,.0f}"),
        ("re-reads", f"about {weighed.lookups:,.0f} tokens in a new window; {again}{looked_up}"),
        ("handoff", f"made by code: no output; by the model: about {known.handoff:,.0f} tokens"),
        ("to come", f"{weighed.remaining:,.0f} steps, {low:,.0f} to {high:,.0f} in four cases of five{tasks}"),
        ("cache", _cache(found)),
    ]


def sentences(found: Standing) -> list[str]:
    """The break-even in words."""
    weighed = found.outlook
    low, high = span(weighed.remaining)
    said = f"A new window now costs {weighed.price:,.0f} tokens of plain input{_money(weighed.price, found)}"
    if isfinite(weighed.pays_after):
        said += (
            f", saves {weighed.saving:,.0f} a step{_money(weighed.saving, found)} and pays after "
            f"{weighed.pays_after:,.1f} more steps; {weighed.remaining:,.0f} are expected (between {low:,.0f} and "
            f"{high:,.0f})."
        )
    else:
        why = "it would be no smaller once it is at work" if found.tariff.r else "reading is free"
        said += f" and never pays: {why}."
    assumed = f"No price of the model's own is known: dollars are by the entry {found.price.name}."
    return [said, _rule(found), _verdict(found), *([assumed] if found.price.assumed else [])]


def _rule(found: Standing) -> str:
    weighed = found.outlook
    if weighed.is_cold:
        less = "less" if weighed.is_due else "no less"
        return f"The cache is cold, so both ways write everything once: a new window writes {less}."
    if not isfinite(weighed.due_at):
        return "So none is due for its cost."
    return (
        f"The cheapest windows here are about {weighed.period:,} steps long, so one is due once it makes the prompt "
        f"{weighed.due_at:,.0f} tokens smaller; now it would by {found.gain:,}."
    )


def _verdict(found: Standing) -> str:
    line = int(PRESETS["rollover-cost"].watermark * limits(found.limit).hard)
    if found.outlook.is_due:
        return "Open one."
    if found.prompt > line:
        return f"Open one: the prompt is above the watermark of {line:,}, whatever it costs."
    return "Go on."


def span(expected: float) -> tuple[float, float]:
    """Of an exponential time with this mean, the middle part with the stated odds."""
    tail = (1 - _ODDS) / 2
    return -expected * log(1 - tail), -expected * log(tail)


def plain(found: Standing) -> dict[str, object]:
    """For JSON; a number nobody knows, and one that is infinite, is null."""
    known, paid, weighed = found.state.estimates, found.tariff, found.outlook
    still_open, closed = pace.tasks(found.state)
    low, high = span(weighed.remaining)
    usd = paid.usd_per_million / 1e6

    def finite(value: float) -> float | None:
        return value if isfinite(value) else None

    return {
        "session": found.session_id,
        "model": found.model,
        "price": found.price.name,
        "prices_dated": found.price.date,
        "usd_per_million_input": paid.usd_per_million,
        "r": paid.r,
        "w": paid.w,
        "k": paid.k,
        "ttl_seconds": paid.ttl_seconds,
        "context_limit": found.limit,
        "steps": found.state.steps,
        "generation": found.state.window.generation,
        "prompt_tokens": found.prompt,
        "pinned_tokens": found.pinned,
        "seed_tokens": found.seed,
        "new_tokens": found.new,
        "gain_tokens": found.gain,
        "growth_tokens": known.growth_tokens,
        "growth_spread": known.growth_spread,
        "handles_reused": found.reuse.rate,
        "lookup_tokens": weighed.lookups,
        "handoff_tokens": known.handoff,
        "idle_seconds": found.idle_seconds,
        "is_cold": weighed.is_cold,
        "remaining_steps": weighed.remaining,
        "remaining_low": low,
        "remaining_high": high,
        "open_tasks": still_open,
        "closed_tasks": closed,
        "opening_cost_tokens": weighed.price,
        "opening_cost_usd": weighed.price * usd,
        "saving_tokens": weighed.saving,
        "saving_usd": weighed.saving * usd,
        "pays_after_steps": finite(weighed.pays_after),
        "period_steps": weighed.period,
        "due_at_gain_tokens": finite(weighed.due_at),
        "is_due": weighed.is_due,
    }


def _cache(found: Standing) -> str:
    ttl = found.tariff.ttl_seconds
    lives = f"it lives {ttl:,.0f} s after the last read" if ttl else "it does not go cold"
    if found.idle_seconds is None:
        return f"taken as warm, as at the recording's end; {lives}"
    return f"{'cold' if found.outlook.is_cold else 'warm'}: last asked {found.idle_seconds:,.0f} s ago; {lives}"


def _money(amount: float, found: Standing) -> str:
    usd = found.tariff.usd_per_million / 1e6
    return f" ({dollars(amount * usd)})" if usd else ""
