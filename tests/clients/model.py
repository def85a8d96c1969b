"""A scripted model that goes by what it has seen: a step is over when its result came, not when it was said.

The server's own count moves on with every answer. Where an answer is lost on its way, as when the gateway is killed, a
model that is asked again says the same again, and only a client that ran the call can have a result of it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["Progress", "goes_by_results", "overstates"]

_STEP = re.compile(r"x([A-Za-z0-9]+?)x(\d{4})x\d+\Z")
_NOT_RUN = re.compile(r"\[no result: |was not run: ")
"""What the host says of a call that nobody ran."""


@dataclass(slots=True)
class Progress:
    """`asked`: the last step that the model was asked for."""

    asked: int = -1


def goes_by_results(model: Any, *, seconds: float = 0.0) -> Progress:
    """Change a running server so, and let it take so long for each answer."""
    progress = Progress()
    decide = model.decide
    done: dict[str, int] = {}

    def by_results(req: Any) -> tuple[str, str, int | None]:
        kind, lane, step = decide(req)
        for call_id, text in _results(req.body):
            found = _STEP.search(call_id)
            if found and not _NOT_RUN.search(text):
                done[found[1]] = max(done.get(found[1], -1), int(found[2]))
        if kind == "main" and step >= 0:
            step = done.get(lane.replace("-", ""), -1) + 1
            model.cursor[lane] = progress.asked = step
            time.sleep(seconds)
        return kind, lane, step

    model.decide = by_results
    return progress


def overstates(model: Any, *, step: int, tokens: int) -> None:
    """Let a running server report so many tokens more for the requests of that step: several where one of them is
    answered by a call of the host's."""
    usage = model.usage

    def reported(req: Any) -> tuple[dict[str, int], int]:
        used, best = usage(req)
        if req.tools and model.cursor.get("main", 0) == step:
            used = {**used, "in": used["in"] + tokens, "total": used["total"] + tokens}
        return used, best

    model.usage = reported


def _results(body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for one in body.get("messages", body.get("input")) or []:
        if one.get("role") == "tool":
            yield one["tool_call_id"], str(one["content"])
        elif str(one.get("type", "")).endswith("_output"):
            yield one["call_id"], str(one["output"])
        elif isinstance(one.get("content"), list):
            for piece in one["content"]:
                if piece.get("type") == "tool_result":
                    yield piece["tool_use_id"], str(piece.get("content"))
