"""A workspace that changes between and during runs: what a person sees of it, live and afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from transom import compose
from transom.cli.settings import user_file
from transom.core.event import EpochOpened, RequestSent

from .conftest import Run
from .test_run import BASE, LOOK, script_file

RULES = {"tool": "write", "arguments": {"path": "AGENTS.md", "content": "Use spaces.\nAnd no tabs."}}


@pytest.fixture
def place(home: Path, tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("alpha\n")
    (tmp_path / "AGENTS.md").write_text("Use tabs.")
    return tmp_path


def facts(kind: type[EpochOpened | RequestSent]) -> list[EpochOpened | RequestSent]:
    with compose.store() as kept:
        (row,) = kept.log.sessions()
        return [event.fact for event in kept.log.read(row.session_id) if isinstance(event.fact, kind)]


def test_what_changes_during_and_between_runs_is_said_and_shown(run: Run, place: Path) -> None:
    """Each command opens the store anew: the head's bytes come from the log."""
    user_file().parent.mkdir(parents=True)
    (user_file().parent / "AGENTS.md").write_text("I prefer short answers.")
    script = script_file(place, LOOK, {"call": [RULES]}, LOOK, LOOK, {"say": "Done."})
    began = run("run", "Look.", "--script", script, *BASE, "--max-steps", "3")
    assert "rules changed: Rules of the project, from AGENTS.md: Use spaces. And no tabs." in began.err
    (place / "AGENTS.md").unlink()
    folder = place / ".agents" / "skills" / "release"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: release\ndescription: How to release.\n---\n")
    went_on = run("resume", "--script", script, "--unsandboxed", "--auto")
    assert "rules: no longer there" in went_on.err
    assert "skills changed: Skills: " in went_on.err
    assert went_on.code == 0
    (opened,) = facts(EpochOpened)
    assert isinstance(opened, EpochOpened)
    assert "I prefer short answers." in {section.key: section.text for section in opened.sections}["memory"]
    sent = facts(RequestSent)
    assert [one.verdict for one in sent if isinstance(one, RequestSent)] == ["miss", *["hit"] * (len(sent) - 1)]


def test_changes_are_read_as_sentences_in_the_list_and_whole_beside_it(run: Run, place: Path) -> None:
    script = script_file(place, {"call": [RULES]}, {"say": "Done."})
    run("run", "Look.", "--script", script, *BASE)
    listed = run("show", "latest").out
    assert "rules changed: Rules of the project, from AGENTS.md: Use spaces. And no tabs." in listed
    assert "says anew: rules" in listed
    seq = next(line.split()[0] for line in listed.splitlines() if "rules changed" in line)
    whole = run("show", "latest", "--at", seq).out
    assert "[rules]\nRules of the project, from AGENTS.md:\nUse spaces.\nAnd no tabs." in whole
    window = run("show", "latest", "--window").out
    assert "has changed since; the window says so" in window
    assert "says anew: rules" in window
    plain = json.loads(run("show", "latest", "--window", "--json").out)
    assert "Use spaces." in plain["changes"]["rules"]


def test_a_section_that_went_is_said_so(run: Run, place: Path) -> None:
    script = script_file(place, LOOK, LOOK, {"say": "Done."})
    run("run", "Look.", "--script", script, *BASE, "--max-steps", "1")
    (place / "AGENTS.md").unlink()
    run("resume", "--script", script, "--unsandboxed", "--auto")
    listed = run("show", "latest").out
    assert "rules: no longer there" in listed
    seq = next(line.split()[0] for line in listed.splitlines() if "rules: no longer there" in line)
    assert "[rules]\nno longer there" in run("show", "latest", "--at", seq).out
