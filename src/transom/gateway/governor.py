"""The governor: which conversation a request belongs to, and under which rules it is governed. Synchronous; all of it
runs in one thread of its own, so that the kernel never meets itself and the socket's loop never waits for it.

A conversation that was long idle is dropped from memory; the log brings it back (`held`).
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache

import msgspec

from transom.adapters.provider_writing import Reach, keyed
from transom.core.budget import LimitSource, limits
from transom.core.canon import FORMAT
from transom.core.costrule import tariff_of
from transom.core.event import Draft, Fact, Observed, SessionOpened
from transom.core.overlay import head_tokens, prompt_tokens
from transom.core.policy import Policy
from transom.core.pricing import PriceTable, find_price, usage_cost
from transom.core.wire import Dialect
from transom.errors import KernelError, SequenceConflict, Unwritable, UsageError
from transom.gateway.conversation import Conversation, Ready
from transom.gateway.face import Call, Face
from transom.gateway.held import Held, Histories, session_name
from transom.gateway.identity import UNKNOWN, Identity
from transom.gateway.journal import note
from transom.gateway.known import Answer
from transom.gateway.redaction import Redactor
from transom.ports import Blobs, Counter, Log, Reply
from transom.session import Rules

__all__ = ["Governor", "Turn"]

Row = dict[str, str | int | float | dict[str, int]]

_LATEST, _RULES = 64, 64
"""Answers that a request may name where the server keeps the history, and rules in memory."""
_RACES = 8
"""Times that a request is looked at anew because another gateway appended to the same history."""
_KEYED = frozenset({"thinking", "speed", "response_format", "text"})
"""Request fields of the three APIs that messages are cached under (their prompt caching pages, 2026)."""
_LARGE = 0.1
"""Of the hard limit: a smaller result is not offloaded. Clients cap their results themselves, and a model that asked
for a file works on what it was given, not on a reference to it."""


@dataclass(slots=True)
class Turn:
    """One request of a client on its way: what governs it, and what the client has got of its answer so far."""

    conversation: Conversation
    call: Call
    ready: Ready
    rounds: int = 1
    """Requests that went upstream for it."""
    calls: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    response_id: str = ""
    """Of the first answer from upstream: the one the client sees."""
    is_over: bool = False


class Governor:
    def __init__(
        self,
        log: Log,
        blobs: Blobs,
        counter: Counter,
        *,
        policy: Policy,
        prices: PriceTable,
        context_limit: int,
        redactor: Redactor,
        clock: Callable[[], int],
        ids: Callable[[], str],
    ) -> None:
        """`context_limit` 0: what the price table says of the client's model."""
        self._log, self._blobs, self._counter = log, blobs, counter
        self._policy, self._prices, self._context_limit = policy, prices, context_limit
        self._redactor, self._clock, self._ids = redactor, clock, ids
        self._held = Held(log)
        self._answered: OrderedDict[str, tuple[Conversation, int]] = OrderedDict()
        """By an answer's id, whose it is and the seq behind it."""
        self._busy: set[str] = set()
        """Sessions with a turn that is under way."""
        self._made_rules = lru_cache(maxsize=_RULES)(self._make_rules)

    def read(self, face: Face, body: bytes) -> Call:
        """A request; what it has in common with one of the conversations in memory is not read anew. Raises
        `BadInput`."""
        held = (one for one in self._held.conversations if one.face is face)
        return face.call(body, [one.asked.outline for one in held if one.asked is not None])

    def known_as(self, face: Face, call: Call, identity: Identity) -> Identity:
        """With the key of the history that a request goes on with."""
        return replace(identity, key=self._held.key_of(face, call, identity))

    def begin(self, face: Face, call: Call, identity: Identity, *, forks: bool = True) -> Turn | None:
        """The conversation that a request continues, with what is new in it, ready for upstream; `release` it. One that
        is busy with another turn is forked, or without `forks` is None. Raises `UsageError` for a model whose window is
        not known, and what deciding raises."""
        for _ in range(_RACES):
            try:
                return self._begun(face, call, identity, forks=forks)
            except SequenceConflict:  # another gateway went on with it; the log says how far
                self._forget(identity.key)
        return self._begun(face, call, identity, forks=forks)

    def _begun(self, face: Face, call: Call, identity: Identity, *, forks: bool) -> Turn | None:
        rules = self._rules(face, call)
        if call.previous:
            return self._taken(
                self._continued(call, identity, rules, lambda name: self._opened(face, name, rules)), call
            )
        known = self._held.of(identity, lambda session_id: self._opened(face, session_id, rules))
        common, best = self._nearest(known, call)
        if best is None or not best.continues(call, common):
            for session_id in self._held.missing(known, face, call):
                self._held.use(known, self._opened(face, session_id, rules))
            common, best = self._nearest(known, call)
        if best is None or not common:
            best = self._held.add(known, self._start(face, call, identity, rules, known.next_id))
            common = 0
        elif not best.continues(call, common) or best.session_id in self._busy:
            if best.continues(call, common) and not forks:
                return None
            # Where no client names its history, the same request again may be another client's, unless the first one
            # came to no answer: then it gets nothing of what the model and the host said since.
            is_again = best.session_id not in self._busy and (identity.is_named or best.known.answer is None)
            if end := best.behind(call, common, is_again=is_again):
                best = self._held.add(known, best.fork(end, known.next_id))
                common = best.common(call)
                best.session.go_on(rules)
                best.make_room(call, common)
            else:
                best = self._held.add(known, self._start(face, call, identity, rules, known.next_id))
                common = best.common(call)
        self._held.use(known, best)
        best.session.go_on(rules)
        best.admit(call, common)
        self._let_go(self._held.make_room({*self._busy, best.session_id}))
        return self._taken(best, call)

    def _nearest(self, known: Histories, call: Call) -> tuple[int, Conversation | None]:
        """The conversation that has most in common with a request, of several the one it goes on with; how much."""
        shared = [(one.common(call), one) for one in known.open.values()]
        most = max((common for common, _ in shared), default=0)
        found = []
        for one in (one for common, one in shared if common == most):
            is_free = one.session_id not in self._busy
            found.append((is_free and one.continues(call, most), is_free, one.session.state.seq, one))
        *_, best = max(found, key=lambda one: one[:3], default=(None,))
        return most, best

    def _taken(self, conversation: Conversation, call: Call) -> Turn:
        turn = Turn(conversation, call, conversation.ready(call))
        state, bounds = conversation.session.state, conversation.session.rules.bounds
        if state.requests == 1 and (head := head_tokens(state)) > bounds.base // 2:
            told = {"head": head, "room": bounds.base, "limit": bounds.context_limit}
            note(logging.WARNING, "tight-limit", session=conversation.session_id, **told)
        self._busy.add(conversation.session_id)
        return turn

    def release(self, turn: Turn) -> None:
        """The turn is over, well or not."""
        turn.is_over = True
        self._busy.discard(turn.conversation.session_id)

    def _continued(
        self, call: Call, identity: Identity, rules: Rules, opened: Callable[[str], Conversation]
    ) -> Conversation:
        """Where the server keeps the history: the conversation of the answer that is named, or, if that has gone on
        since or is busy, a fork of it."""
        if call.previous not in self._answered:
            raise UsageError("it continues a response, or names an item, that is not among the newest here")
        found, end = self._answered[call.previous]
        if found.session.state.seq != end or found.session_id in self._busy:
            known = self._held.of(identity, opened)
            found = self._held.add(known, found.fork(end, known.next_id))
        found.session.go_on(rules)
        found.extend(call)
        return found

    def done(self, turn: Turn, reply: Reply | None, wire: str, data: bytes) -> None:
        """The client has all of its answer now, `data`; `reply` was the last of it. The turn is over, and
        `Turn.response_id` may be named by the next request."""
        data_text = data.decode("utf-8", "backslashreplace")
        got = Answer(calls=turn.calls, text="".join(turn.text), data=data_text)
        turn.conversation.settle(turn.ready, reply, wire, got)
        self.release(turn)
        if turn.response_id:
            self._answered[turn.response_id] = (turn.conversation, turn.conversation.session.state.seq)
            while len(self._answered) > _LATEST:
                self._answered.popitem(last=False)

    def again(self, turn: Turn, reply: Reply | None = None, wire: str = "") -> None:
        """Another request for the same turn: after an answer that is not all the client gets, or an overflow."""
        if reply is not None:
            turn.conversation.settle(turn.ready, reply, wire)
        turn.rounds += 1
        turn.ready = turn.conversation.ready(turn.call)

    def failed_open(self, identity: Identity, problem: Exception, reason: str) -> None:
        """What failed halfway is read from the log again; the log says why the client's own request went upstream,
        unless it is the log that waits for room or a lock: all others would wait with it."""
        gone = self._forget(identity.key)
        if gone and not isinstance(problem, Unwritable):
            with suppress(KernelError):  # the log may be what failed; the header and the metric say it too
                gone[-1].failed_open(reason)

    def report(self) -> list[Row]:
        """Of the conversations in memory, the newest last: where each window stands and what was spent."""
        return [self._row(one) for one in self._held.conversations]

    def _row(self, one: Conversation) -> Row:
        state = one.session.state
        used = [usage for _, usage in one.used]
        paid = [(find_price(self._prices, model or state.model), usage) for model, usage in one.used]
        price = find_price(self._prices, state.model)
        price = next((other for other, _ in paid if other.assumed), price)
        return {
            "session": one.session_id,
            "client": state.opened.agent if state.opened else "",
            "model": state.model,
            "window": state.window.generation + 1,
            "tokens": prompt_tokens(state),
            "limit": one.session.rules.bounds.hard,
            "context_limit": one.session.rules.bounds.context_limit,
            "requests": state.requests,
            "boundaries": state.boundaries,
            "misses": dict(one.missed.most_common()),
            "prompt_tokens": sum(usage.prompt for usage in used),
            "cached_tokens": sum(usage.cached for usage in used),
            "output_tokens": sum(usage.output for usage in used),
            "usd": round(sum(usage_cost(rates, usage) for rates, usage in paid), 6),
            "price": price.name,
            "is_price_assumed": price.assumed,
        }

    def _forget(self, key: str) -> list[Conversation]:
        """Of a key: its conversations in memory, which are read from the log if they are wanted again."""
        gone = self._held.forget(key)
        self._let_go(gone)
        return gone

    def _let_go(self, gone: Sequence[Conversation]) -> None:
        sessions = {one.session_id for one in gone}
        for name in [name for name, (one, _) in self._answered.items() if one.session_id in sessions]:
            del self._answered[name]

    def _opened(self, face: Face, session_id: str, rules: Rules) -> Conversation:
        return Conversation.open(
            face, self._log, self._blobs, session_id=session_id, rules=rules, redactor=self._redactor
        )

    def aside(self, face: Face, identity: Identity, body: bytes, status: int, data: bytes) -> None:
        """Keep a request beside the main loop and its answer, in a session of their own that nothing governs."""
        session_id = session_name(identity.key, -1)
        row = next(iter(self._log.sessions(session_id)), None)
        opened = SessionOpened(
            format=FORMAT,
            agent=identity.client or UNKNOWN,
            provider=face.name,
            title="beside the main loop",
            counter=self._counter.name,
        )
        asked = self._redactor.json(body).decode("utf-8", "backslashreplace")
        answered = self._redactor.text(data.decode("utf-8", "backslashreplace"))
        facts: list[Fact] = [] if row else [opened]
        facts.append(Observed(kind=f"{identity.kind}_request", raw=asked))
        facts.append(Observed(kind=f"{identity.kind}_answer", raw=f"{status} {answered}"))
        now = self._clock()
        drafts = [Draft(fact=fact, uuid=self._ids(), at=now) for fact in facts]
        self._log.append(session_id, row.head.seq if row else 0, drafts)

    def _start(self, face: Face, call: Call, identity: Identity, rules: Rules, session_id: str) -> Conversation:
        opened = SessionOpened(
            format=FORMAT,
            agent=identity.client or UNKNOWN,
            agent_version=identity.version,
            model=call.model,
            provider=face.name,
            policy=self._policy.name,
            counter=self._counter.name,
            context_limit=rules.bounds.context_limit,
            title=identity.kind if identity.kind != "main" else "",
        )
        return Conversation.start(
            face,
            self._log,
            self._blobs,
            session_id=session_id,
            opened=opened,
            rules=rules,
            redactor=self._redactor,
        )

    def _rules(self, face: Face, call: Call) -> Rules:
        fields = tuple((name, value) for name, value in call.fields.items() if name in _KEYED)
        return self._made_rules(face.dialect, call.model, call.max_output_tokens, fields)

    def _make_rules(self, dialect: Dialect, model: str, most: int, fields: tuple[tuple[str, bytes], ...]) -> Rules:
        limit = self._context_limit or self._window_of(model)
        # What the client may ask for in answer is kept free, but for a quarter of the window at most.
        reserve = max(min(8192, limit // 8), min(most, limit // 4))
        source: LimitSource = "configured" if self._context_limit else "catalogue"
        bounds = limits(limit, source=source, output_reserve=reserve)
        above = self._policy.offload_above and max(self._policy.offload_above, int(_LARGE * bounds.hard))
        return Rules(
            policy=msgspec.structs.replace(self._policy, offload_above=above),
            bounds=bounds,
            counter=self._counter,
            dialect=replace(dialect, keyed=keyed(Reach(origin=f"{dialect.name}/{model}"), dict(fields), _KEYED)),
            clock=self._clock,
            ids=self._ids,
            tariff=tariff_of(find_price(self._prices, model)),
            races=0,  # what another gateway appended may be another client's
        )

    def _window_of(self, model: str) -> int:
        price = find_price(self._prices, model)
        if price.assumed or not price.context_window:
            raise UsageError(f"the window of {model!r} is not known: start the gateway with --context-limit")
        return price.context_window
