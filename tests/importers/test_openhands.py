"""OpenHands: conversation folders with condensations (V1), and evaluation output (V0)."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

from transom.adapters.blobs import DirBlobs
from transom.core.block import Text, Thought, ToolCall, ToolResultRaw
from transom.core.event import (
    EpochOpened,
    HostSaid,
    ModelReplied,
    Observed,
    Seed,
    SessionOpened,
    ToolReturned,
    Usage,
    UserSaid,
)
from transom.importers import openhands
from transom.importers.draft import Compacted, Item, Note, Quarantined, Said, Unknown
from transom.importers.source import open_source
from transom.testing.imports import broken_rules, facts, figures

_DATA = Path(__file__).parent / "data" / "openhands"
_FOLDER = _DATA / "conversation"


def _read(path: Path, store: Path) -> list[Item]:
    source = open_source(path)
    assert openhands.sniff(source)
    items = list(openhands.parse(source, DirBlobs(store, is_synced=False)))
    assert not list(broken_rules(items))
    return items


def test_a_conversation_opens_with_its_settings_and_its_whole_head(tmp_path: Path) -> None:
    items = _read(_FOLDER, tmp_path)
    opened, head, asked, added, *_ = facts(items)
    assert opened == SessionOpened(format=1, agent="openhands", model="maker/m", workspace="/yard", context_limit=5000)
    assert isinstance(head, EpochOpened)
    assert [section.text for section in head.sections] == ["You garden."]
    assert [tool.name for tool in head.tools] == ["read_file"]
    assert asked == UserSaid(blocks=(Text(text="Mow the lawn."),))
    assert added == HostSaid(kind="injected", blocks=(Text(text="<microagent>Mind the cat.</microagent>"),))
    assert {item.session for item in items if isinstance(item, Said)} == {"conv-1"}
    assert [item.at for item in items if isinstance(item, Said)][1] == 1735787040500  # no zone: UTC


def test_the_actions_of_one_response_are_one_reply_and_its_usage_counts_once(tmp_path: Path) -> None:
    reply, *results = facts(_read(_FOLDER, tmp_path))[4:7]
    assert reply == ModelReplied(
        blocks=(
            Thought(text="Grass."),
            Text(text="Both at once."),
            ToolCall(call_id="x1", name="execute_bash", arguments='{"command": "mow"}'),
            ToolCall(call_id="x2", name="str_replace_editor", arguments='{"command": "view", "path": "lawn"}'),
        ),
        model="maker/m",
        usage=Usage(uncached=20, cached=80, written=30, output=10, reasoning=0, cost_microusd=500000),
        response_id="r1",
    )
    shown = (
        "mow: no fuel\n[exit 3]\n[Current working directory: /yard]\n[Python interpreter: /usr/bin/python]"
        "\n[Command finished with exit code 3]"
    )
    assert results == [
        ToolReturned(call_id="x1", blocks=(ToolResultRaw(text=shown),), exit_code=3),
        ToolReturned(call_id="x2", blocks=(ToolResultRaw(text="No such lawn."),), is_error=True, effect="read"),
    ]


def test_a_condensation_keeps_what_is_whole_around_its_summary(tmp_path: Path) -> None:
    """The result of a forgotten call goes with it, and so does the call of a forgotten result. The summary's place
    counts the system prompt, which is no part of the body."""
    first, second = [item for item in _read(_FOLDER, tmp_path) if isinstance(item, Compacted)]
    assert first.seed == (Seed(role="host", blocks=(Text(text="The mower has no fuel."),)),)
    assert (first.kept_head, first.kept_tail) == (("usr", "usr.1"), ())
    assert second.seed == (Seed(role="host", blocks=(Text(text="Fuel is needed."),)),)
    assert (second.kept_head, second.kept_tail) == (("usr",), ("usr.1", "say"))


def test_errors_pauses_unknown_kinds_torn_files_and_the_condensers_calls_are_kept(tmp_path: Path) -> None:
    items = _read(_FOLDER, tmp_path)
    said = facts(items)
    thought, failed = said[8:10]
    assert isinstance(thought, ModelReplied)
    assert thought.blocks == (ToolCall(call_id="x3", name="think", arguments='{"thought": "fuel"}'),)
    assert thought.usage == Usage(uncached=61, output=5, cost_microusd=250000)
    assert failed == ToolReturned(
        call_id="x3", blocks=(ToolResultRaw(text="Thinking is off."),), is_error=True, effect="none"
    )
    assert [fact.kind for fact in said if isinstance(fact, Observed)] == [
        "observation",
        "PauseEvent",
        "GardenEvent",
        "usage of condenser",
    ]
    assert [item.kind for item in items if isinstance(item, Unknown)] == ["GardenEvent"]
    torn = [item for item in items if isinstance(item, Quarantined)]
    assert [item.raw for item in torn] == ['{"id":"torn","kind":"Act']
    assert "event-00013-torn.json" in torn[0].why


def test_a_tar_of_a_conversation_reads_as_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "one.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(_FOLDER, "a")
    assert facts(_read(path, tmp_path / "store")) == facts(_read(_FOLDER, tmp_path / "store"))


def test_a_conversation_without_its_state_is_named_by_its_folder_and_has_no_usage(tmp_path: Path) -> None:
    shutil.copytree(_FOLDER / "events", tmp_path / "b" / "events")
    items = _read(tmp_path / "b", tmp_path / "store")
    bare = facts(items, "b")
    assert bare[0] == SessionOpened(format=1, agent="openhands")
    assert [fact.usage for fact in bare if isinstance(fact, ModelReplied)] == [None, None, None]
    (tmp_path / "b" / "base_state.json").write_text('{"id": "con')
    torn = [item for item in _read(tmp_path / "b", tmp_path / "store") if isinstance(item, Quarantined)]
    assert "base_state.json" in torn[0].why


def test_a_folder_of_conversations_and_other_things_is_no_conversation(tmp_path: Path) -> None:
    shutil.copytree(_FOLDER, tmp_path / "x" / "one")
    (tmp_path / "x" / "notes.txt").write_text("?")
    assert not openhands.sniff(open_source(tmp_path / "x"))


def test_an_evaluation_instance_says_each_response_once_and_pairs_by_cause(tmp_path: Path) -> None:
    items = _read(_DATA / "output.jsonl", tmp_path)
    said = facts(items, "fence-1-2025-01-02 03:04:00")
    opened, head, asked, recall, recalled, reply, listed, missing, told, by_hand, wet, done, go_on, odd, *rest = said
    assert opened == SessionOpened(format=1, agent="openhands", model="cfg-model", title="fence-1")
    assert isinstance(head, EpochOpened)
    assert isinstance(asked, UserSaid)
    assert isinstance(recall, Observed)
    assert isinstance(recalled, Observed)
    assert isinstance(reply, ModelReplied)
    assert [type(block) for block in reply.blocks] == [Text, ToolCall, ToolCall]
    assert (reply.model, reply.stop_reason, reply.response_id) == ("v0-model", "tool_calls", "g1")
    assert reply.usage == Usage(uncached=70, cached=5, written=2, output=7)
    assert listed == ToolReturned(
        call_id="y1", blocks=(ToolResultRaw(text="fence\n[ok]\n[Command finished with exit code 0]"),), exit_code=0
    )
    assert missing == ToolReturned(
        call_id="y2", blocks=(ToolResultRaw(text="no such file"),), is_error=True, effect="read"
    )
    assert told == HostSaid(kind="injected", blocks=(Text(text="cannot parse the reply"),))
    assert by_hand == ModelReplied(
        blocks=(
            Text(text="By hand."),
            ToolCall(call_id="e9.call", name="run", arguments='{"command": "paint", "thought": "By hand."}'),
        ),
        model="cfg-model",
    )
    assert wet == ToolReturned(call_id="e9.call", blocks=(ToolResultRaw(text="wet"),))
    assert done == ModelReplied(blocks=(Text(text="Painted."),), model="cfg-model")
    assert go_on == HostSaid(kind="continue", blocks=(Text(text="Please continue."),))
    assert isinstance(odd, Observed)
    assert [fact.kind for fact in rest if isinstance(fact, Observed)] == ["usage", "instance", "test_result"]


def test_a_condensation_of_a_range_forgets_what_stands_in_it(tmp_path: Path) -> None:
    (condensed,) = [item for item in _read(_DATA / "output.jsonl", tmp_path) if isinstance(item, Compacted)]
    assert (condensed.kept_head, condensed.kept_tail) == (("e1",), ("e8", "e9", "e10"))


def test_the_first_files_pair_actions_and_observations_and_a_torn_line_is_said(tmp_path: Path) -> None:
    items = _read(_DATA / "output.jsonl", tmp_path)
    assert [type(fact) for fact in facts(items, "fence-2")] == [SessionOpened, UserSaid, Observed, Observed]
    assert any(isinstance(item, Note) and "torn" in item.text for item in items)
    assert [item.line for item in items if isinstance(item, Quarantined)] == [3]


def test_every_shared_conversation_has_the_figures_of_the_manifest(shared: Path, tmp_path: Path) -> None:
    """The manifest's usage includes the condenser's calls; here they are `Observed`. In V0 it counts the two system
    prompts as steps, leaves out the calls of `think` and `finish`, and counts a recall and an error without a call."""
    entries = json.loads((shared / "MANIFEST.json").read_bytes())["files"]
    for entry in (entry for entry in entries if entry["format"] == openhands.FORMAT):
        items = _read(shared / entry["file"], tmp_path)
        got = figures(items)
        beside = [json.loads(fact.raw) for fact in facts(items) if isinstance(fact, Observed) and "usage" in fact.kind]
        if entry["usage"] is not None:
            names = ("prompt_tokens", "cache_read_tokens", "cache_write_tokens", "completion_tokens")
            prompt, cached, written, output = (sum(usage[name] for usage in beside) for name in names)
            assert (
                got.usages + len(beside),
                got.uncached + prompt - cached,
                got.cached + cached,
                got.written + written,
                got.output + output,
            ) == (
                entry["usage"]["calls_with_usage"],
                entry["usage"]["uncached_input"],
                entry["usage"]["cache_read"],
                entry["usage"]["cache_write"] or 0,
                entry["usage"]["output"],
            )
        if "instances" in entry:
            assert (got.replies, got.calls, got.results) == (56, 56, 54)
            continue
        assert (got.prompts, got.replies, got.calls, got.results, got.errors) == (
            entry["user_prompts"],
            entry["assistant_steps"],
            entry["tool_calls"],
            entry["tool_results"],
            entry["tool_errors"],
        )
        assert got.compactions == entry["compaction"]["Condensation"]
