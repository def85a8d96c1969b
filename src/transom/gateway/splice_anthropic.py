"""One answer of the Messages API to the client, made of one answer from upstream or of several.

The blocks of all of them stand behind each other under one `message_start`, the host's calls cut out and the indices
behind them moved down. What ends an answer is held until it is known that nothing follows. What need not change goes
on as the bytes it came in, unknown events and comments too; an answer that nothing was taken from, and that none
followed, is the same stream.

At the end usage has the prompt of the last request and the output of all, and the stop reason says `tool_use` if the
client has calls to answer, and not if it has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from transom.adapters.provider_anthropic_reply import AnthropicReader
from transom.adapters.provider_errors import Failure
from transom.adapters.provider_writing import string, written_array, written_object
from transom.core.block import Block
from transom.gateway.events import Cutter, data_of, event, with_data
from transom.gateway.reading import fields_of, listed, value_of
from transom.importers.fields import read
from transom.ports import Reply

__all__ = ["AnthropicSplice"]

_PROMPT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_REST = "rest"
"""A frame that the end of the stream cut off."""
_ENDS = frozenset({"message_delta", "message_stop", "error", _REST})
"""What is not for the client if another answer follows."""
_CALLED, _TALKED = "tool_use", "end_turn"
_TAKEN = -1


class _Block(msgspec.Struct):
    type: str = ""
    name: str = ""


class _Event(msgspec.Struct):
    type: str = ""
    index: int = 0
    content_block: _Block | None = None


_BLOCK = msgspec.json.Decoder(_Block)
_EVENT = msgspec.json.Decoder(_Event)
_NOTHING = _Event()


@dataclass(slots=True, kw_only=True)
class _Upstream:
    """One answer from upstream, as far as it came."""

    takes: Callable[[str], bool]
    shift: int
    """What its indices are moved by, up or down."""
    cutter: Cutter = field(default_factory=Cutter)
    reader: AnthropicReader = field(default_factory=lambda: AnthropicReader(""))
    answer: Reply | Failure | None = None
    places: dict[int, int] = field(default_factory=dict)
    """Index of a block -> the client's, or `_TAKEN`."""
    usage: dict[str, bytes] = field(default_factory=dict)
    stop: str = ""
    held: list[tuple[str, bytes]] = field(default_factory=list)
    """Kind and frame of all that came since it began to end."""
    is_ending: bool = False
    is_over: bool = False
    body: bytes = b""
    """If it came in one piece."""


class AnthropicSplice:
    """`wire_of` makes `wire` of an answer's blocks and items."""

    def __init__(self, *, is_streamed: bool, wire_of: Callable[[tuple[Block, ...], Sequence[bytes]], str]) -> None:
        self._is_streamed = is_streamed
        self._wire_of = wire_of
        self._now = _Upstream(takes=lambda _: False, shift=0)
        self._answers = self._taken = self._called = 0
        self._next = 0
        """The client's next index."""
        self._output = 0
        """Tokens of the answers before."""
        self._content: list[bytes] = []
        self._ahead = b""
        """What the next bytes for the client stand behind."""
        self._has_started = False

    def start(self, takes: Callable[[str], bool]) -> None:
        self._output += _figure(self._now.usage)
        self._ahead += b"".join(frame for kind, frame in self._now.held if kind not in _ENDS)
        self._answers += 1
        self._now = _Upstream(takes=takes, shift=self._next)

    @property
    def answer(self) -> Reply | Failure | None:
        if self._now.answer is None and (self._now.reader.is_done or self._now.is_over):
            self._now.answer = self._now.reader.reply()
        return self._now.answer

    @property
    def wire(self) -> str:
        reply = self.answer
        return self._wire_of(reply.blocks, self._now.reader.items()) if isinstance(reply, Reply) else ""

    # -- a stream

    def feed(self, data: bytes) -> bytes:
        ahead, self._ahead = self._ahead, b""
        if data:
            return b"".join([ahead, *map(self._event, self._now.cutter.feed(data))])
        self._now.is_over = True
        if rest := self._now.cutter.rest():
            self._now.is_ending = True  # no blank line ends it, so nothing may follow it
            self._event(rest)
            kind, shown = self._now.held.pop()
            self._now.held.append((kind if kind in _ENDS else _REST, shown))
        return ahead

    def _event(self, frame: bytes) -> bytes:
        data = data_of(frame)
        found = (read(data, _EVENT) or _NOTHING) if data else _NOTHING
        if data:
            self._listen(data)
        shown = self._shown(found, frame, data)
        self._now.is_ending = self._now.is_ending or found.type in _ENDS
        if not self._now.is_ending:
            return shown
        self._now.held.append((found.type, shown))
        return b""

    def _listen(self, data: bytes) -> None:
        try:
            heard = self._now.reader.event(data.decode("utf-8", "replace"))
        except msgspec.DecodeError:
            return  # an event that no reader understands is the client's to judge
        if isinstance(heard, Failure):
            self._now.answer = heard

    def _shown(self, found: _Event, frame: bytes, data: bytes) -> bytes:
        match found.type:
            case "message_start":
                self._note(_object(_object(fields_of(data), "message"), "usage"))
                is_another = self._has_started and self._answers > 1
                self._has_started = True
                return b"" if is_another else frame
            case "content_block_start":
                if not self._gives(found.content_block):
                    self._now.places[found.index] = _TAKEN
                    self._now.shift -= 1
                    return b""
                self._now.places[found.index] = place = found.index + self._now.shift
                self._next = max(self._next, place + 1)
                return _moved(frame, data, found.index, place)
            case "content_block_delta" | "content_block_stop":
                return _moved(frame, data, found.index, self._now.places.get(found.index, found.index))
            case "message_delta":
                fields = fields_of(data)
                self._note(_object(fields, "usage"))
                self._now.stop = _text(_object(fields, "delta"), "stop_reason") or self._now.stop
                return frame
            case _:
                return frame

    def _gives(self, block: _Block | None) -> bool:
        """Whether the client gets this block."""
        if block is None or block.type != _CALLED:
            return True
        is_taken = self._now.takes(block.name)
        self._taken += is_taken
        self._called += not is_taken
        return not is_taken

    # -- an answer in one piece

    def whole(self, data: bytes) -> None:
        self._now.answer = self._now.reader.whole(data)
        self._now.body = data
        if isinstance(self._now.answer, Failure):
            return
        fields = fields_of(data)
        self._note(_object(fields, "usage"))
        self._now.stop = self._now.answer.stop_reason
        self._content.extend(piece for piece in listed(fields, "content") if self._gives(read(piece, _BLOCK)))

    # -- the end

    def end(self) -> bytes:
        if not self._is_streamed:
            return self._merged()
        out = [self.feed(b"")]
        last = max((place for place, (kind, _) in enumerate(self._now.held) if kind == "message_delta"), default=-1)
        for place, (kind, frame) in enumerate(self._now.held):
            if kind != "message_delta" or not self._is_changed:
                out.append(frame)
            elif place == last:
                out.append(self._closing(frame))
        self._now.held.clear()
        return b"".join(out)

    def failed(self, message: str) -> bytes:
        ahead, self._ahead = self._ahead, b""
        error = b'{"type":"error","error":{"type":"api_error","message":%b}}' % string(message)
        return ahead + event(error, "error") if self._is_streamed else error

    @property
    def _is_changed(self) -> bool:
        return self._answers > 1 or self._taken > 0

    def _note(self, usage: Mapping[str, bytes]) -> None:
        """The last figure given counts."""
        self._now.usage.update({name: value for name, value in usage.items() if value != b"null"})

    def _closing(self, frame: bytes) -> bytes:
        fields = fields_of(data_of(frame))
        delta = {**_object(fields, "delta"), "stop_reason": self._reason()}
        usage = self._figures(_object(fields, "usage"))
        if delta == _object(fields, "delta") and usage == _object(fields, "usage"):
            return frame
        changed = {**fields, "delta": written_object(delta), "usage": written_object(usage)}
        return with_data(frame, written_object(changed))

    def _merged(self) -> bytes:
        if not self._is_changed or isinstance(self._now.answer, Failure):
            return self._now.body
        fields = fields_of(self._now.body)
        usage = written_object(self._figures(_object(fields, "usage")))
        content = written_array(self._content)
        return written_object({**fields, "content": content, "stop_reason": self._reason(), "usage": usage})

    def _reason(self) -> bytes:
        if self._now.stop in (_CALLED, _TALKED):
            return string(_CALLED if self._called or (self._now.stop == _CALLED and not self._taken) else _TALKED)
        return string(self._now.stop) if self._now.stop else b"null"

    def _figures(self, usage: dict[str, bytes]) -> dict[str, bytes]:
        if self._answers < 2:
            return usage
        prompt = {name: self._now.usage[name] for name in _PROMPT if name in self._now.usage}
        return {**usage, **prompt, "output_tokens": b"%d" % (self._output + _figure(self._now.usage))}


def _moved(frame: bytes, data: bytes, index: int, place: int) -> bytes:
    """The frame with its block's index among those the client sees; nothing if the block is not among them."""
    if place == index:
        return frame
    if place == _TAKEN:
        return b""
    return with_data(frame, written_object({**fields_of(data), "index": b"%d" % place}))


def _object(fields: Mapping[str, bytes], name: str) -> dict[str, bytes]:
    raw = fields.get(name, b"")
    return fields_of(raw) if raw.startswith(b"{") else {}


def _text(fields: Mapping[str, bytes], name: str) -> str:
    value = value_of(fields.get(name, b"null"))
    return value if isinstance(value, str) else ""


def _figure(usage: Mapping[str, bytes]) -> int:
    value = value_of(usage.get("output_tokens", b"0"))
    return value if isinstance(value, int) else 0
