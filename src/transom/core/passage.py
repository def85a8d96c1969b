"""A passage: a source's sentences, whole, and searchable as one text with white space folded.

A sentence may be wrapped anywhere; an item of a list is read under the line that introduces the list.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator

from transom.core.state import folded

__all__ = ["Passage"]

_LONGEST_SENTENCE = 600
"""Characters: what is kept for a few words of a longer passage is no requirement, but a page."""
_SOURCE_CHARS = 1_000_000
"""Of one source that are looked through: a second's work; words further down are cited by line."""
_AROUND = 5
"""Lines around a cited one in which its words may stand: files move a little between reading and citing."""


class Passage:
    """A source's sentences near a line (0 = all of them) or from it to a `last` one, searchable as one folded text."""

    def __init__(self, text: str, line: int, silence: str, last: int = 0) -> None:
        self.silence = silence
        end = max(line, last)
        near = [
            (said, lead)
            for start, stop, said, lead in _sentences(text)
            if not line or (start <= end + _AROUND and stop >= line - _AROUND)
        ]
        self._said = [said for said, _ in near]
        self._leads = [lead for _, lead in near]
        self._starts: list[int] = []
        size = 0
        shapes = [said.casefold() for said in self._said]
        for shape in shapes:
            self._starts.append(size)
            size += len(shape) + 1
        self._folded = " ".join(shapes)

    def sentence(self, claim: str) -> str:
        """The whole sentences in which these words stand, under the line that introduces their list; empty if they
        do not stand here, or only in the middle of a page."""
        words = folded(claim)
        at = self._folded.find(words) if words else -1
        if at < 0:
            return ""
        first = bisect_right(self._starts, at) - 1
        last = bisect_right(self._starts, at + len(words) - 1)
        whole = " ".join((self._leads[first], *self._said[first:last])).strip()
        return whole if len(whole) <= max(_LONGEST_SENTENCE, 2 * len(claim)) else ""


_MARK = re.compile(r"[ \t]*(?:[-*+•]|\d{1,3}[.)]|#{1,6}|>)\s+")
_SENTENCE_END = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)\s+(?![a-z])|(?<=[。！？])")
_UNFINISHED = re.compile(r"[\w,，、(]$")


def _sentences(text: str) -> Iterator[tuple[int, int, str, str]]:
    """(first line, last line, sentence, the line that introduces its list), in order, with white space folded."""
    lead = ""
    for first, run in _runs(text[:_SOURCE_CHARS].splitlines()):
        mark = _MARK.match(run[0])
        whole = " ".join((run[0][mark.end() :] if mark else run[0], *run[1:]))
        if not mark or run[0].lstrip().startswith("#"):
            lead = ""
        pieces = [" ".join(piece.split()) for piece in _SENTENCE_END.split(whole)]
        yield from ((first, first + len(run) - 1, said, lead) for said in pieces if said)
        if not mark and pieces[-1].endswith((":", "：")):
            lead = pieces[-1]


def _runs(lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Lines that go on from one another, with the number of the first: a sentence may be wrapped anywhere."""
    run: list[str] = []
    for number, line in enumerate(lines, 1):
        goes_on = run and line.strip() and not _MARK.match(line) and _UNFINISHED.search(run[-1].rstrip())
        if goes_on and "=" not in run[-1] and "=" not in line:
            run.append(line)
            continue
        if run:
            yield number - len(run), run
        run = [line] if line.strip() else []
    if run:
        yield len(lines) - len(run) + 1, run
