"""From a path to facts in the log: opens, sniffs, parses, weighs, appends. The only importer that touches a log.

1. A source whose bytes the log has read before is a no-op: it is hashed, not parsed.
2. Facts are appended in batches, each all or nothing, so that a kill at any point leaves a clean store. An import ends
   with a `SourceRead` in every session it touched, the first session's last: without that one the import was
   interrupted, and the next goes on where it stopped (`track`).
3. The first session's `SourceRead` says what was not understood (by name), what could not be read (by line), and
   every note. Its `records` is not 0; the other sessions' is.
4. A session id is `<format>:<the source's own id>`; a source without one is named by its first record or bytes.
5. A folder or archive is walked; what is no transcript in it is listed in a note. Nothing usable is `BadInput`.
6. Memory, for files of lines: the largest record, a batch of 4 MB, and the names of the facts, by which a record finds
   its parent: 340 bytes each, reader and driver together (100,000 short lines of Claude Code into SQLite: 34 MB).
"""

from __future__ import annotations

import hashlib
from collections import Counter as Tally
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import assert_never

import msgspec

from transom.core.canon import plain_text
from transom.core.event import (
    BlockReplaced,
    Draft,
    Fact,
    Link,
    ModelReplied,
    Observed,
    Replacement,
    SessionOpened,
    SourceRead,
    ToolReturned,
    Usage,
    WindowOpened,
)
from transom.errors import BadInput, SequenceConflict
from transom.importers.draft import Cleared, Compacted, Note, Quarantined, Said, Unknown
from transom.importers.known import Imported, Known
from transom.importers.sniff import Importer, walk
from transom.importers.source import Fingerprint, Source, open_source
from transom.importers.track import QUARANTINED, Track
from transom.measuring import Scale
from transom.ports import Blobs, Counter, Log

__all__ = ["Imported", "Progress", "load"]

Progress = Callable[[str, int], None]
"""Told the name of the source and how many facts of it were read so far."""

_ANONYMOUS = frozenset({"", "main"})
"""Session keys of a source that has no id of its own."""

_NAMED_BY = 4096
"""Bytes of an anonymous document that name it: in practice its settings and the first prompt."""

_STEP = 256
_LISTED = 20
"""Names in a note before it says "and N more"."""

_RETRIES = 4
_INT64 = 2**63 - 1


def load(
    path: str | Path, *, log: Log, blobs: Blobs, counter: Counter, progress: Progress | None = None
) -> list[Imported]:
    """Import every transcript at `path`. Raises `BadInput` if there is none that can be used."""
    top = open_source(path)
    known = Known(log)
    found: list[Imported] = []
    strangers: list[str] = []
    for source, importer in walk(top, known.holds):
        if importer is None:
            before = known.sessions(source)
            found += before
            strangers += [] if before else [source.name]
            continue
        try:
            found += _import(source, importer, known, log=log, blobs=blobs, counter=counter, progress=progress)
        except BadInput as error:
            if not top.is_container:
                raise
            strangers.append(str(error))
    if not found:
        raise BadInput(_nothing(top, strangers))
    if strangers:
        found[0] = replace(found[0], notes=(*found[0].notes, _listed(strangers)))
    return found


def _nothing(top: Source, strangers: list[str]) -> str:
    if top.is_container and not top.members():
        return f"{top.name}: is empty; name a folder with transcripts in it"
    if top.is_container:
        return f"{top.name}: holds no transcript. {_listed(strangers)}"
    head = top.head(512)
    if not head.strip():
        top.read()  # raises if it is the packing that is damaged
        return f"{top.name}: is empty; nothing to import"
    kind = "is binary, no transcript" if b"\0" in head else "is no transcript of a known format"
    return f"{top.name}: {kind}; `transom --help` lists the agents whose sessions can be read"


def _listed(names: list[str]) -> str:
    more = f", and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    what = "file is no transcript" if len(names) == 1 else "files are no transcripts"
    return f"{len(names)} {what}: {', '.join(names[:_LISTED])}{more}"


def _import(
    source: Source,
    importer: Importer,
    known: Known,
    *,
    log: Log,
    blobs: Blobs,
    counter: Counter,
    progress: Progress | None,
) -> list[Imported]:
    whole = known.print_of(source)
    before = known.sessions(source)
    if before:
        return before
    scale = Scale(counter, blobs)

    def attempt() -> list[Imported]:
        run = _Import(source, whole, format_=importer.FORMAT, log=log, scale=scale, counter=counter.name)
        for number, item in enumerate(importer.parse(source, blobs), 1):
            run.take(item)
            if progress and number % _STEP == 0:
                progress(source.name, number)
        return run.finish()

    for _ in range(_RETRIES):
        try:
            done = attempt()
            break
        except SequenceConflict:
            continue  # another process imports the same file: what it appended is met now
    else:
        done = attempt()
    known.learn(whole.sha256, done)
    return done


class _Import:
    """One source on its way into the log."""

    def __init__(
        self, source: Source, whole: Fingerprint, *, format_: str, log: Log, scale: Scale, counter: str
    ) -> None:
        self._source = source
        self._format = format_
        self._log = log
        self._scale = scale
        self._counter = counter
        self._whole = whole
        self._tracks: dict[str, Track] = {}
        self._items = 0
        self._unknown: Tally[str] = Tally()
        self._quarantined: list[tuple[int, str]] = []
        self._notes: list[str] = []
        self._prefixes: dict[int, str] = {}
        self._waiting: list[Draft] = []
        """Lines nobody could read, before the first session was opened."""

    def take(self, item: Said | Compacted | Cleared | Unknown | Quarantined | Note) -> None:
        """One thing the importer says."""
        self._items += 1
        match item:
            case Said():
                self._say(item)
            case Compacted():
                self._compact(item)
            case Cleared():
                self._clear(item)
            case Unknown():
                self._unknown[item.kind] += 1
            case Quarantined():
                self._quarantine(item)
            case Note():
                self._notes.append(item.text)
            case _:
                assert_never(item)

    def finish(self) -> list[Imported]:
        """Close every session with its `SourceRead`, the first one's last."""
        if not self._tracks:
            raise BadInput(f"{self._source.name}: holds no session of {self._format}; nothing to import")
        size, sha256 = self._whole.size, self._whole.sha256
        tracks = list(self._tracks.values())
        for track in tracks:
            track.finish()
        first, *others = tracks
        for track in others:
            if sha256 not in track.read_before:
                name = plain_text(self._source.name)
                track.close(SourceRead(path=name, format=self._format, size=size, sha256=sha256))
        if sha256 not in first.read_before:
            first.close(self._summary())
        return [self._imported(track, is_first=track is first) for track in tracks]

    def _summary(self) -> SourceRead:
        return SourceRead(
            path=plain_text(self._source.name),
            format=self._format,
            size=self._whole.size,
            sha256=self._whole.sha256,
            records=self._items,
            unknown=tuple(sorted(self._unknown.items())),
            quarantined=tuple(self._quarantined),
            notes=(*self._notes, *(note for track in self._tracks.values() for note in track.notes)),
        )

    def _imported(self, track: Track, *, is_first: bool) -> Imported:
        imported = Imported(
            session_id=track.session_id,
            path=self._source.name,
            format=self._format,
            appended=track.appended,
            status=track.status,
            notes=tuple(track.notes),
        )
        if not is_first:
            return imported
        return replace(
            imported,
            notes=(*self._notes, *track.notes),
            unknown=tuple(sorted(self._unknown.items())),
            quarantined=tuple(self._quarantined),
        )

    # -- items

    def _say(self, item: Said) -> None:
        fact = item.fact
        if isinstance(fact, SessionOpened):
            self._open(item, fact)
        else:
            self._tracks[item.session].say(_draft(fact, item.uuid, item.at))

    def _open(self, item: Said, fact: SessionOpened) -> None:
        caller = self._tracks.get(item.parent[0]) if item.parent else None
        link = caller.link(item.parent[1]) if caller and item.parent else None
        session_id = self._session_id(item.session)
        if fact.kind == "child" and link is None and item.parent:
            link = self._head_of(self._session_id(item.parent[0]))
        if fact.kind != "root" and link is None:
            self._notes.append(f"{session_id}: the session it belongs to is not known; it stands on its own")
            fact = msgspec.structs.replace(fact, kind="root")
        fact = msgspec.structs.replace(fact, parent=link, counter=self._counter)
        parent = (caller, link.seq) if caller and link and fact.kind == "fork" else None
        opened = _draft(fact, item.uuid, item.at)
        track = Track(self._log, self._scale.weigh, session_id, opened, parent)
        track.start(self._whole.sha256, self._is_prefix)
        self._tracks[item.session] = track
        for draft in self._waiting:
            track.say(draft)
        self._waiting = []

    def _compact(self, item: Compacted) -> None:
        track = self._tracks[item.session]
        fact = WindowOpened(
            cause="recorded",
            generation=track.windows + 1,
            seed=item.seed,
            kept_head=_seqs(track, item.kept_head),
            kept_tail=_seqs(track, item.kept_tail),
            tokens_before=_fit(max(0, item.tokens_before)),
        )
        track.say(_draft(fact, item.uuid, item.at))

    def _clear(self, item: Cleared) -> None:
        """A result is replaced by one block, whatever number of blocks it had."""
        track = self._tracks[item.session]
        targets: list[Replacement] = []
        for uuid, block in item.targets:
            event = track.event(track.seq_of(uuid))
            if event is None or not isinstance(event.fact, ToolReturned):
                continue
            targets.append(Replacement(seq=event.seq, index=0, block=block))
            targets += [Replacement(seq=event.seq, index=i, block=None) for i in range(1, len(event.fact.blocks))]
        track.say(_draft(BlockReplaced(how=item.how, targets=tuple(targets)), item.uuid, item.at))

    def _quarantine(self, item: Quarantined) -> None:
        self._quarantined.append((item.line, item.why))
        mark = hashlib.sha256(item.raw.encode("utf-8", "replace")).hexdigest()[:8]
        draft = _draft(Observed(kind=QUARANTINED, raw=item.raw), f"L{item.line}.{mark}", 0)
        if self._tracks:
            next(iter(self._tracks.values())).say(draft)
        else:
            self._waiting.append(draft)

    # -- names and places

    def _session_id(self, key: str) -> str:
        name = self._anonymous if key in _ANONYMOUS else plain_text(key).replace("\0", "")
        return f"{self._format}:{name}"

    @cached_property
    def _anonymous(self) -> str:
        """Of lines, the first record, which stays when the file grows; of a document, its first bytes."""
        head = self._source.head()
        first = head.partition(b"\n")[0]
        try:
            msgspec.json.decode(first)
        except (msgspec.DecodeError, RecursionError):
            first = head[:_NAMED_BY]
        return hashlib.sha256(first).hexdigest()[:16]

    def _head_of(self, session_id: str) -> Link | None:
        """The end of a session that another source brought in."""
        rows = self._log.sessions(session_id)
        return rows[0].head if rows else None

    def _is_prefix(self, fact: SourceRead) -> bool:
        """Whether this source still starts with the bytes that were read then."""
        if fact.format != self._format or fact.size > self._whole.size or self._source.is_container:
            return False
        found = self._prefixes.get(fact.size)
        if found is None:
            found = self._prefixes[fact.size] = self._source.fingerprint(fact.size).sha256
        return found == fact.sha256


def _draft(fact: Fact, uuid: str, at: int) -> Draft:
    """A draft the log accepts: a name is Unicode without NUL, a time and a figure fit 64 bits."""
    if isinstance(fact, ModelReplied) and fact.usage:
        fact = msgspec.structs.replace(fact, usage=_fit_usage(fact.usage))
    return Draft(fact=fact, uuid=plain_text(uuid).replace("\0", "") or "unnamed", at=_fit(at))


def _fit(number: int) -> int:
    return max(-_INT64, min(_INT64, number))


def _fit_usage(usage: Usage) -> Usage:
    """The figures as they are, but for one that no store can hold."""
    figures: dict[str, int] = msgspec.structs.asdict(usage)
    if max(figures.values()) <= _INT64:
        return usage
    return msgspec.structs.replace(usage, **{name: _fit(figure) for name, figure in figures.items()})


def _seqs(track: Track, uuids: Iterable[str]) -> tuple[int, ...]:
    return tuple(seq for seq in map(track.seq_of, uuids) if seq)
