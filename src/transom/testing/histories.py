"""Random histories: what a session may live through, as Hypothesis strategies, and a player that makes it happen.

A history is a list of `Move`s, small numbers that shrink well; `Play` turns each into operations on a `Session`. It
covers what real logs hold and what none should: parallel and interrupted calls, late and unknown results, ids used
twice, arguments that are no JSON, results and words larger than the window, restarts, rivals on the same log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, assert_never, get_args

import msgspec
from hypothesis import strategies as st

from transom.core.block import Block, Text, ToolResultRef
from transom.core.event import (
    BlockReplaced,
    EpochOpened,
    Handoff,
    HostSaid,
    How,
    ModelReplied,
    NegativeNoted,
    Replacement,
    Requirement,
    RolloverDeclared,
    Section,
    SectionChanged,
    TodoChanged,
    TodoItem,
    Tool,
    ToolReturned,
    Usage,
    UserDisposed,
    UserSaid,
)
from transom.core.policy import PRESETS, Policy
from transom.errors import OverBudget
from transom.ports import Log, Sample
from transom.session import Prepared, Session
from transom.testing.builders import Story, call, image, result, rules, text, thought

__all__ = ["LIMIT", "Kind", "Move", "Play", "histories", "policies"]

LIMIT = 8_000
"""Small enough that a dozen moves fill a window."""

Kind = Literal[
    "turn", "user", "host", "reply", "results", "stray", "step", "boundary", "restart", "failure", "todo", "dispose",
    "epoch", "section", "sample", "replace", "declare", "rival",
]  # fmt: skip
_SIZES = (2, 2, 30, 30, 200, 200, 600, 1200, 2600, 9000, 26_000)
"""Words of a text; the last ones are larger than the window."""
_HOWS: tuple[How, ...] = get_args(How)


@dataclass(frozen=True, slots=True)
class Move:
    """One thing that happens; the numbers choose its details."""

    kind: Kind
    a: int = 0
    b: int = 0
    size: int = 0


def histories(*kinds: Kind, largest: int = len(_SIZES) - 1, longest: int = 24) -> st.SearchStrategy[list[Move]]:
    """Lists of moves. Turns are twice as likely as the rest, so that windows fill."""
    chosen = kinds or get_args(Kind)
    move = st.builds(
        Move,
        kind=st.sampled_from(("turn", *chosen, "turn")),
        a=st.integers(0, 11),
        b=st.integers(0, 11),
        size=st.integers(0, largest),
    )
    return st.lists(move, max_size=longest)


def policies(*names: str) -> st.SearchStrategy[Policy]:
    """The presets, with an offload threshold in proportion to `LIMIT`."""
    chosen = [PRESETS[name] for name in names or ("raw", "fifo", "mask", "rollover", "gssc")]
    scaled = [msgspec.structs.replace(one, offload_above=500) if one.offload_above else one for one in chosen]
    return st.sampled_from(scaled)


_FLAVOURS: tuple[Callable[[int], str], ...] = (
    lambda n: f"line {n} of src/pkg/module_{n}.py reads well",
    lambda n: f"第{n}行 修复了错误 E{n:04d} 在模块里",
    lambda n: f"aGVsbG8gd29ybGQ{n:08x}QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo=",
    lambda n: f"ValueError: number {n} is out of range\n  at tests/test_{n}.py:{n}",
    lambda n: f"</handoff> <related_files> [old result hidden: {n}] \ud800 \x1b[31mred\x1b[0m",
)


@dataclass(slots=True)
class Play:
    """Plays moves on a session. `refused` counts `OverBudget`: the story goes on without that request."""

    policy: Policy
    log: Log | None = None
    limit: int = LIMIT
    story: Story = field(init=False)
    sent: list[Prepared] = field(default_factory=list)
    refused: list[OverBudget] = field(default_factory=list)
    declared: int = 0
    number: int = 0
    watch: Callable[[Session], None] = lambda _: None
    """Called after each request, with the session that made it."""

    def __post_init__(self) -> None:
        made = rules(self.policy, self.limit)
        self.story = Story(made) if self.log is None else Story(made, log=self.log)
        order = ("s0", "rules", "date")
        self.story.say(EpochOpened(sections=(_section(0),), tools=(_tool(0), _tool(1)), order=order))

    @property
    def session(self) -> Session:
        return self.story.session

    def run(self, moves: list[Move]) -> Play:
        for move in moves:
            self.move(move)
        return self

    def words(self, move: Move, *, at_most: int = len(_SIZES)) -> str:
        """A text no other is equal to."""
        self.number += 1
        lines = _SIZES[min(move.size, at_most)]
        make = _FLAVOURS[(move.a + move.b) % len(_FLAVOURS)]
        if lines < 10:
            return make(self.number)
        repeat = 1 + lines // 8
        return f"{self.number}: " + "\n".join(make(self.number + place % 7) for place in range(repeat))

    def move(self, move: Move) -> None:
        say = self.story.say
        match move.kind:
            case "turn":
                self.turn(move)
            case "user":
                say(UserSaid(blocks=self.user_blocks(move)))
            case "host":
                say(HostSaid(kind="injected", blocks=(text(self.words(move)),)))
            case "reply":
                self.reply(move)
            case "results":
                self.results(move)
            case "stray":
                self.stray(move)
            case "step":
                self.step()
            case "boundary":
                self.boundary()
            case "restart":
                self.story.reopen()
            case "failure":
                say(NegativeNoted(attempt=f"attempt {move.a}", outcome=self.words(move, at_most=4)))
            case "todo":
                say(TodoChanged(items=_todo(move)))
            case "dispose":
                self.dispose(move)
            case "epoch":
                self.epoch(move)
            case "section":
                say(SectionChanged(key="s0", text=None if move.a % 2 else "changed"))
            case "sample":
                self.boundary(self.samples(move))
            case "replace":
                self.replace(move)
            case "declare":
                self.declare(move)
            case "rival":
                self.rival(move)
            case _:
                assert_never(move.kind)

    # -- moves

    def turn(self, move: Move) -> None:
        """A whole step: request, reply with calls, their results."""
        if self.step():
            self.reply(move)
            self.results(replace(move, a=0))

    def step(self) -> bool:
        if not self.boundary():
            return False
        try:
            self.sent.append(self.session.request())
        except OverBudget as refusal:  # for want of room for what a rival said since
            self.refused.append(refusal)
            return False
        self.watch(self.session)
        return True

    def samples(self, move: Move) -> tuple[Sample, ...]:
        """Sources that change, go, come back, and cannot be read."""
        made = []
        for place, key in enumerate(("s0", "rules", "date")):
            choice = (move.a + place * move.b) % 5
            text = None if choice == 0 else self.words(move, at_most=4) if choice == 1 else f"{key} {choice}"
            made.append(Sample(key=key, text=text, is_available=choice != 4))
        return tuple(made)

    def boundary(self, samples: Sequence[Sample] = ()) -> bool:
        try:
            self.session.boundary(model_hands_over=self.number % 3 == 0, samples=samples)
        except OverBudget as refusal:
            self.refused.append(refusal)
            return False
        return True

    def user_blocks(self, move: Move) -> tuple[Block, ...]:
        self.number += 1
        rule = (
            f"You must never touch file_{self.number}.py.",
            f"不要修改文件{self.number}。",
            f"Please look at item {self.number}.",
        )[move.a % 3]
        blocks: list[Block] = [text(rule)]
        if move.b % 3 == 0:
            blocks.append(text(self.words(move, at_most=6 if move.a else 9)))
        if move.b % 4 == 1:
            blocks.append(image(200))
        if move.b == 11:
            return (image(200),)
        if move.b == 10:
            return (text(""),) if move.a % 2 else ()
        return tuple(blocks)

    def reply(self, move: Move) -> None:
        self.number += 1
        blocks: list[Block] = []
        if move.a % 2:
            blocks.append(thought(self.words(move, at_most=4), '{"type":"thinking","signature":"x"}' * (move.b % 2)))
        if move.b % 3 != 2:
            blocks.append(text(self.words(move, at_most=len(_SIZES) if move.a == 7 else 3)))
        calls = (1, 0, 2, 1, 3, 1)[move.b % 6]
        for place in range(calls):
            name = f"c{self.number}_{place}"
            if move.a == 5:
                name = f"c{self.number}"  # one id, used twice in a reply
            elif move.a == 6:
                name = "again"  # one id, used in many replies
            blocks.append(call(name, ("bash", "edit", "todo_write")[move.a % 3], self.arguments(move, place)))
        usage = None
        if move.a % 4 == 3:
            usage = Usage(uncached=move.b * 500 - 100, output=move.size * 90)
        self.story.say(ModelReplied(blocks=tuple(blocks), usage=usage, stop_reason=("end_turn", "error")[move.a == 9]))

    def arguments(self, move: Move, place: int) -> str:
        forms = (
            f'{{"command":"pytest tests/test_{place}.py"}}',
            f'{{"file_path":"src/mod_{move.b}.py","content":{msgspec.json.encode(self.safe(move)).decode()}}}',
            '{"todos":[{"content":"x","status":"pending"}]}',
            "*** Update File: a.py\n+ x",
            '{"cut": "off',
            "",
            "[1,2]",
            ' {"spaced": 1}',
        )
        return forms[(move.a + move.b) % len(forms)]

    def safe(self, move: Move) -> str:
        return self.words(move, at_most=len(_SIZES) if move.a == 8 else 4).encode("utf-8", "replace").decode()

    def results(self, move: Move) -> None:
        """Results of all open calls, or of all but the first, or with the user speaking between."""
        calls = self.story.calls
        for place, call_id in enumerate(calls[1:] if move.a == 3 else calls):
            if move.a == 4 and place == 1:
                self.move(replace(move, kind="user"))
            blocks: tuple[Block, ...] = (result(self.words(move)),)
            if move.b == 7:
                blocks = (*blocks, image(300))
            fails = (move.b + place) % 3 == 0
            effect = ("read", "write", "external", "none")[move.b % 4]
            self.story.say(
                ToolReturned(
                    call_id=call_id,
                    blocks=() if move.b == 9 else blocks,
                    is_error=fails and move.b % 2 == 0,
                    effect=effect,  # type: ignore[arg-type]
                    exit_code=1 if fails else None,
                )
            )

    def stray(self, move: Move) -> None:
        """A result nobody waits for: of no call, or of one that has its result."""
        known = [f"c{number}_0" for number in range(1, self.number + 1)]
        call_id = known[-1 - move.b % len(known)] if known and move.a % 2 else "nobody"
        if call_id not in self.story.calls:
            self.story.say(ToolReturned(call_id=call_id, blocks=(result(self.words(move)),)))

    def epoch(self, move: Move) -> None:
        """A new head: other sections or other tools, and the reason that says so."""
        head = self.session.state.head
        if move.b % 3 == 0:
            tools = (_tool(0), _tool(1 + move.a % 3))
            self.story.say(EpochOpened(sections=head.sections, tools=tools, reason="change:tools"))
        else:
            sections = (_section(move.a % 3),)
            again = EpochOpened(sections=sections, tools=head.tools)
            self.story.say(again if move.b % 2 else msgspec.structs.replace(again, reason="change:system"))

    def dispose(self, move: Move) -> None:
        words = self.session.state.words
        if words:
            seq = words[move.a % len(words)].seq
            how = ("answered", "superseded", "open")[move.b % 3]
            self.story.say(UserDisposed(seq=seq, disposition=how))  # type: ignore[arg-type]

    def replace(self, move: Move) -> None:
        """A rewrite by somebody else: of a model's or a tool's block, or of one that is not there."""
        items = [item for item in self.session.state.window.items if item.role in ("assistant", "tool") and item.seq]
        seq = items[move.a % len(items)].seq if items and move.b != 5 else 9999
        shown: tuple[Block | None, ...] = (None, Text(text="gone", tokens=1), ToolResultRef(text="see u1", tokens=3))
        target = Replacement(seq=seq, index=move.b % 4, block=shown[move.a % 3])
        self.story.say(BlockReplaced(how=_HOWS[move.b % 4], targets=(target,)))

    def declare(self, move: Move) -> None:
        """A model asks for a new window, alone or beside another call."""
        if not self.step():
            return
        self.declared += 1
        name = f"n{self.declared}"
        calls = [call(name, "new_context", "{}"), *([call(f"{name}x", "bash")] if move.a % 2 else [])]
        self.story.say(ModelReplied(blocks=tuple(calls), stop_reason="tool_use"))
        handoff = Handoff(requirements=(Requirement(text=f"keep {self.declared}", source="message_uuid: u2"),))
        self.story.say(
            RolloverDeclared(call_id=name, handoff=handoff),
            ToolReturned(call_id=name, blocks=(result("the window closes after this step"),), effect="none"),
        )

    def rival(self, move: Move) -> None:
        """Another process works on the same log."""
        other = Session.open(self.story.log, self.story.session_id, self.story.rules)
        other.append(UserSaid(blocks=self.user_blocks(replace(move, size=1))))
        if move.a % 2:
            try:
                other.boundary()
            except OverBudget as refusal:
                self.refused.append(refusal)
            else:
                other.request()


def _section(number: int) -> Section:
    return Section(key=f"s{number}", text=f"You are agent {number}.", tokens=6)


def _tool(number: int) -> Tool:
    return Tool(name=f"tool{number}", description="does it", schema='{"type":"object"}', tokens=20)


def _todo(move: Move) -> tuple[TodoItem, ...]:
    states = ("pending", "in_progress", "completed", "cancelled")
    return tuple(
        TodoItem(text=f"task {number}", status=states[(move.b + number) % 4])  # type: ignore[arg-type]
        for number in range(move.a)
    )
