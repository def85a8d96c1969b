"""aider behind the gateway: no tools, and files that it shows anew behind what was said, so each request is a rewind."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.clients import aider, sense
from tests.clients.conftest import Row
from tests.clients.kept import Kept
from tests.clients.kit import Client, Ended, Kit
from tests.clients.stage import THINKS, Gateway, Run, free_port, killing
from tests.clients.tap import Seen, Tap

from transom.core.event import Observed, WindowOpened

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1800)]

LIMIT = 8_000


@contextmanager
def table(kit: Kit, folder: Path, **script: object) -> Iterator[Any]:
    """A model, and folders as if nothing had run in them."""
    for name in ("work", "home", "store"):
        shutil.rmtree(folder / name, ignore_errors=True)
    aider.lay_out(folder / "work")
    with kit.model({"hooks": aider.hooks(), **script}, log=folder / "model.jsonl") as model:
        yield model


def run_of(ended: Ended, model: Any, seen: list[Seen], folder: Path) -> Run:
    wrong = () if aider.is_done(folder / "work") else ("not every item is closed",)
    return Run(
        ended=ended, records=tuple(model.records()), seen=tuple(seen), wrong=wrong, store=folder / "store", status={}
    )


@pytest.mark.parametrize("api", list(aider.APIS))
def test_aider_does_not_notice_its_windows(api: str, kit: Kit, folder: Path, row: Row) -> None:
    at = folder / f"aider-{api}"
    with table(kit, at) as model:
        ended = aider.start(kit, api, model.base_url, at / "work", at / "home").ended(within=800)
        alone = run_of(ended, model, [], at)
    with table(kit, at, limit_tokens=LIMIT) as model:
        gateway = Gateway(model.base_url, at / "store", LIMIT, port=free_port())
        gateway.start()
        try:
            with Tap(gateway.url) as tap:
                ended = aider.start(kit, api, tap.base_url, at / "work", at / "home").ended(within=800)
                run = run_of(ended, model, tap.seen, at)
        finally:
            gateway.stop()
    assert (alone.ended.code, alone.wrong) == (run.ended.code, run.wrong) == (0, ())
    assert run.refused == []
    assert run.upstream_tokens() <= LIMIT < alone.upstream_tokens()
    assert {one.said for one in run.seen} == {"plain", "governed"}
    assert len(run.seen) == len(alone.main) == aider.ROUNDS
    assert sense.history(run.seen[-1].json()) == sense.history(alone.main[-1]["body"])
    assert sense.said(run.ended.output) == sense.said(alone.ended.output)
    kept = Kept(run.store)
    assert kept.problems == []
    assert kept.lacking(run.seen) == []
    assert set(kept.verdicts()) <= {"hit", "miss"}
    assert sum(bool(kept.rollovers(one)) for one in kept.sessions) >= 3
    assert {fact.cause for fact in kept.facts(WindowOpened)} == {"hard-limit"}
    for number, one in enumerate(run.main):  # its files are in each window, as they are then
        assert f"item {number}: open" in str(one["body"]["messages"])
    row(Client(name="aider", api=api, limit=LIMIT), run, kept, "")


def test_aider_comes_to_its_end_though_the_gateway_is_killed_twenty_times(kit: Kit, folder: Path, row: Row) -> None:
    at = folder / "aider-killed"
    with table(kit, at, limit_tokens=LIMIT) as model:
        progress = aider.watched(model, seconds=THINKS)
        gateway = Gateway(model.base_url, at / "store", LIMIT, port=free_port())
        gateway.start()
        try:
            client = aider.start(kit, "chat", gateway.url, at / "work", at / "home")
            kills = killing(gateway, progress, client, steps=aider.ROUNDS, kills=20, chance=random.Random(7))
            run = run_of(client.ended(within=800), model, [], at)
        finally:
            gateway.stop()
    assert (kills, run.ended.code, run.wrong, run.refused) == (20, 0, (), [])
    assert run.upstream_tokens() <= LIMIT
    kept = Kept(run.store)
    assert kept.problems == []
    assert not [fact for fact in kept.facts(Observed) if fact.kind == "failed_open"]
    row(Client(name="aider", api="chat", limit=LIMIT), run, kept, "")
