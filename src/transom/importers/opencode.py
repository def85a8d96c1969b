"""opencode sessions, as `opencode export` writes them: one document of messages, each with its parts.

1. A model call is what stands from `step-start` to `step-finish`: one reply, then the results of its tools. A tool part
   is call and result together.
2. What the model saw is rebuilt as opencode rebuilds it: text marked `synthetic` is the host's, text marked `ignored`
   was never sent, a text file was expanded into synthetic text, a command run as a sub-task and a compaction are fixed
   sentences. A sub-task that a person started shows as a reply without a step, hence without usage: the model did
   not write it. A reply that ended in an error was left out of later prompts, unless it was only aborted.
3. `state.time.compacted` is when an output left the prompt (the export still has it). Outputs pruned between two
   messages are cleared there in one go.
4. A compaction is a user message with a `compaction` part and the summary that answers it; the new window begins with
   those two. A `revert` that still stands takes the messages from it on away: a fork with nothing said on it yet.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

import msgspec

from transom.core.block import Block, Image, Opaque, Text, Thought, ToolCall, ToolResultRaw, ToolResultRef
from transom.core.canon import FORMAT as LOG_FORMAT
from transom.core.event import (
    EpochOpened,
    Fact,
    HostSaid,
    ModelReplied,
    Observed,
    RequestFailed,
    Section,
    SessionOpened,
    ToolReturned,
    UserSaid,
)
from transom.importers import opencode_parts as shape
from transom.importers.draft import Cleared, Compacted, Item, Note, Said, Unknown
from transom.importers.effects import effect_of
from transom.importers.fields import image, raw_text
from transom.importers.source import Source
from transom.ports import Blobs

__all__ = ["FORMAT", "parse", "sniff"]

FORMAT = "opencode"

_HEAD = re.compile(rb'\s*\{\s*"info"\s*:\s*\{')
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,")

# What opencode puts before the model in place of a part or an output (its `toModelMessages`).
_SUBTASK = "The following tool was executed by the user"
_COMPACTION = "What did we do so far?"
_PRUNED = "[Old tool result content cleared]"

_EXPANDED = {"text/plain", "application/x-directory"}
"""Media types of files that opencode sends as synthetic text, not as files."""

_FAILURES: dict[str, Literal["overflow", "auth", "invalid", "aborted"]] = {
    "ContextOverflowError": "overflow",
    "MessageAbortedError": "aborted",
    "MessageOutputLengthError": "invalid",
    "ProviderAuthError": "auth",
}


def sniff(source: Source) -> bool:
    """An export opens with the session's `info`; its ids begin with `ses_`."""
    head = source.head(4096)
    return _HEAD.match(head) is not None and (b'"ses_' in head or b'"projectID"' in head)


def parse(source: Source, blobs: Blobs) -> Iterator[Item]:
    export = source.document(shape.EXPORT)
    reader = _Reader(session=export.info, blobs=blobs)
    yield from reader.opening(export.messages)
    *earlier, last = export.messages or (shape.Message(info=msgspec.Raw(b"null")),)
    for message in earlier:
        yield from reader.message(message)
    if _is_being_written(last):
        yield Note(text="the last message is being written: it is read when it is whole")
    elif export.messages:
        yield from reader.message(last)
    yield from reader.cleared(None)
    yield from reader.reverted()


@dataclass(slots=True, kw_only=True)
class _Step:
    """One call of the model and what its tools gave."""

    at: int
    blocks: list[Block] = field(default_factory=list)
    results: list[Said] = field(default_factory=list)
    finish: shape.StepFinish | None = None


@dataclass(slots=True, kw_only=True)
class _Reader:
    session: shape.Session
    blobs: Blobs
    seen: Counter[str] = field(default_factory=Counter)
    pruned: list[tuple[int, str, ToolResultRef]] = field(default_factory=list)
    starts: dict[str, str] = field(default_factory=dict)
    last: str = ""
    asked: str = ""
    window_tokens: int = 0

    def said(self, uuid: str, at: int, fact: Fact) -> Said:
        """A fact under the source's own id; an id that comes again gets `.1`, `.2`, …"""
        count = self.seen[uuid]
        self.seen[uuid] += 1
        self.last = f"{uuid}.{count}" if count else uuid
        return Said(session=self.session.id or "main", uuid=self.last, at=at, fact=fact)

    def opening(self, messages: tuple[shape.Message, ...]) -> Iterator[Item]:
        infos = [info for message in messages if (info := shape.read(message.info, shape.INFO))]
        first = next((info for info in infos if info.model), None)
        session = self.session
        opened = SessionOpened(
            format=LOG_FORMAT,
            agent="opencode",
            agent_version=session.version,
            model=first.model if first else "",
            provider=first.provider if first else "",
            workspace=session.directory,
            title=session.title,
        )
        at = session.time.created
        yield self.said("session", at, opened)
        system = next((info.system for info in infos if info.system), ())
        texts = (system,) if isinstance(system, str) else system
        if texts:
            sections = tuple(Section(key=f"system-{number}", text=text) for number, text in enumerate(texts, 1))
            yield self.said("epoch", at, EpochOpened(sections=sections))

    def message(self, message: shape.Message) -> Iterator[Item]:
        info = shape.read(message.info, shape.INFO)
        if info is None:
            yield from self.strange("message", 0, message.info)
            return
        yield from self.cleared(info.time.created)
        self.starts.setdefault(info.id, self.last)
        parts = [(part, raw) for raw in message.parts if (part := shape.read(raw, shape.PART))]
        if info.role == "assistant":
            yield self.said(f"{info.id}.info", info.time.created, Observed(kind="message", raw=raw_text(message.info)))
            yield from self.answered(info, parts)
        else:
            yield from self.said_to(info, parts)
        for raw in message.parts:
            part = shape.read(raw, shape.PART)
            if part is None:
                yield from self.strange(info.id, info.time.created, raw)
            elif _is_unsent(part):
                kind = shape.kind_of(raw)
                yield self.said(f"{info.id}.{kind}", info.time.created, Observed(kind=kind, raw=raw_text(raw)))

    def strange(self, uuid: str, at: int, raw: msgspec.Raw) -> Iterator[Item]:
        kind = shape.kind_of(raw)
        yield self.said(f"{uuid}.unknown", at, Observed(kind=kind, raw=raw_text(raw)))
        yield Unknown(kind=kind)

    # -- the user's side

    def said_to(self, info: shape.Info, parts: list[tuple[shape.Part, msgspec.Raw]]) -> Iterator[Item]:
        """One fact for each run of blocks a person gave, or the client put in."""
        at = info.time.created
        blocks = [found for part, _ in parts if (found := self.given(part))]
        for is_typed, run in groupby(blocks, lambda found: found[0]):
            given = tuple(block for _, block in run)
            fact = UserSaid(blocks=given) if is_typed else HostSaid(kind="injected", blocks=given)
            yield self.said(info.id, at, fact)
        self.asked = self.last if any(isinstance(part, shape.CompactionMark) for part, _ in parts) else ""

    def given(self, part: shape.Part) -> tuple[bool, Block] | None:
        """(whether a person gave it, the block), or None for what is not sent."""
        match part:
            case shape.TextPart(ignored=False):
                return not part.synthetic, Text(text=part.text)
            case shape.File() if part.mime not in _EXPANDED:
                return True, self.file(part)
            case shape.Subtask():
                return False, Text(text=_SUBTASK)
            case shape.CompactionMark():
                return False, Text(text=_COMPACTION)
            case _:
                return None

    def file(self, part: shape.File) -> Block:
        if found := _DATA_URL.match(part.url):
            data = part.url[found.end() :]
            if part.mime.startswith("image/"):
                return image(self.blobs, part.mime, data)
            return Opaque(kind="file", raw=msgspec.json.encode(part).decode())
        return Image(media_type=part.mime, url=part.url)

    # -- the model's side

    def answered(self, info: shape.Info, parts: list[tuple[shape.Part, msgspec.Raw]]) -> Iterator[Item]:
        at = info.time.created
        if info.error and (info.error.name != "MessageAbortedError" or not _is_sent(parts)):
            message = info.error.data.message or info.error.name
            yield self.said(info.id, at, RequestFailed(kind=_FAILURES.get(info.error.name, "other"), message=message))
            for _, raw in parts:
                yield self.said(f"{info.id}.unsent", at, Observed(kind="unsent", raw=raw_text(raw)))
            return
        for step in self.steps(info, parts):
            stop_reason = step.finish.reason if step.finish else info.finish
            usage = shape.usage_of(step.finish) if step.finish else None
            before = self.window_tokens
            self.window_tokens = usage.prompt + usage.output if usage else before
            reply = ModelReplied(
                blocks=tuple(step.blocks),
                model=info.model,
                stop_reason="aborted" if info.error else stop_reason,
                usage=usage,
            )
            yield self.said(info.id, step.at, reply)
            replied = self.last
            yield from step.results
            if info.summary is True and self.asked:
                yield self.compacted(info, replied, before)

    def steps(self, info: shape.Info, parts: list[tuple[shape.Part, msgspec.Raw]]) -> Iterator[_Step]:
        step = _Step(at=info.time.created)
        for part, _ in parts:
            match part:
                case shape.StepStart():
                    if step.blocks or step.finish:
                        yield step
                    step = _Step(at=info.time.created)
                case shape.StepFinish():
                    step.finish = part
                case shape.TextPart(ignored=False):
                    step.blocks.append(Text(text=part.text))
                case shape.Reasoning():
                    step.blocks.append(Thought(text=part.text, opaque=raw_text(part.metadata)))
                case shape.ToolPart():
                    call = ToolCall(call_id=part.call_id, name=part.tool, arguments=raw_text(part.state.input))
                    step.blocks.append(call)
                    step.results.extend(self.result(part))
                case _:
                    pass
        if step.blocks or step.finish:
            yield step

    def result(self, part: shape.ToolPart) -> Iterator[Said]:
        state = part.state
        if state.status not in {"completed", "error"}:
            return
        is_error = state.status == "error"
        text = state.error if is_error else state.output
        exited = shape.read(state.metadata, shape.EXIT)
        fact = ToolReturned(
            call_id=part.call_id,
            blocks=(ToolResultRaw(text=text), *map(self.file, state.attachments or ())),
            is_error=is_error,
            effect=effect_of(part.tool),
            exit_code=exited.exit if exited else None,
        )
        uuid, at = part.id or part.call_id, state.time.end
        yield self.said(uuid, at, fact)
        if state.time.compacted:
            stub = ToolResultRef(text=_PRUNED, size=len(text.encode("utf-8", "surrogatepass")))
            self.pruned.append((state.time.compacted, self.last, stub))
        if state.metadata:
            yield self.said(f"{uuid}.metadata", at, Observed(kind="tool/metadata", raw=raw_text(state.metadata)))

    # -- what left the window

    def cleared(self, before: int | None) -> Iterator[Item]:
        """The outputs pruned before this time, and not yet said so."""
        due = sorted(prune for prune in self.pruned if before is None or prune[0] < before)
        if due:
            self.pruned = [prune for prune in self.pruned if prune not in due]
            self.last = f"pruned.{due[0][0]}"
            targets = tuple((uuid, stub) for _, uuid, stub in due)
            session = self.session.id or "main"
            yield Cleared(session=session, uuid=self.last, at=due[-1][0], how="mask", targets=targets)

    def compacted(self, info: shape.Info, summary: str, before: int) -> Compacted:
        kept = (self.asked, summary)
        self.asked = ""
        self.last = f"{info.id}.compaction"
        return Compacted(
            session=self.session.id or "main",
            uuid=self.last,
            at=info.time.created,
            seed=(),
            kept_tail=kept,
            tokens_before=before,
        )

    def reverted(self) -> Iterator[Item]:
        revert = self.session.revert
        parent = self.starts.get(revert.message_id) if revert else None
        if revert and parent:
            session = self.session.id or "main"
            opened = SessionOpened(
                format=LOG_FORMAT,
                kind="fork",
                agent="opencode",
                agent_version=self.session.version,
                workspace=self.session.directory,
                title=self.session.title,
            )
            key = f"{session}~{revert.message_id}"
            yield Said(session=key, uuid="session", at=0, fact=opened, parent=(session, parent))


def _is_being_written(message: shape.Message) -> bool:
    """Whether the model still answers: no later prompt held the message, and the next export will say more."""
    info = shape.read(message.info, shape.INFO)
    return bool(info and info.role == "assistant" and not info.time.completed and not info.error and not info.finish)


def _is_unsent(part: shape.Part) -> bool:
    """Whether a part, or what it says beyond a fixed sentence, never stood before the model."""
    match part:
        case shape.TextPart():
            return part.ignored
        case shape.File():
            return part.mime in _EXPANDED
        case _:
            return isinstance(part, shape.Silent | shape.Subtask | shape.CompactionMark)


def _is_sent(parts: list[tuple[shape.Part, msgspec.Raw]]) -> bool:
    """Whether opencode keeps an aborted reply: it has more than the start of a step and a thought."""
    return any(not isinstance(part, shape.StepStart | shape.Reasoning) for part, _ in parts)
