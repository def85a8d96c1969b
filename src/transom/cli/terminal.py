"""The terminal: results on stdout, words about them on stderr, both plain when they go elsewhere.

What came from a transcript is printed without anything a terminal would obey (`printable`): no escape, control or
direction characters, no lone surrogates. Nothing of it is ever read as markup.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from unicodedata import category

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from transom.core.canon import plain_text

__all__ = ["Bar", "bar", "is_wide", "out", "printable", "printable_lines", "say", "when", "words"]

_PIPED_WIDTH = 10_000
"""Columns when nobody says how wide: nothing is folded or cut for a program."""

_YEAR_10000 = 253_402_300_800_000

_PATIENCE = 0.7
"""Seconds before a bar appears: what is faster needs none."""


class _Console(Console):
    """One that leaves to the command what a reader's leaving means: rich would end the process with 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def out() -> Console:
    """Results."""
    return _console(is_error=False)


def words() -> Console:
    """Everything said about them."""
    return _console(is_error=True)


def _console(*, is_error: bool) -> Console:
    stream = sys.stderr if is_error else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else _PIPED_WIDTH
    return _Console(stderr=is_error, markup=False, highlight=False, emoji=False, soft_wrap=False, width=width)


def is_wide(console: Console) -> bool:
    """Whether it takes whatever comes in one line: a pipe, a file."""
    return console.width >= _PIPED_WIDTH


def say(sentence: str, style: str = "") -> None:
    """A sentence on stderr, as it is, wrapped by the terminal alone."""
    words().print(Text(printable_lines(sentence), style=style), soft_wrap=True)


def printable(text: str) -> str:
    """The text on one line, with what a terminal would obey replaced."""
    return "".join(letter if _is_harmless(letter) else "�" for letter in plain_text(" ".join(text.split())))


def printable_lines(text: str) -> str:
    """The same for a text of several lines; tabs and line ends stay."""
    return "".join(
        letter if _is_harmless(letter) or letter in "\n\t" else "�" for letter in plain_text(text).replace("\r\n", "\n")
    )


def _is_harmless(letter: str) -> bool:
    """Also the spaces of other widths (French, Chinese), and what joins or parts letters (emoji, Persian, Hindi)."""
    return letter.isprintable() or letter in "\u200c\u200d" or category(letter) == "Zs"


def when(at: int) -> str:
    """A time (ms since the epoch) in the reader's own zone; nothing for an unknown one."""
    if at <= 0:
        return ""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at / 1000)) if at < _YEAR_10000 else "?"


class Bar:
    """Progress of something that may take long: told often, shown from `_PATIENCE` on, gone at the end."""

    def __init__(self, *, is_shown: bool) -> None:
        self._is_shown = is_shown
        self._since = time.monotonic()
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def tell(self, what: str, done: int, total: int | None = None) -> None:
        if not self._is_shown or time.monotonic() - self._since < _PATIENCE:
            return
        if self._progress is None:
            columns = (
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[count]}", markup=False),
                TimeRemainingColumn(),
            )
            self._progress = Progress(*columns, console=words(), transient=True)
            self._progress.start()
            self._task = self._progress.add_task("", total=None, count="")
        if self._task is not None:
            count = f"{done:,}" if total is None else f"{done:,}/{total:,}"
            self._progress.update(self._task, description=printable(what), completed=done, total=total, count=count)

    def end(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


@contextmanager
def bar(*, is_quiet: bool = False) -> Iterator[Bar]:
    """A bar on stderr, if that is a terminal."""
    shown = Bar(is_shown=not is_quiet and sys.stderr.isatty())
    try:
        yield shown
    finally:
        shown.end()
