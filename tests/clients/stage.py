"""One run of a client at the job: scripted model <- gateway <- witness <- client, or the client and the model alone.

All runs of a test use the same folder for the work and the same for the client's home, so that nothing in what the
client says differs but for its own ids and times.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.clients import job
from tests.clients.kit import NO_ENV, Client, Ended, Env, Kit, Running
from tests.clients.model import Progress, goes_by_results
from tests.clients.tap import Seen, Tap

__all__ = ["GO_ON", "THINKS", "Behind", "Gateway", "Run", "Stage", "free_port", "killing"]

GO_ON = "Please go on until all is done."
THINKS = 0.03
"""Seconds a model takes for an answer where the gateway is killed: about what the gateway takes to start and end one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What came of a run. `records` are the model server's, `seen` the witness's (none without a gateway)."""

    ended: Ended
    records: tuple[dict[str, Any], ...]
    seen: tuple[Seen, ...]
    wrong: tuple[str, ...]
    """What is not as it should be with the files."""
    store: Path
    status: Mapping[str, Any]
    """The gateway's own, before it was stopped."""

    @property
    def main(self) -> list[dict[str, Any]]:
        """Requests of the main loop that the model answered."""
        return [one for one in self.records if one["kind"] == "main"]

    @property
    def asked(self) -> list[Seen]:
        """Requests of the client that were governed."""
        return [one for one in self.seen if one.said in {"plain", "governed"}]

    @property
    def refused(self) -> list[str]:
        """What the model server would not have, each with its reason."""
        return [f"{one['n']}: {one['kind']} {one['error']}" for one in self.records if one.get("error")]

    def upstream_tokens(self) -> int:
        """Of the largest request, by the server's count."""
        return max((int(one["rendered_bytes"]) + 3) // 4 for one in self.records if "rendered_bytes" in one)

    def cached_share(self) -> float:
        used = [one["usage"] for one in self.main]
        return float(sum(one["read"] for one in used) / max(1, sum(one["total"] for one in used)))

    def breaks(self) -> int:
        """Requests that do not begin with the whole of the one before."""
        return sum(1 for one in self.main if one.get("prev_bytes") and one["prev_lcp"] < one["prev_bytes"])

    def prefix_kept(self) -> float:
        """Bytes of the requests before that the next one began with, of all."""
        before = [one for one in self.main if one.get("prev_bytes")]
        return float(sum(one["prev_lcp"] for one in before) / max(1, sum(one["prev_bytes"] for one in before)))


class Gateway:
    """The server as people start it, in a process of its own on a port that stays."""

    def __init__(self, upstream: str, store: Path, limit: int, *, port: int, policy: str = "rollover") -> None:
        self.url, self.store = f"http://127.0.0.1:{port}", store
        ups = (word for name in ("anthropic", "openai") for word in ("--upstream", f"{name}={upstream}"))
        self._command = [sys.executable, "-m", "transom", "gateway", "--port", str(port), "--store", str(store)]
        self._command += ["--context-limit", str(limit), "--policy", policy, *ups]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """And wait until it is ready."""
        with (self.store.parent / "gateway.log").open("ab") as log:
            env = {**os.environ, "TRANSOM_TRACEBACK": "1"}
            self._process = subprocess.Popen(self._command, env=env, stdout=log, stderr=log)
        end = time.monotonic() + 60
        while not self._answers():
            assert self._process.poll() is None, (self.store.parent / "gateway.log").read_text()
            assert time.monotonic() < end, "the gateway does not become ready"
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            return bool(self.get("/transom/ready"))
        except OSError:
            return False

    def get(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(self.url + path, timeout=30) as response:
            found: dict[str, Any] = json.load(response)
            return found

    def kill(self) -> None:
        """As by `kill -9`."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(20)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(60)


@dataclass(slots=True)
class Stage:
    """Runs of one client. `thinks`: the model thinks before it acts, where it was asked to."""

    kit: Kit
    client: Client
    folder: Path
    thinks: bool = False
    lines: int = job.LINES
    """Of each file."""

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def script(self, hooks: Sequence[Mapping[str, Any]] = (), **more: object) -> dict[str, Any]:
        lanes = {"main": job.script()}
        return {"lanes": lanes, "hooks": list(hooks), "think": self.thinks, "cwd": str(self.work), **more}

    def direct(self, *, env: Env = NO_ENV) -> Run:
        """The client and the model alone, with all the room there is."""
        with self._fresh("direct") as log, self.kit.model(self.script(), log=log) as model:
            ended = self.kit.run(self.client, model.base_url, self.work, job.asked(self.work), self.home, env=env)
            return self.run_of(ended, model.records(), (), {})

    def governed(
        self,
        limit: int,
        hooks: Sequence[Mapping[str, Any]],
        *,
        script: Mapping[str, Any] | None = None,
        env: Env = NO_ENV,
    ) -> Run:
        """The client behind the gateway, the model's window being `limit` tokens."""
        with self.behind(limit, script or self.script(hooks)) as behind:
            ended = behind.run(job.asked(self.work), env=env)
            return behind.ended(ended)

    @contextmanager
    def behind(self, limit: int, script: Mapping[str, Any], *, policy: str = "rollover") -> Iterator[Behind]:
        """Everything but the client."""
        with (
            self._fresh(policy) as log,
            self.kit.model({"limit_tokens": limit, **script}, log=log) as model,
            Tap(model.base_url) as back,
        ):
            gateway = Gateway(back.base_url, self.folder / "store", limit, port=free_port(), policy=policy)
            try:
                gateway.start()
                with Tap(gateway.url) as front:
                    yield Behind(self, model, gateway, front, back)
            finally:
                gateway.stop()

    def killed(
        self, limit: int, hooks: Sequence[Mapping[str, Any]], *, kills: int, seed: int, env: Env = NO_ENV
    ) -> Run:
        """As `governed`, the gateway killed `kills` times at moments drawn from `seed`, and started again at once. For as
        long as a start takes, the witness cuts what a client asks for. One that gives up is told to go on."""
        chance = random.Random(seed)
        left = deque(sorted(chance.sample(range(job.STEPS), kills)))
        starts = 1
        script = {**self.script(hooks), "limit_tokens": limit}
        with self._fresh("killed") as log, self.kit.model(script, log=log) as model:
            progress = goes_by_results(model, seconds=THINKS)
            gateway = Gateway(model.base_url, self.folder / "store", limit, port=free_port())
            try:
                gateway.start()
                with Tap(gateway.url) as tap:
                    client = self.kit.start(
                        self.client, tap.base_url, self.work, job.asked(self.work), self.home, env=env
                    )
                    killing(gateway, progress, client, left, chance)
                    ended = client.ended()
                    while ended.code and self.client.gives_up and self.client.gives_up in ended.output:
                        assert starts <= kills, ended.output[-3000:]
                        starts += 1
                        client = self.kit.start(
                            self.client, tap.base_url, self.work, GO_ON, self.home, goes_on=True, env=env
                        )
                        killing(gateway, progress, client, left, chance)
                        ended = client.ended()
                status = {**gateway.get("/transom/status"), "kills": kills - len(left), "starts": starts}
            finally:
                gateway.stop()
            return self.run_of(ended, model.records(), tap.seen, status)

    @contextmanager
    def _fresh(self, name: str) -> Iterator[Path]:
        """Folders as if nothing had run here; the path of the server's log."""
        self.lay_out()
        shutil.rmtree(self.folder / "store", ignore_errors=True)
        yield self.folder / f"{name}.jsonl"

    def lay_out(self) -> None:
        for folder in (self.work, self.home):
            shutil.rmtree(folder, ignore_errors=True)
        job.lay_out(self.work, self.lines)

    def run_of(
        self, ended: Ended, records: Sequence[dict[str, Any]], seen: Sequence[Seen], status: Mapping[str, Any]
    ) -> Run:
        return Run(
            ended=ended,
            records=tuple(records),
            seen=tuple(seen),
            wrong=tuple(job.is_done(self.work, self.lines)),
            store=self.folder / "store",
            status=status,
        )


@dataclass(frozen=True, slots=True)
class Behind:
    """A gateway at work with a model behind it, and a witness on either side of it."""

    stage: Stage
    model: Any
    gateway: Gateway
    front: Tap
    back: Tap

    def run(self, prompt: str, *, goes_on: bool = False, env: Env = NO_ENV) -> Ended:
        at = self.stage
        return at.kit.run(at.client, self.front.base_url, at.work, prompt, at.home, goes_on=goes_on, env=env)

    def restart(self) -> None:
        self.gateway.stop()
        self.gateway.start()

    def ended(self, ended: Ended) -> Run:
        return self.stage.run_of(ended, self.model.records(), self.front.seen, self.gateway.get("/transom/status"))


def killing(gateway: Gateway, progress: Progress, client: Running, steps: deque[int], chance: random.Random) -> None:
    """Kill and restart while the client works, at a moment behind the request of each of these `steps`, which are taken
    from the list: while the model thinks, while its answer passes, while it is written to the store, while the client
    runs the call. None is killed twice: some clients give up after the third failure in a row."""
    while steps:
        while progress.asked < steps[0]:
            if client.is_over():
                return
            time.sleep(0.001)
        steps.popleft()
        time.sleep(chance.random() * chance.choice((THINKS, 1.5 * THINKS, 5 * THINKS)))
        gateway.kill()
        gateway.start()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port
