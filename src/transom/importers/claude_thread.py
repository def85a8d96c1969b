"""One conversation of Claude Code being read: joins what belongs to one response, and keeps the order.

A response of the model is written down one block a record, with the results of its first calls in between. It is
held open, its results behind it, until something starts that is no part of it; then reply and results are said in the
order in which the model saw them. A sub-agent runs while its caller's response is still open: what it says waits
behind that response, so that a child never stands in the log before the call that started it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from transom.core.block import Block, ToolCall
from transom.core.event import ModelReplied, ToolReturned, Usage
from transom.importers.claude_message import Message, Result, blocks, usage
from transom.importers.draft import Item, Said
from transom.importers.effects import effect_of
from transom.ports import Blobs

__all__ = ["OPENED", "Reply", "Thread"]

OPENED = "opened"
"""uuid of every `SessionOpened`: the source has none for it."""


class Reply:
    """A response that may still grow."""

    def __init__(self, uuid: str, at: int, message: Message) -> None:
        self.uuid = uuid
        self.at = at
        self.response_id = message.id
        self.model = message.model
        self.stop_reason = ""
        self.blocks: list[Block] = []
        self.usage: Usage | None = None
        self.behind: list[Item] = []
        """Results and whatever else waits for the reply."""

    def grow(self, message: Message, said: Iterable[Block]) -> None:
        """Take in one more record. Usage is repeated on each; the last record's output count is the final one."""
        self.blocks.extend(said)
        self.stop_reason = message.stop_reason or self.stop_reason
        self.usage = usage(message.usage) or self.usage


class Thread:
    """A session of the source. `turn` counts user messages and replies: a record that continues from an earlier turn
    than the newest one is a rewind."""

    def __init__(self, session: str, *, caller: Thread | None = None, forked_from: Thread | None = None) -> None:
        self.session = session
        self.turn = 0
        self.last = OPENED
        """uuid of the newest fact."""
        self._open: Reply | None = None
        self.caller = caller
        self.names: dict[str, str] = {} if forked_from is None else forked_from.names.copy()
        """Tool names of the calls that have no result yet."""
        self._said_usage: set[str] = set()

    def is_open_for(self, response_id: str) -> bool:
        """Whether a record with this response id belongs to the reply being held."""
        return self._open is not None and self._open.response_id == response_id

    def say(self, item: Item) -> Iterator[Item]:
        """Something that waits behind the open reply, if there is one."""
        holder = self._open or (self.caller._open if self.caller else None)  # noqa: SLF001 - the same class
        if holder is None:
            yield item
        else:
            holder.behind.append(item)

    def reply(self, uuid: str, at: int, message: Message, blobs: Blobs) -> Iterator[Item]:
        """A record of a response: the first of a new one, or one more of the one held."""
        if not self.is_open_for(message.id):
            yield from self.close()
            self._open = Reply(uuid, at, message)
            self.turn += 1
            self.last = uuid
        assert self._open is not None
        said = blocks(message.content, blobs)
        self._open.grow(message, said)
        self.names.update((block.call_id, block.name) for block in said if isinstance(block, ToolCall))

    def result(self, uuid: str, at: int, said: Result) -> Iterator[Item]:
        """The result of a call."""
        fact = ToolReturned(
            call_id=said.call_id,
            blocks=said.blocks,
            is_error=said.is_error,
            effect=effect_of(self.names.pop(said.call_id, "")),
            exit_code=said.exit_code,
        )
        yield from self.say(Said(session=self.session, uuid=uuid, at=at, fact=fact))
        self.last = uuid

    def close(self) -> Iterator[Item]:
        """Say the reply being held, then what waits behind it."""
        reply, self._open = self._open, None
        if reply is None:
            return
        is_first = reply.response_id not in self._said_usage
        self._said_usage.add(reply.response_id)
        fact = ModelReplied(
            blocks=tuple(reply.blocks),
            model=reply.model,
            stop_reason=reply.stop_reason,
            usage=reply.usage if is_first else None,
            response_id=reply.response_id,
        )
        holder = self.caller._open if self.caller else None  # noqa: SLF001 - the same class
        said: list[Item] = [Said(session=self.session, uuid=reply.uuid, at=reply.at, fact=fact), *reply.behind]
        if holder is None:
            yield from said
        else:
            holder.behind.extend(said)
