"""Every stored type: the event envelope and the closed union of facts. The only file that defines one.

A fact says what happened, in the past tense, and is never changed. What changes what the model sees is a fact
(L3). `docs/log-format.md` is generated from this file.

Provenance (user, model, tool, host, operator) follows from the type of the fact, never from a wire role or a text
tag: turn boundaries, ages and protections are derived from it. Synthetic host text is never a user turn.

Numbers are integers: tokens, bytes, milliseconds since the epoch, micro-dollars. There are no floats in a fact, so
that canonical bytes are the same everywhere (`canon`).
"""

from __future__ import annotations

from typing import Literal, TypeAlias, assert_never

import msgspec

from transom.core.block import Block
from transom.core.canon import canonical, parse

__all__ = [
    "BlockReplaced",
    "CheckpointAccepted",
    "Coverage",
    "Demotion",
    "Disposition",
    "Draft",
    "Effect",
    "EpochCause",
    "EpochOpened",
    "Event",
    "Fact",
    "Handoff",
    "HostSaid",
    "How",
    "Inference",
    "Link",
    "ModeChanged",
    "ModelReplied",
    "NegativeNoted",
    "NodeCheckpointed",
    "Observed",
    "Provenance",
    "RecallMissed",
    "RelatedFile",
    "Replacement",
    "RequestFailed",
    "RequestSent",
    "Requirement",
    "RolloverDeclared",
    "Section",
    "SectionChanged",
    "Seed",
    "SessionOpened",
    "SourceRead",
    "SummaryProposed",
    "SummaryRefused",
    "SummaryRequested",
    "TaskCommitted",
    "TaskFailed",
    "TaskPicked",
    "TaskVerified",
    "TodoChanged",
    "TodoItem",
    "Tool",
    "ToolDispatched",
    "ToolReturned",
    "Usage",
    "UserDisposed",
    "UserSaid",
    "WindowCause",
    "WindowOpened",
    "WindowRefused",
    "decode_fact",
    "encode_fact",
    "provenance",
]

Provenance = Literal["user", "model", "tool", "host", "operator"]
Effect = Literal["none", "read", "write", "external"]
Disposition = Literal["open", "answered", "superseded"]
How = Literal["offload", "mask", "prune", "redact"]
EpochCause = Literal[
    "initial",
    "change:model",
    "change:provider",
    "change:tools",
    "change:system",
    "change:params",
    "change:mode",
    "resume",
]
WindowCause = Literal[
    "model", "hard-limit", "cost", "task", "overflow", "operator", "watermark", "fifo", "checkpoint", "recorded"
]


class _Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="fact", gc=False):
    """Frozen values of frozen values hold no cycle, so the collector need not walk them (`gc=False`)."""


# -- values inside facts


class Link(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A place in a chain: `digest` (hex) is the digest after event `seq` of `session_id`."""

    session_id: str
    seq: int
    digest: str


class Coverage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The covered prefix: every event through `through_seq`, whose chain digest (hex) is `digest` (L8)."""

    through_seq: int
    digest: str


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the provider reported for one reply, in its tokens. The prompt is `uncached + cached + written`: whatever
    "input" means in a source, importers split it so. `-1` means the provider did not say."""

    uncached: int = 0
    cached: int = 0
    written: int = 0
    written_1h: int = 0
    """The part of `written` at the one-hour price."""
    output: int = 0
    """All output tokens, reasoning included."""
    reasoning: int = -1
    cost_microusd: int = -1

    @property
    def prompt(self) -> int:
        """Tokens of the whole prompt."""
        return self.uncached + self.cached + self.written


class Section(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One named part of the system prompt."""

    key: str
    text: str
    tokens: int = 0


class Tool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One tool of the catalogue; `schema` is the raw JSON text of its parameters, in the provider's order."""

    name: str
    description: str = ""
    schema: str = "{}"
    tokens: int = 0


class Replacement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Block number `index` of the message of event `seq` is shown as `block` from now on; null hides it."""

    seq: int
    index: int
    block: Block | None


class Seed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message a new window starts with, that is no event of its own. `of` names the event whose words it repeats,
    `sections` the keys of the head whose present text it says."""

    role: Literal["user", "assistant", "host"]
    blocks: tuple[Block, ...]
    of: int = 0
    sections: tuple[str, ...] = ()


class Requirement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A claim with its source: a `message_uuid`, or `path[:line]`."""

    text: str
    source: str


class Inference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a model concluded. It stays an inference however often it is repeated (L7): `generation` is the one in which
    it was first made."""

    text: str
    generation: int = 0


class Demotion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A claimed requirement whose source does not hold, with the reason: it became an inference."""

    text: str
    source: str
    reason: str


class Handoff(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The four sections a window leaves to the next one."""

    requirements: tuple[Requirement, ...] = ()
    inferences: tuple[Inference, ...] = ()
    conflicts: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()


class RelatedFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    path: str
    role: Literal["spec", "decision", "implementation", "test", "handoff", "other"]
    note: str


class TodoItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    text: str
    status: Literal["pending", "in_progress", "completed", "cancelled"]


# -- session


class SessionOpened(_Fact, frozen=True, kw_only=True, tag="session_opened"):
    """The first event of every session. A `fork` continues its parent's chain and numbering at `parent`; a `child`
    (sub-agent) has its own window and only names where it was started."""

    format: int
    """The log format that wrote this session (`canon.FORMAT`)."""
    kind: Literal["root", "fork", "child"] = "root"
    parent: Link | None = None
    agent: str = ""
    """What drives the session: `claude-code`, `codex`, … or `transom`."""
    agent_version: str = ""
    model: str = ""
    provider: str = ""
    workspace: str = ""
    title: str = ""
    policy: str = ""
    counter: str = ""
    """The counter that made the block counts: `o200k` or `heuristic`."""
    context_limit: int = 0
    """Tokens; 0 = unknown."""


class SourceRead(_Fact, frozen=True, kw_only=True, tag="source_read"):
    """An import read this much of a file. Nothing read is ever lost without a word: what was not understood is
    counted here by name, what could not be read by line."""

    path: str
    format: str
    size: int
    """Bytes of the (decompressed) source read so far."""
    sha256: str
    """Hex digest of exactly those bytes: a file that still starts with them has grown, any other was rewritten."""
    records: int = 0
    unknown: tuple[tuple[str, int], ...] = ()
    """(type of a record nobody understood, how many)."""
    quarantined: tuple[tuple[int, str], ...] = ()
    """(line number, what is wrong with it); the raw text is an `Observed` of kind `quarantined`."""
    notes: tuple[str, ...] = ()
    """Sentences for a person: a torn last line, two values on one line, a clock that went backwards, …"""


class Observed(_Fact, frozen=True, kw_only=True, tag="observed"):
    """Something the host saw that was never sent to the model, as raw text (usually JSON): Claude Code's
    `toolUseResult`, Codex's `event_msg`, progress, unknown and unreadable records. In the log, never in a window."""

    kind: str
    raw: str


# -- conversation


class UserSaid(_Fact, frozen=True, kw_only=True, tag="user_said"):
    """Words a person typed. Text a client injected is `HostSaid`, whatever its wire role was."""

    blocks: tuple[Block, ...]
    by: Literal["user", "operator"] = "user"
    wire: str = ""
    """What stood for it in a client's request, raw JSON text, where that does not follow from the blocks (also below):
    the gateway shows it while no block is replaced."""


class ModelReplied(_Fact, frozen=True, kw_only=True, tag="model_replied"):
    """One whole response of the model: all its blocks in order, thoughts and parallel calls included."""

    blocks: tuple[Block, ...]
    model: str = ""
    stop_reason: str = ""
    """The provider's own word; `error` and `aborted` for replies that broke off."""
    usage: Usage | None = None
    response_id: str = ""
    wire: str = ""


class ToolReturned(_Fact, frozen=True, kw_only=True, tag="tool_returned"):
    """The result of one call, as the model saw it."""

    call_id: str
    blocks: tuple[Block, ...]
    is_error: bool = False
    effect: Effect = "external"
    """What running the tool can change: nothing, nothing (it reads), the workspace, the world."""
    exit_code: int | None = None
    by: Literal["tool", "host"] = "tool"
    """`host` closed a call that has no result (interrupted, or never recorded), so that pairs stay whole (L10)."""
    wire: str = ""


class ToolDispatched(_Fact, frozen=True, kw_only=True, tag="tool_dispatched"):
    """These calls are about to run. A call with this fact and no result may or may not have had its effect; one without
    it was never started."""

    call_ids: tuple[str, ...]


class RecallMissed(_Fact, frozen=True, kw_only=True, tag="recall_missed"):
    """A recall found nothing: the same or a narrower query is refused in this window."""

    query: str


class HostSaid(_Fact, frozen=True, kw_only=True, tag="host_said"):
    """Text the host put before the model: never a user turn. One of kind `context` says what `sections` (keys of the
    head) are now. What `stands` under a name holds until another one of that name comes: every window shows it."""

    kind: Literal["injected", "reminder", "fallback", "context", "gap", "recall", "refusal", "continue"]
    blocks: tuple[Block, ...]
    wire: str = ""
    sections: tuple[str, ...] = ()
    stands: str = ""


# -- head


class EpochOpened(_Fact, frozen=True, kw_only=True, tag="epoch_opened"):
    """The frozen head from here on."""

    sections: tuple[Section, ...] = ()
    tools: tuple[Tool, ...] = ()
    unseen_tokens: int = 0
    """Tokens of a head the recording does not hold (system prompt and tools of most clients)."""
    reason: EpochCause = "initial"
    order: tuple[str, ...] = ()
    """Keys in the order of their sections, those without one too, so that a section that comes later has its place."""


class SectionChanged(_Fact, frozen=True, kw_only=True, tag="section_changed"):
    """What a section of the head says from here on; null: it no longer stands. The frozen bytes are not touched."""

    key: str
    text: str | None


# -- body


class BlockReplaced(_Fact, frozen=True, kw_only=True, tag="block_replaced"):
    """These blocks are shown as others from now on; the log keeps the originals."""

    how: How
    targets: tuple[Replacement, ...]


class RolloverDeclared(_Fact, frozen=True, kw_only=True, tag="rollover_declared"):
    """Intent: a model asked for a new window. The boundary commits it, once, as `WindowOpened`."""

    call_id: str
    handoff: Handoff
    """As the host has checked it: every requirement's source resolves."""
    related_files: tuple[RelatedFile, ...] = ()
    demoted: tuple[Demotion, ...] = ()


class WindowOpened(_Fact, frozen=True, kw_only=True, tag="window_opened"):
    """Commit: from here on the model sees head, `kept_head`, `seed`, `kept_tail`, and what is appended after.
    `kept_*` are seqs of events shown as they were."""

    cause: WindowCause
    generation: int
    seed: tuple[Seed, ...] = ()
    kept_head: tuple[int, ...] = ()
    kept_tail: tuple[int, ...] = ()
    coverage: Coverage | None = None
    tokens_before: int = 0
    tokens_after: int = 0
    declared_by: str = ""
    """uuid of the message that declared the rollover; empty when the host did it."""


class WindowRefused(_Fact, frozen=True, kw_only=True, tag="window_refused"):
    """A rewrite or a new window was due and not done: it would have gained too little, or the breaker is open (L11)."""

    cause: str
    """What was due: a `WindowCause` or a `How`."""
    reason: str
    tokens_before: int = 0
    tokens_after: int = 0


class SummaryRequested(_Fact, frozen=True, kw_only=True, tag="summary_requested"):
    coverage: Coverage
    prompt_version: str


class SummaryProposed(_Fact, frozen=True, kw_only=True, tag="summary_proposed"):
    coverage: Coverage
    text: str
    model: str
    prompt_version: str
    stop_reason: str = ""
    usage: Usage | None = None


class SummaryRefused(_Fact, frozen=True, kw_only=True, tag="summary_refused"):
    coverage: Coverage
    reason: str


class CheckpointAccepted(_Fact, frozen=True, kw_only=True, tag="checkpoint_accepted"):
    """An accepted summary: a view with coverage, its author and its predecessor (L8)."""

    coverage: Coverage
    text: str
    model: str
    prompt_version: str
    predecessor: str = ""
    carried: tuple[str, ...] = ()
    """Protected literals of the span that the text lacks and the record carries."""


# -- request


class RequestSent(_Fact, frozen=True, kw_only=True, tag="request_sent"):
    """The verdict on a request, appended before it is sent. Digests are hex; `body` is rolling over the first
    `body_messages` wire messages."""

    head: str
    body: str
    body_messages: int
    tail: str = ""
    verdict: Literal["hit", "miss", "drift"] = "hit"
    reasons: tuple[str, ...] = ()
    tokens: int = 0
    """Estimated prompt tokens in the model's own tokens."""
    tail_tokens: int = 0
    """Those of the tail among them, which the next request does not have."""
    cached_tokens: int = 0
    """Not filled: what the provider's rules say is read follows from the log (`core.ledger`)."""
    provider: str = ""
    model: str = ""
    fields: str = ""
    """Who is asked, and a digest of the request fields the messages are cached under: a change is a named miss."""


class RequestFailed(_Fact, frozen=True, kw_only=True, tag="request_failed"):
    kind: Literal["overflow", "rate", "auth", "unavailable", "invalid", "aborted", "other"]
    message: str


# -- state


class TodoChanged(_Fact, frozen=True, kw_only=True, tag="todo_changed"):
    items: tuple[TodoItem, ...]


class NegativeNoted(_Fact, frozen=True, kw_only=True, tag="negative_noted"):
    attempt: str
    outcome: str
    """The literal error."""


class UserDisposed(_Fact, frozen=True, kw_only=True, tag="user_disposed"):
    seq: int
    """Of the user message."""
    disposition: Disposition
    by: int = 0
    """seq of the reply or message that closed it."""


class ModeChanged(_Fact, frozen=True, kw_only=True, tag="mode_changed"):
    mode: str
    pending_approvals: tuple[str, ...] = ()


class TaskPicked(_Fact, frozen=True, kw_only=True, tag="task_picked"):
    task_id: str
    attempt: int


class TaskVerified(_Fact, frozen=True, kw_only=True, tag="task_verified"):
    task_id: str
    command: str
    exit_code: int


class TaskFailed(_Fact, frozen=True, kw_only=True, tag="task_failed"):
    task_id: str
    attempt: int
    error: str


class TaskCommitted(_Fact, frozen=True, kw_only=True, tag="task_committed"):
    task_id: str
    commit: str


class NodeCheckpointed(_Fact, frozen=True, kw_only=True, tag="node_checkpointed"):
    run_id: str
    node: str
    commit: str


Fact: TypeAlias = (
    SessionOpened
    | SourceRead
    | Observed
    | UserSaid
    | ModelReplied
    | ToolDispatched
    | ToolReturned
    | RecallMissed
    | HostSaid
    | EpochOpened
    | SectionChanged
    | BlockReplaced
    | RolloverDeclared
    | WindowOpened
    | WindowRefused
    | SummaryRequested
    | SummaryProposed
    | SummaryRefused
    | CheckpointAccepted
    | RequestSent
    | RequestFailed
    | TodoChanged
    | NegativeNoted
    | UserDisposed
    | ModeChanged
    | TaskPicked
    | TaskVerified
    | TaskFailed
    | TaskCommitted
    | NodeCheckpointed
)

_DECODER: msgspec.json.Decoder[Fact] = msgspec.json.Decoder(Fact)


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One fact in its place: `seq` is dense per session and the only order, `uuid` a name, `at` ms since the epoch
    (a clock, never an order), `digest` the 32-byte chain digest after this event."""

    session_id: str
    seq: int
    uuid: str
    at: int
    fact: Fact
    digest: bytes = b""


class Draft(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A fact that has no place yet: the log assigns `seq` and `digest` on append."""

    fact: Fact
    uuid: str
    at: int


def encode_fact(fact: Fact) -> bytes:
    """Canonical bytes of a fact."""
    return canonical(fact)


def decode_fact(data: bytes) -> Fact:
    """The fact of canonical bytes. Raises `msgspec.DecodeError` or `msgspec.ValidationError`."""
    return parse(data, _DECODER)


def provenance(fact: Fact) -> Provenance:
    """Who a fact comes from."""
    match fact:
        case UserSaid():
            return fact.by
        case ModelReplied() | RolloverDeclared():
            return "model"
        case ToolReturned():
            return "tool"
        case (
            SessionOpened()
            | SourceRead()
            | Observed()
            | ToolDispatched()
            | RecallMissed()
            | HostSaid()
            | EpochOpened()
            | SectionChanged()
            | BlockReplaced()
            | WindowOpened()
            | WindowRefused()
            | SummaryRequested()
            | SummaryProposed()
            | SummaryRefused()
            | CheckpointAccepted()
            | RequestSent()
            | RequestFailed()
            | TodoChanged()
            | NegativeNoted()
            | UserDisposed()
            | ModeChanged()
            | TaskPicked()
            | TaskVerified()
            | TaskFailed()
            | TaskCommitted()
            | NodeCheckpointed()
        ):
            return "host"
        case _:
            assert_never(fact)
