"""What a request costs, and the rules of a provider's cache (`cachesim` plays them).

Prices are US dollars per million tokens; the cost model speaks in prices relative to plain input, `r` (cached
read), `w` (cache write), `k` (output). Where writing is free a written token costs what a plain one does (`w = 1`).
Every price is dated and says its source; `assumed` marks one that stands in for a price nobody published. The table
itself is data (`transom/data/prices.toml`).
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated, Literal

import msgspec

from transom.core.event import Usage
from transom.errors import BadInput

__all__ = [
    "CacheRules",
    "Price",
    "PriceTable",
    "choose_price",
    "find_price",
    "request_cost",
    "usage_cost",
]

_MILLION = 1_000_000
_ONE_HOUR = "@1h"


class CacheRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of one provider's prompt cache."""

    serves: Literal["prefix", "marks", "ends", "units"] = "prefix"
    """What a later request can read: any start of an earlier one; its start up to a mark; the whole of it; or the whole
    of what was stored, which is its end, the end of its answer and where it parted from the one before."""
    min_prefix_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    """A shorter prefix is not cached, silently."""
    granularity_tokens: Annotated[int, msgspec.Meta(ge=1)] = 1
    """What is cached is rounded down to a multiple."""
    ttl_seconds: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Idle time it surely survives, counted from the last read; 0: it does not expire within a session."""
    long_ttl_seconds: Annotated[int, msgspec.Meta(ge=0)] = 0
    """The same where the dearer, longer cache was asked for; 0: there is none."""
    breakpoints: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Marks a request may carry (`marks`), or ends that are looked at (`ends`); 0: no limit."""
    lookback_blocks: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Content blocks before a mark in which an earlier one is found; 0: no limit."""
    keeps_output: bool = False
    """An answer that is sent back as it came is read like the prompt before it."""


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the table: US dollars per million tokens."""

    name: str
    provider: str
    models: tuple[str, ...]
    """Globs over the lower-case model name."""
    date: str
    """Of the price, `YYYY-MM`."""
    source: str
    input: float
    cached: float
    write: float
    write_1h: float
    output: float
    context_window: int
    """Tokens; 0: not known."""
    max_output: int
    """Tokens; 0: not known."""
    rules: CacheRules
    assumed: bool = False
    """True where the entry stands in for one that is not known."""

    @property
    def r(self) -> float:
        return self.cached / self.input

    @property
    def w(self) -> float:
        return self.write / self.input

    @property
    def k(self) -> float:
        return self.output / self.input

    def one_hour(self) -> Price:
        """The same model when the client asks for the long cache."""
        rules = msgspec.structs.replace(
            self.rules, ttl_seconds=max(self.rules.ttl_seconds, self.rules.long_ttl_seconds)
        )
        return msgspec.structs.replace(self, name=self.name + _ONE_HOUR, write=self.write_1h, rules=rules)


class PriceTable(msgspec.Struct, frozen=True, kw_only=True):
    """Entries in the order they are tried: narrow ones first, one for any model last."""

    dated: str
    """`YYYY-MM` of the table that ships with the package."""
    prices: tuple[Price, ...]
    rules: dict[str, CacheRules]


def find_price(table: PriceTable, model: str) -> Price:
    """The entry of a model: the first whose glob matches its lower-case name. Raises `BadInput` if none does."""
    name = model.lower()
    for price in table.prices:
        if any(fnmatchcase(name, glob) for glob in price.models):
            return price
    raise BadInput(f"no price for the model {model!r}; give a table whose last entry has models = ['*']")


def choose_price(table: PriceTable, name: str) -> Price:
    """The entry called `name`, or that of a model of this name; `@1h` behind it asks for the one-hour cache. Raises
    `BadInput` for a name that only the entry for any model would take."""
    plain = name.removesuffix(_ONE_HOUR)
    price = next((price for price in table.prices if price.name == plain), None) or find_price(table, plain)
    if "*" in price.models and price.name != plain:
        known = ", ".join(price.name for price in table.prices)
        raise BadInput(f"no price is called {plain!r}; known are {known}; or give a file of your own")
    return price if plain == name else price.one_hour()


def request_cost(price: Price, *, prompt: int, cached: int, output: int = 0) -> float:
    """US dollars of one request as the cost model has it: `cached` tokens of the prompt are read, the rest written."""
    return (cached * price.cached + (prompt - cached) * price.write + output * price.output) / _MILLION


def usage_cost(price: Price, usage: Usage) -> float:
    """US dollars of what a provider reported: plain, read, written and put out, each at its own price."""
    written = usage.written - usage.written_1h
    return (
        usage.uncached * price.input
        + usage.cached * price.cached
        + written * price.write
        + usage.written_1h * price.write_1h
        + usage.output * price.output
    ) / _MILLION
