"""What every `Provider` must do, as plain functions over a factory; used like the kits in `conformance`.

Each call of the factory gives a provider whose model answers at least three requests, each with some text or some
call. Nothing here asks that a model obeys: which tools it calls is its own affair.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from transom.core.block import Text, Thought, ToolCall, ToolResultRaw
from transom.core.canon import FORMAT
from transom.core.event import (
    EpochOpened,
    Event,
    Fact,
    ModelReplied,
    Section,
    SessionOpened,
    Tool,
    ToolReturned,
    UserSaid,
    decode_fact,
    encode_fact,
)
from transom.core.projection import fold
from transom.core.state import State
from transom.core.wire import Dialect, Rendering
from transom.ports import Delta, Outgoing, Provider, Reply

__all__ = ["PROVIDER_CASES", "ProviderCase", "Talk", "answer"]

ProviderCase = Callable[[Callable[[], Provider]], None]

_READ = Tool(
    name="read",
    description="Read a file of the workspace.",
    schema='{"type":"object","properties":{"path":{"type":"string","maxLength":60}},"required":["path"]}',
)


@dataclass(slots=True)
class Talk:
    """A conversation rendered for one dialect, without a log: state and bytes as a session has them."""

    dialect: Dialect
    tools: tuple[Tool, ...] = (_READ,)
    model: str = "m"
    state: State = field(default_factory=State)
    _rendering: Rendering = field(init=False)
    _numbers: Callable[[], int] = field(init=False)

    def __post_init__(self) -> None:
        self._rendering = Rendering(self.dialect)
        self._numbers = count(1).__next__
        sections = (Section(key="system", text="You are brief and exact."),)
        self.say(SessionOpened(format=FORMAT, model=self.model), EpochOpened(sections=sections, tools=self.tools))

    def say(self, *facts: Fact) -> None:
        for fact in facts:
            number = self._numbers()
            fold(self.state, Event(session_id="s", seq=number, uuid=f"u{number}", at=number, fact=fact))

    def user(self, words: str) -> None:
        self.say(UserSaid(blocks=(Text(text=words),)))

    def take(self, reply: Reply, result: str = "ok") -> None:
        """Fold a reply, and `result` for each of its calls."""
        self.say(ModelReplied(blocks=reply.blocks, stop_reason=reply.stop_reason, model=reply.model))
        for block in reply.blocks:
            if isinstance(block, ToolCall):
                self.say(ToolReturned(call_id=block.call_id, blocks=(ToolResultRaw(text=result),), effect="read"))

    def outgoing(
        self, *, forced_tool: str = "", withheld: frozenset[str] = frozenset(), max_output_tokens: int = 128
    ) -> Outgoing:
        return Outgoing(
            wire=self._rendering.wire(self.state),
            model=self.model,
            max_output_tokens=max_output_tokens,
            forced_tool=forced_tool,
            withheld=withheld,
        )


def answer(provider: Provider, request: Outgoing) -> Reply:
    """The reply to `request`; what streams before it is dropped."""
    *_, last = provider.send(request)
    assert isinstance(last, Reply)
    return last


def _asked(provider: Provider) -> Talk:
    talk = Talk(provider.dialect)
    talk.user("Read the file a.py with the tool `read`, then say what it does.")
    return talk


def an_answer_ends_in_its_one_reply(make: Callable[[], Provider]) -> None:
    provider = make()
    *streamed, last = provider.send(_asked(provider).outgoing())
    assert isinstance(last, Reply)
    assert all(isinstance(piece, Delta) for piece in streamed)
    assert last.blocks
    assert last.stop_reason
    assert last.model


def what_streams_is_what_the_reply_says(make: Callable[[], Provider]) -> None:
    provider = make()
    *streamed, last = provider.send(_asked(provider).outgoing())
    assert isinstance(last, Reply)
    for kind, form in (("text", Text), ("thought", Thought)):
        pieces = [piece.text for piece in streamed if isinstance(piece, Delta) and piece.kind == kind]
        said = "".join(block.text for block in last.blocks if isinstance(block, form))
        assert "".join(pieces) in {"", said}


def blocks_are_as_they_came_and_can_be_logged(make: Callable[[], Provider]) -> None:
    provider = make()
    reply = answer(provider, _asked(provider).outgoing())
    assert all((block.tokens, block.is_protected) == (0, False) for block in reply.blocks)
    fact = ModelReplied(
        blocks=reply.blocks,
        model=reply.model,
        stop_reason=reply.stop_reason,
        usage=reply.usage,
        response_id=reply.response_id,
    )
    assert decode_fact(encode_fact(fact)) == fact


def a_conversation_goes_on_and_no_call_id_comes_twice(make: Callable[[], Provider]) -> None:
    provider = make()
    talk = _asked(provider)
    ids: list[str] = []
    for _ in range(2):
        reply = answer(provider, talk.outgoing())
        ids += [block.call_id for block in reply.blocks if isinstance(block, ToolCall)]
        talk.take(reply)
        talk.user("Go on.")
    assert answer(provider, talk.outgoing()).blocks
    assert all(ids)
    assert len(set(ids)) == len(ids)


def sending_changes_no_byte_of_the_request(make: Callable[[], Provider]) -> None:
    provider = make()
    request = _asked(provider).outgoing()
    before = request.wire.segments()
    answer(provider, request)
    assert request.wire.segments() == before


def a_closed_answer_leaves_the_provider_ready(make: Callable[[], Provider]) -> None:
    provider = make()
    talk = _asked(provider)
    cut = provider.send(talk.outgoing())
    next(cut)
    close = getattr(cut, "close", None)
    assert close is not None, "an answer can be closed"
    close()
    assert answer(provider, talk.outgoing()).blocks


def usage_is_of_this_request(make: Callable[[], Provider]) -> None:
    provider = make()
    usage = answer(provider, _asked(provider).outgoing()).usage
    if usage is not None:
        assert usage.prompt > 0
        assert min(usage.uncached, usage.cached, usage.written) >= 0
        assert usage.output > 0


PROVIDER_CASES: tuple[ProviderCase, ...] = (
    an_answer_ends_in_its_one_reply,
    what_streams_is_what_the_reply_says,
    blocks_are_as_they_came_and_can_be_logged,
    a_conversation_goes_on_and_no_call_id_comes_twice,
    sending_changes_no_byte_of_the_request,
    a_closed_answer_leaves_the_provider_ready,
    usage_is_of_this_request,
)
