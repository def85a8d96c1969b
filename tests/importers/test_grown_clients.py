"""A session that is imported while its client still writes it goes on at the next import, and never forks."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from transom.adapters.blobs import DirBlobs
from transom.adapters.counter import HeuristicCounter
from transom.adapters.memory_log import MemoryLog
from transom.core.event import Fact, Observed, SessionOpened, SourceRead
from transom.errors import BadInput
from transom.importers.load import load

__all__: list[str] = []

DATA = Path(__file__).parent / "data"
ROLLOUTS = ["after_outputs", "before_outputs", "before_items"]


class Store:
    """An empty store, and imports into it."""

    def __init__(self, folder: Path) -> None:
        self.log = MemoryLog()
        self.blobs = DirBlobs(folder, is_synced=False)
        self.counter = HeuristicCounter()

    def load(self, path: Path) -> set[str]:
        done = load(path, log=self.log, blobs=self.blobs, counter=self.counter)
        return {imported.status for imported in done}

    def facts(self) -> dict[tuple[str, str], Fact]:
        """Everything but how it was read, what could not be, and the digests that links name."""
        return {
            (row.session_id, event.uuid): event.fact
            for row in self.log.sessions()
            for event in self.log.read(row.session_id)
            if not isinstance(event.fact, SourceRead | SessionOpened)
            and not (isinstance(event.fact, Observed) and event.fact.kind == "quarantined")
        }


@pytest.mark.parametrize(
    "whole", [*(DATA / "codex" / f"{name}.jsonl" for name in ROLLOUTS), DATA / "copilot-cli" / "events.jsonl"]
)
def test_a_log_cut_behind_any_line_goes_on_when_it_has_grown(whole: Path, tmp_path: Path) -> None:
    fresh = Store(tmp_path / "blobs")
    fresh.load(whole)
    lines = whole.read_text("utf-8").splitlines(keepends=True)
    path = tmp_path / "growing.jsonl"
    for count in range(1, len(lines)):
        store = Store(tmp_path / "blobs")
        path.write_text("".join(lines[:count]), encoding="utf-8")
        assert store.load(path) == {"new"}
        path.write_text("".join(lines), encoding="utf-8")
        assert "fork" not in store.load(path), f"cut behind line {count}"
        assert store.facts() == fresh.facts(), f"cut behind line {count}"


def as_of(messages: list[Any], at: int) -> list[Any]:
    """The messages as they were at a time: nothing was pruned after it yet."""
    earlier = copy.deepcopy(messages)
    for message in earlier:
        for part in message["parts"]:
            time = part.get("state", {}).get("time", {})
            if time.get("compacted", 0) > at:
                del time["compacted"]
    return earlier


def test_an_export_taken_during_a_step_goes_on_when_the_step_has_ended(tmp_path: Path) -> None:
    whole = json.loads((DATA / "opencode" / "session.json").read_text("utf-8"))
    messages: list[Any] = [message for message in whole["messages"] if "id" in message["info"]]
    del whole["info"]["revert"]
    path = tmp_path / "export.json"

    def export(messages: list[Any]) -> Path:
        path.write_text(json.dumps(whole | {"messages": messages}), encoding="utf-8")
        return path

    fresh = Store(tmp_path / "blobs")
    fresh.load(export(messages))
    for number, message in enumerate(messages):
        info = message["info"]
        if info["role"] == "assistant":
            at = info["time"]["created"]
            answering = {name: info[name] for name in info.keys() - {"finish", "error"}}
            for count in range(len(message["parts"])):
                store = Store(tmp_path / "blobs")
                half = {"info": answering, "parts": message["parts"][:count]}
                store.load(export(as_of([*messages[:number], half], at)))
                assert "fork" not in store.load(export(messages)), f"{info['id']}, {count} parts"
                assert store.facts().keys() == fresh.facts().keys()


def test_a_message_whose_calls_still_run_is_left_for_the_next_import(tmp_path: Path) -> None:
    whole = json.loads((DATA / "gemini-cli" / "session.json").read_text("utf-8"))
    path = tmp_path / "session.json"
    running = json.loads(json.dumps(whole["messages"][2]))
    store = Store(tmp_path / "blobs")
    path.write_text(json.dumps(whole | {"messages": [*whole["messages"][:2], running]}), encoding="utf-8")
    assert store.load(path) == {"new"}
    assert not any(uuid == "m2" for _, uuid in store.facts())
    path.write_text(json.dumps(whole), encoding="utf-8")
    assert store.load(path) == {"grown"}
    assert any(uuid == "m2" for _, uuid in store.facts())


def test_a_document_of_another_format_is_no_session(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text('{"sessionId": 1}', encoding="utf-8")
    with pytest.raises(BadInput, match="no transcript"):
        Store(tmp_path / "blobs").load(path)
