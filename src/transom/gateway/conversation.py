"""A conversation: one history as a client resends it, and the session that governs what upstream sees of it.

    admit    what is new since the last request becomes facts; what the client resends is known by its digests
    ready    boundary, request, verdict: the bytes for upstream
    settle   an answer becomes a fact; the host's own calls are answered, and the client's are left to the client
    done     the client has its answer

While nothing of a window was replaced, the client's own bytes go upstream, with the host's tools behind its own. From
the first thing that is ours (a rollover, a stub, a recall) upstream gets the projection.

Everything a client sent and got is in the log as it came (`known`).
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec

from transom.core.block import Text, ToolCall
from transom.core.boundary import disposed
from transom.core.breakpoints import breakpoints
from transom.core.canon import plain_text
from transom.core.event import (
    Draft,
    EpochCause,
    EpochOpened,
    Event,
    Fact,
    HostSaid,
    Link,
    ModelReplied,
    Observed,
    RequestFailed,
    RequestSent,
    SessionOpened,
    Tool,
    Usage,
)
from transom.core.evidence import Files
from transom.core.rewriting import is_own_form
from transom.core.state import Item
from transom.core.surface import HOST_TOOLS, NEW_CONTEXT, Surface, surface, withheld_refusal
from transom.core.wire import Rendering
from transom.errors import SequenceConflict
from transom.gateway.face import Call, Face
from transom.gateway.known import Answer, Known, Request, answer_fact, request_fact, runs
from transom.gateway.redaction import NO_RULES, Redactor, redaction
from transom.gateway.room import closed, opening
from transom.hosting import Desk, refused
from transom.ports import Blobs, Log, Reply
from transom.session import Prepared, Rules, Session

__all__ = ["Conversation", "Ready"]

_ELEMENTS = frozenset({"messages", "input"})
_GO_ON = "[host] This is a new window. Go on with the work."
"""Behind what a model said in place of a handoff: an API takes a request that ends with an answer for the start of the
next one, or refuses it."""
_NO_FILES = Files(resolve=lambda path: path, text=lambda _: None)
"""The client's workspace is not ours to read: a handoff's requirements rest on the user's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A request for upstream. `now`, and `hosted` (the host's tools that it offers), say which calls in its answer are
    the client's."""

    body: bytes
    prepared: Prepared
    now: Surface
    hosted: frozenset[str]
    is_plain: bool

    def takes(self, name: str) -> bool:
        """Whether a call of this tool is answered by the host: its own, and what may not be called now."""
        return name in self.hosted or not self.now.accepts(name)

    def wants_more(self, reply: Reply) -> bool:
        """Whether the client has to see more than this answer: the model called only the host, or was asked for a
        handoff and talked."""
        calls = [block.name for block in reply.blocks if isinstance(block, ToolCall)]
        return all(map(self.takes, calls)) if calls else self.now.allowed is not None


@dataclass(slots=True)
class Conversation:
    """Use `start`, `open` or `fork`. One thread at a time."""

    face: Face
    session: Session
    blobs: Blobs
    redactor: Redactor = NO_RULES
    is_plain: bool = True
    host_tools: tuple[Tool, ...] = ()
    """What is offered to the model beside the client's tools."""
    used: list[tuple[str, Usage]] = field(default_factory=list)
    """One of each answer from upstream, with its model. A fork has its own alone, as of `missed`."""
    missed: Tally[str] = field(default_factory=Tally)
    """Requests that did not begin with the one before, by the reason."""
    known: Known = field(init=False)
    asked: Call | None = None
    """The last request, without its bytes."""
    begun: int = 0
    """Messages upstream that a fork began with, where nobody asked for them in its name yet."""
    is_unheard: bool = False
    """The last request asked for a handoff, and nobody answered."""

    def __post_init__(self) -> None:
        self.known = Known(self.face)

    @classmethod
    def start(
        cls,
        face: Face,
        log: Log,
        blobs: Blobs,
        *,
        session_id: str,
        opened: SessionOpened,
        rules: Rules,
        redactor: Redactor,
    ) -> Conversation:
        return cls(face, Session.start(log, session_id, opened, rules), blobs, redactor)

    @classmethod
    def open(
        cls, face: Face, log: Log, blobs: Blobs, *, session_id: str, rules: Rules, redactor: Redactor
    ) -> Conversation:
        """One that is in the log, after a restart."""
        made = cls(face, Session.open(log, session_id, rules), blobs, redactor)
        made._remember(log.read(session_id))
        return made

    def behind(self, call: Call, common: int, *, is_again: bool) -> int:
        """The seq up to which a fork for a request shares this history; 0 if nothing of it. `is_again`: if it is the
        same request again, up to where it was before the answer that was lost."""
        known = self.known
        kept = known.together(common)
        if kept == common:
            return (is_again and self._unread(call, common)) or known.ends[common - 1]
        (last,) = self.session.log.read(self.session_id, known.ends[kept] - 1, known.ends[kept])
        if isinstance(last.fact, Observed):  # an answer of ours, a part of which came back
            return last.seq - 1
        return known.ends[kept - 1] if kept else 0

    def fork(self, end: int, session_id: str) -> Conversation:
        """This conversation as it was at a seq, to be gone on with: a rewind, an edit. Raises `SequenceConflict` if
        the id is taken."""
        log, parent = self.session.log, self.session.session_id
        if log.sessions(session_id):
            raise SequenceConflict(f"session {session_id} was begun by another gateway")
        (last,) = log.read(parent, end - 1, end)
        link = Link(session_id=parent, seq=end, digest=last.digest.hex())
        opened = self.session.state.opened
        assert opened is not None, "a session begins with its opening"
        fact = msgspec.structs.replace(opened, kind="fork", parent=link)
        rules = self.session.rules
        log.append(session_id, end, (Draft(fact=fact, uuid=rules.ids(), at=rules.clock()),))
        return Conversation.open(self.face, log, self.blobs, session_id=session_id, rules=rules, redactor=self.redactor)

    @property
    def session_id(self) -> str:
        return self.session.session_id

    def _remember(self, events: Iterable[Event]) -> None:
        for event in events:
            fact = event.fact
            self.known.remember(event)
            if isinstance(fact, ModelReplied) and fact.usage is not None:
                self.used.append((fact.model, fact.usage))
            elif isinstance(fact, SessionOpened):
                self.used.clear()
                self.missed.clear()
            elif isinstance(fact, RequestSent):
                self.missed.update(fact.reasons)
            elif is_own_form(fact):
                self.is_plain = False

    # -- what a client sends

    def common(self, call: Call) -> int:
        """How many of the elements of a request are known, from the first on."""
        return self.known.common(call.elements[call.lead :])

    def continues(self, call: Call, common: int) -> bool:
        return self.known.continues(call.elements[call.lead :], common) and not self._unread(call, common)

    def is_answered_in(self, call: Call) -> bool:
        """Whether a request goes on with all of this, an answer in it: it is nobody else's then."""
        common = self.common(call)
        return (common > 1 or self.known.answer is not None) and self.continues(call, common)

    def _unread(self, call: Call, common: int) -> int:
        """The seq before the newest answer, if the client asks for it again: it was lost on its way, or with us."""
        items = self.session.state.window.items
        is_same = 0 < common == len(self.known.ends) == len(call.elements) - call.lead
        return items[-1].seq - 1 if is_same and items and self._is_from_upstream(items[-1]) else 0

    def _is_from_upstream(self, item: Item) -> bool:
        """Whether it is an answer since the client's last request."""
        return item.role == "assistant" and item.seq > self.known.ends[-1]

    def admit(self, call: Call, common: int) -> None:
        """Append what a request brings beyond its `common` elements. `continues` must hold."""
        self._head(call)
        new = call.elements[call.lead + common :]
        known = self.known
        known.raws[:] = call.elements[call.lead : call.lead + common]
        if new:
            self._take(call, new, known.answered(new))
        elif rest := self._rest(call):  # asked again, in a form of its own
            self._append(request_fact(Request(digests=[], ends=[], elements=[], rest=rest, is_more=True)))
        self._answer_hosted()
        self.asked = replace(call, body=b"")

    def make_room(self, call: Call, common: int) -> None:
        """Open a window where this fork begins, if what the request brings needs it. Where a model hands over, it is
        asked to as ever."""
        self._head(call)
        state, rules = self.session.state, self.session.rules
        new = call.elements[call.lead + common :]
        if not new or self.host_tools or state.window.calls:
            return
        if any(self.face.speaker(element) == "user" for element in new):
            self._append(*closed(state))
        self._append(*opening(state, rules, new))
        self.begun = 0 if self.is_plain else Rendering(rules.dialect).wire(state).messages

    def extend(self, call: Call) -> None:
        """Append a request that names the answer it continues and brings only what is new."""
        self._head(call)
        self._take(call, call.elements[call.lead :], 0)
        self._answer_hosted()
        self.asked = replace(call, body=b"")

    def _take(self, call: Call, new: Sequence[bytes], answered: int) -> None:
        """Append what new elements say; the first `answered` of them are in the log as the model's own."""
        known = self.known
        rest = self._rest(call)
        before = self.session.state.seq
        facts: list[Fact] = []
        digests = [known.digest(element) for element in new]
        ends: list[int] = []
        for first, end in runs(self.face, new, answered):
            shown = [self.redactor.json(element) for element in new[first:end]]
            seq = before + len(facts) + 1  # of what says that they came: it stands before what they say
            said = self.face.facts(shown, self.blobs) if first >= answered else ()
            if said and shown != list(new[first:end]):
                said = (*said, redaction(seq, said))
            ends.extend([seq + len(said)] * (end - first))
            brought = Request(
                digests=[digest.hex() for digest in digests[first:end]],
                ends=ends[first:end],
                elements=[msgspec.Raw(element) for element in shown],
                rest={} if first else rest,
                is_more=first > 0,
            )
            facts.extend((request_fact(brought), *said))
        self._append(*facts)
        known.take(digests, ends, new)
        is_foreign = any(isinstance(fact, ModelReplied) for fact in facts)
        known.since = before + 1 if is_foreign else 0
        if is_foreign:  # what it has answered needs no room in a window that opens at once
            self._append(*disposed(self.session.state))

    def _rest(self, call: Call) -> dict[str, msgspec.Raw]:
        """The fields of a request that are others than in the one before, as the log keeps them."""
        lead = b"[%b]" % b",".join(call.elements[: call.lead])
        fields = {name: lead if name in _ELEMENTS else value for name, value in call.fields.items()}
        rest = {name: value for name, value in fields.items() if self.known.rest.get(name) != value}
        self.known.rest.update(rest)
        return {name: msgspec.Raw(self.redactor.json(value)) for name, value in rest.items()}

    def _head(self, call: Call) -> None:
        """The client's own system text and tools, with the host's behind them: a new epoch if they changed."""
        if self.asked is not None and self.asked.has_head_of(call):
            return
        sections, tools = self.face.head(call)
        sections = tuple(msgspec.structs.replace(one, text=self.redactor.text(one.text)) for one in sections)
        tools = tuple(_redacted(self.redactor, tool) for tool in tools)
        names = {tool.name for tool in tools}
        # A client's own tool of such a name stays the client's.
        own = tuple(tool for tool in HOST_TOOLS if tool.name not in names) if call.has_tools else ()
        self.host_tools = own if any(tool.name == NEW_CONTEXT for tool in own) else ()
        offered = (*tools, *self.host_tools)
        head = self.session.state.head
        old_tools = tuple(msgspec.structs.replace(tool, tokens=0) for tool in head.tools)
        old_sections = tuple(msgspec.structs.replace(section, tokens=0) for section in head.sections)
        reasons: list[EpochCause] = []
        if old_tools != offered:
            reasons.append("change:tools")
        if old_sections != sections:
            reasons.append("change:system")
        if not head.epoch:
            reasons = ["initial"]
        for reason in reasons:
            self._append(EpochOpened(sections=sections, tools=offered, reason=reason))

    # -- what goes upstream

    def ready(self, call: Call) -> Ready:
        """Decide, and write the request. Raises `OverBudget`."""
        decided = self.session.boundary(model_hands_over=bool(self.host_tools), since=self.known.since)
        if any(is_own_form(event.fact) for event in decided):
            self.is_plain = False
        items = self.session.state.window.items
        if items and self.known.ends and self._is_from_upstream(items[-1]):
            self._append(HostSaid(kind="continue", blocks=(Text(text=_GO_ON),)))
        self.session.show(shows=not self.is_plain)
        prepared = self.session.request()
        now = surface(self.session.state)
        wire, verdict = prepared.wire, prepared.verdict
        self.missed.update(verdict.reasons)
        kept = self.begun if verdict.reasons == ("initial",) else verdict.kept
        body = self.face.body(
            call,
            tools=self.host_tools,
            messages=None if self.is_plain else wire.body[: wire.messages],
            tail=b"" if self.is_plain else wire.tail,
            marks=None if self.is_plain else breakpoints(wire, kept),
            forced=now.forced,
            withheld=now.withheld,
        )
        hosted = frozenset(tool.name for tool in self.host_tools)
        return Ready(body=body, prepared=prepared, now=now, hosted=hosted, is_plain=self.is_plain)

    def failed(self, kind: Literal["overflow", "unavailable", "invalid"], message: str, came: bytes = b"") -> None:
        """Append that a request came to no answer. `came`: what the client had of one by then."""
        self.is_unheard = kind == "unavailable" and surface(self.session.state).allowed is not None
        cut = [Observed(kind="cut_answer", raw=plain_text(came.decode("utf-8", "backslashreplace")))] if came else []
        self._append(*cut, RequestFailed(kind=kind, message=plain_text(self.redactor.text(message))))

    # -- what comes back

    def settle(self, ready: Ready, reply: Reply | None, wire: str, got: Answer | None = None) -> None:
        """Append an answer from upstream, `wire` being its bytes where the blocks do not say them; `got` is what the
        client has then, if no more comes. Without `reply` it is no answer of a model."""
        facts: list[Fact] = []
        if reply is not None:
            said = {"model": reply.model, "stop_reason": reply.stop_reason, "response_id": reply.response_id}
            facts.append(ModelReplied(blocks=reply.blocks, usage=reply.usage, wire=wire, **said))
        if got is not None:
            facts.append(answer_fact(got))
        self._append(*facts)
        if got is not None:  # what could not be kept is read from the next request
            self.known.answer = Answer(calls=got.calls, text=got.text)
        if reply is None:
            return
        self.is_unheard = False
        if reply.usage is not None:
            self.used.append((reply.model, reply.usage))
        if ready.wants_more(reply):
            self._answer_hosted(ready.now)

    def _answer_hosted(self, now: Surface | None = None) -> None:
        """Answer the open calls that are the host's; a handoff is heard last, when its siblings are settled."""
        state = self.session.state
        narrowed = now or surface(state)
        left = state.window.calls.items()
        opened = [ToolCall(call_id=call_id, name=name, arguments=arguments) for call_id, (name, arguments) in left]
        hosted = {tool.name for tool in self.host_tools}
        mine = [call for call in opened if call.name in hosted or not narrowed.accepts(call.name)]
        if not mine:
            return
        above = self.session.rules.policy.offload_above
        counter = self.session.rules.counter
        desk = Desk(
            state=state,
            log=self.session.log,
            files=_NO_FILES,
            hard_limit=self.session.rules.bounds.hard,
            before=next(item.seq for item in reversed(state.window.items) if item.role == "assistant"),
            fits=lambda text: not above or counter.measure(text).tokens <= above,
        )
        for call in mine:
            if not narrowed.accepts(call.name):
                self._append(refused(call, withheld_refusal(call.name)))
            elif call.name != NEW_CONTEXT:
                self._append(*desk.answer(call))
        handoffs = [call for call in mine if call.name == NEW_CONTEXT]
        if handoffs:
            self._append(*desk.declare(handoffs))

    def failed_open(self, reason: str) -> None:
        """A request went upstream ungoverned, for this reason."""
        self._append(Observed(kind="failed_open", raw=reason))

    def _append(self, *facts: Fact) -> None:
        if any(is_own_form(fact) for fact in facts):
            self.is_plain = False
        self.session.append(*facts)


def _redacted(redactor: Redactor, tool: Tool) -> Tool:
    schema = redactor.json(tool.schema.encode()).decode()
    return msgspec.structs.replace(tool, description=redactor.text(tool.description), schema=schema)
