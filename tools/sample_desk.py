"""The sample session's working copy and its recorder.

Files, searches and edits are real operations on a made-up project, so that what the agent reads later is what it wrote
before. Usage is computed from sizes by the rules of a prompt cache with five minutes to live.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import sample_files

__all__ = ["Call", "Desk", "Recorder"]

Json: TypeAlias = "str | int | bool | list[Json] | dict[str, Json] | None"

ROOT = "/home/dev/courier"
HEAD_TOKENS = 14_200  # a system prompt and tool list nobody logged: the size Claude Code's first prompts show
BYTES_PER_TOKEN = 3.0  # o200k over this very text, measured with quicktok; a model's own tokens differ
CACHE_SECONDS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call and its result."""

    name: str
    arguments: dict[str, Json]
    result: str
    is_error: bool = False


class Desk:
    """The made-up working copy, and the tools over it."""

    def __init__(self) -> None:
        self.files = sample_files.project()

    def read(self, path: str, offset: int = 1, limit: int = 2000) -> Call:
        lines = self.files[path].splitlines()[offset - 1 : offset - 1 + limit]
        shown = "\n".join(f"{number:6d}→{line}" for number, line in enumerate(lines, offset))
        arguments: dict[str, Json] = {"file_path": f"{ROOT}/{path}"}
        if offset > 1 or limit < 2000:
            arguments |= {"offset": offset, "limit": limit}
        return Call(name="Read", arguments=arguments, result=shown)

    def grep(self, pattern: str, under: str = "") -> Call:
        found = [
            f"{path}:{number}:{line}"
            for path in sorted(self.files)
            if path.startswith(under)
            for number, line in enumerate(self.files[path].splitlines(), 1)
            if re.search(pattern, line)
        ]
        arguments: dict[str, Json] = {
            "pattern": pattern,
            "path": f"{ROOT}/{under}",
            "output_mode": "content",
            "-n": True,
        }
        return Call(name="Grep", arguments=arguments, result="\n".join(found) or "No matches found")

    def edit(self, path: str, old: str, new: str) -> Call:
        arguments: dict[str, Json] = {"file_path": f"{ROOT}/{path}", "old_string": old, "new_string": new}
        if self.files[path].count(old) != 1:
            message = f"String to replace not found in file.\nString: {old}"
            return Call(
                name="Edit", arguments=arguments, result=f"<tool_use_error>{message}</tool_use_error>", is_error=True
            )
        self.files[path] = self.files[path].replace(old, new)
        at = self.files[path][: self.files[path].index(new)].count("\n") + 1
        lines = self.files[path].splitlines()
        first = max(1, at - 4)
        last = at + new.count("\n") + 4
        shown = "\n".join(f"{n:6d}→{line}" for n, line in enumerate(lines[first - 1 : last], first))
        head = f"The file {ROOT}/{path} has been updated. Here's the result of running `cat -n` on a snippet of the edited file:"
        return Call(name="Edit", arguments=arguments, result=f"{head}\n{shown}")

    def write(self, path: str, text: str) -> Call:
        self.files[path] = text
        arguments: dict[str, Json] = {"file_path": f"{ROOT}/{path}", "content": text}
        return Call(name="Write", arguments=arguments, result=f"File created successfully at: {ROOT}/{path}")

    def bash(self, command: str, result: str, *, failed: bool = False) -> Call:
        text = f"Exit code 1\n{result}" if failed else result
        return Call(name="Bash", arguments={"command": command}, result=text, is_error=failed)

    def todo(self, *items: tuple[str, str]) -> Call:
        listed: list[Json] = [{"content": text, "status": status, "activeForm": text} for text, status in items]
        done = "Todos have been modified successfully. Ensure that you continue to use the todo list to track your progress."
        return Call(name="TodoWrite", arguments={"todos": listed}, result=done)

    def pytest(
        self, failures: dict[str, str], *, under: str = "tests/", python: str = "3.11.9", options: str = "-v"
    ) -> Call:
        """A verbose run: every test of the working copy, those in `failures` red with the text given."""
        names = [
            f"{path}::{name}"
            for path in sorted(self.files)
            if path.startswith(under)
            for name in re.findall(r"^def (test_\w+)", self.files[path], re.MULTILINE)
        ]
        head = "=" * 29 + " test session starts " + "=" * 29
        lines = [head, f"platform linux -- Python {python}, pytest-8.3.4, pluggy-1.5.0", f"rootdir: {ROOT}"]
        lines.append(f"collected {len(names)} items\n")
        for index, name in enumerate(names, 1):
            verdict = "FAILED" if name in failures else "PASSED"
            lines.append(f"{name} {verdict}".ljust(72) + f"[{100 * index // len(names):3d}%]")
        if failures:
            lines.append("\n" + "=" * 35 + " FAILURES " + "=" * 34)
            lines += [f"{'_' * 20} {name.split('::')[1]} {'_' * 20}\n{text}\n" for name, text in failures.items()]
            lines.append("=" * 27 + " short test summary info " + "=" * 27)
            lines += [
                f"FAILED {name} - {text.splitlines()[-1].removeprefix('E   ')}" for name, text in failures.items()
            ]
        passed = f"{len(names) - len(failures)} passed in 0.{len(names):02d}s"
        lines.append(f"===== {len(failures)} failed, {passed} =====" if failures else f"===== {passed} =====")
        command = f"python{python[: python.rindex('.')]} -m pytest {options} {under}".strip()
        return self.bash(command, "\n".join(lines), failed=bool(failures))


@dataclass
class Recorder:
    """Turns what happens into records, keeping the clock and the account of tokens."""

    records: list[dict[str, Json]] = field(default_factory=list)
    now: datetime = datetime(2026, 3, 4, 8, 30, tzinfo=UTC)
    prompt: float = 0.0  # bytes in the window
    cached_tokens: int = 0
    replied_at: datetime = datetime(2026, 3, 4, tzinfo=UTC)
    replies: int = 0

    def user(self, text: str, *, after: float = 40, injected: bool = False) -> None:
        """What a person typed, `after` seconds later; or what the client put in their mouth."""
        self.now += timedelta(seconds=after)
        self.prompt += len(text.encode())
        extra: dict[str, Json] = {"isMeta": True} if injected else {}
        self._record("user", {"role": "user", "content": text}, **extra)

    def step(self, text: str, *calls: Call, thinking: str = "") -> None:
        """One response of the model, a record a block, and the results of its calls."""
        self.replies += 1
        blocks: list[dict[str, Json]] = []
        if thinking:
            blocks.append({"type": "thinking", "thinking": thinking, "signature": self._token("sig", 64)})
        if text:
            blocks.append({"type": "text", "text": text})
        ids = [self._token(f"toolu{i}", 22) for i in range(len(calls))]
        for call, name in zip(calls, ids, strict=True):
            blocks.append({"type": "tool_use", "id": f"toolu_01{name}", "name": call.name, "input": call.arguments})
        written = sum(len(json.dumps(block, ensure_ascii=False).encode()) for block in blocks)
        usage = self._usage(written)
        self.now += timedelta(seconds=2 + written / 400)
        for block in blocks:
            message: dict[str, Json] = {"model": "claude-opus-4-5-20251101", "id": f"msg_01{self._token('msg', 22)}"}
            message |= {"type": "message", "role": "assistant", "content": [block]}
            message |= {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None, "usage": usage}
            self._record("assistant", message, requestId=f"req_01{self._token('req', 22)}")
        self.replied_at = self.now
        self.prompt += written
        for call, name in zip(calls, ids, strict=True):
            self._result(call, f"toolu_01{name}")

    def _result(self, call: Call, call_id: str) -> None:
        self.now += timedelta(seconds=0.4 + len(call.result) / 9000)
        self.prompt += len(call.result.encode())
        block: dict[str, Json] = {"tool_use_id": call_id, "type": "tool_result", "content": call.result}
        if call.is_error:
            block["is_error"] = True
        # What the client keeps for its screen and never sends: here only its shape and size.
        beside: dict[str, Json] = {"lines": call.result.count("\n") + 1, "interrupted": False}
        self._record("user", {"role": "user", "content": [block]}, toolUseResult=beside)

    def _usage(self, written: int) -> dict[str, Json]:
        total = HEAD_TOKENS + round(self.prompt / BYTES_PER_TOKEN)
        warm = self.now - self.replied_at < timedelta(seconds=CACHE_SECONDS)
        cached = self.cached_tokens if warm else 0
        self.cached_tokens = total - 4
        fresh: dict[str, Json] = {"ephemeral_5m_input_tokens": total - 4 - cached, "ephemeral_1h_input_tokens": 0}
        return {
            "input_tokens": 4,
            "cache_creation_input_tokens": total - 4 - cached,
            "cache_read_input_tokens": cached,
            "cache_creation": fresh,
            "output_tokens": round(written / BYTES_PER_TOKEN),
            "service_tier": "standard",
        }

    def _token(self, kind: str, length: int) -> str:
        """A made-up id, the same on every run."""
        return hashlib.sha512(f"transom sample {kind} {self.replies}".encode()).hexdigest()[:length]

    def _record(self, kind: str, message: dict[str, Json], **extra: Json) -> None:
        previous = self.records[-1]["uuid"] if self.records else None
        stamp = self.now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        record: dict[str, Json] = {"parentUuid": previous, "isSidechain": False, "userType": "external", "cwd": ROOT}
        record |= {"sessionId": str(uuid.uuid5(uuid.NAMESPACE_URL, "transom:sample")), "version": "2.1.25"}
        record |= {"gitBranch": "fix/retry-after", "type": kind, "message": message, **extra}
        record |= {
            "uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, f"transom:sample:{len(self.records)}")),
            "timestamp": stamp,
        }
        self.records.append(record)
