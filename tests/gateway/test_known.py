"""A history is known again by what the log keeps of it, however much came at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from transom import compose
from transom.core.event import Observed
from transom.gateway.serving import Plan
from transom.testing.client import Client
from transom.testing.model_server import Call, ModelServer, words_of

_LARGE = 300_000


@pytest.mark.parametrize("api", ["anthropic", "openai_chat", "openai_responses"])
def test_a_history_that_came_large_is_gone_on_with_after_a_restart(
    api: str, plan: Plan, serve: Callable[..., str]
) -> None:
    with ModelServer(
        lambda asked: ["Read it.", Call(name="read")] if len(words_of(asked)) < 900 else ["Done."]
    ) as model:
        url = serve(model, context_limit=2_000_000)
        client = Client(api, url, lambda *_: "")
        for number in range(6):
            client.say(f"{number} " + "word " * (_LARGE // 5))
        client.step()
        client.base_url = serve(model, context_limit=2_000_000)
        client.say("Go on.")
        client.step()
        sent = model.asked[-1][2]
    assert client.status == ["plain", "plain"]
    assert sent.count(b"word word") >= 6
    with compose.store(plan.store) as kept:
        (row,) = kept.log.sessions()
        facts = [event.fact for event in kept.log.read(row.session_id)]
    assert sum(isinstance(fact, Observed) and fact.kind == "client_request" for fact in facts) == 6 + 2


@pytest.mark.parametrize("api", ["anthropic", "openai_chat", "openai_responses"])
def test_who_begins_as_a_whole_history_did_shares_only_the_beginning(
    api: str, plan: Plan, serve: Callable[..., str]
) -> None:
    """The first request of one client held more than the other one says."""
    with ModelServer(lambda _: ["Done."]) as model:
        url = serve(model)
        for words in ("secret 4711", "another"):
            client = Client(api, url, lambda *_: "")
            client.say("Go.")
            client.say(f"This is {words}.")
            client.step()
            client.say("Go on.")
            client.step()
    with compose.store(plan.store) as kept:
        rows = kept.log.sessions()
        said = {row.kind: str([event.fact for event in kept.log.read(row.session_id)]) for row in rows}
    assert "secret 4711" in said["root"]
    assert "secret 4711" not in said["fork"]
    assert "another" in said["fork"]


def test_a_client_that_drops_a_part_of_an_answer_goes_on_in_one_fork(plan: Plan, serve: Callable[..., str]) -> None:
    with ModelServer(lambda _: ["I read.", Call(name="read")]) as model:
        client = Client("openai_responses", serve(model), lambda *_: "a page", headers={"session-id": "one"})
        client.say("Go.")
        client.step()
        client.step()
        assert [one.get("type", "message") for one in client.history[1:4]] == [
            "message",
            "function_call",
            "function_call_output",
        ]
        del client.history[2:4]
        for _ in range(4):
            client.step()
        assert set(client.status) == {"plain"}
    with compose.store(plan.store) as kept:
        assert sorted(row.kind for row in kept.log.sessions()) == ["fork", "root"]
        assert not [one.problem for one in kept.log.verify() if one.problem]
