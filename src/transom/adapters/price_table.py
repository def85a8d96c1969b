"""Reads price tables: the one that ships with the package, and a user's own of the same shape before it.

A file is TOML: `dated`, `[cache.NAME]` tables of `CacheRules`, and `[[price]]` entries (the head of
`data/prices.toml` says what each field is). A user's entry may name a cache of its own file or of ours.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from transom.core.pricing import CacheRules, Price, PriceTable
from transom.errors import BadInput, reason_of

__all__ = ["load_prices"]

_Dollars = Annotated[float, msgspec.Meta(ge=0, le=100_000)]
_Tokens = Annotated[int, msgspec.Meta(ge=0)]
_Words = Annotated[str, msgspec.Meta(min_length=1)]
T = TypeVar("T")
_OUR_OWN = "prices.toml of the package"


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: _Words
    provider: _Words
    models: Annotated[tuple[_Words, ...], msgspec.Meta(min_length=1)]
    date: Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d{2}(-\d{2})?$")]
    source: _Words
    input: Annotated[float, msgspec.Meta(gt=0, le=100_000)]
    cached: _Dollars
    output: _Dollars
    cache: _Words
    write: _Dollars | None = None
    write_1h: _Dollars | None = None
    context_window: _Tokens = 0
    max_output: _Tokens = 0
    assumed: bool = False


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    dated: str = ""
    cache: dict[str, dict[str, object]] = {}
    price: list[dict[str, object]] = []


def load_prices(file: Path | None = None) -> PriceTable:
    """Our table, with the entries of `file` tried before ours. Raises `BadInput` naming file, entry and field."""
    text = resources.files("transom.data").joinpath("prices.toml").read_text("utf-8")
    ours = _parse(text, _OUR_OWN, {})
    if file is None:
        return ours
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise BadInput(f"{file}: cannot be read as a price table: {reason_of(problem)}") from problem
    theirs = _parse(text, str(file), ours.rules)
    if not theirs.prices:
        raise BadInput(f"{file}: has no [[price]] entry")
    return PriceTable(dated=ours.dated, prices=theirs.prices + ours.prices, rules=theirs.rules)


def _parse(text: str, where: str, rules: Mapping[str, CacheRules]) -> PriceTable:
    try:
        plain = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise BadInput(f"{where}: is not TOML: {problem}") from problem
    file = _convert(plain, _File, where)
    known = dict(rules)
    for name, table in file.cache.items():
        known[name] = _convert(table, CacheRules, f"{where}: [cache.{name}]")
    prices: list[Price] = []
    for number, table in enumerate(file.price, 1):
        price = _price(table, f"{where}: price {number} ({table.get('name', 'without a name')})", known)
        if any(price.name == other.name for other in prices):
            raise BadInput(f"{where}: price {number} ({price.name}): name: there is another of this name above")
        prices.append(price)
    return PriceTable(dated=file.dated, prices=tuple(prices), rules=known)


def _price(table: dict[str, object], where: str, rules: Mapping[str, CacheRules]) -> Price:
    entry = _convert(table, _Entry, where)
    if entry.cache not in rules:
        raise BadInput(f"{where}: cache: no [cache.{entry.cache}] table; known are {', '.join(sorted(rules))}")
    write = entry.input if entry.write is None else entry.write
    return Price(
        name=entry.name,
        provider=entry.provider,
        models=tuple(glob.lower() for glob in entry.models),
        date=entry.date,
        source=entry.source,
        input=entry.input,
        cached=entry.cached,
        write=write,
        write_1h=write if entry.write_1h is None else entry.write_1h,
        output=entry.output,
        context_window=entry.context_window,
        max_output=entry.max_output,
        rules=rules[entry.cache],
        assumed=entry.assumed,
    )


def _convert(plain: object, shape: type[T], where: str) -> T:
    try:
        return msgspec.convert(plain, shape)
    except msgspec.ValidationError as problem:
        said, _, path = str(problem).partition(" - at `$")
        field = path.strip("`.")
        raise BadInput(f"{where}: {field + ': ' if field else ''}{said}") from problem
