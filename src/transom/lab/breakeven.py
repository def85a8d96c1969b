"""The page of `transom budget --html` and `transom show --html`: what the prompts were, and whether a new window pays.

Two plots as inline SVG, no script, no network. The first: the prompt of each request, and the size from which the cost
rule would have opened a window. The second: what going on costs beyond a fresh window, against opening one now, over
the steps to come, with the odds that the session is still going.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from math import exp, floor, isfinite, log10
from typing import Protocol

from transom.core.costrule import Outlook, Tariff
from transom.lab.report import printable, tokens

__all__ = ["Drawn", "Mark", "page"]

_WIDTH, _HEIGHT = 860, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 16, 14, 40
_TICKS = 5


class Mark(Protocol):
    """A request: its prompt, and the size from which a window would have opened."""

    @property
    def step(self) -> int: ...
    @property
    def prompt(self) -> int: ...
    @property
    def due_at(self) -> float: ...


class Drawn(Protocol):
    """What is drawn of a session."""

    @property
    def model(self) -> str: ...
    @property
    def tariff(self) -> Tariff: ...
    @property
    def limit(self) -> int: ...
    @property
    def outlook(self) -> Outlook: ...
    @property
    def gain(self) -> int: ...
    @property
    def points(self) -> Sequence[Mark]: ...


def page(title: str, drawn: Drawn, sentences: Sequence[str]) -> str:
    """The whole page. Every word of it is escaped."""
    words = "".join(f"<p>{escape(printable(sentence))}</p>" for sentence in sentences)
    style = (files("transom.lab") / "page.css").read_text("utf-8")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{escape(printable(title))}</title>
<style>{style}
svg {{ max-width: 100%; height: auto; font: 12px system-ui, sans-serif; }}
svg text {{ fill: currentColor; }}
svg .grid {{ stroke: currentColor; stroke-opacity: .15; }}
svg .line {{ fill: none; stroke-width: 1.8; }}
</style>
</head>
<body>
<h1>{escape(printable(title))}</h1>
<p class="soft">{escape(printable(drawn.model) or "model unknown")} · limit {drawn.limit:,} tokens</p>
{words}
<h2>Prompts, and when a new window would have been cheaper</h2>
{_windows(drawn)}
<h2>Going on, or a new window now</h2>
{_break_even(drawn)}
</body>
</html>
"""


class _Axes:
    """A plot's frame: from values to places."""

    def __init__(self, xs: tuple[float, float], top: float, x_words: str, y_words: str) -> None:
        self._low, self._high = xs
        self.top = _TICKS * _round_step(top / _TICKS)
        self.parts: list[str] = []
        for number in range(_TICKS + 1):
            y = self.top * number / _TICKS
            x = self._low + (self._high - self._low) * number / _TICKS
            self.parts.append(
                f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{self.y(y):.1f}" y2="{self.y(y):.1f}"/>'
                f'<text x="{_LEFT - 8}" y="{self.y(y) + 4:.1f}" text-anchor="end">{tokens(round(y))}</text>'
                f'<text x="{self.x(x):.1f}" y="{_HEIGHT - 22}" text-anchor="middle">{x:,.0f}</text>'
            )
        self.parts.append(
            f'<text x="{(_LEFT + _WIDTH) / 2:.0f}" y="{_HEIGHT - 4}" text-anchor="middle">{escape(x_words)}</text>'
            f'<text transform="translate(12 {_HEIGHT // 2}) rotate(-90)" text-anchor="middle">{escape(y_words)}</text>'
        )

    def x(self, value: float) -> float:
        span = self._high - self._low or 1.0
        return _LEFT + (value - self._low) / span * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - min(value, self.top) / self.top * (_HEIGHT - _TOP - _BOTTOM)

    def line(self, points: Sequence[tuple[float, float]], colour: str, name: str, dash: str = "") -> None:
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<polyline class="line" points="{path}" stroke="{colour}"{dashed}><title>{escape(name)}</title></polyline>'
        )

    def area(self, points: Sequence[tuple[float, float]], colour: str, name: str) -> None:
        first, last = points[0][0], points[-1][0]
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in [(first, 0), *points, (last, 0)])
        self.parts.append(
            f'<polygon points="{path}" fill="{colour}" fill-opacity=".18"><title>{escape(name)}</title></polygon>'
        )

    def upright(self, x: float, colour: str, words: str, row: int) -> None:
        place = self.x(x)
        side, anchor = (-6, "end") if place > _WIDTH / 2 else (6, "start")
        self.parts.append(
            f'<line x1="{place:.1f}" x2="{place:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" stroke="{colour}"/>'
            f'<text x="{place + side:.1f}" y="{_TOP + 14 + 16 * row}" text-anchor="{anchor}">{escape(words)}</text>'
        )

    def svg(self, words: str) -> str:
        inside = "\n".join(self.parts)
        return (
            f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img" '
            f'aria-label="{escape(words)}">\n{inside}\n</svg>'
        )


def _round_step(step: float) -> float:
    """The next larger round number."""
    if step <= 0:
        return 1.0
    power = 10.0 ** floor(log10(step))
    return next(times * power for times in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if times * power >= step)


_GO_ON, _OPEN, _ODDS = "#D55E00", "#0072B2", "#8C8C8C"
"""Okabe and Ito's palette, as the replay's page."""


def _windows(drawn: Drawn) -> str:
    points = drawn.points
    if len(points) < 2:
        return '<p class="soft">Too few replies to draw.</p>'
    due = [(float(one.step), one.due_at) for one in points if isfinite(one.due_at)]
    top = 1.05 * max(one.prompt for one in points)
    axes = _Axes((points[0].step, points[-1].step), top, "reply", "tokens")
    axes.line([(one.step, one.prompt) for one in points], _GO_ON, "prompt of each request")
    if due:
        axes.line(due, _OPEN, "size from which a new window would be cheaper", "6 3")
    return _key(("prompt of each request", _GO_ON), ("from here on a new window would be cheaper", _OPEN)) + axes.svg(
        "The prompt of each request, and the size from which a new window would be cheaper."
    )


def _break_even(drawn: Drawn) -> str:
    """Both counted beyond a fresh window, so that what either way reads and writes anyway is left out."""
    weighed, r = drawn.outlook, drawn.tariff.r
    pays = weighed.pays_after if isfinite(weighed.pays_after) else 0.0
    steps = max(10.0, 4 * pays) if pays else 1.3 * weighed.remaining
    going, carried = r * max(0, drawn.gain), r * weighed.lookups
    # The two lines cross where the break-even says: there the new window's own tokens are read once less.
    price = (going - carried) * pays if pays else weighed.price
    top = max(going * min(steps, 2.5 * pays or steps), price + carried * steps, 1.0)
    axes = _Axes((0, steps), top, "steps from now", "tokens of plain input")
    top = axes.top
    odds = [(steps * at / 60, top * exp(-steps * at / 60 / weighed.remaining)) for at in range(61)]
    axes.area(odds, _ODDS, "odds that the session is still going (top: certain)")
    last = min(steps, top / going) if going else steps
    axes.line([(0, 0), (last, going * last)], _GO_ON, "going on")
    axes.line([(0, price), (steps, price + carried * steps)], _OPEN, "a new window now")
    if pays:
        axes.upright(pays, _OPEN, f"pays after {pays:,.1f}", 0)
    if weighed.remaining <= steps:
        axes.upright(weighed.remaining, _ODDS, f"{weighed.remaining:,.0f} expected", 1)
    return _key(
        ("going on", _GO_ON), ("a new window now", _OPEN), ("odds that the session is still going", _ODDS)
    ) + axes.svg("What going on costs beyond a fresh window against opening one now, over the steps to come.")


def _key(*entries: tuple[str, str]) -> str:
    marks = "".join(f'<span style="color:{colour}">■</span> {escape(words)} &nbsp; ' for words, colour in entries)
    return f'<p class="soft">{marks}</p>'
