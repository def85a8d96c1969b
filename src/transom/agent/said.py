"""What a tool says back. A failure ends with what to do next."""

from __future__ import annotations

from transom.core.block import ToolResultRaw
from transom.ports import Outcome

__all__ = ["failed", "told"]


def told(text: str) -> Outcome:
    return Outcome(blocks=(ToolResultRaw(text=text),))


def failed(text: str, *, exit_code: int | None = None) -> Outcome:
    return Outcome(blocks=(ToolResultRaw(text=text),), is_error=True, exit_code=exit_code)
