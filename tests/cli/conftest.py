"""Drives the real commands in process: an empty home, a store of its own, and files of our own making."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from transom.cli import main

__all__ = ["DATA", "Outcome", "Run", "claude_lines", "home", "run"]

DATA = Path(__file__).resolve().parents[1] / "importers" / "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a person gets."""

    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory with nothing in it, and no setting that leads out of it."""
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "PI_CODING_AGENT_DIR", "XDG_DATA_HOME", "COLUMNS", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("TRANSOM_HOME", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def run(home: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """`run("replay", "x.jsonl")` as the shell would."""

    def call(*arguments: str | Path) -> Outcome:
        code = main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return Outcome(code=code, out=said.out, err=said.err)

    return call


def claude_lines(steps: int, *, session: str = "11111111-2222-4333-8444-555555555555", words: str = "") -> list[str]:
    """A Claude Code session: a request, then `steps` reads of a file, each with its result and usage."""
    made: list[dict[str, object]] = [
        {"type": "user", "message": {"role": "user", "content": words or "Fix src/app.py. Never touch the API."}}
    ]
    for step in range(steps):
        call = {
            "type": "tool_use",
            "id": f"toolu_{step}",
            "name": "Read",
            "input": {"file_path": f"src/file_{step}.py"},
        }
        usage = {
            "input_tokens": 10,
            "cache_creation_input_tokens": 400,
            "cache_read_input_tokens": 12_000 + 400 * step,
            "output_tokens": 30,
        }
        reply = {
            "id": f"msg_{step}",
            "role": "assistant",
            "model": "claude-opus-4-5",
            "content": [call],
            "usage": usage,
        }
        made.append({"type": "assistant", "message": reply})
        body = f"{step}: " + "def handler(request):\n    return request.headers['Retry-After']\n" * 8
        result = {"type": "tool_result", "tool_use_id": f"toolu_{step}", "content": body}
        made.append({"type": "user", "message": {"role": "user", "content": [result]}})
    lines = []
    for number, record in enumerate(made):
        place = {
            "uuid": f"u{number}",
            "parentUuid": f"u{number - 1}" if number else None,
            "sessionId": session,
            "timestamp": f"2026-03-04T08:{number // 60 % 60:02}:{number % 60:02}.000Z",
            "cwd": "/home/dev/app",
            "version": "2.1.25",
            "isSidechain": False,
        }
        lines.append(json.dumps(record | place))
    return lines
