"""`transom show`: a session's events, one of them whole, or the window at any point."""

from __future__ import annotations

import json as stdlib_json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from transom import compose
from transom.cli.budget import write_page
from transom.cli.files import check_target
from transom.cli.naming import LATEST, find_session
from transom.cli.options import AsJson, SessionName, StoreFolder, whole_number
from transom.cli.reading import as_far_as_sound, headline, plain_json, speaker, tokens_of, whole
from transom.cli.standing import standing_of
from transom.cli.terminal import out, printable, printable_lines, when
from transom.cli.windows import Seen, governed, recorded
from transom.core.event import Event, Observed
from transom.errors import LogDamaged, UsageError
from transom.lab.tables import counted
from transom.ports import SessionRow

__all__ = ["show"]


def show(
    session: SessionName = LATEST,
    /,
    *,
    at: Annotated[
        int | None, Parameter(converter=whole_number, help="An event's number, the first column of the list.")
    ] = None,
    window: Annotated[
        bool, Parameter(help="What the model saw when that event, or the last, had just been appended.")
    ] = False,
    policy: Annotated[
        str, Parameter(help="The window this policy would have had at the next reply: a preset or FILE.toml.")
    ] = "",
    context_limit: Annotated[str, Parameter(help="The model's window for --policy: 32k, 128000, 1M.")] = "",
    every: Annotated[bool, Parameter(name="--all", help="List also what was never put before the model.")] = False,
    html: Annotated[
        Path | None, Parameter(help="Write a page with plots: every prompt, and whether a new window pays now.")
    ] = None,
    json: AsJson = False,
    store: StoreFolder = None,
) -> int:
    """Show a session's events, one event whole (--at), or the exact window at that point (--window)."""
    check_target("--html", html)
    if context_limit and not policy:
        raise UsageError("--context-limit goes with --policy: a recorded window is as it was")
    with compose.store(store, is_new_allowed=False) as kept:
        row = find_session(kept.log, session, is_replied=bool(html or policy))
        if at is not None and not 1 <= at <= row.head.seq:
            raise UsageError(f"--at {at}: {row.session_id} has events 1 to {row.head.seq}")
        if html:
            write_page(html, standing_of(kept, row, has_points=True))
            return 0
        seq = row.head.seq if at is None else at
        if window or policy:
            seen = governed(kept.log, row, seq, policy, context_limit) if policy else recorded(kept.log, row, seq)
            _print_json(seen.plain()) if json else _show_window(seen)
        elif at is not None:
            _show_event(next(kept.log.read(row.session_id, at - 1, at)), is_json=json)
        else:
            found, problem = as_far_as_sound(kept.log.read(row.session_id))
            _show_events(row, found, every=every, is_json=json)
            if problem:
                raise LogDamaged(f"{problem}; what is listed ends before it")
    return 0


def _print_json(value: object) -> None:
    out().print(Text(stdlib_json.dumps(value, indent=1)), soft_wrap=True)


def _plain(event: Event) -> dict[str, object]:
    plain: dict[str, object] = msgspec.to_builtins(event)
    return plain | {"digest": event.digest.hex()}


def _show_events(row: SessionRow, events: Sequence[Event], *, every: bool, is_json: bool) -> None:
    shown = [event for event in events if every or not isinstance(event.fact, Observed)]
    if is_json:
        _print_json([_plain(event) for event in shown])
        return
    console = out()
    about = (row.session_id, row.agent, row.model, row.title, when(row.opened_at))
    _line(console, " · ".join(printable(one) for one in about if one), style="bold")
    width = len(str(row.head.seq))
    _line(console, f"{'seq':>{width}}  {'time':<14}  {'who':<8}  {'tokens':>7}  what", style="bold")
    is_cut = False
    for event in shown:
        tokens = tokens_of(event.fact)
        count = f"{tokens:,}" if tokens else ""
        cells = f"{event.seq:>{width}}  {_clock(event.at):<14}  {speaker(event.fact):<8}  {count:>7}"
        said = f"{cells}  {printable(headline(event.fact))}"
        is_cut = is_cut or cell_len(said) > console.width
        _line(console, said)
    if is_cut:
        _line(console, "… is a line that has no room; --at SEQ shows an event whole", style="dim")
    hidden = len(events) - len(shown)
    if hidden:
        _line(console, f"{counted(hidden, 'event')} never put before the model; --all lists them", style="dim")


def _line(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style=style), no_wrap=True, overflow="ellipsis")


def _clock(at: int) -> str:
    if not when(at).strip("?"):
        return ""
    return time.strftime("%m-%d %H:%M:%S", time.localtime(at / 1000))


def _show_event(event: Event, *, is_json: bool) -> None:
    if is_json:
        _print_json(_plain(event))
        return
    console = out()
    tag = stdlib_json.loads(plain_json(event.fact))["fact"]
    said = f"event {event.seq} of {event.session_id} · {tag}, {speaker(event.fact)} · {when(event.at)}"
    console.print(Text(printable(said), style="bold"))
    console.print(Text(printable(f"uuid {event.uuid} · digest {event.digest.hex()}"), style="dim"))
    for kind, text in whole(event.fact):
        _show_text(console, kind, text)


def _show_text(console: Console, title: str, text: str) -> None:
    console.print(Text(f"[{printable(title)}]", style="cyan"))
    console.print(Text(printable_lines(text)), soft_wrap=True)


def _show_window(seen: Seen) -> None:
    console = out()
    console.print(Text(printable(seen.title), style="bold"))
    console.print(Text(seen.sizes, style="dim"))
    for section in seen.state.head.sections:
        console.print()
        since = " (has changed since; the window says so)" if section.key in seen.state.head.changes else ""
        _show_text(console, f"head, {section.key}, {section.tokens:,} tokens{since}", section.text)
    if seen.state.head.tools:
        names = ", ".join(tool.name for tool in seen.state.head.tools)
        console.print()
        _show_text(console, f"head, {counted(len(seen.state.head.tools), 'tool')}", names)
    for item in seen.items:
        console.print()
        console.print(Text(printable(item.title), style="bold cyan"))
        for kind, text in item.blocks:
            _show_text(console, kind, text)
