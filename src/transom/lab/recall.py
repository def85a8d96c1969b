"""Handle recall: which earlier handles each reply of a recorded session uses, and where they stand in it.

Rule 1. A *use* is a handle (`core.literals`) in the arguments of a reply's calls that an earlier event of the session
        contains: any earlier word counts, a user's, a tool's or the model's own.
Rule 2. An *occurrence* is a handle of a block, or the end of one of its paths at a slash: `src/a.py` stands in
        `/repo/src/a.py:12`. `index` names the block, so that a hidden thought is not its reply's other blocks.
Rule 3. A quoted phrase of a call is a handle if an earlier error line contains it word for word.
Rule 4. Arguments are read as the JSON they usually are, so that an escape cuts no handle; else as text.

Two passes: the calls first, then every block, keeping places of used handles only (12 bytes each). The index holds no
text.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from transom.core.block import Block, Image, Opaque, Text, Thought, ToolCall, ToolResultRaw, ToolResultRef
from transom.core.event import Event, HostSaid, ModelReplied, ToolReturned, UserSaid
from transom.core.literals import literals

__all__ = ["RECALL_TOKENS", "HandleIndex", "block_text", "build", "excerpt"]

RECALL_TOKENS = 400
"""What one recall brings back at most (rho of the cost model)."""

_Conversation = UserSaid | ModelReplied | ToolReturned | HostSaid
_QUOTED = re.compile(r"[\"'`]([^\"'`\n]{12,200})[\"'`]")
_SLASH = re.compile(r"[/\\]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    seqs: array[int] = field(default_factory=lambda: array("q"))
    indexes: array[int] = field(default_factory=lambda: array("I"))


class HandleIndex:
    """Of one session: `uses` of each reply and the places of each used handle, in order."""

    def __init__(self, uses: dict[int, tuple[str, ...]], places: dict[str, _Places]) -> None:
        self._uses = uses
        self._places = places

    def uses(self, seq: int) -> tuple[str, ...]:
        """The handles that the calls of reply `seq` use, in order of appearance; empty for any other event."""
        return self._uses.get(seq, ())

    def occurrences(self, literal: str) -> Sequence[int]:
        """Ascending seqs of the events that contain a used handle, those of its uses included."""
        return array("q", dict.fromkeys(seq for seq, _ in self.places(literal)))

    def places(self, literal: str) -> Iterator[tuple[int, int]]:
        """(seq, block index) of each block that contains a used handle, in order."""
        found = self._places.get(literal)
        return zip(found.seqs, found.indexes, strict=True) if found else iter(())

    def before(self, literal: str, seq: int) -> Iterator[tuple[int, int]]:
        """The places of a used handle in events before `seq`, newest first."""
        found = self._places.get(literal)
        if found is None:
            return
        for place in range(bisect_left(found.seqs, seq) - 1, -1, -1):
            yield found.seqs[place], found.indexes[place]


def build(events: Iterable[Event]) -> HandleIndex:
    """Index a session's conversation; other facts are not read. Events must be in order of seq."""
    told = [(event.seq, event.fact) for event in events if isinstance(event.fact, _Conversation)]
    wanted = {seq: _handles_used(fact.blocks) for seq, fact in told if isinstance(fact, ModelReplied)}
    places: dict[str, _Places] = {literal: _Places() for handles in wanted.values() for literal in handles}
    phrases = _by_rare_word(literal for literal in places if " " in literal)
    for seq, fact in told:
        for index, block in enumerate(fact.blocks):
            for literal in _contained(block_text(block), phrases):
                if (at := places.get(literal)) is not None:
                    at.seqs.append(seq)
                    at.indexes.append(index)
    uses = {
        seq: tuple(literal for literal in handles if (seqs := places[literal].seqs) and seqs[0] < seq)
        for seq, handles in wanted.items()
    }
    used = {literal for handles in uses.values() for literal in handles}
    return HandleIndex(uses, {literal: at for literal, at in places.items() if literal in used})


def _handles_used(blocks: tuple[Block, ...]) -> dict[str, None]:
    used: dict[str, None] = {}
    for block in blocks:
        if isinstance(block, ToolCall):
            text = block_text(block)
            used.update(dict.fromkeys(literal.text for literal in literals(text)))
            used.update(dict.fromkeys(phrase for phrase in _QUOTED.findall(text) if phrase.count(" ") >= 2))
    return used


def _contained(text: str, phrases: dict[str, list[str]]) -> dict[str, None]:
    """Everything of a block that a call could use: its handles, the ends of its paths, phrases of its error lines."""
    found: dict[str, None] = {}
    for literal in literals(text):
        found[literal.text] = None
        if literal.kind in {"path", "line"}:
            for slash in _SLASH.finditer(literal.text):
                found[literal.text[slash.end() :]] = None
        elif literal.kind == "error":
            for word in dict.fromkeys(literal.text.split()):
                found.update(dict.fromkeys(phrase for phrase in phrases.get(word, ()) if phrase in literal.text))
    return found


def _by_rare_word(phrases: Iterable[str]) -> dict[str, list[str]]:
    """Phrases by their longest inner word, so that a line is compared with few of them."""
    index: dict[str, list[str]] = {}
    for phrase in phrases:
        if inner := phrase.split()[1:-1]:
            index.setdefault(max(inner, key=len), []).append(phrase)
    return index


def block_text(block: Block) -> str:
    """The words of a block, as handles are looked for in it."""
    match block:
        case ToolCall():
            return "\n".join(_strings(block.arguments))
        case Text() | Thought() | ToolResultRaw() | ToolResultRef():
            return block.text
        case Image() | Opaque():
            return ""


def _strings(arguments: str) -> Iterator[str]:
    """The strings of a call's arguments in order, keys left out; the whole text if it is no JSON."""
    try:
        todo: list[object] = [msgspec.json.decode(arguments)]
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        yield arguments
        return
    while todo:
        match todo.pop():
            case str() as text:
                yield text
            case list() as items:
                todo.extend(reversed(items))
            case dict() as members:
                todo.extend(reversed(members.values()))
            case _:
                pass


def excerpt(literal: str, text: str, count: Callable[[str], int], limit: int = RECALL_TOKENS) -> str:
    """What a recall of a handle brings from the text that contains it: whole lines around the first place where it
    stands, at most `limit` tokens by `count`. Empty if the text does not contain it."""
    at = text.find(literal)
    if at < 0:
        return ""
    reach = limit * 4  # most text has three to four characters a token, so this is near what fits
    while True:
        start, end = max(0, at - reach // 2), min(len(text), at + len(literal) + reach // 2)
        if start > 0 and (cut := text.find("\n", start, at)) >= 0:
            start = cut + 1
        if end < len(text) and (cut := text.rfind("\n", at + len(literal), end)) >= 0:
            end = cut
        if count(text[start:end]) <= limit or reach == 0:
            return text[start:end]
        reach = reach * 3 // 4 if reach > 8 else 0
