"""`transom handoffs`: what each window left to the next one, and the demo that shows it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from transom.cli.handoffs import handed_over
from transom.core.block import Text
from transom.core.event import Event, Seed, WindowOpened

from .conftest import DATA, Run


def opened(text: str) -> Event:
    fact = WindowOpened(cause="hard-limit", generation=1, seed=(Seed(role="host", blocks=(Text(text=text),)),))
    return Event(session_id="s", seq=2, uuid="u", at=1, digest=b"", fact=fact)


def test_a_line_that_is_wrapped_belongs_to_the_one_above() -> None:
    text = "a\n<handoff>\n### 1. REQUIREMENTS\n- one\n  more\n### 2. INFERENCES\n(none)\n</handoff>\nb"
    (found,) = handed_over([opened(text)])
    assert found.sections == {"REQUIREMENTS": ["one\n  more"], "INFERENCES": []}
    assert (found.by, found.came, found.went) == ("code", [], [])


def test_a_window_without_a_handoff_says_so(run: Run) -> None:
    assert run("replay", DATA / "opencode", "--arms", "raw", "--quiet").code == 0
    shown = run("handoffs")
    assert shown.code == 0
    assert "no handoff: " in shown.out or "one window so far" in shown.err
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
