"""Whole sessions of clients through the gateway, in each API, streamed and not: what they get, what upstream got, what is
in the log."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from itertools import count
from typing import Any

import httpx2
import pytest
from tests.gateway.peers import Asked, Peer, message

from transom import compose
from transom.core.event import BlockReplaced, Event, HostSaid, ModelReplied, Observed, RequestSent, WindowOpened
from transom.core.searchable import text_of
from transom.gateway.serving import Plan
from transom.testing.client import Client, Refused
from transom.testing.model_server import APIS, Call, ModelServer, Said, words_of

PAGE = "a line of the file that was asked for, with some words in it\n" * 60
HANDOFF = {
    "handoff": {
        "requirements": [{"text": "You must never touch README.", "source": ""}],
        "inferences": ["It goes well."],
        "conflicts": [],
        "unverified": [],
    },
    "related_files": [],
}
FULL = re.compile("tokens are left in this window|This window is full|call new_context")


@pytest.fixture(params=list(APIS))
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def reads(asked: dict[str, Any], steps: int) -> Said:
    """Reads pages, `steps` of them, and hands over when it is told to."""
    if told(asked):
        return ["I hand over.", Call(name="new_context", arguments=HANDOFF)]
    done = sum(1 for _ in re.finditer(r"page \d+ of", words_of(asked)))
    return [f"Page {done}.", Call(name="read", arguments={"path": f"f{done}"})] if done < steps else ["All is read."]


def told(asked: dict[str, Any]) -> bool:
    """Whether the newest words ask for a handoff."""
    history = asked.get("messages", asked.get("input"))
    return bool(history and FULL.search(json.dumps(history[-2:])) and '"new_context"' in json.dumps(asked["tools"]))


class Reader:
    """Counts what it has been asked for, since a new window does not show it."""

    def __init__(self, steps: int, *, hands_over: bool = True) -> None:
        self.steps, self.hands_over, self.done = steps, hands_over, 0

    def __call__(self, asked: dict[str, Any]) -> Said:
        if told(asked) and self.hands_over:
            return ["I hand over.", Call(name="new_context", arguments=HANDOFF)]
        if self.done >= self.steps:
            return ["All is read."]
        return [f"Page {self.done}.", Call(name="read", arguments={"path": f"f{self.done}"})]

    def run(self, name: str, arguments: dict[str, Any]) -> str:
        assert name == "read", "the client was given a call of the host's"
        assert arguments == {"path": f"f{self.done}"}
        self.done += 1
        return f"page {self.done} of it\n{PAGE}"


def finished(client: Client, most: int = 80) -> None:
    for _ in range(most):
        if not client.step():
            return
    raise AssertionError("the client did not come to an end")


def events(plan: Plan) -> list[Event]:
    with compose.store(plan.store) as kept:
        assert all(not one.problem for one in kept.log.verify())
        (session,) = kept.log.sessions()
        return list(kept.log.read(session.session_id))


def stored(plan: Plan) -> list[str]:
    with compose.store(plan.store) as kept:
        return [row.session_id for row in kept.log.sessions()]


def facts(plan: Plan, kind: type[Any]) -> list[Any]:
    return [event.fact for event in events(plan) if isinstance(event.fact, kind)]


@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_client_works_on_over_several_windows_and_sees_nothing_of_them(
    api: str, is_streamed: bool, plan: Plan, serve: Callable[..., str]
) -> None:
    reader = Reader(30)
    with ModelServer(reader) as model:
        client = Client(api, serve(model), reader.run, is_streamed=is_streamed)
        client.say("Read it all. You must never touch README.")
        finished(client)
    assert reader.done == 30
    assert "new_context" not in json.dumps(client.history)
    assert "I hand over." in json.dumps(client.history)  # its words are its own
    windows = facts(plan, WindowOpened)
    assert len(windows) >= 3
    assert {one.cause for one in windows} == {"model"}
    hard = 7_000
    assert max(len(body) for _, _, body in model.asked) / 4 < hard
    assert all(fact.tokens <= hard for fact in facts(plan, RequestSent))
    assert {fact.verdict for fact in facts(plan, RequestSent)} == {"hit", "miss"}
    assert {reason for fact in facts(plan, RequestSent) for reason in fact.reasons} == {"initial", "reset:rollover"}
    assert all("You must never touch README." in words_of(body) for body in model.bodies)


@pytest.mark.parametrize("is_streamed", [True, False])
def test_the_usage_a_client_is_told_is_that_of_the_last_request_upstream(
    api: str, is_streamed: bool, serve: Callable[..., str]
) -> None:
    reader = Reader(20)
    with ModelServer(reader) as model:
        client = Client(api, serve(model), reader.run, is_streamed=is_streamed)
        client.say("Read it all.")
        finished(client)
        names = {"openai_chat": ("prompt_tokens", "completion_tokens")}
        prompt, output = names.get(api, ("input_tokens", "output_tokens"))
        asked = [len(body) // 4 for _, _, body in model.asked]
    assert [usage[prompt] for usage in client.usages][-1] == asked[-1]
    assert {usage[output] for usage in client.usages} == {9, 18}  # a handover and what followed are one answer
    assert all(usage[prompt] in asked for usage in client.usages)


@pytest.mark.parametrize("is_streamed", [True, False])
def test_below_the_limit_upstream_gets_the_client_s_own_bytes_and_our_tools_alone(
    api: str, is_streamed: bool, serve: Callable[..., str]
) -> None:
    reader = Reader(3)
    with ModelServer(reader) as model:
        client = Client(api, serve(model, context_limit=200_000), reader.run, is_streamed=is_streamed)
        client.say("Read it all.")
        sent = []
        while True:
            sent.append(client.body())
            if not client.step():
                break
        got = [body for _, _, body in model.asked]
    assert set(client.status) == {"plain"}
    for ours, theirs in zip(got, sent, strict=True):
        end = theirs.rindex(b"]")
        assert ours.startswith(theirs[:end].rstrip())
        added = json.loads(ours)
        ours_tools = [one.get("name") or one["function"]["name"] for one in added.pop("tools")]
        asked = json.loads(theirs)
        assert ours_tools == ["read", "new_context", "recall", "read_artifact", "todo", "note_failure"]
        del asked["tools"]
        assert added == asked


@pytest.mark.parametrize("is_streamed", [True, False])
def test_relaying_changes_no_byte_in_either_direction(api: str, is_streamed: bool, serve: Callable[..., str]) -> None:
    reader = Reader(3)
    with ModelServer(reader) as model:
        behind = Client(api, serve(model, "raw"), reader.run, is_streamed=is_streamed)
        behind.say("Read it all.")
        body = behind.body()
        behind.ask(body)
        direct = Client(api, model.base_url, reader.run, is_streamed=is_streamed)
        direct.ask(body)
        (_, _, first), (_, _, second) = model.asked
    assert first == second == body
    number = re.compile(rb"(msg|chatcmpl|resp|call|toolu|fc)(_|-)\d")
    assert number.sub(b"", behind.raw[0]) == number.sub(b"", direct.raw[0])
    assert behind.status == ["relayed"]


def test_a_model_that_never_hands_over_is_rolled_over_by_code(api: str, plan: Plan, serve: Callable[..., str]) -> None:
    reader = Reader(30, hands_over=False)
    with ModelServer(reader) as model:
        client = Client(api, serve(model), reader.run)
        client.say("Read it all.")
        finished(client, 200)
    assert {one.cause for one in facts(plan, WindowOpened)} == {"hard-limit"}
    assert max(len(body) for _, _, body in model.asked) / 4 < 7_000
    said = [fact.kind for fact in facts(plan, HostSaid)]
    assert said.count("fallback") >= 3


def test_the_host_s_calls_beside_a_client_s_are_heard_with_the_next_request(
    api: str, plan: Plan, serve: Callable[..., str]
) -> None:
    turns: list[Said] = [
        ["Both.", Call(name="note_failure", arguments={"attempt": "make", "outcome": "error 7"}), Call(name="read")],
        ["Done."],
    ]
    with ModelServer(lambda _: turns.pop(0)) as model:
        client = Client(api, serve(model), lambda *_: "the page")
        client.say("Go.")
        finished(client)
        second = words_of(model.bodies[1])
    assert "note_failure" not in json.dumps(client.history)
    assert "note_failure" in second
    assert "Noted; it stands in every window." in second


def test_what_is_recalled_never_reaches_the_client(api: str, serve: Callable[..., str]) -> None:
    turns: list[Said] = [
        ["I read.", Call(name="read")],
        [Call(name="recall", arguments={"query": "E4711"})],
        ["It was E4711."],
    ]
    with ModelServer(lambda _: turns.pop(0)) as model:
        client = Client(api, serve(model), lambda *_: "the error is E4711")
        client.say("Go.")
        finished(client)
        assert len(model.asked) == 3
        assert "message_uuid" in words_of(model.bodies[2])
    assert "recall" not in json.dumps(client.history)
    assert "It was E4711." in json.dumps(client.history[-1])


@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_repeated_request_is_the_same_step(
    api: str, is_streamed: bool, plan: Plan, serve: Callable[..., str]
) -> None:
    """After a cut answer nothing is decided or stored twice."""
    reader = Reader(2)
    with ModelServer(reader) as model:
        client = Client(api, serve(model), reader.run, is_streamed=is_streamed)
        client.say("Read.")
        client.step()
        model.faults.append((0, b"event: x\n"))
        with pytest.raises((httpx2.HTTPError, Refused)):
            client.step()
        finished(client)
    assert reader.done == 2
    assert len(facts(plan, ModelReplied)) == 3
    assert not facts(plan, BlockReplaced)


def test_a_rewind_is_a_fork_and_the_first_branch_stays(api: str, plan: Plan, serve: Callable[..., str]) -> None:
    reader = Reader(100)
    with ModelServer(reader) as model:
        client = Client(api, serve(model), reader.run)
        client.say("Read.")
        for _ in range(4):
            client.step()
        del client.history[-4:]
        while client.history[-1].get("role") == "assistant" or "call_id" in client.history[-1]:
            client.history.pop()
        client.say("No: another way.")
        client.step()
        assert "No: another way." in words_of(model.bodies[-1])
    with compose.store(plan.store) as kept:
        kinds = sorted(one.kind for one in kept.log.sessions())
        assert all(not one.problem for one in kept.log.verify())
    assert kinds == ["fork", "root"]


def test_two_clients_with_the_same_first_words_never_mix(api: str, plan: Plan, serve: Callable[..., str]) -> None:
    def decide(asked: dict[str, Any]) -> Said:
        return [Call(name="read")] if len(words_of(asked)) < 4_000 else ["Done."]

    with ModelServer(decide) as model:
        url = serve(model)
        one, two = Client(api, url, lambda *_: "the one's page" * 40), Client(api, url, lambda *_: "two's page" * 40)
        for client in (one, two):
            client.say("Read.")
        for _ in range(4):
            one.step()
            two.step()
        for body in model.bodies:
            assert not ("the one's" in words_of(body) and "two's" in words_of(body))
    assert "two's" not in json.dumps(one.history)


def test_an_overflow_is_met_with_a_new_window_and_the_client_never_hears_of_it(
    api: str, plan: Plan, serve: Callable[..., str]
) -> None:
    reader = Reader(30)
    with ModelServer(reader, window=5_000) as model:
        client = Client(api, serve(model, context_limit=100_000), reader.run)
        client.say("Read it all.")
        finished(client)
    assert "overflow" in {one.cause for one in facts(plan, WindowOpened)}


class Unwilling(ModelServer):
    """Fails whenever a handoff is demanded."""

    def _answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        if b"indow is full" in body or b"Last request of this window" in body:
            self._give(handler, 500, b"oops")
        else:
            super()._answer(handler, body)


def test_a_provider_that_fails_twice_where_a_handoff_is_demanded_is_not_asked_for_one_again(
    api: str, plan: Plan, serve: Callable[..., str]
) -> None:
    reader, failed = Reader(30, hands_over=False), 0
    with Unwilling(reader) as model:
        client = Client(api, serve(model), reader.run)
        client.say("Read it all.")
        while reader.done < reader.steps:
            try:
                client.step()
            except Refused as refused:
                failed += refused.status == 500
    causes = [one.cause for one in facts(plan, WindowOpened)]
    assert set(causes) == {"hard-limit"}
    assert failed == len(causes) >= 2


@pytest.mark.parametrize(
    ("status", "body"),
    [(429, b'{"error":{"type":"rate_limit_error","message":"slow down"}}'), (500, b"oops"), (401, b'{"error":"who?"}')],
)
def test_what_upstream_says_of_itself_passes_with_its_meaning(
    api: str, status: int, body: bytes, serve: Callable[..., str]
) -> None:
    with ModelServer(lambda _: ["Done."]) as model:
        client = Client(api, serve(model), lambda *_: "")
        client.say("Go.")
        model.faults.append((status, body))
        with pytest.raises(Refused) as refused:
            client.step()
        assert refused.value.status == status
        assert refused.value.body.encode() == body
        assert (refused.value.headers.get("retry-after") is not None) == (status == 429)
        finished(client)


def test_an_unreachable_upstream_is_an_error_of_the_api_s_own_shape(api: str, serve: Callable[..., str]) -> None:
    with ModelServer(lambda _: ["Done."]) as model:
        url = serve(model)
    client = Client(api, url, lambda *_: "")
    client.say("Go.")
    with pytest.raises(Refused) as refused:
        client.step()
    assert refused.value.status == 502
    assert json.loads(refused.value.body)["error"]["message"]


def test_when_governing_fails_the_client_s_own_request_goes_on(api: str, plan: Plan, serve: Callable[..., str]) -> None:
    reader = Reader(2)
    with ModelServer(reader) as model:
        client = Client(api, serve(model, context_limit=0), reader.run, model="nobody-knows-this")
        client.say("Read it all.")
        body = client.body()
        finished(client)
        assert model.asked[0][2] == body
    assert all(one.startswith("failed-open; UsageError: the window of 'nobody-knows-this'") for one in client.status)


def test_credentials_go_up_and_stay_nowhere(api: str, plan: Plan, serve: Callable[..., str]) -> None:
    with ModelServer(lambda _: ["Done."]) as model:
        client = Client(api, serve(model), lambda *_: "", headers={"authorization": "Bearer sk-hush"})
        client.say("Go.")
        finished(client)
        assert model.asked[0][1]["authorization"] == "Bearer sk-hush"
        assert model.asked[0][1]["x-api-key"] == "sk-secret"
    assert plan.store is not None
    for file in plan.store.rglob("*"):
        if file.is_file():
            assert b"sk-hush" not in file.read_bytes()
            assert b"sk-secret" not in file.read_bytes()
            assert file.stat().st_mode & 0o077 == 0 or file.parent.stat().st_mode & 0o077 == 0
    assert plan.store.stat().st_mode & 0o077 == 0


def test_the_log_holds_every_element_and_every_answer_as_it_came(
    api: str, plan: Plan, serve: Callable[..., str]
) -> None:
    reader = Reader(12)
    with ModelServer(reader) as model:
        client = Client(api, serve(model), reader.run)
        client.say("Read it all. You must never touch README.")
        finished(client)
    observed = [fact for fact in facts(plan, Observed) if fact.kind in ("client_request", "client_answer")]
    answers = [json.loads(fact.raw)["data"] for fact in observed if fact.kind == "client_answer"]
    assert [answer.encode() for answer in answers] == client.raw
    elements = [one for fact in observed if fact.kind == "client_request" for one in json.loads(fact.raw)["elements"]]
    assert next(one for one in elements if one.get("role") == "user")["content"]
    results = re.findall(r"page \d+ of it", json.dumps(elements))
    assert results == [f"page {number} of it" for number in range(1, 13)]


def test_a_restart_between_any_two_requests_changes_nothing_upstream(
    api: str, plan: Plan, serve: Callable[..., str]
) -> None:
    def played(*, restarts: bool, plan_name: str) -> list[bytes]:
        reader = Reader(15)
        assert plan.store is not None
        store = plan.store.with_name(plan_name)
        with ModelServer(reader) as model:
            client = Client(api, serve(model, store=store), reader.run)
            client.say("Read it all.")
            while client.step():
                if restarts:
                    client.base_url = serve(model, store=store)
            return [body for _, _, body in model.asked]

    once, again = played(restarts=False, plan_name="calm"), played(restarts=True, plan_name="restarted")
    number = re.compile(rb"session_id: [0-9a-f-]+|message_uuid:? [0-9a-f-]{36}|[0-9a-f]{8}-[0-9a-f-]{27}")
    assert [number.sub(b"", body) for body in once] == [number.sub(b"", body) for body in again]


def test_a_client_without_tools_is_governed_by_code(api: str, plan: Plan, serve: Callable[..., str]) -> None:
    with ModelServer(lambda _: ["I see. " + "It is long. " * 300]) as model:
        client = Client(api, serve(model), lambda *_: "", has_tools=False)
        for number in range(12):
            client.say(f"Message {number}. You must never touch README.")
            client.step()
        assert max(len(body) for _, _, body in model.asked) / 4 < 7_000
        assert all("tools" not in body for body in model.bodies)
    assert {one.cause for one in facts(plan, WindowOpened)} == {"hard-limit"}


def test_many_clients_at_once_each_get_their_own(api: str, plan: Plan, serve: Callable[..., str]) -> None:
    def decide(asked: dict[str, Any]) -> Said:
        name = re.search(r"client (\d+)", words_of(asked))
        assert name is not None
        return (
            [Call(name="read", arguments={"path": name[1]})] if len(words_of(asked)) < 3_000 else [f"I am {name[1]}."]
        )

    with ModelServer(decide) as model:
        url = serve(model)

        def work(number: int) -> str:
            def run(_: str, arguments: dict[str, Any]) -> str:
                assert arguments["path"] == str(number)
                return f"client {number} " * 30

            client = Client(api, url, run)
            client.say(f"client {number}")
            finished(client)
            return json.dumps(client.history[-1])

        started = time.monotonic()
        with ThreadPoolExecutor(8) as pool:
            for number, last in enumerate(pool.map(work, range(16))):
                assert f"I am {number}." in last
        assert time.monotonic() - started < 60


def test_a_request_beside_the_main_loop_passes_as_it_is_and_is_kept_by_itself(
    api: str, plan: Plan, serve: Callable[..., str]
) -> None:
    headers = {"x-session-id": "s1"}
    with ModelServer(lambda _: ["A title."]) as model:
        url = serve(model)
        client = Client(api, url, lambda *_: "", headers=headers)
        client.say("Go.")
        finished(client)
        side = Client(api, url, lambda *_: "", headers=headers, has_tools=False)
        side.say("Name this conversation.")
        body = side.body()
        side.step()
        assert model.asked[-1][2] == body
    assert side.status == ["side"]
    deadline = time.monotonic() + 20
    while len(stored(plan)) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)  # it is kept behind the answer
    with compose.store(plan.store) as kept:
        rows = kept.log.sessions()
        assert sorted(row.title for row in rows) == ["", "beside the main loop"]
        (beside,) = (row for row in rows if row.title)
        observed = [one.fact for one in kept.log.read(beside.session_id) if isinstance(one.fact, Observed)]
    assert [one.kind for one in observed] == ["side_request", "side_answer"]
    assert observed[0].raw.encode() == body


def test_a_client_s_own_compaction_is_passed_on_whole_and_named(api: str, serve: Callable[..., str]) -> None:
    reader = Reader(12)
    with ModelServer(reader) as model:
        client = Client(api, serve(model), reader.run)
        client.say("Read it all.")
        for _ in range(12):
            client.step()
        client.say("Your task is to create a detailed summary of the conversation so far.")
        body = client.body()
        client.step()
        assert model.asked[-1][2] == body
    assert client.status[-1] == "compaction"


def test_a_client_that_names_the_answer_it_continues_sends_only_what_is_new(
    plan: Plan, serve: Callable[..., str]
) -> None:
    reader = Reader(20)
    with ModelServer(reader) as model:
        client = Client("openai_responses", serve(model), reader.run)
        client.say("Read it all. You must never touch README.")
        continued: dict[str, Any] = {}
        while True:
            answer = client.ask(json.dumps(json.loads(client.body()) | continued).encode())
            calls = [one for one in answer["output"] if one["type"] == "function_call"]
            if not calls:
                break
            results = [(one["call_id"], reader.run("read", json.loads(one["arguments"]))) for one in calls]
            new = [{"type": "function_call_output", "call_id": one, "output": text} for one, text in results]
            continued = {"previous_response_id": answer["id"], "input": new}
    assert reader.done == 20
    assert set(client.status) == {"plain", "governed"}
    assert len(facts(plan, WindowOpened)) >= 2
    assert "model" in {one.cause for one in facts(plan, WindowOpened)}
    first, *rest = model.bodies
    assert "previous_response_id" not in first
    assert {len(body["input"]) for body in rest if "previous_response_id" in body} == {1}
    assert all(
        "Never touch" in words_of(b) or "never touch" in words_of(b) for b in rest if "previous_response_id" not in b
    )


def test_an_answer_that_is_continued_twice_is_continued_by_two_histories(plan: Plan, serve: Callable[..., str]) -> None:
    said = iter(["One.", "Two.", "Other two.", "Other three."])
    with ModelServer(lambda _: [next(said)]) as model:
        client = Client("openai_responses", serve(model), lambda *_: "")
        client.say("Go.")
        body = json.loads(client.body())

        def ask(words: str, answer: dict[str, Any]) -> dict[str, Any]:
            new = [{"role": "user", "content": words}]
            return client.ask(json.dumps({**body, "input": new, "previous_response_id": answer["id"]}).encode())

        first = client.ask(json.dumps(body).encode())
        ask("On.", first)
        ask("Further.", ask("On.", first))  # its answer was lost, say
    assert set(client.status) == {"plain"}
    with compose.store(plan.store) as kept:
        sessions = [list(kept.log.read(row.session_id)) for row in kept.log.sessions()]
    heard = [[text_of(one.fact) for one in events if isinstance(one.fact, ModelReplied)] for events in sessions]
    assert sorted(heard) == [["One.", "Other two.", "Other three."], ["One.", "Two."]]


def test_an_answer_that_nobody_knows_is_continued_ungoverned(serve: Callable[..., str]) -> None:
    with ModelServer(lambda _: ["Done."]) as model:
        client = Client("openai_responses", serve(model), lambda *_: "")
        client.say("Go.")
        body = json.loads(client.body()) | {"previous_response_id": "resp_of_another"}
        client.ask(json.dumps(body).encode())
        assert json.loads(model.asked[0][2]) == body
    assert client.status[0].startswith("failed-open; UsageError: it continues a response")


def test_a_history_whose_items_are_only_named_goes_on_ungoverned(plan: Plan, serve: Callable[..., str]) -> None:
    """As the Vercel AI SDK sends it: which call a result answers stands at the server alone."""
    with ModelServer(lambda _: [Call(name="read", arguments={"path": "f"})]) as model:
        client = Client("openai_responses", serve(model, context_limit=4_000), lambda *_: "a page of it\n" * 400)
        client.say("Go.")
        for _ in range(6):
            client.step()
            result = client.history.pop()
            client.history[-1] = {"type": "item_reference", "id": client.history[-1]["id"]}
            client.history.append(result)
        sent = [body["input"] for body in model.bodies]
    assert sent == [client.history[: 2 * number + 1] for number in range(6)]
    assert client.status[0] == "plain"
    assert all("names an item" in status for status in client.status[1:])
    assert len(facts(plan, RequestSent)) == 1


def test_what_is_spent_is_counted_once_and_by_the_model_that_answered(serve: Callable[..., str]) -> None:
    """With another model in between, and with branches of one history."""
    asked = count(1)

    def answer(one: socket.socket, request: Asked) -> None:
        said: dict[str, Any] = {
            "id": f"msg_{next(asked)}",
            "type": "message",
            "role": "assistant",
            "stop_reason": "end_turn",
        }
        said |= {"model": json.loads(request.body)["model"], "content": [{"type": "text", "text": "Done."}]}
        usage = {"input_tokens": 1_000_000, "output_tokens": 100_000}
        one.sendall(message(json.dumps(said | {"usage": usage}).encode()))

    with Peer(answer) as upstream:
        client = Client("anthropic", serve(upstream), lambda *_: "", is_streamed=False)
        for name in ("claude-opus-4-5", "claude-opus-4-5", "claude-haiku-4-5"):
            client.model = name
            client.say("Go on.")
            client.step()
        client.history = [*client.history[:2], {"role": "user", "content": "Another way."}]
        client.step()
        root, fork = httpx2.get(f"{client.base_url}/transom/status").json()["sessions"]
    assert (root["prompt_tokens"], root["output_tokens"]) == (3_000_000, 300_000)
    assert root["usd"] == 2 * (5 + 2.5) + (1 + 0.5)
    assert (fork["prompt_tokens"], fork["usd"]) == (1_000_000, 1 + 0.5)
    assert "initial" not in fork["misses"]


def test_another_model_in_the_same_history_is_a_miss_with_its_name(
    api: str, plan: Plan, serve: Callable[..., str]
) -> None:
    reader = Reader(4)
    with ModelServer(reader) as model:
        client = Client(api, serve(model), reader.run)
        client.say("Read it all.")
        client.step()
        client.step()
        client.model = "m2"
        finished(client)
    assert [fact.reasons for fact in facts(plan, RequestSent)][:4] == [("initial",), (), ("change:model",), ()]


@pytest.mark.parametrize("first", [0, 1, 2])
def test_the_host_s_answer_stands_before_words_that_come_with_the_client_s_results(
    api: str, serve: Callable[..., str], first: int
) -> None:
    calls: list[str | Call] = [Call(name="read"), Call(name="read")]
    calls.insert(first, Call(name="recall", arguments={"query": "zebra"}))
    answers: Iterator[Said] = iter([calls, ["Done."]])
    with ModelServer(lambda _: next(answers)) as model:
        client = Client(api, serve(model), lambda *_: "a page")
        client.say("Go.")
        assert client.step()
        if api == "anthropic":
            client.history[-1]["content"].append({"type": "text", "text": "And this."})
        else:
            client.say("And this.")
        assert not client.step()
        history: list[dict[str, Any]] = model.bodies[-1].get("messages") or model.bodies[-1]["input"]
    if api == "openai_chat":  # it refuses words between a call and its result
        assert [one["role"] for one in history[2:]] == ["assistant", "tool", "tool", "tool", "user"]
    if api == "anthropic":
        assert [one["type"] for one in history[2]["content"]] == ["tool_result"] * 3 + ["text"]
    assert "recall: 'zebra' stands nowhere" in json.dumps(history)
