"""`transom resume`: a run goes on after kill -9 at any moment, and what cannot go on is said."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from transom import compose
from transom.adapters.holding import hold
from transom.core.event import RolloverDeclared, ToolReturned, WindowOpened
from transom.errors import UsageError

from .conftest import DATA, Run
from .test_processes import environment
from .test_run import BASE, LOOK, script_file

WINDOWS = 12
CONTENT = ("word " * 20 + "\n") * 60
HANDOFF = {"handoff": {"inferences": ["out/{i}.txt is written"]}, "related_files": []}


@pytest.fixture
def place(home: Path, tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("alpha\n")
    return tmp_path


def long_script(folder: Path) -> Path:
    """A file and a command in each of thirteen windows. When a call's outcome is not known, the file is looked at by
    being written again; the command is not."""
    write = {"tool": "write", "arguments": {"path": "out/{i}.txt", "content": CONTENT}}
    run = {"tool": "run", "arguments": {"command": "echo {i} >> runs.txt"}}
    hands = {"tool": "new_context", "arguments": HANDOFF}
    again = {"tool": "write", "arguments": {"path": "{lost}", "content": CONTENT}}
    return script_file(
        folder,
        {"times": WINDOWS, "do": [{"call": [write, run]}, {"call": [hands]}]},
        {"say": "Done."},
        reaction=[{"when": {"text": "it took effect is not known"}, "times": 0, "call": [again]}],
        take={"lost": r"out/\d+\.txt"},
    )


def killed(folder: Path, arguments: tuple[str, ...], lines: int, seconds: float = 0.0) -> bool:
    """Run the command, kill it -9 when it has told so many events and a moment later; False if it ended before."""
    command = [sys.executable, "-m", "transom", *arguments, "--json"]
    with subprocess.Popen(
        command, cwd=folder, env=environment(folder), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        for _ in range(lines):
            if not process.stdout.readline():
                break
        else:
            time.sleep(seconds)
            os.kill(process.pid, signal.SIGKILL)
            return True
    assert process.returncode == 0
    return False


@pytest.mark.parametrize(
    ("seed", "kills"),
    [(1, 6), *(pytest.param(seed, 30, marks=pytest.mark.slow) for seed in range(2, 12))],
)
def test_a_run_of_many_windows_ends_the_same_whatever_kills_it(tmp_path: Path, seed: int, kills: int) -> None:
    chance = random.Random(seed)
    path = long_script(tmp_path)
    options = ("--script", str(path), "--context-limit", "8k", "--unsandboxed", "--auto")
    arguments: tuple[str, ...] = ("run", "Write the files.", *options)
    for _ in range(kills):
        most = 30 if kills < 10 else 10
        if not killed(tmp_path, arguments, chance.randint(3, most), chance.random() / 50):
            break
        arguments = ("resume", *options)
    else:
        assert not killed(tmp_path, arguments, 100_000)
    assert {one.name: one.read_text() for one in (tmp_path / "out").iterdir()} == {
        f"{number}.txt": CONTENT for number in range(1, WINDOWS + 1)
    }
    ran = Counter((tmp_path / "runs.txt").read_text().split())
    assert set(ran.values()) == {1}, "a command ran twice"
    with compose.store(tmp_path / "store") as kept:
        (row,) = kept.log.sessions()
        (verified,) = kept.log.verify(row.session_id)
        assert not verified.problem
        events = list(kept.log.read(row.session_id))
    opened = [event.fact for event in events if isinstance(event.fact, WindowOpened)]
    declared = [event.uuid for event in events if isinstance(event.fact, RolloverDeclared)]
    assert [one.generation for one in opened] == list(range(1, len(opened) + 1))
    # What was written again may fill a window before its handoff; that one is handed over by code.
    assert [one.declared_by for one in opened if one.cause == "model"] == declared
    assert len(declared) == WINDOWS
    results = Counter(event.fact.call_id for event in events if isinstance(event.fact, ToolReturned))
    assert set(results.values()) == {1}


def test_the_next_message_can_be_said_with_it(run: Run, place: Path) -> None:
    path = script_file(place, {"say": "First."}, LOOK, {"say": "Second."})
    assert run("run", "Look.", "--script", path, *BASE).out == "First.\n"
    told = run("resume", "latest", "--script", path, *BASE)
    assert (told.code, told.out) == (0, "")
    assert "all was answered; say what is next" in told.err
    said = run("resume", "latest", "And now?", "--script", path, *BASE)
    assert (said.code, said.out) == (0, "Second.\n")
    assert "3 steps, 1 window" in said.err


def test_what_the_session_ran_with_is_taken_over_and_a_flag_goes_before_it(run: Run, place: Path) -> None:
    work = place / "work"
    work.mkdir()
    (work / "a.txt").write_text("in the workspace\n")
    path = script_file(place, {"say": "First."}, LOOK, {"say": "Second."})
    run("run", "Look.", "--script", path, *BASE, "--policy", "gssc", "--workspace", work)
    said = run("resume", "latest", "On.", "--script", path, "--unsandboxed", "--auto", "--json")
    assert said.code == 0, said.err
    assert "in the workspace" in said.out
    assert "goes on under" not in said.err
    said = run("resume", "latest", "--script", path, "--unsandboxed", "--auto", "--policy", "mask")
    assert "it ran under the policy gssc and goes on under mask" in said.err


def test_the_way_on_names_what_the_session_does_not_hold(run: Run, place: Path) -> None:
    work, moved = place / "work", place / "moved"
    work.mkdir()
    (work / "a.txt").write_text("alpha\n")
    path = script_file(place, {**LOOK, "times": 5}, {"say": "Done."})
    first = run("run", "Look.", "--script", path, *BASE, "--max-steps", "1", "--workspace", work)
    assert first.err.rstrip().endswith(f" --script {path} --unsandboxed --auto")
    work.rename(moved)
    again = run("resume", "--script", path, *BASE, "--max-steps", "1", "--workspace", moved, "--policy", "mask")
    assert again.err.rstrip().endswith(f" --workspace {moved} --policy mask --unsandboxed --auto")
    words = again.err.rstrip().rpartition("go on with: transom ")[2].split()
    assert run(*words).code == 0


def test_what_cannot_be_resumed_is_said(run: Run, place: Path) -> None:
    path = script_file(place, {"say": "Done."})
    assert "holds no store" in run("resume", "--store", place / "none").err
    run("replay", DATA / "claude-code" / "session.jsonl", "--arms", "raw", "--quiet")
    assert "no run is stored yet" in run("resume").err
    said = run("resume", "--script", path, "Go on.").err
    assert "transom resume latest 'MESSAGE'" in said
    assert "recorded by claude-code" in run("resume", "claude-code:11111111-2222-4333-8444-555555555555").err
    work = place / "work"
    work.mkdir()
    run("run", "Look.", "--script", path, *BASE, "--workspace", work)
    work.rmdir()
    gone = run("resume", "--script", path, *BASE)
    assert (gone.code, "is gone; name where it is now with --workspace" in gone.err) == (2, True)
    assert run("resume", "--script", path, *BASE, "--workspace", place).code == 0
    other = script_file(place, {"say": "x"}, reaction=[{"when": {"text": "x"}, "say": "y"}])
    assert (
        "is no reply of the script"
        in run("resume", "latest", "On.", "--script", other, *BASE, "--workspace", place).err
    )


def test_a_session_is_run_by_one_process_at_a_time(run: Run, place: Path) -> None:
    path = script_file(place, {"say": "Done."})
    done = run("run", "Look.", "--script", path, *BASE, "--json")
    name = json.loads(done.out.splitlines()[-1])["session_id"]
    with hold(place / "store" / "running", name):
        held = run("resume", "latest", "On.", "--script", path, *BASE)
    assert held.code == 2
    assert f"session {name} is run by process {os.getpid()} now" in held.err


def test_a_process_that_is_killed_holds_nothing(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from transom.adapters.holding import hold\n"
        "with hold(Path(sys.argv[1]), 's'): print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(UsageError, match=f"run by process {process.pid} now"), hold(tmp_path, "s"):
            pass
        with hold(tmp_path, "another"):
            pass
        process.kill()
    with hold(tmp_path, "s"):
        pass
