"""What a source is wrapped in: plain bytes, gzip, zstd, tar, zip or a folder, told by first bytes, never by name.

A `Place` knows where bytes are and opens them anew each time, so a plain file is never held open between two
readings. An archive is held open as long as a place inside it is in use; a packed tar is unpacked once, to a temporary
file, because its members are not read in the order they are stored in.
"""

from __future__ import annotations

import gzip
import importlib
import io
import os
import tarfile
import tempfile
import weakref
import zipfile
import zlib
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from transom.errors import BadInput

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["ARCHIVE_BYTES", "DAMAGE", "Place", "file_place", "folder_place"]

ARCHIVE_BYTES = 4 << 30
"""The largest packed tar that is unpacked to a temporary file."""

DAMAGE = (OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile, NotImplementedError, RuntimeError)
"""What the standard readers raise for a cut, damaged, encrypted or unknown packing."""

_BUFFER = 1 << 17
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_TAR_MARK = slice(257, 262)
_SUFFIXES = ("", ".gz", ".zst")


class Place:
    """Where the bytes, or the members, of one source are. A folder has no `opened`."""

    def __init__(
        self,
        name: str,
        *,
        opened: Callable[[], io.BufferedReader] | None = None,
        listed: Callable[[], Mapping[str, Place]] | None = None,
        siblings: Callable[[str], Place | None] | None = None,
    ) -> None:
        self.name = name
        self._opened = opened
        self._listed = listed
        self._siblings = siblings

    @property
    def is_folder(self) -> bool:
        """Whether it has no bytes of its own, packed or not."""
        return self._opened is None

    @cached_property
    def is_container(self) -> bool:
        """Whether it has members instead of bytes."""
        if self.is_folder:
            return True
        try:
            with self.stream() as stream:
                head = stream.read(512)
        except DAMAGE:
            return False
        return head.startswith(_ZIP) or head[_TAR_MARK] == b"ustar"

    @cached_property
    def members(self) -> Mapping[str, Place]:
        """Inner path -> place, of regular files at any depth; empty for plain bytes."""
        if self._listed is not None:
            return self._listed()
        if not self.is_container:
            return {}
        try:
            return _Archive(self).places
        except DAMAGE as error:
            raise BadInput(f"{self.name}: the archive is damaged or cut ({error}); copy it again") from None

    def stream(self) -> io.BufferedReader:
        """The unpacked bytes from the start."""
        assert self._opened is not None, self.name
        raw = self._opened()
        head = raw.peek(4)
        if head.startswith(_GZIP):
            return io.BufferedReader(_Gzip(raw), _BUFFER)
        if head.startswith(_ZSTD):
            return io.BufferedReader(_Zstd(raw, self.name), _BUFFER)
        return raw

    def beside(self, name: str) -> Place | None:
        """The file `name` in the same folder, packed or not."""
        if self._siblings is None:
            return None
        found = (self._siblings(name + suffix) for suffix in _SUFFIXES)
        return next((place for place in found if place is not None), None)

    def folder(self, name: str) -> Place:
        """The sub-folder `name` of this container."""
        inner = {
            path.removeprefix(name + "/"): place for path, place in self.members.items() if path.startswith(name + "/")
        }
        joint = "/" if self._opened is None else "!"
        return Place(f"{self.name}{joint}{name}", listed=lambda: inner)


def file_place(path: Path) -> Place:
    """A regular file."""
    return Place(
        str(path),
        opened=lambda: io.BufferedReader(io.FileIO(path), _BUFFER),
        siblings=partial(_sibling_file, path.parent),
    )


def folder_place(path: Path) -> Place:
    """A folder and everything below it; links to folders are not followed, so a walk ends."""
    return Place(str(path), listed=partial(_walked, path))


def _walked(top: Path) -> dict[str, Place]:
    found: dict[str, Place] = {}
    for folder, names, files in os.walk(top):
        names.sort()
        for name in sorted(files):
            path = Path(folder, name)
            if path.is_file():
                found[path.relative_to(top).as_posix()] = file_place(path)
    return found


def _sibling_file(folder: Path, name: str) -> Place | None:
    path = folder / name
    return file_place(path) if path.is_file() else None


class _Archive:
    """An open tar or zip and the places inside it."""

    def __init__(self, place: Place) -> None:
        self._name = place.name
        stream = _seekable(place)
        weakref.finalize(self, stream.close)
        if stream.read(4).startswith(_ZIP):
            stream.seek(0)
            zipped = zipfile.ZipFile(stream)
            openers = {
                info.filename: partial(self._from_zip, zipped, info) for info in zipped.infolist() if not info.is_dir()
            }
        else:
            stream.seek(0)
            tarred = tarfile.open(fileobj=stream, mode="r:")  # noqa: SIM115 - it is closed with the stream below it
            openers = {
                info.name.removeprefix("./"): partial(self._from_tar, tarred, info) for info in tarred if info.isreg()
            }
        self.places = {path: self._place(path, opened) for path, opened in sorted(openers.items())}

    def _place(self, path: str, opened: Callable[[], io.BufferedReader]) -> Place:
        folder = path.rpartition("/")[0]
        prefix = f"{folder}/" if folder else ""
        return Place(f"{self._name}!{path}", opened=opened, siblings=lambda name: self.places.get(prefix + name))

    def _from_zip(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> io.BufferedReader:
        member = archive.open(info)
        assert isinstance(member, zipfile.ZipExtFile), info.filename
        return io.BufferedReader(member, _BUFFER)

    def _from_tar(self, archive: tarfile.TarFile, info: tarfile.TarInfo) -> io.BufferedReader:
        member = archive.extractfile(info)
        assert isinstance(member, io.BufferedReader), info.name
        return member


def _seekable(place: Place) -> BinaryIO:
    """The unpacked bytes in a form that can be read in any order."""
    stream = place.stream()
    if isinstance(stream.raw, io.FileIO):
        return stream
    with stream:
        copy = tempfile.TemporaryFile()  # noqa: SIM115 - the archive closes it
        done = 0
        while block := stream.read(_BUFFER):
            done += copy.write(block)
            if done > ARCHIVE_BYTES:
                copy.close()
                raise BadInput(f"{place.name}: larger than {ARCHIVE_BYTES >> 30} GiB when unpacked; unpack it yourself")
    copy.seek(0)
    return copy


class _Gzip(gzip.GzipFile):
    """Closes the file it reads from, which the standard class leaves open, and gives what stands before a cut."""

    def __init__(self, raw: io.BufferedReader) -> None:
        super().__init__(fileobj=raw, mode="rb")
        self._packed = raw

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read1(len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        super().close()
        self._packed.close()


class _Zstd(io.RawIOBase):
    """A zstd stream whose defects are the `OSError` that every other reader raises."""

    def __init__(self, raw: io.BufferedReader, name: str) -> None:
        try:
            zstandard = importlib.import_module("zstandard")
        except ImportError:
            raw.close()
            raise BadInput(f"{name}: is zstd; install transom[zst], or unpack it first with `zstd -d`") from None
        self._packed = raw
        self._error: type[Exception] = zstandard.ZstdError
        self._reader: BinaryIO = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        try:
            data = self._reader.read(len(view))
        except self._error as error:
            raise OSError(str(error)) from None
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._packed.close()
        super().close()
