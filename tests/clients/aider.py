"""aider at work: it has no tools, so a round is a message of the user's and an edit that it reads out of the answer.

It is told its messages on stdin, one a line, so that one process keeps one chat. Its own summary of old messages is off.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.clients.kit import Kit, Running
from tests.clients.model import Progress

__all__ = ["APIS", "ROUNDS", "hooks", "is_done", "lay_out", "start", "watched"]

APIS = {"chat": "openai/scripted-model", "anthropic": "anthropic/claude-sonnet-4-5"}
ROUNDS = 45
_PAD = " ".join(f"word{number}" for number in range(60))
_ROUND = re.compile(r"Close item (\d+)\.")
_FLAGS = (
    *("--edit-format", "diff", "--yes-always", "--no-check-update", "--no-analytics", "--no-show-release-notes"),
    *("--no-show-model-warnings", "--no-gitignore", "--no-pretty", "--no-auto-commits", "--map-tokens", "0"),
    *("--max-chat-history-tokens", "1000000"),
)
_GOES_ON = ("--restore-chat-history",)
"""It reads its old messages out of what it printed, so they come back in other words."""


def lay_out(work: Path) -> None:
    work.mkdir(parents=True)
    (work / "list.txt").write_text("".join(f"item {number}: open\n" for number in range(ROUNDS)))
    subprocess.run(["git", "init", "-q", str(work)], check=True)


def is_done(work: Path) -> bool:
    return (work / "list.txt").read_text() == "".join(f"item {number}: closed\n" for number in range(ROUNDS))


def hooks() -> list[dict[str, Any]]:
    """A model that goes by the last message alone."""
    return [
        {"when": {"last_user": rf"Close item {number}\."}, "times": 0, "do": {"text": _edit(number)}}
        for number in range(ROUNDS)
    ]


def _edit(number: int) -> str:
    change = f"<<<<<<< SEARCH\nitem {number}: open\n=======\nitem {number}: closed\n>>>>>>> REPLACE"
    return f"Closing item {number}. {_PAD}\n\nlist.txt\n```\n{change}\n```\n"


def watched(model: Any, *, seconds: float) -> Progress:
    """The round that a running server was asked for last; it takes so long for each answer."""
    progress, decide = Progress(), model.decide

    def by_round(req: Any) -> tuple[str, str, int | None]:
        found = _ROUND.findall(req.last_user)
        if found:
            progress.asked = int(found[-1])
            time.sleep(seconds)
        decided: tuple[str, str, int | None] = decide(req)
        return decided

    model.decide = by_round
    return progress


def start(
    kit: Kit, api: str, url: str, work: Path, home: Path, *, rounds: range = range(ROUNDS), goes_on: bool = False
) -> Running:
    program = kit.clients / "aider" / "bin" / "aider"
    if not program.exists():
        pytest.skip(f"client aider is not installed in {kit.clients}: make test-clients installs it")
    home.mkdir(exist_ok=goes_on)
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TERM": "dumb", "NO_COLOR": "1"}
    env |= {"AIDER_ANALYTICS": "false", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    env |= {"OPENAI_API_KEY": "sk-none", "OPENAI_API_BASE": f"{url}/v1"}
    env |= {"ANTHROPIC_API_KEY": "sk-none", "ANTHROPIC_API_BASE": url}
    words = [f"Close item {number}. Never touch README.md. {_PAD}\n" for number in rounds]
    command = [str(program), "--model", APIS[api], *_FLAGS, *(_GOES_ON if goes_on else ()), "list.txt"]
    return Running(command, work=work, env=env, said="".join((*words, "/exit\n")))
