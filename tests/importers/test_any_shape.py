"""Records of any shape: whatever JSON stands in a field, the importers read what they can and never fail."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.adapters.blobs import DirBlobs
from transom.adapters.counter import HeuristicCounter
from transom.adapters.memory_log import MemoryLog
from transom.core.event import ModelReplied, ToolReturned, UserSaid
from transom.errors import BadInput
from transom.importers.load import load

__all__: list[str] = []

DATA = Path(__file__).parent / "data"
FILES = (
    DATA / "claude-code" / "session.jsonl",
    DATA / "claude-code" / "stream.jsonl",
    DATA / "pi" / "tree.jsonl",
    DATA / "pi" / "list.jsonl",
)

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text()
    | st.sampled_from(
        ["r1a", "t1", "opened", "user", "assistant", "system", "tool_result", "2026-03-01T10:00:00Z", "\ud83d"]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The path of every value inside a value."""
    found = [path]
    if isinstance(value, dict):
        for key, inner in value.items():
            found += places(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            found += places(inner, (*path, number))
    return found


def put(value: object, path: tuple[str | int, ...], new: object) -> object:
    if not path:
        return new
    first, *rest = path
    if isinstance(value, dict):
        return {key: put(inner, tuple(rest), new) if key == first else inner for key, inner in value.items()}
    assert isinstance(value, list)
    return [put(inner, tuple(rest), new) if number == first else inner for number, inner in enumerate(value)]


def parsed(line: bytes) -> object:
    try:
        found: object = json.loads(line)
    except ValueError:
        return None
    return found


USAGES = (
    "claude-code/session.jsonl",
    "claude-code/stream.jsonl",
    "gemini-cli/session.json",
    "inspect/log.json",
    "mini-swe-agent/api.traj.json",
    "openai-chat/run.completion.json",
    "opencode/session.json",
    "openhands/output.jsonl",
    "pi/tree.jsonl",
    "terminal-bench/calls.trajectory.json",
)
FIGURE = re.compile(
    r'("(?:\w*tokens?\w*|input|output|cache\w*|reasoning|thoughts|total|read|write|\w*cost\w*)"\s*:\s*)-?\d+(?:\.\d+)?'
)


def conversation(folder: Path, file: Path) -> list[str]:
    """The facts a file is read as, without figures."""
    log = MemoryLog()
    load(file, log=log, blobs=DirBlobs(folder / "blobs", is_synced=False), counter=HeuristicCounter())
    facts = (event.fact for row in log.sessions() for event in log.read(row.session_id))
    return [str(fact.blocks) for fact in facts if isinstance(fact, ModelReplied | ToolReturned | UserSaid)]


@pytest.mark.parametrize("name", USAGES)
@pytest.mark.parametrize("figure", ['"many"', "-5", "1e30", "1.5", "null", "[]", "true", "99999999999999999999999"])
def test_a_reply_whose_figures_are_of_no_use_is_kept_without_them(tmp_path: Path, name: str, figure: str) -> None:
    file = DATA / name
    text, count = FIGURE.subn(rf"\g<1>{figure}", file.read_text())
    changed = tmp_path / file.parent.name / file.name
    changed.parent.mkdir()
    changed.write_text(text)
    assert count
    assert conversation(tmp_path, changed) == conversation(tmp_path, file)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
@given(data=st.data())
def test_a_value_of_any_shape_anywhere_never_makes_an_import_fail(
    tmp_path_factory: pytest.TempPathFactory, file: Path, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("shape")
    lines = file.read_bytes().splitlines()
    for _ in range(data.draw(st.integers(1, 3))):
        number = data.draw(st.integers(0, len(lines) - 1))
        record = parsed(lines[number])
        path = data.draw(st.sampled_from(places(record)))
        lines[number] = json.dumps(put(record, path, data.draw(VALUES))).encode("utf-8", "surrogatepass")
    target = folder / "s.jsonl"
    target.write_bytes(b"\n".join(lines))
    log = MemoryLog()
    blobs = DirBlobs(folder / "blobs", is_synced=False)
    with suppress(BadInput):
        for _ in range(2):
            load(target, log=log, blobs=blobs, counter=HeuristicCounter())
    assert not [found for found in log.verify() if found.problem]
