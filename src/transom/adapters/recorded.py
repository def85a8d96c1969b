"""A model that says again what a recorded session's model said: reply after reply, in the log's order.

It does not look at the request. What is tried out is everything around the model: the same words under another policy,
another dialect or another tool box. Failures of the recording are not played; replies that broke off are, since the
recorded agent saw them. Blocks come as a provider gives them, without the counts of their admission.

One reply is held at a time, whatever the recording's length.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from transom.core.block import Block, Text, Thought, ToolCall
from transom.core.event import ModelReplied
from transom.core.wire import Dialect
from transom.errors import BadInput
from transom.ports import Delta, Log, Outgoing, Reply

__all__ = ["RecordedProvider"]


class RecordedProvider:
    """Plays the replies of `session_id` in `log`. `skip`: how many of them the session that asks has already had."""

    def __init__(self, log: Log, session_id: str, dialect: Dialect, *, skip: int = 0) -> None:
        self._log = log
        self._session_id = session_id
        self._dialect = dialect
        self._seq = 0
        self._given = 0
        for _ in range(skip):
            self._given, self._seq = self._given + 1, self._next()[0]

    @property
    def dialect(self) -> Dialect:
        return self._dialect

    def send(self, request: Outgoing) -> Iterator[Delta | Reply]:
        """The next reply, whatever `request` is. Raises `BadInput` when there is none left."""
        seq, fact = self._next()
        for block in fact.blocks:
            yield from _deltas(block)
        self._seq, self._given = seq, self._given + 1
        yield Reply(
            blocks=tuple(_fresh(block) for block in fact.blocks),
            stop_reason=fact.stop_reason or "end_turn",
            usage=fact.usage,
            model=fact.model or request.model,
            response_id=fact.response_id,
        )

    def _next(self) -> tuple[int, ModelReplied]:
        for event in self._log.read(self._session_id, self._seq):
            if isinstance(event.fact, ModelReplied):
                return event.seq, event.fact
        raise BadInput(
            f"session {self._session_id} has {self._given} replies and the model is asked for one more; let the run "
            "end where the recording does"
        )


def _fresh(block: Block) -> Block:
    return msgspec.structs.replace(block, tokens=0, is_protected=False)


def _deltas(block: Block) -> Iterator[Delta]:
    if isinstance(block, Text):
        yield Delta(kind="text", text=block.text)
    elif isinstance(block, Thought):
        yield Delta(kind="thought", text=block.text)
    elif isinstance(block, ToolCall):
        yield Delta(kind="call", text=f"{block.name} {block.arguments}")
