"""What of a real client's requests passes as it is: all of it with `--policy raw`, and its own compaction."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest
from tests.clients import job
from tests.clients.kept import Kept
from tests.clients.kit import CLIENTS, Client
from tests.clients.model import overstates
from tests.clients.stage import Stage
from tests.clients.tap import passed

from transom.core.event import Observed

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

WINDOWS = {"qwen": (90_000, 45_000), "opencode": (200_000, 1_200_000)}
"""What a client takes for its window, and how much more than it was it is told of one request. qwen-code takes what it
was told for the truth when it looks how much room a summary has made; opencode knows the windows of some models."""
WINDOW = (200_000, 190_000)
COMPACTING = [one for one in CLIENTS if one.name != "mini"]

On = Callable[..., Stage]


@pytest.mark.parametrize("client", CLIENTS, ids=[one.id for one in CLIENTS])
def test_in_raw_mode_upstream_gets_what_the_client_sent_to_the_byte(client: Client, on: On) -> None:
    stage = on(client)
    with stage.behind(client.limit, stage.script(limit_tokens=0), policy="raw") as behind:
        run = behind.ended(behind.run(job.asked(stage.work)))
    assert (run.ended.code, run.wrong, run.refused) == (0, (), [])
    assert len(run.main) > job.STEPS
    assert passed(behind.front.seen) == passed(behind.back.seen)
    assert Kept(run.store).sessions == {}


@pytest.mark.parametrize("client", COMPACTING, ids=[one.id for one in COMPACTING])
def test_a_client_s_own_compaction_passes_whole_and_is_named(client: Client, on: On) -> None:
    # pi has to have 20,000 tokens that it may sum up; qwen-code puts the newest files whole behind its summary.
    stage = on(client, lines=2 * job.LINES if client.name == "pi" else job.LINES)
    limit = client.limit + 8_000
    window, more = WINDOWS.get(client.name, WINDOW)
    told = {"COMPACT": "1", "CONTEXT": str(window), "CLIENT_ENV": f"CLAUDE_CODE_AUTO_COMPACT_WINDOW={window}"}
    with stage.behind(limit, stage.script(job.hands_over(), limit_tokens=0)) as behind:
        overstates(behind.model, step=26, tokens=more)
        run = behind.ended(behind.run(job.asked(stage.work), env=told))
    assert (run.ended.code, run.wrong, run.refused) == (0, (), []), run.ended.output[-3000:]
    compactions = [one for one in run.seen if one.said == "compaction"]
    assert compactions
    asked = {record["body_sha"] for record in run.records if record["kind"] == "compact"}
    assert {hashlib.sha256(one.body).hexdigest()[:16] for one in compactions} == asked
    assert max((int(one["rendered_bytes"]) + 3) // 4 for one in run.main) <= limit
    kept = Kept(run.store)
    assert kept.problems == []
    assert kept.lacking(run.seen) == []
    assert set(kept.verdicts()) <= {"hit", "miss"}
    named = [fact for fact in kept.facts(Observed) if fact.kind == "compaction_request"]
    assert [fact.raw for fact in named] == [one.body.decode() for one in compactions]
