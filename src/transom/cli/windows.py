"""The window at any point of a session: as it was recorded, or as a policy would have had it.

The recorded one is the fold up to an event. A policy's is found by driving the lab up to the first reply at or after
that event: it is what the request for that reply would have shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from transom import compose
from transom.cli.reading import block_kind, block_words
from transom.cli.terms import market, parse_tokens, terms_of
from transom.core.block import Block, ToolResultRef
from transom.core.boundary import head_tokens, prompt_tokens
from transom.core.budget import Limits, limits
from transom.core.event import HostSaid, ModelReplied, ToolReturned, UserSaid
from transom.core.policy import PRESETS, Policy
from transom.core.projection import fold
from transom.core.state import Item, State
from transom.errors import UsageError
from transom.lab.arms import Arm, Setting, drive
from transom.lab.replay import enough
from transom.lab.script import Script, script_of
from transom.lab.tables import counted
from transom.ports import Log, SessionRow

__all__ = ["Seen", "SeenItem", "governed", "recorded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenItem:
    """One message of a window. `blocks` are (what it is, its text)."""

    item: Item
    source: int
    """seq of the recorded event it shows, or whose words a seed repeats; 0 for none."""
    tokens: int
    marks: tuple[str, ...]
    title: str
    blocks: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A window with what a reader wants to know of it."""

    session_id: str
    seq: int
    policy: str
    state: State
    items: tuple[SeenItem, ...]

    @property
    def title(self) -> str:
        by = f"under {self.policy}, at reply" if self.policy else "at event"
        return f"the window of {self.session_id} {by} {self.seq}"

    @property
    def sizes(self) -> str:
        state = self.state
        unseen = f" ({state.head.unseen_tokens:,} of it not in the recording)" if state.head.unseen_tokens else ""
        return (
            f"{prompt_tokens(state):,} tokens (counted), the head {head_tokens(state):,}{unseen} · "
            f"{counted(len(self.items), 'message')} · generation {state.window.generation}"
        )

    def plain(self) -> dict[str, object]:
        """For JSON."""
        return {
            "session": self.session_id,
            "seq": self.seq,
            "policy": self.policy,
            "generation": self.state.window.generation,
            "tokens": prompt_tokens(self.state),
            "head_tokens": head_tokens(self.state),
            "sections": msgspec.to_builtins(self.state.head.sections),
            "changes": self.state.head.changes,
            "tools": msgspec.to_builtins(self.state.head.tools),
            "items": [
                {
                    "role": one.item.role,
                    "source": one.source or None,
                    "tokens": one.tokens,
                    "marks": one.marks,
                    "blocks": msgspec.to_builtins(one.item.blocks),
                }
                for one in self.items
            ],
        }


def recorded(log: Log, row: SessionRow, seq: int) -> Seen:
    """The window when event `seq` had been appended."""
    state, originals = _folded(log, row.session_id, seq)
    items = [_item(number, item, item.seq or item.of, state, originals) for number, item in _numbered(state)]
    return Seen(session_id=row.session_id, seq=seq, policy="", state=state, items=tuple(items))


def governed(log: Log, row: SessionRow, seq: int, policy: str, context_limit: str) -> Seen:
    """The window of an arm in the request for the first reply at or after event `seq`."""
    chosen = _policy(policy)
    script = script_of(log, row.session_id)
    limit = parse_tokens(context_limit) if context_limit else None
    terms = terms_of(script, market("", ""), limit)
    dialect = compose.dialect_for(script.provider, script.model)
    setting = Setting(bounds=limits(terms.limit, source=terms.source), counter=compose.counter(), dialect=dialect)
    scratch = compose.scratch_log()
    arm = _reached(script, chosen, setting, seq, scratch)
    if arm.refused:

        def again(bounds: Limits) -> list[Arm]:
            return [_reached(script, chosen, replace(setting, bounds=bounds), seq, compose.scratch_log())]

        found = enough(arm.needs, again)
        advice = f"; raise --context-limit to at least {found:,}" if found else ""
        raise UsageError(f"under {chosen.name} the session cannot get there: {arm.refused}{advice}")
    if not arm.steps or arm.steps[-1].seq < seq:
        raise UsageError(f"--at {seq}: no reply of the model stands there or after it, so no request was made")
    state, originals = _folded(scratch, row.session_id, None)
    state.calibration = script.calibration
    sources = _sources(scratch, script)
    items = [
        _item(number, item, sources.get(item.seq or item.of, 0), state, originals) for number, item in _numbered(state)
    ]
    reply = arm.steps[-1].seq
    return Seen(session_id=row.session_id, seq=reply, policy=chosen.name, state=state, items=tuple(items))


def _reached(script: Script, policy: Policy, setting: Setting, seq: int, scratch: Log) -> Arm:
    """The arm at its request for the first reply at or after event `seq`."""
    arm = Arm(policy=policy)
    for arm in drive(script, policy, setting, scratch):
        if arm.steps and arm.steps[-1].seq >= seq:
            break
    return arm


def _policy(name: str) -> Policy:
    if name in PRESETS:
        return PRESETS[name]
    if name.endswith(".toml") or "/" in name:
        return compose.policy(Path(name))
    raise UsageError(f"--policy: no policy is called {name!r}; known are {', '.join(PRESETS)}, or give FILE.toml")


def _folded(log: Log, session_id: str, until: int | None) -> tuple[State, dict[int, tuple[Block, ...]]]:
    state = State()
    originals: dict[int, tuple[Block, ...]] = {}
    for event in log.read(session_id, 0, until):
        fold(state, event)
        if isinstance(event.fact, UserSaid | HostSaid | ModelReplied | ToolReturned):
            originals[event.seq] = event.fact.blocks
    return state, originals


def _sources(scratch: Log, script: Script) -> dict[int, int]:
    """An arm's seq -> the recorded one: an arm keeps the uuids of what was recorded."""
    recorded_seq = {event.uuid: event.seq for event in script.events}
    return {event.seq: recorded_seq.get(event.uuid, 0) for event in scratch.read(script.session_id)}


def _numbered(state: State) -> Iterator[tuple[int, Item]]:
    return enumerate(state.window.items, 1)


def _item(number: int, item: Item, source: int, state: State, originals: dict[int, tuple[Block, ...]]) -> SeenItem:
    tokens = state.calibration.estimate(item.counts, 1)
    marks = []
    if not item.seq:
        marks.append("seed")
    elif originals.get(item.seq) != item.blocks or any(isinstance(block, ToolResultRef) for block in item.blocks):
        marks.append("replaced")
    if any(block.is_protected for block in item.blocks):
        marks.append("protected")
    if item.is_error:
        marks.append("error")
    if item.states:
        marks.append(f"says anew: {', '.join(key for key, _ in item.states)}")
    place = f" · event {source}" if source else ""
    marked = f" · {', '.join(marks)}" if marks else ""
    return SeenItem(
        item=item,
        source=source,
        tokens=tokens,
        marks=tuple(marks),
        title=f"{number} {item.role}{place} · {tokens:,} tokens{marked}",
        blocks=tuple((f"{block_kind(block)}, {block.tokens:,} tokens", block_words(block)) for block in item.blocks),
    )
