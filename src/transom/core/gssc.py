"""GSSC: gather, select, structure, compress (source document 004). Gathering and selecting read; compressing proposes.

gather     head, first message, blackboard, history: all of it stands in `State`
select     what a new window keeps: the first message, what the model has not seen, the newest steps of a quota
structure  where: flat, or the sandwich with task and constraints re-anchored in the tail
compress   how: the blocks to replace (offload, mask, prune), never a decision about when
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, islice

import msgspec

from transom.core.blackboard import call_summary
from transom.core.block import Block, Image, Measure, Text, Thought, ToolCall, ToolResultRaw, ToolResultRef
from transom.core.canon import canonical, plain_text
from transom.core.event import Replacement
from transom.core.handoff import claimed
from transom.core.literals import constraints, error_lines
from transom.core.policy import Policy
from transom.core.state import Item, State, Words

__all__ = ["abridge", "elide", "handed_over", "masks", "newest", "offload", "prunes", "tail"]

_EDGE_LINES = 6
_EDGE_CHARS = 400
_STUB_ERRORS = 5
_TAIL_CONSTRAINTS = 12
_TAIL_TODO = 8
_TASK_CHARS = 400

_Measure = Callable[[str], Measure]


# -- select


def newest(items: Sequence[Item], cost: Callable[[Item], int], room: int, *, whole_from: int) -> int:
    """The first position of the longest run of whole steps at the end that fits `room`; everything from `whole_from` on
    is kept whatever it costs. A run starts where no call is cut from its results (L10)."""
    used = sum(cost(item) for item in items[whole_from:])
    start = whole_from
    in_batch = False
    for place in range(whole_from - 1, -1, -1):
        used += cost(items[place])
        if used > room:
            break
        role = items[place].role
        in_batch = role == "tool" or (in_batch and role != "assistant")
        if not in_batch and items[place].seq:
            start = place
    return start


# -- structure


def tail(state: State, policy: Policy, remaining: int) -> str:
    """The volatile end of a request: task, constraints and open todo re-anchored (head-tail sandwich). Empty when flat
    or when nothing is known to anchor."""
    if policy.where != "sandwich" or not state.words:
        return ""
    lines = ["<host_reminder>"]
    task = next((words for words in reversed(state.words) if words.disposition == "open"), state.words[-1])
    lines.append(f"Task (message_uuid {task.uuid}): {_task(task.blocks)}")
    limits = list(islice(_newest_constraints(state), _TAIL_CONSTRAINTS + 1))
    if limits:
        newest_first = (
            "" if len(limits) <= _TAIL_CONSTRAINTS else f" (the newest {_TAIL_CONSTRAINTS}; more stand above)"
        )
        lines.append(f"The user's own constraints{newest_first}:")
        lines.extend(f"- {text}" for text in reversed(limits[:_TAIL_CONSTRAINTS]))
    todo = [item for item in state.board.todo if item.status in ("pending", "in_progress")]
    if todo:
        lines.append("Open todo items:")
        lines.extend(f"- [{item.status}] {claimed(item.text)}" for item in todo[:_TAIL_TODO])
        if len(todo) > _TAIL_TODO:
            lines.append(f"- and {len(todo) - _TAIL_TODO} more")
    if remaining > 0:
        lines.append(f"About {remaining // 1000}k tokens are left in this window.")
    lines.append("</host_reminder>")
    return "\n".join(lines)


def _newest_constraints(state: State) -> Iterator[str]:
    valid = (words for words in reversed(state.words) if words.disposition != "superseded")
    return (text for words in valid for text in reversed(words.constraints))


@lru_cache(maxsize=8)  # a task stands in every tail of its turn, and may be long
def _task(blocks: tuple[Block, ...]) -> str:
    said = " ".join(" ".join(block.text.split()) for block in blocks if isinstance(block, Text))
    return said if len(said) <= _TASK_CHARS else f"{said[:_TASK_CHARS]}…"


# -- compress


def offload(item: Item, above: int, measure: _Measure) -> list[Replacement]:
    """Replacements for the results of `item` with more than `above` tokens, if a stub is smaller."""
    found = []
    for index, block in enumerate(item.blocks):
        if isinstance(block, ToolResultRaw) and block.tokens > above and not block.is_protected:
            stub = _stub(item, block, measure)
            if stub.tokens < block.tokens:
                found.append(Replacement(seq=item.seq, index=index, block=stub))
    return found


def _stub(item: Item, block: ToolResultRaw, measure: _Measure) -> ToolResultRef:
    lines = block.text.splitlines()
    size = len(block.text.encode("utf-8", "replace"))
    head = "\n".join(lines[:_EDGE_LINES])[:_EDGE_CHARS]
    foot = "\n".join(lines[-_EDGE_LINES:])[-_EDGE_CHARS:] if len(lines) > _EDGE_LINES else ""
    errors = error_lines(block.text, _STUB_ERRORS)
    what = f"[offloaded result: {len(lines)} lines, {size} bytes, {block.tokens} tokens; recall it by "
    what += f"message_uuid {item.uuid}]"
    text = "\n".join(
        (
            what,
            head,
            *(("[matched error lines]", *errors) if errors else ()),
            *(("[last lines]", foot) if foot else ()),
        )
    )
    found = measure(text)
    return ToolResultRef(text=text, size=size, tokens=found.tokens, content=found.content)


def abridge(words: Words, edge: int, measure: _Measure) -> list[Replacement]:
    """Long texts of a user message as their first and last `edge` characters, with as many of the rules between them.
    The whole message is an artifact; what is not shown is counted."""
    found = []
    for index, block in enumerate(words.blocks):
        if isinstance(block, Text) and len(block.text) > 4 * edge:
            text = _abridged(words.uuid, block.text, edge)
            made = measure(text)
            if made.tokens < block.tokens:
                shown = Text(text=text, tokens=made.tokens, content=made.content)
                found.append(Replacement(seq=words.seq, index=index, block=shown))
    return found


def _abridged(uuid: str, text: str, edge: int) -> str:
    between = text[edge:-edge]
    rules = constraints(between)
    sizes = accumulate(len(rule) + 3 for rule in rules)
    shown = [f"- {rule}" for rule, size in zip(rules, sizes, strict=True) if size <= edge]
    call = canonical({"artifact_id": uuid, "offset": edge}).decode()
    return "\n".join(
        (
            text[:edge],
            f"[host] {len(between):,} characters of this user message are left out here; read_artifact {call} reads on",
            *((f"[host] {len(shown)} of the {len(rules)} rules in them:", *shown) if rules else ()),
            "[host] the end of the message:",
            text[-edge:],
        )
    )


def masks(items: Iterable[Item], measure: _Measure) -> list[Replacement]:
    """Hide the observations of `items`; their calls stay."""
    found = []
    for item in items:
        if item.role not in ("tool", "host"):
            continue
        for index, block in enumerate(item.blocks):
            if _is_observation(block) and not block.is_protected:
                text = f"{_MASK} {block.tokens} tokens; recall it by message_uuid {item.uuid}]"
                made = measure(text)
                if made.tokens < block.tokens:
                    shown = ToolResultRef(text=text, tokens=made.tokens, content=made.content)
                    found.append(Replacement(seq=item.seq, index=index, block=shown))
    return found


_MASK = "[old result hidden:"
_OBSERVED = (ToolResultRaw, Image)


def _is_observation(block: Block) -> bool:
    if isinstance(block, ToolResultRef):
        return not block.text.startswith(_MASK)
    return isinstance(block, _OBSERVED)


def prunes(items: Iterable[Item]) -> list[Replacement]:
    """Drop the thoughts of `items`, and what the provider counted of a reply but did not show (an index behind the last
    block stands for that)."""
    found: list[Replacement] = []
    for item in items:
        if item.role != "assistant" or not item.seq:
            continue
        indices = [
            index
            for index, block in enumerate(item.blocks)
            if isinstance(block, Thought) and not block.is_protected and (block.text or block.opaque)
        ]
        if not indices and item.counts[4]:
            indices = [len(item.blocks)]
        found.extend(Replacement(seq=item.seq, index=index, block=None) for index in indices)
    return found


def handed_over(
    items: Sequence[Item], start: int, name: str, measure: _Measure
) -> tuple[frozenset[int], list[Replacement]]:
    """The call that declared a handoff does not stand beside the handoff: not all it says was believed (L7). A reply
    that made no other call is left out of the new window, with its results (their positions); among others, the call
    says only that it was taken."""
    place = next((place for place in range(start, len(items)) if items[place].role == "assistant"), -1)
    blocks = items[place].blocks if place >= 0 else ()
    calls = [block for block in blocks if isinstance(block, ToolCall)]
    taken = [(index, block) for index, block in enumerate(blocks) if isinstance(block, ToolCall) and block.name == name]
    if taken and len(taken) == len(calls):
        behind = range(place + 1, len(items))
        end = next((at for at in behind if items[at].role == "assistant"), len(items))  # a later reply is its own
        return frozenset(at for at in range(place, end) if items[at].role in ("assistant", "tool")), []
    arguments = canonical({"taken": "see the handoff"}).decode()
    found = measure(arguments)
    shown = {"arguments": arguments, "tokens": found.tokens, "content": found.content}
    seq = items[place].seq
    return frozenset(), [
        Replacement(seq=seq, index=index, block=msgspec.structs.replace(block, **shown)) for index, block in taken
    ]


def elide(items: Iterable[Item], measure: _Measure) -> list[Replacement]:
    """Last resort for messages that would not fit: arguments, long texts, results and pictures become references."""
    found = []
    for item in items:
        for index, block in enumerate(item.blocks):
            shown = None if block.is_protected else _elided(item, block, measure)
            if shown is not None and shown.tokens < block.tokens:
                found.append(Replacement(seq=item.seq, index=index, block=shown))
    return found


def _elided(item: Item, block: Block, measure: _Measure) -> Block | None:
    note = f"[{block.tokens} tokens offloaded; recall them by message_uuid {item.uuid}]"
    if isinstance(block, ToolCall):
        said = f"{note} {plain_text(call_summary(block.name, block.arguments))}"
        arguments = canonical({"offloaded": said}).decode()
        found = measure(arguments)
        return msgspec.structs.replace(block, arguments=arguments, tokens=found.tokens, content=found.content)
    if isinstance(block, Text):
        text = f"{block.text[:_EDGE_CHARS]}\n{note}"
        found = measure(text)
        return Text(text=text, tokens=found.tokens, content=found.content)
    if isinstance(block, Image):
        found = measure(note)
        return ToolResultRef(text=note, tokens=found.tokens, content=found.content)
    return _stub(item, block, measure) if isinstance(block, ToolResultRaw) else None
