"""Context sources and epochs: what stands around the agent, frozen once, then said as it changes (design 9).

A *source* is one section of the head whose text may change while a session lives: date, rules, skills. An epoch is the
time in which the head is frozen: `EpochOpened` holds its bytes, every request of every process repeats them, and only a
declared cause opens another one. So what changes is appended:

1. Sources are sampled at the boundary only, and nothing wakes for them. A sample is a text, nothing (the section no
   longer stands), or unavailable: then what was known stays and nothing is said.
2. Each difference is a `SectionChanged`; patching the head with them, in `Head.order`, gives what a fresh render would,
   byte for byte (`present`), also where a section went and came back.
3. What the window knows follows from what stands in it: the frozen head, and the last word of its items on each
   section (`Window.known`). Whatever is not known is said by one message with the present text alone; what a new window
   would drop is said again in its seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from transom.core.block import Measure, Text
from transom.core.event import EpochOpened, HostSaid, Section, SectionChanged, Seed, Tool
from transom.core.handoff import escape_tags
from transom.core.state import Head, Item

__all__ = [
    "Sample",
    "Update",
    "known_of",
    "opened",
    "patched",
    "present",
    "retooled",
    "stated",
    "tagged",
    "text_of_section",
    "updated",
]

_SAID = "The host says: this holds from now on, in place of what is said of it above."


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What a source gave: its text, None if there is nothing; unavailable, if that could not be found out."""

    key: str
    text: str | None = None
    is_available: bool = True


def text_of_section(head: Head, key: str) -> str | None:
    """What a section says now; None if it does not stand."""
    return head.changes[key] if key in head.changes else _frozen(head, key)


def _frozen(head: Head, key: str) -> str | None:
    return next((section.text for section in head.sections if section.key == key), None)


def opened(fact: EpochOpened, epoch: int) -> Head:
    """The head of an epoch as it begins."""
    order = tuple(dict.fromkeys((*fact.order, *(section.key for section in fact.sections))))
    return Head(
        sections=fact.sections, tools=fact.tools, unseen_tokens=fact.unseen_tokens, epoch=epoch, changes={}, order=order
    )


def patched(head: Head, changed: Iterable[SectionChanged]) -> Head:
    """The head after these changes: its frozen sections are the same."""
    texts = {fact.key: fact.text for fact in changed}
    order = tuple(dict.fromkeys((*head.order, *texts)))
    return msgspec.structs.replace(head, changes=head.changes | texts, order=order)


def present(head: Head) -> tuple[Section, ...]:
    """The sections as they stand now: what a head frozen at this moment would hold."""
    frozen = {section.key: section for section in head.sections}
    found = []
    for key in head.order:
        text = text_of_section(head, key)
        if text is not None:
            same = frozen.get(key)
            found.append(same if same is not None and same.text == text else Section(key=key, text=text))
    return tuple(found)


def retooled(head: Head, tools: tuple[Tool, ...]) -> tuple[EpochOpened, ...]:
    """The epochs for other tools. The cache is gone with them, so what has changed of the sections is frozen too: by a
    fact of its own, since a declared change of tools excuses no other."""
    same = EpochOpened(
        sections=head.sections,
        tools=tools,
        unseen_tokens=head.unseen_tokens,
        reason="change:tools",
        order=head.order,
    )
    now = msgspec.structs.replace(same, sections=present(head), reason="change:system")
    return (same,) if now.sections == same.sections else (same, now)


def stated(head: Head, keys: Iterable[str]) -> tuple[tuple[str, str | None], ...]:
    """What a message on these sections says."""
    return tuple((key, text_of_section(head, key)) for key in keys)


def known_of(items: Iterable[Item]) -> dict[str, str | None]:
    """What these items say of the head's sections, the last word of each."""
    return {key: text for item in items for key, text in item.states}


def _unknown(head: Head, known: Mapping[str, str | None]) -> tuple[str, ...]:
    """Keys, in order, of what the frozen head and `known` do not say as it is; what only `known` has is of an epoch
    that is over."""
    if not head.changes and not known:
        return ()
    found = []
    for key in dict.fromkeys((*head.order, *known)):
        seen = known[key] if key in known else _frozen(head, key)
        if seen != text_of_section(head, key):
            found.append(key)
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What a boundary says of the head's sections: `changed`, and one message on all that the window does not know."""

    head: Head
    changed: tuple[SectionChanged, ...]
    said: HostSaid | None
    measure: Callable[[str], Measure]

    def again(self, items: Iterable[Item]) -> tuple[Seed, ...]:
        """The seed on what a new window would not know, if it kept `items` and that message. Old seeds are not kept."""
        known = known_of(item for item in items if item.seq)
        if self.said is not None:
            known.update(stated(self.head, self.said.sections))
        keys = _unknown(self.head, known)
        return (Seed(role="host", blocks=(_words(self.head, keys, self.measure),), sections=keys),) if keys else ()


def updated(
    head: Head, known: Mapping[str, str | None], samples: Iterable[Sample], measure: Callable[[str], Measure]
) -> Update:
    """What the sources say anew, and what the window does not know of it. An empty text is none."""
    changed = tuple(
        SectionChanged(key=one.key, text=one.text or None)
        for one in samples
        if one.is_available and (one.text or None) != text_of_section(head, one.key)
    )
    now = patched(head, changed)
    keys = _unknown(now, known)
    said = HostSaid(kind="context", blocks=(_words(now, keys, measure),), sections=keys) if keys else None
    return Update(head=now, changed=changed, said=said, measure=measure)


def tagged(text: str) -> str:
    """Host text on the head for a provider that takes no system message in the middle of a conversation: tags that no
    result can imitate (`escape_tags`)."""
    return f"<context_update>\n{text}\n</context_update>"


def _words(head: Head, keys: Sequence[str], measure: Callable[[str], Measure]) -> Text:
    """The present text alone: an old value beside it would be one more thing to hold apart. It is as much part of what
    rules as the head is, so no policy takes it out of a window."""
    lines = [_SAID]
    for key in keys:
        text = text_of_section(head, key)
        lines.append(f"\n[{key}]\n{escape_tags(text)}" if text is not None else f"\n[{key}]\n(no longer stands)")
    said = "\n".join(lines)
    found = measure(tagged(said))
    return Text(text=said, tokens=found.tokens, content=found.content, is_protected=True)
