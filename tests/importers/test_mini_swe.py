"""mini-swe-agent: API calls with everything beside them, and the first form with fenced commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from transom.adapters.blobs import DirBlobs
from transom.core.block import Text, Thought, ToolCall, ToolResultRaw
from transom.core.event import (
    EpochOpened,
    HostSaid,
    ModelReplied,
    Observed,
    RequestFailed,
    Section,
    SessionOpened,
    ToolReturned,
    Usage,
    UserSaid,
)
from transom.errors import BadInput
from transom.importers import mini_swe
from transom.importers.draft import Item, Note, Said, Unknown
from transom.importers.source import open_source
from transom.testing.imports import broken_rules, facts, figures

_DATA = Path(__file__).parent / "data" / "mini-swe-agent"


def _read(path: Path, store: Path) -> list[Item]:
    source = open_source(path)
    assert mini_swe.sniff(source)
    items = list(mini_swe.parse(source, DirBlobs(store, is_synced=False)))
    assert not list(broken_rules(items))
    return items


def test_a_trajectory_says_what_was_sent_and_keeps_aside_what_was_not(tmp_path: Path) -> None:
    items = _read(_DATA / "api.traj.json", tmp_path)
    opened, head, task, first, result, uncut, *_ = facts(items)
    assert opened == SessionOpened(
        format=1,
        agent="mini-swe-agent",
        agent_version="2.9.9",
        model="shop/tinker",
        workspace="/repo",
        title="pipes-1",
    )
    assert head == EpochOpened(sections=(Section(key="system", text="You use a shell."),))
    assert task == UserSaid(blocks=(Text(text="<task>Stop the leak in pipe.py</task>"),))
    assert first == ModelReplied(
        blocks=(
            Thought(text="A leak."),
            Text(text="Let me look."),
            ToolCall(call_id="b1", name="bash", arguments='{"command": "cat pipe.py"}'),
        ),
        model="tinker-0",
        stop_reason="tool_calls",
        usage=Usage(uncached=36, cached=64, output=20, cost_microusd=4000),
        response_id="r1",
    )
    assert isinstance(result, ToolReturned)
    assert (result.exit_code, result.is_error, result.effect) == (0, False, "external")
    assert isinstance(uncut, Observed)
    assert "ab middle yz" in uncut.raw


def test_a_refused_reply_a_timeout_and_the_end_of_the_run_are_told_apart(tmp_path: Path) -> None:
    items = _read(_DATA / "api.traj.json", tmp_path)
    *_, told, silent, result, odd, ended, failed, info = facts(items)
    assert told == HostSaid(kind="injected", blocks=(Text(text="Tool call error: use the bash tool."),))
    assert isinstance(silent, ModelReplied)
    assert silent.usage is None
    assert isinstance(result, ToolReturned)
    assert (result.is_error, result.exit_code) == (True, -1)
    assert isinstance(odd, Observed)
    assert isinstance(ended, Observed)
    assert ended.kind == "exit"
    assert failed == RequestFailed(kind="rate", message="litellm.RateLimitError: slow down")
    assert isinstance(info, Observed)
    assert info.kind == "info"
    assert [item.kind for item in items if isinstance(item, Unknown)] == ["message of role oracle"]
    assert [item.text for item in items if isinstance(item, Note)] == ["the run ended with: RateLimitError"]


def test_times_are_those_of_the_messages_even_when_the_clock_goes_backwards(tmp_path: Path) -> None:
    items = _read(_DATA / "api.traj.json", tmp_path)
    dates = [item.at for item in items if isinstance(item, Said) and isinstance(item.fact, ModelReplied)]
    assert dates == [1700000000500, 1700000002000, 1700000001500]


def test_one_fenced_command_is_a_call_and_several_are_none(tmp_path: Path) -> None:
    items = _read(_DATA / "fenced.traj.json", tmp_path)
    _, _, task, first, result, refused, told, last = facts(items)
    assert isinstance(task, UserSaid)
    fence = "```mswea_bash_command\nls -la\n```"
    call = ToolCall(call_id="m3.call", name="bash", arguments=fence)
    assert first == ModelReplied(blocks=(Text(text="THOUGHT: look\n\n"), call))
    seen = "<returncode>0</returncode>\n<output>\nlamp.py\n</output>"
    assert result == ToolReturned(call_id="m3.call", blocks=(ToolResultRaw(text=seen),), exit_code=0)
    assert isinstance(refused, ModelReplied)
    assert [type(block) for block in refused.blocks] == [Text]
    assert isinstance(told, HostSaid)
    assert isinstance(last, ModelReplied)
    assert [type(block) for block in last.blocks] == [ToolCall]


def test_a_trajectory_without_messages_is_refused_with_the_field(tmp_path: Path) -> None:
    path = tmp_path / "x.traj.json"
    path.write_text('{"info": {"mini_version": "1"}, "trajectory_format": "mini-swe-agent-1.1"}')
    with pytest.raises(BadInput, match=r"x\.traj\.json.*messages"):
        _read(path, tmp_path)


def test_every_shared_trajectory_has_the_figures_of_the_manifest(shared: Path, tmp_path: Path) -> None:
    entries = json.loads((shared / "MANIFEST.json").read_bytes())["files"]
    for entry in (entry for entry in entries if entry["format"] == mini_swe.FORMAT):
        got = figures(_read(shared / entry["file"], tmp_path))
        usage = entry["usage"] or dict.fromkeys(("calls_with_usage", "uncached_input", "cache_read", "output"), 0)
        assert (got.replies, got.calls, got.results, got.errors) == (
            entry["assistant_steps"],
            entry["tool_calls"],
            entry["tool_results"],
            entry["tool_errors"],
        )
        assert (got.usages, got.uncached, got.cached, got.output) == (
            usage["calls_with_usage"],
            usage["uncached_input"],
            usage["cache_read"],
            usage["output"],
        )
        assert got.prompts == 1  # the task, which the manifest does not count as typed
