"""read, write, edit: the files of the workspace, as text.

Rules. A page of `read` stays under the size that would be offloaded, and says how to read on. An `edit` replaces text
that is there to the letter; a miss shows the most alike lines, an ambiguity the lines of all. Bytes an edit does not
touch stay as they are, undecodable ones and line ends included. A file is replaced whole or not at all (a new file
beside it, renamed), with its mode and owner. `.git` is not written to: what stands there is run by git, outside of any
sandbox.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO

from msgspec import Meta, Struct

from transom.agent.nearest import nearest
from transom.agent.said import failed, told
from transom.errors import Refused
from transom.ports import Outcome, Workspace

__all__ = ["Edit", "Read", "Write", "edit", "read", "tidy", "write"]

_LINE_BYTES = 2000
"""A longer line is cut: it is minified or data, and would fill the page alone."""
_BESIDE = ".transom-"
_SNIFFED = 8192
_EDITABLE_BYTES = 16 * 1024 * 1024
_SHOWN_LINES = 12
"""Lines of the file that a result of `edit` shows around the change."""
_SHOWN_PLACES = 20
_IMAGES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"\x00\x00\x01\x00", b"II*\x00", b"MM\x00*")
_NUMBERED = re.compile(r"^\s*\d+\t", re.MULTILINE)

_Path = Annotated[
    str,
    Meta(min_length=1, max_length=4096, description="Relative to the workspace, written with /."),
]


class Read(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Read a text file, or some of its lines. Each line comes with its number and a tab, which are not in the file."""

    path: _Path
    offset: Annotated[int, Meta(ge=1, description="The first line to read, from 1.")] = 1
    limit: Annotated[int, Meta(ge=1, description="At most so many lines; a page may end sooner.")] = 2000


class Write(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Make a text file with this content, or replace all of one. Folders are made as needed. To change some of a file
    use edit."""

    path: _Path
    content: Annotated[str, Meta(description="All of the file.")]


class Edit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Replace text in a file. old_string must stand there to the letter, white space included, and only once unless
    replace_all is set; add lines around it until it does."""

    path: _Path
    old_string: Annotated[str, Meta(min_length=1, description="The text to replace, without line numbers.")]
    new_string: Annotated[str, Meta(description="What stands there then.")]
    replace_all: Annotated[bool, Meta(description="Replace every place.")] = False


def read(workspace: Workspace, args: Read, page_bytes: int) -> Outcome:
    """A page: whole lines from `offset`, at most `limit` and `page_bytes`, and how to read on."""
    real = _file(workspace, args.path)
    shown: list[str] = []
    number, room = 0, page_bytes
    with real.open("rb") as file:
        _check_text(file, args.path)
        for number, line in enumerate(_lines(file), 1):
            if number >= args.offset:
                text = f"{number}\t{line}"
                room -= len(text.encode()) + 1
                if shown and (room < 0 or len(shown) == args.limit):
                    break
                shown.append(text)
        total = number + _lines_left(file)
    if not total:
        return told("[an empty file]")
    if not shown:
        return failed(f"{args.path} has {total} lines; offset is {args.offset}. Read from a line that is there.")
    last = args.offset + len(shown) - 1
    if args.offset > 1 or last < total:
        rest = f"; read on with offset={last + 1}" if last < total else ""
        shown.append(f"[lines {args.offset}-{last} of {total}{rest}]")
    return told("\n".join(shown))


def write(workspace: Workspace, args: Write) -> Outcome:
    real = _writable(workspace, args.path)
    data = _bytes("content", args.content)
    was = real.is_file()
    if real.exists() and not was:
        return failed(f"{args.path} is not a file; name another path.")
    real.parent.mkdir(parents=True, exist_ok=True)
    _replace(real, data)
    lines = len(_split(args.content)) if args.content else 0
    return told(f"[{'replaced' if was else 'made'} {args.path}: {lines} lines, {len(data)} bytes]")


def edit(workspace: Workspace, args: Edit) -> Outcome:
    real = _writable(workspace, args.path)
    _file(workspace, args.path)
    old, new = _bytes("old_string", args.old_string), _bytes("new_string", args.new_string)
    with real.open("rb") as file:
        _check_text(file, args.path)
        data = file.read(_EDITABLE_BYTES + 1)
    if len(data) > _EDITABLE_BYTES:
        return failed(f"{args.path} is larger than {_EDITABLE_BYTES} bytes; change it with run (sed, a script).")
    crlf = data.count(b"\r\n")
    is_dos = crlf == data.count(b"\n") and b"\r\n" not in old
    if crlf and (is_dos or old not in data):  # read shows lines without their ends
        old, new = (part.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n") for part in (old, new))
    if old == new:
        return failed("old_string and new_string are the same: nothing to change. Send the text as it shall be.")
    count = data.count(old)
    if not count:
        return failed(_missed(args, data.decode("utf-8", "replace")))
    if count > 1 and not args.replace_all:
        return failed(_ambiguous(args, data, old, count))
    changed = data.replace(old, new)
    _replace(real, changed)
    first = data.count(b"\n", 0, data.index(old)) + 1
    shown = _around(changed.decode("utf-8", "replace"), first, first + new.count(b"\n"))
    return told(f"[{count} place{'s' if count > 1 else ''} changed in {args.path}]\n{shown}")


def tidy(workspace: Workspace, path: str) -> None:
    """Remove what a process that was killed while it wrote `path` left beside it."""
    with contextlib.suppress(OSError, Refused):  # a litter that cannot be removed keeps nobody from going on
        for left in workspace.resolve(path).parent.glob(_BESIDE + "[0-9a-f]" * 16):
            left.unlink(missing_ok=True)


def _file(workspace: Workspace, path: str) -> Path:
    """The real path of a regular file. Raises `Refused` saying what is there instead."""
    real = workspace.resolve(path)
    if real.is_file():
        return real
    if real.is_dir():
        raise Refused(f"{path} is a folder; use find with path {path!r} to list it.")
    if real.exists():
        raise Refused(f"{path} is a device, a pipe or a socket; only files can be read or edited.")
    names = [entry.name for entry in os.scandir(real.parent)] if real.parent.is_dir() else []
    close = [
        (real.parent / name).relative_to(workspace.root).as_posix()
        for name in difflib.get_close_matches(real.name, names[:5000])
    ]
    advice = f"Did you mean {' or '.join(close)}?" if close else "Use find to look for it."
    raise Refused(f"{path}: there is no such file. {advice}")


def _writable(workspace: Workspace, path: str) -> Path:
    real = workspace.resolve(path)
    folders = real.relative_to(workspace.root).parts
    if any(name.casefold() == ".git" for name in folders):
        raise Refused(f"{path} is git's own; change it with git, by run.")
    if not folders:
        raise Refused(f"{path} is the workspace itself; name a file in it.")
    return real


def _bytes(name: str, text: str) -> bytes:
    if "\x00" in text:
        raise Refused(f"{name} holds a NUL character: this tool writes text. Send it without, or make the file by run.")
    return text.encode()


def _check_text(file: BinaryIO, path: str) -> None:
    """Raises `Refused` if this is no text; the file stands at its start after it."""
    start = file.read(_SNIFFED)
    file.seek(0)
    size = os.fstat(file.fileno()).st_size
    if start.startswith(_IMAGES[:3]) or (b"\x00" in start and start.startswith(_IMAGES)) or start[8:12] == b"WEBP":
        raise Refused(f"{path} is an image of {size} bytes; pictures cannot be shown here. Ask the user what is in it.")
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Refused(f"{path} is UTF-16; read it by run: iconv -f UTF-16 -t UTF-8.")
    if b"\x00" in start:
        raise Refused(f"{path} is binary ({size} bytes); look at it by run: file, strings, xxd.")


def _lines(file: BinaryIO) -> Iterator[str]:
    """Lines without their ends, cut if they are too long; no line is ever held whole."""
    while data := file.readline(_LINE_BYTES):
        more = 0
        while not data.endswith(b"\n") and (tail := file.readline(1 << 20)):
            is_end = tail.endswith(b"\n")
            more += len(tail.rstrip(b"\r\n") if is_end else tail)
            if is_end:
                break
        text = data.rstrip(b"\r\n").decode("utf-8", "replace")
        yield f"{text}…[{more} bytes more in this line]" if more else text


def _lines_left(file: BinaryIO) -> int:
    count, last = 0, b"\n"
    while data := file.read(1 << 20):
        count += data.count(b"\n")
        last = data[-1:]
    return count + (last != b"\n")


def _missed(args: Edit, text: str) -> str:
    out = [f"old_string does not stand in {args.path}; nothing was changed."]
    if _NUMBERED.search(args.old_string) and _NUMBERED.sub("", args.old_string) in text:
        return f"{out[0]} It carries the line numbers that read shows; send it without them."
    if "\ufffd" in args.old_string:
        return f"{out[0]} Some bytes there are no UTF-8 (read shows each as \ufffd): leave them out, or use run."
    lines = _split(text)
    if args.old_string.replace("\r\n", "\n") in text.replace("\r\n", "\n"):
        return f"{out[0]} Its lines end in part with CR LF, in part with LF: edit them one by one, or use run."
    for near in nearest(args.old_string, lines):
        how = "differs in white space only" if near.likeness == 1 else f"{near.likeness:.0%} alike"
        out.append(f"lines {near.first}-{near.last} ({how}):")
        out.extend(_numbered(lines, near.first, min(near.last, near.first + _SHOWN_LINES - 1)))
    advice = "Copy old_string from these lines" if len(out) > 1 else "Nothing there is like it: read the file"
    return "\n".join((*out, f"{advice} and edit again."))


def _ambiguous(args: Edit, data: bytes, old: bytes, count: int) -> str:
    places: list[str] = []
    at = 0
    while len(places) < _SHOWN_PLACES and (at := data.find(old, at)) >= 0:
        places.append(str(data.count(b"\n", 0, at) + 1))
        at += len(old)
    more = ", …" if count > len(places) else ""
    return (
        f"old_string stands in {args.path} {count} times, at lines {', '.join(places)}{more}; nothing was changed. Add "
        "lines around it until it is the only one, or set replace_all."
    )


def _around(text: str, first: int, last: int) -> str:
    """The changed lines with their neighbours, so that they need not be read again."""
    start = max(1, first - 2)
    return "\n".join(_numbered(_split(text), start, min(last + 2, start + _SHOWN_LINES - 1)))


def _split(text: str) -> list[str]:
    """Lines as `read` counts them: a form feed or a Unicode separator ends none."""
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")


def _numbered(lines: list[str], first: int, last: int) -> list[str]:
    pairs = enumerate(lines[first - 1 : last], first)
    return [f"{number}\t{line[:_LINE_BYTES]}" for number, line in pairs]


def _replace(real: Path, data: bytes) -> None:
    """All of `data` or nothing. A full disk or a read-only folder raises `OSError` and leaves the file as it was."""
    if real.exists() and not os.access(real, os.W_OK):  # a rename would not ask
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), real.name)
    new = real.parent / f"{_BESIDE}{secrets.token_hex(8)}"
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            file.write(data)
        if real.exists():
            status = real.stat()
            with contextlib.suppress(PermissionError):  # only root may give a file away; the mode is kept anyway
                os.chown(new, status.st_uid, status.st_gid)
            new.chmod(status.st_mode & 0o7777)
        new.replace(real)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
