"""find and grep: where a file or a text is, in a page.

Both leave out `.git`, what the repository ignores and what the workspace hides, follow no links, and end after a fixed
time with what they have. ripgrep does the walking where it is installed, `scan.py` where not; either is a process that
can be ended. A result is sorted by path and bounded; what is left out is counted.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from transom.agent import scan
from transom.agent.process import Ended, follow
from transom.agent.said import failed, told
from transom.agent.spool import Spool
from transom.errors import Refused
from transom.ports import Outcome, Workspace

__all__ = ["Find", "Grep", "find", "grep"]

_SECONDS = 30
"""A workspace of 200,000 files is listed in a second or two; more time would only keep the model waiting."""
_LISTED_BYTES = 64 * 1024 * 1024
_MATCHED_BYTES = 8 * 1024 * 1024
_LINE_CHARS = 300
_PROCESSES = 256
_NAMED = 5
_RG = ("--no-config", "--hidden", "--no-messages", "--color", "never", "--glob", "!.git")

_BINARY = re.compile(rb"^(.+?): (?:binary file matches|WARNING: stopped searching binary file)", re.MULTILINE)
"""Said of a file that was named, or that has a match before its first NUL; any other is left out without a word."""

_Where = Annotated[
    str, Meta(min_length=1, max_length=4096, description="A folder or file of the workspace; . is all of it.")
]


class Find(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Find files by name. What the repository ignores is left out."""

    pattern: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=1000,
            description="A glob, such as *.py (at any depth) or src/**/test_*.py; relative to path.",
        ),
    ] = "*"
    path: _Where = "."


class Grep(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Find lines that match a regular expression; one that is none is taken to the letter. What the repository ignores
    is left out."""

    pattern: Annotated[str, Meta(min_length=1, max_length=1000, description="For one line; no look-around.")]
    path: _Where = "."
    glob: Annotated[str, Meta(max_length=1000, description="Only files of this name, such as *.py.")] = ""
    ignore_case: bool = False


def find(workspace: Workspace, args: Find, page_bytes: int) -> Outcome:
    where = _place(workspace, args.path)
    ended, output, _ = _start(workspace, _lister(workspace, where), _LISTED_BYTES)
    is_hidden = _hidden(workspace)
    listed = map(_name, output.split(b"\x00")[:-1])
    names = [name for name in listed if not is_hidden(name)]
    pattern = scan.glob_pattern(args.pattern)
    start = 0 if where == "." else len(where) + 1
    found = sorted(name for name in names if pattern.fullmatch(name, start))
    late = "" if ended.end == "exit" else f" [only what was seen in {_SECONDS} s: name a folder in path]"
    if not found:
        return told(f"[no file below {args.path} matches {args.pattern}; {len(names)} were looked at{late}]")
    shown = _page(found, page_bytes)
    if len(shown) < len(found):
        late += f"\n[{len(found)} files match, {len(shown)} are shown; narrow the pattern or the path]"
    return told("\n".join(shown) + late)


def grep(workspace: Workspace, args: Grep, page_bytes: int) -> Outcome:
    where = _place(workspace, args.path)
    note = ""
    if "\x00" in args.pattern + args.glob:
        return failed("pattern or glob holds a NUL character, which no text file does. Send it without.")
    ended, output, is_cut = _start(workspace, _matcher(workspace, args, where, is_literal=False), _MATCHED_BYTES)
    if ended.exit_code == 2 and b"regex parse error" in output:
        note = "[not a regular expression: looked for to the letter]\n"
        ended, output, is_cut = _start(workspace, _matcher(workspace, args, where, is_literal=True), _MATCHED_BYTES)
    is_hidden = _hidden(workspace)
    lines = output.split(b"\n")
    found = sorted(line for line in map(_match, lines) if line is not None and not is_hidden(line[0]))
    binary = sorted(name for name in map(_name, _BINARY.findall(output)) if not is_hidden(name))
    if ended.exit_code == 2 and output and not (found or _BINARY.search(output)):  # of the files nothing is said
        said = output.decode("utf-8", "replace").strip().partition("\n")[0]
        return failed(f"Nothing was looked for: {said}. Send another pattern or glob; a pattern is for one line.")
    late = f"\n[matches in binary files: {_few(binary)}; look at them by run: grep -a]" if binary else ""
    late += "" if ended.end == "exit" else f"\n[only what was seen in {_SECONDS} s: name a folder in path]"
    if not found:
        return told(f"{note}[no line below {args.path} matches]{late}")
    shown = _page([f"{name}:{number}:{text}" for name, number, text in found], page_bytes)
    if len(shown) < len(found) or is_cut:
        files = len({name for name, _, _ in found})
        count = f"{'at least ' * is_cut}{len(found)} lines in {files} files match"
        late += f"\n[{count}, {len(shown)} are shown; narrow pattern, path or glob]"
    return told(note + "\n".join(shown) + late)


def _place(workspace: Workspace, path: str) -> str:
    """The path as ripgrep shall have it. Raises `Refused` if nothing is there."""
    real = workspace.resolve(path)
    if not (real.is_dir() or real.is_file()):  # a pipe would be waited for
        raise Refused(f"{path}: there is no such folder or file. Use find without path to see what there is.")
    return real.relative_to(workspace.root).as_posix()


def _hidden(workspace: Workspace) -> Callable[[str], bool]:
    """Whether a name of a list is one that the workspace hides."""
    inside = (path for path in workspace.hidden if path.is_relative_to(workspace.root))
    hidden = tuple(path.relative_to(workspace.root).as_posix() for path in inside)
    below = tuple(f"{name}/" for name in hidden)
    return lambda name: name in hidden or name.startswith(below)


def _lister(workspace: Workspace, where: str) -> Sequence[str]:
    program = _ripgrep(workspace)
    if program:
        return (program, *_RG, "--files", "--null", "--", where)
    return (sys.executable, "-I", scan.__file__, "files", where)


def _matcher(workspace: Workspace, args: Grep, where: str, *, is_literal: bool) -> Sequence[str]:
    program = _ripgrep(workspace)
    if not program:
        flags = "i" * args.ignore_case + "F" * is_literal
        return (sys.executable, "-I", scan.__file__, "lines", where, args.glob, flags, args.pattern)
    return (
        *(program, *_RG, "--null", "--line-number", "--no-heading", "--with-filename", "--crlf"),
        *("--max-columns", "1000", "--max-columns-preview"),
        *(("--glob", args.glob) if args.glob else ()),
        *(("--ignore-case",) if args.ignore_case else ()),
        *(("--fixed-strings",) if is_literal else ()),
        *("--regexp", args.pattern, "--", where),
    )


def _ripgrep(workspace: Workspace) -> str | None:
    return shutil.which("rg", path=scan.outside(workspace.root))


def _start(workspace: Workspace, argv: Sequence[str], whole: int) -> tuple[Ended, bytes, bool]:
    """How it ended, its output, and whether some of that was dropped."""
    spool = Spool(whole)
    ended = follow(
        argv,
        root=workspace.root,
        environment={**os.environ, "PATH": scan.outside(workspace.root)},
        spool=spool,
        seconds=_SECONDS,
        most_processes=_PROCESSES,
        has_keeper=False,
    )
    return ended, spool.data(), spool.is_cut


def _match(line: bytes) -> tuple[str, int, str] | None:
    """path, number, text; nothing for what else a searcher prints."""
    name, mark, rest = line.partition(b"\x00")
    number, colon, text = rest.partition(b":")
    if not (mark and colon and number.isdigit()):
        return None
    shown = text.decode("utf-8", "replace").rstrip("\r")
    if len(shown) > _LINE_CHARS:
        shown = f"{shown[:_LINE_CHARS]}…"
    return _name(name), int(number), shown


def _name(name: bytes) -> str:
    return os.fsdecode(name).removeprefix("./")


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _page(lines: Sequence[str], page_bytes: int) -> list[str]:
    """The first lines that fit; at least one."""
    room = page_bytes
    shown: list[str] = []
    for line in lines:
        room -= len(line.encode(errors="replace")) + 1
        if room < 0 and shown:
            break
        shown.append(line)
    return shown
