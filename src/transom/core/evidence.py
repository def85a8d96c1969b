"""Evidence tiers: what a model's handoff may claim (L7).

A handoff is data, or prose with the four headings, which is parsed; prose without them is one inference. A requirement
names its source, a user's `message_uuid` or `path[:line]` in the workspace, and the host checks that the words stand
there: the requirement itself, or each phrase it quotes, compared with white space folded. What is kept is the source's
own sentence, whole: "delete the data" cut out of "never delete the data" comes back with its "never", and of a
paraphrase around a quote only the quoted sentence. What does not hold becomes an inference, with the reason; a model's
or a tool's own words are no source, nor is a file that the session wrote. An inference carries the generation in which
it was first made, however often it is repeated.

Sizes are refused with the numbers, never cut: a cut handoff would be a summary nobody wrote.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from posixpath import normpath

import msgspec

from transom.core.block import Text
from transom.core.event import Demotion, Handoff, Inference, RelatedFile, Requirement
from transom.core.passage import Passage
from transom.core.state import State, folded
from transom.errors import HandoffRefused, PathEscaped

__all__ = ["Claim", "Files", "check", "parse", "path_problem"]

MAX_ITEMS = 60
MAX_FILES = 40
_QUOTED = re.compile(r"[\"“`']([^\"”`']{8,})[\"”`']")
_BULLET = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s+")
_NUMBER = re.compile(r"^\d{1,3}[.)]\s*")
_LONGEST_TITLE = 60
_AT_LINE = re.compile(r"(?:\./)?(.+?)(?:(?::|#L)(\d{1,9})(?:-L?(\d{1,9}))?)?", re.DOTALL)
"""A path, and the first and the last of the lines that are cited, as models write it."""
_LEAST_CHARS = 12
"""A shorter claim stands in too many messages to say whose it is."""
_ROLES = frozenset({"spec", "decision", "implementation", "test", "handoff", "other"})
_NAMES = {
    "unverified": ("unverified", "acceptance", "to verify", "next", "未验证", "待验证"),
    "conflicts": ("conflict", "unresolved", "冲突"),
    "inferences": ("inference", "assumption", "推断"),
    "requirements": ("requirement", "spec-confirmed", "spec confirmed", "confirmed", "已确认", "需求"),
}
"""The first that a title names: an unverified requirement is unverified."""


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
    related_files: list[_File] | str = []


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
    root: str = ""
    """The folder's own absolute path, for models that write it out."""


def parse(arguments: str, *, max_chars: int, root: str = "") -> Claim:
    """The claim in a `new_context` call; a path that names the workspace `root` whole is made relative. Raises
    `HandoffRefused` naming the field and the rule."""
    try:
        found = msgspec.json.decode(arguments, type=_Arguments)
        named = found.related_files
        listed = msgspec.json.decode(named or "[]", type=list[_File]) if isinstance(named, str) else named
        sections = _sections(found.handoff)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as problem:
        raise HandoffRefused(
            f"new_context: {problem}; it takes handoff (an object of requirements, inferences, conflicts and "
            "unverified, or prose under these four headings) and related_files"
        ) from problem
    handoff = Handoff(
        requirements=tuple(_required(item) for item in sections.requirements if not _is_blank(item)),
        inferences=tuple(Inference(text=text.strip()) for text in sections.inferences if text.strip()),
        conflicts=tuple(text.strip() for text in sections.conflicts if text.strip()),
        unverified=tuple(text.strip() for text in sections.unverified if text.strip()),
    )
    files = tuple(_file(file, _inside(file.path, root)) for file in listed)
    claim = Claim(handoff=handoff, related_files=files, size=_size(handoff, files))
    _refuse_sizes(claim, max_chars)
    return claim


def _sections(said: _Sections | str) -> _Sections:
    """Models write the object as text, too: JSON in a string of JSON. What is no JSON is prose. Raises
    `msgspec.ValidationError`."""
    if not isinstance(said, str):
        return said
    try:
        return msgspec.json.decode(said, type=_Sections) if said.lstrip().startswith("{") else _prose(said)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, RecursionError):
        return _prose(said)


def _is_blank(item: _Required | str) -> bool:
    return not (item if isinstance(item, str) else item.text).strip()


def _required(item: _Required | str) -> Requirement:
    if isinstance(item, _Required):
        return Requirement(text=item.text.strip(), source=item.source.strip())
    text = item.strip()
    start = max(text.rfind("["), text.rfind("(")) if text.endswith(("]", ")")) else 0
    if start <= 0 or not text[start - 1].isspace():
        return Requirement(text=text, source="")
    source = text[start + 1 : -1].strip()
    if source[:7].lower() == "source:":
        source = source[7:].strip()
    return Requirement(text=text[:start].strip(), source=source)


def _inside(path: str, root: str) -> str:
    """Models like to write a file's whole name; what lies in the workspace has a relative one."""
    return path.removeprefix(f"{root}/") if root else path


def _file(file: _File, path: str) -> RelatedFile:
    if file.role not in _ROLES:
        raise HandoffRefused(
            f"new_context: related_files: {file.path!r}: role {file.role!r} is none of {', '.join(sorted(_ROLES))}"
        )
    problem = path_problem(path)
    if problem:
        raise HandoffRefused(f"new_context: related_files: {file.path!r}: {problem}")
    return RelatedFile(path=path, role=file.role, note=file.note.strip())  # type: ignore[arg-type]


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
    found: dict[str, list[list[str]]] = {name: [] for name in _NAMES}
    section = "inferences"
    for line in text.splitlines():
        named = _section(line)
        if named:
            section = named
            continue
        words = _BULLET.sub("", line).strip()
        if not words or words.lower().strip("().") == "none":
            continue
        listed = found[section]
        if listed and not _BULLET.match(line) and line.startswith((" ", "\t")):
            listed[-1].append(words)
        else:
            listed.append([words])
    made = {name: [" ".join(words) for words in listed] for name, listed in found.items()}
    return _Sections(
        requirements=[*made["requirements"]],
        inferences=made["inferences"],
        conflicts=made["conflicts"],
        unverified=made["unverified"],
    )


def _section(line: str) -> str:
    """The section a heading line opens, empty for any other line."""
    line = line.strip()
    if len(line) > _LONGEST_TITLE or line[:1] in "-+•":
        return ""
    title = _NUMBER.sub("", line.lstrip("# *")).rstrip(":：* ")
    if not (line.startswith(("#", "**")) or line.endswith((":", "：")) or title.isupper()):
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
    kept: dict[str, Requirement] = {}
    demoted: list[Demotion] = []
    sources = _Sources(state, files)
    for item in claim.handoff.requirements:
        words, reason, source = _believed(item, sources)
        for text in words:
            kept.setdefault(text, Requirement(text=text, source=source))
        if reason:
            demoted.append(Demotion(text=item.text, source=item.source, reason=reason))
    generation = state.window.generation
    claimed = [*(one.text for one in claim.handoff.inferences), *(one.text for one in demoted)]
    since = {text: state.inferences.get(folded(text), generation) for text in claimed}
    made = msgspec.structs.replace(
        claim.handoff,
        requirements=tuple(kept.values()),
        inferences=tuple(Inference(text=text, generation=first) for text, first in since.items()),
    )
    return made, tuple(demoted)


def _believed(item: Requirement, sources: _Sources) -> tuple[list[str], str, str]:
    """What a requirement's source says of it, in the source's own sentences, why the claim itself does not hold (empty
    if it does), and the source. Where the named one does not hold, a user's message that says so to the letter does."""
    found = sources.named(item.source.removeprefix("message_uuid:").strip())
    stands = "" if isinstance(found, str) else found.sentence(item.text)
    if stands:
        return [stands], "", item.source
    said, source = sources.said(item.text)
    if said:
        return [said], "", source
    if isinstance(found, str):
        return [], found, item.source
    quoted = [found.sentence(quote) for quote in _QUOTED.findall(item.text)]
    if quoted and all(quoted):
        return quoted, "only the words it quotes stand there; they are kept, its own are not", item.source
    return [], found.silence, item.source


class _Sources:
    """The sources one handoff names, each read once."""

    def __init__(self, state: State, files: Files) -> None:
        self._state = state
        self._files = files
        done = state.board.files.items()
        self._written = {normpath(_inside(path, files.root)) for path, how in done if how == "write"}
        self._read: dict[str, Passage | str] = {}

    def named(self, source: str) -> Passage | str:
        """The text of a source, or why there is none."""
        if source not in self._read:
            self._read[source] = self._find(source)
        return self._read[source]

    def said(self, claim: str) -> tuple[str, str]:
        """The sentence of a user in which these words stand, and its source; the newest that still holds."""
        if len(claim) < _LEAST_CHARS:
            return "", ""
        for words in reversed(self._state.words):
            found = self.named(words.uuid)
            stands = found.sentence(claim) if isinstance(found, Passage) else ""
            if stands and words.disposition != "superseded":
                return stands, f"message_uuid: {words.uuid}"
        return "", ""

    def _find(self, source: str) -> Passage | str:
        if not source:
            return "names no source"
        said = next((words for words in self._state.words if words.uuid == source), None)
        if said is not None:
            text = "\n".join(block.text for block in said.blocks if isinstance(block, Text))
            return Passage(text, 0, "that message does not say so")
        path, line, last = _place(_inside(source, self._files.root))
        if path_problem(path):
            return "no user said so, and it is no path in the workspace"
        if normpath(path) in self._written:
            return "no user said so, and this session wrote that file itself"
        try:
            found = self._files.text(path)
        except PathEscaped as problem:
            return str(problem)
        if found is None:
            return "there is no such user message and no such file"
        return Passage(found, line, "that file does not say so" + (" near that line" if line else ""), last)


def _place(source: str) -> tuple[str, int, int]:
    found = _AT_LINE.fullmatch(source)
    return (found[1], int(found[2] or 0), int(found[3] or 0)) if found else (source, 0, 0)
