"""A session's cache bill, on recordings of real agents: the rules predict what the providers reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from transom import compose
from transom.adapters.blobs import DirBlobs
from transom.adapters.counter import HeuristicCounter
from transom.adapters.memory_log import MemoryLog
from transom.adapters.provider_anthropic import DIALECT
from transom.core.losses import MISS
from transom.core.pricing import find_price
from transom.importers.load import load
from transom.lab.bills import Account, account, accuracy, bill_of

TABLE = compose.prices()
RECORDED = {
    # one recording of each kind of provider: the median error and the share within 1 % of the prompt, as measured
    "claude-code/cipher-box--7ccb277956.jsonl.gz": (0.0001, 0.97),
    "codex/agentv--c2c3a91449.jsonl.gz": (0.003, 0.75),
    "mini-swe-agent/mini-swe-agent--4e6e87852b--django__django-11797.traj.json.gz": (0.0001, 0.97),
    "terminal-bench/tbench-eval--e37a919c4b--cobol-modernization__qF7QFQu.trajectory.json.gz": (0.001, 1.0),
    "gemini-cli/session-bridge--cd70ab3400.json.gz": (0.05, 0.2),
}


def accounts(path: Path, folder: Path) -> list[Account]:
    log = MemoryLog()
    found = load(path, log=log, blobs=DirBlobs(folder), counter=HeuristicCounter())
    return [account(log, one.session_id, DIALECT, lambda model: find_price(TABLE, model)) for one in found]


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_what_a_recorded_provider_reported_is_what_its_rules_say(shared: Path, tmp_path: Path, name: str) -> None:
    median, within = RECORDED[name]
    one = max(accounts(shared / name, tmp_path), key=lambda found: len(found.settled))
    found = accuracy(one.errors)
    assert found is not None
    assert found.compared >= 20
    assert found.median <= median
    assert found.within_1_percent >= within


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_every_big_drop_of_a_recording_has_a_class_and_the_parts_add_up(
    shared: Path, tmp_path: Path, name: str
) -> None:
    for one in accounts(shared / name, tmp_path):
        for settled in one.settled:
            entry = settled.entry
            dropped = entry.could - entry.usage.cached
            if dropped >= 2 * MISS + entry.price.rules.granularity_tokens and dropped >= 0.2 * entry.could:
                assert settled.is_miss
                assert settled.reason
            assert settled.tokens <= max(0, dropped)


def test_a_bill_sums_its_session(shared: Path, tmp_path: Path) -> None:
    one = accounts(shared / "claude-code" / "cipher-box--7ccb277956.jsonl.gz", tmp_path)[0]
    bill = bill_of(one)
    assert bill.requests == len(one.settled)
    assert bill.is_assumed
    assert bill.hit_ratio is not None
    assert bill.cached_tokens is not None
    assert 0.9 < bill.hit_ratio < bill.expected_ratio + 0.05
    assert sum(bill.misses.values()) == len(one.misses)
    assert 0 < bill.misses_usd < bill.paid_usd
    assert sum(bill.billed_again.values()) == sum(settled.tokens for settled in one.settled)


def test_nothing_compared_is_no_accuracy() -> None:
    assert accuracy([]) is None
