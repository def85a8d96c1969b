"""Real clients at work behind the gateway, against the same client and model alone: it must not notice.

Run with `make test-clients`; how it is done is told in docs/gateway.md.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.clients import job, sense
from tests.clients.conftest import Row
from tests.clients.kept import Kept
from tests.clients.kit import CLIENTS, Client
from tests.clients.stage import GO_ON, Run, Stage

from transom.core.event import Observed, WindowOpened

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

RESUMING = [one for one in CLIENTS if one.name != "mini"]
every_client = pytest.mark.parametrize("client", CLIENTS, ids=[one.id for one in CLIENTS])

On = Callable[..., Stage]
Alone = Callable[[Stage], Run]


def governed(run: Run) -> list[str]:
    """The ids of the sessions that governed requests of the run, the last one's last."""
    return [one.session_id for one in run.asked]


def is_right(run: Run, limit: int, *, histories: int = 1) -> Kept:
    """The work was done in three windows at least, upstream never got more than the limit, all was declared, the log
    holds it, in a session for each of the client's histories. Its store."""
    assert run.ended.code == 0, run.ended.output[-3000:]
    assert run.wrong == ()
    assert run.refused == []
    assert run.upstream_tokens() <= limit
    kept = Kept(run.store)
    assert kept.problems == []
    assert set(kept.verdicts()) <= {"hit", "miss"}
    assert kept.lacking(run.seen) == []
    sessions = set(governed(run))
    assert len(sessions) == histories
    assert sum(len(kept.rollovers(one)) for one in sessions) >= 3
    named = [reasons for one in sessions for reasons in kept.named(one) if reasons != "change:params"]
    assert sense.breaks([one["body"] for one in run.main]) == len(named) + histories - 1
    return kept


def is_unnoticed(run: Run, alone: Run, *, unthought: str = "") -> None:
    """The client has the same history as without a gateway, and has printed the same. `unthought`: thoughts that it has
    beside those, of rounds that were the host's."""
    assert alone.ended.code == 0, alone.ended.output[-3000:]
    assert alone.wrong == ()
    assert len(run.asked) == len(alone.main) >= 40
    assert sense.history(run.asked[-1].json(), unthought=unthought) == sense.history(alone.main[-1]["body"])
    if not unthought:
        assert sense.said(run.ended.output) == sense.said(alone.ended.output)


@every_client
def test_a_client_does_not_notice_its_windows(client: Client, on: On, alone: Alone, row: Row) -> None:
    stage = on(client)
    without = alone(stage)
    run = stage.governed(client.limit, job.hands_over())
    kept = is_right(run, client.limit)
    is_unnoticed(run, without)
    assert set(kept.rollovers(governed(run)[-1])) == {"model"}
    row(client, run, kept, governed(run)[-1])


@every_client
def test_a_client_does_not_notice_that_its_model_never_hands_over(
    client: Client, on: On, alone: Alone, row: Row
) -> None:
    stage = on(client)
    without = alone(stage)
    run = stage.governed(client.limit, job.never_hands_over())
    kept = is_right(run, client.limit)
    is_unnoticed(run, without)
    assert set(kept.rollovers(governed(run)[-1])) == {"hard-limit"}
    row(client, run, kept, governed(run)[-1])


@every_client
def test_a_client_s_thoughts_stay_valid_over_windows(client: Client, on: On, alone: Alone, row: Row) -> None:
    stage = on(client, thinks=True)
    without = alone(stage)
    if not any(one[0] == "think" for record in without.main for one in record["answer"]):
        pytest.skip(f"{client.id} asks for no thinking")
    run = stage.governed(client.limit, job.hands_over())
    kept = is_right(run, client.limit)
    is_unnoticed(run, without, unthought=job.HOST_THOUGHT)
    row(client, run, kept, governed(run)[-1])


@pytest.mark.parametrize("client", RESUMING, ids=[one.id for one in RESUMING])
def test_a_session_is_gone_on_with_by_another_process_behind_another_gateway(client: Client, on: On, row: Row) -> None:
    stage = on(client)
    with stage.behind(client.limit, {**stage.script(job.hands_over()), "lanes": {"main": job.in_halves()}}) as behind:
        first = behind.run(job.asked(stage.work))
        assert first.code == 0, first.output[-3000:]
        behind.restart()
        run = behind.ended(behind.run(GO_ON, goes_on=True))
    # qwen-code leaves the date out of its first message when it goes on: that is another history.
    kept = is_right(run, client.limit, histories=2 if client.name == "qwen" else 1)
    row(client, run, kept, governed(run)[-1])


@every_client
def test_a_client_comes_to_its_end_though_the_gateway_is_killed_twenty_times(client: Client, on: On, row: Row) -> None:
    run = on(client).killed(client.limit, job.hands_over(), kills=20, seed=7)
    assert run.ended.code == 0, run.ended.output[-3000:]
    assert run.status["kills"] == 20
    assert run.wrong == ()
    assert run.refused == []
    assert run.upstream_tokens() <= client.limit
    kept = Kept(run.store)
    assert kept.problems == []
    assert kept.lacking(run.seen) == []
    assert [one for one in run.seen if not one.is_whole], "no request was under way when the gateway was killed"
    assert set(kept.verdicts()) <= {"hit", "miss"}
    assert not [fact for fact in kept.facts(Observed) if fact.kind == "failed_open"]
    longest = max(kept.sessions, key=lambda one: len(kept.sessions[one]))
    assert len(kept.rollovers(longest)) >= 3
    for session_id in kept.sessions:
        generations = [fact.generation for fact in kept.facts(WindowOpened, session_id)]
        assert generations == list(range(1, len(generations) + 1))
    row(client, run, kept, longest)
