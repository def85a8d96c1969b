r"""The replay's page: one HTML file that needs no network, made to be opened on the machine it was written on.

Theory: Python writes the words (tables, titles, notes) and one JSON island with thinned series; `page.js` draws a
session's plots when its section is opened, so eighty sessions cost a browser no more than one. Plotly's script stands
in the page once (4.6 MB for plotly 6); a session and arm add 50 kB at most.

Rule 1. Nothing of a transcript reaches the page unescaped: HTML is escaped, `<` in the island is `\u003c`.
Rule 2. A line has at most `MAX_POINTS` points; its lowest, highest, first and last stay, and the page says so.
Rule 3. The content policy in the head forbids every connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

import msgspec
from plotly.offline import get_plotlyjs

from transom.lab.figures import HandleRecall, Mark, Replay, Result, Run, Series, totals
from transom.lab.report import (
    COLUMNS,
    compared,
    footnotes,
    printable,
    recorded,
    row,
    session_title,
    sessions,
    stopped,
    total_rows,
    total_title,
)
from transom.lab.tables import counted

__all__ = ["MAX_POINTS", "page", "thinned"]

MAX_POINTS = 1_000
"""Twice the pixels of a plot's width on a common screen; more cannot be seen."""


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    """What page.js draws of one run. `boundaries` are (step, tokens, cause)."""

    arm: str
    cause: dict[str, int]
    misses: dict[str, int]
    handles: HandleRecall
    steps: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    cost: tuple[float, ...] = ()
    boundaries: tuple[tuple[int, int, str], ...] = ()


class _Island(msgspec.Struct, frozen=True, kw_only=True):
    arms: tuple[str, ...]
    limit: int
    totals: tuple[_Line, ...]
    sessions: tuple[tuple[_Line, ...], ...]


def page(replay: Replay) -> str:
    """The whole page."""
    groups = sessions(replay.runs)
    kept = compared(replay.runs)
    title = "Transom replay" if len(groups) != 1 else f"Transom replay: {session_title(groups[0][0])}"
    arms = tuple(dict.fromkeys(printable(run.result.arm) for run in replay.runs))
    island = _Island(
        arms=arms,
        limit=replay.context_limit,
        totals=tuple(_line(total, Series()) for total in totals(kept)),
        sessions=tuple(tuple(_line(run.result, run.series) for run in runs) for runs in groups),
    )
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="soft">{_counted(len(groups), len(arms), replay.context_limit)}</p>',
    ]
    if len(groups) > 1:
        body += [
            f"<h2>{escape(total_title(replay.runs))}</h2>",
            *([_table(total_rows(replay.runs)), '<div class="plots small" id="summary"></div>'] if kept else []),
        ]
    body += [f"<h2>{'Sessions' if len(groups) > 1 else 'Session'}</h2>"]
    body += [_section(number, runs, is_open=len(groups) == 1) for number, runs in enumerate(groups)]
    return _document(title, "\n".join([*body, _notes(replay)]), island)


def _document(title: str, body: str, island: _Island) -> str:
    room = files("transom.lab")
    data = msgspec.json.encode(island).decode().replace("<", "\\u003c")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline'; \
style-src 'unsafe-inline'; img-src data: blob:">
<title>{escape(title)}</title>
<style>{(room / "page.css").read_text("utf-8")}</style>
</head>
<body>
{body}
<script type="application/json" id="data">{data}</script>
<script>{get_plotlyjs()}</script>
<script>{(room / "page.js").read_text("utf-8")}</script>
</body>
</html>
"""


def _counted(n_sessions: int, n_arms: int, limit: int) -> str:
    counts = [f"{n} {noun}{'s' * (n != 1)}" for n, noun in ((n_sessions, "session"), (n_arms, "arm"))]
    return f"{' under '.join(counts)}, context limit {limit:,} tokens"


def _section(number: int, runs: Sequence[Run], *, is_open: bool) -> str:
    first = runs[0].result
    about = (printable(first.format), printable(first.model) or "model unknown", counted(first.steps, "step"))
    words = " · ".join((*about, recorded(first)))
    ended = "".join(f'<p class="stopped">{escape(arms)} stopped: {escape(why)}</p>' for arms, why in stopped(runs))
    return (
        f'<details data-session="{number}"{" open" * is_open}>'
        f'<summary><b>{escape(session_title(runs[0]))}</b> <span class="soft">{escape(words)}</span></summary>'
        f"{_table(row((run.result,)) for run in runs)}{ended}"
        '<div class="plots"></div><div class="plots small"></div></details>'
    )


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    kinds = ["number" if column.is_number else "words" if column.folds else "" for column in COLUMNS]
    head = "".join(
        f'<th class="{kind}">{escape(column.name)}</th>' for kind, column in zip(kinds, COLUMNS, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f'<td class="{kind}">{escape(cell)}</td>' for kind, cell in zip(kinds, cells, strict=True))
        + "</tr>"
        for cells in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _notes(replay: Replay) -> str:
    notes = footnotes(replay)
    if any(len(run.series.tokens) > MAX_POINTS for run in replay.runs):
        notes.append(f"Lines are thinned to {MAX_POINTS:,} points; their lowest and highest values are kept.")
    notes.append("A mark on a window's line is a boundary; point at it for its cause.")
    return '<ul class="notes">' + "".join(f"<li>{escape(note)}</li>" for note in notes) + "</ul>"


def _line(result: Result, series: Series) -> _Line:
    kept = thinned(series.tokens)
    return _Line(
        arm=printable(result.arm),
        cause=_printable_keys(result.boundaries),
        misses=_printable_keys(result.misses),
        handles=result.handle_recall,
        steps=tuple(at + 1 for at in kept),
        tokens=tuple(series.tokens[at] for at in kept),
        cost=tuple(round(series.cost_usd[at], 6) for at in kept) if series.cost_usd else (),
        boundaries=tuple(_marks(series)),
    )


def _printable_keys(counts: dict[str, int]) -> dict[str, int]:
    return {printable(name): n for name, n in counts.items()}


def _marks(series: Series) -> Iterable[tuple[int, int, str]]:
    marks: Sequence[Mark] = series.boundaries
    every = -(-len(marks) // MAX_POINTS) or 1
    for mark in marks[::every]:
        if 1 <= mark.step <= len(series.tokens):
            yield mark.step, series.tokens[mark.step - 1], printable(mark.what)


def thinned(values: Sequence[int], most: int = MAX_POINTS) -> tuple[int, ...]:
    """Ascending positions to draw: all, or the lowest and highest of equal stretches with the first and last."""
    n = len(values)
    if n <= most:
        return tuple(range(n))
    stretches = (most - 2) // 2
    kept = {0, n - 1}
    for stretch in range(stretches):
        places = range(stretch * n // stretches, (stretch + 1) * n // stretches)
        kept.add(min(places, key=values.__getitem__))
        kept.add(max(places, key=values.__getitem__))
    return tuple(sorted(kept))
