"""`transom cache stats | inspect | reasons` on a recording of our own making, and on a live session."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from transom import compose
from transom.adapters.provider_anthropic import DIALECT
from transom.cli.parting import parted, show_parted
from transom.core.event import EpochOpened, HostSaid, Section, Tool, Usage
from transom.core.pricing import find_price
from transom.core.state import Head
from transom.core.wire import Dialect, Rendering, Segment
from transom.testing.builders import Story, call, rules, text

from .conftest import DATA, Run, claude_lines

ID = "claude-code:11111111-2222-4333-8444-555555555555"


def recording(folder: Path, steps: int = 12, lost: int = 8) -> Path:
    """A session in which the request of step `lost` read nothing of what stood there."""
    lines = claude_lines(steps)
    for place, line in enumerate(lines):
        record = json.loads(line)
        if record.get("message", {}).get("id") == f"msg_{lost}":
            usage = record["message"]["usage"]
            usage["cache_creation_input_tokens"] += usage["cache_read_input_tokens"]
            usage["cache_read_input_tokens"] = 0
            lines[place] = json.dumps(record)
    path = folder / "session.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def stored(run: Run, tmp_path: Path) -> Run:
    assert run("cache", "stats", recording(tmp_path)).code == 0
    return run


def test_stats_say_a_ratio_what_was_billed_again_and_what_it_cost(stored: Run) -> None:
    said = stored("cache", "stats").out
    assert "read      88." in said
    assert "expected" in said
    assert "contract  11 hit, 1 miss" in said
    assert "evicted" in said
    assert "$0.09 of the" in said


def test_stats_as_json_have_every_figure(stored: Run) -> None:
    found = json.loads(stored("cache", "stats", ID, "--json").out)
    (bill,) = found["sessions"]
    assert (bill["session"], bill["requests"], bill["is_assumed"]) == (ID, 12, True)
    assert bill["hit_ratio"] == pytest.approx(bill["cached_tokens"] / bill["prompt_tokens"])
    assert bill["misses"] == {"evicted": 1}
    assert bill["billed_again"] == {"evicted": 15_200}
    assert bill["drift_episodes"] == 0
    assert bill["accuracy"]["median"] == 0.0
    assert found["providers"]["anthropic"]["compared"] == 12
    assert found["misses"] == {"anthropic": {"evicted": 1}}


def test_stats_of_many_sessions_are_a_table_with_the_errors_of_each_provider(stored: Run, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text("\n".join(claude_lines(4, session="22222222-2222-4333-8444-555555555555")) + "\n")
    said = stored("cache", "stats", tmp_path / "session.jsonl", other).out
    assert "claude-code:11111111" in said
    assert "claude-code:22222222" in said
    assert "anthropic" in said
    assert "within 1 %" in said


def test_no_miss_in_money_says_what_one_would_be(run: Run, tmp_path: Path) -> None:
    run("replay", recording(tmp_path, lost=0), "--arms", "raw", "--quiet")
    assert "no miss: no request was billed again for 1,024 tokens" in run("cache", "reasons").err


def test_reasons_list_each_miss_with_its_cost(stored: Run) -> None:
    said = stored("cache", "reasons", "latest").out
    assert "the newest 1 of 1 of its misses" in said
    assert "evicted" in said
    assert "15,200" in said
    (miss,) = json.loads(stored("cache", "reasons", "--json").out)[ID]
    assert (miss["step"], miss["cached_tokens"], miss["expected_tokens"]) == (9, 0, 15_200)
    assert miss["lost"] == {"evicted": 15_200}
    assert miss["usd"] > 0
    assert "misses: requests in which 1,024 tokens or more" in said
    assert f"the request at event {miss['seq']} ·" in stored("cache", "inspect", "--at", miss["seq"]).out


def test_money_by_a_price_that_is_not_the_model_s_own_is_marked(run: Run, tmp_path: Path) -> None:
    path = recording(tmp_path)
    path.write_text(path.read_text().replace("claude-opus-4-5", "claude-of-tomorrow"))
    other = tmp_path / "other.jsonl"
    other.write_text("\n".join(claude_lines(3, session="22222222-2222-4333-8444-555555555555")))
    said = run("cache", "stats", path, other).out
    first, second = (line for line in said.splitlines() if line.startswith("claude-code:"))
    assert sorted((first.endswith(" *"), second.endswith(" *"))) == [False, True]
    assert "* No price of its own is known: claude-of-tomorrow by " in said
    said = run("cache", "reasons", ID).out
    assert " * more than reading would have" in said
    assert "* No price of its own is known: claude-of-tomorrow by " in said


@pytest.mark.parametrize("width", ["60", "80", ""])
def test_reasons_and_stats_lose_no_figure_in_a_narrow_terminal_or_a_pipe(
    stored: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, width: str
) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text("\n".join(claude_lines(3, session="22222222-2222-4333-8444-555555555555")))
    stored("replay", other, "--arms", "raw", "--quiet")
    monkeypatch.setenv("COLUMNS", width)
    said = stored("cache", "reasons", ID).out + stored("cache", "stats", ID, "2222").out
    assert "…" not in said
    for figure in (
        "event",
        "15,610",
        "15,200",
        "evicted",
        "$0.09",
        "billed again",
        "claude-code:11111111",
        "within 1 %",
    ):
        assert figure in said, figure
    if width:
        assert max(map(len, said.splitlines())) <= int(width)


def test_inspect_shows_the_newest_miss_though_its_bytes_only_extend(stored: Run) -> None:
    said = stored("cache", "inspect").out
    assert "It begins with the one before" in said
    assert "15,200 billed again: evicted" in said
    (one,) = json.loads(stored("cache", "inspect", "--json").out)
    assert one["segment"] is None
    assert one["lost"] == {"evicted": 15_200}


def test_inspect_shows_the_segment_the_byte_and_the_words_of_a_rewrite(run: Run) -> None:
    path = DATA / "claude-code" / "compacted.jsonl"
    if not path.exists():
        path = next(file for file in sorted(DATA.rglob("*.jsonl")) if b"compact_boundary" in file.read_bytes())
    assert run("cache", "stats", path).code == 0
    (one,) = json.loads(run("cache", "inspect", "--json").out)
    assert one["reasons"]
    assert one["segment"].startswith("message[")
    assert one["before"] != one["after"]
    assert "▶" in one["after"]
    said = run("cache", "inspect").out
    assert f"first difference: {one['segment']}, byte {one['byte']:,}" in said


def test_inspect_takes_the_request_at_an_event(stored: Run) -> None:
    (one,) = json.loads(stored("cache", "inspect", "--at", "1", "--json").out)
    assert one["before_seq"] is None
    assert one["reasons"] == ["initial"]
    assert "It is the first" in stored("cache", "inspect", "--at", "1").out
    refused = stored("cache", "inspect", "--at", "99999")
    assert refused.code == 2
    assert "--at 99999" in refused.err
    assert stored("cache", "stats", "--at", "1").code == 2


def test_a_session_without_usage_says_so(run: Run, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in claude_lines(3)]
    for record in lines:
        record.get("message", {}).pop("usage", None)
    path = tmp_path / "quiet.jsonl"
    path.write_text("\n".join(json.dumps(record) for record in lines) + "\n")
    assert "No reply reports its usage" in run("cache", "stats", path).out
    assert "reported nothing of its cache" in run("cache", "reasons").err
    assert "messages" in run("cache", "inspect").out


def test_sessions_without_usage_are_counted_and_not_listed(stored: Run, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in claude_lines(3, session="33333333-2222-4333-8444-555555555555")]
    for record in lines:
        record.get("message", {}).pop("usage", None)
    quiet = tmp_path / "quiet.jsonl"
    quiet.write_text("\n".join(json.dumps(record) for record in lines) + "\n")
    said = stored("cache", "stats", tmp_path / "session.jsonl", quiet).out
    assert "nothing can be said of its cache: 1 more session." in " ".join(said.split())
    assert "33333333" not in said


def test_a_provider_that_reports_no_cache_is_not_said_to_have_lost_anything(run: Run, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in claude_lines(4)]
    for record in lines:
        usage = record.get("message", {}).get("usage")
        if usage:
            usage["input_tokens"] += usage.pop("cache_read_input_tokens") + usage.pop("cache_creation_input_tokens")
    path = tmp_path / "plain.jsonl"
    path.write_text("\n".join(json.dumps(record) for record in lines) + "\n")
    said = run("cache", "stats", path).out
    assert "no cache reads or writes" in said
    assert "billed again" not in said
    (bill,) = json.loads(run("cache", "stats", "--json").out)["sessions"]
    assert (bill["cached_tokens"], bill["hit_ratio"], bill["accuracy"], bill["misses"]) == (None, None, None, {})


def test_inspect_of_a_session_that_only_grew_shows_its_newest_request(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "grown.jsonl"
    path.write_text("\n".join(claude_lines(5)) + "\n")
    assert run("cache", "stats", path).code == 0
    (one,) = json.loads(run("cache", "inspect", "--json").out)
    assert (one["segment"], one["lost"]) == (None, {})
    assert one["messages"] > one["messages_before"]


def test_inspect_refuses_a_session_without_a_request_and_says_what_no_text_shows(run: Run, tmp_path: Path) -> None:
    with compose.store(tmp_path / "store") as kept:
        story = Story(rules=rules(), log=kept.log, session_id="forced", model="m")
        story.user("Fix it.")
        assert run("cache", "inspect", "forced").code == 2
        story.say(EpochOpened(tools=(Tool(name="a"),)))
        story.step()
        for _ in range(2):
            story.say(HostSaid(kind="fallback", blocks=(text("full"),)))
        story.step()
        story.say(EpochOpened(tools=(Tool(name="a"), Tool(name="b")), reason="change:tools"))
    said = run("cache", "inspect", "forced").out
    assert "change:params" in said
    assert "no text shows" in said
    with compose.store(tmp_path / "store") as kept:
        story = Story(rules=rules(), log=kept.log, session_id="more", model="m")
        story.say(EpochOpened(tools=(Tool(name="a"),)))
        story.user("Fix it.")
        story.step()
        story.say(EpochOpened(tools=(Tool(name="a"), Tool(name="b")), reason="change:tools"))
        story.step()
    assert "first difference: tools:b, byte 0 (0 bytes before" in run("cache", "inspect", "more").out
    assert "(not there)" in run("cache", "inspect", "more").out


def test_tools_that_came_and_went_are_named_and_not_what_stands_behind_them(run: Run, tmp_path: Path) -> None:
    with compose.store(tmp_path / "store") as kept:
        story = Story(rules=rules(), log=kept.log, session_id="tools", model="m")
        system = (Section(key="s", text="Be brief."),)
        story.say(EpochOpened(sections=system, tools=(Tool(name="a"), Tool(name="z"))))
        story.user("Fix it.")
        story.step()
        story.reply(text("Yes."), usage=Usage(uncached=2_000, output=5))
        tools = tuple(Tool(name=name) for name in "abcd")
        story.say(EpochOpened(sections=system, tools=tools, reason="change:tools"))
        story.step()
        reply = story.reply(text("Yes."), usage=Usage(uncached=2_500, output=5))
    done = run("cache", "inspect", "tools", "--at", reply.seq)
    assert f"the request at event {reply.seq - 1}, answered at event {reply.seq} ·" in done.out
    assert "first difference: tools:b, byte 0 (0 bytes before" in done.out
    assert "new in the head, 3: tools:b, tools:c, tools:d" in done.out
    assert "gone from the head, 1: tools:z" in done.out
    (found,) = json.loads(run("cache", "inspect", "tools", "--json").out)
    assert (found["head_added"], found["head_gone"]) == (["tools:b", "tools:c", "tools:d"], ["tools:z"])


def test_a_text_that_only_grew_is_shown_to_end_where_the_other_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    def bare(head: Head) -> tuple[Segment, ...]:
        return tuple(Segment(name=f"system:{one.key}", data=one.text.encode()) for one in head.sections)

    dialect = replace(DIALECT, head=bare)
    story = Story(rules=rules(dialect=dialect), model="m")
    for words, reason in (("Be brief.", "initial"), ("Be brief.  Be kind.", "change:system")):
        story.say(EpochOpened(sections=(Section(key="s", text=words),), reason=reason))  # type: ignore[arg-type]
        story.user("Go on.")
        story.step()
        story.reply(text("Yes."))
    events = list(story.log.read(story.session.session_id))
    table = compose.prices()
    show_parted([parted("s", events, dialect, lambda model: find_price(table, model), None)])
    said = capsys.readouterr().out
    assert "first difference: system:s, byte 9 (9 bytes before, 19 after)" in said
    assert "before Be brief.▶(ends here)" in said
    assert "after  Be brief.▶  Be kind." in said


def test_a_live_session_s_own_verdicts_are_counted_and_drift_in_episodes(run: Run, tmp_path: Path) -> None:
    """Its message changes under the kernel's feet for three requests, which is one alarm."""
    words = ["steady"]
    dialect = moving(words)
    with compose.store(tmp_path / "store") as kept:
        story = Story(rules=rules(dialect=dialect), log=kept.log, session_id="live", model="claude-sonnet-4-5")
        story.user("Fix it.")
        for number, said in enumerate(["steady", "steady", "moved", "moved", "moved", "steady"]):
            words[0] = said
            story.session._rendering = Rendering(dialect)
            story.step()
            story.reply(call(f"c{number}"), usage=Usage(uncached=3, cached=2000 * number, written=2000, output=9))
            story.returned(f"c{number}", "done")
    (bill,) = json.loads(run("cache", "stats", "live", "--json").out)["sessions"]
    assert not bill["is_assumed"]
    assert bill["verdicts"] == {"drift": 3, "hit": 2, "miss": 1}
    assert bill["drift_episodes"] == 1
    assert "3 drift, 2 hit, 1 miss; 1 episode of drift" in run("cache", "stats", "live").out


def moving(words: list[str]) -> Dialect:
    return replace(DIALECT, message=lambda group: DIALECT.message(group) + words[0].encode())
