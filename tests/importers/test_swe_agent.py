"""SWE-agent: commands in words, commands as calls, demonstrations, cleared observations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from transom.adapters.blobs import DirBlobs
from transom.core.block import Text, Thought, ToolCall, ToolResultRaw, ToolResultRef
from transom.core.event import (
    EpochOpened,
    HostSaid,
    ModelReplied,
    Observed,
    Section,
    SessionOpened,
    ToolReturned,
    UserSaid,
)
from transom.errors import BadInput
from transom.importers import swe_agent
from transom.importers.draft import Cleared, Item, Note, Unknown
from transom.importers.source import open_source
from transom.testing.imports import broken_rules, facts, figures

_DATA = Path(__file__).parent / "data" / "swe-agent"


def _read(path: Path, store: Path) -> list[Item]:
    source = open_source(path)
    assert swe_agent.sniff(source)
    items = list(swe_agent.parse(source, DirBlobs(store, is_synced=False)))
    assert not list(broken_rules(items))
    return items


def test_an_old_trajectory_has_its_commands_as_calls_and_its_example_as_host_text(tmp_path: Path) -> None:
    items = _read(_DATA / "old.traj", tmp_path)
    opened, head, demo, rung, task, first, result, told, *_ = facts(items)
    assert opened == SessionOpened(format=1, agent="swe-agent", workspace="/door", title="old")
    assert head == EpochOpened(sections=(Section(key="system", text="A special interface."),))
    assert isinstance(demo, HostSaid)
    assert isinstance(rung, HostSaid)
    assert task == UserSaid(blocks=(Text(text="ISSUE: lock.py has no key"),))
    call = ToolCall(call_id="h5.call", name="open", arguments="```\nopen lock.py\n```")
    assert first == ModelReplied(blocks=(Text(text="Let me open it."), call))
    seen = "[File: lock.py]\n1:KEY = None\nbash-$"
    assert result == ToolReturned(call_id="h5.call", blocks=(ToolResultRaw(text=seen),), effect="read")
    assert told == HostSaid(kind="injected", blocks=(Text(text="Mind the time."),))


def test_what_the_agent_says_itself_and_what_came_too_late_was_never_sent(tmp_path: Path) -> None:
    items = _read(_DATA / "old.traj", tmp_path)
    *_, submitted, ended, odd, late, info = facts(items)
    assert isinstance(submitted, ModelReplied)
    assert submitted.blocks[-1] == ToolCall(call_id="h8.call", name="submit", arguments="submit")
    kinds = [fact.kind for fact in (ended, odd, late, info) if isinstance(fact, Observed)]
    assert kinds == ["exit", "message", "observation", "info"]
    assert [item.kind for item in items if isinstance(item, Unknown)] == ["message of unknown shape"]
    assert [item.text for item in items if isinstance(item, Note)] == ["the run ended with: exit_cost"]


def test_a_newer_trajectory_has_calls_thoughts_and_the_observations_its_agent_cleared(tmp_path: Path) -> None:
    items = _read(_DATA / "new.traj", tmp_path)
    opened, _, _, first, result, second, *_ = facts(items)
    assert opened == SessionOpened(
        format=1, agent="swe-agent", agent_version="1.9.0", model="roofer", workspace="/house", title="roof-7"
    )
    assert isinstance(first, ModelReplied)
    assert [type(block) for block in first.blocks] == [Thought, Text, ToolCall]
    assert isinstance(result, ToolReturned)
    assert result.call_id == "k1"
    assert isinstance(second, ModelReplied)
    cleared = [item for item in items if isinstance(item, Cleared)]
    stub = ToolResultRef(text="Old environment output: (2 lines omitted)")
    assert [(item.how, item.targets) for item in cleared] == [("mask", (("h4", stub),))]
    place = items.index(cleared[0])
    assert facts(items[:place])[-1] == facts(items)[6]  # after the second result, before the third reply
    assert isinstance(facts(items[place:])[0], ModelReplied)


def test_a_trajectory_without_history_is_refused_with_the_field(tmp_path: Path) -> None:
    path = tmp_path / "x.traj"
    path.write_text('{"trajectory": [{"observation": ""}]}')
    with pytest.raises(BadInput, match="history"):
        _read(path, tmp_path)


def test_every_shared_trajectory_has_the_figures_of_the_manifest(shared: Path, tmp_path: Path) -> None:
    """The manifest counts steps of `trajectory`. One whose action is `exit_…` is no reply of a model here, and the
    observation after the last command, which no request held, is no result."""
    entries = json.loads((shared / "MANIFEST.json").read_bytes())["files"]
    for entry in (entry for entry in entries if entry["format"] == swe_agent.FORMAT):
        items = _read(shared / entry["file"], tmp_path)
        kinds = [fact.kind for fact in facts(items) if isinstance(fact, Observed)]
        exits, late = kinds.count("exit"), kinds.count("observation")
        got = figures(items)
        assert (got.replies + exits, got.calls + exits) == (entry["assistant_steps"], entry["tool_calls"])
        assert got.results + late == entry["tool_results"]
        assert (got.usages, got.prompts) == (0, 1)  # totals only; the task
