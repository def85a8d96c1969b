"""`transom budget` and the page of `transom show --html`: numbers, words and plots that agree."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from transom import compose
from transom.cli.budget import span
from transom.core.event import Draft, Fact, Observed, SessionOpened
from transom.testing.builders import Story, rules

from .conftest import Run, claude_lines

ID = "11111111"


@pytest.fixture
def stored(run: Run, tmp_path: Path) -> Run:
    """A Claude Code session of 60 reads in the store."""
    (tmp_path / "s.jsonl").write_text("\n".join(claude_lines(60)) + "\n")
    done = run("replay", tmp_path / "s.jsonl", "--arms", "raw", "--quiet")
    assert done.code == 0, done.err
    return run


def test_the_words_say_what_the_numbers_say(stored: Run) -> None:
    told = json.loads(stored("budget", ID, "--json").out)
    words = stored("budget", ID).out
    assert told["steps"] == 60
    assert told["prompt_tokens"] - told["gain_tokens"] < told["prompt_tokens"]
    assert f"{told['prompt_tokens']:,} tokens of 200,000" in words
    assert f"A new window now costs {told['opening_cost_tokens']:,.0f} tokens of plain input" in words
    assert f"pays after {told['pays_after_steps']:,.1f} more steps; 60 are expected (between 6 and 138)." in words
    assert ("Open one." in words) == told["is_due"]
    assert all(f"{word}: " in words for word in ("pinned", "seed", "generation", "handles"))
    assert told["saving_usd"] == pytest.approx(told["saving_tokens"] * 5 / 1e6)


def test_the_break_even_follows_from_its_parts(stored: Run) -> None:
    """The formula of the cost model, by hand."""
    told = json.loads(stored("budget", ID, "--json").out)
    r, w, seed, looked_up = told["r"], told["w"], told["seed_tokens"], told["lookup_tokens"]
    old = told["pinned_tokens"] + seed + told["gain_tokens"]
    new = told["pinned_tokens"] + seed + looked_up
    assert told["pays_after_steps"] == pytest.approx((w - r) * (new - told["pinned_tokens"]) / (r * (old - new)))
    assert told["opening_cost_tokens"] == pytest.approx(w * (seed + looked_up))


def test_another_price_and_limit_weigh_otherwise(stored: Run) -> None:
    dear = json.loads(stored("budget", ID, "--json").out)
    cheap = json.loads(stored("budget", ID, "--json", "--price", "deepseek-flash").out)
    assert cheap["r"] < dear["r"]
    assert cheap["pays_after_steps"] > dear["pays_after_steps"]


def test_above_the_watermark_a_window_opens_whatever_it_costs(run: Run, tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text("\n".join(claude_lines(5)) + "\n")
    run("replay", tmp_path / "s.jsonl", "--arms", "raw", "--quiet")
    assert "Go on." in run("budget", ID).out
    tight = run("budget", ID, "--context-limit", "18k").out
    assert "Open one: the prompt is above the watermark of 11,812, whatever it costs." in tight


def test_without_a_name_it_is_the_newest_session(stored: Run) -> None:
    assert stored("budget").out == stored("budget", ID).out


def test_a_session_nobody_replied_in_is_said(run: Run, tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text(claude_lines(0)[0] + "\n")
    run("replay", tmp_path / "s.jsonl", "--quiet")
    done = run("budget", "latest")
    assert done.code == 2
    assert "nothing to weigh" in done.err or "no session" in done.err


class Seen(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [name for name, _ in attrs if name in {"src", "href", "action"}]


@pytest.mark.parametrize("command", ["budget", "show"])
def test_the_page_has_both_plots_and_asks_for_nothing(stored: Run, tmp_path: Path, command: str) -> None:
    done = stored(command, ID, "--html", "a.html")
    assert done.code == 0, done.err
    text = (tmp_path / "a.html").read_text("utf-8")
    seen = Seen(text)
    assert seen.tags.count("svg") == 2
    assert seen.tags.count("polyline") == 4
    assert not seen.links
    assert "script" not in seen.tags
    assert "A new window now costs" in text
    numbers = [float(number) for path in re.findall(r'points="([^"]*)"', text) for number in re.split("[ ,]", path)]
    assert all(0 <= number <= 860 for number in numbers)


def test_the_page_of_a_session_of_one_reply_says_that_there_is_nothing_to_draw(run: Run, tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text("\n".join(claude_lines(1)) + "\n")
    run("replay", tmp_path / "s.jsonl", "--arms", "raw", "--quiet")
    assert run("budget", ID, "--html", "a.html").code == 0
    assert "Too few replies to draw" in (tmp_path / "a.html").read_text("utf-8")


def test_the_span_has_the_stated_odds() -> None:
    low, high = span(100)
    assert low == pytest.approx(10.5, abs=0.1)
    assert high == pytest.approx(230.3, abs=0.1)


def test_a_live_session_that_waited_is_cold(run: Run, tmp_path: Path) -> None:
    """Its clock counts from 1970."""
    with compose.store(tmp_path / "store") as kept:
        story = Story(rules("rollover-cost", 200_000), log=kept.log, session_id="live", model="claude-sonnet-4-5")
        story.user("Build it.")
        for _ in range(12):
            story.work("a line of output that somebody wanted to see\n" * 120)
    words = run("budget", "live").out
    assert "cold: last asked" in words
    assert "both ways write everything once: a new window writes less." in words
    assert words.rstrip().endswith("Open one.")
    told = json.loads(run("budget", "live", "--json").out)
    assert told["is_cold"]
    assert told["idle_seconds"] > 1e9


def test_where_reading_is_free_no_window_is_due_for_its_cost(stored: Run, tmp_path: Path) -> None:
    (tmp_path / "free.toml").write_text(
        'dated = "2026-11"\n[[price]]\nname = "free"\nprovider = "mine"\nmodels = ["*claude*"]\ndate = "2026-11"\n'
        'source = "mine"\ninput = 1\ncached = 0\noutput = 2\ncache = "common"\n'
    )
    done = stored("budget", ID, "--price", "free.toml")
    assert done.code == 0, done.err
    assert "never pays: reading is free." in done.out
    assert "So none is due for its cost." in done.out
    assert json.loads(stored("budget", ID, "--price", "free.toml", "--json").out)["pays_after_steps"] is None


def test_a_long_session_is_thinned_on_the_page(run: Run, tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text("\n".join(claude_lines(450)) + "\n")
    run("replay", tmp_path / "s.jsonl", "--arms", "raw", "--quiet")
    assert run("budget", ID, "--html", "a.html").code == 0
    paths = re.findall(r'points="([^"]*)"', (tmp_path / "a.html").read_text("utf-8"))
    assert all(len(path.split()) <= 400 for path in paths)


def test_latest_is_a_conversation_and_not_what_a_gateway_kept_beside_one(stored: Run, tmp_path: Path) -> None:
    with compose.store(tmp_path / "store") as kept:
        facts: list[Fact] = [SessionOpened(format=1, agent="claude-code"), Observed(kind="side_request", raw="{}")]
        kept.log.append("beside", 0, [Draft(fact=fact, uuid=f"u{at}", at=10**13) for at, fact in enumerate(facts)])
    assert json.loads(stored("sessions", "--json").out)[0]["session_id"] == "beside"
    for command in ("show", "budget", "handoffs", "export"):
        done = stored(command, "latest")
        assert f"claude-code:{ID}" in done.out + done.err


def test_latest_is_the_newest_session_in_which_a_model_has_replied(stored: Run, tmp_path: Path) -> None:
    """A client writes a session's file before its first reply; what weighs replies passes over it."""
    line = json.loads(claude_lines(0, session="99999999-2222-4333-8444-555555555555")[0])
    (tmp_path / "new.jsonl").write_text(json.dumps(line | {"timestamp": "2026-09-04T08:00:00.000Z"}) + "\n")
    stored("replay", tmp_path / "new.jsonl", tmp_path / "s.jsonl", "--arms", "raw", "--quiet")
    assert "99999999" in stored("show", "latest").out
    for command in (("budget", "latest"), ("cache", "stats"), ("replay", "--session", "latest", "--arms", "raw")):
        done = stored(*command)
        assert done.code == 0, done.err
        assert f"claude-code:{ID}" in done.out
    assert "no model has replied in it yet" in stored("budget", "9999").err
