"""What a person sees of a run while it goes on: words on stdout, everything about them on stderr.

On a terminal the model's words come as they stream; elsewhere whole, after the reply. All of it is printed without
anything a terminal would obey. Told in JSON, it is one line an event, and nothing else.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import msgspec
from rich.text import Text

from transom.cli.reading import block_words, headline
from transom.cli.terminal import out, printable, printable_lines, say, words
from transom.core import block
from transom.core.blackboard import call_summary
from transom.core.event import (
    Event,
    HostSaid,
    ModelReplied,
    RequestFailed,
    RequestSent,
    RolloverDeclared,
    SectionChanged,
    ToolReturned,
    WindowOpened,
    WindowRefused,
)
from transom.core.literals import error_lines
from transom.lab.tables import counted

if TYPE_CHECKING:
    from transom.agent.run import Agent
    from transom.ports import Delta

__all__ = ["Display", "Silent", "event_line"]

_GAUGE = 12
_CAUSES = {
    "model": "the model handed over",
    "hard-limit": "it was full, handed over by code",
    "overflow": "the provider's was smaller, handed over by code",
    "watermark": "the policy's watermark, handed over by code",
    "fifo": "the oldest messages were dropped",
}


def event_line(event: Event) -> str:
    """An event as one line of JSON, in ASCII."""
    return json.dumps(msgspec.to_builtins(event) | {"digest": event.digest.hex()})


class Silent:
    """Says nothing while it runs; in JSON, a line an event, and on stderr what is tried again."""

    def __init__(self, *, is_json: bool = False) -> None:
        self._is_json = is_json

    def show(self, piece: Delta) -> None:
        if self._is_json and piece.kind == "notice":
            say(printable(piece.text))

    def attach(self, agent: Agent) -> None:
        pass

    def told(self, event: Event) -> None:
        if self._is_json:
            print(event_line(event), flush=True)  # noqa: T201 - lines for a program


class Display:
    """The view of a person. `attach` the agent, whose figures the gauge shows. `is_one`: all of it on stdout."""

    def __init__(self, *, is_one: bool = False) -> None:
        self._agent: Agent | None = None
        self._out = out()
        self._words = self._out if is_one else words()
        self._is_live = sys.stdout.isatty()
        self._is_adrift = False
        self._shown = ""
        """The kind of what is in the line that was not ended yet."""

    def attach(self, agent: Agent) -> None:
        self._agent = agent

    def show(self, piece: Delta) -> None:
        if piece.kind == "notice":
            self._end_line()
            self._say(f"  {piece.text}", "yellow", is_whole=True)
        elif self._is_live and piece.kind != "call" and piece.text:
            if self._shown not in ("", piece.kind):
                self._out.print()
            style = "dim" if piece.kind == "thought" else ""
            self._out.print(Text(printable_lines(piece.text), style=style), end="", soft_wrap=True)
            self._shown = "" if piece.text.endswith("\n") else piece.kind

    def told(self, event: Event) -> None:
        match event.fact:
            case ModelReplied() as reply:
                self._reply(reply)
            case ToolReturned() as result:
                self._result(result)
            case WindowOpened() as opened:
                self._opened(opened)
            case RolloverDeclared() as declared:
                for one in declared.demoted:
                    why = f"{one.source or 'no source'}: {one.reason}"
                    self._say(f"  demoted to inference: {one.text} ({why})", "yellow", is_whole=True)
            case HostSaid() as said if said.kind in ("reminder", "fallback", "refusal", "continue"):
                self._say(" ".join(block_words(one) for one in said.blocks), "magenta", is_whole=True)
            case SectionChanged() as changed:
                self._say(f"  {headline(changed)}", "magenta")
            case WindowRefused() as refused:
                self._say(f"no new window ({refused.cause}): it {refused.reason}", "magenta", is_whole=True)
            case RequestSent() as sent:
                self._sent(sent)
            case RequestFailed() as failed:
                self._say(f"the request failed ({failed.kind}): {failed.message}", "red", is_whole=True)
            case _:
                pass

    def _sent(self, sent: RequestSent) -> None:
        """Drift is told when it begins, not with every request that it lasts."""
        was_adrift, self._is_adrift = self._is_adrift, sent.verdict == "drift"
        if was_adrift or not self._is_adrift:
            return
        session = self._agent.session if self._agent else None
        place = session.parted if session else None
        where = f", from byte {place.byte:,} of {place.segment} on" if place else ""
        more = f"; transom cache inspect {session.session_id} shows both" if session else ""
        self._say(
            f"cache: the request does not begin as the one before, and nothing on record says why "
            f"({', '.join(sent.reasons)}{where}); what stands behind it is billed again{more}",
            "red",
            is_whole=True,
        )

    def _end_line(self) -> None:
        if self._shown:
            self._out.print()
            self._shown = ""

    def _reply(self, reply: ModelReplied) -> None:
        self._end_line()
        if not self._is_live:
            for one in reply.blocks:
                if isinstance(one, block.Text) and one.text.strip():
                    self._out.print(Text(printable_lines(one.text)), soft_wrap=True)
        self._say(self._gauge(reply), "dim", is_whole=True)
        for one in reply.blocks:
            if isinstance(one, block.ToolCall):
                self._say(f"→ {_called(one)}", "cyan")

    def _gauge(self, reply: ModelReplied) -> str:
        agent = self._agent
        if agent is None:
            return ""
        limit, tally = agent.session.rules.bounds.context_limit, agent.tally
        usage = reply.usage
        used = usage.prompt + usage.output if usage else 0
        filled = min(_GAUGE, round(_GAUGE * used / limit))
        size = f"{used:,} of {limit:,} (reported)" if usage else f"its size was not reported, limit {limit:,}"
        spent = f" · {tally.spent}" if tally.spent else ""
        cached = f" · {usage.cached / usage.prompt:.0%} cached" if usage and usage.prompt else ""
        return f"  step {tally.steps} · window {tally.windows} [{'#' * filled:-<{_GAUGE}}] {size}{cached}{spent}"

    def _result(self, result: ToolReturned) -> None:
        text = "\n".join(block_words(one) for one in result.blocks)
        lines = text.strip().splitlines()
        if result.is_error or result.exit_code not in (None, 0):
            code = f"exit {result.exit_code}: " if result.exit_code is not None else "error: "
            own = lines[:-1] if lines and lines[-1] == f"[exit code {result.exit_code}]" else lines
            said = next(iter(error_lines("\n".join(own), 1)), own[0] if own else "no output")
            self._say(f"  {code}{said}", "red")
        elif len(lines) <= 1:
            self._say(f"  {lines[0] if lines else 'no output'}", "dim")
        else:
            tokens = sum(one.tokens for one in result.blocks)
            self._say(f"  {counted(len(lines), 'line')}, {counted(tokens, 'token')}", "dim")

    def _opened(self, opened: WindowOpened) -> None:
        why = _CAUSES.get(opened.cause, opened.cause)
        sizes = f"{opened.tokens_before:,} → {opened.tokens_after:,} tokens (counted)"
        self._say(f"── window {opened.generation + 1}: {why}, {sizes} ──", "bold green", is_whole=True)

    def _say(self, sentence: str, style: str, *, is_whole: bool = False) -> None:
        """One line; `is_whole`: as many as it needs."""
        if sentence:
            text = Text(f"{'  ' * sentence.startswith('  ')}{printable(sentence)}", style=style)
            self._words.print(text, no_wrap=not is_whole, overflow="fold" if is_whole else "ellipsis")


def _called(call: block.ToolCall) -> str:
    """What a handoff or a list says stands in the next window; here its name is enough."""
    return call.name if call.name in ("new_context", "todo") else call_summary(call.name, call.arguments)
