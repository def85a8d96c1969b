"""What an importer said, summed up, and the rules of `importers.draft` that can be checked on any source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from transom.core.block import ToolCall
from transom.core.event import Fact, ModelReplied, SessionOpened, ToolReturned, UserSaid
from transom.importers.draft import Cleared, Compacted, Item, Said

__all__ = ["Figures", "broken_rules", "facts", "figures"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Sums over all sessions of a source."""

    prompts: int
    replies: int
    calls: int
    results: int
    errors: int
    compactions: int
    usages: int
    uncached: int
    cached: int
    written: int
    output: int


def facts(items: Iterable[Item], session: str | None = None) -> list[Fact]:
    """The facts said, in order; of one session if it is named."""
    return [item.fact for item in items if isinstance(item, Said) and session in {None, item.session}]


def figures(items: Iterable[Item]) -> Figures:
    kept = list(items)
    said = facts(kept)
    replies = [fact for fact in said if isinstance(fact, ModelReplied)]
    results = [fact for fact in said if isinstance(fact, ToolReturned)]
    usages = [reply.usage for reply in replies if reply.usage is not None]
    return Figures(
        prompts=sum(isinstance(fact, UserSaid) for fact in said),
        replies=len(replies),
        calls=sum(isinstance(block, ToolCall) for reply in replies for block in reply.blocks),
        results=len(results),
        errors=sum(result.is_error for result in results),
        compactions=sum(isinstance(item, Compacted) for item in kept),
        usages=len(usages),
        uncached=sum(usage.uncached for usage in usages),
        cached=sum(usage.cached for usage in usages),
        written=sum(usage.written for usage in usages),
        output=sum(usage.output for usage in usages),
    )


def broken_rules(items: Iterable[Item]) -> Iterator[str]:
    """A sentence for each item that breaks a rule; nothing for a good importer."""
    names: dict[str, set[str]] = {}
    calls: set[tuple[str, str]] = set()
    for item in items:
        if not isinstance(item, Said | Compacted | Cleared):
            continue
        known = names.setdefault(item.session, set())
        if item.uuid in known:
            yield f"{item.session}: {item.uuid} is said twice"
        if isinstance(item, Compacted):
            yield from _unknown(item.session, (*item.kept_head, *item.kept_tail), known)
        elif isinstance(item, Cleared):
            yield from _unknown(item.session, (uuid for uuid, _ in item.targets), known)
        else:
            if isinstance(item.fact, SessionOpened) == bool(known):
                yield f"{item.session}: opened twice, or {item.uuid} is said before it is opened"
            if isinstance(item.fact, ModelReplied):
                calls.update((item.session, block.call_id) for block in item.fact.blocks if isinstance(block, ToolCall))
            if isinstance(item.fact, ToolReturned) and (item.session, item.fact.call_id) not in calls:
                yield f"{item.session}: {item.uuid} settles the unknown call {item.fact.call_id}"
        known.add(item.uuid)


def _unknown(session: str, named: Iterable[str], known: set[str]) -> Iterator[str]:
    yield from (f"{session}: {uuid} is named and was not said" for uuid in named if uuid not in known)
