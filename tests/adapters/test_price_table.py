"""The price table that ships, and a user's own before it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from transom.adapters.price_table import load_prices
from transom.core.pricing import choose_price, find_price
from transom.errors import BadInput

ENTRY = """
[[price]]
name = "house"
provider = "ours"
models = ["House-*"]
date = "2026-11"
source = "the contract"
input = 1
cached = 0.25
output = 4
cache = "openai"
"""


@pytest.mark.parametrize(
    ("model", "name", "assumed"),
    [
        ("claude-opus-4-5-20251101", "claude-opus-4.5", False),
        ("litellm_proxy/anthropic.claude-3-5-sonnet-20241022-v2:0", "claude-sonnet-4.5", False),
        ("us.anthropic.claude-haiku-4-5-20251001-v1:0", "claude-haiku-4.5", False),
        ("claude-opus-4-20250514", "claude-opus-4", False),
        ("claude-opus-4-1", "claude-opus-4", False),
        ("claude-opus-5-5", "claude-opus-5.5", False),
        ("claude-opus-5-20260801", "claude-opus-5", False),
        ("claude-next", "claude", True),
        ("gpt-5.6-sol", "gpt-5.6-sol", False),
        ("gpt-5.7", "gpt-5.6", True),
        ("gpt-5.1-codex", "gpt-5", False),
        ("openai/o3", "gpt", True),
        ("deepseek-v4-flash", "deepseek-flash", False),
        ("deepseek-v4-pro", "deepseek-pro", False),
        ("gemini-3-flash-preview", "gemini-3-flash", False),
        ("devstral-2512", "devstral", False),
        ("some-local-model", "unknown", True),
        ("", "unknown", True),
    ],
)
def test_a_model_has_its_price_or_one_that_says_it_is_assumed(model: str, name: str, assumed: bool) -> None:
    price = find_price(load_prices(), model)
    assert (price.name, price.assumed) == (name, assumed)


def test_the_table_is_whole() -> None:
    table = load_prices()
    assert table.dated == "2026-11"
    assert table.prices[-1].models == ("*",)
    for price in table.prices:
        assert 0 < price.cached < price.input <= price.write <= price.write_1h, price.name
        assert price.output >= price.input, price.name
        assert price.context_window > price.max_output > 0, price.name
        assert price.rules in table.rules.values(), price.name
        if price.provider != "local":  # a model in this process forgets nothing and takes any prefix
            assert price.rules.min_prefix_tokens * price.rules.ttl_seconds > 0, price.name


def test_an_entry_is_not_hidden_behind_an_earlier_one() -> None:
    """Each entry takes at least one name: a glob's own text without its marks."""
    table = load_prices()
    for price in table.prices[:-1]:
        names = [glob.replace("[-.]", "-").replace("[134]", "3").replace("*", "") for glob in price.models]
        names = [
            name.replace("[67]", "6").replace("[23]", "2").replace("[5-7]", "5").replace("[5-8]", "5") for name in names
        ]
        names = [name.replace("[6-9]", "7") for name in names]
        assert any(find_price(table, name) is price for name in names), price.name


def test_writing_is_free_where_no_price_is_given() -> None:
    table = load_prices()
    assert choose_price(table, "gpt-5.4").w == 1.0
    assert choose_price(table, "gpt-5.6-sol").w == 1.25
    assert choose_price(table, "deepseek-flash").r == pytest.approx(0.02)


def test_every_recorded_model_has_a_price(shared: Path) -> None:
    table = load_prices()
    models = set(_models(json.loads((shared / "MANIFEST.json").read_text("utf-8"))))
    assert len(models) > 20
    for model in models:
        price = find_price(table, model)
        assert price.name != "unknown" or model in {"<synthetic>", "gateway-injected"}, model


def _models(plain: object) -> Iterator[str]:
    if isinstance(plain, dict):
        for key, value in plain.items():
            if key == "models" and isinstance(value, list | dict):
                yield from (str(model) for model in value)
            else:
                yield from _models(value)
    elif isinstance(plain, list):
        for value in plain:
            yield from _models(value)


def test_a_users_entries_are_tried_first_and_may_use_our_cache_rules(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(ENTRY + ENTRY.replace('"house"', '"all-claude"').replace("House-*", "*claude*"))
    table = load_prices(file)
    assert find_price(table, "house-7b").input == 1.0
    assert find_price(table, "HOUSE-7B").rules == table.rules["openai"]
    assert find_price(table, "claude-opus-4-5").name == "all-claude"
    assert find_price(table, "gpt-5.4").name == "gpt-5.4"
    assert (table.prices[0].write, table.prices[0].context_window) == (1.0, 0)


def test_a_users_cache_rules_stand_before_ours(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[cache.openai]\nmin_prefix_tokens = 16\n" + ENTRY)
    table = load_prices(file)
    assert find_price(table, "house-7b").rules.min_prefix_tokens == 16
    assert find_price(table, "gpt-5.4").rules.min_prefix_tokens == 1024


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("not toml at all", r"mine\.toml: is not TOML: .*line 1"),
        ("", r"mine\.toml: has no \[\[price\]\] entry"),
        ("dated = 2026-11-01\n" + ENTRY, r"mine\.toml: dated: Expected `str`"),
        ("prices = []", r"mine\.toml: .*unknown field `prices`"),
        ("price = 3", r"mine\.toml: price: Expected `array`"),
        (ENTRY.replace("input = 1", "input = 0"), r"mine\.toml: price 1 \(house\): input: Expected `float` > 0"),
        (ENTRY.replace("input = 1", 'input = "1"'), r"price 1 \(house\): input: Expected `float`"),
        (ENTRY.replace("input = 1", "input = nan"), r"price 1 \(house\): input: Expected `float` > 0"),
        (ENTRY.replace("cached = 0.25", "cached = nan"), r"price 1 \(house\): cached: Expected `float`"),
        (ENTRY.replace("cached = 0.25", "cached = inf"), r"price 1 \(house\): cached: Expected `float`"),
        (ENTRY.replace("output = 4", "output = -4"), r"price 1 \(house\): output: Expected `float` >= 0"),
        (ENTRY.replace("output = 4", "outptu = 4"), r"price 1 \(house\): .*unknown field `outptu`"),
        (ENTRY.replace("output = 4\n", ""), r"price 1 \(house\): .*missing required field `output`"),
        (ENTRY.replace("[", "[[", 1).replace('name = "house"\n', ""), r"is not TOML"),
        (ENTRY.replace('name = "house"\n', ""), r"price 1 \(without a name\): .*missing required field `name`"),
        (ENTRY.replace('["House-*"]', "[]"), r"price 1 \(house\): models: Expected `array` of length >= 1"),
        (ENTRY.replace('["House-*"]', '["a", 3]'), r"price 1 \(house\): models\[1\]: Expected `str`"),
        (
            ENTRY.replace('"openai"', '"opena"'),
            r"price 1 \(house\): cache: no \[cache.opena\] table; known are .*openai",
        ),
        (ENTRY + ENTRY, r"price 2 \(house\): name: there is another"),
        ("[cache.x]\ngranularity_tokens = 0\n" + ENTRY, r"\[cache.x\]: granularity_tokens: Expected `int` >= 1"),
        ("[cache.x]\nttl = 3\n" + ENTRY, r"\[cache.x\]: .*unknown field `ttl`"),
    ],
)
def test_a_bad_table_is_refused_by_file_entry_and_field(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(BadInput, match=said):
        load_prices(file)


def test_a_table_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none\.toml: cannot be read"):
        load_prices(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match=r"binary\.toml: cannot be read"):
        load_prices(tmp_path / "binary.toml")
