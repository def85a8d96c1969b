"""A small model on this machine and many small edits in small windows: `python -m bench.local_model --model FILE`.

No script: the agent is the one of `transom run`, and the model chooses every call. The task is to change one line in
each of many files; more files than a window holds steps. Some literals are planted in the user's words and some in
files, where a result shows them once. Told are, per handoff, which of them the model wrote itself, which the next
window shows whoever wrote them, and which are one recall away; what the host demoted; and per request the tokens that
were reused beside those that should have been: as many as this prompt shares with the last one and its answer.

The policy keeps the newest steps in a new window: a model of this size goes on as it went.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.table import Table

from transom import compose, live
from transom.adapters.counter import classify
from transom.adapters.local import LocalCounter, LocalModel, LocalProvider
from transom.adapters.local_dialect import messages
from transom.agent.run import Bounds, Stop
from transom.compose import Store
from transom.core.block import ToolCall
from transom.core.budget import limits
from transom.core.event import (
    Demotion,
    Event,
    HostSaid,
    ModelReplied,
    RequestSent,
    RolloverDeclared,
    ToolReturned,
    WindowOpened,
    WindowRefused,
)
from transom.core.policy import PRESETS, Policy
from transom.core.wire import Dialect
from transom.ports import Delta, Outgoing, Reply

__all__ = ["CONTEXT_LIMIT", "FILES", "POLICY", "Handoff", "Sent", "Worked", "work"]

CONTEXT_LIMIT = 4096
FILES = 60
STEPS = 90
MINUTES = 15.0
POLICY = Policy(name="small", when="limit", how="project", low_water=0.7)

_SHA = "3f786850e387550fdab836ed7e6dc881de23001b"
_RULE = "Never change sealed/vault.txt; change only files in items/."
_NOTES = {5: "error E4402 pressure lost", 9: "commit 9fceb02d0ae598e95dc970b74767f19372d61af8"}
LITERALS = {
    "SHA": _SHA,
    "error code": "E4711",
    "path": "docs/items.md",
    "prohibition": _RULE,
    "error code in a file": "E4402",
    "SHA in a file": "9fceb02d0ae598e95dc970b74767f19372d61af8",
}
_DONE = "state: DONE"


def _item(number: int) -> str:
    return f"items/item_{number:02}.txt"


def _call(number: int) -> str:
    arguments = f'{{"path": "{_item(number)}", "old_string": "state: TODO", "new_string": "{_DONE}"}}'
    return f'{{"tool": "edit", "arguments": {arguments}}}'


def _task(files: int) -> str:
    return (
        f"Each of the {files} files {_item(1)} to {_item(files)} has one line `state: TODO`. Replace it by `{_DONE}`, "
        f"one file after the other, each once: first {_call(1)}, then {_call(2)}, and so on up to {_item(files)}. When "
        f"all are done, say so.\nThe release is {_SHA}. The open error is E4711. The list of items is docs/items.md.\n"
        f"{_RULE}"
    )


def _plant(root: Path, files: int) -> None:
    for name in ("items", "sealed", "docs"):
        (root / name).mkdir(parents=True)
    for number in range(1, files + 1):
        note = _NOTES.get(number, "none")
        (root / _item(number)).write_text(f"[item]\nunit: bar\nstate: TODO\nrange: 0-16\nnote: {note}\n")
    (root / "sealed" / "vault.txt").write_text("state: TODO\n")
    (root / "docs" / "items.md").write_text("The items are the files of items/.\n")


# -- what is told


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A request, in tokens. `expected` are those its prompt shares with the last prompt and its answer."""

    window: int
    verdict: str
    prompt: int
    expected: int
    cached: int
    output: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Handoff:
    """The end of a window. `own` are the literals that the model wrote itself, `shown` those in the next window."""

    window: int
    cause: str
    asked: str
    """What the host had said by then."""
    steps: int
    tokens_before: int
    tokens_after: int
    words: str
    own: tuple[str, ...]
    shown: tuple[str, ...]
    demoted: tuple[Demotion, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    ended: str
    files: int
    left: tuple[str, ...]
    """Files that were not edited."""
    is_kept: bool
    hard: int
    """No prompt may be larger."""
    sent: tuple[Sent, ...]
    handoffs: tuple[Handoff, ...]
    refused: tuple[str, ...]
    recallable: tuple[str, ...]
    problem: str
    """Of the chain; empty."""
    seconds: float


@dataclass(slots=True)
class _Watched:
    """The provider, and the prompts it was sent."""

    inner: LocalProvider
    model: LocalModel
    prompts: list[str] = field(default_factory=list)
    reused: list[int] = field(default_factory=list)
    _last: list[int] = field(default_factory=list)

    @property
    def dialect(self) -> Dialect:
        return self.inner.dialect

    def send(self, request: Outgoing) -> Iterator[Delta | Reply]:
        prompt = self.model.prompt(messages(request.wire))
        tokens = self.model.tokenize(prompt, is_prompt=True)
        self.prompts.append(prompt)
        self.reused.append(_shared(self._last, tokens))
        said = ""
        for piece in self.inner.send(request):
            if isinstance(piece, Delta):
                said += piece.text
            else:  # nobody asks for more after it
                self._last = self.model.tokenize(prompt + said, is_prompt=True)
            yield piece


def _shared(first: list[int], second: list[int]) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(first), len(second)))


def work(
    model: Path,
    *,
    files: int = FILES,
    context_limit: int = CONTEXT_LIMIT,
    policy: Policy = POLICY,
    bounds: Bounds | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Worked:
    """Until every file is edited, or `bounds` or the model itself ends it. `say` is told of each window."""
    with tempfile.TemporaryDirectory(prefix="bench-local-") as name, compose.store(Path(name) / "store") as kept:
        root = Path(name) / "work"
        _plant(root, files)
        with closing(LocalModel(model, context_limit=context_limit)) as loaded:
            watched, stop = _Watched(LocalProvider(loaded), loaded), Stop()

            def told(event: Event) -> None:
                if isinstance(event.fact, WindowOpened):
                    done = files - len(_left(root, files))
                    say(f"window {event.fact.generation + 1}: {len(watched.prompts)} requests, {done} files edited")
                if isinstance(event.fact, ToolReturned) and not _left(root, files):
                    stop.ask()

            manner = live.Manner(policy=policy, bounds=bounds, stop=stop, told=told)
            return _worked(kept, watched, root, files, manner)


def _left(root: Path, files: int) -> tuple[str, ...]:
    return tuple(name for name in map(_item, range(1, files + 1)) if _DONE not in (root / name).read_text())


def _worked(kept: Store, watched: _Watched, root: Path, files: int, manner: live.Manner) -> Worked:
    began = perf_counter()
    chosen = live.Model(
        provider_name="local",
        name=watched.model.name,
        provider=watched,
        counter=LocalCounter(watched.model, classify),
        context_limit=watched.model.context_limit,
        source="configured",
        tool_tokens=watched.inner.tool_tokens,
    )
    made = live.agent(kept, chosen, root, manner)
    made.say(_task(files))
    ended = made.run()
    session_id = made.session.session_id
    events = list(kept.log.read(session_id))
    return Worked(
        ended=ended.sentence,
        files=files,
        left=_left(root, files),
        is_kept=(root / "sealed" / "vault.txt").read_text() == "state: TODO\n",
        hard=limits(chosen.context_limit).hard,
        sent=tuple(_sent(events, watched.reused)),
        handoffs=tuple(_handoffs(events, watched.prompts)),
        refused=tuple(event.fact.reason for event in events if isinstance(event.fact, WindowRefused)),
        recallable=tuple(name for name, text in LITERALS.items() if kept.log.search(text, session_id, 1)),
        problem="; ".join(one.problem for one in kept.log.verify(session_id) if one.problem),
        seconds=perf_counter() - began,
    )


def _sent(events: list[Event], reused: list[int]) -> Iterator[Sent]:
    window, number, verdict = 1, -1, ""
    for event in events:
        match event.fact:
            case WindowOpened():
                window += 1
            case RequestSent() as sent:
                number += 1
                verdict = " ".join((sent.verdict, *sent.reasons))
            case ModelReplied(usage=usage) if usage is not None:
                yield Sent(
                    window=window,
                    verdict=verdict,
                    prompt=usage.prompt,
                    expected=reused[number],
                    cached=usage.cached,
                    output=usage.output,
                )
            case _:
                pass


def _handoffs(events: list[Event], prompts: list[str]) -> Iterator[Handoff]:
    number, steps, asked, words = 0, 0, "nothing", ""
    declared: RolloverDeclared | None = None
    for event in events:
        match event.fact:
            case RequestSent():
                number += 1
            case ModelReplied(blocks=blocks):
                steps += 1
                words = next((block.arguments for block in blocks if isinstance(block, ToolCall)), "")
            case HostSaid(kind="reminder"):
                asked = "the reminder"
            case HostSaid(kind="fallback"):
                asked = f"fallback {int(asked[-1]) + 1 if asked.startswith('fallback') else 1}"
            case RolloverDeclared() as declared:
                pass
            case WindowOpened() as opened:
                is_own = opened.cause == "model" and declared is not None
                yield Handoff(
                    window=opened.generation,
                    cause=opened.cause,
                    asked=asked,
                    steps=steps,
                    tokens_before=opened.tokens_before,
                    tokens_after=opened.tokens_after,
                    words=words if is_own else "",
                    own=_in(words) if is_own else (),
                    shown=_in(prompts[number]) if number < len(prompts) else (),
                    demoted=declared.demoted if is_own and declared else (),
                )
                steps, asked, declared = 0, "nothing", None
            case _:
                pass


def _in(text: str) -> tuple[str, ...]:
    return tuple(name for name, literal in LITERALS.items() if literal in text)


# -- for a person


def _show(worked: Worked) -> None:
    console = Console()
    sent, handoffs = worked.sent, worked.handoffs
    prompt, cached, output = (sum(getattr(one, name) for one in sent) for name in ("prompt", "cached", "output"))
    by_model = sum(one.cause == "model" for one in handoffs)
    lines = (
        f"{worked.files - len(worked.left)} of {worked.files} files edited; left: {', '.join(worked.left) or 'none'}",
        f"the sealed file: {'kept' if worked.is_kept else 'CHANGED'}",
        f"{len(sent)} requests, {worked.seconds:.0f} s; ended: {worked.ended}",
        f"{prompt:,} prompt tokens, {cached:,} of them reused ({cached / max(1, prompt):.0%}), {output:,} put out",
        f"largest prompt {max((one.prompt for one in sent), default=0):,} of {worked.hard:,} allowed",
        f"handed over: {by_model} by the model, {len(handoffs) - by_model} by code, {len(worked.refused)} refused",
        f"one recall away: {_listed(worked.recallable)} literals",
        f"chain: {worked.problem or 'verified'}",
    )
    console.print("\n".join(lines), soft_wrap=True, highlight=False)
    console.print(_table_of_handoffs(handoffs))
    for one in handoffs:
        console.print(f"window {one.window} wrote: {one.words or '(nothing)'}", soft_wrap=True, markup=False)
        console.print(f"  the next window shows: {', '.join(one.shown) or 'none of the literals'}", soft_wrap=True)
        for demoted in one.demoted:
            line = f"  demoted: {demoted.text!r} ({demoted.source or 'no source'}): {demoted.reason}"
            console.print(line, soft_wrap=True, markup=False)
    console.print("\n".join(_requests(sent)), soft_wrap=True, highlight=False)


def _listed(names: tuple[str, ...]) -> str:
    return f"{len(names)} of {len(LITERALS)}"


def _table_of_handoffs(handoffs: tuple[Handoff, ...]) -> Table:
    grid = Table(title=f"Handoffs; {len(LITERALS)} literals are planted", title_justify="left")
    for name in ("window", "cause", "asked by", "steps", "tokens", "own words", "next window", "demoted"):
        grid.add_column(name, overflow="fold")
    for one in handoffs:
        tokens = f"{one.tokens_before:,} to {one.tokens_after:,}"
        own, shown = _listed(one.own), _listed(one.shown)
        told = (one.cause, one.asked, str(one.steps), tokens, own, shown, str(len(one.demoted)))
        grid.add_row(str(one.window), *told)
    return grid


def _requests(sent: tuple[Sent, ...]) -> Iterator[str]:
    yield "request  window  prompt  expected  reused  differ  output  verdict"
    for number, one in enumerate(sent, 1):
        differ = one.cached - one.expected
        yield (
            f"{number:7}  {one.window:6}  {one.prompt:6,}  {one.expected:8,}  {one.cached:6,}  {differ:6,}  "
            f"{one.output:6,}  {one.verdict}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.local_model", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="a GGUF file with a chat template")
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--context-limit", type=int, default=CONTEXT_LIMIT)
    parser.add_argument("--policy", default="", help="a preset, or a file NAME.toml; without it the one above")
    parser.add_argument("--steps", type=int, default=STEPS, help="most steps")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="most minutes")
    given = parser.parse_args()
    bounds = Bounds(steps=given.steps, seconds=60 * given.minutes)
    policy = PRESETS.get(given.policy) or (compose.policy(Path(given.policy)) if given.policy else POLICY)
    _show(
        work(
            given.model,
            files=given.files,
            context_limit=given.context_limit,
            policy=policy,
            bounds=bounds,
            say=lambda line: print(line, file=sys.stderr),
        )
    )


if __name__ == "__main__":
    main()
