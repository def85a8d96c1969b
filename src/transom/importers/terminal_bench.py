"""Terminal-Bench: ATIF trajectories (one document, or an array of them), and the Harbor trial folders they stand in.

1. A trajectory is a session; an array holds several. User steps are `UserSaid`, but for those of rule 3. A system step
   before anything was said is the head, a later one `HostSaid`.
2. ATIF with `tool_calls`: a step often has one observation for all its calls. Where a result names its call
   (`source_call_id`), or there are as many results as calls, they are paired so. Else the text goes to the step's last
   call, behind which it was taken, and the others have an empty result; a note says how many.
3. ATIF without: the agent wrote a JSON object with `commands` into its message. That object, as written, is the call,
   named after its field; the next user step is its result. A message without one made no call, and the user step that
   answers it is the harness speaking: `HostSaid`.
4. A trial folder is read through `agent/trajectory.json`. Where that is missing (the agent was killed before it wrote
   it), `agent/episode-N` tells the same: `prompt.txt` is what was new, `response.txt` the reply, `debug.json` its
   usage. What the trial wrote about itself is `Observed`.
5. `prompt_tokens` includes cached tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

import msgspec

from transom.core.block import Block, Text, Thought, ToolCall, ToolResultRaw
from transom.core.canon import FORMAT as LOG_FORMAT
from transom.core.event import (
    EpochOpened,
    HostSaid,
    ModelReplied,
    Observed,
    Section,
    SessionOpened,
    ToolReturned,
    Usage,
    UserSaid,
)
from transom.errors import BadInput
from transom.importers.draft import Item, Note, Said, Unknown
from transom.importers.effects import effect_of
from transom.importers.fields import ABSENT, iso_ms, raw_text, read
from transom.importers.messages import (
    Scribe,
    catalogue,
    content_blocks,
    micro_dollars,
    read_nested,
    result_blocks,
    text_or_raw,
    usage_of,
)
from transom.importers.source import Source
from transom.importers.wrapping import root_of
from transom.ports import Blobs

__all__ = ["FORMAT", "parse", "sniff"]

FORMAT = "terminal-bench"

_TRIAL_FILE = re.compile(r"agent/(?:trajectory\.json|episode-(\d+)/(?:prompt\.txt|response\.txt|debug\.json))")
_ABOUT = ("config.json", "result.json", "exception.txt", "trial.log")
_ABOUT_BYTES = 1 << 20
"""Kept at most of each file a trial wrote about itself, and of a prompt or reply of an episode."""

_TRIES = 100
"""Braces at which an object is looked for in a message: enough for prose around it, few enough for one of braces."""


class _Agent(msgspec.Struct):
    name: str = ""
    version: str = ""
    model_name: str | None = None
    tool_definitions: list[msgspec.Raw] | None = None


class _Document(msgspec.Struct):
    steps: list[msgspec.Raw]
    session_id: str = ""
    agent: msgspec.Raw = ABSENT


class _Call(msgspec.Struct):
    tool_call_id: str = ""
    function_name: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


class _Result(msgspec.Struct):
    source_call_id: str | None = None
    content: str | list[msgspec.Raw] | None = None


class _Observation(msgspec.Struct):
    results: list[_Result] = []


class _Metrics(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None


class _Step(msgspec.Struct):
    step_id: int | None = None
    timestamp: str | None = None
    source: str = ""
    model_name: str | None = None
    message: str | list[msgspec.Raw] | None = None
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None
    observation: _Observation | None = None
    metrics: msgspec.Raw = ABSENT


class _Debug(msgspec.Struct):
    model: str = ""
    start_time: str = ""
    original_response: msgspec.Raw = ABSENT


class _Response(msgspec.Struct):
    usage: msgspec.Raw = ABSENT
    model: str = ""


class _Commands(msgspec.Struct):
    commands: msgspec.Raw


_ANY = msgspec.json.Decoder(_Document | list[msgspec.Raw])
_DOCUMENT = msgspec.json.Decoder(_Document)
_AGENT = msgspec.json.Decoder(_Agent)
_STEP = msgspec.json.Decoder(_Step)
_DEBUG = msgspec.json.Decoder(_Debug)
_RESPONSE = msgspec.json.Decoder(_Response)
_COMMANDS = msgspec.json.Decoder(_Commands)
_METRICS = msgspec.json.Decoder(_Metrics)
_OBJECT = json.JSONDecoder(strict=False)


def sniff(source: Source) -> bool:
    head = source.head()
    if head:
        return head.lstrip()[:1] in {b"{", b"["} and b'"ATIF-v' in head
    return root_of(source, _TRIAL_FILE) is not None


def parse(source: Source, blobs: Blobs) -> Iterator[Item]:
    root = root_of(source, _TRIAL_FILE)
    if root is not None:
        yield from _trial(source, root, blobs)
        return
    document = source.document(_ANY)
    if isinstance(document, _Document):
        yield from _trajectory(document, document.session_id or PurePosixPath(source.name).name, blobs)
        return
    seen: dict[str, int] = {}
    for raw in document:
        one = read(raw, _DOCUMENT)
        if one is None:
            yield Unknown(kind="trajectory of unknown shape")
            continue
        key = one.session_id or PurePosixPath(source.name).name
        seen[key] = seen.get(key, 0) + 1
        yield from _trajectory(one, f"{key}.{seen[key]}", blobs)


def _trajectory(document: _Document, session: str, blobs: Blobs) -> Iterator[Item]:
    agent = read(document.agent, _AGENT) or _Agent()
    telling = _Telling(Scribe(session), agent, blobs)
    yield telling.open("")
    for number, raw in enumerate(document.steps, 1):
        step = read(raw, _STEP)
        if step is None:
            yield Unknown(kind="step of unknown shape")
            yield telling.scribe.say(Observed(kind="step", raw=raw_text(raw)), f"step{number}")
            continue
        yield from telling.step(step, f"s{number if step.step_id is None else step.step_id}")
    yield from telling.rest()


def _trial(source: Source, root: str, blobs: Blobs) -> Iterator[Item]:
    members = source.members()
    episodes: dict[int, dict[str, Source]] = {}
    for path, member in members.items():
        found = _TRIAL_FILE.fullmatch(path, len(root))
        if found is not None and found[1]:
            episodes.setdefault(int(found[1]), {})[PurePosixPath(path).name] = member
    written = members.get(f"{root}agent/trajectory.json")
    document: _Document | None = None
    if written is not None:
        try:
            document = written.document(_DOCUMENT)
        except BadInput as error:
            yield Note(text=f"{error}; its episodes are read instead")
    name = root.rstrip("/") or PurePosixPath(source.name).name
    session = name if document is None else document.session_id or name
    if document is not None:
        yield from _trajectory(document, session, blobs)
        if episodes:
            yield Note(text=f"{name}: the requests of {len(episodes)} episodes repeat the trajectory and are not read")
    else:
        yield from _episodes(session, episodes, blobs)
    scribe = Scribe(session)
    for file in _ABOUT:
        about = members.get(root + file)
        if about is not None:
            raw = about.head(_ABOUT_BYTES).decode("utf-8", "replace")
            yield scribe.say(Observed(kind=file, raw=raw), f"trial/{file}")


def _episodes(session: str, episodes: dict[int, dict[str, Source]], blobs: Blobs) -> Iterator[Item]:
    """A trial without a trajectory: the same steps from what each episode kept."""
    telling = _Telling(Scribe(session), _Agent(), blobs)
    yield telling.open(session)
    for number, files in sorted(episodes.items()):
        debug = _Debug()
        if "debug.json" in files:
            try:
                debug = files["debug.json"].document(_DEBUG)
            except BadInput as error:
                yield Note(text=str(error))
        response = read_nested(debug.original_response, _RESPONSE) or _Response()
        at = debug.start_time
        if "prompt.txt" in files:
            yield from telling.step(
                _Step(source="user", message=_words(files["prompt.txt"]), timestamp=at), f"e{number}"
            )
        if "response.txt" in files:
            model = response.model or debug.model
            step = _Step(source="agent", message=_words(files["response.txt"]), timestamp=at, model_name=model)
            yield from telling.step(step, f"e{number}.reply", usage_of(response.usage))
    yield from telling.rest()


def _words(file: Source) -> str:
    return file.head(_ABOUT_BYTES).decode("utf-8", "replace")


class _Telling:
    """The steps of one trajectory as facts."""

    def __init__(self, scribe: Scribe, agent: _Agent, blobs: Blobs) -> None:
        self.scribe = scribe
        self._agent = agent
        self._blobs = blobs
        self._is_begun = False
        self._has_task = False
        self._has_calls = False
        self._pending = ""
        """The call in words whose result is still to come."""
        self._shared = 0

    def open(self, title: str) -> Said:
        fact = SessionOpened(
            format=LOG_FORMAT,
            agent=self._agent.name or FORMAT,
            agent_version=self._agent.version,
            model=self._agent.model_name or "",
            title=title,
        )
        return self.scribe.say(fact, "open")

    def step(self, step: _Step, uuid: str, usage: Usage | None = None) -> Iterator[Item]:
        at = iso_ms(step.timestamp or "")
        if step.source == "system" and not self._is_begun:
            texts = [block.text for block in content_blocks(step.message, self._blobs) if isinstance(block, Text)]
            yield from self._begin((Section(key="system", text="\n".join(texts)),), uuid, at)
            return
        yield from self._begin((), uuid, at)
        match step.source:
            case "agent":
                yield from self._acted(step, uuid, at, usage)
            case "user" if self._pending:
                call_id, self._pending = self._pending, ""
                blocks = result_blocks(step.message, self._blobs)
                yield self.scribe.say(ToolReturned(call_id=call_id, blocks=blocks), uuid, at)
            case "user" if not self._has_task or self._has_calls:
                self._has_task = True
                yield self.scribe.say(UserSaid(blocks=content_blocks(step.message, self._blobs)), uuid, at)
            case "user" | "system":
                said = HostSaid(kind="injected", blocks=content_blocks(step.message, self._blobs))
                yield self.scribe.say(said, uuid, at)
            case source:
                yield Unknown(kind=f"step of source {source or '?'}")
                text = "\n".join(b.text for b in content_blocks(step.message, self._blobs) if isinstance(b, Text))
                yield self.scribe.say(Observed(kind="step", raw=text), uuid, at)

    def rest(self) -> Iterator[Note]:
        if self._shared:
            yield Note(
                text=f"{self._shared} calls have an empty result: one observation stands for all calls of their step, "
                "and is given to the last of them"
            )

    def _begin(self, sections: tuple[Section, ...], uuid: str, at: int) -> Iterator[Said]:
        """Open the epoch before the first words, if anything is known of the head."""
        if self._is_begun:
            return
        self._is_begun = True
        tools = catalogue(self._agent.tool_definitions or ())
        if sections or tools:
            yield self.scribe.say(EpochOpened(sections=sections, tools=tools), f"{uuid}.head", at)

    def _acted(self, step: _Step, uuid: str, at: int, usage: Usage | None) -> Iterator[Said]:
        thoughts: tuple[Block, ...] = (Thought(text=step.reasoning_content),) if step.reasoning_content else ()
        words = content_blocks(step.message, self._blobs)
        calls = tuple(
            ToolCall(
                call_id=call.tool_call_id or f"{uuid}.call{number}",
                name=call.function_name,
                arguments=text_or_raw(call.arguments),
            )
            for number, call in enumerate(step.tool_calls or (), 1)
        )
        self._has_calls = self._has_calls or bool(calls)
        if not calls and step.observation is None:
            words = _with_commands(words, f"{uuid}.call")
            self._pending = next((block.call_id for block in words if isinstance(block, ToolCall)), "")
        fact = ModelReplied(
            blocks=(*thoughts, *words, *calls),
            model=step.model_name or self._agent.model_name or "",
            usage=usage or _split(step.metrics),
        )
        yield self.scribe.say(fact, uuid, at)
        if step.observation is not None:
            yield from self._observed(step.observation.results, calls, uuid, at)

    def _observed(self, results: list[_Result], calls: tuple[ToolCall, ...], uuid: str, at: int) -> Iterator[Said]:
        if not calls:
            for result in results:
                blocks = content_blocks(result.content, self._blobs)
                yield self.scribe.say(HostSaid(kind="injected", blocks=blocks), uuid, at)
            return
        in_turn = len(results) == len(calls)
        texts: dict[str, list[Block]] = {}
        for number, result in enumerate(results):
            settled = result.source_call_id or calls[number if in_turn else -1].call_id
            texts.setdefault(settled, []).extend(result_blocks(result.content, self._blobs))
        for call in calls if results else ():
            blocks = tuple(texts.get(call.call_id, ()))
            self._shared += not blocks
            returned = ToolReturned(
                call_id=call.call_id, blocks=blocks or (ToolResultRaw(text=""),), effect=effect_of(call.name)
            )
            yield self.scribe.say(returned, uuid, at)


def _with_commands(words: tuple[Block, ...], call_id: str) -> tuple[Block, ...]:
    """The words with the object that holds `commands` as a call; as they were where there is none."""
    for at, block in enumerate(words):
        if not isinstance(block, Text):
            continue
        start = -1
        for _ in range(_TRIES):
            start = block.text.find("{", start + 1)
            if start < 0:
                break
            try:
                _, end = _OBJECT.raw_decode(block.text, start)
            except (ValueError, RecursionError):
                continue
            written = block.text[start:end]
            if read(written.encode("utf-8", "replace"), _COMMANDS) is not None:
                before, after = block.text[:start], block.text[end:]
                split: list[Block] = [Text(text=before)] if before.strip() else []
                split.append(ToolCall(call_id=call_id, name="commands", arguments=written))
                split += [Text(text=after)] if after.strip() else []
                return (*words[:at], *split, *words[at + 1 :])
            start = end - 1
    return words


def _split(raw: msgspec.Raw) -> Usage | None:
    metrics = read(raw, _METRICS)
    if metrics is None or metrics.prompt_tokens is None:
        return None
    cached = max(metrics.cached_tokens or 0, 0)
    return Usage(
        uncached=max(metrics.prompt_tokens - cached, 0),
        cached=cached,
        output=max(metrics.completion_tokens or 0, 0),
        cost_microusd=micro_dollars(metrics.cost_usd),
    )
