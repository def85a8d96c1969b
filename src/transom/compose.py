"""What stands behind each port, and where things lie; beside `live`, the only file that names concrete adapters.

A store is a folder: `log.db` (the log), `log.search.db` (its index, may be deleted), `blobs/` (large bodies),
`exports/` (sessions of opencode), `snapshots/` (saved states, may be deleted), `running/` (who runs a session). It is
the one named, else `$TRANSOM_HOME`, else the folder the system keeps for the data of a user's programs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import platformdirs

from transom.adapters import provider_anthropic
from transom.adapters.blobs import DirBlobs
from transom.adapters.counter import open_counter
from transom.adapters.memory_log import MemoryLog
from transom.adapters.policy_file import load_policy
from transom.adapters.price_table import load_prices
from transom.adapters.sqlite_log import SqliteLog
from transom.core.event import SessionOpened
from transom.core.policy import Policy
from transom.core.pricing import PriceTable
from transom.core.wire import Dialect
from transom.errors import BadInput, LogDamaged
from transom.importers.opencode_store import export
from transom.importers.places import Recent, recent
from transom.ports import Blobs, Counter, Log

if TYPE_CHECKING:
    from transom.adapters.provider_http import HttpProvider, Patience
    from transom.adapters.snapshots import DirSnapshots
    from transom.importers.load import Imported as Imported  # noqa: PLC0414 - the commands name the type
    from transom.importers.load import Progress

__all__ = [
    "Store",
    "counter",
    "default_store_path",
    "demo",
    "dialect_for",
    "event_lines_of",
    "import_file",
    "import_recent",
    "key_variables",
    "policy",
    "prices",
    "provider",
    "recent_sessions",
    "sample",
    "scratch_log",
    "sent_dialect",
    "store",
    "verified_export",
]


class Store:
    """A log and its blobs. Close it, or use it as a context: what was appended is then searchable at once."""

    def __init__(self, path: Path, *, is_reader: bool = False) -> None:
        self.path = path
        self.blobs = DirBlobs(path / "blobs")
        self.log = SqliteLog(path / "log.db", self.blobs, is_reader=is_reader)

    def close(self) -> None:
        self.log.close()

    @property
    def snapshots(self) -> DirSnapshots:
        from transom.adapters.snapshots import DirSnapshots

        return DirSnapshots(self.path / "snapshots")

    def hold(self, session_id: str) -> AbstractContextManager[None]:
        """Be the one process that runs this session. Raises `UsageError` naming the one that does."""
        from transom.adapters.holding import hold

        return hold(self.path / "running", session_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def store(path: Path | None = None, *, is_new_allowed: bool = True) -> Store:
    """Open the store at `path` (None: the default one), or make it. Raises `BadInput` if there is none and none may be
    made; one that must be there is read on a full disk as well."""
    folder = default_store_path() if path is None else path
    try:
        is_store, is_file = (folder / "log.db").exists(), folder.exists() and not folder.is_dir()
    except OSError as problem:
        raise BadInput(f"{folder}: {problem.strerror}; name another folder") from None
    if not is_new_allowed and path is not None and not is_store:
        raise BadInput(f"{folder}: holds no store; name one that `transom run`, `replay` or `gateway` made")
    if is_file:
        raise BadInput(f"{folder}: is a file; a store is a folder")
    return Store(folder, is_reader=not is_new_allowed)


def default_store_path() -> Path:
    named = os.environ.get("TRANSOM_HOME")
    if named:
        return Path(named).expanduser()
    return platformdirs.user_data_path("transom", appauthor=False)


def counter() -> Counter:
    return open_counter()


def scratch_log() -> Log:
    """An empty log that lasts as long as the process."""
    return MemoryLog()


def prices(file: Path | None = None) -> PriceTable:
    """The dated table of the package; the entries of `file` are tried first."""
    return load_prices(file)


def policy(file: Path) -> Policy:
    return load_policy(file)


def dialect_for(provider: str = "", model: str = "") -> Dialect:  # noqa: ARG001 - see below
    """How a replay's requests look on the wire, whatever provider was recorded: it compares its bytes with themselves
    only, so the verdicts are the same under any dialect. A live session takes its provider's own."""
    return provider_anthropic.DIALECT


def sent_dialect(opened: SessionOpened | None, blobs: Blobs) -> Dialect:
    """How the requests of a stored session looked: its provider's own dialect, which shows that provider's thoughts
    alone; the replay's for a recording and for what no API was asked."""
    from transom.adapters import provider_openai_chat, provider_openai_responses
    from transom.adapters.local_dialect import DIALECT as LOCAL
    from transom.adapters.provider_catalogue import PROVIDERS
    from transom.adapters.provider_writing import Reach

    name = opened.provider if opened is not None and opened.agent == "transom" else ""
    reach = Reach(origin=f"{name}/{opened.model}" if opened else "", blobs=blobs)
    dialects = {
        "anthropic": provider_anthropic.dialect,
        "openai_chat": provider_openai_chat.dialect,
        "openai_responses": provider_openai_responses.dialect,
    }
    if name == "local":
        return LOCAL
    one = next((one for one in PROVIDERS if one.name == name), None)
    return dialects[one.api](reach) if one is not None else provider_anthropic.DIALECT


def provider(
    name: str,
    model: str,
    *,
    base_url: str = "",
    params: str = "",
    blobs: Blobs | None = None,
    is_streamed: bool = True,
    env: Mapping[str, str] | None = None,
    patience: Patience | None = None,
) -> HttpProvider:
    """A model behind an API. `name` is one of `provider_catalogue.PROVIDERS`, `params` a JSON object of fields added to
    every request, `blobs` where pictures lie. Raises `BadInput`, and `ProviderError` for a missing key."""
    from transom.adapters import provider_openai_chat, provider_openai_responses
    from transom.adapters.provider_catalogue import base_url_of, key_of, known
    from transom.adapters.provider_http import Endpoint, HttpProvider
    from transom.adapters.provider_writing import Reach

    world = os.environ if env is None else env
    one = known(name)
    reach = Reach(origin=f"{name}/{model}", blobs=blobs, system_role=one.system_role)
    match one.api:
        case "anthropic":
            api = provider_anthropic.api(reach=reach, params=params, is_streamed=is_streamed)
        case "openai_chat":
            api = provider_openai_chat.api(
                reach=reach, params=params, is_streamed=is_streamed, is_openai=name == "openai-chat"
            )
        case "openai_responses":
            api = provider_openai_responses.api(reach=reach, params=params, is_streamed=is_streamed)
    endpoint = Endpoint(
        name=name, base_url=base_url_of(one, base_url, world), key=key_of(one, world), key_variable=one.key_variable
    )
    return HttpProvider(api, endpoint, patience)


def key_variables() -> list[str]:
    """The variables in which providers' keys stand."""
    from transom.adapters.provider_catalogue import PROVIDERS

    return list(dict.fromkeys(one.key_variable for one in PROVIDERS if one.key_variable))


@contextmanager
def demo() -> Iterator[Path]:
    """A small repository whose tests fail (`repo/`), and the script of a model that mends it (`script.toml`)."""
    with resources.as_file(resources.files("transom.data").joinpath("demo")) as folder:
        yield folder


def import_file(path: Path, into: Store, *, counts: Counter, progress: Progress | None = None) -> list[Imported]:
    """Import every transcript at `path`, a file, a folder or an archive; an export of ours is taken back as it was."""
    from transom.importers import event_lines
    from transom.importers.load import Imported, load
    from transom.importers.source import open_source

    source = open_source(path)
    if event_lines.sniff(source):
        appended = event_lines.take_back(source, log=into.log, blobs=into.blobs)
        return [
            Imported(
                session_id=session_id,
                path=source.name,
                format=event_lines.FORMAT,
                appended=count,
                status="new" if count else "unchanged",
            )
            for session_id, count in appended.items()
        ]
    return load(path, log=into.log, blobs=into.blobs, counter=counts, progress=progress)


def import_recent(one: Recent, into: Store, *, counts: Counter, progress: Progress | None = None) -> list[Imported]:
    """Import a session of a usual place. opencode's is exported first; the export stays in the store."""
    path = one.path
    if one.opencode_id:
        path = into.path / "exports" / f"{one.opencode_id}.json"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(export(one.path, one.opencode_id))
    return import_file(path, into, counts=counts, progress=progress)


def event_lines_of(session_id: str, kept: Store) -> Iterator[bytes]:
    """A session as lines that `import_file` takes back to the letter."""
    from transom.importers.event_lines import lines

    return lines(kept.log, kept.blobs, session_id)


def verified_export(path: Path) -> dict[str, int]:
    """Session -> events of a file that `event_lines_of` wrote, each digest derived again; no store is needed. Raises
    `LogDamaged` at the first line that does not follow, `BadInput` for a file that is none."""
    from transom.importers import event_lines
    from transom.importers.source import open_source

    source = open_source(path)
    if not event_lines.sniff(source):
        raise BadInput(f"{path}: does not begin as a file of `transom export` does, so there is nothing to verify")
    try:
        return event_lines.verified(source)
    except BadInput as problem:
        raise LogDamaged(str(problem)) from problem


def recent_sessions(home: Path | None = None) -> Iterator[Recent]:
    """Recorded sessions under the usual places of known agents, the newest first."""
    return recent(Path.home() if home is None else home, os.environ)


@contextmanager
def sample() -> Iterator[Path]:
    """A small session of our own making."""
    folder = resources.files("transom.data").joinpath("sample")
    with resources.as_file(folder.joinpath("fix-retry-after.jsonl.gz")) as path:
        yield path
