"""Evidence tiers: what a model's handoff may claim (L7).

A handoff is data, or prose with the four headings, which is parsed; prose without them is one inference. A requirement
names its source, a user's `message_uuid` or `path[:line]` in the workspace, and the host checks that the words stand
there: the requirement itself, or each phrase it quotes, compared with white space folded. What does not hold becomes
an inference, with the reason; a model's or a tool's own words are no source. An inference carries the generation in
which it was first made, however often it is repeated.

Sizes are refused with the numbers, never cut: a cut handoff would be a summary nobody wrote.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from transom.core.block import Text
from transom.core.event import Demotion, Handoff, Inference, RelatedFile, Requirement
from transom.core.state import State, folded
from transom.errors import HandoffRefused, PathEscaped

__all__ = ["Claim", "Files", "check", "parse", "path_problem"]

MAX_ITEMS = 60
MAX_FILES = 40
_QUOTED = re.compile(r"[\"“`']([^\"”`']{8,})[\"”`']")
_HEADING = re.compile(r"^\s*(?:#{1,6}\s*)?\**\s*(?:\d+[.)]\s*)?(.*?)\**\s*:?\s*$")
_BULLET = re.compile(r"^\s*(?:[-*+•]|\d+[.)])\s+")
_SOURCE = re.compile(r"\s*[\[(](?:source:\s*)?(?P<source>[^\])]+)[\])]\s*$", re.IGNORECASE)
_LONGEST_TITLE = 60
_ROLES = frozenset({"spec", "decision", "implementation", "test", "handoff", "other"})
_NAMES = {
    "requirements": ("requirement", "spec-confirmed", "spec confirmed", "confirmed", "已确认", "需求"),
    "inferences": ("inference", "assumption", "推断"),
    "conflicts": ("conflict", "unresolved", "冲突"),
    "unverified": ("unverified", "acceptance", "to verify", "next", "未验证", "待验证"),
}


class _Required(msgspec.Struct):
    text: str
    source: str = ""


class _Sections(msgspec.Struct):
    requirements: list[_Required | str] = []
    inferences: list[str] = []
    conflicts: list[str] = []
    unverified: list[str] = []


class _File(msgspec.Struct):
    path: str
    role: str = "other"
    note: str = ""


class _Arguments(msgspec.Struct):
    handoff: _Sections | str
    related_files: list[_File] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A handoff as a model wrote it, well formed and not yet believed."""

    handoff: Handoff
    related_files: tuple[RelatedFile, ...]
    size: int
    """Characters of all its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The workspace as the check needs it: `resolve` raises `PathEscaped`, `text` is None for what is no file."""

    resolve: Callable[[str], object]
    text: Callable[[str], str | None]


def parse(arguments: str, *, max_chars: int) -> Claim:
    """The claim in a `new_context` call. Raises `HandoffRefused` naming the field and the rule."""
    try:
        found = msgspec.json.decode(arguments, type=_Arguments)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as problem:
        raise HandoffRefused(
            f"new_context: {problem}; it takes handoff (an object of requirements, inferences, conflicts and "
            "unverified, or prose under these four headings) and related_files"
        ) from problem
    sections = _prose(found.handoff) if isinstance(found.handoff, str) else found.handoff
    handoff = Handoff(
        requirements=tuple(_required(item) for item in sections.requirements if not _is_blank(item)),
        inferences=tuple(Inference(text=text.strip()) for text in sections.inferences if text.strip()),
        conflicts=tuple(text.strip() for text in sections.conflicts if text.strip()),
        unverified=tuple(text.strip() for text in sections.unverified if text.strip()),
    )
    files = tuple(_file(file) for file in found.related_files)
    claim = Claim(handoff=handoff, related_files=files, size=_size(handoff, files))
    _refuse_sizes(claim, max_chars)
    return claim


def _is_blank(item: _Required | str) -> bool:
    return not (item if isinstance(item, str) else item.text).strip()


def _required(item: _Required | str) -> Requirement:
    if isinstance(item, _Required):
        return Requirement(text=item.text.strip(), source=item.source.strip())
    cited = _SOURCE.search(item)
    if cited is None:
        return Requirement(text=item.strip(), source="")
    return Requirement(text=item[: cited.start()].strip(), source=cited["source"].strip())


def _file(file: _File) -> RelatedFile:
    if file.role not in _ROLES:
        raise HandoffRefused(
            f"new_context: related_files: {file.path!r}: role {file.role!r} is none of {', '.join(sorted(_ROLES))}"
        )
    problem = path_problem(file.path)
    if problem:
        raise HandoffRefused(f"new_context: related_files: {file.path!r}: {problem}")
    return RelatedFile(path=file.path, role=file.role, note=file.note.strip())  # type: ignore[arg-type]


def path_problem(path: str) -> str:
    """Why a path may not be named, empty if it may: relative, normalised, inside, of printable characters."""
    if not path.strip():
        return "is empty"
    if any(ord(char) < 32 or ord(char) == 127 for char in path):
        return "holds a control character"
    if path.startswith(("/", "\\", "~")) or re.match(r"^[A-Za-z]:", path):
        return "must be relative to the workspace"
    parts = path.replace("\\", "/").split("/")
    if ".." in parts:
        return "leaves the workspace"
    if "" in parts[:-1] or "." in parts:
        return "must be normalised"
    return ""


def _size(handoff: Handoff, files: tuple[RelatedFile, ...]) -> int:
    texts = [
        *(item.text + item.source for item in handoff.requirements),
        *(item.text for item in handoff.inferences),
        *handoff.conflicts,
        *handoff.unverified,
        *(file.path + file.note for file in files),
    ]
    return sum(map(len, texts))


def _refuse_sizes(claim: Claim, max_chars: int) -> None:
    made = claim.handoff
    items = len(made.requirements) + len(made.inferences) + len(made.conflicts) + len(made.unverified)
    if not items:
        raise HandoffRefused(
            "new_context: the handoff is empty; say what is required, inferred, in conflict, unverified"
        )
    if items > MAX_ITEMS or len(claim.related_files) > MAX_FILES:
        raise HandoffRefused(
            f"new_context: {items} items and {len(claim.related_files)} files, of at most {MAX_ITEMS} and {MAX_FILES}; "
            "keep what the next window acts on: the rest is in durable storage"
        )
    if claim.size > max_chars:
        raise HandoffRefused(
            f"new_context: the handoff is {claim.size:,} characters, of at most {max_chars:,}; nothing was cut or "
            "stored. Leave out what the workspace or a recall can tell"
        )


def _prose(text: str) -> _Sections:
    """Prose under the four headings; what stands under none is inference."""
    made = _Sections(requirements=[], inferences=[], conflicts=[], unverified=[])
    section = "inferences"
    for line in text.splitlines():
        named = _section(line)
        if named:
            section = named
            continue
        words = _BULLET.sub("", line).strip()
        if not words or words.lower().strip("().") == "none":
            continue
        listed: list[str] = getattr(made, section)
        if listed and not _BULLET.match(line) and line.startswith((" ", "\t")):
            listed[-1] = f"{listed[-1]} {words}"
        else:
            listed.append(words)
    return made


def _section(line: str) -> str:
    """The section a heading line opens, empty for any other line."""
    found = _HEADING.match(line)
    title = found[1].strip() if found else ""
    is_marked = line.lstrip().startswith(("#", "**")) or line.rstrip().endswith((":", "："))
    if not 0 < len(title) <= _LONGEST_TITLE or not (is_marked or title.isupper()):
        return ""
    small = title.lower()
    return next((name for name, words in _NAMES.items() if any(word in small for word in words)), "")


def check(claim: Claim, state: State, files: Files) -> tuple[Handoff, tuple[Demotion, ...]]:
    """The handoff as far as it is believed, and what was demoted. Raises `HandoffRefused` for a file that escapes."""
    for file in claim.related_files:
        try:
            files.resolve(file.path)
        except PathEscaped as problem:
            raise HandoffRefused(f"new_context: related_files: {problem}") from problem
    kept: list[Requirement] = []
    demoted: list[Demotion] = []
    for item in claim.handoff.requirements:
        reason = _problem(item, state, files)
        if reason:
            demoted.append(Demotion(text=item.text, source=item.source, reason=reason))
        else:
            kept.append(item)
    generation = state.window.generation
    claimed = [*(one.text for one in claim.handoff.inferences), *(one.text for one in demoted)]
    since = {text: state.inferences.get(folded(text), generation) for text in claimed}
    made = msgspec.structs.replace(
        claim.handoff,
        requirements=tuple(kept),
        inferences=tuple(Inference(text=text, generation=first) for text, first in since.items()),
    )
    return made, tuple(demoted)


def _problem(item: Requirement, state: State, files: Files) -> str:
    """Why a requirement's source does not hold; empty if it does."""
    source = item.source.removeprefix("message_uuid:").strip()
    if not source:
        return "names no source"
    said = next((words for words in state.words if words.uuid == source), None)
    if said is not None:
        text = "\n".join(block.text for block in said.blocks if isinstance(block, Text))
        return "" if _stands(item.text, text) else "that message does not say so"
    path, line = _place(source)
    if path_problem(path):
        return "no user said so, and it is no path in the workspace"
    try:
        found = files.text(path)
    except PathEscaped as problem:
        return str(problem)
    if found is None:
        return "there is no such user message and no such file"
    if line:
        lines = found.splitlines()
        found = "\n".join(lines[max(0, line - _AROUND - 1) : line + _AROUND])
    return "" if _stands(item.text, found) else "that file does not say so" + (" near that line" if line else "")


_AROUND = 5
"""Lines around a cited one in which its words may stand: files move a little between reading and citing."""


def _place(source: str) -> tuple[str, int]:
    path, _, line = source.rpartition(":")
    return (path, int(line)) if path and line.isdecimal() else (source, 0)


def _stands(claim: str, text: str) -> bool:
    whole = folded(text)
    if folded(claim) in whole:
        return True
    quotes = _QUOTED.findall(claim)
    return bool(quotes) and all(folded(quote) in whole for quote in quotes)
