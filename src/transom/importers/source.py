"""A source of records: one file, one member of an archive, or one folder, whatever it is wrapped in.

gz, zst, tar and zip are opened by their first bytes, never by their names. Lines are read one at a time: memory is
bounded by the largest single record plus a constant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from transom.importers.draft import Note, Quarantined

__all__ = ["Record", "Source"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Generic[T]):
    """One decoded record, the line it stands on (1-based) and its raw bytes."""

    line: int
    value: T
    raw: bytes


class Source:
    """One thing to read. `name` is what a person is shown: `path`, or `path!member`."""

    name: str

    def head(self, size: int = 65536) -> bytes:
        """The first decompressed bytes, for sniffing. Empty for folders and archives."""
        raise NotImplementedError

    def lines(self, decoder: msgspec.json.Decoder[T]) -> Iterator[Record[T] | Quarantined | Note]:
        """Records of a JSONL file. Two values torn onto one line are two records (a `Note` says so); a torn last line is
        a `Note` and its bytes a `Quarantined`; a line that is no JSON, nested too deep or of the wrong shape is
        `Quarantined` with the line, the field and the reason."""
        raise NotImplementedError

    def document(self, decoder: msgspec.json.Decoder[T]) -> T:
        """The whole file as one JSON value. Raises `BadInput` naming file, place (line or field) and what to do."""
        raise NotImplementedError

    def members(self) -> dict[str, Source]:
        """Inner path -> source, for a folder, tar or zip; empty for a plain file."""
        raise NotImplementedError

    def beside(self, name: str) -> Source | None:
        """The file `name` in the same folder (with or without `.gz`/`.zst`), or None."""
        raise NotImplementedError
