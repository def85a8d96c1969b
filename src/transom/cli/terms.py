"""Under which terms a session is replayed: its context limit, its price, and what had to be assumed.

limit    --context-limit, else the recording's own, else the model's in the price table, else 200,000; one that a
         recorded prompt exceeds cannot have been it, and the next larger window of the table is taken
price    --price, else the entry of --model or of the recorded model; at the one-hour cache price where most of what
         the recording wrote to the cache was written so
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from transom import compose
from transom.core.budget import LimitSource
from transom.core.event import SessionOpened
from transom.core.policy import PRESETS, Policy
from transom.core.pricing import Price, PriceTable, choose_price, find_price
from transom.errors import BadInput, UsageError

if TYPE_CHECKING:
    from transom.lab.script import Script

__all__ = ["ARMS", "Market", "Terms", "arms_of", "market", "parse_tokens", "terms_of"]

ARMS = ("raw", "fifo", "mask", "gssc", "rollover", "rollover-cost")

_USUAL_LIMIT = 200_000
"""Where nothing says more: the window of the Claude models that most recordings at hand come from."""

_SIZES = {"": 1, "k": 1_000, "m": 1_000_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Market:
    """What `--price` and `--model` say: a table, and the entry or model to use whatever was recorded."""

    table: PriceTable
    fixed: Price | None = None
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Of one session. `assumed` are sentences for the reader."""

    limit: int
    source: LimitSource
    price: Price
    assumed: tuple[str, ...]


def parse_tokens(text: str, said: str = "") -> int:
    """`128000`, `128_000`, `128,000`, `128k`, `1M`, `258.4k`: k is a thousand. `said`: how an error names it."""
    said = said or f"--context-limit {text!r}"
    plain = text.strip().lower().replace(",", "").replace("_", "")
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([km]?)", plain, re.ASCII)
    if not found:
        raise UsageError(f"{said}: write a number of tokens, as 128000, 128k or 1M")
    tokens = round(float(found[1]) * _SIZES[found[2]])
    if tokens > 1_000_000_000:
        raise UsageError(f"{said}: no model has such a window")
    return tokens


def arms_of(names: str, files: Sequence[Path]) -> tuple[Policy, ...]:
    """The policies that `--arms` and `--policy` name, in this order."""
    chosen: dict[str, Policy] = {}
    for name in [part.strip() for part in names.split(",") if part.strip()] if names else ARMS:
        if name not in PRESETS:
            raise UsageError(f"--arms: no policy is called {name!r}; known are {', '.join(PRESETS)}")
        chosen[name] = PRESETS[name]
    for file in files:
        policy = compose.policy(file)
        if policy.name in chosen:
            raise BadInput(f"{file}: name: another --policy is called {policy.name!r}")
        chosen[policy.name] = policy
    if not chosen:
        raise UsageError(f"--arms: names no policy; known are {', '.join(PRESETS)}")
    return tuple(chosen.values())


def market(price: str, model: str) -> Market:
    """What is paid. Raises `BadInput` for a price nobody knows or a file that is none."""
    if price.endswith(".toml") or "/" in price:
        table = compose.prices(Path(price))
        if model:
            find_price(table, model)
        return Market(table=table, model=model)
    table = compose.prices()
    if price:
        return Market(table=table, fixed=choose_price(table, price), model=model)
    return Market(table=table, model=model)


def terms_of(script: Script, at: Market, context_limit: int | None) -> Terms:
    """The terms of one session."""
    model = at.model or script.model
    price = at.fixed or find_price(at.table, model)
    assumed = []
    if at.fixed or at.model:
        if at.model and at.model != script.model:
            assumed.append(f"Priced as {price.name}, whatever model was recorded.")
    elif price.assumed:
        assumed.append(
            f"{model or 'An unnamed model'}: no price of its own is published; the entry {price.name} stands in."
        )
    if not at.fixed and _is_mostly_one_hour(script):
        price = price.one_hour()
        assumed.append(
            f"{model}: most of its cache was written at the one-hour price, so all arms pay that ({price.name})."
        )
    if context_limit is not None:
        return Terms(limit=context_limit, source="configured", price=price, assumed=tuple(assumed))
    limit, source = _limit(script, price)
    peak = max((usage.prompt for usage in script.usages if usage), default=0)
    if peak > limit:
        larger = _larger(at.table, peak)
        assumed.append(
            f"A recorded prompt of {peak:,} tokens is over the {limit:,} known for {model or 'its model'}: "
            f"replayed with a limit of {larger:,}."
        )
        limit, source = larger, "name-hint"
    return Terms(limit=limit, source=source, price=price, assumed=tuple(assumed))


def _limit(script: Script, price: Price) -> tuple[int, LimitSource]:
    opened = script.events[0].fact
    if isinstance(opened, SessionOpened) and opened.context_limit:
        return opened.context_limit, "provider-reported"
    return (price.context_window, "catalogue") if price.context_window else (_USUAL_LIMIT, "unknown")


def _larger(table: PriceTable, peak: int) -> int:
    """The smallest window any model of the table has that holds `peak`, or just that."""
    windows = sorted({price.context_window for price in table.prices if price.context_window >= peak})
    return windows[0] if windows else peak


def _is_mostly_one_hour(script: Script) -> bool:
    known = [usage for usage in script.usages if usage]
    return 2 * sum(usage.written_1h for usage in known) > sum(usage.written for usage in known)
