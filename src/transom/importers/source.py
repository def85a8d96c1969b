"""A source of records: one file, one member of an archive, or one folder, whatever it is wrapped in.

gz, zst, tar and zip are opened by their first bytes, never by their names. Lines are read one at a time: memory is
bounded by the largest single record (`RECORD_BYTES` at most) plus a constant: the read buffers, under 1 MiB. A
document is held whole (`DOCUMENT_BYTES` at most), a packed tar is unpacked to a temporary file (`ARCHIVE_BYTES` at
most), so a small file that unpacks to a huge one ends in a sentence. What is not quite JSON is mended where that is
certain (`mending`), with a note; what is no record is quarantined with its line; nothing is dropped without a word.
"""

from __future__ import annotations

import codecs
import hashlib
import io
import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from transom.errors import BadInput, reason_of
from transom.importers.container import DAMAGE, Place, file_place, folder_place
from transom.importers.draft import Note, Quarantined
from transom.importers.mending import decode, values

__all__ = ["DOCUMENT_BYTES", "RECORD_BYTES", "Fingerprint", "Record", "Source", "open_source"]

T = TypeVar("T")

RECORD_BYTES = 64 << 20
"""The largest line that is decoded. The longest of the recorded sessions at hand is 4 MB; 64 MiB is room for a reply
with a few uncompressed screenshots and still far below what a small machine has."""

DOCUMENT_BYTES = 512 << 20
"""The largest single JSON document that is decoded: an evaluation log of 200 MB fits, a bomb does not."""

_KEPT_OF_HUGE = 65536
"""Characters kept of a line that is too large to decode."""

_BUFFER = 1 << 18
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Generic[T]):
    """One decoded record, the line it stands on (1-based) and its raw bytes."""

    line: int
    value: T
    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """Size and sha256 (hex) of a source's unpacked bytes."""

    size: int
    sha256: str


class Source:
    """One thing to read. `name` is what a person is shown: `path`, or `path!member`."""

    name: str

    def __init__(self, place: Place) -> None:
        self.name = place.name
        self._place = place
        self._cut = ""

    @property
    def is_container(self) -> bool:
        """Whether this is a folder or an archive, and so has members instead of bytes."""
        try:
            return self._place.is_container
        except OSError as error:
            raise self._unreadable(error) from None

    @property
    def is_folder(self) -> bool:
        """Whether this is a folder, on disk or in an archive."""
        return self._place.is_folder

    def head(self, size: int = 65536) -> bytes:
        """The first decompressed bytes, for sniffing, as UTF-8. Empty for folders and archives."""
        if self.is_container:
            return b""
        data = b""
        with closing(self._stream()) as stream:
            try:
                while len(data) < size and (piece := stream.read1(size - len(data))):
                    data += piece
            except DAMAGE:
                pass  # what stands before the damage is what an import reads
        encoding = _encoding(data)
        return data.decode(encoding, "replace").encode() if encoding else data

    def lines(self, decoder: msgspec.json.Decoder[T]) -> Iterator[Record[T] | Quarantined | Note]:
        """Records of a JSONL file. Two values torn onto one line are two records (a `Note` says so); a torn last line
        is a `Note` and its bytes a `Quarantined`; a line that is no JSON, nested too deep or of the wrong shape is
        `Quarantined` with the line, the field and the reason."""
        fast = decoder.decode
        number = 0
        mended = 0
        for number, raw, is_whole in self._raw_lines():
            if len(raw) > RECORD_BYTES:
                yield _too_large(number, raw)
                continue
            try:
                value = fast(raw)
            except (msgspec.DecodeError, RecursionError):
                for item in _odd_line(number, raw, decoder, is_last_torn=not is_whole):
                    if isinstance(item, Note) and not item.text:
                        mended += 1
                    else:
                        yield item
                continue
            yield Record(line=number, value=value, raw=raw.rstrip(b"\r\n"))
        if mended:
            yield Note(text=f"{mended} lines were mended: bytes that are no UTF-8, NUL or control bytes, or NaN")
        if self._cut:
            yield Note(text=f"the compressed stream is cut or damaged after line {number}: {self._cut}")

    def document(self, decoder: msgspec.json.Decoder[T]) -> T:
        """The whole file as one JSON value. Raises `BadInput` naming file, place (line or field) and what to do."""
        data = self.read(DOCUMENT_BYTES)
        try:
            return decode(data, decoder)[0]
        except msgspec.ValidationError as error:
            raise BadInput(f"{self.name}: not of the expected shape: {error}; export the session again") from None
        except RecursionError:
            raise BadInput(f"{self.name}: nested too deep to be a transcript; nothing can be read of it") from None
        except msgspec.DecodeError as error:
            raise BadInput(f"{self.name}: {_place(data, str(error))}") from None

    def read(self, limit: int = DOCUMENT_BYTES) -> bytes:
        """All unpacked bytes, as UTF-8. Raises `BadInput` if there are more than `limit`, or the packing is damaged."""
        if self.is_container:
            raise BadInput(f"{self.name}: is a folder or an archive, not one document; name a file inside it")
        with closing(self._stream()) as stream:
            try:
                data = stream.read(limit + 1)
            except DAMAGE as error:
                raise BadInput(f"{self.name}: truncated or damaged archive ({error}); copy it again") from None
        if len(data) > limit:
            raise BadInput(f"{self.name}: larger than {limit >> 20} MiB when unpacked; split it into smaller files")
        encoding = _encoding(data)
        return data.decode(encoding, "replace").encode() if encoding else data

    def members(self) -> dict[str, Source]:
        """Inner path -> source, for a folder, tar or zip; empty for a plain file."""
        return {path: Source(place) for path, place in self._place.members.items()}

    def children(self) -> list[Source]:
        """The direct entries of a folder or archive: files first, so that what lies in a folder beside a session is
        read after it, each in name order."""
        places = self._place.members
        files = [Source(place) for path, place in sorted(places.items()) if "/" not in path]
        folders = sorted({path.split("/", 1)[0] for path in places if "/" in path})
        return [*files, *(Source(self._place.folder(name)) for name in folders)]

    def beside(self, name: str) -> Source | None:
        """The file `name` in the same folder (with or without `.gz`/`.zst`), or None."""
        place = self._place.beside(name)
        return None if place is None else Source(place)

    def fingerprint(self, size: int = -1) -> Fingerprint:
        """Digest of the unpacked bytes, or of the first `size` of them. A container's is over the names and
        fingerprints of its members."""
        if self.is_container:
            inner = {path: member.fingerprint() for path, member in sorted(self.members().items())}
            text = "\n".join(f"{path}\0{print_.sha256}" for path, print_ in inner.items())
            sha256 = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
            return Fingerprint(size=sum(print_.size for print_ in inner.values()), sha256=sha256)
        hasher = hashlib.sha256()
        done = 0
        with closing(self._stream()) as stream:
            try:
                while block := stream.read(_BUFFER if size < 0 else min(_BUFFER, size - done)):
                    hasher.update(block)
                    done += len(block)
            except DAMAGE:
                pass  # what can be read is what an import reads: the same bytes are digested
        return Fingerprint(size=done, sha256=hasher.hexdigest())

    def _stream(self) -> io.BufferedReader:
        try:
            return self._place.stream()
        except DAMAGE as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: Exception) -> BadInput:
        return BadInput(f"{self.name}: cannot be read ({reason_of(error)}); check the file and its permissions")

    def _raw_lines(self) -> Iterator[tuple[int, bytes, bool]]:
        """(line number, bytes with the line end, whether it is there); a larger line is cut behind the limit."""
        self._cut = ""
        with closing(self._stream()) as stream:
            try:
                encoding = _encoding(stream.peek(4)[:4])
                if encoding.startswith("utf-16"):
                    yield from _utf16_lines(stream, encoding)
                    return
                number = 0
                while raw := stream.readline(RECORD_BYTES + 1):
                    number += 1
                    whole = raw
                    while not whole.endswith(b"\n") and len(raw) > RECORD_BYTES and whole:
                        whole = stream.readline(RECORD_BYTES)
                    if number == 1 and raw.startswith(codecs.BOM_UTF8):
                        raw = raw[3:]
                    yield number, raw, raw.endswith(b"\n") or len(raw) > RECORD_BYTES
            except DAMAGE as error:
                self._cut = str(error)


def open_source(path: str | Path) -> Source:
    """The source at `path`. Raises `BadInput` if there is no file or folder, or it may not be read."""
    place = Path(path)
    try:
        if place.is_dir():
            next(place.iterdir(), None)
            return Source(folder_place(place))
        if not place.is_file():
            kind = "is no regular file" if place.exists() else "no such file or folder"
            raise BadInput(f"{place}: {kind}; name a transcript file, an archive or a folder")
        with place.open("rb"):
            return Source(file_place(place))
    except OSError as error:
        raise BadInput(f"{place}: cannot be read: {error.strerror}") from None


def _encoding(head: bytes) -> str:
    """The encoding to decode from, or "" for UTF-8 as it is. JSON starts with an ASCII character, so the place of the
    zero bytes tells UTF-16 without a mark."""
    for mark, name in _BOMS:
        if head.startswith(mark):
            return name
    if len(head) >= 2 and head[0] and not head[1]:
        return "utf-16-le"
    if len(head) >= 4 and not head[0] and head[1] and not head[2] and head[3]:
        return "utf-16-be"
    return ""


def _utf16_lines(stream: io.BufferedReader, encoding: str) -> Iterator[tuple[int, bytes, bool]]:
    with io.TextIOWrapper(stream, encoding=encoding, errors="replace", newline="\n") as text:
        number = 0
        while line := text.readline(RECORD_BYTES + 1):
            number += 1
            yield number, line.encode("utf-8", "replace"), line.endswith("\n")


def _too_large(number: int, raw: bytes) -> Quarantined:
    kept = raw[:_KEPT_OF_HUGE].decode("utf-8", "replace")
    why = f"larger than {RECORD_BYTES >> 20} MiB: not read; the first {_KEPT_OF_HUGE} bytes are kept"
    return Quarantined(line=number, why=why, raw=kept)


def _odd_line(
    number: int, raw: bytes, decoder: msgspec.json.Decoder[T], *, is_last_torn: bool
) -> Iterator[Record[T] | Quarantined | Note]:
    """A line the strict decoder refused. An empty `Note` stands for a mended record and is counted by the caller."""
    text = raw.strip(b"\0 \t\r\n")
    if not text:
        return
    try:
        found, is_mended = decode(text, decoder)
    except msgspec.ValidationError as error:
        yield Quarantined(line=number, why=f"not of the expected shape: {error}", raw=_shown(text))
        return
    except RecursionError:
        yield Quarantined(line=number, why="nested too deep to decode", raw=_shown(text))
        return
    except msgspec.DecodeError as error:
        yield from _torn_line(number, text, decoder, str(error), is_last_torn=is_last_torn)
        return
    yield Record(line=number, value=found, raw=text)
    if is_mended or len(text) < len(raw.strip()):
        yield Note(text="")


def _torn_line(
    number: int, text: bytes, decoder: msgspec.json.Decoder[T], why: str, *, is_last_torn: bool
) -> Iterator[Record[T] | Quarantined | Note]:
    spans, rest = values(text)
    if len(spans) > 1:
        yield Note(text=f"line {number} holds {len(spans)} values, the line end between them is lost: all are read")
    for span in spans:
        try:
            found, _ = decode(span, decoder)
        except (msgspec.DecodeError, RecursionError) as error:
            yield Quarantined(line=number, why=f"not of the expected shape: {error}", raw=_shown(span))
        else:
            yield Record(line=number, value=found, raw=span)
    if rest:
        if is_last_torn:
            yield Note(text=f"the last line ({number}) is torn: the file was copied while it was being written")
        reason = "torn last line" if is_last_torn else f"no JSON: {why}"
        yield Quarantined(line=number, why=reason, raw=_shown(rest))


def _shown(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _place(data: bytes, why: str) -> str:
    """Where a document breaks, for a person."""
    if not data.strip(b"\0 \t\r\n"):
        return "is empty; nothing to import"
    text = data.decode("utf-8", "replace")
    try:
        json.loads(text, strict=False)
    except json.JSONDecodeError as error:
        rest = text[error.pos :].strip()
        is_truncated = not rest or error.msg.startswith("Unterminated string")
        what = "the document is truncated" if is_truncated else f"no JSON ({error.msg})"
        return f"line {error.lineno}, column {error.colno}: {what}; copy or export the file again"
    except (ValueError, RecursionError) as error:
        return f"no JSON ({error}); copy or export the file again"
    return f"no JSON ({why}); copy or export the file again"
