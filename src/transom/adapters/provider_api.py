"""What a model's API is to the sender: a dialect, a request body, and a reader of answers. Data and pure code only.

`provider_http` does all that touches the network, once for every API; an API is a value of this type. A reader is made
for one answer. It is fed each event of a stream, or the whole body; until the answer's own end was seen there is no
`reply`, so half an answer never passes for a whole one. What a reader does not know, it keeps (as an `Opaque` block)
or ignores (an event): it is never an error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

import msgspec

from transom.adapters.provider_errors import Failure
from transom.core.event import Usage
from transom.core.wire import Dialect
from transom.ports import Delta, Outgoing, Reply

__all__ = ["Api", "Reader", "counted", "kind_of", "micro_dollars", "read_figures", "read_loosely"]

T = TypeVar("T")
_MOST = 2**53
"""Tokens: no count is as large, and what JSON readers keep exact ends here."""


class _Kind(msgspec.Struct):
    type: str = ""


_KIND = msgspec.json.Decoder(_Kind)


class Reader(Protocol):
    """One answer as it is read."""

    @property
    def is_done(self) -> bool:
        """The answer's own end was seen: nothing that matters follows."""
        ...

    def event(self, data: str) -> Delta | Failure | None:
        """One event of a stream. Raises `msgspec.DecodeError` for what is no JSON."""
        ...

    def whole(self, data: bytes) -> Reply | Failure:
        """An answer that came in one piece. Raises `msgspec.DecodeError`."""
        ...

    def reply(self) -> Reply | None:
        """The answer, if all of it came."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One kind of API with its settings."""

    dialect: Dialect
    path: str
    """Behind the base URL."""
    headers: Callable[[str], Mapping[str, str]]
    """From the key, which may be empty."""
    body: Callable[[Outgoing], bytes]
    reader: Callable[[], Reader]


def kind_of(raw: bytes) -> str:
    """The `type` of a raw item, whatever else is in it."""
    return _KIND.decode(raw).type


def micro_dollars(dollars: float | None) -> int:
    """Dollars as micro-dollars; -1 if not reported."""
    return round(dollars * 1e6) if dollars is not None and math.isfinite(dollars) and dollars >= 0 else -1


def counted(usage: Usage) -> Usage | None:
    """The usage, if all of it can be counts; else it counts as not reported."""
    figures = (usage.uncached, usage.cached, usage.written, usage.written_1h, usage.output, usage.reasoning + 1)
    return usage if all(0 <= figure < _MOST for figure in figures) else None


def read_figures(data: bytes, decoder: msgspec.json.Decoder[T | None]) -> T | None:
    """What a server said it used; None if that has not the form of its API: an answer is not lost for a figure."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None


def read_loosely(data: bytes | str, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode what a server sent; half of a character, which strict readers refuse, becomes `?`. Raises
    `msgspec.DecodeError`."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError:
        raise
    except RecursionError:
        raise msgspec.DecodeError("nested too deeply") from None
    except msgspec.DecodeError as first:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            raise first from None
        return decoder.decode(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
