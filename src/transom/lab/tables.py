"""Tables that lose nothing: what is too wide for the terminal goes on in another table below, behind the same first
column; a cell that is wider than all of it is folded. No figure is cut, no column dropped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["Column", "counted", "show_table", "tables"]

_GAP = 3  # rich puts two spaces of padding and one of the box between columns
_FOLD = 30  # two reasons of misses with their counts, as `initial 1, reset:checkpoint 14`, in one line


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column. `folds`: its cells are words, which may go on in the next line."""

    name: str
    is_number: bool = True
    folds: bool = False


def counted(number: int, what: str) -> str:
    """`1 step`, `2 steps`, `1,000 steps`; `what` is one of them."""
    ending = "" if number == 1 else "es" if what.endswith("s") else "s"
    return f"{number:,} {what}{ending}"


def show_table(console: Console, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Print it, in as many tables as the width asks for."""
    for one in tables(columns, rows, console.width):
        console.print(one)


def tables(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[Table | Text]:
    """The same to be printed, with an empty line between two of them."""
    lines = [(column.name, *cells) for column, cells in zip(columns, zip(*rows, strict=True), strict=True)]
    needs = [
        min(max(map(cell_len, cells)), max(_FOLD, cell_len(column.name)) if column.folds else width)
        for column, cells in zip(columns, lines, strict=True)
    ]
    needs[0] = min(needs[0], max(_FOLD, width // 3))
    found: list[Table | Text] = []
    for places in _split(needs, width):
        found += [Text()] if found else []
        found.append(_table([(columns[place], needs[place], lines[place][1:]) for place in places]))
    return found


def _split(needs: Sequence[int], width: int) -> Iterable[list[int]]:
    """Which columns stand together: the first one in each table."""
    places, used = [0], needs[0]
    for place, need in enumerate(needs[1:], 1):
        if used + _GAP + need > width and len(places) > 1:
            yield places
            places, used = [0], needs[0]
        places.append(place)
        used += _GAP + need
    yield places


def _table(columns: Sequence[tuple[Column, int, Sequence[str]]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1), header_style="bold")
    for place, (column, need, _) in enumerate(columns):
        table.add_column(
            column.name,
            justify="right" if column.is_number else "left",
            overflow="fold",
            min_width=need if len(columns) > 2 else None,
            max_width=None if place else need,
        )
    for cells in zip(*(cells for _, _, cells in columns), strict=True):
        table.add_row(*map(Text, cells))
    return table
