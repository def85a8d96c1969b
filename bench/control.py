"""The controls of a step: the work done on a client's body of the same messages, as a gateway would.

    Incremental  the new body starts with the previous one: parse, digest and count the tail, append it
    full         parse, digest, count and write the whole body; with a `Memo` each text's count is looked up

What counts a text is given; `counting` is what a session counts with, without its memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

import msgspec

from transom.adapters.counter import BpeCounter, HeuristicCounter
from transom.ports import Counter

__all__ = ["Incremental", "Memo", "counting", "full"]


class _Call(msgspec.Struct, tag="tool_use"):
    id: str
    name: str
    input: msgspec.Raw


class _Words(msgspec.Struct, tag="text"):
    text: str


class _Returned(msgspec.Struct, tag="tool_result"):
    tool_use_id: str
    content: list[_Words]
    is_error: bool = False


class _Message(msgspec.Struct):
    role: str
    content: list[_Call | _Words | _Returned]


_RAWS = msgspec.json.Decoder(list[msgspec.Raw])
_MESSAGE = msgspec.json.Decoder(_Message)
_MESSAGES = msgspec.json.Decoder(list[_Message])
_encode = msgspec.json.Encoder().encode


def _message_texts(message: _Message) -> Iterator[str]:
    for block in message.content:
        match block:
            case _Call():
                yield bytes(block.input).decode()
            case _Words():
                yield block.text
            case _Returned():
                for words in block.content:
                    yield words.text


class Incremental:
    """A client's body, step by step; `count` is a text's tokens."""

    def __init__(self, body: bytes, count: Callable[[str], int]) -> None:
        self.count = count
        self.body = body[:-1]
        self.digests: list[bytes] = []
        self.tokens = 0

    def step(self, body: bytes) -> bytes:
        assert body.startswith(self.body)
        added = body[len(self.body) + 1 :]
        for raw in _RAWS.decode(b"[" + added):
            self.digests.append(hashlib.sha256(raw).digest())
            self.tokens += sum(map(self.count, _message_texts(_MESSAGE.decode(raw))))
        self.body = body[:-1]
        return b"".join((self.body, b"]"))


def full(body: bytes, count: Callable[[str], int]) -> bytes:
    messages = _MESSAGES.decode(body)
    tokens = 0
    for message in messages:
        hashlib.sha256(_encode(message)).digest()
        tokens += sum(map(count, _message_texts(message)))
    return _encode(messages)


class Memo(dict[str, int]):
    def __init__(self, count: Callable[[str], int]) -> None:
        super().__init__()
        self._count = count

    def __missing__(self, text: str) -> int:
        return self.setdefault(text, self._count(text))


def counting(counter: Counter) -> Callable[[str], int]:
    assert isinstance(counter, BpeCounter | HeuristicCounter)
    return lambda text: counter._fresh(text).tokens
