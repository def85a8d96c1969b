"""Inspect: messages joined with the model events that made them, monitors apart, attachments put back."""

from __future__ import annotations

import json
import zipfile
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
from transom.importers import inspect_eval
from transom.importers.draft import Item, Note, Quarantined, Said, Unknown
from transom.importers.source import open_source
from transom.testing.imports import broken_rules, facts, figures

_LOG = Path(__file__).parent / "data" / "inspect" / "log.json"


def _read(path: Path, store: Path) -> list[Item]:
    source = open_source(path)
    assert inspect_eval.sniff(source)
    items = list(inspect_eval.parse(source, DirBlobs(store, is_synced=False)))
    assert not list(broken_rules(items))
    return items


def _archive(path: Path) -> Path:
    """The same log as Inspect packs it."""
    log = json.loads(_LOG.read_text())
    samples = log.pop("samples")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("_journal/start.json", json.dumps({"version": 2, "eval": log["eval"], "plan": {}}))
        archive.writestr("samples/safe_epoch_2.json", json.dumps(samples[0], indent=1, ensure_ascii=False))
        archive.writestr("samples/torn_epoch_1.json", '{"id": "to')
        archive.writestr("header.json", json.dumps(log))
    return path


def test_a_sample_is_a_session_whose_head_is_what_its_model_was_sent(tmp_path: Path) -> None:
    items = _read(_LOG, tmp_path)
    assert {item.session for item in items if isinstance(item, Said)} == {"run9-safe-2"}
    opened, started, head, *_ = facts(items)
    assert opened == SessionOpened(
        format=1, agent="inspect", agent_version="0.3.1", model="bank/safe-1", title="vault safe"
    )
    assert isinstance(started, Observed)
    assert isinstance(head, EpochOpened)
    assert head.sections == (Section(key="system", text="You crack safes.\nQuietly."),)
    assert [(tool.name, json.loads(tool.schema)) for tool in head.tools] == [("bash", {"type": "object"})]


def test_a_reply_has_the_usage_of_its_model_event_split_by_what_the_total_says(tmp_path: Path) -> None:
    items = _read(_LOG, tmp_path)
    first, second = [fact for fact in facts(items) if isinstance(fact, ModelReplied)]
    thought, text, *calls = first.blocks
    assert isinstance(thought, Thought)
    assert (thought.text, json.loads(thought.opaque)["signature"]) == ("Listen.", "c2E=")
    assert text == Text(text='I turn the "dial".')
    assert [call.call_id for call in calls if isinstance(call, ToolCall)] == ["q1", "q2"]
    assert [json.loads(call.arguments) for call in calls if isinstance(call, ToolCall)] == [
        {"cmd": "dial"},
        {"code": "1/0"},
    ]
    assert (first.model, first.stop_reason) == ("safe-1", "tool_calls")
    assert first.usage == Usage(uncached=5, cached=8, written=7, output=6)
    assert second.usage == Usage(uncached=10, cached=20, output=2, reasoning=1)


def test_a_monitors_call_is_observed_with_its_attachments_and_never_said(tmp_path: Path) -> None:
    watched = [fact for fact in facts(_read(_LOG, tmp_path)) if isinstance(fact, Observed) and "model" in fact.kind]
    assert [fact.kind for fact in watched] == ["model bank/watcher"]
    event = json.loads(watched[0].raw)
    assert event["input"][0]["content"] == 'I turn the "dial".'
    assert event["output"]["usage"]["input_tokens"] == 40


def test_results_errors_and_who_spoke_are_told_apart(tmp_path: Path) -> None:
    items = _read(_LOG, tmp_path)
    said = facts(items)
    assert [fact for fact in said if isinstance(fact, ToolReturned)] == [
        ToolReturned(call_id="q1", blocks=(ToolResultRaw(text="click"),)),
        ToolReturned(call_id="q2", blocks=(ToolResultRaw(text="Command timed out."),), is_error=True),
    ]
    assert [fact for fact in said if isinstance(fact, UserSaid | HostSaid)] == [
        UserSaid(blocks=(Text(text="Open the safe."),)),
        HostSaid(kind="injected", blocks=(Text(text="Go on."),)),
        UserSaid(blocks=(Text(text="Close it."),), by="operator"),
    ]
    epochs = [fact for fact in said if isinstance(fact, EpochOpened)]
    assert [(epoch.reason, len(epoch.tools)) for epoch in epochs] == [("initial", 1), ("change:tools", 0)]
    assert {"result beside an error", "score", "scores", "target", "metadata", "message"} <= {
        fact.kind for fact in said if isinstance(fact, Observed)
    }
    unknown = [item.kind for item in items if isinstance(item, Unknown)]
    assert unknown == ["message of role seer", "sample of unknown shape"]
    times = {item.uuid: item.at - 1748772000000 for item in items if isinstance(item, Said)}
    assert (times["u1"], times["a1"], times["t1"]) == (1000, 2500, 5000)


def test_an_archive_reads_as_the_document_and_a_torn_sample_is_quarantined(tmp_path: Path) -> None:
    items = _read(_archive(tmp_path / "log.eval"), tmp_path / "store")
    document = [item for item in _read(_LOG, tmp_path / "store") if isinstance(item, Said)]
    said = [item for item in items if isinstance(item, Said)]
    assert [(item.uuid, item.at, type(item.fact)) for item in said] == [
        (item.uuid, item.at, type(item.fact)) for item in document
    ]
    torn = [item for item in items if isinstance(item, Quarantined)]
    assert [item.raw for item in torn] == ['{"id": "to']


def test_a_sample_without_events_keeps_its_conversation(tmp_path: Path) -> None:
    log = json.loads(_LOG.read_text())
    sample = log["samples"][0]
    del sample["events"]
    sample["messages"].insert(0, {"role": "system", "content": "attachment://00000000000000000000000000000000"})
    log["samples"] = [sample]
    path = tmp_path / "log.json"
    path.write_text(json.dumps(log))
    items = _read(path, tmp_path / "store")
    head = facts(items)[1]
    assert head == EpochOpened(sections=(Section(key="system", text="attachment://00000000000000000000000000000000"),))
    assert figures(items).usages == 0
    assert figures(items).replies == 2


def test_a_log_without_samples_says_so(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text('{"version": 2, "eval": {"run_id": "r", "task": "t"}, "samples": []}')
    (note,) = _read(path, tmp_path / "store")
    assert isinstance(note, Note)
    path.write_text('{"version": 2, "eval": {"run_id": "r", "task": "t"}, "samples": 3}')
    with pytest.raises(BadInput, match="samples"):
        _read(path, tmp_path / "store")


def test_every_shared_log_has_the_figures_of_the_manifest(shared: Path, tmp_path: Path) -> None:
    """The manifest's usage is of all calls of the evaluated model. A reply that another model made in its place is said
    with that model's usage, and a try of its own that was discarded is `Observed` with its own."""
    entries = json.loads((shared / "MANIFEST.json").read_bytes())["files"]
    for entry in (entry for entry in entries if entry["format"] == inspect_eval.FORMAT):
        items = _read(shared / entry["file"], tmp_path)
        got = figures(items)
        assert (got.replies, got.calls, got.results, got.errors) == (
            entry["assistant_steps"],
            entry["tool_calls"],
            entry["tool_results"],
            entry["tool_errors"],
        )
        assert len({item.session for item in items if isinstance(item, Said)}) == entry["samples"]
        model = entry["models"][0]
        discarded = [
            json.loads(fact.raw)["output"]["usage"]
            for fact in facts(items)
            if isinstance(fact, Observed) and fact.kind == f"model {model}"
        ]
        family = model.partition("/")[2].rpartition("-")[0][:8]
        own = [
            fact.usage
            for fact in facts(items)
            if isinstance(fact, ModelReplied) and fact.usage is not None and fact.model.startswith(family)
        ]
        usage = entry["usage"]
        assert (
            len(own) + len(discarded),
            sum(one.uncached for one in own) + sum(one["input_tokens"] for one in discarded),
            sum(one.cached for one in own) + sum(one.get("input_tokens_cache_read", 0) for one in discarded),
            sum(one.written for one in own) + sum(one.get("input_tokens_cache_write", 0) for one in discarded),
            sum(one.output for one in own) + sum(one["output_tokens"] for one in discarded),
        ) == (
            usage["calls_with_usage"],
            usage["uncached_input"],
            usage["cache_read"],
            usage["cache_write"] or 0,
            usage["output"],
        )
