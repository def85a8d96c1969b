"""A face: all that the gateway has to know of one wire API. Data and pure code; nothing here touches the network.

A client resends its whole history with every request, as a list of *elements* (messages, or input items). A face reads
a request into a `Call`, says what an element is (its facts, and the digest by which it is known again), writes a
request for upstream, and takes the host's own calls out of an answer while it streams (`Splice`).

What a client sent goes upstream as it came while nothing of it was replaced. An item whose bytes do not follow from
its blocks (a field or a block that nobody here knows) carries them in `wire`; the face's dialect shows these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from transom.adapters.provider_errors import Failure
from transom.core.block import Block, Text
from transom.core.event import Fact, Section, Tool
from transom.core.wire import Dialect
from transom.gateway.outline import Outline
from transom.ports import Blobs, Reply

__all__ = ["Call", "Face", "Speaker", "Splice", "standing"]

_TAG = re.compile(r"\s*(<[A-Za-z][^<>\n]{0,60}>)")

Speaker = Literal["user", "assistant", "tool", "host"]
"""Who an element is of. `host`: what a client injects in the name of the system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request of a client. `elements` are the members of its history as raw JSON, of which the first `lead` belong
    to the head (system and developer messages, tools that stand in the list) and are never moved or dropped."""

    body: bytes
    outline: Outline
    elements: tuple[bytes, ...]
    lead: int
    model: str
    is_streamed: bool
    max_output_tokens: int
    """0: not said."""
    has_tools: bool
    previous: str = ""
    """The response that the elements continue, or an item they only name, where the server keeps the history; they are
    then only what is new."""

    @property
    def fields(self) -> Mapping[str, bytes]:
        """The top-level fields in the client's order, as raw JSON, but the history."""
        return self.outline.fields

    def has_head_of(self, other: Call) -> bool:
        """Whether all but the histories is the same to the byte."""
        return self.fields == other.fields and self.elements[: self.lead] == other.elements[: other.lead]


class Splice(Protocol):
    """One answer to the client, made of one answer from upstream or of several, one after the other."""

    def start(self, takes: Callable[[str], bool]) -> None:
        """Another answer from upstream begins. Calls whose tool's name `takes` are the host's: the client never sees
        them."""
        ...

    def feed(self, data: bytes) -> bytes:
        """The next bytes of a stream, cut anywhere; what of them goes to the client now: whole events, unknown ones
        too, byte for byte where nothing has to be changed. The events that end an answer are held until `end`. No
        bytes: upstream's stream is over, and what is left counts as an event."""
        ...

    def whole(self, data: bytes) -> None:
        """An answer that came in one piece. Raises `msgspec.DecodeError` if it is none."""
        ...

    @property
    def answer(self) -> Reply | Failure | None:
        """The answer from upstream at hand, the host's calls in it: None until its own end was seen."""
        ...

    @property
    def wire(self) -> str:
        """That answer as `ModelReplied.wire` has it: empty if it follows from its blocks."""
        ...

    def end(self) -> bytes:
        """The rest of the client's answer: the closing events, or all of it if it did not stream. Its usage has the
        prompt of the last request that went upstream, and the output of all of them."""
        ...

    def failed(self, message: str) -> bytes:
        """The rest of a stream that can not be ended well, as the API's own error event."""
        ...


class Face(Protocol):
    """One wire API."""

    @property
    def name(self) -> str:
        """`anthropic`, `openai_chat` or `openai_responses`."""
        ...

    @property
    def dialect(self) -> Dialect:
        """How the kernel's items look on the wire; an item's own `wire` before a rendering of its blocks."""
        ...

    def call(self, body: bytes, known: Iterable[Outline] = ()) -> Call:
        """Read a request; only its outline is parsed, elements stay bytes. `known`: of requests that this one may go on
        from. Raises `BadInput` for what is no request."""
        ...

    def head(self, call: Call) -> tuple[tuple[Section, ...], tuple[Tool, ...]]:
        """The client's system text and tools as they stand in the request, raw: what `body` sends unchanged. Tools the
        API keeps out of the prompt (deferred ones) are left out."""
        ...

    def canonical(self, element: bytes) -> bytes:
        """The element without what is no part of a prompt: cache marks and bookkeeping dropped, a lone text block as
        a string, arguments of calls left out (clients write them anew), keys sorted. Two elements are the same if
        this is. Any JSON value has one, lone surrogates and huge numbers too."""
        ...

    def speaker(self, element: bytes) -> Speaker:
        """`assistant` for all a model put out: a reasoning item or a call of the Responses API too."""
        ...

    def calls(self, element: bytes) -> tuple[str, ...]:
        """Ids of the calls in an element of the assistant."""
        ...

    def text(self, element: bytes) -> str:
        """The words of an element, results of tools and thoughts left out: for recognising side calls, and a model's
        words again."""
        ...

    def facts(self, elements: Sequence[bytes], blobs: Blobs) -> tuple[Fact, ...]:
        """What elements that follow each other say, in order: `UserSaid`, `HostSaid` (injected), `ModelReplied` (one
        for all neighbouring elements of the assistant), one `ToolReturned` a result. Blocks carry no counts yet; `wire`
        is set where the dialect's rendering of the blocks is not canonically the element."""
        ...

    def body(
        self,
        call: Call,
        *,
        tools: Sequence[Tool],
        messages: Sequence[bytes] | None = None,
        tail: bytes = b"",
        marks: Sequence[int] | None = None,
        forced: str = "",
        withheld: frozenset[str] = frozenset(),
    ) -> bytes:
        """The request for upstream: the client's own, with the host's `tools` behind its tools. `messages` (rendered by
        the dialect; None = the client's own elements to the byte) stand behind the leading elements, the client's
        cache marks on old elements are then replaced by ours, at most as many as the API takes: behind the first so
        many `messages` for each of `marks` (`core.breakpoints`), or the first and the last one. `forced` is the only
        tool to choose from, `withheld` are taken out of the catalogue."""
        ...

    def splice(self, *, is_streamed: bool) -> Splice: ...

    def error(self, status: int, message: str) -> bytes:
        """A refusal of the gateway's own in the API's shape."""
        ...


def standing(role: str, blocks: Sequence[Block]) -> str:
    """The name under which holds what a client says in the system's name in the middle of a history
    (`HostSaid.stands`): of what begins with a tag the newest with that tag does, of all else the newest."""
    tag = _TAG.match(next((block.text for block in blocks if isinstance(block, Text)), ""))
    return f"{role} {tag[1]}" if tag else role
