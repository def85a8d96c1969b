"""What `find` and `grep` start where there is no ripgrep: the same output, from the standard library alone.

    python scan.py files PATH                       every file below PATH, each ended by NUL
    python scan.py lines PATH GLOB FLAGS PATTERN    path NUL number:line of each match; FLAGS of i, F

It is a process of its own so that a pattern that never ends (`(a+)+b`) can be ended, and imports nothing of ours so
that it starts at once. What git ignores is left out, by git's own word where PATH is in a repository; elsewhere
the folders that tools fill are. Exit codes are ripgrep's: 0 found, 1 nothing, 2 the pattern is wrong.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["glob_pattern", "main", "outside"]

_FILLED = frozenset((".git", ".hg", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".venv", "__pycache__"))
_FILLED_TOO = frozenset(("node_modules", "venv"))
_GIT = ("git", "-c", "core.fsmonitor=false", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--")
_ALONE = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0"}
"""A repository's own configuration may name a program as its monitor, or one that fetches what is missing of a
`.gitignore`; nothing of the workspace is run here."""
_TOKENS = re.compile(r"\*\*/|\*\*|\*|\?|\[[!^]?+[^/][^\]/]*\]|\{[^{}]*\}|.", re.DOTALL)
_SNIFFED = 8192
_LINE_BYTES = 1000


def glob_pattern(glob: str) -> re.Pattern[str]:
    """`*` and `?` within a name, `**` over folders, `[...]`, `{a,b}`; without `/` it is a name at any depth.

    A `*` before another one in the same name takes what is least and is not asked again (the next one can have the
    rest): a name of many stars costs its length, not a power of it."""
    out = "" if "/" in glob else "(?:.*/)?"
    glob = glob.removeprefix("./")
    signs = _TOKENS.findall(glob)
    is_open = False
    for place, sign in enumerate(signs, 1):
        if sign == "*":
            name = itertools.takewhile(lambda other: other not in ("/", "**", "**/"), signs[place:])
            out += ")" * is_open
            is_open = "*" in name and "{" not in glob
            out += "(?>[^/]*?" if is_open else "[^/]*"
        elif sign[0] == "{" and len(sign) > 1:
            out += f"(?:{'|'.join(glob_pattern(f'./{word}').pattern for word in sign[1:-1].split(','))})"
        elif sign[0] == "[" and len(sign) > 1:
            out += _one_of(sign[1:-1])
        else:
            out += {"**/": "(?:.*/)?", "**": ".*", "?": "[^/]"}.get(sign) or re.escape(sign)
    return re.compile(out, re.DOTALL)


def outside(root: Path) -> str:
    """PATH without what lies in `root`, as an environment there does: a command may have put a program of its own into
    it, and what is looked for by this runs outside of the sandbox."""
    folders = [folder for folder in os.get_exec_path() if Path(folder).is_absolute()]
    kept = [folder for folder in folders if not Path(os.path.realpath(folder)).is_relative_to(root)]
    return os.pathsep.join(kept) or os.defpath


def _one_of(body: str) -> str:
    is_negated = body[0] in "!^"
    rest, out = body[is_negated:], ""
    while rest:
        if len(rest) > 2 and rest[1] == "-":
            out += f"{re.escape(rest[0])}-{re.escape(rest[2])}" if rest[0] <= rest[2] else ""
            rest = rest[3:]
        else:
            out += re.escape(rest[0])
            rest = rest[1:]
    if is_negated:
        return f"[^/{out}]"
    return f"[{out}]" if out else "(?!)"


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
            for line in _matches(name, sought, is_named=name == path):
                out.write(line)
                code = 0
    return code


def _files(path: str) -> Iterator[str]:
    """Files below `path`, relative as it is; links are left out."""
    return (name for name in _listed(path) if Path(name).is_file() and not Path(name).is_symlink())


def _listed(path: str) -> Iterator[str]:
    if Path(path).is_file():
        yield path
        return
    alone = {**os.environ, **_ALONE}
    listed = subprocess.run((*_GIT, path), capture_output=True, check=False, env=alone) if _has_git() else None
    if listed is not None and listed.returncode == 0:
        yield from (os.fsdecode(name) for name in dict.fromkeys(listed.stdout.split(b"\x00")) if name)
        return
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(set(folders) - _FILLED - _FILLED_TOO)
        yield from (Path(folder, name).as_posix() for name in sorted(names))


def _has_git() -> bool:
    return any(Path(folder, "git").exists() for folder in os.get_exec_path())


def _matches(name: str, sought: re.Pattern[bytes], *, is_named: bool) -> Iterator[bytes]:
    try:
        with Path(name).open("rb") as file:
            is_binary = b"\x00" in file.read(_SNIFFED)
            if is_binary and not is_named:
                return
            file.seek(0)
            for number, line in enumerate(file, 1):
                if sought.search(line.rstrip(b"\r\n")):
                    if is_binary:
                        yield os.fsencode(name) + b": binary file matches\n"
                        return
                    yield os.fsencode(name) + b"\x00%d:%b\n" % (number, line.rstrip(b"\r\n")[:_LINE_BYTES])
    except OSError:
        return  # gone, or not ours to read: as ripgrep without messages


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
