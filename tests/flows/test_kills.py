"""A live run is killed with SIGKILL at random moments and resumed each time (L4, L12).

The child writes files, posts to a file that stands for the world outside, and hands over a dozen times. Its model is a
script that repeats a write of unknown outcome and never a post. Run this file with a folder to play the child by hand.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from time import sleep, time_ns
from uuid import uuid4

import pytest

from transom.adapters.blobs import DirBlobs
from transom.adapters.scripted import ScriptedProvider
from transom.adapters.scripted_format import Script, script_of
from transom.adapters.sqlite_log import SqliteLog
from transom.adapters.workspace import DirWorkspace
from transom.core.block import ToolCall, ToolResultRaw
from transom.core.event import (
    Effect,
    EpochOpened,
    Event,
    ModelReplied,
    RolloverDeclared,
    SessionOpened,
    Tool,
    UserSaid,
    WindowOpened,
)
from transom.core.evidence import Files
from transom.core.surface import HOST_TOOLS
from transom.ports import Outcome
from transom.session import Session, World
from transom.testing.builders import rules, text
from transom.testing.live import Shelf, handoff, step

ROUNDS = 60
FULL = {"text": "call new_context with a handoff|only call accepted now"}
PAGE = "a line of output that somebody wanted to see\n" * 100


@dataclass(frozen=True, slots=True)
class Disk:
    """The tools of the child, on files."""

    root: Path

    def catalogue(self) -> tuple[Tool, ...]:
        return Shelf().catalogue()

    def effect(self, call: ToolCall) -> Effect:
        return Shelf().effect(call)

    def run(self, call: ToolCall) -> Outcome:
        asked = json.loads(call.arguments)
        match call.name:
            case "write":
                path = self.root / asked["path"]
                path.parent.mkdir(exist_ok=True)
                path.write_text(asked["text"])
            case "post":
                with (self.root / "posted").open("a") as file:
                    file.write(f"{asked['text']}\n")
        return Outcome(blocks=(ToolResultRaw(text=PAGE if call.name == "read" else "ok"),))


def script() -> Script:
    """Sixty rounds of write, post and read. What may have been written is written again."""
    again = "content of {unknown}"
    newest = "content of {path}"
    return script_of(
        {
            "take": {"unknown": r"(out/\d+) -> unknown", "path": r"out/\d+"},
            "reaction": [
                step(
                    "", ("write", {"path": "{unknown}", "text": again}), when={"text": r"out/\d+ -> unknown"}, times=0
                ),
                step("", handoff(inferences=("so far so good",)), when=FULL, times=0),
                step(
                    "",
                    ("write", {"path": "{path}", "text": newest}),
                    when={"text": "took effect is not known"},
                    times=0,
                ),
            ],
            "step": [
                {
                    "times": ROUNDS,
                    "do": [
                        step("", ("write", {"path": "out/{i}", "text": "content of out/{i}"})),
                        step("", ("post", {"text": "post {i}"}), ("read", {"path": "page"})),
                    ],
                },
                step("Done."),
            ],
        }
    )


def play(folder: Path) -> None:
    """The child: begin or go on, until the turn is over."""
    root = folder / "work"
    root.mkdir(exist_ok=True)
    log = SqliteLog(folder / "log.db", DirBlobs(folder / "blobs"))
    given = replace(rules("rollover", 8_000), ids=lambda: uuid4().hex, clock=lambda: time_ns() // 1_000_000)
    known = bool(log.sessions("s"))
    session = Session.open(log, "s", given) if known else Session.start(log, "s", SessionOpened(format=1), given)
    tools, workspace = Disk(root), DirWorkspace(root)
    if not session.state.words:
        head = EpochOpened(tools=(*tools.catalogue(), *HOST_TOOLS))
        session.append(head, UserSaid(blocks=(text("Write the files. Never post twice."),)))
    after = [event.fact.response_id for event in log.read("s") if isinstance(event.fact, ModelReplied)]
    world = World(
        provider=ScriptedProvider(script(), given.dialect, after=after[-1] if after else ""),
        tools=tools,
        files=Files(resolve=workspace.resolve, text=workspace.text, root=str(workspace.root)),
        model="scripted",
        max_output_tokens=1000,
    )
    os.write(1, b"ready\n")
    session.resume(world)
    while session.state.answered_through < session.state.seq and not session.step(world).is_turn_over:
        pass
    log.close()


def killed(folder: Path, chance: random.Random) -> bool:
    """One life of the child; False if it came to its end before it was killed."""
    with subprocess.Popen(
        [sys.executable, __file__, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        sleep(chance.expovariate(8))
        child.kill()
        left = child.stderr.read().decode()
        assert not left, left
        return child.wait() != 0


def check(folder: Path, kills: int) -> None:
    """What must hold of a run that came to its end, however often it was killed."""
    with_out = sorted((folder / "work" / "out").iterdir())
    assert len(with_out) == ROUNDS
    assert {path.read_text() for path in with_out} == {f"content of out/{number}" for number in range(1, ROUNDS + 1)}
    posted = Counter((folder / "work" / "posted").read_text().splitlines())
    assert max(posted.values()) == 1
    assert len(posted) >= ROUNDS - kills
    log = SqliteLog(folder / "log.db", DirBlobs(folder / "blobs"))
    assert [one.problem for one in log.verify()] == [""]
    events = list(log.read("s"))
    log.close()
    assert committed(events) == declared(events)
    opened = [event.fact.generation for event in events if isinstance(event.fact, WindowOpened)]
    assert opened == list(range(1, len(opened) + 1))
    assert len(opened) >= 11


def declared(events: list[Event]) -> list[str]:
    return [event.uuid for event in events if isinstance(event.fact, RolloverDeclared)]


def committed(events: list[Event]) -> list[str]:
    return [
        one.declared_by for one in (event.fact for event in events) if isinstance(one, WindowOpened) and one.declared_by
    ]


def kill_loop(folder: Path, most: int) -> int:
    """Kill runs until `most` kills were made, each run to its end. The number of kills."""
    chance = random.Random(most)
    kills = runs = 0
    while kills < most:
        runs += 1
        here = folder / str(runs)
        here.mkdir()
        before = kills
        while killed(here, chance):
            kills += 1
        check(here, kills - before)
    return kills


def test_a_run_of_twelve_windows_ends_as_it_would_in_calm(tmp_path: Path) -> None:
    play(tmp_path)
    check(tmp_path, 0)


def test_a_run_killed_again_and_again_ends_as_it_would_in_calm(tmp_path: Path) -> None:
    assert kill_loop(tmp_path, 10) >= 10


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_three_hundred_kills(tmp_path: Path) -> None:
    assert kill_loop(tmp_path, 300) >= 300


if __name__ == "__main__":
    play(Path(sys.argv[1]))
