from __future__ import annotations

import pytest

from transom.adapters.memory_log import MemoryLog
from transom.adapters.provider_anthropic import DIALECT
from transom.adapters.recorded import RecordedProvider
from transom.core.block import Opaque, Text
from transom.core.event import RequestFailed, Usage
from transom.errors import BadInput, UsageError
from transom.ports import Delta, Reply
from transom.testing.builders import Story, call, rules, text, thought
from transom.testing.conformance_provider import PROVIDER_CASES, ProviderCase, Talk, answer


def recorded() -> Story:
    story = Story(rules("raw"), model="m1")
    story.user("fix it")
    story.reply(
        thought("hm", '{"signature":"abc"}'), text("I look."), call("c1", "read"), usage=Usage(uncached=9, output=3)
    )
    story.returned("c1")
    story.say(RequestFailed(kind="unavailable", message="529"))
    story.reply(call("c2", "read"), call("c3", "run"), usage=Usage(uncached=20, output=3))
    story.returned("c2")
    story.returned("c3")
    story.reply(Opaque(kind="item", raw='{"x":1}'), text("Done."), stop_reason="")
    return story


@pytest.mark.parametrize("case", PROVIDER_CASES, ids=lambda case: case.__name__)
def test_a_recording_keeps_its_port(case: ProviderCase) -> None:
    log = recorded().log
    case(lambda: RecordedProvider(log, "s", DIALECT))


def test_the_replies_come_in_the_logs_order_and_without_counts() -> None:
    provider, said = RecordedProvider(recorded().log, "s", DIALECT), Talk(DIALECT)
    said.user("whatever")
    *streamed, first = provider.send(said.outgoing())
    assert streamed == [
        Delta(kind="thought", text="hm"),
        Delta(kind="text", text="I look."),
        Delta(kind="call", text="read {}"),
    ]
    assert isinstance(first, Reply)
    assert first.blocks[1] == Text(text="I look.")
    assert (first.usage, first.stop_reason) == (Usage(uncached=9, output=3), "end_turn")
    rest = [answer(provider, said.outgoing()) for _ in range(2)]
    assert [[type(block).__name__ for block in reply.blocks] for reply in rest] == [
        ["ToolCall"] * 2,
        ["Opaque", "Text"],
    ]
    assert (rest[1].stop_reason, rest[1].model) == ("end_turn", "m")
    with pytest.raises(BadInput, match="session s has 3 replies"):
        answer(provider, said.outgoing())


def test_a_player_goes_on_behind_the_replies_already_had() -> None:
    log, said = recorded().log, Talk(DIALECT)
    whole = RecordedProvider(log, "s", DIALECT)
    replies = [answer(whole, said.outgoing()) for _ in range(3)]
    assert answer(RecordedProvider(log, "s", DIALECT, skip=2), said.outgoing()) == replies[2]
    with pytest.raises(BadInput, match="session s has 3 replies"):
        RecordedProvider(log, "s", DIALECT, skip=4)


def test_a_session_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match="nowhere"):
        answer(RecordedProvider(MemoryLog(), "nowhere", DIALECT), Talk(DIALECT).outgoing())
