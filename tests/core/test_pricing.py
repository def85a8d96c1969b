"""Prices: what a request costs, and which entry of the table is a model's."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.core.event import Usage
from transom.core.pricing import (
    CacheRules,
    Price,
    PriceTable,
    choose_price,
    find_price,
    request_cost,
    usage_cost,
)
from transom.errors import BadInput

ANTHROPIC = CacheRules(serves="marks", min_prefix_tokens=1024, ttl_seconds=300, long_ttl_seconds=3600)


def _price(name: str = "sonnet", models: tuple[str, ...] = ("*sonnet*",)) -> Price:
    return Price(
        name=name,
        provider="anthropic",
        models=models,
        date="2026-10",
        source="a test",
        input=3.0,
        cached=0.3,
        write=3.75,
        write_1h=6.0,
        output=15.0,
        context_window=200_000,
        max_output=64_000,
        rules=ANTHROPIC,
    )


TABLE = PriceTable(
    dated="2026-10", prices=(_price(), _price("any", ("*",)), _price("never", ("*sonnet-9*",))), rules={}
)


def test_relative_prices_are_those_of_the_cost_model() -> None:
    price = _price()
    assert (price.r, price.w, price.k) == pytest.approx((0.1, 1.25, 5.0))


def test_a_request_costs_its_reads_its_writes_and_its_output() -> None:
    cost = request_cost(_price(), prompt=100_000, cached=90_000, output=2_000)
    assert cost == pytest.approx(0.09 * 0.3 + 0.01 * 3.75 + 0.002 * 15)


def test_reported_usage_is_priced_part_by_part() -> None:
    usage = Usage(uncached=1_000_000, cached=1_000_000, written=3_000_000, written_1h=1_000_000, output=1_000_000)
    assert usage_cost(_price(), usage) == pytest.approx(3 + 0.3 + 2 * 3.75 + 6 + 15)


def test_the_one_hour_cache_writes_dearer_and_lives_longer() -> None:
    price = _price().one_hour()
    assert (price.name, price.write, price.w, price.rules.ttl_seconds) == ("sonnet@1h", 6.0, 2.0, 3600)
    rules = msgspec.structs.replace(ANTHROPIC, ttl_seconds=7200, long_ttl_seconds=0)
    assert msgspec.structs.replace(_price(), rules=rules).one_hour().rules.ttl_seconds == 7200


def test_the_first_matching_entry_is_a_models_price() -> None:
    assert find_price(TABLE, "anthropic/Claude-SONNET-9").name == "sonnet"
    assert find_price(TABLE, "whatever").name == "any"
    with pytest.raises(BadInput, match="'opus'"):
        find_price(PriceTable(dated="", prices=(_price(),), rules={}), "opus")


def test_a_price_is_chosen_by_its_name_or_a_models() -> None:
    assert choose_price(TABLE, "never").name == "never"
    assert choose_price(TABLE, "claude-sonnet@20260101").name == "sonnet"
    assert choose_price(TABLE, "sonnet@1h").name == "sonnet@1h"
    assert choose_price(TABLE, "any").name == "any"
    with pytest.raises(BadInput, match=r"'sonet'.*sonnet"):
        choose_price(TABLE, "sonet")


@given(prompt=st.integers(0, 10**6), share=st.floats(0, 1), output=st.integers(0, 10**5))
def test_a_warmer_cache_never_costs_more(prompt: int, share: float, output: int) -> None:
    cached = round(prompt * share)
    cost = request_cost(_price(), prompt=prompt, cached=cached, output=output)
    assert cost <= request_cost(_price(), prompt=prompt, cached=0, output=output)
    assert cost == pytest.approx(
        usage_cost(_price(), Usage(cached=cached, written=prompt - cached, output=output)), abs=1e-12
    )


def test_rules_read_from_a_file_are_checked() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"granularity_tokens": 0}, CacheRules)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"serves": "everything"}, CacheRules)
