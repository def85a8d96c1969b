"""The work that a scripted model does with a real client, and what the files must look like after it.

Fourteen reports are read, marked as done, and looked at again: forty-two tool calls, each of which needs the one
before. A line at the top of each file is changed by the client's own edit tool.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

__all__ = [
    "HOST_THOUGHT",
    "LINES",
    "REPORTS",
    "STEPS",
    "WORDS",
    "asked",
    "hands_over",
    "in_halves",
    "is_done",
    "lay_out",
    "never_hands_over",
    "script",
    "shared_out",
]

REPORTS = 14
STEPS = 3 * REPORTS
WORDS = "Never touch README.md."
HOST_THOUGHT = r"Scripted thought \w+/h\d+\."
"""What the model thinks where it hands over."""
LINES = 90
_DONE = "SCRIPT-DONE: every report is marked."
_FULL = "This window is full|was not handed over|Last request of this window"
"""What the host says in the fallback stage."""


def lay_out(work: Path, lines: int = LINES) -> None:
    """The files, as they are before any work, each with so many lines."""
    work.mkdir(parents=True)
    (work / "README.md").write_text("Not to be touched.\n")
    for number in range(REPORTS):
        said = (f"line {line} of report {number} says what was seen on that day, and by whom" for line in range(lines))
        (work / _name(number)).write_text("\n".join((f"status of report {number}: open", *said, "")))


def is_done(work: Path, lines: int = LINES) -> list[str]:
    """What is wrong with the files; nothing if the work was done."""
    wrong = []
    for number in range(REPORTS):
        first, *rest = _text(work / _name(number)).splitlines() or [""]
        if first != f"status of report {number}: done" or len(rest) != lines:
            wrong.append(f"{_name(number)} begins {first!r} and has {len(rest)} more lines")
        if _text(work / f"note-{number}.txt").split() != [str(number)]:
            wrong.append(f"note-{number}.txt was not written once")
    if (work / "README.md").read_text() != "Not to be touched.\n":
        wrong.append("README.md was touched")
    return wrong


def asked(work: Path, *, lane: str = "main") -> str:
    """What the user asks for; `lane` is the script that the model plays for it."""
    return f"[[lane:{lane}]] [[cwd:{work}]] Please mark every report as done, one after the other. {WORDS} Say when all is done."


def script() -> list[dict[str, Any]]:
    """The model's steps."""
    return [*_steps(range(REPORTS)), {"text": _DONE}]


def shared_out(work: Path, *, spawns: bool = False) -> dict[str, list[dict[str, Any]]]:
    """The steps of a model that leaves most reports to two agents at once, and of these. `spawns`: agents are started
    and waited for by calls of their own."""
    half = {"suba": range(2, 8), "subb": range(8, REPORTS)}
    asked = {lane: f"[[lane:{lane}]] [[cwd:{work}]] Please mark your reports as done. {WORDS}" for lane in half}
    calls: list[dict[str, Any]] = [{"parallel": [{"agent": words} for words in asked.values()]}]
    if spawns:
        args = ({"task_name": lane, "message": words, "fork_turns": "none"} for lane, words in asked.items())
        calls = [{"parallel": [{"tool": "^spawn_agent$", "args": one} for one in args]}]
        calls += [{"tool": "^wait_agent$", "args": {"timeout_ms": 60_000}}] * len(half)
    lanes = {lane: [*_steps(numbers), {"text": f"{lane} has marked its reports."}] for lane, numbers in half.items()}
    return {"main": [*_steps(range(2)), *calls, {"text": _DONE}], **lanes}


def _steps(numbers: Iterable[int]) -> Iterator[dict[str, Any]]:
    for number in numbers:
        name = _name(number)
        old, new = (f"status of report {number}: {state}" for state in ("open", "done"))
        yield {"say": f"I read report {number}.", "read": name}
        yield {"edit": name, "old": old, "new": new}
        yield {"shell": f"echo {number} >> note-{number}.txt && wc -l {name} && head -n 30 {name}; sleep 0.1"}


def in_halves() -> list[dict[str, Any]]:
    """The same steps, with a pause in the middle: the user has to ask for the rest."""
    steps = script()
    half = len(steps) // 2
    return [*steps[:half], {"text": "I have done half of it."}, *steps[half:]]


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
