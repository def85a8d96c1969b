"""Skills: instructions for particular work, each in a folder of its own with a SKILL.md.

The head names them, with what they are for; the model reads the file when one fits. That is how the agents that know
skills treat them, and where they look: `.agents/skills` and `.claude/skills` of the workspace. Of the front matter
`name` and `description` count. It is YAML; what stands there in practice are plain, quoted and folded strings, and
those are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from transom.agent.rules import file_text, is_hidden

__all__ = ["FOLDERS", "SKILL_FILE", "Skill", "found_skills", "front_matter", "skills"]

FOLDERS = (".agents/skills", ".claude/skills")
SKILL_FILE = "SKILL.md"
_DESCRIPTION = 1024
"""Characters: what the format allows a description."""
_INTRODUCTION = "Skills: instructions for particular work. Read the file of one, whole, before you do what it is for."
_KEY = re.compile(r"([A-Za-z][\w-]*):(?:\s+(.*))?$")
_BLOCK = re.compile(r"[|>][+-]?\d?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """One skill; `path` is relative to the workspace."""

    name: str
    description: str
    path: str


def skills(root: Path, room: int, hidden: Sequence[Path] = ()) -> str | None:
    """The skills of a workspace, a line each, in about `room` characters; those that do not fit are named alone. Raises
    `OSError`."""
    listed = list(found_skills(root, hidden))
    if not listed:
        return None
    lines = [_INTRODUCTION]
    for one in listed:
        line = f"- {one.name} ({one.path}): {one.description}" if one.description else f"- {one.name} ({one.path})"
        room -= len(line)
        lines.append(line if room >= 0 else f"- {one.name} ({one.path})")
    return "\n".join(lines)


def found_skills(root: Path, hidden: Sequence[Path] = ()) -> Iterator[Skill]:
    """In the order of `FOLDERS`, then of their names; the first of a name is the one. One behind a link to what is
    `hidden` is none. Raises `OSError`."""
    known: set[str] = set()
    for place in FOLDERS:
        for folder in _folders(root / place):
            file = folder / SKILL_FILE
            text = None if is_hidden(file, hidden) else file_text(file)
            if text is None:
                continue
            said = front_matter(text)
            name = _line(said.get("name", "")) or folder.name
            if name not in known:
                known.add(name)
                path = f"{place}/{folder.name}/{SKILL_FILE}"
                yield Skill(name=name, description=_line(said.get("description", ""))[:_DESCRIPTION], path=path)


def _folders(place: Path) -> list[Path]:
    try:
        return sorted(path for path in place.iterdir() if path.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _line(text: str) -> str:
    return " ".join(text.split())


def front_matter(text: str) -> dict[str, str]:
    """The top-level strings between the `---` lines at a file's start; nothing else of it."""
    lines = text.splitlines()
    if not lines or lines[0].strip() != "---":
        return {}
    found: dict[str, list[str]] = {}
    key = ""
    for line in lines[1:]:
        if line.strip() == "---":
            return {key: _scalar(pieces) for key, pieces in found.items()}
        named = _KEY.match(line)
        if named:
            key = named[1]
            found[key] = [(named[2] or "").strip()]
        elif key and line[:1].isspace():
            found[key].append(line.strip())
    return {}  # it never ends: no front matter


def _scalar(pieces: list[str]) -> str:
    first, rest = pieces[0], [piece for piece in pieces[1:] if piece]
    if _BLOCK.fullmatch(first):
        return " ".join(rest)
    text = " ".join([first, *rest]).strip()
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    return text
