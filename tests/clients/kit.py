"""The other side: real clients, their drivers, and a strict scripted model server, found where they are installed.

The drivers and the server lie in `tools` of the folder `TRANSOM_SHARED` names, else of the one beside the repository;
the clients in `CLIENTS_DIR`, where that folder's installer puts them. What is absent is a skip with its name.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import pytest

__all__ = ["CLIENTS", "NO_ENV", "Client", "Ended", "Env", "Kit", "Running", "kit"]

Env: TypeAlias = Mapping[str, str]
NO_ENV: Env = {}
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A client speaking one API. `limit`: a window for it, in tokens by the scripted server's count, that leaves about
    10,000 beside its first request and what it may ask for in answer."""

    name: str
    api: str
    limit: int
    env: Mapping[str, str] = field(default_factory=dict)
    goes_on: tuple[str, ...] = ()
    gives_up: str = ""
    """What it says where it does not ask again for an answer that was cut in the middle, but ends."""
    """What makes it go on with its last session."""
    label: str = ""

    @property
    def id(self) -> str:
        return self.label or f"{self.name}-{self.api}"


CLIENTS = (
    Client(name="claude", api="anthropic", limit=31_000, goes_on=("--continue",)),
    Client(name="codex", api="responses", limit=22_000),
    Client(name="codex", api="responses", limit=22_000, env={"TRANSPORT": "ws"}, label="codex-websocket"),
    Client(name="codex", api="responses", limit=29_000, env={"MODEL": "gpt-6.2-sol"}, label="codex-lite"),
    *(
        Client(name="opencode", api=api, limit=24_000, goes_on=("--continue",))
        for api in ("chat", "anthropic", "responses")
    ),
    *(Client(name="pi", api=api, limit=14_000, goes_on=("--continue",)) for api in ("anthropic", "chat", "responses")),
    *(
        Client(name="qwen", api=api, limit=40_000, goes_on=("--continue",), gives_up="[API Error: terminated")
        for api in ("chat", "anthropic", "responses")
    ),
    *(Client(name="mini", api=api, limit=13_000) for api in ("chat", "anthropic", "responses")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a client ended, and all that it printed."""

    code: int
    output: str


class Running:
    """A client at work. What it prints goes into a file: it waits for nobody to read it."""

    def __init__(self, command: Sequence[str], *, work: Path, env: Env, said: str = "") -> None:
        """`said` is what it can read; it runs in `work`, and the file lies beside that."""
        self._printed = work.parent / "printed.txt"
        with tempfile.TemporaryFile() as stdin, self._printed.open("wb") as stdout:
            stdin.write(said.encode())
            stdin.seek(0)
            self._process = subprocess.Popen(
                command, cwd=work, env=dict(env), stdin=stdin, stdout=stdout, stderr=subprocess.STDOUT
            )

    def is_over(self) -> bool:
        return self._process.poll() is not None

    def ended(self, *, within: float = 400) -> Ended:
        """Wait for that, so many seconds at most."""
        code = self._process.wait(within)
        return Ended(code=code, output=self._printed.read_text(errors="replace"))


@dataclass(frozen=True, slots=True)
class Kit:
    """`scripted` is the model server's module."""

    tools: Path
    clients: Path
    scripted: ModuleType

    @contextmanager
    def model(self, script: Mapping[str, Any], *, log: Path) -> Iterator[Any]:
        """A running server."""
        with self.scripted.ScriptedModel(dict(script), log=str(log)) as running:
            yield running
        # It leaves its loop open, and handlers in it that were told to end.
        running.loop.run_until_complete(_ended(asyncio.all_tasks(running.loop)))
        running.loop.close()

    def start(
        self, client: Client, url: str, work: Path, prompt: str, home: Path, *, goes_on: bool = False, env: Env = NO_ENV
    ) -> Running:
        """The client at work in `work`; its own home is `home`, so that another run can go on there (`goes_on`)."""
        named = {"API": client.api, "CLIENTS_DIR": str(self.clients), "CLIENT_HOME": str(home), "TIME_LIMIT": "380"}
        asked = {"RESUME": "1"} if goes_on and not client.goes_on else {}
        driver = self.tools / "clients" / f"{client.name}.sh"
        command = ["bash", str(driver), url, str(work), prompt, *(client.goes_on if goes_on else ())]
        return Running(command, work=work, env={"PATH": os.environ["PATH"], **named, **client.env, **asked, **env})

    def run(
        self, client: Client, url: str, work: Path, prompt: str, home: Path, *, goes_on: bool = False, env: Env = NO_ENV
    ) -> Ended:
        ended = self.start(client, url, work, prompt, home, goes_on=goes_on, env=env).ended()
        if ended.code == 77:
            pytest.skip(f"client {client.name} is not installed in {self.clients}: make test-clients installs it")
        return ended

    def version(self, name: str) -> str:
        """Of an installed client, as its package says."""
        program = (self.clients / name / "node_modules" / ".bin" / name).resolve()
        for folder in program.parents:
            if (folder / "package.json").exists():
                return str(json.loads((folder / "package.json").read_text())["version"])
        (info,) = (self.clients / name / "lib").glob(f"python*/site-packages/{name}*.dist-info")
        return info.name.removesuffix(".dist-info").rpartition("-")[2]


def kit() -> Kit:
    """Skips with what is absent."""
    tools = Path(os.environ.get("TRANSOM_SHARED") or _ROOT.parent / "shared") / "tools"
    clients = Path(os.environ.get("CLIENTS_DIR") or Path.home() / ".cache" / "agent-clients")
    if not tools.is_dir():
        pytest.skip("shared tools absent: no drivers for real clients")
    if not clients.is_dir():
        pytest.skip(f"no clients in {clients}: make test-clients installs them")
    return Kit(tools, clients, _module(tools / "scripted_model.py"))


async def _ended(tasks: Iterable[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


def _module(path: Path) -> ModuleType:
    if path.stem not in sys.modules:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[path.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[path.stem])
    return sys.modules[path.stem]
