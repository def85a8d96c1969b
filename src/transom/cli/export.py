"""`transom export`: a session as event lines anyone can verify, or as text for people."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from transom import compose
from transom.cli.files import check_target, write
from transom.cli.naming import LATEST, find_session
from transom.cli.options import SessionName, StoreFolder
from transom.cli.reading import as_far_as_sound, speaker, whole
from transom.cli.terminal import printable, printable_lines, when
from transom.core.canon import plain_text
from transom.core.event import Event, Observed, ToolReturned
from transom.errors import LogDamaged
from transom.ports import SessionRow

__all__ = ["export"]


def export(
    session: SessionName = LATEST,
    /,
    *,
    format_: Annotated[
        Literal["jsonl", "md"],
        Parameter(
            name="--format",
            show_default=True,
            help="`jsonl`: every event, in full. `md`: the conversation, for people.",
        ),
    ] = "jsonl",
    output: Annotated[
        Path, Parameter(name=("--output", "-o"), allow_leading_hyphen=True, help="The file; `-` is stdout.")
    ] = Path("-"),
    store: StoreFolder = None,
) -> int:
    """Write a session: its event lines with their digests, or text for people. Of a damaged one, what stands before the
    damage; then it exits 1.

    A line is the event's canonical bytes with `digest` put before them: without that member it is what was digested.
    `transom replay FILE` takes such a file back into any store, to the letter.
    """
    check_target("--output", output)
    with compose.store(store, is_new_allowed=False) as kept:
        row = find_session(kept.log, session)
        is_lines = format_ == "jsonl"
        pieces = (
            compose.event_lines_of(row.session_id, kept) if is_lines else _markdown(row, kept.log.read(row.session_id))
        )
        good, problem = as_far_as_sound(pieces)
        if good or not problem:
            write(output, b"".join(good))
    if problem:
        raise LogDamaged(f"{problem}; {'what was written ends before it' if good else 'nothing was written'}")
    return 0


def _markdown(row: SessionRow, events: Iterable[Event]) -> Iterator[bytes]:
    yield f"# {printable(row.title or row.session_id)}\n\n".encode()
    about = (row.session_id, row.agent, row.model, row.workspace, when(row.opened_at))
    yield (" · ".join(printable(one) for one in about if one) + "\n").encode()
    for event in events:
        if not isinstance(event.fact, Observed):
            yield plain_text(_section(event)).encode()


def _section(event: Event) -> str:
    title = f"\n## {event.seq} {speaker(event.fact)} {when(event.at)}".rstrip()
    parts = [title]
    for kind, text in whole(event.fact):
        shown = printable_lines(text).strip("\n")
        if kind.startswith("text,"):
            parts.append(shown)
        elif shown:
            fence = "`" * (1 + max((len(run) for run in re.findall(r"`{2,}", shown)), default=2))
            parts.append(f"*{kind}{' (error)' if _is_error(event) else ''}*\n\n{fence}\n{shown}\n{fence}")
    return "\n\n".join(parts) + "\n"


def _is_error(event: Event) -> bool:
    return isinstance(event.fact, ToolReturned) and event.fact.is_error
