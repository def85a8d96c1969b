"""Several histories at once: sub-agents of a real client, and two clients behind one gateway. None gets into another."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from tests.clients import job
from tests.clients.conftest import Row
from tests.clients.kept import Kept
from tests.clients.kit import CLIENTS, Client
from tests.clients.stage import Run, Stage

from transom.core.event import Observed

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

NAMED = {one.id: one for one in CLIENTS}
WITH_AGENTS = [one for one in CLIENTS if one.name in {"claude", "opencode", "qwen"} or one.id == "codex-lite"]
PAIRS = (
    ("pi-chat", "pi-chat"),
    ("mini-chat", "mini-chat"),
    ("qwen-anthropic", "claude-anthropic"),
    ("codex-responses", "opencode-responses"),
)
_LANE = re.compile(rb"\[\[lane:([a-z]+)\]\]")

On = Callable[..., Stage]


def lanes(run: Run) -> dict[str, set[str]]:
    """The sessions that each history was governed in, by the first lane that a request of it names."""
    found: dict[str, set[str]] = {}
    for one in run.asked:
        (lane, *_) = _LANE.findall(one.body)
        found.setdefault(lane.decode(), set()).add(one.session_id)
    return found


def are_apart(run: Run, limit: int, least: dict[str, int]) -> Kept:
    """Each history has a session of its own, at least so many windows, and nothing of another. Their store."""
    assert run.wrong == ()
    assert run.refused == []
    assert run.upstream_tokens() <= limit
    kept = Kept(run.store)
    assert kept.problems == []
    assert kept.lacking(run.seen) == []
    assert set(kept.verdicts()) <= {"hit", "miss"}
    sessions = lanes(run)
    assert set(sessions) == set(least)
    assert len(set().union(*sessions.values())) == sum(len(one) for one in sessions.values()) == len(least)
    for lane, windows in least.items():
        (session_id,) = sessions[lane]
        assert len(kept.rollovers(session_id)) + 1 >= windows, lane
        step = re.compile(rf"x({'|'.join(set(least) - {lane})})x\d{{4}}x")
        own = [fact for fact in kept.facts(Observed, session_id) if fact.kind.startswith("client_")]
        assert [fact for fact in own if step.search(fact.raw)] == []
    return kept


@pytest.mark.parametrize("client", WITH_AGENTS, ids=[one.id for one in WITH_AGENTS])
def test_two_sub_agents_at_once_have_windows_and_sessions_of_their_own(client: Client, on: On, row: Row) -> None:
    stage = on(client)
    script = {**stage.script(job.hands_over()), "lanes": job.shared_out(stage.work, spawns=client.name == "codex")}
    run = stage.governed(client.limit, (), script=script)
    assert run.ended.code == 0, run.ended.output[-3000:]
    kept = are_apart(run, client.limit, {"main": 1, "suba": 2, "subb": 2})
    (main,) = lanes(run)["main"]
    row(client, run, kept, main)


@pytest.mark.parametrize("names", PAIRS, ids=["+".join(pair) for pair in PAIRS])
def test_two_clients_at_once_do_not_mix(names: tuple[str, str], on: On) -> None:
    one, other = (on(NAMED[name], inside=place) for name, place in zip(names, ("one", "other"), strict=True))
    limit = max(stage.client.limit for stage in (one, other))
    script = {**one.script(job.hands_over()), "lanes": {lane: job.script() for lane in ("one", "other")}, "cwd": ""}
    with one.behind(limit, script) as behind:
        other.lay_out()
        both = [
            (at, at.kit.start(at.client, behind.front.base_url, at.work, job.asked(at.work, lane=lane), at.home))
            for at, lane in ((one, "one"), (other, "other"))
        ]
        for at, running in both:
            ended = running.ended()
            assert ended.code == 0, ended.output[-3000:]
            assert job.is_done(at.work) == []
        run = behind.ended(ended)
    are_apart(run, limit, {"one": 4, "other": 4} if names[0] == names[1] else {"one": 2, "other": 2})
