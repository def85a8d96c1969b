from __future__ import annotations

from pathlib import Path
from typing import get_args

import msgspec
import pytest
from hypothesis import given

from transom.adapters.memory_log import MemoryLog
from transom.core.canon import FORMAT, GENESIS, envelope, link, parse
from transom.core.chain import kind_of
from transom.core.event import (
    Draft,
    Event,
    Fact,
    HostSaid,
    ModelReplied,
    Provenance,
    RolloverDeclared,
    SessionOpened,
    ToolReturned,
    Usage,
    UserSaid,
    encode_fact,
    provenance,
)
from transom.core.searchable import text_of
from transom.testing.strategies import FACT_TYPES, drafts, facts

_GOLDEN = Path(__file__).resolve().parents[1] / "golden"


class _Envelope(msgspec.Struct, forbid_unknown_fields=True):
    session_id: str
    seq: int
    uuid: str
    at: int
    fact: Fact


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """A line of a golden log: the event's envelope as it is digested, and the digest after it."""

    event: _Envelope
    digest: str


_LINE = msgspec.json.Decoder(_Line)


def golden() -> list[Path]:
    return sorted(_GOLDEN.glob("v*/*.jsonl"))


def test_every_fact_has_a_name_of_its_own() -> None:
    names = [fact.__struct_config__.tag for fact in FACT_TYPES]
    assert len(set(names)) == len(names) == len(get_args(Fact))


@given(facts())
def test_every_fact_comes_from_someone(fact: Fact) -> None:
    assert provenance(fact) in get_args(Provenance)
    match fact:
        case UserSaid():
            assert provenance(fact) == fact.by
        case ModelReplied() | RolloverDeclared():
            assert provenance(fact) == "model"
        case ToolReturned():
            assert provenance(fact) == "tool"
        case _:
            assert provenance(fact) == "host"


@given(facts())
def test_every_fact_can_be_searched(fact: Fact) -> None:
    text = text_of(fact, lambda artifact_id: f"body of {artifact_id}")
    assert isinstance(text, str)
    if isinstance(fact, HostSaid) and fact.kind == "recall":
        assert text == ""


@given(drafts())
def test_the_log_only_grows_l1(draft: Draft) -> None:
    log = MemoryLog()
    first = log.append("s", 0, [Draft(fact=SessionOpened(format=FORMAT), uuid="o", at=0), draft])
    before = [(event.digest, encode_fact(event.fact)) for event in log.read("s")]
    second = log.append("s", 2, [draft])
    assert [(event.digest, encode_fact(event.fact)) for event in log.read("s", 0, 2)] == before
    assert tuple(log.read("s")) == first + second
    assert second[0].digest != first[1].digest
    assert [row.problem for row in log.verify()] == [""]


def test_the_prompt_is_all_that_was_read() -> None:
    assert Usage(uncached=1, cached=20, written=300, written_1h=100, output=9).prompt == 321


@pytest.mark.parametrize("path", golden(), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_golden_log_decodes_chains_and_is_written_the_same_for_ever(path: Path) -> None:
    digests: dict[str, dict[int, bytes]] = {}
    heads: dict[str, int] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        stored = parse(line, _LINE)
        event = stored.event
        fact = event.fact
        if isinstance(fact, SessionOpened):
            continued = fact.parent if fact.kind == "fork" else None
            heads[event.session_id] = continued.seq if continued else 0
            start = digests[continued.session_id][continued.seq] if continued else GENESIS
            digests[event.session_id] = {heads[event.session_id]: start}
        assert event.seq == heads[event.session_id] + 1, number
        payload = encode_fact(fact)
        data = envelope(event.session_id, event.seq, event.uuid, event.at, payload)
        assert b'{"digest":"%b","event":%b}' % (stored.digest.encode(), data) == line, number
        digest = link(digests[event.session_id][event.seq - 1], data)
        assert digest.hex() == stored.digest, number
        heads[event.session_id] = event.seq
        digests[event.session_id][event.seq] = digest


def test_the_golden_logs_of_this_format_hold_every_fact() -> None:
    kinds = set()
    for path in golden():
        if path.parent.name == f"v{FORMAT}":
            for line in path.read_bytes().splitlines():
                kinds.add(kind_of(parse(line, _LINE).event.fact))
    assert kinds == {fact.__struct_config__.tag for fact in FACT_TYPES}


def test_events_are_values() -> None:
    event = Event(session_id="s", seq=1, uuid="u", at=0, fact=SessionOpened(format=FORMAT))
    with pytest.raises(AttributeError):
        event.seq = 2  # type: ignore[misc]
