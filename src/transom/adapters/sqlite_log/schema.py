"""The file: how it is made, recognised and refused, and what SQLite's errors mean to a caller.

One row per event, STRICT, in WAL. The file carries `application_id` and the log format in `user_version`. Triggers
refuse UPDATE and DELETE (L1). The schema text is compared with ours on every open, so a trigger cannot vanish unseen.
The file is 0600, its folder 0700: a log holds everything a person and an agent said.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from transom.core.canon import FORMAT
from transom.errors import BadInput, KernelError, LogDamaged, LogTooNew, Unwritable, UsageError

__all__ = [
    "APPLICATION_ID",
    "SCHEMA",
    "SEQ_BITS",
    "SEQ_MASK",
    "connect",
    "event_id",
    "is_passing",
    "mended",
    "open_log",
    "refusal",
    "writing",
]

APPLICATION_ID = int.from_bytes(b"TrSm")
_MAGIC = b"SQLite format 3\0"
_LEAST = 512
"""Bytes of SQLite's smallest page (its file format, 1.3): no database is shorter."""
_PASSING = tuple(f"SQLITE_{name}" for name in ["FULL", "BUSY", "LOCKED", "READONLY", "CANTOPEN", "PERM", "IOERR"])
_NO_ROOM = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN")
"""What SQLite says where it cannot make the files it shares with other processes; had one opened the log, they were
there."""
_BUSY_SECONDS = 10.0
"""How long a writer waits for another process. An append holds the lock for milliseconds, a big import's batch for a
second; ten mean that something hangs, and a gateway's clients wait as long."""

SCHEMA = {
    "session": """CREATE TABLE session (
  key INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  parent INTEGER REFERENCES session (key),
  base INTEGER NOT NULL
) STRICT""",
    "event": """CREATE TABLE event (
  id INTEGER PRIMARY KEY,
  uuid TEXT NOT NULL,
  at INTEGER NOT NULL,
  kind TEXT NOT NULL,
  digest BLOB NOT NULL,
  payload BLOB,
  artifact TEXT,
  CHECK ((payload IS NULL) <> (artifact IS NULL))
) STRICT""",
} | {
    f"{table}_{verb}": f"CREATE TRIGGER {table}_{verb} BEFORE {verb.upper()} ON {table} "
    "BEGIN SELECT RAISE(ABORT, 'the log only grows (L1)'); END"
    for table in ("session", "event")
    for verb in ("update", "delete")
}
"""`parent` and `base` are the continued session and its last inherited seq, for forks; NULL and 0 otherwise. `payload`
is the fact's canonical bytes, or `artifact` names the blob that holds them. `id` is `event_id(key, seq)`: one tree
instead of a table and an index saves a page written per commit, and a session is read as one range."""

SEQ_BITS = 40
SEQ_MASK = 0xFF_FFFF_FFFF
"""How an id is cut: `id >> 40` is the session's key and `id & 0xFFFFFFFFFF` the seq, as the statements have it."""


def event_id(key: int, seq: int) -> int:
    """The row of event `seq` of the session with this key. Room for 8 million sessions of 10^12 events."""
    high: int = key << SEQ_BITS
    return high | min(seq, SEQ_MASK)


@contextmanager
def mended(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours: what is damaged, what could not be written."""
    try:
        yield
    except sqlite3.Error as error:
        raise refusal(path, error) from error
    except UnicodeDecodeError as error:  # SQLite quotes a damaged name in its message, and Python cannot read that
        raise LogDamaged(f"{path}: is damaged where its tables are described; restore the file from a copy") from error


def is_passing(error: sqlite3.Error) -> bool:
    """Whether the disk, a lock or a permission is the trouble, and not what is stored."""
    return getattr(error, "sqlite_errorname", "").startswith(_PASSING)


def refusal(path: Path, error: sqlite3.Error) -> KernelError:
    """What SQLite's error means to the caller."""
    if isinstance(error, sqlite3.ProgrammingError):  # nothing is wrong with the file
        return UsageError(f"{path}: {error} Use a store inside its `with`.")
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith("SQLITE_FULL"):
        return Unwritable(f"{path}: the disk is full; nothing of this write was stored. Make room and try again")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return Unwritable(f"{path}: another process has held the log for {_BUSY_SECONDS:.0f} s; stop it or try again")
    if is_passing(error):
        return Unwritable(f"{path}: the file or its disk cannot be used: {error}; nothing was stored")
    return LogDamaged(f"{path}: {error}; restore the file from a copy")


@contextmanager
def writing(db: sqlite3.Connection) -> Iterator[None]:
    """One transaction that takes the write lock at its start: a deferred one that reads first cannot wait for it."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def connect(path: Path, synchronous: str, *, is_reader: bool = False) -> sqlite3.Connection:
    """A connection in WAL; the file is made with our modes before SQLite sees it. One that may not be written is read.
    To a reader that goes for a full disk too, which has no room for what SQLite puts beside a file that it opens.

    Nobody else in this process may open the file: to close any descriptor of it drops the locks that all connections of
    the process hold on it (POSIX), and another process then takes their WAL for one that is left over, and deletes it.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            with suppress(FileExistsError):  # another process was faster
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise Unwritable(f"{path}: cannot be opened: {error.strerror}") from error
    is_writable = os.access(path, os.W_OK)
    uri = f"{path.absolute().as_uri()}?{'mode=rw' if is_writable else _read_only(path)}"
    db = sqlite3.connect(uri, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=True)
    try:
        if is_writable:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(f"PRAGMA synchronous = {synchronous}")
    except sqlite3.Error as error:
        db.close()
        if is_reader and error.sqlite_errorname.startswith(_NO_ROOM) and not _has_wal(path):
            uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
            return sqlite3.connect(uri, isolation_level=None, check_same_thread=False, uri=True)
        raise
    return db


def _has_wal(path: Path) -> bool:
    """Whether a WAL holds anything, which `immutable` would not see; a full disk leaves an empty one behind."""
    wal = path.with_name(f"{path.name}-wal")
    return wal.exists() and wal.stat().st_size > 0


def _read_only(path: Path) -> str:
    """Where no writer left a WAL, none can be made either: the file is all there is. An empty one has a writer, who may
    be about to fill it."""
    wal = path.with_name(f"{path.name}-wal")
    return "mode=ro" if wal.exists() else "mode=ro&immutable=1"


def open_log(path: Path, synchronous: str, *, is_reader: bool = False) -> sqlite3.Connection:
    """Open or make the log's file; refuse what is no log, a newer log, or a log whose schema is not ours."""
    if path.is_dir():
        raise BadInput(f"{path}: is a folder; name the log's file")
    with mended(path):
        if path.exists() and 0 < path.stat().st_size < _LEAST:  # SQLite would take it for an empty one
            raise _no_log(path)
        try:
            db = connect(path, synchronous, is_reader=is_reader)
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorname != "SQLITE_NOTADB":
                raise
            raise _no_log(path) from error
        try:
            if not _is_empty(db) or not _make(db):
                _recognise(path, db)
        except BaseException:
            db.close()
            raise
    return db


def _no_log(path: Path) -> KernelError:
    """What is said of a file that SQLite cannot open; so nobody in this process holds a lock on it."""
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) == _MAGIC:
            return LogDamaged(f"{path}: its beginning is damaged; restore the file from a copy")
    return BadInput(f"{path}: is no Transom log (it does not start as an SQLite file does)")


def _is_empty(db: sqlite3.Connection) -> bool:
    found: tuple[int] = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    return found[0] == 0 and _number(db, "application_id") == 0


def _make(db: sqlite3.Connection) -> bool:
    """Create the schema; False if another process was faster."""
    with writing(db):
        if not _is_empty(db):
            return False
        for statement in SCHEMA.values():
            db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {FORMAT}")
    return True


def _recognise(path: Path, db: sqlite3.Connection) -> None:
    if _number(db, "application_id") != APPLICATION_ID:
        raise BadInput(f"{path}: is an SQLite file of another program, no Transom log")
    version = _number(db, "user_version")
    if version > FORMAT:
        raise LogTooNew(
            f"{path}: was written in log format {version}; this Transom reads up to {FORMAT}. Use a newer Transom"
        )
    if version < 1:
        raise LogDamaged(f"{path}: says log format {version}, which never was; restore the file from a copy")
    found = dict(db.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL"))
    for name in sorted(SCHEMA.keys() | found.keys()):
        if SCHEMA.get(name) != found.get(name):
            raise LogDamaged(
                f"{path}: its {name!r} is not as log format {version} has it; restore the file from a copy"
            )


def _number(db: sqlite3.Connection, pragma: str) -> int:
    value: int = db.execute(f"PRAGMA {pragma}").fetchone()[0]
    return value
