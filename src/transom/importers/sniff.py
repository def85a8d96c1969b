"""Which importer reads a source, decided by its content.

The order matters where one format is a special case of another's shape: the narrow ones are asked first.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from typing import Protocol

from transom.errors import BadInput
from transom.importers.draft import Item
from transom.importers.source import Source
from transom.ports import Blobs

__all__ = ["Importer", "importers", "sniff", "walk"]

_NAMES = (
    "claude_code",
    "claude_stream",
    "codex",
    "pi",
    "copilot_cli",
    "gemini_cli",
    "opencode",
    "openhands",
    "openhands_v0",
    "swe_agent",
    "mini_swe",
    "inspect_log",
    "atif",
    "harbor",
    "chat",
)


class Importer(Protocol):
    """What each module of a format has."""

    FORMAT: str

    def sniff(self, source: Source) -> bool: ...

    def parse(self, source: Source, blobs: Blobs) -> Iterator[Item]: ...


def importers() -> list[Importer]:
    names = [f"transom.importers.{name}" for name in _NAMES]
    return [importlib.import_module(name) for name in names if importlib.util.find_spec(name)]


def sniff(source: Source) -> Importer | None:
    """The importer that knows this source, or None."""
    return next((importer for importer in importers() if importer.sniff(source)), None)


def walk(source: Source) -> Iterator[tuple[Source, Importer | None]]:
    """The transcripts in a source, and what is none: a folder or archive that is no transcript itself is walked, its
    entries in name order. Raises `BadInput` if the source itself is damaged; a damaged file inside it is none."""
    importer = sniff(source)
    children = [] if importer else source.children()
    if importer or not children:
        yield source, importer
    for child in children:
        try:
            yield from list(walk(child))
        except BadInput:
            yield child, None
