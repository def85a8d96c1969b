"""What stands between windows without any model's words: todo, failed attempts, files, commands, handles.

Everything here is folded by code from calls and results (L6 c and d). A failed attempt is *valid* until the very same
call succeeds; a success of another call never clears it. Keys are (tool name, raw arguments, or their digest if long).

The fold keeps facts and leaves the choosing to `snapshot`, which is called only when a window opens: what does not fit
its share is counted in the text, with the way to get it, never silent.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import msgspec

from transom.core.block import ToolCall
from transom.core.event import Effect, TodoItem
from transom.core.literals import error_lines, literals

__all__ = [
    "NOTED",
    "Blackboard",
    "Command",
    "Failure",
    "call_summary",
    "handles",
    "note_call",
    "note_result",
    "note_unknown",
    "paths_of",
    "reused",
    "snapshot",
]

_Status = Literal["pending", "in_progress", "completed", "cancelled"]
_RECENT_CALLS = 100
"""Handles in use are looked for in this many newest calls; older ones are one recall away."""
_ARGUMENT_CHARS = 1000
_FAILURE_CHARS = 600
_SUMMARY_CHARS = 160
_KEY_CHARS = 512
_STATUSES: dict[str, _Status] = {"in_progress": "in_progress", "completed": "completed", "cancelled": "cancelled"}


NOTED = "noted"
"""In the place of a tool's name: a failure that a model noted by itself."""


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An attempt that failed, with the literal error lines; `uuid` names the result."""

    attempt: str
    error: str
    uuid: str
    seq: int
    times: int = 1
    is_noted: bool = False
    """A model noted it by itself."""


class Command(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call that can change something: it has been run, with this outcome."""

    attempt: str
    effect: Effect
    outcome: str
    seq: int


class Blackboard(msgspec.Struct, kw_only=True):
    todo: tuple[TodoItem, ...] = ()
    failures: dict[str, Failure] = {}
    files: dict[str, str] = {}
    """Path -> the strongest thing done to it: `read` or `write`; newest last."""
    commands: dict[str, Command] = {}
    recent: list[str] = []
    """Raw arguments of the newest calls (cut), oldest first: where handles in use are found."""


class _Arguments(msgspec.Struct):
    """The arguments by which the recorded agents name a file or a command, and their todo lists."""

    file_path: object = None
    path: object = None
    filePath: object = None  # noqa: N815 - opencode's spelling
    filename: object = None
    notebook_path: object = None
    command: object = None
    cmd: object = None
    todos: object = None
    plan: object = None


_DECODER = msgspec.json.Decoder(_Arguments)
_SEPARATORS = re.compile(r"&&|\|\||[;|\n]")
_LOOK = re.compile(
    r"(?:cd|pwd|ls|cat|nl|head|tail|wc|rg|grep|egrep|find(?!.*-(?:exec|delete))|tree|stat|file|du|df|which|type|echo|printf"
    r"|true|sort|uniq|cut|tr|jq|sed\s+-n|git\s+(?:-C\s+\S+\s+)?(?:status|diff|log|show|blame|branch|remote|rev-parse"
    r"|ls-files|grep)|gh\s+(?:issue|pr|run)\s+(?:view|list|diff|status|checks))(?:\s|$)"
)
_PATCH_MARKS = ("*** Update File: ", "*** Add File: ", "*** Delete File: ")


def _decode(arguments: str) -> _Arguments:
    try:
        return _DECODER.decode(arguments)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return _Arguments()  # not a JSON object: a patch, a bare command; nothing to read from it


def call_summary(name: str, arguments: str) -> str:
    """One line that names a call, its literal command or path first."""
    found = _decode(arguments)
    command = found.command if found.command is not None else found.cmd
    if isinstance(command, list):
        command = " ".join(str(word) for word in command)
    text = next(
        (str(value) for value in (command, found.file_path, found.path, found.filePath, found.filename) if value),
        arguments,
    )
    line = " ".join(text[: 8 * _SUMMARY_CHARS].split())
    return f"{name}: {line if len(line) <= _SUMMARY_CHARS else line[: _SUMMARY_CHARS - 1] + '…'}"


def note_call(board: Blackboard, call: ToolCall, *, may_plan: bool = True) -> None:
    """Fold one call: its arguments (for handles), and a todo list if it sets one (`may_plan`: it is a recorded agent's
    own; the host's says itself what it took)."""
    board.recent.append(call.arguments[:_ARGUMENT_CHARS])
    if len(board.recent) > 2 * _RECENT_CALLS:
        del board.recent[:_RECENT_CALLS]
    if may_plan and ("todo" in call.name.lower() or "plan" in call.name.lower()):
        items = _todo(_decode(call.arguments))
        if items is not None:
            board.todo = items


def _todo(found: _Arguments) -> tuple[TodoItem, ...] | None:
    """The list a call sets, empty when it clears it; null if the call sets none."""
    listed = found.todos if isinstance(found.todos, list) else found.plan
    if not isinstance(listed, list):
        return None
    items = []
    for entry in listed:
        if not isinstance(entry, dict):
            return None
        text = entry.get("content") or entry.get("step") or entry.get("text")
        if isinstance(text, str):
            items.append(TodoItem(text=text, status=_status(entry.get("status"))))
    return tuple(items)


def _status(word: object) -> _Status:
    """An unknown word is an item that is not done."""
    return _STATUSES.get(word, "pending") if isinstance(word, str) else "pending"


def note_result(
    board: Blackboard, *, name: str, arguments: str, text: str, failed: bool, effect: Effect, seq: int, uuid: str
) -> None:
    """Fold one result beside its call."""
    if effect in ("read", "write"):
        for path in paths_of(arguments):
            kept = "write" if (effect == "write" and not failed) or board.files.pop(path, "") == "write" else "read"
            board.files.pop(path, None)
            board.files[path] = kept
    if not failed and effect in ("none", "read") and not board.failures:
        return
    key = _key(name, arguments)
    before = board.failures.pop(key, None)
    if failed:
        lines = error_lines(text, 5) or tuple(line for line in text.splitlines() if line.strip())[-2:]
        error = "\n".join(lines)[:_FAILURE_CHARS]
        times = before.times + 1 if before else 1
        attempt = call_summary(name, arguments)
        board.failures[key] = Failure(
            attempt=attempt, error=error, uuid=uuid, seq=seq, times=times, is_noted=name == NOTED
        )
    if effect == "write" or (effect == "external" and not _only_looks(arguments)):
        board.commands.pop(key, None)
        board.commands[key] = Command(
            attempt=call_summary(name, arguments), effect=effect, outcome="failed" if failed else "ok", seq=seq
        )


def _only_looks(arguments: str) -> bool:
    """A shell line of which every command plainly changes nothing: not worth a line among what has been run. This is
    about a list in a window; what may be run again after a crash is for the tool's declared effect to say."""
    found = _decode(arguments)
    command = found.command if found.command is not None else found.cmd
    if not isinstance(command, str) or ">" in command.replace("2>/dev/null", "").replace("2>&1", ""):
        return False
    return all(_LOOK.match(piece.strip()) for piece in _SEPARATORS.split(command) if piece.strip())


def note_unknown(board: Blackboard, name: str, arguments: str, effect: Effect, seq: int) -> None:
    """Fold what the host says in place of a result: of a call that may have had its effect, that nobody knows."""
    if effect in ("write", "external"):
        key = _key(name, arguments)
        board.commands.pop(key, None)
        board.commands[key] = Command(attempt=call_summary(name, arguments), effect=effect, outcome="unknown", seq=seq)


def _key(name: str, arguments: str) -> str:
    """A call's own name. A file's whole text in the arguments need not be kept for it."""
    if len(arguments) > _KEY_CHARS:
        arguments = hashlib.sha256(arguments.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{name}\x00{arguments}"


def paths_of(arguments: str) -> tuple[str, ...]:
    """The files a call names."""
    found = _decode(arguments)
    named = (found.file_path, found.path, found.filePath, found.filename, found.notebook_path)
    paths = tuple(path for path in named if isinstance(path, str) and path)
    if paths or "*** " not in arguments:
        return paths
    lines = arguments.replace("\\n", "\n").splitlines()
    return tuple(line[len(mark) :].strip() for line in lines for mark in _PATCH_MARKS if line.startswith(mark))


def handles(board: Blackboard) -> list[str]:
    """Literals the newest calls used, most recently used first."""
    seen: dict[str, None] = {}
    for arguments in reversed(board.recent[-_RECENT_CALLS:]):
        for literal in _literals_of(arguments):
            seen.setdefault(literal, None)
    return list(seen)


def reused(board: Blackboard) -> list[int]:
    """Of each of the newest calls, oldest first: how many of its literals a call used that is not the one before it
    (what that one said still stands in any window)."""
    last: dict[str, int] = {}
    found = []
    for number, arguments in enumerate(board.recent):
        used = _literals_of(arguments)
        found.append(sum(last.get(literal, number) < number - 1 for literal in used))
        last.update(dict.fromkeys(used, number))
    return found


@lru_cache(maxsize=4 * _RECENT_CALLS)  # windows opened one after another look at mostly the same calls
def _literals_of(arguments: str) -> tuple[str, ...]:
    return tuple(literal.text for literal in literals(arguments))


def snapshot(board: Blackboard, room: int, tokens_of: Callable[[str], int]) -> str:
    """The machine-made state as text, in at most about `room` tokens: todo whole, then failed attempts, changed files,
    effects and handles, newest first, each with its share of what is left; what stays out is counted.
    """
    out: list[str] = []
    left = room
    for title, lines, share in (
        ("todo", _todo_lines(board), 1.0),
        ("failed attempts (do not repeat; the error is literal)", _failure_lines(board), 0.5),
        ("files", _file_lines(board), 0.4),
        ("commands already run", _command_lines(board), 0.4),
        ("handles in use", [f"- {handle}" for handle in handles(board)], 1.0),
    ):
        text, used = _fit(title, lines, int(left * share), tokens_of)
        left -= used
        out.append(text)
    return "\n".join(text for text in out if text)


def _todo_lines(board: Blackboard) -> list[str]:
    if not board.todo:
        return []
    closed = sum(item.status in ("completed", "cancelled") for item in board.todo)
    head = f"{len(board.todo)} items, {closed} closed"
    open_first = sorted(board.todo, key=lambda item: item.status in ("completed", "cancelled"))
    texts = [(item.status, "\n    ".join(item.text.splitlines())) for item in open_first]  # a line of it is no item
    return [head, *(f"- [{status}] {text}" for status, text in texts)]


def _failure_lines(board: Blackboard) -> list[str]:
    """The model's own notes first: they were made to be kept. Each newest first."""
    lines = []
    newest = list(reversed(board.failures.values()))
    for failure in sorted(newest, key=lambda failure: not failure.is_noted):
        times = f" ({failure.times} times)" if failure.times > 1 else ""
        error = failure.error.replace("\n", "\n    ")
        lines.append(f"- {failure.attempt}{times}\n    {error}")
    return lines


def _file_lines(board: Blackboard) -> list[str]:
    named = ((path.replace("\n", "\n    "), done) for path, done in reversed(board.files.items()))
    return [f"- {path} ({done})" for path, done in named]


def _command_lines(board: Blackboard) -> list[str]:
    return [f"- {command.attempt} -> {command.outcome}" for command in reversed(board.commands.values())]


def _fit(title: str, lines: list[str], room: int, tokens_of: Callable[[str], int]) -> tuple[str, int]:
    if not lines:
        return "", 0
    used = tokens_of(title) + 12
    kept = []
    for line in lines:
        cost = tokens_of(line)
        if used + cost > room:
            break
        used += cost
        kept.append(line)
    rest = len(lines) - len(kept)
    if rest:
        kept.append(f"({rest} more, not shown here: recall finds them by a path, a command or an error's words)")
    return "\n".join((f"{title}:", *kept)), used
