"""aider behind the gateway: no tools, and files that it shows anew behind what was said, so each request is a rewind."""

from __future__ import annotations

import random
import shutil
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.clients import aider, sense
from tests.clients.conftest import Row
from tests.clients.kept import Kept
from tests.clients.kit import Client, Ended, Kit, Running
from tests.clients.stage import THINKS, Gateway, Run, free_port, killing
from tests.clients.tap import Seen, Tap, passed

from transom.core.event import Observed, WindowOpened

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1800)]

LIMIT = 8_000

every_api = pytest.mark.parametrize("api", list(aider.APIS))


@dataclass(frozen=True, slots=True)
class Table:
    """A model, a gateway before it, and a witness on either side of that; folders as if nothing had run in them."""

    kit: Kit
    api: str
    folder: Path
    model: Any
    gateway: Gateway
    front: Tap
    back: Tap

    def run(self, **more: Any) -> Ended:
        return self.start(**more).ended(within=800)

    def start(self, **more: Any) -> Running:
        return aider.start(self.kit, self.api, self.front.base_url, self.folder / "work", self.folder / "home", **more)

    def run_of(self, ended: Ended) -> Run:
        return run_of(ended, self.model, self.front.seen, self.folder)


@contextmanager
def modelled(kit: Kit, folder: Path, **script: object) -> Iterator[Any]:
    for name in ("work", "home", "store"):
        shutil.rmtree(folder / name, ignore_errors=True)
    aider.lay_out(folder / "work")
    with kit.model({"hooks": aider.hooks(), **script}, log=folder / "model.jsonl") as model:
        yield model


@contextmanager
def table(kit: Kit, api: str, folder: Path, *, policy: str = "rollover") -> Iterator[Table]:
    script = {"limit_tokens": LIMIT} if policy == "rollover" else {}
    with modelled(kit, folder, **script) as model, Tap(model.base_url) as back:
        gateway = Gateway(back.base_url, folder / "store", LIMIT, port=free_port(), policy=policy)
        try:
            gateway.start()
            with Tap(gateway.url) as front:
                yield Table(kit, api, folder, model, gateway, front, back)
        finally:
            gateway.stop()


def run_of(ended: Ended, model: Any, seen: list[Seen], folder: Path) -> Run:
    wrong = () if aider.is_done(folder / "work") else ("not every item is closed",)
    return Run(
        ended=ended, records=tuple(model.records()), seen=tuple(seen), wrong=wrong, store=folder / "store", status={}
    )


def is_right(run: Run) -> Kept:
    """The work was done, upstream never got more than the limit, all was declared, the log holds it. Its store."""
    assert (run.ended.code, run.wrong, run.refused) == (0, (), [])
    assert run.upstream_tokens() <= LIMIT
    kept = Kept(run.store)
    assert kept.problems == []
    assert kept.lacking(run.seen) == []
    assert set(kept.verdicts()) <= {"hit", "miss"}
    assert not [fact for fact in kept.facts(Observed) if fact.kind == "failed_open"]
    assert {fact.cause for fact in kept.facts(WindowOpened)} == {"hard-limit"}
    return kept


def opened(kept: Kept) -> list[str]:
    """The causes of the windows, each once, though a fork has those of its parent too."""
    return [event.fact.cause for event in kept.once() if isinstance(event.fact, WindowOpened)]


@every_api
def test_aider_does_not_notice_its_windows(api: str, kit: Kit, folder: Path, row: Row) -> None:
    at = folder / f"aider-{api}"
    with modelled(kit, at) as model:
        ended = aider.start(kit, api, model.base_url, at / "work", at / "home").ended(within=800)
        alone = run_of(ended, model, [], at)
    with table(kit, api, at) as behind:
        run = behind.run_of(behind.run())
    assert (alone.ended.code, alone.wrong) == (0, ())
    kept = is_right(run)
    assert alone.upstream_tokens() > LIMIT
    assert {one.said for one in run.seen} == {"plain", "governed"}
    assert len(run.seen) == len(alone.main) == aider.ROUNDS
    assert sense.history(run.seen[-1].json()) == sense.history(alone.main[-1]["body"])
    assert sense.said(run.ended.output) == sense.said(alone.ended.output)
    assert len(opened(kept)) >= 3
    for number, one in enumerate(run.main):  # its files are in each window, as they are then
        assert f"item {number}: open" in str(one["body"]["messages"])
    row(Client(name="aider", api=api, limit=LIMIT), run, kept, "", windows=opened(kept))


@every_api
def test_aider_goes_on_with_its_chat_behind_another_gateway(api: str, kit: Kit, folder: Path, row: Row) -> None:
    at = folder / f"aider-resumed-{api}"
    half = aider.ROUNDS // 2
    with table(kit, api, at) as behind:
        assert behind.run(rounds=range(half)).code == 0
        behind.gateway.stop()
        behind.gateway.start()
        run = behind.run_of(behind.run(rounds=range(half, aider.ROUNDS), goes_on=True))
    kept = is_right(run)
    assert len(run.seen) == aider.ROUNDS
    assert "Close item 0." in run.seen[-1].body.decode(), "the chat was not restored"
    row(Client(name="aider", api=api, limit=LIMIT), run, kept, "", windows=opened(kept))


@every_api
def test_aider_comes_to_its_end_though_the_gateway_is_killed_twenty_times(
    api: str, kit: Kit, folder: Path, row: Row
) -> None:
    with table(kit, api, folder / f"aider-killed-{api}") as behind:
        progress = aider.watched(behind.model, seconds=THINKS)
        client = behind.start()
        chance = random.Random(7)
        left = deque(sorted(chance.sample(range(aider.ROUNDS), 20)))
        killing(behind.gateway, progress, client, left, chance)
        run = behind.run_of(client.ended(within=800))
    assert not left, "the client was done before"
    assert [one for one in run.seen if not one.is_whole], "no request was under way when the gateway was killed"
    kept = is_right(run)
    row(Client(name="aider", api=api, limit=LIMIT), run, kept, "", windows=opened(kept))


@every_api
def test_in_raw_mode_upstream_gets_what_aider_sent_to_the_byte(api: str, kit: Kit, folder: Path) -> None:
    with table(kit, api, folder / f"aider-raw-{api}", policy="raw") as behind:
        run = behind.run_of(behind.run())
        assert passed(behind.front.seen) == passed(behind.back.seen)
    assert (run.ended.code, run.wrong, run.refused) == (0, (), [])
    assert len(run.main) == aider.ROUNDS
    assert Kept(run.store).sessions == {}
