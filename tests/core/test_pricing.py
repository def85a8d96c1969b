"""Prices and the provider's cache: what a request costs, and what should have been read back."""

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
    expected_cached,
    find_price,
    request_cost,
    usage_cost,
)
from transom.errors import BadInput

rules_ = st.builds(
    CacheRules,
    min_prefix_tokens=st.sampled_from([0, 512, 1024, 4096]),
    granularity_tokens=st.sampled_from([1, 64, 128]),
    ttl_seconds=st.sampled_from([0, 300, 3600]),
    breakpoints=st.integers(0, 4),
    lookback_blocks=st.sampled_from([0, 20]),
)
ANTHROPIC = CacheRules(min_prefix_tokens=1024, ttl_seconds=300, breakpoints=4, lookback_blocks=20)
OPENAI = CacheRules(min_prefix_tokens=1024, granularity_tokens=128, ttl_seconds=300)


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


def test_what_the_cache_keeps_follows_its_rules() -> None:
    assert expected_cached(ANTHROPIC, kept=50_000, gap=300) == 50_000
    assert expected_cached(ANTHROPIC, kept=50_000, gap=301) == 0
    assert expected_cached(ANTHROPIC, kept=1023, gap=1) == 0
    assert expected_cached(ANTHROPIC, kept=1024, gap=1) == 1024
    assert expected_cached(OPENAI, kept=1300, gap=1) == 1280
    assert expected_cached(CacheRules(), kept=7, gap=10**9) == 7


def test_a_step_longer_than_the_marks_reach_finds_only_the_head() -> None:
    for blocks, cached in ((60, 50_000), (61, 12_000)):
        assert expected_cached(ANTHROPIC, kept=50_000, gap=1, head=12_000, appended_blocks=blocks) == cached
    assert expected_cached(OPENAI, kept=51_200, gap=1, head=12_000, appended_blocks=500) == 51_200


@given(
    rules=rules_,
    kept=st.integers(0, 10**6),
    more=st.integers(0, 10**6),
    gap=st.floats(0, 10_000),
    head_and_blocks=st.tuples(st.integers(0, 10**5), st.integers(0, 200)),
)
def test_the_cache_never_serves_more_than_was_sent_and_never_less_for_more(
    rules: CacheRules, kept: int, more: int, gap: float, head_and_blocks: tuple[int, int]
) -> None:
    head, blocks = head_and_blocks
    less = expected_cached(rules, kept=kept, gap=gap, head=head, appended_blocks=blocks)
    assert 0 <= less <= kept
    assert less % rules.granularity_tokens == 0
    assert less == 0 or less >= rules.min_prefix_tokens - rules.granularity_tokens
    assert expected_cached(rules, kept=kept + more, gap=gap, head=head, appended_blocks=blocks) >= less
    assert expected_cached(rules, kept=kept, gap=gap + 1, head=head, appended_blocks=blocks) <= less
    assert expected_cached(rules, kept=kept, gap=gap, head=head, appended_blocks=blocks + 1) <= less


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
