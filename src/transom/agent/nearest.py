"""Where a text that an edit did not find may have been meant: the most similar runs of lines of a file.

Two passes, so that a file of 100,000 lines costs as many word look-ups and no more than a few comparisons: first every
run of as many lines as the sought text has is scored by the words it shares with it, then the best few are compared
character by character.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

__all__ = ["Near", "nearest"]

_WORD = re.compile(r"\w+|[^\w\s]")
_COMPARED = 12
"""Runs that are compared character by character."""
_COMPARED_CHARS = 1200
_LIKE = 0.5
"""Below this ratio two texts of code share little more than their punctuation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """Lines `first` to `last` (from 1), their text, and how alike they are (1.0: but for white space)."""

    first: int
    last: int
    text: str
    likeness: float


def nearest(sought: str, lines: Sequence[str], count: int = 3) -> list[Near]:
    """At most `count` runs of lines like `sought`, the most alike first; they do not overlap."""
    height = max(1, len(sought.removesuffix("\n").split("\n")))
    plain = _plain(sought)[:_COMPARED_CHARS]
    found = []
    for start in _candidates(sought, lines, height):
        run = lines[start : start + height]
        likeness = SequenceMatcher(None, _plain("\n".join(run))[:_COMPARED_CHARS], plain, autojunk=False).ratio()
        if likeness >= _LIKE:
            found.append(Near(first=start + 1, last=start + len(run), text="\n".join(run), likeness=likeness))
    found.sort(key=lambda near: (-near.likeness, near.first))
    kept: list[Near] = []
    for near in found:
        if all(near.last < other.first or near.first > other.last for other in kept):
            kept.append(near)
    return kept[:count]


def _plain(text: str) -> str:
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


def _candidates(sought: str, lines: Sequence[str], height: int) -> list[int]:
    words = set(_WORD.findall(sought))
    scores = [2 * len(found & words) - len(found) for found in (set(_WORD.findall(line)) for line in lines)]
    total, sums = sum(scores[:height]), []
    for start in range(max(1, len(lines) - height + 1)):
        sums.append(total)
        if start + height < len(lines):
            total += scores[start + height] - scores[start]
    return heapq.nsmallest(_COMPARED, range(len(sums)), key=lambda start: (-sums[start], start)) if lines else []
