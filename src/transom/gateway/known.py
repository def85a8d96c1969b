"""What is known of a client's history: its elements by digest, and the answer it got since its last request.

Two facts of kind `Observed` keep it in the log: `client_request` (new elements that are read together, as they came,
and with the first of them the rest of the request) stands before what the elements say, `client_answer` behind the last
answer from upstream. After a restart, and in a fork, they say how far a client's list is known; a fork holds nothing of
what its parent was sent beyond that.
"""

from __future__ import annotations

import hashlib
from array import array
from base64 import b64decode, b64encode
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from operator import is_
from typing import NamedTuple

import msgspec

from transom.core.canon import plain_text
from transom.core.event import Event, ModelReplied, Observed, SessionOpened
from transom.gateway.face import Face

__all__ = [
    "Answer",
    "End",
    "Known",
    "Request",
    "answer_fact",
    "answer_in",
    "digest_of",
    "end_of",
    "request_fact",
    "runs",
]

_REQUEST, _ANSWER = "client_request", "client_answer"
_PACKED = b'{"base64":"'
"""How a value begins that is kept in base64."""


class Request(msgspec.Struct, omit_defaults=True):
    """What a request brought. `ends[i]` is the session's seq behind element `i`, `rest` the top-level fields that
    changed, the list of elements with those that belong to the head. `is_more`: it is not the first fact of its
    request, or only says what is other where that is asked again."""

    digests: list[str]
    ends: list[int]
    elements: list[msgspec.Raw]
    rest: dict[str, msgspec.Raw] = {}
    is_more: bool = False


class Answer(msgspec.Struct, omit_defaults=True):
    """What the client got: the ids of its calls, all text, and the bytes."""

    calls: list[str]
    text: str
    data: str = ""


class End(NamedTuple):
    """By which a history is found: its last element, and the answer behind that (empty if there is none)."""

    digest: bytes
    answer: bytes


_ANY = msgspec.json.Decoder(msgspec.Raw)
_REQUEST_OF = msgspec.json.Decoder(Request)
_ANSWER_OF = msgspec.json.Decoder(Answer)


def request_fact(brought: Request) -> Observed:
    kept = Request(
        digests=brought.digests,
        ends=brought.ends,
        elements=[_packed(raw) for raw in brought.elements],
        rest={plain_text(name): _packed(raw) for name, raw in brought.rest.items()},
        is_more=brought.is_more,
    )
    return Observed(kind=_REQUEST, raw=msgspec.json.encode(kept).decode())


def _packed(raw: msgspec.Raw) -> msgspec.Raw:
    """What a strict reader would refuse (half of an emoji, bytes that are no UTF-8, `NaN`) is kept in base64."""
    data = bytes(raw)
    try:
        data.decode()
        _ANY.decode(data)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return msgspec.Raw(b'%b%b"}' % (_PACKED, b64encode(data)))
    return raw if not data.startswith(_PACKED) else msgspec.Raw(b" %b" % data)


def _unpacked(raw: msgspec.Raw) -> bytes:
    data = bytes(raw)
    return b64decode(data[len(_PACKED) : -2]) if data.startswith(_PACKED) else data


def answer_fact(got: Answer) -> Observed:
    kept = Answer(calls=[plain_text(one) for one in got.calls], text=plain_text(got.text), data=plain_text(got.data))
    return Observed(kind=_ANSWER, raw=msgspec.json.encode(kept).decode())


@dataclass(slots=True)
class Known:
    """`digests`, `ends` and `raws` belong together, one of each element behind the head."""

    face: Face
    digests: list[bytes] = field(default_factory=list)
    ends: array[int] = field(default_factory=lambda: array("q"))
    """The session's seq behind each element."""
    raws: list[bytes] = field(default_factory=list)
    """As last sent; what is equal to the byte needs no digest."""
    answer: Answer | None = None
    """What the client got since its last request: its next one begins with it."""
    since: int = 0
    """The seq of the last request, if answers came with it that no request here asked for; else 0."""
    rest: dict[str, bytes] = field(default_factory=dict)
    """The top-level fields of the last request, but the elements."""
    _asked: int = 0
    """The seq of the last request."""

    def remember(self, event: Event) -> None:
        """Take in an event of the log."""
        fact = event.fact
        if isinstance(fact, Observed) and fact.kind == _REQUEST:
            asked = _REQUEST_OF.decode(fact.raw)
            raws = [_unpacked(raw) for raw in asked.elements]
            self.take([bytes.fromhex(digest) for digest in asked.digests], asked.ends, raws)
            self.rest.update({name: _unpacked(raw) for name, raw in asked.rest.items()})
            if not asked.is_more:
                self.since, self._asked = 0, event.seq
        elif isinstance(fact, ModelReplied) and self.ends and event.seq <= self.ends[-1]:
            self.since = self._asked
        elif isinstance(fact, Observed) and fact.kind == _ANSWER:
            self.answer = _ANSWER_OF.decode(fact.raw)
        elif isinstance(fact, SessionOpened) and fact.kind == "fork" and fact.parent is not None:
            kept = bisect_right(self.ends, fact.parent.seq)
            del self.digests[kept:], self.ends[kept:], self.raws[kept:]

    def take(self, digests: Sequence[bytes], ends: Sequence[int], raws: Sequence[bytes]) -> None:
        """The elements of a request are known from now on, and the answer before them is a part of them."""
        self.digests.extend(digests)
        self.ends.extend(ends)
        self.raws.extend(raws)
        self.answer = None

    @property
    def end(self) -> End | None:
        """Where the history ends, if it has begun."""
        answer = _print_of(self.answer.calls, self.answer.text) if self.answer else b""
        return End(self.digests[-1], answer) if self.digests else None

    def together(self, common: int) -> int:
        """How many of the first `common` elements a fork can share: those that were read together stay together."""
        while 0 < common < len(self.ends) and self.ends[common - 1] == self.ends[common]:
            common -= 1
        return common

    def digest(self, element: bytes) -> bytes:
        """By which an element is known again, however a client writes it."""
        return digest_of(self.face, element)

    def common(self, elements: Sequence[bytes]) -> int:
        """How many elements are known, from the first on."""
        same = list(map(is_, elements, self.raws))  # what an outline took from the one before is the very same object
        count = same.index(False) if False in same else len(same)
        rest = elements[count:], self.raws[count:], self.digests[count:]
        for element, raw, digest in zip(*rest, strict=False):
            if element != raw and self.digest(element) != digest:
                break
            count += 1
        return count

    def continues(self, elements: Sequence[bytes], common: int) -> bool:
        """Whether a list goes on where the known one ends: all of it is there, and the answer the client got, if it got
        one, follows."""
        return common == len(self.digests) and (self.answer is None or self.answered(elements[common:]) > 0)

    def answered(self, new: Sequence[bytes]) -> int:
        """How many elements at the start of `new` are the answer the client got; 0 if they are something else."""
        count, calls, said = _said(self.face, new)
        if self.answer is None or not count:
            return 0
        text = _letters(said)
        got = _letters(self.answer.text)
        # An answer without words or calls could be anybody's: two clients may have begun with the same request.
        is_same = calls == set(self.answer.calls) and (bool(calls) or (bool(text) and text in got))
        return count if is_same else 0


def digest_of(face: Face, element: bytes) -> bytes:
    return hashlib.sha256(face.canonical(element)).digest()[:16]


def end_of(events: Iterable[Event]) -> End | None:
    """Where the last request among them ended, and what was answered; None if there is none."""
    digest, answer = "", b""
    for event in events:
        fact = event.fact
        if isinstance(fact, Observed) and fact.kind == _REQUEST:
            asked = _REQUEST_OF.decode(fact.raw)
            digest, answer = (asked.digests or [digest])[-1], b""
        elif isinstance(fact, Observed) and fact.kind == _ANSWER:
            got = _ANSWER_OF.decode(fact.raw)
            answer = _print_of(got.calls, got.text)
    return End(bytes.fromhex(digest), answer) if digest else None


def answer_in(face: Face, new: Sequence[bytes]) -> bytes:
    """The answer that elements begin with, as an `End` has it."""
    _, calls, text = _said(face, new)
    return _print_of(calls, text) if calls or text else b""


def _said(face: Face, new: Sequence[bytes]) -> tuple[int, set[str], str]:
    """Of the model's elements at the start of `new`: how many they are, the ids of their calls, their text."""
    own = list(takewhile(lambda element: face.speaker(element) == "assistant", new))
    calls = {call_id for element in own for call_id in face.calls(element)}
    return len(own), calls, "".join(face.text(element) for element in own)


def _print_of(calls: Iterable[str], text: str) -> bytes:
    return hashlib.sha256("\n".join((*sorted(calls), _letters(text))).encode("utf-8", "replace")).digest()[:16]


def _letters(text: str) -> str:
    return "".join(text.split())


def runs(face: Face, new: Sequence[bytes], answered: int) -> Iterable[tuple[int, int]]:
    """Neighbouring elements that are read together: those of one answer, or one of anybody else."""
    if answered:
        yield 0, answered
    first = answered
    while first < len(new):
        end = first + 1
        if face.speaker(new[first]) == "assistant":
            while end < len(new) and face.speaker(new[end]) == "assistant":
                end += 1
        yield first, end
        first = end
