"""The work that a scripted model does with a real client, and what the files must look like after it.

Fourteen reports are read, marked as done, and looked at again: forty-two tool calls, each of which needs the one
before. A line at the top of each file is changed by the client's own edit tool.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["REPORTS", "WORDS", "asked", "hands_over", "is_done", "lay_out", "never_hands_over", "script"]

REPORTS = 14
WORDS = "Never touch README.md."
_LINES = 90
_DONE = "SCRIPT-DONE: every report is marked."
_FULL = "This window is full|was not handed over|Last request of this window"
"""What the host says in the fallback stage."""


def lay_out(work: Path) -> None:
    """The files, as they are before any work."""
    work.mkdir(parents=True)
    (work / "README.md").write_text("Not to be touched.\n")
    for number in range(REPORTS):
        lines = [f"status of report {number}: open"]
        lines += [
            f"line {line} of report {number} says what was seen on that day, and by whom" for line in range(_LINES)
        ]
        (work / _name(number)).write_text("\n".join(lines) + "\n")


def is_done(work: Path) -> list[str]:
    """What is wrong with the files; nothing if the work was done."""
    wrong = []
    for number in range(REPORTS):
        first, *rest = _text(work / _name(number)).splitlines() or [""]
        if first != f"status of report {number}: done" or len(rest) != _LINES:
            wrong.append(f"{_name(number)} begins {first!r} and has {len(rest)} more lines")
        if _text(work / f"note-{number}.txt").split() != [str(number)]:
            wrong.append(f"note-{number}.txt was not written once")
    if (work / "README.md").read_text() != "Not to be touched.\n":
        wrong.append("README.md was touched")
    return wrong


def asked(work: Path) -> str:
    """What the user asks for."""
    return f"[[cwd:{work}]] Please mark every report as done, one after the other. {WORDS} Say when all is done."


def script() -> list[dict[str, Any]]:
    """The model's steps."""
    steps: list[dict[str, Any]] = []
    for number in range(REPORTS):
        name = _name(number)
        old, new = (f"status of report {number}: {state}" for state in ("open", "done"))
        look = f"echo {number} >> note-{number}.txt && wc -l {name} && head -n 30 {name}; sleep 0.1"
        steps.append({"say": f"I read report {number}.", "read": name})
        steps.append({"edit": name, "old": old, "new": new})
        steps.append({"shell": look})
    return [*steps, {"text": _DONE}]


def hands_over(say: str = "") -> list[dict[str, Any]]:
    """A model that hands over as soon as it is told that its window fills up."""
    handoff = {
        "requirements": [{"text": WORDS, "source": "user"}],
        "inferences": ["The reports are being marked in the order of their numbers."],
        "conflicts": [],
        "unverified": [],
    }
    step = {"tool": "^new_context$", "args": {"handoff": handoff, "related_files": []}}
    return [_told(f"call new_context|{_FULL}", {"say": say, **step} if say else step)]


def never_hands_over() -> list[dict[str, Any]]:
    """A model that goes on calling other things when its window is full, and hands over nothing when nothing else is
    left to call."""
    empty = {"tool": "^new_context$", "args": {"handoff": {}, "related_files": []}}
    return [
        _told(_FULL, {"tool": "^recall$", "args": {"session_id": "", "message_uuid": ""}}, offered="recall"),
        _told(_FULL, empty),
    ]


def _told(words: str, step: dict[str, Any], *, offered: str = "new_context") -> dict[str, Any]:
    return {"when": {"offered": offered, "last_user": words}, "times": 0, "do": step}


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _name(number: int) -> str:
    return f"report-{number}.txt"
