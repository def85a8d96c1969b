"""The project's rules: AGENTS.md from the repository's root down to the workspace, whole as far as their share goes.

Deeper ones are named, not read: they are for whoever works there. Finding them walks the workspace; a boundary asks
each time, so a folder is listed again only when its time of change is another.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple

from transom.core.canon import plain_text

__all__ = ["RULES_FILE", "Nested", "file_text", "is_hidden", "rules"]

RULES_FILE = "AGENTS.md"
_MOST_BYTES = 128 * 1024
"""Read of one file, whatever its size: four times what Codex reads of all rules together."""
_FOLDERS = 2000
"""Folders looked into for deeper rules: a tree of more is not walked to its end."""
_DEEPER = 20
_SKIPPED = frozenset({"__pycache__", "node_modules", "venv"})


def file_text(path: Path) -> str | None:
    """The text of a file, None if there is no such file. Raises `OSError` if there is one and it cannot be read."""
    try:
        if not S_ISREG(path.stat().st_mode):
            return None
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_hidden(path: Path, hidden: Sequence[Path]) -> bool:
    """Whether it lies, or a link leads, where nothing may be shown of: a command can make the link, not read behind."""
    real = Path(os.path.realpath(path))
    return any(real.is_relative_to(one) for one in hidden)


def rules(root: Path, room: int, hidden: Sequence[Path] = ()) -> str | None:
    """The rules that hold in `root`, in at most `room` characters; what is cut is counted, with the path to read on
    at. A link that leads out of the repository, or to what is `hidden`, is not followed: whoever wrote it would choose
    which of the user's files the model is shown. Raises `OSError`."""
    said: list[str] = []
    folders = _folders_down_to(root)
    for folder in folders:
        path = folder / RULES_FILE
        if reason := _withheld(path, folders[0], hidden):
            said.append(f"[{path}: a link {reason}; it is not read]")
            continue
        text = file_text(path)
        if text:
            name = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
            shown = text[:room]
            room -= len(shown)
            left = f"\n[{len(text) - len(shown):,} characters more: read {name}]" if len(shown) < len(text) else ""
            said.append(f"Rules of the project, from {name}:\n{shown}{left}")
    return "\n\n".join(said) or None


def _withheld(path: Path, top: Path, hidden: Sequence[Path]) -> str:
    """Where a link leads whose file is not shown; empty for any other file, and where there is none."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    if path.is_symlink() and path.exists() and not path.resolve().is_relative_to(top.resolve()):
        return "out of the repository"
    return "to what is kept from the model" if is_hidden(path, hidden) else ""


def _folders_down_to(root: Path) -> list[Path]:
    """From the root of the repository that holds `root` to `root` itself; only `root` outside of a repository."""
    for number, folder in enumerate((root, *root.parents)):
        if (folder / ".git").exists():
            return [*reversed((root, *root.parents)[: number + 1])]
    return [root]


class _Folder(NamedTuple):
    """A folder as it was when its time of change was `changed`; the folders in it, the last name first."""

    changed: int
    has_rules: bool
    folders: tuple[Path, ...]


class Nested:
    """Where deeper rules lie."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen: dict[Path, _Folder] = {}

    def text(self) -> str | None:
        """Their names, in a sentence."""
        found = list(islice(self._found(), _DEEPER))
        names = ", ".join(plain_text(name) for name in found)
        return f"More rules, for what lies beside them; read them before you work there: {names}" if found else None

    def _found(self) -> Iterator[str]:
        waiting, seen = [self._root], 0
        while waiting and seen < _FOLDERS:
            path = waiting.pop()
            seen += 1
            folder = self._look(path)
            if folder.has_rules and path != self._root:
                yield (path / RULES_FILE).relative_to(self._root).as_posix()
            waiting.extend(folder.folders)

    def _look(self, path: Path) -> _Folder:
        known = self._seen.get(path)
        try:
            changed = path.stat().st_mtime_ns
            if known is not None and known.changed == changed:
                return known
            with os.scandir(path) as entries:
                listed = sorted(entries, key=lambda entry: entry.name, reverse=True)
            has_rules = any(entry.name == RULES_FILE for entry in listed)
            folders = tuple(path / entry.name for entry in listed if _is_walked(entry))
            made = _Folder(changed=changed, has_rules=has_rules, folders=folders)
        except OSError:
            made = known or _Folder(changed=0, has_rules=False, folders=())  # unreadable: as it was
        self._seen[path] = made
        return made


def _is_walked(entry: os.DirEntry[str]) -> bool:
    is_own = not entry.name.startswith(".") and entry.name not in _SKIPPED
    return is_own and entry.is_dir(follow_symlinks=False)
