"""Which importer reads a source, decided by its content.

The order matters where one format is a special case of another's shape: the narrow ones are asked first, plain message
arrays last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from transom.errors import BadInput
from transom.importers import (
    chat,
    claude_code,
    claude_stream,
    codex,
    copilot_cli,
    gemini_cli,
    inspect_eval,
    mini_swe,
    opencode,
    openhands,
    pi,
    swe_agent,
    terminal_bench,
)
from transom.importers.draft import Item
from transom.importers.source import Source
from transom.ports import Blobs

__all__ = ["IMPORTERS", "Importer", "sniff", "walk"]


class Importer(Protocol):
    """What each module of a format has."""

    FORMAT: str

    def sniff(self, source: Source) -> bool: ...

    def parse(self, source: Source, blobs: Blobs) -> Iterator[Item]: ...


IMPORTERS: tuple[Importer, ...] = (
    claude_code,
    claude_stream,
    codex,
    pi,
    copilot_cli,
    gemini_cli,
    opencode,
    openhands,
    inspect_eval,
    terminal_bench,
    swe_agent,
    mini_swe,
    chat,
)


def sniff(source: Source) -> Importer | None:
    """The importer that knows this source, or None."""
    return next((importer for importer in IMPORTERS if importer.sniff(source)), None)


def walk(source: Source, is_known: Callable[[Source], bool]) -> Iterator[tuple[Source, Importer | None]]:
    """The transcripts in a source, and what is none: a folder or archive that is no transcript itself is walked, its
    entries in name order. What is known already is not looked into. Raises `BadInput` if the source itself is damaged;
    a damaged file inside it is none."""
    if is_known(source):
        yield source, None
        return
    importer = sniff(source)
    children = [] if importer else source.children()
    if importer or not children:
        yield source, importer
    for child in children:
        try:
            yield from list(walk(child, is_known))
        except BadInput:
            yield child, None
