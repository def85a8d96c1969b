"""`transom replay`: what is replayed, under which terms, and what is written."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from transom.cli.terms import ARMS, parse_tokens
from transom.core.policy import PRESETS
from transom.errors import UsageError

from .conftest import DATA, Run, claude_lines

FIGURES = [
    "session",
    "format",
    "arm",
    "model",
    "events",
    "steps",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "side_tokens",
    "cost_usd",
    "peak_tokens",
    "mean_tokens",
    "boundaries",
    "misses",
    "undeclared_misses",
    "prefix_kept",
    "handle_recall",
    "constraints_verbatim",
    "unpaired_calls",
    "counter_error",
    "recorded",
    "modelled",
    "seconds",
]


@pytest.fixture
def session_file(tmp_path: Path) -> Path:
    path = tmp_path / "session.jsonl"
    path.write_text("\n".join(claude_lines(40)) + "\n")
    return path


def test_without_a_recorded_session_the_sample_is_replayed_and_that_is_said(run: Run) -> None:
    done = run("replay", "--arms", "raw,rollover")
    assert done.code == 0
    assert "this is a sample that ships with Transom" in done.err
    assert "rollover" in done.out
    assert "Context limit 48,000 tokens" in done.out, "small enough that policies differ"


def test_what_of_the_sample_s_figures_is_made_up_is_said(run: Run) -> None:
    assert "sample's work and its usage are made up" in run("replay", "--arms", "raw").out
    assert "made up" not in run("replay", DATA / "codex", "--arms", "raw").out


def test_latest_without_a_recorded_session_is_an_error(run: Run) -> None:
    done = run("replay", "--latest")
    assert done.code == 2
    assert "~/.claude/projects" in done.err


def test_the_newest_session_of_the_home_directory_is_found_and_named(run: Run, home: Path) -> None:
    old = home / ".codex" / "sessions" / "2026" / "03" / "04" / "rollout-1.jsonl"
    new = home / ".claude" / "projects" / "-home-dev-app" / "x.jsonl"
    started = home / ".claude" / "projects" / "-home-dev-app" / "just-started.jsonl"
    for path, text in (
        (old, (DATA / "codex" / "after_outputs.jsonl").read_text()),
        (new, "\n".join(claude_lines(3))),
        (started, claude_lines(0, session="22222222-2222-4333-8444-555555555555")[0]),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    os.utime(old, (1_000, 1_000))
    os.utime(new, (2_000, 2_000))
    done = run("replay", "--latest", "--arms", "raw")
    assert done.code == 0, done.err
    assert f"Claude Code, {new}" in done.err


def test_figures_traces_and_the_page_are_written_whole(run: Run, session_file: Path, tmp_path: Path) -> None:
    done = run(
        "replay", session_file, "--context-limit", "20k", "--json", "a.json", "--html", "a.html", "--trace", "t.json"
    )
    assert done.code == 0, done.err
    results = json.loads((tmp_path / "a.json").read_text())
    assert [one["arm"] for one in results] == [*ARMS]
    assert set(FIGURES) <= set(results[0])
    for one in results:
        assert one["unpaired_calls"] == one["undeclared_misses"] == 0
        assert one["arm"] == "raw" or one["peak_tokens"] <= one["context_limit"] == 20_000
    assert "<html" in (tmp_path / "a.html").read_text("utf-8")
    (trace,) = json.loads((tmp_path / "t.json").read_text())
    assert [arm["arm"] for arm in trace["arms"]] == [one["arm"] for one in results]
    assert not list(tmp_path.glob(".*.json*")), "no half-written file stays"


def test_json_on_stdout_takes_the_place_of_the_table(run: Run, session_file: Path) -> None:
    done = run("replay", session_file, "--arms", "raw", "--json", "-")
    assert [one["arm"] for one in json.loads(done.out)] == ["raw"]


def test_a_second_run_imports_nothing_and_finds_the_same(run: Run, session_file: Path) -> None:
    first = run("replay", session_file, "--arms", "raw")
    second = run("replay", session_file, "--arms", "raw")
    assert "Imported" in first.err
    assert "Imported" not in second.err
    assert first.out == second.out


def test_a_grown_file_appends_what_is_new(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "grows.jsonl"
    lines = claude_lines(6)
    path.write_text("\n".join(lines[:7]) + "\n")
    run("replay", path, "--arms", "raw")
    path.write_text("\n".join(lines) + "\n")
    done = run("replay", path, "--arms", "raw", "--json", "-")
    assert "events more" in done.err
    assert json.loads(done.out)[0]["steps"] == 6


def test_a_recording_that_was_compacted_gets_the_recorded_arm(run: Run) -> None:
    done = run("replay", DATA / "claude-code" / "session.jsonl", "--json", "-")
    results = json.loads(done.out)
    compacted = {one["session"] for one in results if one["recorded"]["compactions"]}
    assert compacted
    assert {one["session"] for one in results if one["arm"] == "recorded"} == compacted


def test_the_limit_is_the_models_window_or_what_a_recorded_prompt_needed(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    lines = [
        line.replace('"cache_read_input_tokens": 12400', '"cache_read_input_tokens": 712400')
        for line in claude_lines(3)
    ]
    path.write_text("\n".join(lines))
    done = run("replay", path, "--arms", "raw")
    assert "Context limit 1,000,000 tokens" in done.out
    assert "A recorded prompt of 712,810 tokens is over the 200,000" in done.out


def test_a_cache_written_for_an_hour_is_paid_for_in_every_arm(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "hour.jsonl"
    hour = '"cache_creation": {"ephemeral_1h_input_tokens": 400, "ephemeral_5m_input_tokens": 0}, "output_tokens"'
    path.write_text("\n".join(line.replace('"output_tokens"', hour) for line in claude_lines(5)))
    done = run("replay", path, "--arms", "raw")
    assert "one-hour price" in done.out
    fixed = run("replay", path, "--arms", "raw", "--price", "claude-opus-4.5")
    assert "one-hour price" not in fixed.out


def test_price_and_model_change_the_money_alone(run: Run, session_file: Path, tmp_path: Path) -> None:
    def cost(*options: str | Path) -> float:
        (result,) = json.loads(run("replay", session_file, "--arms", "raw", "--json", "-", *options).out)
        assert result["model"] == "claude-opus-4-5"
        found: float = result["cost_usd"]
        return found

    mine = tmp_path / "mine.toml"
    mine.write_text(
        '[[price]]\nname = "mine"\nprovider = "me"\nmodels = ["claude-*"]\ndate = "2026-11"\nsource = "a contract"\n'
        'input = 100\ncached = 100\nwrite = 100\noutput = 100\ncache = "common"\n'
    )
    assert cost("--model", "gpt-5.5") != cost() != cost("--price", "deepseek-chat")
    assert cost("--price", mine) > 3 * cost()


def test_a_policy_file_is_an_arm_of_its_own(run: Run, session_file: Path, tmp_path: Path) -> None:
    (tmp_path / "tight.toml").write_text(
        'name = "tight"\nwhen = "watermark"\nhow = "mask"\nwatermark = 0.3\nlow_water = 0.2\n'
    )
    done = run("replay", session_file, "--policy", "tight.toml", "--context-limit", "32k", "--json", "-")
    assert [one["arm"] for one in json.loads(done.out)] == [*ARMS, "tight"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name = ", "not TOML"),
        ('name = "raw"', "name: 'raw' is a policy of Transom"),
        ('name = " "', "name: is empty"),
        ('name = "x"\nwatermark = "high"', "watermark: Expected `float`, got `str`"),
        ('name = "x"\nwatermark = 7', "watermark: is a share of the window"),
        ('name = "x"\nwatermark = 0.4\nlow_water = 0.5', "low_water: 0.5 must be below the watermark"),
        ('name = "x"\nkeep_steps = -1', "keep_steps: cannot be negative"),
        ('name = "x"\nhow = "recorded"', "how: 'recorded' is what the recording did"),
        ('name = "x"\nwhen = "cost"\nhow = "mask"', "when: 'cost' opens windows, so how is 'rollover'"),
        ('name = "x"\nhow = "offload"', "offload_above: how = 'offload' needs it"),
        ('name = "x"\ncolour = "blue"', "unknown field `colour`"),
    ],
)
def test_a_policy_file_that_is_none_is_named_with_its_field(
    run: Run, session_file: Path, tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "p.toml").write_text(text)
    done = run("replay", session_file, "--policy", "p.toml")
    assert done.code == 2
    assert said in done.err
    assert "p.toml" in done.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--arms", "fifi"), "no policy is called 'fifi'; known are raw"),
        (("--arms", ","), "names no policy"),
        (("--context-limit", "huge"), "write a number of tokens, as 128000, 128k or 1M"),
        (("--context-limit", "-5"), "--context-limit"),
        (("--context-limit", "0"), "no room is left"),
        (("--context-limit", "999999999999"), "no model has such a window"),
        (("--price", "free-lunch"), "no price is called 'free-lunch'"),
        (("--price", "absent.toml"), "absent.toml: cannot be read as a price table"),
        (("--json", "no/such/folder/a.json"), "the folder no/such/folder is not there"),
        (("--html", "."), "is a folder; name a file"),
        (("--session", "nobody"), "no session is called 'nobody'"),
        (("--policy", "absent.toml"), "absent.toml: cannot be read as a policy"),
        (("--colour",), "--colour"),
    ],
)
def test_an_option_that_cannot_be_used_is_named_before_any_work(
    run: Run, session_file: Path, options: tuple[str, ...], said: str
) -> None:
    done = run("replay", session_file, *options)
    assert done.code == 2
    assert said in " ".join(done.err.split())
    assert done.out == ""


def test_two_policies_of_one_name_are_refused(run: Run, session_file: Path, tmp_path: Path) -> None:
    for name in ("a.toml", "b.toml"):
        (tmp_path / name).write_text('name = "twin"')
    done = run("replay", session_file, "--policy", "a.toml", "--policy", "b.toml")
    assert done.code == 2
    assert "another --policy is called 'twin'" in done.err


def test_one_unusable_file_among_others_is_named_and_the_rest_replayed(
    run: Run, session_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "note.txt").write_text("no transcript at all")
    done = run("replay", "note.txt", session_file, "--arms", "raw")
    assert done.code == 2
    assert "note.txt: is no transcript" in done.err
    assert "raw" in done.out


def test_a_session_without_a_reply_is_named_and_the_others_are_replayed(
    run: Run, session_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "silent.jsonl").write_text(claude_lines(0, session="33333333-2222-4333-8444-555555555555")[0])
    alone = run("replay", "silent.jsonl")
    assert alone.code == 2
    assert "no model reply in it" in alone.err
    both = run("replay", "silent.jsonl", session_file, "--arms", "raw")
    assert both.code == 0
    assert "left out: session claude-code:33333333" in both.err


def test_a_folder_is_walked_and_its_sessions_are_summed(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(3):
        text = "\n".join(claude_lines(4, session=f"{number}1111111-2222-4333-8444-555555555555"))
        (folder / f"{number}.jsonl").write_text(text)
    done = run("replay", folder, "--arms", "raw,mask")
    assert done.code == 0, done.err
    assert "All 3 sessions" in done.out


def test_sub_agents_are_left_out_until_all_is_asked_for(run: Run) -> None:
    file = DATA / "claude-code" / "session.jsonl"
    some = json.loads(run("replay", file, "--arms", "raw", "--json", "-").out)
    every = json.loads(run("replay", file, "--arms", "raw", "--json", "-", "--all").out)
    assert len(every) > len(some)


def test_quiet_says_nothing_but_the_result(run: Run, session_file: Path) -> None:
    done = run("replay", session_file, "--arms", "raw", "--quiet")
    assert done.err == ""
    assert "raw" in done.out


@pytest.mark.parametrize("folder", sorted(path.name for path in DATA.iterdir()))
def test_a_session_of_every_format_replays_under_every_arm(run: Run, folder: str) -> None:
    done = run("replay", DATA / folder, "--context-limit", "32k", "--json", "-")
    assert done.code == 0, done.err
    for one in json.loads(done.out):
        assert one["arm"] in PRESETS
        assert (one["unpaired_calls"], one["undeclared_misses"]) == (0, 0)


def test_a_folder_of_the_store_that_is_a_file_is_named(run: Run, session_file: Path, tmp_path: Path) -> None:
    done = run("replay", session_file, "--store", session_file)
    assert done.code == 2
    assert "is a file; a store is a folder" in done.err
    shutil.rmtree(tmp_path / "store", ignore_errors=True)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("32k", 32_000), ("1M", 1_000_000), ("128_000", 128_000), ("258.4k", 258_400), ("200,000", 200_000)],
)
def test_a_limit_is_written_as_people_write_it(text: str, tokens: int) -> None:
    assert parse_tokens(text) == tokens


@pytest.mark.parametrize("text", ["", "k", "1e5", "-32k", "32kb", "٣٢"])
def test_a_limit_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--context-limit"):
        parse_tokens(text)
