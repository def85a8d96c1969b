"""`transom sessions`: what is stored, newest first."""

from __future__ import annotations

import json as stdlib_json
from itertools import islice

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from transom import compose
from transom.cli.naming import short_ids
from transom.cli.options import AsJson, StoreFolder
from transom.cli.reading import headline
from transom.cli.terminal import is_wide, out, printable, say, when
from transom.core.event import UserSaid
from transom.lab.tables import counted
from transom.ports import Log, SessionRow

__all__ = ["sessions"]

_DIGEST = 12
"""Hex digits of a head's digest: enough to tell any two sessions apart by eye."""

_MODEL, _HEAD = 100, 140
"""Columns from which on kind and model, and the head's digest, leave a title room."""

_TABLE = 56
"""Columns from which on the id, some words of a title, the events and the day stand beside each other."""

_TITLE = 100
"""Columns of a title where no terminal says how many there are: some titles are a user's whole first message."""

_ID = len("claude-code:11111111~2")

_DATE = len("2026-11-30")

_AGENT = "agent"
"""The title of every sub-agent's session behind the gateway."""

_LOOKED_AT = 40
"""Events looked at for the first words of a user, where a session has no title."""


def sessions(*, json: AsJson = False, store: StoreFolder = None) -> int:
    """List the stored sessions, the newest first."""
    with compose.store(store, is_new_allowed=False) as kept:
        rows = kept.log.sessions()
        if json:
            plain = [msgspec.to_builtins(row) for row in rows]
            out().print(Text(stdlib_json.dumps(plain, indent=1)), soft_wrap=True)
        elif rows:
            _show(kept.log, rows)
        else:
            say("No session is stored yet: `transom run TASK` begins one, `transom replay FILE` imports one.")
    return 0


def _show(log: Log, rows: list[SessionRow]) -> None:
    console = out()
    has_model, has_head = console.width >= _MODEL, console.width >= _HEAD
    if console.width < _TABLE:
        for row, short in zip(rows, short_ids(rows), strict=True):
            about = f"{counted(row.events, 'event')}, {when(row.last_at)[:_DATE]}"
            _stacked(console, short, _title(log, row), about)
    else:
        console.print(_table(console, log, rows))
    left = ["the time, kind, model"] * (not has_model) + ["the chain's head"] * (not has_head)
    if left:
        width = _HEAD if has_model else f"{_MODEL} and {_HEAD}"
        console.print(Text(f"{' and '.join(left)}: from {width} columns on, or with --json", style="dim"))


def _table(console: Console, log: Log, rows: list[SessionRow]) -> Table:
    is_piped, has_model, has_head = is_wide(console), console.width >= _MODEL, console.width >= _HEAD
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1), header_style="bold")
    table.expand = not is_piped
    table.add_column("session", overflow="fold", max_width=max(_ID, console.width // 3))
    if has_model:
        table.add_column("kind", no_wrap=True)
        table.add_column("model", overflow="ellipsis", no_wrap=True, max_width=24)
    table.add_column("title", overflow="ellipsis", no_wrap=True, ratio=1, max_width=_TITLE if is_piped else None)
    table.add_column("events", justify="right", no_wrap=True)
    table.add_column("last", no_wrap=True)
    if has_head:
        table.add_column("head", no_wrap=True)
    for row, short in zip(rows, short_ids(rows), strict=True):
        about = [row.kind, row.model] if has_model else []
        head = [row.head.digest[:_DIGEST]] if has_head else []
        last = when(row.last_at) if has_model else when(row.last_at)[:_DATE]
        cells = [short, *about, _title(log, row), f"{row.events:,}", last, *head]
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table


def _stacked(console: Console, *lines: str) -> None:
    """Where no two columns have room beside each other: a line each."""
    for place, line in enumerate(filter(None, lines)):
        console.print(Text(f"{'  ' * bool(place)}{printable(line)}"), overflow="fold")


def _title(log: Log, row: SessionRow) -> str:
    """The title, else the user's first words; both where the title is not its own."""
    if row.title and row.title != _AGENT:
        return row.title
    first = islice(log.read(row.session_id, row.head.seq - row.events), _LOOKED_AT)
    words = next((headline(event.fact) for event in first if isinstance(event.fact, UserSaid)), "")
    return ": ".join(part for part in (row.title, words) if part)
