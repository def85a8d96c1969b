"""What a running gateway does, as a table: once, or again as it changes.

On a terminal `--watch` draws it in place; into a pipe it is printed again when something changed, one line of JSON a
change with `--json`.
"""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from transom.cli.terminal import out, printable
from transom.errors import BadInput, reason_of
from transom.lab.report import dollars
from transom.lab.tables import Column, tables

__all__ = ["Row", "Status", "fetched", "show_status"]

_ELSEWHERE = (
    "One that `transom gateway run` starts has an address of its own, which it prints (--at), and ends with its "
    "client; what it kept: transom sessions"
)
_PAUSE = 1.0
"""Seconds between two looks."""
_METRIC = re.compile(r"(?P<name>\w+)(?:\{(?P<labels>.*)\})?")
_LABEL = re.compile(r'"([^"]*)"')
_SHOWN = ("requests", "verdicts", "upstream_errors", "recovered", "broken", "left", "unkept")
_COLUMNS = (
    Column(name="session", is_number=False),
    Column(name="client", is_number=False),
    Column(name="model", is_number=False),
    Column(name="windows"),
    Column(name="requests"),
    Column(name="prompt, of at most"),
    Column(name="cached"),
    Column(name="boundaries"),
    Column(name="spent"),
    Column(name="misses", is_number=False, folds=True),
)
_NOTES = (
    "prompt: tokens of the newest request as counted here, of what the context limit leaves beside room for an answer.",
    "cached: the share of all prompt tokens that the provider reported as read from its cache.",
    "misses: requests that did not begin as the one before, by reason; the first of all is `initial`.",
    "a fork has its own cached, spent and misses; its windows, requests and boundaries are those of its whole history.",
)


class Row(msgspec.Struct, frozen=True):
    """One session in the gateway's memory."""

    session: str
    client: str
    model: str
    window: int
    tokens: int
    limit: int
    requests: int
    boundaries: int
    prompt_tokens: int
    cached_tokens: int
    usd: float
    context_limit: int = 0
    misses: dict[str, int] = {}
    price: str = ""
    is_price_assumed: bool = False


class Status(msgspec.Struct, frozen=True):
    sessions: tuple[Row, ...]
    metrics: dict[str, int]
    failed_open: str = ""
    """Why the last request that went on ungoverned did."""


def show_status(at: str, token: str, *, is_live: bool, is_json: bool) -> None:
    """Raises `BadInput` where no gateway answers."""
    console = out()
    if is_live and not is_json and console.is_terminal:
        with suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as view:
            for raw in _changes(at, token):
                view.update(_view(_read(at, raw), console), refresh=True)
        return
    with suppress(KeyboardInterrupt):
        for raw in _changes(at, token) if is_live else [_asked(at, token)]:
            found = _read(at, raw)
            if is_json:
                text = json.dumps(json.loads(raw), indent=None if is_live else 1)
                console.print(Text(text), soft_wrap=True)
            else:
                console.print(_view(found, console), end="\n" * (1 + is_live))
            console.file.flush()


def fetched(at: str, token: str) -> Status:
    return _read(at, _asked(at, token))


def _changes(at: str, token: str) -> Iterator[bytes]:
    """What it says, each time that it is something new."""
    before = b""
    while True:
        raw = _asked(at, token)
        if raw != before:
            yield raw
        before = raw
        time.sleep(_PAUSE)


def _asked(at: str, token: str) -> bytes:
    at = at if "://" in at else f"http://{at}"
    if not at.startswith(("http://", "https://")):
        raise BadInput(f"--at {at}: is no http or https URL")
    request = urllib.request.Request(f"{at.rstrip('/')}/transom/status", headers={"x-transom-token": token})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310 - its scheme was looked at
            raw: bytes = response.read()
            return raw
    except urllib.error.HTTPError as answer:
        if answer.code == 401:
            raise BadInput(f"{at}: the gateway there wants its token: --token") from None
        raise BadInput(f"{at}: no gateway answers there: something else does ({answer.code})") from None
    except (OSError, ValueError, HTTPException) as problem:
        raise BadInput(f"{at}: no gateway answers there: {reason_of(problem)}. {_ELSEWHERE}") from None


def _read(at: str, raw: bytes) -> Status:
    try:
        return msgspec.json.decode(raw, type=Status)
    except msgspec.DecodeError:
        raise BadInput(f"{at}: what answers there is no gateway, or one of another version") from None


def _view(found: Status, console: Console) -> RenderableType:
    lines = [Text(line) for line in _totals(found.metrics)]
    if found.failed_open:
        lines.append(Text(printable(f"the last that failed open: {found.failed_open}"), style="yellow"))
    if not found.sessions:
        return Group(
            *lines,
            Text("No session is in memory: nothing that it governs was asked yet, or what was has failed open since."),
        )
    notes = list(_NOTES)
    assumed = sorted({f"{row.model} by the entry `{row.price}`" for row in found.sessions if row.is_price_assumed})
    if assumed:
        notes.append(f"* no price of the model is known: {', '.join(assumed)}.")
    shown = tables(_COLUMNS, [_cells(row) for row in reversed(found.sessions)], console.width)
    return Group(*lines, Text(), *shown, Text(), *(Text(printable(note), style="dim") for note in notes))


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.session[:8],
        printable(row.client),
        printable(row.model),
        f"{row.window:,}",
        f"{row.requests:,}",
        f"{row.tokens:,} of {row.limit:,}",
        f"{row.cached_tokens / row.prompt_tokens:.0%}" if row.prompt_tokens else "-",
        f"{row.boundaries:,}",
        dollars(row.usd) + " *" * row.is_price_assumed,
        ", ".join(f"{reason} {count:,}" for reason, count in row.misses.items()) or "-",
    )


def _totals(metrics: dict[str, int]) -> list[str]:
    """A line a metric, what it counts by its labels: `requests  governed 12, side 1`."""
    found: dict[str, list[str]] = {}
    for key, value in metrics.items():
        parsed = _METRIC.fullmatch(key)
        if parsed and parsed["name"] in _SHOWN:
            words = " ".join(filter(None, _LABEL.findall(parsed["labels"] or "")))
            found.setdefault(parsed["name"], []).append(f"{words} {value:,}".strip())
    width = max(map(len, found), default=0)
    shown = [name for name in _SHOWN if name in found]
    return [f"{name.replace('_', ' '):<{width}}  {printable(', '.join(found[name]))}" for name in shown]
