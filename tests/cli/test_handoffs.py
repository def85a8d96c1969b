"""`transom handoffs`: what each window left to the next one, and the demo that shows it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from transom import compose
from transom.cli.handoffs import handed_over
from transom.core.block import Text
from transom.core.event import Draft, Event, Fact, ModelReplied, Seed, SessionOpened, UserSaid, WindowOpened

from .conftest import DATA, Run


def opened(text: str) -> Event:
    fact = WindowOpened(cause="hard-limit", generation=1, seed=(Seed(role="host", blocks=(Text(text=text),)),))
    return Event(session_id="s", seq=2, uuid="u", at=1, digest=b"", fact=fact)


def test_a_line_that_is_wrapped_belongs_to_the_one_above() -> None:
    text = "a\n<handoff>\n### 1. REQUIREMENTS\n- one\n  more\n### 2. INFERENCES\n(none)\n</handoff>\nb"
    (found,) = handed_over([opened(text)])
    assert found.sections == {"REQUIREMENTS": ["one\n  more"], "INFERENCES": []}
    assert (found.by, found.came, found.went) == ("code", [], [])


def test_a_note_of_several_lines_is_one_file() -> None:
    text = "<handoff>\n### 1. REQUIREMENTS\n(none)\n</handoff>\n<related_files>\n- a.py (test) - x\n  y\n- b\n</related_files>"
    (found,) = handed_over([opened(text)])
    assert found.sections["Related files"] == ["a.py (test) - x\n  y", "b"]


def test_what_code_put_beside_a_handoff_is_told_and_an_empty_one_is_not_taken_for_nothing(
    tmp_path: Path, run: Run
) -> None:
    mine = UserSaid(blocks=(Text(text="<handoff>\n### 1. MINE\n- not the host's\n</handoff>"),))
    empty = "<handoff>\n### 1. REQUIREMENTS\n(none)\n### 2. INFERENCES\n(none)\n</handoff>"
    state = (
        "<session_state>\ntodo:\n2 items, 1 closed\n- [pending] a\n- [completed] b\nfailed attempts (do not repeat):\n"
        "- run: x\n    error: no\n(41 more, not shown here: recall)\nhandles in use:\n- a.py\n</session_state>"
    )
    host = Seed(role="host", blocks=(Text(text=f"{empty}\n{state}"),))
    user = Seed(role="user", blocks=mine.blocks, of=4)
    opened = WindowOpened(cause="hard-limit", generation=1, seed=(user, host), kept_head=(2,), kept_tail=(3,))
    with compose.store(tmp_path / "store") as kept:
        said, answer = UserSaid(blocks=(Text(text="Look."),)), ModelReplied(blocks=(Text(text="I look."),))
        facts: tuple[Fact, ...] = (SessionOpened(format=1, agent="x"), said, answer, mine, opened)
        kept.log.append("s", 0, [Draft(fact=fact, uuid=f"u{at}", at=1) for at, fact in enumerate(facts)])
    shown = run("handoffs").out
    assert "an empty handoff: code made it of what the log holds; no rule, failure, open task or file is known" in shown
    assert "carried over by code: 2 messages of the user word for word; 1 other message as it was; a snapshot" in shown
    assert "(todo 2, failed attempts 42, handles in use 1)" in shown
    (found,) = json.loads(run("handoffs", "--json").out)
    assert (found["words"], found["kept"], found["state"]["failed attempts"]) == (2, 1, 42)
    assert not any(found["sections"].values())


def test_a_window_without_a_handoff_says_so(run: Run) -> None:
    assert run("replay", DATA / "opencode", "--arms", "raw", "--quiet").code == 0
    shown = run("handoffs")
    assert shown.code == 0
    assert "no handoff: " in shown.out or "one window so far" in shown.err
    assert run("replay", DATA / "claude-code", "--arms", "raw", "--quiet").code in (0, 2)
    rows = json.loads(run("sessions", "--json").out)
    told = " ".join(run("handoffs", row["session_id"]).out for row in rows)
    assert "compacted by the recorded client itself · " in told
    assert "no handoff: a summary of " in told
    assert "by code" not in told
    (found,) = handed_over([opened("nothing")])
    assert found.sections == {}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The demo as a newcomer runs it."""
    folder = tmp_path_factory.mktemp("demo") / "out"
    done = subprocess.run(
        [sys.executable, "-m", "transom", "demo", "--folder", str(folder)],
        env={**os.environ, "HOME": str(folder.parent)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


def test_the_demo_mends_its_repository_over_several_windows(demo: tuple[Path, str]) -> None:
    folder, said = demo
    assert said.count("── window ") >= 4
    for words in (
        "demoted to inference: The user agreed to rename quote() to price().",
        "── window 4: it was full, handed over by code",
        "stands nowhere in this session",
        "every digest follows from the one before",
    ):
        assert words in said
    tests = subprocess.run(
        [sys.executable, "-m", "unittest", "-q"], cwd=folder / "repo", capture_output=True, text=True, check=False
    )
    assert tests.returncode == 0, tests.stderr
    data = Path(__file__).resolve().parents[2] / "src" / "transom" / "data" / "demo" / "repo"
    for path in (data / "tests").glob("*.py"):
        assert (folder / "repo" / "tests" / path.name).read_bytes() == path.read_bytes()


def test_the_demo_runs_where_there_is_no_sandbox(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "sh"):
        (programs / name).symlink_to(shutil.which(name) or "")
    (programs / "python3").symlink_to(sys.executable)
    done = subprocess.run(
        [sys.executable, "-m", "transom", "demo", "--folder", str(tmp_path / "out")],
        env={"HOME": str(tmp_path), "PATH": str(programs)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The demo's own few commands run without one." in done.stderr
    assert "All eight tests pass." in done.stdout


def test_the_repository_of_the_demo_fails_before(tmp_path: Path) -> None:
    data = Path(__file__).resolve().parents[2] / "src" / "transom" / "data" / "demo" / "repo"
    shutil.copytree(data, tmp_path / "repo")
    done = subprocess.run(
        [sys.executable, "-m", "unittest", "-q"], cwd=tmp_path / "repo", capture_output=True, text=True, check=False
    )
    assert "FAILED (failures=7)" in done.stderr


def test_each_handoff_is_shown_with_what_came_what_went_and_what_was_demoted(run: Run, demo: tuple[Path, str]) -> None:
    folder, _ = demo
    shown = run("handoffs", "latest", "--store", folder / "store")
    assert shown.code == 0
    assert "window 1 → 2 · declared by the model" in shown.out
    assert "    + Express adds 30 percent" in shown.out
    assert "    - SPEC.md (spec) - rules 1 to 6" in shown.out
    assert ("(since generation " in shown.out) == ("generation: how many windows had been handed over" in shown.out)
    found = json.loads(run("handoffs", "latest", "--json", "--store", folder / "store").out)
    assert [one["generation"] for one in found] == list(range(1, len(found) + 1))
    assert found[0]["demoted"][0]["reason"]
    assert not found[0]["came"]
    assert all(one["sections"] for one in found)


def test_the_demo_leaves_what_is_not_its_own_alone(run: Run, tmp_path: Path, demo: tuple[Path, str]) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "repo").mkdir()
    assert run("demo", "--folder", tmp_path / "mine").code == 2
    (tmp_path / "file").touch()
    assert run("demo", "--folder", tmp_path / "file").code == 2
    assert (tmp_path / "mine" / "repo").is_dir()
    assert run("demo", "--folder", demo[0]).code == 0
