"""Taking the host's calls out of an answer of the Responses API, and joining several answers into one.

Events of an item that the host takes vanish, all of them; those of later items move down, and the events' numbers with
them. What an item is called stands in its first event; should that be missing there, the item is held, and so is what
follows it. The event with the finished response is held until the client's answer ends.

Of several answers the client sees one: opened by the first, with its id, closed by the last, with the items of all of
them in its `output`. Ids of items, and reasoning, stay to the byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from transom.adapters.provider_api import read_loosely
from transom.adapters.provider_errors import Failure
from transom.adapters.provider_openai_responses_reply import ResponsesReader
from transom.adapters.provider_writing import string, written_array, written_object
from transom.core.wire import Dialect
from transom.errors import UsageError
from transom.gateway.elements_openai_responses import called, kind_of, reply_blocks, wire_of_reply
from transom.gateway.events import Cutter, data_of, event, with_data
from transom.gateway.face_openai import array_of, error, is_set, object_of
from transom.gateway.joining_openai import RESPONSES_USAGE, joined_usage, takes_none
from transom.ports import Reply

__all__ = ["ResponsesStream", "ResponsesWhole"]

_OPENING = frozenset({"response.created", "response.in_progress", "response.queued"})
_CLOSING = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})
_ADDED, _ENDED = "response.output_item.added", "response.output_item.done"
_TAKEN = -1
_INDEX = re.compile(rb'("output_index"\s*:\s*)\d+')
_SEQUENCE = re.compile(rb'("sequence_number"\s*:\s*)\d+')
"""In raw JSON: inside a string the quotes would be escaped."""


class _Seen(msgspec.Struct):
    """What of an event decides where it goes."""

    type: str = ""
    output_index: int | None = None
    sequence_number: int | None = None
    item: msgspec.Raw = msgspec.Raw(b"null")


_SEEN = msgspec.json.Decoder(_Seen)
_UNREAD = _Seen()


@dataclass(frozen=True, slots=True)
class _Frame:
    raw: bytes
    seen: _Seen


@dataclass(slots=True)
class _Answer:
    """One answer from upstream."""

    reader: ResponsesReader = field(default_factory=lambda: ResponsesReader(""))
    failure: Failure | None = None
    names: dict[int, str | None] = field(default_factory=dict)
    """Place of an item -> the name it calls ("": not known yet), None if it is no call."""
    places: dict[int, int] = field(default_factory=dict)
    """Place of an item -> its place at the client, or `_TAKEN`."""
    items: dict[int, bytes] = field(default_factory=dict)
    """Finished items."""
    waiting: list[_Frame] = field(default_factory=list)
    closing: list[_Frame] = field(default_factory=list)
    response: dict[str, bytes] = field(default_factory=dict)
    """As it was finished."""

    def put_out(self) -> list[bytes]:
        listed = array_of(self.response.get("output", b""))
        return [self.items[place] for place in sorted(self.items)] or list(listed)


class ResponsesStream:
    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._cutter = Cutter()
        self._takes: Callable[[str], bool] = takes_none
        self._answer = _Answer()
        self._opened: dict[str, bytes] = {}
        """The response as the client first saw it."""
        self._is_plain = True
        """The client has all of one answer so far, and nothing else."""
        self._is_later = False
        """The client has seen an answer before the one at hand."""
        self._has_shown = False
        self._given = 0
        """Items that the client got."""
        self._number = 0
        """The next event's."""
        self._output: list[bytes] = []
        """Finished items of earlier answers, without the host's calls."""
        self._usages: list[bytes] = []

    def start(self, takes: Callable[[str], bool]) -> None:
        before = self._answer
        if self._has_shown:
            self._is_plain, self._is_later = False, True
            self._output.extend(self._visible())
            if is_set(usage := before.response.get("usage", b"")):
                self._usages.append(usage)
        self._takes, self._answer, self._cutter = takes, _Answer(), Cutter()

    def feed(self, data: bytes) -> bytes:
        shown = [self._frame(frame) for frame in self._cutter.feed(data)]
        if not data and (rest := self._cutter.rest()):  # torn: nothing may follow it
            told = data_of(rest)
            shown.append(self._ending(_Frame(rest, _seen(told)), told))
        return b"".join(shown)

    def whole(self, data: bytes) -> None:
        raise UsageError(f"an answer that streams does not come in one piece ({len(data):,} bytes)")

    @property
    def answer(self) -> Reply | Failure | None:
        reply = self._answer.failure or self._answer.reader.reply()
        return replace(reply, blocks=reply_blocks(self._answer.put_out())) if isinstance(reply, Reply) else reply

    @property
    def wire(self) -> str:
        items = self._answer.put_out()
        return wire_of_reply(self._dialect, reply_blocks(items), items) if items else ""

    def end(self) -> bytes:
        shown = [self.feed(b""), self._drained()]
        closing, self._answer.closing = self._answer.closing, []
        shown.extend(frame.raw if self._is_plain else self._closed(frame) for frame in closing)
        return b"".join(shown)

    def failed(self, message: str) -> bytes:
        said = b'{"code":"server_error","message":%b}' % string(message)
        opened = self._opened or {"object": b'"response"', "output": b"[]"}
        response = written_object(opened | {"status": b'"failed"', "error": said})
        return event(
            b'{"type":"response.failed","sequence_number":%d,"response":%b}' % (self._number, response),
            "response.failed",
        )

    # -- one frame

    def _frame(self, raw: bytes) -> bytes:
        answer = self._answer
        data = data_of(raw)
        frame = _Frame(raw, _seen(data))
        kind = frame.seen.type
        if answer.closing or kind in _CLOSING:
            return self._ending(frame, data)
        if kind in _OPENING:
            self._has_shown = True
            if self._is_later:
                return b""
            self._opened = self._opened or object_of(object_of(data).get("response", b""))
        elif kind in (_ADDED, _ENDED):
            self._item(frame.seen, data)
        place = frame.seen.output_index
        if not answer.waiting and (place is None or place in answer.places):
            return self._passed(frame)
        answer.waiting.append(frame)
        return b"" if "" in answer.names.values() else self._drained()

    def _ending(self, frame: _Frame, data: bytes) -> bytes:
        if frame.seen.type in _CLOSING:
            self._finish(data)
        shown = self._drained()
        self._answer.closing.append(frame)
        return shown

    def _item(self, seen: _Seen, data: bytes) -> None:
        answer, place = self._answer, seen.output_index or 0
        fields = object_of(bytes(seen.item))
        if not answer.names.get(place):
            answer.names[place] = _called(fields, is_final=seen.type == _ENDED)
        if seen.type == _ENDED:
            answer.items[place] = object_of(data).get("item", b"")
            self._tell(data)

    def _finish(self, data: bytes) -> None:
        self._tell(data)
        if not self._answer.response:
            self._answer.response = object_of(object_of(data).get("response", b""))

    def _tell(self, data: bytes) -> None:
        try:
            found = self._answer.reader.event(data.decode("utf-8", "replace"))
        except msgspec.DecodeError:
            return  # not ours to judge: the client sees it as it is
        if isinstance(found, Failure):
            self._answer.failure = found

    def _drained(self) -> bytes:
        """What waited, shown; an item that never got a name is the client's."""
        waiting, self._answer.waiting = self._answer.waiting, []
        shown = []
        for frame in waiting:
            self._place(frame.seen.output_index)
            shown.append(self._passed(frame))
        return b"".join(shown)

    def _place(self, place: int | None) -> None:
        answer = self._answer
        if place is None or place in answer.places:
            return
        name = answer.names.get(place)
        if name and self._takes(name):
            answer.places[place] = _TAKEN
            self._is_plain = False
        else:
            answer.places[place] = self._given
            self._given += 1

    def _passed(self, frame: _Frame) -> bytes:
        seen = frame.seen
        place = self._answer.places.get(seen.output_index) if seen.output_index is not None else None
        if place == _TAKEN:
            return b""
        self._has_shown = self._has_shown or bool(seen.type)
        if self._is_plain:
            if seen.sequence_number is not None:
                self._number = seen.sequence_number + 1
            return frame.raw
        raw = frame.raw
        if place is not None and place != seen.output_index:
            raw = _INDEX.sub(rb"\g<1>%d" % place, raw, count=1)
        return self._numbered(raw, seen)

    def _numbered(self, raw: bytes, seen: _Seen) -> bytes:
        if seen.sequence_number is None:
            return raw
        self._number += 1
        return _SEQUENCE.sub(rb"\g<1>%d" % (self._number - 1), raw, count=1)

    # -- the ending

    def _visible(self) -> list[bytes]:
        """Finished items of the answer at hand that the client gets."""
        answer = self._answer
        if answer.items:
            return [answer.items[place] for place in sorted(answer.items) if answer.places.get(place) != _TAKEN]
        return [item for item in answer.put_out() if not _is_taken(item, self._takes)]

    def _closed(self, frame: _Frame) -> bytes:
        fields = object_of(data_of(frame.raw))
        response = object_of(fields.get("response", b""))
        if not response:
            return self._numbered(frame.raw, frame.seen)
        fields["response"] = _merged(response, self._opened, [*self._output, *self._visible()], self._usages)
        return self._numbered(with_data(frame.raw, written_object(fields)), frame.seen)


class ResponsesWhole:
    """Answers in one piece."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._takes: Callable[[str], bool] = takes_none
        self._answer: Reply | Failure | None = None
        self._last = b""
        self._wire = ""
        self._bodies: list[dict[str, bytes]] = []
        self._output: list[bytes] = []
        """What the client gets."""
        self._is_plain = True

    def start(self, takes: Callable[[str], bool]) -> None:
        self._takes, self._answer = takes, None

    def feed(self, data: bytes) -> bytes:
        raise UsageError(f"an answer in one piece does not stream ({len(data):,} bytes)")

    def whole(self, data: bytes) -> None:
        self._answer, self._last, self._wire = ResponsesReader("").whole(data), data, ""
        if isinstance(self._answer, Failure):
            return
        body = object_of(data)
        items = array_of(body.get("output", b""))
        kept = [item for item in items if not _is_taken(item, self._takes)]
        self._is_plain = not self._bodies and len(kept) == len(items)
        self._bodies.append(body)
        self._output.extend(kept)
        blocks = reply_blocks(items)
        self._answer = replace(self._answer, blocks=blocks)
        self._wire = wire_of_reply(self._dialect, blocks, items) if items else ""

    @property
    def answer(self) -> Reply | Failure | None:
        return self._answer

    @property
    def wire(self) -> str:
        return self._wire

    def end(self) -> bytes:
        if self._is_plain or isinstance(self._answer, Failure):
            return self._last
        usages = [usage for one in self._bodies[:-1] if is_set(usage := one.get("usage", b""))]
        return _merged(self._bodies[-1], self._bodies[0], self._output, usages)

    def failed(self, message: str) -> bytes:
        return error(500, message)


def _seen(data: bytes) -> _Seen:
    if not data:
        return _UNREAD
    try:
        return read_loosely(data, _SEEN)
    except msgspec.DecodeError:
        return _UNREAD


def _called(fields: Mapping[str, bytes], *, is_final: bool) -> str | None:
    """The name an item calls, None if it is no call of a client's tool; "" while that is to come."""
    kind = kind_of(fields)
    if kind in ("function_call", "custom_tool_call"):
        return called(fields) if is_final or fields.get("name") not in (None, b'""', b"null") else ""
    return called(fields) if kind.endswith("_call") and is_set(fields.get("call_id")) else None


def _is_taken(item: bytes, takes: Callable[[str], bool]) -> bool:
    name = _called(object_of(item), is_final=True)
    return name is not None and takes(name)


def _merged(
    last: Mapping[str, bytes], first: Mapping[str, bytes], output: Sequence[bytes], usages: Sequence[bytes]
) -> bytes:
    """The finished response of several answers."""
    fields = dict(last)
    if "id" in first:
        fields["id"] = first["id"]
    fields["output"] = written_array(output)
    if "usage" in fields:
        fields["usage"] = joined_usage(usages, fields["usage"], RESPONSES_USAGE)
    return written_object(fields)
