"""Any value of a document may be another than expected: the rest is still read, or one sentence says why not."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.adapters.blobs import DirBlobs
from transom.errors import BadInput
from transom.importers import chat, inspect_eval, mini_swe, openhands, swe_agent, terminal_bench
from transom.importers.source import open_source
from transom.testing.imports import broken_rules

_Json: TypeAlias = "bool | int | float | str | list[_Json] | dict[str, _Json] | None"

_DATA = Path(__file__).parent / "data"
_FILES: dict[str, ModuleType] = {
    "openai-chat/run.completion.json": chat,
    "openai-chat/anthropic.json": chat,
    "mini-swe-agent/api.traj.json": mini_swe,
    "swe-agent/old.traj": swe_agent,
    "swe-agent/new.traj": swe_agent,
    "inspect/log.json": inspect_eval,
    "terminal-bench/calls.trajectory.json": terminal_bench,
    "terminal-bench/words.trajectories.json": terminal_bench,
    "openhands/output.jsonl": openhands,
}
_ODD: list[_Json] = [None, True, -7, 1.5, 10**30, "", "\ud800", [], [[None]], {}, {"type": "?", "role": [1]}]


def _places(value: _Json, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _places(inner, (*path, key))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from _places(inner, (*path, at))


def _with(value: _Json, path: tuple[str | int, ...], odd: _Json) -> _Json:
    if not path:
        return odd
    changed = copy.copy(value)
    match changed, path[0]:
        case dict(), str(key):
            changed[key] = _with(changed[key], path[1:], odd)
        case list(), int(at):
            changed[at] = _with(changed[at], path[1:], odd)
    return changed


def _said(importer: ModuleType, path: Path, store: Path) -> list[str]:
    """The rules broken, where it could be read."""
    source = open_source(path)
    importer.sniff(source)
    try:
        return list(broken_rules(importer.parse(source, DirBlobs(store, is_synced=False))))
    except BadInput as error:
        return [] if str(path) in str(error) else [f"the sentence does not name the file: {error}"]


@pytest.mark.parametrize("name", _FILES)
@given(data=st.data())
def test_one_odd_value_never_stops_an_import_without_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("odd")
    document: _Json = json.loads((_DATA / name).read_text().split("\n{", 1)[0])
    place = data.draw(st.sampled_from(list(_places(document))))
    path = folder / Path(name).name
    path.write_text(json.dumps(_with(document, place, data.draw(st.sampled_from(_ODD)))))
    broken = _said(_FILES[name], path, folder / "store")
    assert not [rule for rule in broken if "settles the unknown call" not in rule and "was not said" not in rule]


@pytest.mark.parametrize("name", _FILES)
@given(data=st.data())
def test_a_file_cut_at_any_byte_never_stops_an_import_without_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    whole = (_DATA / name).read_bytes()
    path = folder / Path(name).name
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    assert not _said(_FILES[name], path, folder / "store")
