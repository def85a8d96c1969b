from __future__ import annotations

import pytest

from transom.adapters.memory_log import MemoryLog
from transom.testing.conformance import LOG_CASES, LogCase


@pytest.mark.parametrize("case", LOG_CASES, ids=lambda case: case.__name__)
def test_the_memory_log_keeps_its_port(case: LogCase) -> None:
    case(MemoryLog)
