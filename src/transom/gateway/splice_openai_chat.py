"""Taking the host's calls out of an answer of the Chat Completions API, and joining several answers into one.

A chunk without calls or an ending goes to the client as it came. Pieces of a call that the host takes vanish, later
calls move down, and a chunk in which nothing else stood goes with them. A call whose name has not come yet is held, and
so is what follows it. From the chunk with the finish reason on, all is held until the client's answer ends.

Of several answers the client sees one: the id and the role of the first, the words and calls of all of them, words of
two answers a paragraph apart. Nothing is taken from an answer with several choices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from transom.adapters.provider_errors import Failure
from transom.adapters.provider_openai_chat_reply import ChatReader
from transom.adapters.provider_writing import written_array, written_object
from transom.core.block import Text
from transom.errors import UsageError
from transom.gateway.events import Cutter, data_of, event, with_data
from transom.gateway.face_openai import array_of, digits_of, error, is_set, object_of
from transom.gateway.joining_openai import CHAT_USAGE, GAP, finish_reason, joined_usage, takes_none
from transom.ports import Reply

__all__ = ["ChatStream"]

_DONE = b"[DONE]"
_TAKEN = -1
_CALLS = "tool_calls"
_NOTHING = frozenset({b"null", b'""', b"[]"})


@dataclass(slots=True)
class _Chunk:
    """A frame, what it says, and which calls its pieces belong to."""

    frame: bytes
    data: bytes
    pieces: Sequence[tuple[int, str | None]] = ()


@dataclass(slots=True)
class _Answer:
    """One answer from upstream."""

    reader: ChatReader = field(default_factory=lambda: ChatReader(""))
    failure: Failure | None = None
    names: dict[int, str | None] = field(default_factory=dict)
    """Number of a call -> its name."""
    places: dict[int, int] = field(default_factory=dict)
    """Number of a call -> its index at the client, or `_TAKEN`."""
    waiting: list[_Chunk] = field(default_factory=list)
    closing: list[_Chunk] = field(default_factory=list)
    first: bytes = b""
    """The data of its first chunk."""
    has_spoken: bool = False


class ChatStream:
    def __init__(self) -> None:
        self._cutter = Cutter()
        self._takes: Callable[[str], bool] = takes_none
        self._answer = _Answer()
        self._ids: tuple[bytes, bytes] = (b"", b"")
        """The id of the answer at hand, and the one the client knows; nothing while they are the same."""
        self._first = b""
        """The data of the first chunk of the client's answer."""
        self._is_later = False
        """The client has seen an answer before the one at hand."""
        self._given = 0
        """Calls that the client got."""
        self._is_plain = True
        """The client has all of one answer so far, and nothing else."""
        self._has_choices = False
        self._has_spoken = False
        """An answer before this one had words."""
        self._usages: list[bytes] = []
        self._owed: list[bytes] = []

    def start(self, takes: Callable[[str], bool]) -> None:
        before = self._answer
        if self._first:  # of an answer that failed at once the client has nothing
            self._is_plain, self._is_later = False, True
            self._owed.extend(self._shown(chunk, is_owed=True) for chunk in before.closing)
            reply = before.reader.reply()
            if reply is not None and any(isinstance(block, Text) for block in reply.blocks):
                self._has_spoken = True
            self._usages.extend(usage for usage in map(_usage, before.closing) if is_set(usage))
        self._takes, self._answer, self._cutter = takes, _Answer(), Cutter()

    def feed(self, data: bytes) -> bytes:
        shown = [*self._owed, *(self._frame(frame) for frame in self._cutter.feed(data))]
        self._owed = []
        if not data and (rest := self._cutter.rest()):
            shown.append(self._torn(rest))
        return b"".join(shown)

    def whole(self, data: bytes) -> None:
        raise UsageError(f"an answer that streams does not come in one piece ({len(data):,} bytes)")

    @property
    def answer(self) -> Reply | Failure | None:
        return self._answer.failure or self._answer.reader.reply()

    @property
    def wire(self) -> str:
        return ""

    def end(self) -> bytes:
        shown = [self.feed(b""), self._drained()]
        closing, self._answer.closing = self._answer.closing, []
        shown.extend(chunk.frame if self._is_plain else self._ended(chunk) for chunk in closing)
        return b"".join(shown)

    def failed(self, message: str) -> bytes:
        return event(error(500, message))

    # -- one frame

    def _frame(self, frame: bytes) -> bytes:
        answer = self._answer
        chunk = _Chunk(frame, data_of(frame))
        self._read(chunk)
        if self._has_choices:
            return frame
        is_over = bool(answer.closing) or answer.failure is not None or chunk.data == _DONE
        if not is_over and _is_open(chunk.data):
            return self._passing(chunk)
        if _has_choices(chunk.data):
            self._has_choices = self._is_plain = True
            held, answer.waiting, answer.closing = [*answer.waiting, *answer.closing, chunk], [], []
            return b"".join(one.frame for one in held)
        return self._ending(chunk) if is_over or _is_ending(chunk.data) else self._passing(chunk)

    def _ending(self, chunk: _Chunk) -> bytes:
        shown = self._drained()
        self._place(chunk)
        self._answer.closing.append(chunk)
        return shown

    def _torn(self, rest: bytes) -> bytes:
        """What is left of a stream without the blank line that ends an event: nothing may follow it."""
        chunk = _Chunk(rest, data_of(rest))
        self._read(chunk)
        return self._ending(chunk)

    def _read(self, chunk: _Chunk) -> None:
        if not chunk.data:
            return
        answer = self._answer
        try:
            found = answer.reader.event(chunk.data.decode("utf-8", "replace"))
        except msgspec.DecodeError:
            return  # not ours to judge: the client sees it as it is
        if isinstance(found, Failure):
            answer.failure = found
        elif chunk.data != _DONE:
            chunk.pieces = answer.reader.pieces
            answer.names.update(chunk.pieces)
            if not answer.first:
                answer.first = chunk.data
                self._meet(chunk.data)

    def _meet(self, data: bytes) -> None:
        """The first chunk of an answer says its id; the client knows that of the first one."""
        self._first = self._first or data
        if self._is_later:
            self._ids = (object_of(data).get("id", b""), object_of(self._first).get("id", b""))

    def _passing(self, chunk: _Chunk) -> bytes:
        """A frame that ends nothing: shown now, unless a call before it or in it has no name yet."""
        answer = self._answer
        if not answer.waiting and all(number in answer.places for number, _ in chunk.pieces):
            return self._passed(chunk)
        answer.waiting.append(chunk)
        return b"" if "" in answer.names.values() else self._drained()

    def _drained(self) -> bytes:
        """What waited, shown; a call that never got a name is the client's."""
        waiting, self._answer.waiting = self._answer.waiting, []
        shown = []
        for chunk in waiting:
            self._place(chunk)
            shown.append(self._passed(chunk))
        return b"".join(shown)

    def _place(self, chunk: _Chunk) -> None:
        answer = self._answer
        for number, _ in chunk.pieces:
            name = answer.names[number]
            if number in answer.places:
                continue
            if name and self._takes(name):
                answer.places[number] = _TAKEN
                self._is_plain = False
            else:
                answer.places[number] = self._given
                self._given += 1

    def _passed(self, chunk: _Chunk) -> bytes:
        if self._is_plain or not chunk.data:
            return chunk.frame
        answer = self._answer
        is_first_word = self._has_spoken and not answer.has_spoken
        if chunk.pieces or is_first_word or (self._is_later and b'"role"' in chunk.data):
            return self._shown(chunk)
        old, new = self._ids
        if old == new:
            return chunk.frame
        name = b'"id":' + old
        return chunk.frame.replace(name, b'"id":' + new, 1) if name in chunk.frame else self._shown(chunk)

    # -- rewriting

    def _shown(self, chunk: _Chunk, *, is_owed: bool = False, finish: bytes = b"", usage: bytes = b"") -> bytes:
        """A frame as the client sees it: nothing, if nothing of it is left. `is_owed`: the ending of an answer that is
        not the last one, of which only what it says beside that is shown."""
        fields = object_of(chunk.data)
        choices = array_of(fields.get("choices", b""))
        choice = object_of(choices[0]) if choices else {}
        delta = object_of(choice.get("delta", b""))
        has_lost = self._reduced(delta, chunk.pieces)
        if (has_lost or is_owed) and not finish and all(value in _NOTHING for value in delta.values()):
            return b""
        if "delta" in choice:
            choice["delta"] = written_object(delta)
        if is_owed or finish:
            choice["finish_reason"] = finish or b"null"
        if choices:
            fields["choices"] = written_array([written_object(choice)])
        if "usage" in fields and (is_owed or usage):
            fields["usage"] = usage or b"null"
        if self._ids[1] and "id" in fields:
            fields["id"] = self._ids[1]
        return with_data(chunk.frame, written_object(fields))

    def _reduced(self, delta: dict[str, bytes], pieces: Sequence[tuple[int, str | None]]) -> bool:
        """Take out of a delta what the client does not see; whether there was such a thing."""
        answer = self._answer
        has_lost = False
        if pieces:
            raw = zip(array_of(delta.pop(_CALLS, b"")), pieces, strict=False)
            places = [(piece, answer.places.get(number, _TAKEN)) for piece, (number, _) in raw]
            kept = [_at(piece, place) for piece, place in places if place != _TAKEN]
            has_lost = len(kept) < len(places)
            if kept:
                delta[_CALLS] = written_array(kept)
        if self._is_later and delta.pop("role", b""):
            has_lost = True
        words = delta.get("content", b"")
        if words.startswith(b'"') and words != b'""' and not answer.has_spoken:
            answer.has_spoken = True
            if self._has_spoken:
                delta["content"] = b'"' + GAP + words[1:]
        return has_lost

    def _ended(self, chunk: _Chunk) -> bytes:
        """A frame of the client's ending."""
        fields = object_of(chunk.data)
        if not fields or is_set(fields.get("error")):
            return chunk.frame
        choices = array_of(fields.get("choices", b""))
        finish = object_of(choices[0]).get("finish_reason", b"") if choices else b""
        usage = joined_usage(self._usages, fields.get("usage", b""), CHAT_USAGE)
        finish = finish_reason(finish, has_calls=self._given > 0) if is_set(finish) else b""
        return self._shown(chunk, finish=finish, usage=usage)


# -- what stands in a chunk


def _is_open(data: bytes) -> bool:
    """Whether a chunk surely ends nothing. Inside a string the quotes would be escaped."""
    return all(name + b":null" in data or name not in data for name in (b'"finish_reason"', b'"usage"'))


def _is_ending(data: bytes) -> bool:
    fields = object_of(data)
    choices = array_of(fields.get("choices", b""))
    if not choices:
        return is_set(fields.get("usage"))
    return is_set(object_of(choices[0]).get("finish_reason"))


def _has_choices(data: bytes) -> bool:
    choices = array_of(object_of(data).get("choices", b""))
    return len(choices) > 1 or any(digits_of(object_of(choice).get("index", b"")) for choice in choices)


def _usage(chunk: _Chunk) -> bytes:
    return object_of(chunk.data).get("usage", b"")


def _at(piece: bytes, place: int) -> bytes:
    """A piece of a call at another index."""
    return written_object(object_of(piece) | {"index": b"%d" % place})
