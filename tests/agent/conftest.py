"""A toolbox over an empty workspace, commands without a sandbox; the sandbox has its own tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from transom.adapters.sandbox import Unsandboxed
from transom.adapters.workspace import DirWorkspace
from transom.agent.toolbox import Toolbox
from transom.core.block import ToolCall, ToolResultRaw

__all__ = ["Call", "Given", "call", "root", "toolbox"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the model sees."""

    text: str
    is_error: bool
    exit_code: int | None


Call = Callable[..., Given]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    folder.mkdir()
    return folder


@pytest.fixture
def toolbox(root: Path) -> Toolbox:
    return Toolbox(DirWorkspace(root), Unsandboxed())


@pytest.fixture
def call(toolbox: Toolbox) -> Call:
    """`call(name, **arguments)`, or `call(name, raw)` with the arguments as a model wrote them."""

    def run(name: str, raw: str | None = None, /, **arguments: object) -> Given:
        text = json.dumps(arguments) if raw is None else raw
        outcome = toolbox.run(ToolCall(call_id="c1", name=name, arguments=text))
        (block,) = outcome.blocks
        assert isinstance(block, ToolResultRaw)
        return Given(text=block.text, is_error=outcome.is_error, exit_code=outcome.exit_code)

    return run
