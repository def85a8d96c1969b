"""Whether a sentence or a handle stands in a summary: to the letter, in other words, or not at all.

    verbatim   to the letter, with white space and case folded; of a path, from some folder on is enough
    reworded   one line holds at least half of its content words, three at least; of a path, the file's name stands
    gone       neither

A line that happens to share half the words counts too: doubts are resolved in the summary's favour.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from bench.generations_rates import Outcome

__all__ = ["DOUBT", "HALF", "LEAST_WORDS", "MOST", "Line", "Page", "content"]

HALF = 0.5
MOST = 0.6
"""Of a guess's words, to say that a line is that guess."""
LEAST_WORDS = 3
DOUBT = re.compile(
    r"\b(?:probably|likely|seem(?:s|ed|ingly)?|appear(?:s|ed)?|might|maybe|perhaps|possibly|presumably|apparently"
    r"|i (?:think|believe|suspect|guess|assume)|assum(?:e[ds]?|ing|ption)|suspect(?:s|ed)?|could be|may be"
    r"|looks? like|unclear|not sure)\b|可能|似乎|大概|也许|应该是|推测|猜测|好像",
    re.IGNORECASE,
)
_PLAIN = re.compile(
    r"the|an?|of|to|in|on|for|with|and|or|is|are|was|be|it|this|that|as|at|by|from|not?|do|does|ha[sd]|have|i|we|you"
    r"|they|s?he|its|our|your|their|will|[cw]ould|can|should|if|then|than|so|but|into|out|up|when|which|what|there"
    r"|here|just|also|all|any|been|being|were"
)
_ENDING = re.compile(r"(?<=....)(?:ing|ed|es|s)$")
_WORD = re.compile(r"[A-Za-z0-9_]+|[\u4e00-\u9fff]{2}")
_HEADING = re.compile(r"\s*(?:#{1,6} |\*\*[^*]+\*\*:?\s*$|\d{1,2}\.\s+\*{0,2}[A-Z][^.]{2,60}:|[A-Z_ ]{4,40}:)")


def content(text: str) -> frozenset[str]:
    """The content words of a text, without their commonest endings."""
    found = set()
    for word in _WORD.findall(text):
        small = word.lower()
        if len(small) > 1 and not _PLAIN.fullmatch(small):
            found.add(_ENDING.sub("", small))
    return frozenset(found)


def _flat(text: str) -> str:
    return " ".join(text.split()).casefold()


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line with its content words, and the heading above it."""

    words: frozenset[str]
    text: str
    heading: str


_NO_LINE = Line(words=frozenset(), text="", heading="")


class Page:
    """A text to look in, line by line."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def _flat(self) -> str:
        return _flat(self.text)

    @cached_property
    def lines(self) -> list[Line]:
        found, heading = [], ""
        for text in self.text.splitlines():
            heading = text if _HEADING.match(text) else heading
            if words := content(text):
                found.append(Line(words=words, text=text, heading=heading))
        return found

    def best(self, words: frozenset[str]) -> tuple[float, Line]:
        """The line that holds most of `words`, and its share of them."""
        best, share = _NO_LINE, 0.0
        if len(words) >= LEAST_WORDS:
            for line in self.lines:
                if (held := len(words & line.words) / len(words)) > share:
                    best, share = line, held
        return share, best

    def has(self, text: str) -> bool:
        return _flat(text).strip(" .;。；") in self._flat

    def fate(self, text: str) -> Outcome:
        """What became of a sentence here."""
        if self.has(text):
            return "verbatim"
        return "reworded" if self.best(content(text))[0] >= HALF else "gone"

    def handle(self, text: str) -> Outcome:
        """What became of a handle here."""
        parts = text.replace("\\", "/").rstrip("/").split("/")
        tails = ["/".join(parts[place:]) for place in range(len(parts) - 1)]
        if text in self.text or any(tail in self.text for tail in tails if tail.strip("/")):
            return "verbatim"
        return "reworded" if len(parts) > 1 and len(parts[-1]) > 2 and parts[-1] in self.text else "gone"
