"""The `Tools` port for a coding agent: read, write, edit, run, find, grep over one workspace.

A tool is a struct of arguments (its doc is what the model reads, its fields are the schema) and a function. Arguments
are decoded before anything else: what does not fit is told to the model with field and rule. Numbers and booleans in
quotes are taken, and `null` for a field with a default, since models write both. Then the declared effect is shown to
`approve`, whose refusal is told to the model too.

Nothing raises but `KeyboardInterrupt`: an error of the system becomes its own words and the next step.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from transom.agent import files, look, shell
from transom.agent.said import failed
from transom.core.block import ToolCall
from transom.core.canon import plain_text
from transom.core.event import Effect, Tool
from transom.errors import KernelError
from transom.ports import Outcome, Sandbox, Workspace

__all__ = ["PAGE_BYTES", "Approve", "Toolbox"]

Approve = Callable[[ToolCall, Effect], bool]
PAGE_BYTES = 5000
"""Of a page of `read`, `find` and `grep`: below the 2,048 tokens (o200k) above which the presets offload a result. The
densest of 152 pages of this repository has 2.6 bytes a token, Chinese prose about 4."""
_SHOWN_CHARS = 300
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
A = TypeVar("A", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    """A call whose arguments fit."""

    effect: Effect
    go: Callable[[], Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    tool: Tool
    ready: Callable[[str], _Ready]
    """Raw arguments -> a call ready to go. Raises what decoding raises."""


class Toolbox:
    """The tools over `workspace`; commands start inside `sandbox`; `approve` is asked before each call."""

    def __init__(
        self,
        workspace: Workspace,
        sandbox: Sandbox,
        approve: Approve = lambda _call, _effect: True,
        *,
        page_bytes: int = PAGE_BYTES,
    ) -> None:
        self._approve = approve
        self._workspace = workspace
        entries = (
            _entry("read", files.Read, "read", lambda args: files.read(workspace, args, page_bytes)),
            _entry("write", files.Write, "write", lambda args: files.write(workspace, args)),
            _entry("edit", files.Edit, "write", lambda args: files.edit(workspace, args)),
            _entry("run", shell.Run, shell.effect, lambda args: shell.run(workspace.root, sandbox, args)),
            _entry("find", look.Find, "read", lambda args: look.find(workspace, args, page_bytes)),
            _entry("grep", look.Grep, "read", lambda args: look.grep(workspace, args, page_bytes)),
        )
        self._entries = {entry.tool.name: entry for entry in entries}

    def catalogue(self) -> tuple[Tool, ...]:
        return tuple(entry.tool for entry in self._entries.values())

    def effect(self, call: ToolCall) -> Effect:
        """`external` for a command that is not plainly a look, `none` for a call that cannot run at all."""
        ready = self._ready(call)
        return ready.effect if isinstance(ready, _Ready) else "none"

    def run(self, call: ToolCall) -> Outcome:
        ready = self._ready(call)
        if isinstance(ready, Outcome):
            return ready
        if not self._approve(call, ready.effect):
            return failed(f"The user refused this call of {call.name}. Do something else, or ask why.")
        try:
            return ready.go()
        except OSError as problem:
            return failed(_os_error(problem))
        except KernelError as problem:
            return failed(str(problem))
        except (ValueError, RecursionError, MemoryError) as problem:
            return failed(f"{type(problem).__name__}: {_short(str(problem))}. Change the call.")

    def tidy(self, calls: Iterable[ToolCall]) -> None:
        """What is left of `calls` that a killed process had open is removed from beside the files they name."""
        for call in calls:
            if call.name in ("write", "edit") and isinstance(self._ready(call), _Ready):
                files.tidy(self._workspace, msgspec.json.decode(call.arguments, type=_Named).path)

    def _ready(self, call: ToolCall) -> _Ready | Outcome:
        entry = self._entries.get(call.name)
        if entry is None:
            return failed(f"There is no tool {_short(call.name)!r}. There are: {', '.join(self._entries)}.")
        try:
            return entry.ready(call.arguments)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as problem:
            return failed(_misfit(entry.tool, call.arguments, problem))


def _entry(name: str, kind: type[A], effect: Effect | Callable[[A], Effect], run: Callable[[A], Outcome]) -> _Entry:
    raw = msgspec.json.Decoder(dict[str, msgspec.Raw])
    fit = msgspec.json.Decoder(kind, strict=False)

    def ready(arguments: str) -> _Ready:
        given = raw.decode(arguments or "{}")
        args = fit.decode(msgspec.json.encode({key: value for key, value in given.items() if bytes(value) != b"null"}))
        return _Ready(effect=effect(args) if callable(effect) else effect, go=lambda: run(args))

    return _Entry(tool=_tool(name, kind), ready=ready)


def _tool(name: str, kind: type[msgspec.Struct]) -> Tool:
    _, found = msgspec.json.schema_components([kind])
    schema = {key: value for key, value in found[kind.__name__].items() if key not in ("title", "description")}
    description = " ".join((kind.__doc__ or "").split())
    return Tool(name=name, description=description, schema=msgspec.json.encode(schema).decode())


def _misfit(tool: Tool, arguments: str, problem: Exception) -> str:
    fields = msgspec.json.decode(tool.schema, type=_Fields)
    listed = ", ".join(name if name in fields.required else f"{name} (optional)" for name in fields.properties)
    half = " (half of a surrogate pair? send the whole character)" if _HALF.search(arguments) else ""
    return (
        f"The arguments of {tool.name} do not fit: {problem}{half}. They were: {_short(arguments)}\n"
        f"Nothing was done. Call {tool.name} again with a JSON object of: {listed}."
    )


class _Named(msgspec.Struct):
    path: str


class _Fields(msgspec.Struct):
    properties: dict[str, msgspec.Raw]
    required: tuple[str, ...] = ()


def _short(text: str) -> str:
    return plain_text(text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}… ({len(text)} characters)")


def _os_error(problem: OSError) -> str:
    where = f" ({_short(str(problem.filename))})" if problem.filename else ""
    advice = _ADVICE.get(problem.errno or 0, "Look at it with find or run, then decide.")
    return f"{problem.strerror or _short(str(problem))}{where}. Nothing was changed. {advice}"


_NO_ROOM = "Make room (what you made and no longer need), or tell the user."
_NOT_ALLOWED = "It may not be read or written here: use another place, or tell the user."
_TOO_LONG = "Write a shorter name or command; a long script goes into a file first, by write."
_OTHER_KIND = "A file stands where a folder is meant, or the reverse; see with find."
_ADVICE = {
    errno.ENOSPC: _NO_ROOM,
    errno.EDQUOT: _NO_ROOM,
    errno.EROFS: _NOT_ALLOWED,
    errno.EACCES: _NOT_ALLOWED,
    errno.EPERM: _NOT_ALLOWED,
    errno.E2BIG: _TOO_LONG,
    errno.ENAMETOOLONG: _TOO_LONG,
    errno.ENOTDIR: _OTHER_KIND,
    errno.EISDIR: _OTHER_KIND,
    errno.EEXIST: _OTHER_KIND,
    errno.ELOOP: "The link leads to itself; look at it by run: ls -l.",
}
