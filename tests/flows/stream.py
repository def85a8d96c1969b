"""A session's requests, one process a step: `python stream.py FOLDER DIALECT STEP` plays one step of the same story on
the store in FOLDER and prints what it would have sent. Without arguments it writes the golden digests. Used by
`test_streams`."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from transom import compose
from transom.adapters import provider_anthropic, provider_openai_chat, provider_openai_responses
from transom.adapters.memory_log import MemoryLog
from transom.adapters.provider_api import Api
from transom.adapters.provider_writing import Reach
from transom.core.block import Text, Thought, ToolCall, ToolResultRaw
from transom.core.budget import limits
from transom.core.canon import FORMAT
from transom.core.epochs import retooled
from transom.core.event import (
    BlockReplaced,
    EpochOpened,
    Fact,
    ModelReplied,
    Replacement,
    Section,
    Seed,
    SessionOpened,
    Tool,
    ToolReturned,
    UserSaid,
    WindowOpened,
)
from transom.core.policy import PRESETS
from transom.core.state import State
from transom.ports import Log, Outgoing, Sample
from transom.session import Rules, Session
from transom.testing.builders import COUNTER

__all__ = ["APIS", "GOLDEN", "OUTCOMES", "asked", "facts", "rules_for", "sent", "streamed"]

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "streams.json"
_ORIGIN = "provider/model"
_SECTIONS = (Section(key="agent", text="You are careful."), Section(key="date", text="2026-01-01"))
_TOOLS = tuple(Tool(name=name, description=f"Does {name}.", schema='{"type":"object"}') for name in ("b", "a", "c"))
APIS: dict[str, Api] = {
    "anthropic": provider_anthropic.api(reach=Reach(origin=_ORIGIN)),
    "openai_chat": provider_openai_chat.api(reach=Reach(origin=_ORIGIN), is_openai=True),
    "openai_responses": provider_openai_responses.api(reach=Reach(origin=_ORIGIN)),
}
OUTCOMES: tuple[tuple[str, list[str]], ...] = (
    ("miss", ["initial"]),
    ("hit", []),
    ("hit", []),
    ("miss", ["reset:redact"]),
    ("hit", []),
    ("miss", ["change:tools", "change:system"]),
    ("miss", ["reset:rollover"]),
    ("hit", []),
)
"""Of the story's requests, under every dialect."""


def facts(step: int, state: State) -> tuple[Fact, ...]:
    """What happens before request `step`."""
    match step:
        case 0:
            head = EpochOpened(sections=_SECTIONS, tools=_TOOLS, order=("agent", "skills", "date"))
            return (head, UserSaid(blocks=(Text(text="Mend the parser 修复. Never push."),)))
        case 3:
            seq = next(item.seq for item in state.window.items if item.role == "tool")
            hidden = Replacement(seq=seq, index=0, block=ToolResultRaw(text="[redacted]"))
            return (*_worked(step, "fine"), BlockReplaced(how="redact", targets=(hidden,)))
        case 5:
            return (*_worked(step, "fine"), *retooled(state.head, (*_TOOLS, Tool(name="d"))))
        case 6:
            first = state.first[0].seq
            seed = Seed(role="host", blocks=(Text(text="Half of it is done."),))
            opened = WindowOpened(cause="operator", generation=1, kept_head=(first,), seed=(seed,))
            return (*_worked(step, "fine"), opened)
        case _:
            return _worked(step, "the key is sk-123" if step == 1 else "fine")


def samples(step: int) -> tuple[Sample, ...]:
    """What the sources say before request `step`: from 2 on another date, from 4 on a skill."""
    skill = Sample(key="skills", text="review" if step >= 4 else None)
    return (skill, Sample(key="date", text="2026-01-02" if step >= 2 else "2026-01-01"))


def _worked(step: int, output: str) -> tuple[Fact, ...]:
    raw = '{"type":"thinking","thinking":"hm","signature":"s"}'
    name = f"call_{step}"
    reply = (
        Thought(text="hm", opaque=raw, origin=_ORIGIN),
        Text(text=f"Step {step}."),
        ToolCall(call_id=name, name="a", arguments='{"n": 1e2, "path": "src/é.py"}'),
    )
    return ModelReplied(blocks=reply), ToolReturned(call_id=name, blocks=(ToolResultRaw(text=output),))


def rules_for(dialect: str, step: int) -> Rules:
    """No id or time depends on the process."""
    numbers = count(1)
    return Rules(
        policy=PRESETS["raw"],
        bounds=limits(200_000),
        counter=COUNTER,
        dialect=APIS[dialect].dialect,
        clock=lambda: 1_700_000_000_000 + step,
        ids=lambda: f"{step}-{next(numbers)}",
    )


def sent(log: Log, dialect: str, step: int) -> dict[str, Any]:
    """Play one step on what the log holds; what is sent."""
    rules = rules_for(dialect, step)
    if step == 0:
        session = Session.start(log, "s", SessionOpened(format=FORMAT, agent="transom", model="model"), rules)
    else:
        session = Session.open(log, "s", rules)
    return asked(session, dialect, step)


def asked(session: Session, dialect: str, step: int) -> dict[str, Any]:
    """The same for a session that goes on in its process."""
    session.append(*facts(step, session.state))
    session.boundary(samples=samples(step))
    prepared = session.request()
    request = Outgoing(wire=prepared.wire, model="model", max_output_tokens=100, kept=prepared.verdict.kept)
    return {
        "body": hashlib.sha256(APIS[dialect].body(request)).hexdigest(),
        "segments": [segment.decode() for segment in prepared.wire.segments()],
        "verdict": prepared.verdict.kind,
        "reasons": list(prepared.verdict.reasons),
    }


def streamed(dialect: str) -> list[dict[str, Any]]:
    """The story in one process and one session."""
    log = MemoryLog()
    found = [sent(log, dialect, 0)]
    session = Session.open(log, "s", rules_for(dialect, 1))
    for step in range(1, len(OUTCOMES)):
        session.rules = replace(rules_for(dialect, step), dialect=session.rules.dialect)
        found.append(asked(session, dialect, step))
    return found


def main(arguments: Sequence[str]) -> None:
    if not arguments:
        golden = {dialect: [one["body"] for one in streamed(dialect)] for dialect in APIS}
        GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")
        return
    folder, dialect, step = arguments
    with compose.store(Path(folder)) as kept:
        print(json.dumps(sent(kept.log, dialect, int(step))))  # noqa: T201 - read by the test


if __name__ == "__main__":
    main(sys.argv[1:])
