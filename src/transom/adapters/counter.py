"""Token counts of text, offline: exact with the `exact` extra, estimated without.

`BpeCounter` counts with the o200k (or cl100k) vocabulary, token for token as tiktoken does; special-token text
such as `<|endoftext|>` counts as ordinary text. `HeuristicCounter` needs nothing and estimates o200k. Which model
a session runs on does not matter here: a stored count is o200k, and `core.calibration` turns it into a model's own.

Both give the same content class, which depends on the text alone (`classify`): what a class is stands in
`core.block`. "hidden" is no property of a text and never comes from here.

A memo per counter keeps the measures of `MEMO_TEXTS` texts of at most `MEMO_CHARS` characters, least recently used
out first: 8.4 M characters at most, and about 1 MB in common use. Longer texts are counted each time; their counts
stand on their blocks.

The vocabulary loads at the first count (0.6 s CPU), not on import. Counting holds the GIL. The longest runs of one
character cost at most 350 ns a character and the cost is linear.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from functools import lru_cache
from typing import Literal, Protocol, get_args

from transom.core.block import Content
from transom.core.canon import plain_text
from transom.errors import UsageError
from transom.ports import Counter, Measure

__all__ = ["MEMO_CHARS", "MEMO_TEXTS", "BpeCounter", "HeuristicCounter", "Prefer", "classify", "open_counter"]

Prefer = Literal["auto", "o200k", "cl100k", "heuristic"]

MEMO_TEXTS = 8192
MEMO_CHARS = 1024

_SAMPLE = 512
"""A text is classified by at most three slices of this many characters: its start, middle and end."""

_LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_DIGITS = b"0123456789"
_BLANK = b" \t\r\v\f"
_SPACE = _BLANK + b"\n"
_ALPHABET = _LETTERS + _DIGITS + b"+/=-_"
_SYNTAX = b'(){}[]<>;=_"\\|&$+'
_PUNCTUATION = bytes(c for c in range(33, 127) if not chr(c).isalnum())
_OTHER = bytes(c for c in range(256) if c > 126 or (c < 32 and c not in _SPACE))
_CJK_LEAD = bytes(range(0xE3, 0xEE))
"""UTF-8 lead bytes of U+3000 to U+DFFF: kana, Han, Hangul; each stands for one character."""


class _Encoding(Protocol):
    def count(self, text: str) -> int: ...


def _share(data: bytes, of: bytes) -> int:
    """How many bytes of `data` are in the set `of`."""
    return len(data) - len(data.translate(None, of))


def classify(text: str) -> Content:
    """The content class of a text, from a bounded sample of it.

    cjk: a tenth of the characters at least. data: 48 bytes or more that are mostly digits, or one alphabet of
    letters and digits with hardly a blank. code: one visible byte in eighteen is syntax. Else prose. Slices of 30 to
    10,000 characters fall where one would put them in four of five cases for Python and docstrings (a docstring full
    of examples is code, a slice that is one long comment is prose), in nine of ten for the rest
    (`python -m bench.counting --errors`).
    """
    size = len(text)
    if size > 3 * _SAMPLE:
        middle = (size - _SAMPLE) // 2
        text = text[:_SAMPLE] + text[middle : middle + _SAMPLE] + text[-_SAMPLE:]
        size = 3 * _SAMPLE
    data = text.encode("utf-8", "replace")
    total = len(data)
    if total > size and 10 * _share(data, _CJK_LEAD) >= size:
        return "cjk"
    visible = total - _share(data, _SPACE)
    if total >= 48:
        digits = _share(data, _DIGITS)
        if 2 * digits > total:
            return "data"
        if 20 * (total - visible) < total and 25 * digits >= total and 100 * _share(data, _ALPHABET) >= 95 * total:
            return "data"
    return "code" if visible and 18 * _share(data, _SYNTAX) >= visible else "prose"


class BpeCounter:
    """Exact counts. `name` is `o200k` or `cl100k`. Raises `ImportError` when the `exact` extra is absent."""

    def __init__(self, vocabulary: Literal["o200k", "cl100k"] = "o200k") -> None:
        if importlib.util.find_spec("quicktok") is None:
            raise ImportError("exact counting needs the extra `exact`: pip install 'transom[exact]'")
        self.name: str = vocabulary
        self._encoding: _Encoding | None = None
        self._remembered: Callable[[str], Measure] = lru_cache(MEMO_TEXTS)(self._fresh)

    def measure(self, text: str) -> Measure:
        return self._remembered(text) if len(text) <= MEMO_CHARS else self._fresh(text)

    def _fresh(self, text: str) -> Measure:
        return Measure(tokens=self._count(text), content=classify(text))

    def _count(self, text: str) -> int:
        encoding = self._encoding
        if encoding is None:
            encoding = importlib.import_module("quicktok").get_encoding(f"{self.name}_base")
            self._encoding = encoding
        try:
            return encoding.count(text)
        except TypeError:
            # The binding takes UTF-8 only; a lone surrogate has none.
            return encoding.count(plain_text(text))


# Tokens per letter, digit, mark, blank, newline, CJK character, and byte of anything else. Least squares of
# relative error against o200k on source, docstrings, Chinese prose, seeded logs, JSON, base64 and hex, rounded.
_RATES: dict[Content, tuple[float, float, float, float, float, float, float]] = {
    "prose": (0.22, 0.92, 0.11, 0.18, 0.73, 0.75, 0.33),
    "code": (0.245, 1.0, 0.17, 0.19, 0.80, 0.75, 0.33),
    "cjk": (0.34, 1.0, 0.20, 0.10, 0.50, 0.75, 0.33),
    "data": (0.73, 0.47, 0.50, 0.0, 1.10, 0.75, 0.33),
}


class HeuristicCounter:
    """Estimates of o200k counts from kinds of characters; needs no package.

    Error against o200k per text of 30 to 10,000 characters, median (90th percentile), by
    `python -m bench.counting --errors`: Python 9 % (26 %), docstrings 8 % (20 %), Chinese 5 % (10 %), logs 2 % (8 %),
    JSON 11 % (15 %), base64 and hex 2 % (13 %); summed over a kind 6 % at most, JSON 10 % too low.
    """

    name: str = "heuristic"

    def __init__(self) -> None:
        self._remembered: Callable[[str], Measure] = lru_cache(MEMO_TEXTS)(self._fresh)

    def measure(self, text: str) -> Measure:
        return self._remembered(text) if len(text) <= MEMO_CHARS else self._fresh(text)

    def _fresh(self, text: str) -> Measure:
        content = classify(text)
        if not text:
            return Measure(tokens=0, content=content)
        letter, digit, mark, blank, newline, cjk, other = _RATES[content]
        data = text.encode("utf-8", "replace")
        tokens = (
            letter * _share(data, _LETTERS)
            + digit * _share(data, _DIGITS)
            + mark * _share(data, _PUNCTUATION)
            + blank * _share(data, _BLANK)
            + newline * data.count(b"\n")
        )
        rest = _share(data, _OTHER)
        if rest:
            characters = _share(data, _CJK_LEAD)
            tokens += cjk * characters + other * (rest - 3 * characters)
        return Measure(tokens=max(1, round(tokens)), content=content)


def open_counter(prefer: Prefer = "auto") -> Counter:
    """The counter asked for, or the heuristic one where the `exact` extra is absent (its `name` says so). `auto` is
    o200k. Raises `UsageError` for any other word."""
    if prefer not in get_args(Prefer):
        raise UsageError(f"no counter is called {prefer!r}; choose one of {', '.join(get_args(Prefer))}")
    if prefer == "heuristic":
        return HeuristicCounter()
    try:
        return BpeCounter("cl100k" if prefer == "cl100k" else "o200k")
    except ImportError:
        return HeuristicCounter()
