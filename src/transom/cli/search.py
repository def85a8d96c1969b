"""`transom search`: a literal, anywhere in what was said, called or returned."""

from __future__ import annotations

import json as stdlib_json
from typing import Annotated

import msgspec
from cyclopts import Parameter
from rich.padding import Padding
from rich.text import Text

from transom import compose
from transom.cli.naming import find_session
from transom.cli.options import AsJson, StoreFolder, whole_number
from transom.cli.terminal import out, printable, say
from transom.core.searchable import fold_case
from transom.errors import UsageError
from transom.ports import Hit

__all__ = ["search"]


def search(
    query: Annotated[str, Parameter(help="A part of an identifier, a path, an error, words in any language.")],
    /,
    *,
    session: Annotated[str, Parameter(help="Only in this session and what it continues.")] = "",
    limit: Annotated[int, Parameter(converter=whole_number, show_default=True, help="The most hits to show.")] = 20,
    json: AsJson = False,
    store: StoreFolder = None,
) -> int:
    """Find words, identifiers or error strings in every stored session. A query is a literal, compared without case."""
    if not query.strip():
        raise UsageError("QUERY is empty; write what to look for")
    if limit < 1:
        raise UsageError(f"--limit {limit}: at least one hit")
    with compose.store(store, is_new_allowed=False) as kept:
        within = find_session(kept.log, session).session_id if session else None
        hits = kept.log.search(query, within, limit)
    if json:
        out().print(Text(stdlib_json.dumps([msgspec.to_builtins(hit) for hit in hits], indent=1)), soft_wrap=True)
        return 0
    for hit in hits:
        _show(hit, query)
    if not hits:
        say(f"{query!r} was not found.")
    elif len(hits) == limit:
        say(f"These are the first {limit}; --limit shows more.")
    return 0


def _show(hit: Hit, query: str) -> None:
    console = out()
    console.print(
        Text(f"{printable(hit.session_id)} --at {hit.seq}", style="bold").append(f"  {hit.kind}", style="dim")
    )
    text = printable(hit.text)
    shown = Text(text)
    at = fold_case(text).find(fold_case(printable(query)))
    if at >= 0:
        shown.stylize("bold yellow", at, at + len(printable(query)))
    console.print(Padding(shown, (0, 0, 0, 4), expand=False))
