"""A provider's cache by its rules: what a request reads, whatever was sent before it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom import compose
from transom.core.cachesim import Cache, Expected, Mark, Sent
from transom.core.pricing import CacheRules

TABLE = compose.prices().rules
ANTHROPIC, OPENAI, NEWER = TABLE["anthropic-1024"], TABLE["openai"], TABLE["openai-5_6"]
DEEPSEEK = TABLE["deepseek"]

rules_ = st.builds(
    CacheRules,
    serves=st.sampled_from(["prefix", "marks", "ends", "units"]),
    min_prefix_tokens=st.sampled_from([0, 512, 1024]),
    granularity_tokens=st.sampled_from([1, 64, 128]),
    ttl_seconds=st.sampled_from([0, 300]),
    long_ttl_seconds=st.sampled_from([0, 3600]),
    breakpoints=st.sampled_from([0, 4]),
    lookback_blocks=st.sampled_from([0, 20]),
    keeps_output=st.booleans(),
)


@st.composite
def lines(draw: st.DrawFn) -> list[Sent]:
    """Requests of one line: each keeps some of the one before, adds some, and marks places up to its end."""
    found: list[Sent] = []
    now, size = 0.0, 0
    for _ in range(draw(st.integers(1, 7))):
        kept = draw(st.one_of(st.just(size), st.integers(0, size)))
        answered = draw(st.integers(0, 400)) if kept == size else 0
        now += draw(st.sampled_from([0.0, 1.0, 299.0, 300.0, 301.0, 4000.0]))
        size = kept + answered + draw(st.integers(1, 5000))
        places = draw(st.lists(st.integers(1, size), max_size=3))
        marks = tuple(Mark(tokens=one, blocks=one // 100) for one in sorted({*places, size}))
        key, is_long = draw(st.sampled_from("ab")), draw(st.booleans())
        one = Sent(at=now, tokens=size, kept=kept, answered=answered, marks=marks, key=key, is_long=is_long)
        found.append(one)
    return found


def reads(rules: CacheRules, requests: Sequence[Sent]) -> list[Expected]:
    cache = Cache()
    return [cache.send(one, rules) for one in requests]


def changed(sent: Sent, **fields: float) -> Sent:
    return Sent(
        at=fields.get("at", sent.at),
        tokens=int(fields.get("tokens", sent.tokens)),
        kept=int(fields.get("kept", sent.kept)),
        answered=sent.answered if "kept" not in fields else 0,
        marks=sent.marks,
        key=sent.key,
        is_long=sent.is_long,
    )


DOC = (Path(__file__).resolve().parents[2] / "docs" / "cache.md").read_text("utf-8")
EXAMPLES = re.findall(r"```text cache-example (\S+)\n(.*?)```", DOC, re.DOTALL)


@pytest.mark.parametrize(("name", "rows"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_the_examples_worked_by_hand_in_the_manual_are_what_the_rules_give(name: str, rows: str) -> None:
    cache = Cache()
    for row in rows.splitlines()[1:]:
        at, prompt, kept, answer, *places, read = row.split()
        pairs = [place.split("@") for place in places if place != "-"]
        marks = tuple(Mark(tokens=int(tokens), blocks=int(blocks)) for tokens, blocks in pairs)
        sent = Sent(at=float(at), tokens=int(prompt), kept=int(kept), answered=int(answer), marks=marks)
        assert cache.send(sent, TABLE[name]).read == int(read), row


def test_every_kind_of_cache_has_an_example_worked_by_hand() -> None:
    assert {TABLE[name].serves for name, _ in EXAMPLES} == {"prefix", "marks", "ends", "units"}
    assert len(EXAMPLES) == 7


@given(rules=rules_, requests=lines())
def test_never_more_is_read_than_was_sent_before_and_is_sent_again(rules: CacheRules, requests: list[Sent]) -> None:
    for sent, found in zip(requests, reads(rules, requests), strict=True):
        assert 0 <= found.read <= found.warm <= min(sent.tokens, sent.kept + sent.answered * rules.keeps_output)
        assert found.read % rules.granularity_tokens == 0
        assert not found.read or found.read > rules.min_prefix_tokens - rules.granularity_tokens
    assert reads(rules, requests)[0] == Expected(read=0, warm=0)


@given(rules=rules_, requests=lines())
def test_the_shelves_are_what_a_plain_list_of_starts_would_be(rules: CacheRules, requests: list[Sent]) -> None:
    """Starts one by one, each with its own time, for one key and the kinds that remember more than one."""
    if rules.serves == "prefix" or rules.breakpoints or rules.keeps_output:
        return
    grain, least = rules.granularity_tokens, rules.min_prefix_tokens
    cache, starts, newest = Cache(), list[Plain](), 0
    for one in requests:
        sent = replace(one, key="a")
        parted = newest > sent.kept
        starts = [start for start in starts if start.tokens <= sent.kept] if parted else starts
        alive = [start for start in starts if not start.ttl or sent.at - start.used <= start.ttl]
        reached = [start.tokens for start in alive if found_by(rules, sent, start)]
        longest = max((tokens for tokens in reached if tokens <= sent.tokens), default=0)
        read = longest - longest % grain if longest >= least else 0
        assert cache.send(sent, rules).read == read
        for start in alive:
            if read and start.tokens - start.tokens % grain <= read:
                start.used = sent.at
        ttl = rules.long_ttl_seconds if sent.is_long and rules.long_ttl_seconds else rules.ttl_seconds
        made = list(sent.marks) if rules.serves == "marks" else [Mark(tokens=sent.tokens)]
        made += [Mark(tokens=sent.kept)] if rules.serves == "units" and parted else []
        known = {start.tokens for start in alive}
        fresh = [mark for mark in made if mark.tokens not in known and mark.tokens >= max(1, least)]
        starts = alive + [Plain(mark.tokens, mark.blocks, ttl, sent.at) for mark in fresh]
        newest = sent.tokens


@dataclass
class Plain:
    tokens: int
    blocks: int
    ttl: int
    used: float


def found_by(rules: CacheRules, sent: Sent, start: Plain) -> bool:
    near = rules.lookback_blocks or 10**9
    marks = [mark for mark in sent.marks if mark.tokens >= start.tokens and mark.blocks - start.blocks <= near]
    return rules.serves != "marks" or bool(marks)


@given(rules=rules_, requests=lines(), share=st.floats(0, 1))
def test_a_longer_common_start_is_never_read_less(rules: CacheRules, requests: list[Sent], share: float) -> None:
    *before, last = requests
    shorter = changed(last, kept=int(last.kept * share))
    assert reads(rules, [*before, shorter])[-1].read <= reads(rules, requests)[-1].read


@given(rules=rules_, requests=lines(), wait=st.floats(0, 10_000))
def test_waiting_longer_never_reads_more(rules: CacheRules, requests: list[Sent], wait: float) -> None:
    *before, last = requests
    late = reads(rules, [*before, changed(last, at=last.at + wait)])[-1]
    assert late.read <= reads(rules, requests)[-1].read
    assert late.warm == reads(rules, requests)[-1].warm


@pytest.mark.parametrize("name", sorted(TABLE))
def test_a_start_lives_exactly_as_long_as_its_rules_say_and_a_read_renews_it(name: str) -> None:
    rules = TABLE[name]
    ttl = rules.ttl_seconds

    def read_after(*gaps: float) -> int:
        marks = (Mark(tokens=50_048),)
        now, requests = 0.0, [Sent(at=0, tokens=50_048, marks=marks)]
        for gap in gaps:
            now += gap
            requests.append(Sent(at=now, tokens=50_048, kept=50_048, marks=marks))
        return reads(rules, requests)[-1].read

    whole = 50_048 - 50_048 % rules.granularity_tokens
    assert read_after(ttl) == whole
    assert read_after(ttl, ttl, ttl) == whole
    assert read_after(ttl + 0.25) == (0 if ttl else whole)
    assert read_after(ttl + 0.25, ttl) == whole


def test_the_longer_cache_is_the_start_s_own_and_not_the_reader_s() -> None:
    marks = (Mark(tokens=9000),)
    first = Sent(at=0, tokens=9000, marks=marks, is_long=True)
    later = Sent(at=3600, tokens=9000, kept=9000, marks=marks)
    assert reads(ANTHROPIC, [first, later])[-1].read == 9000
    assert reads(ANTHROPIC, [first, changed(later, at=3601)])[-1] == Expected(read=0, warm=9000)


def test_a_shorter_prefix_than_the_minimum_is_not_cached() -> None:
    for size, read in ((1023, 0), (1024, 1024)):
        marks = (Mark(tokens=size),)
        again = Sent(at=1, tokens=size + 50, kept=size, marks=marks)
        assert reads(ANTHROPIC, [Sent(at=0, tokens=size, marks=marks), again])[-1].read == read


def test_a_mark_finds_what_ends_at_most_twenty_blocks_before_it() -> None:
    first = Sent(at=0, tokens=30_000, marks=(Mark(tokens=12_000, blocks=3), Mark(tokens=30_000, blocks=10)))
    for blocks, read in ((30, 30_000), (31, 0)):
        end = Mark(tokens=50_000, blocks=blocks)
        assert reads(ANTHROPIC, [first, Sent(at=1, tokens=50_000, kept=30_000, marks=(end,))])[-1].read == read
    bridged = (Mark(tokens=30_500, blocks=25), Mark(tokens=50_000, blocks=90))
    assert reads(ANTHROPIC, [first, Sent(at=1, tokens=50_000, kept=30_000, marks=bridged)])[-1].read == 30_000


def test_a_rewrite_falls_back_to_the_longest_start_that_was_marked() -> None:
    requests = [
        Sent(at=0, tokens=20_000, marks=(Mark(tokens=12_000), Mark(tokens=20_000))),
        Sent(at=1, tokens=26_000, kept=20_000, marks=(Mark(tokens=26_000),)),
        Sent(at=2, tokens=24_000, kept=25_999, marks=(Mark(tokens=24_000),)),
    ]
    assert [one.read for one in reads(ANTHROPIC, requests)] == [0, 20_000, 20_000]
    assert reads(msgspec.structs.replace(OPENAI, keeps_output=False), requests)[-1].read == 23_936


def test_each_model_has_a_cache_of_its_own_and_finds_it_again() -> None:
    def sent(at: int, tokens: int, kept: int, key: str) -> Sent:
        return Sent(at=at, tokens=tokens, kept=kept, key=key, marks=(Mark(tokens=tokens),))

    line = [sent(0, 8000, 0, "opus"), sent(9, 9000, 8000, "sonnet"), sent(20, 9500, 9000, "opus")]
    assert [one.read for one in reads(ANTHROPIC, line)] == [0, 0, 8000]
    line[1] = sent(9, 9000, 5000, "sonnet")
    assert [one.read for one in reads(ANTHROPIC, line)] == [0, 0, 0]


def test_what_is_longer_than_the_prompt_is_not_read_though_another_model_kept_it() -> None:
    """Two models count the same bytes as other numbers of tokens."""
    line = [Sent(at=0, tokens=9000, key="a"), Sent(at=1, tokens=7000, kept=9000, key="b")]
    line.append(Sent(at=2, tokens=8000, kept=7000, key="a"))
    assert [one.read for one in reads(NEWER, line)] == [0, 0, 0]


def test_a_unit_is_read_whole_or_not_at_all_and_a_common_start_becomes_one() -> None:
    """A + B, then A + C misses; A is then stored, and A + D hits."""
    line = [
        Sent(at=0, tokens=6400, kept=0),
        Sent(at=1, tokens=7000, kept=3200),
        Sent(at=2, tokens=6600, kept=3200),
    ]
    assert [one.read for one in reads(DEEPSEEK, line)] == [0, 0, 3200]
    assert [one.read for one in reads(OPENAI, line)] == [0, 3200, 3200]


def test_an_answer_that_is_sent_back_is_read_where_the_provider_keeps_it() -> None:
    line = [Sent(at=0, tokens=6400), Sent(at=1, tokens=9000, kept=6400, answered=1300)]
    assert reads(DEEPSEEK, line)[-1].read == 7680
    assert reads(NEWER, line)[-1].read == 6400


def test_only_the_newest_ends_are_looked_at() -> None:
    rules = msgspec.structs.replace(NEWER, breakpoints=2)
    line = [Sent(at=n, tokens=2560 * (n + 1), kept=2560 * n) for n in range(4)]
    back = [*line, Sent(at=5, tokens=5000, kept=2560)]
    assert reads(rules, back)[-1].read == 0
    assert reads(NEWER, back)[-1].read == 2560
