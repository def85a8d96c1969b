"""What `find` and `grep` start where there is no ripgrep: the same output, from the standard library alone.

    python scan.py files PATH                       every file below PATH, each ended by NUL
    python scan.py lines PATH GLOB FLAGS PATTERN    path NUL number:line of each match; FLAGS of i, F

It is a process of its own so that a pattern that never ends (`(a+)+b`) can be ended, and imports nothing of ours so
that it starts at once. What git ignores is left out, by git's own word where PATH is in a repository; elsewhere
the folders that tools fill are. Exit codes are ripgrep's: 0 found, 1 nothing, 2 the pattern is wrong.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["glob_pattern", "main"]

_FILLED = frozenset((".git", ".hg", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".venv", "__pycache__"))
_FILLED_TOO = frozenset(("node_modules", "venv"))
_GIT = ("git", "-c", "core.fsmonitor=false", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--")
"""A repository's own configuration may name a program as its monitor; nothing of the workspace is run here."""
_SNIFFED = 8192
_LINE_BYTES = 1000


def glob_pattern(glob: str) -> re.Pattern[str]:
    """`*` and `?` within a name, `**` over folders, `[...]`, `{a,b}`; without `/` it is a name at any depth."""
    glob = glob.removeprefix("./")
    out = "" if "/" in glob else "(?:.*/)?"
    tokens = re.findall(r"\*\*/|\*\*|\*|\?|\[[!^]?\]?[^\]/]*\]|\{[^{}]*\}|.", glob, re.DOTALL)
    for token in tokens:
        if token[0] == "{" and len(token) > 1:
            inner = (glob_pattern(f"./{word}").pattern.removeprefix("(?:.*/)?") for word in token[1:-1].split(","))
            out += f"(?:{'|'.join(inner)})"
        elif token[0] == "[" and len(token) > 1:
            body = token[1:-1].replace("\\", "\\\\").replace("[", "\\[")
            out += f"[^/{body[1:]}]" if body[0] in "!^" else f"[{body}]"
        else:
            out += {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(token) or re.escape(token)
    return re.compile(out, re.DOTALL)


def main(arguments: list[str]) -> int:
    out = sys.stdout.buffer
    if arguments[0] == "files":
        for name in _files(arguments[1]):
            out.write(os.fsencode(name) + b"\x00")
        return 0
    path, glob, flags, pattern = arguments[1:]
    try:
        sought = re.compile(
            os.fsencode(re.escape(pattern) if "F" in flags else pattern), re.IGNORECASE if "i" in flags else 0
        )
    except (re.error, OverflowError, RecursionError) as problem:
        out.write(f"regex parse error: {problem}\n".encode())
        return 2
    wanted = glob_pattern(glob) if glob else None
    code = 1
    for name in _files(path):
        if wanted is None or wanted.fullmatch(name):
            for line in _matches(name, sought):
                out.write(line)
                code = 0
    return code


def _files(path: str) -> Iterator[str]:
    """Files below `path`, relative as it is; no link is followed."""
    if Path(path).is_file():
        yield path
        return
    listed = subprocess.run((*_GIT, path), capture_output=True, check=False) if _has_git() else None
    if listed is not None and listed.returncode == 0:
        for data in dict.fromkeys(listed.stdout.split(b"\x00")):
            if data and Path(os.fsdecode(data)).is_file():
                yield os.fsdecode(data)
        return
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(set(folders) - _FILLED - _FILLED_TOO)
        yield from (Path(folder, name).as_posix() for name in sorted(names))


def _has_git() -> bool:
    return any(Path(folder, "git").exists() for folder in os.get_exec_path())


def _matches(name: str, sought: re.Pattern[bytes]) -> Iterator[bytes]:
    try:
        with Path(name).open("rb") as file:
            if Path(name).is_symlink() or b"\x00" in file.read(_SNIFFED):
                return
            file.seek(0)
            for number, line in enumerate(file, 1):
                if sought.search(line.rstrip(b"\r\n")):
                    yield os.fsencode(name) + b"\x00%d:%b\n" % (number, line.rstrip(b"\r\n")[:_LINE_BYTES])
    except OSError:
        return  # gone, or not ours to read: as ripgrep without messages


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
