"""Requests and streams that no client and no provider should send, and that some day some will.

Each case has a seed. A few clients of each API go on with their sessions, some with ids, some that begin with the same
words; what they send is bent, torn or as it should be, and so is what the model answers. Whatever comes: nobody waits in
vain, no error is the gateway's own, nobody is shown a word of another's session, and the log is whole.
"""

from __future__ import annotations

import json
import logging
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

import httpx2
import pytest
from tests.gateway.conftest import serving
from tests.gateway.mutations import Answer, History, bent, frames, shaken, torn, whole
from tests.gateway.peers import Asked, Got, Peer, connected, message, received, sent

from transom import compose
from transom.gateway.serving import Plan
from transom.testing.model_server import APIS

_MARK = re.compile(rb"mark-(\d+)-")
_LIMIT = 6_000
"""Tokens: a session of some steps goes over several windows."""
_WAIT = 60.0
"""Seconds after which an answer counts as one that never comes: the machine may be busy."""
_HOSTS = (
    ("note_failure", '{"attempt": "make", "outcome": "error 7"}'),
    ("recall", '{"query": "words"}'),
    ("recall", '{"query": 7}'),
    ("read_artifact", '{"artifact_id": "none"}'),
    ("todo", '{"items": [{"text": "x", "status": "open"}]}'),
    ("new_context", '{"handoff": {}}'),
    ("new_context", '{"handoff": {"requirements": [], "inferences": ["x"], "conflicts": [], "unverified": []}}'),
)
_ERRORS = (400, 401, 404, 413, 422, 429, 500, 503, 529)
_OVERFLOW = (
    b'{"error":{"message":"This model\'s maximum context length is 1 tokens.","code":"context_length_exceeded"}}'
)


@dataclass(slots=True)
class Case:
    """What one request is to meet. `bends`, `tears`: of the request; `shakes`: of the answer's events."""

    seed: int
    mark: int
    api: str
    rng: Random
    answer: Answer
    bends: int = 0
    tears: int = 0
    shakes: int = 0
    status: int = 200
    is_cut: bool = False
    leaves_after: int | None = None
    sees: list[str] = field(default_factory=list)
    """What went wrong upstream."""

    @property
    def is_sound(self) -> bool:
        """Whether the model answers as it should."""
        return self.status == 200 and not self.shakes and not self.is_cut


def case_of(seed: int, history: History, mark: int) -> Case:
    rng = Random(seed)
    answer = Answer([], number=seed)
    # To the first words, which many say, a model says nothing that only one of them could have told it.
    name = f"mark-{mark}-" if len(history.items) > 1 else "nobody"
    for _ in range(rng.randrange(1, 4)):
        kind = rng.choice(("text", "thought", "call", "call", "host"))
        if kind == "host":
            answer.parts.append(("call", *rng.choice(_HOSTS)))
        elif kind == "call":
            answer.parts.append(("call", rng.choice(("read", "run")), json.dumps({"path": f"{name}{seed}"})))
        else:
            answer.parts.append((kind, f"{name} says {seed}. "))
    made = Case(seed, mark, history.api, rng, answer)
    match rng.randrange(10):
        case 0 | 1 | 2:
            made.bends = rng.randrange(1, 6)
        case 3:
            made.tears = rng.randrange(1, 3)
        case 4 | 5:
            made.shakes = rng.randrange(1, 6)
        case 6:
            made.status = rng.choice(_ERRORS)
        case 7:
            made.is_cut = True
        case 8:
            made.leaves_after = rng.choice((0, 1, 100, 1000))
    return made


@dataclass
class Model:
    """The upstream of all cases; a request names its own in `x-case`."""

    cases: dict[int, Case] = field(default_factory=dict)

    def talk(self, one: socket.socket, asked: Asked) -> None:
        case = self.cases[int(asked.header("x-case") or -1)]
        others = {int(found) for found in _MARK.findall(asked.body)} - {case.mark}
        if others:
            case.sees.append(f"upstream was shown words of {others}")
        if case.status != 200:
            overflows = case.status in (400, 413) and case.rng.random() < 0.5
            one.sendall(message(_OVERFLOW if overflows else b'{"error":{"message":"told"}}', case.status))
            return
        says = case.answer
        if b'"call_%d_' % case.seed in asked.body or case.rng.random() < 0.05:
            says = Answer([("text", f"{case.seed} is done.")], number=case.seed + 10**6)
        if b'"stream": true' in asked.body or b'"stream":true' in asked.body:
            self._stream(one, case, frames(case.api, says, len(asked.body) // 4))
        else:
            self._whole(one, case, says, len(asked.body) // 4)

    def _stream(self, one: socket.socket, case: Case, events: list[bytes]) -> None:
        data = b"".join(shaken(events, case.rng, case.shakes))
        if case.is_cut:
            data = data[: case.rng.randrange(len(data))]
        one.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        while data:
            size = case.rng.choice((1, 7, 100, 5000)) if len(data) < 20_000 else 50_000
            one.sendall(b"%x\r\n%b\r\n" % (len(data[:size]), data[:size]))
            data = data[size:]
        if case.is_cut and case.rng.random() < 0.5:
            one.shutdown(socket.SHUT_RDWR)
        else:
            one.sendall(b"0\r\n\r\n")

    def _whole(self, one: socket.socket, case: Case, says: Answer, tokens: int) -> None:
        made = whole(case.api, says, tokens)
        data = json.dumps(bent(made, case.rng, case.shakes)).encode("utf-8", "surrogatepass")
        if case.shakes and case.rng.random() < 0.2:
            data = torn(data, case.rng)
        one.sendall(message(data[: len(data) // 2] if case.is_cut else data, length=len(data)))
        if case.is_cut:
            one.shutdown(socket.SHUT_RDWR)


def request_of(case: Case, history: History) -> bytes:
    asked = bent(history.request(), case.rng, case.bends)
    is_ascii = case.rng.random() < 0.7
    body = json.dumps(asked, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")
    for _ in range(case.tears):
        body = torn(body, case.rng)
    return body


def played(url: str, model: Model, case: Case, history: History) -> list[str]:
    """One request of a session. What was wrong with it."""
    model.cases[case.seed] = case
    body = request_of(case, history)
    with connected(url) as client:
        client.settimeout(_WAIT)
        sent(client, APIS[history.api], body, x_case=str(case.seed), **history.headers)
        if case.leaves_after is not None:
            if case.leaves_after:
                client.recv(case.leaves_after)
            return case.sees
        try:
            got = received(client)
        except TimeoutError:
            return [*case.sees, "no answer came"]
    return [*case.sees, *_wrong(case, got)]


def _wrong(case: Case, got: Got) -> Iterator[str]:
    status = got.header("x-transom-status") or ""
    others = {int(found) for found in _MARK.findall(got.body)} - {case.mark}
    if others:
        yield f"the client was shown words of {others}"
    if "Error" in status and not re.search(r"UsageError|OverBudget|BadInput", status):
        yield f"it went on without us: {status}"
    if case.status != 200:
        if got.status != case.status:
            yield f"{case.status} became {got.status}"
    elif not got.head:
        yield "no answer at all"
    elif got.status != 200 and not (got.status == 502 and case.is_cut):
        yield f"a status of our own: {got.status} {got.body[:200]!r}"
    elif case.is_sound and not (case.bends or case.tears) and not got.is_whole:
        yield f"a good answer was cut: {got.body[-300:]!r}"


class Client:
    """A session: goes on where an answer was good, and makes its request again where it was not."""

    def __init__(self, number: int, rng: Random) -> None:
        api = list(APIS)[number % 3]
        named = {
            "anthropic": "x_claude_code_session_id",
            "openai_chat": "x_session_id",
            "openai_responses": "thread_id",
        }
        headers = {named[api]: f"s{number}"} if number % 2 else {}
        self.history = History(api, f"mark-{number}-", rng, is_streamed=rng.random() < 0.7, headers=headers)
        self.history.is_lead = rng.random() < 0.3
        self.number, self._rng = number, rng
        self._begin()

    def _begin(self) -> None:
        self.history.items.clear()
        self.history.say("Fix the tests.")

    def step(self, seed: int, url: str, model: Model) -> list[str]:
        case = case_of(seed, self.history, self.number)
        wrong = played(url, model, case, self.history)
        hosts = {name for name, _ in _HOSTS}
        shown = [part for part in case.answer.parts if not (part[0] == "call" and part[1] in hosts)]
        if case.is_sound and shown:
            self.history.take(Answer(shown, number=seed))
        if self._rng.random() < 0.05:  # a rewind, or another job
            del self.history.items[self._rng.randrange(1, len(self.history.items) + 1) :]
        if self._rng.random() < 0.02 or len(self.history.items) > 60:
            self._begin()
        return [f"seed {seed}, {self.history.api}: {one}" for one in wrong]


@contextmanager
def watched() -> Iterator[list[str]]:
    """What the server and the libraries below it report as errors of their own."""
    found: list[str] = []

    class Seen(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            what = getattr(record, "fields", {}).get("what", record.getMessage())
            if record.levelno >= logging.ERROR:
                found.append(f"{record.name}: {record.msg}: {what}")

    seen = Seen()
    names = ("transom.gateway", "aiohttp", "asyncio")
    for name in names:
        logging.getLogger(name).addHandler(seen)
    try:
        yield found
    finally:
        for name in names:
            logging.getLogger(name).removeHandler(seen)


def fuzzed(plan: Plan, seeds: range, *, clients: int, threads: int) -> None:
    model, rng = Model(), Random(seeds.start)
    everyone = [Client(number, Random(rng.random())) for number in range(clients)]
    with watched() as reported, Peer(model.talk) as peer, serving(plan_for(plan, peer.base_url)) as url:

        def work(number: int) -> list[str]:
            """The sessions of one thread, in turn."""
            wrong: list[str] = []
            mine = everyone[number::threads]
            for place, seed in enumerate(seeds[number::threads]):
                wrong += mine[place % len(mine)].step(seed, url, model)
            return wrong

        with ThreadPoolExecutor(threads) as pool:
            wrong = [one for found in pool.map(work, range(threads)) for one in found]
        metrics = httpx2.get(f"{url}/transom/status").json()["metrics"]
        assert httpx2.get(f"{url}/transom/metrics").status_code == 200
    assert not wrong, "\n".join(wrong[:20])
    assert not reported, "\n".join(reported[:20])
    assert "unkept" not in metrics
    assert metrics['requests{status="governed"}'] > len(seeds) // 20
    assert metrics['requests{status="plain"}'] > len(seeds) // 20
    told(plan)


def plan_for(plan: Plan, upstream: str) -> Plan:
    return Plan(store=plan.store, upstreams={"anthropic": upstream, "openai": upstream}, context_limit=_LIMIT)


def told(plan: Plan) -> None:
    """The log is whole, and no session in it holds words of two."""
    with compose.store(plan.store) as kept:
        assert [one.problem for one in kept.log.verify() if one.problem] == []
        for row in kept.log.sessions():
            facts = str([event.fact for event in kept.log.read(row.session_id)]).encode("utf-8", "surrogateescape")
            assert len(set(_MARK.findall(facts))) <= 1, row.session_id


def test_whatever_comes_is_answered_and_nobody_sees_another_s(plan: Plan) -> None:
    fuzzed(plan, range(240), clients=12, threads=4)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("start", range(1000, 6000, 500))
def test_five_thousand_more_are(start: int, plan: Plan) -> None:
    fuzzed(plan, range(start, start + 500), clients=18, threads=6)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("api", list(APIS))
def test_twenty_megabytes_of_anything_are_answered(api: str, plan: Plan) -> None:
    model = Model()
    with watched() as reported, Peer(model.talk) as peer, serving(plan_for(plan, peer.base_url)) as url:
        for seed, unit in enumerate(("x", "word ", "字", '"\\', "[" * 40, "\n", " ", "\x00")):
            rng = Random(seed)
            history = History(api, "mark-1-", rng, is_streamed=True, headers={})
            history.items.append({"role": "user", "content": "mark-1- " + unit * (20_000_000 // len(json.dumps(unit)))})
            case = Case(seed, 1, api, rng, Answer([("text", "mark-1- says so.")], number=seed), tears=seed % 2)
            assert played(url, model, case, history) == []
            peer.asked.clear()
    assert not reported
