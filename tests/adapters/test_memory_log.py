from __future__ import annotations

import msgspec
import pytest

from transom.adapters.memory_log import MemoryLog
from transom.core.canon import FORMAT
from transom.core.event import Draft, ModeChanged, SessionOpened
from transom.testing.conformance import LOG_CASES, LogCase


def test_an_event_that_does_not_follow_is_named() -> None:
    log = MemoryLog()
    opened = Draft(fact=SessionOpened(format=FORMAT), uuid="o", at=0)
    log.append("s", 0, [opened, Draft(fact=ModeChanged(mode="plan"), uuid="m", at=1)])
    events = log._sessions["s"].events
    events[1] = msgspec.structs.replace(events[1], at=2)
    assert log.verify()[0].problem == "session s, event 2: its digest does not follow from the event before"


@pytest.mark.parametrize("case", LOG_CASES, ids=lambda case: case.__name__)
def test_the_memory_log_keeps_its_port(case: LogCase) -> None:
    case(MemoryLog)
