"""Terminal-Bench: ATIF with calls, ATIF with commands in words, Harbor trials with and without a trajectory."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from transom.adapters.blobs import DirBlobs
from transom.core.block import Text, Thought, ToolCall, ToolResultRaw
from transom.core.event import (
    EpochOpened,
    HostSaid,
    ModelReplied,
    Observed,
    Section,
    SessionOpened,
    ToolReturned,
    Usage,
    UserSaid,
)
from transom.errors import BadInput
from transom.importers import terminal_bench
from transom.importers.draft import Item, Note, Said, Unknown
from transom.importers.source import open_source
from transom.testing.imports import broken_rules, facts, figures

_DATA = Path(__file__).parent / "data" / "terminal-bench"


def _read(path: Path, store: Path) -> list[Item]:
    source = open_source(path)
    assert terminal_bench.sniff(source)
    items = list(terminal_bench.parse(source, DirBlobs(store, is_synced=False)))
    assert not list(broken_rules(items))
    return items


def test_one_observation_for_several_calls_goes_to_the_last_of_them(tmp_path: Path) -> None:
    items = _read(_DATA / "calls.trajectory.json", tmp_path)
    opened, head, task, reply, *results = facts(items)[:6]
    assert opened == SessionOpened(format=1, agent="terminus-2", agent_version="2.0.0", model="shop/t")
    assert isinstance(head, EpochOpened)
    assert head.sections == (Section(key="system", text="Be a terminal."),)
    assert [tool.name for tool in head.tools] == ["read_file"]
    assert task == UserSaid(blocks=(Text(text="Boil water."),))
    assert isinstance(reply, ModelReplied)
    assert reply.blocks[:2] == (Thought(text="Heat."), Text(text="Analysis: kettle"))
    assert [json.loads(block.arguments) for block in reply.blocks if isinstance(block, ToolCall)] == [
        {"keystrokes": "ls\n"},
        {"keystrokes": "boil\n"},
    ]
    assert reply.usage == Usage(uncached=26, cached=64, output=8, cost_microusd=300)
    assert results == [
        ToolReturned(call_id="z1", blocks=(ToolResultRaw(text=""),)),
        ToolReturned(call_id="z2", blocks=(ToolResultRaw(text="kettle\nboil: no power"),)),
    ]
    notes = [item.text for item in items if isinstance(item, Note)]
    assert len(notes) == 1
    assert notes[0].startswith("1 calls have an empty result")


def test_results_that_name_their_calls_are_paired_so_in_the_order_of_the_calls(tmp_path: Path) -> None:
    items = _read(_DATA / "calls.trajectory.json", tmp_path)
    results = [fact for fact in facts(items) if isinstance(fact, ToolReturned)][2:]
    assert [(result.call_id, result.blocks) for result in results] == [
        ("z3", (ToolResultRaw(text="ok"),)),
        ("z4", (ToolResultRaw(text="hot"),)),
    ]


def test_an_observation_without_a_call_is_the_hosts_and_what_is_unknown_is_kept(tmp_path: Path) -> None:
    items = _read(_DATA / "calls.trajectory.json", tmp_path)
    *_, silent, none, summarized, tea, dream, odd = facts(items)
    assert isinstance(silent, ModelReplied)
    assert none == HostSaid(kind="injected", blocks=(Text(text="No commands."),))
    assert summarized == HostSaid(kind="injected", blocks=(Text(text="Context was summarized."),))
    assert tea == UserSaid(blocks=(Text(text="Also tea."),))
    assert dream == Observed(kind="step", raw="zzz")
    assert isinstance(odd, Observed)
    assert json.loads(odd.raw) == {"step_id": "nine"}
    unknown = [item.kind for item in items if isinstance(item, Unknown)]
    assert unknown == ["step of source dreamer", "step of unknown shape"]


def test_commands_in_a_message_are_its_call_and_the_next_user_step_the_result(tmp_path: Path) -> None:
    items = _read(_DATA / "words.trajectories.json", tmp_path)
    assert list(dict.fromkeys(item.session for item in items if isinstance(item, Said))) == ["same.1", "same.2"]
    _, task, first, result, second, told, last = facts(items, "same.2")
    assert isinstance(task, UserSaid)
    assert isinstance(first, ModelReplied)
    before, call, after = first.blocks
    assert (before, after) == (Text(text="I see {braces}. "), Text(text=" Right."))
    assert isinstance(call, ToolCall)
    assert (call.call_id, call.name) == ("s2.call", "commands")
    assert json.loads(call.arguments)["commands"] == [{"keystrokes": "sort\n"}]
    assert result == ToolReturned(call_id="s2.call", blocks=(ToolResultRaw(text="New Terminal Output:\nsorted"),))
    assert isinstance(second, ModelReplied)
    assert told == HostSaid(kind="injected", blocks=(Text(text="ERROR: no valid JSON"),))
    assert isinstance(last, ModelReplied)
    assert [type(block) for block in last.blocks] == [ToolCall]
    assert [item.kind for item in items if isinstance(item, Unknown)] == ["trajectory of unknown shape"]


def test_a_trial_that_was_killed_is_read_from_its_episodes_in_their_order(tmp_path: Path) -> None:
    items = _read(_DATA / "trial", tmp_path)
    opened, task, reply, result, again, config, failure = facts(items)
    assert isinstance(opened, SessionOpened)
    assert task == UserSaid(blocks=(Text(text="Wash the car."),))
    assert isinstance(reply, ModelReplied)
    assert (reply.model, reply.usage) == ("washer-7b", Usage(uncached=3, cached=30, output=3))
    assert isinstance(result, ToolReturned)
    assert again == HostSaid(kind="injected", blocks=(Text(text="Still there?"),))
    assert isinstance(config, Observed)
    assert failure == Observed(kind="exception.txt", raw="TimeoutError: too slow\n")
    assert any(isinstance(item, Note) and "debug.json" in item.text for item in items)


def test_a_trial_in_a_tar_is_read_through_its_trajectory(tmp_path: Path) -> None:
    folder = tmp_path / "job" / "t1__x"
    shutil.copytree(_DATA / "trial", folder)
    shutil.copy(_DATA / "calls.trajectory.json", folder / "agent" / "trajectory.json")
    path = tmp_path / "trial.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, "t1__x")
    items = _read(path, tmp_path / "store")
    plain = facts(_read(_DATA / "calls.trajectory.json", tmp_path / "store"))
    assert facts(items)[: len(plain)] == plain
    assert [fact.kind for fact in facts(items)[len(plain) :] if isinstance(fact, Observed)] == [
        "config.json",
        "exception.txt",
    ]
    (folder / "agent" / "trajectory.json").write_text('{"schema_version": "ATIF-v1.5", "ste')
    assert facts(_read(folder, tmp_path / "store"))[1:] == facts(_read(_DATA / "trial", tmp_path / "store"))[1:]


def test_a_message_of_braces_ends_and_a_truncated_trajectory_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "x.trajectory.json"
    braces = json.dumps("{" * 100_000 + '{"a":' * 20_000)
    path.write_text(f'{{"schema_version":"ATIF-v1.4","steps":[{{"source":"agent","message":{braces}}}]}}')
    assert figures(_read(path, tmp_path / "store")).calls == 0
    path.write_text('{"schema_version":"ATIF-v1.4",\n"steps":[{"source":"age')
    with pytest.raises(BadInput, match="line 2"):
        _read(path, tmp_path / "store")


def test_every_shared_trial_has_the_figures_of_the_manifest(shared: Path, tmp_path: Path) -> None:
    """The manifest counts observations as results: here each call has one, and those without a text are empty. In the
    array it counts no calls, because they stand in words."""
    entries = json.loads((shared / "MANIFEST.json").read_bytes())["files"]
    for entry in (entry for entry in entries if entry["format"] == terminal_bench.FORMAT):
        items = _read(shared / entry["file"], tmp_path)
        got = figures(items)
        said = [fact for fact in facts(items) if isinstance(fact, ToolReturned)]
        assert got.replies == entry["assistant_steps"]
        if "trajectories" in entry:
            assert (got.prompts, got.calls, got.results, got.usages) == (5, 34, 29, 0)
            continue
        assert (got.calls, got.results) == (entry["tool_calls"], entry["tool_calls"])
        assert sum(fact.blocks != (ToolResultRaw(text=""),) for fact in said) == entry["tool_results"]
        assert (got.usages, got.uncached, got.cached, got.output) == (
            entry["usage"]["calls_with_usage"],
            entry["usage"]["uncached_input"],
            entry["usage"]["cache_read"],
            entry["usage"]["output"],
        )
