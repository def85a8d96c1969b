"""A client that shows its files anew behind all that was said: each request is a fork, and forks share their windows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from transom import compose
from transom.core.event import Observed, RequestSent, WindowOpened
from transom.gateway.serving import Plan
from transom.testing.client import Client, Refused
from transom.testing.model_server import ModelServer, words_of

ROUNDS = 30
HARD = 7_000
_PAD = " ".join(f"word{number}" for number in range(140))


def shown(client: Client, number: int) -> None:
    """The next request ends with the files as they are now, and what the user says then."""
    client.say(f"These are the files:\nround {number}\n" + "a line of a file\n" * 120)
    client.history.append({"role": "assistant", "content": "Ok."})
    client.say(f"Do round {number}. {_PAD}")


def worked(api: str, url: str) -> Client:
    client = Client(api, url, lambda *_: "", has_tools=False)
    client.say("This is the work.")
    client.history.append({"role": "assistant", "content": "Ok."})
    for number in range(ROUNDS):
        begun = len(client.history)
        shown(client, number)
        assert not client.step()
        del client.history[begun : begun + 2]  # the files
        client.say("I did that.")
        client.history.append({"role": "assistant", "content": "Ok."})
    return client


def bodies(model: ModelServer) -> Iterator[list[str]]:
    for body in model.bodies:
        yield [json.dumps(one, sort_keys=True) for one in unmarked(body.get("messages", body.get("input")))]


def unmarked(value: Any) -> Any:
    if isinstance(value, list):
        return [unmarked(one) for one in value]
    if isinstance(value, dict):
        return {name: unmarked(one) for name, one in value.items() if name != "cache_control"}
    return value


def alike(one: list[Any], other: list[Any]) -> int:
    """How many elements both begin with."""
    return next((place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)


@pytest.mark.parametrize("api", ["anthropic", "openai_chat", "openai_responses"])
def test_forks_of_one_history_share_the_window_that_the_first_without_room_opened(
    api: str, plan: Plan, serve: Callable[..., str]
) -> None:
    with ModelServer(lambda _: [f"I did it. {_PAD}"]) as model:
        client = worked(api, serve(model))
        asked = list(bodies(model))
        assert all("These are the files" in words_of(body) for body in model.bodies)
    assert set(client.status) == {"plain", "governed"}
    with compose.store(plan.store) as kept:
        assert not [one.problem for one in kept.log.verify() if one.problem]
        read = [event for row in kept.log.sessions() for event in kept.log.read(row.session_id)]
    events = {event.uuid: event.fact for event in read}.values()
    sent = [fact for fact in events if isinstance(fact, RequestSent)]
    assert max(fact.tokens for fact in sent) <= HARD
    assert {fact.verdict for fact in sent} == {"miss"}, "each fork says that its first request is one"
    windows = [fact for fact in events if isinstance(fact, WindowOpened)]
    governed = client.status.count("governed")
    assert 2 <= len(windows) <= governed // 3
    together = [alike(one, other) for one, other in pairwise(asked)]
    assert sum(count <= 2 for count in together[-governed:]) <= len(windows) + 1


def test_the_cache_marks_of_forks_stand_where_the_next_fork_still_begins(plan: Plan, serve: Callable[..., str]) -> None:
    with ModelServer(lambda _: [f"I did it. {_PAD}"]) as model:
        worked("anthropic", serve(model))
        last = [body["messages"] for body in model.bodies if "cache_control" in str(body["messages"][:-1])][-6:]
    plain = [unmarked(one) for one in last]
    for number, (one, other) in enumerate(pairwise(last)):
        shared = alike(plain[number], plain[number + 1])
        marks = [place for place, message in enumerate(one[:shared]) if "cache_control" in str(message)]
        assert max(marks) >= shared - 6, (marks, shared)
        assert "cache_control" in str(other[shared - 2 : shared])


@pytest.mark.parametrize("api", ["anthropic", "openai_chat", "openai_responses"])
def test_what_is_other_in_a_request_that_is_asked_again_is_kept(
    api: str, plan: Plan, serve: Callable[..., str]
) -> None:
    with ModelServer(lambda _: ["Done."]) as model:
        model.faults.append((500, b"{}"))
        client = Client(api, serve(model), lambda *_: "")
        client.say("Go.")
        with pytest.raises(Refused):
            client.ask(json.dumps({**json.loads(client.body()), "metadata": {"try": "first"}}).encode())
        client.ask(json.dumps({**json.loads(client.body()), "metadata": {"try": "second"}}).encode())
    with compose.store(plan.store) as kept:
        (row,) = kept.log.sessions()
        facts = [event.fact for event in kept.log.read(row.session_id)]
    asked = [json.loads(fact.raw) for fact in facts if isinstance(fact, Observed) and fact.kind == "client_request"]
    assert [one["rest"]["metadata"]["try"] for one in asked] == ["first", "second"]
    assert [len(one["elements"]) for one in asked] == [1, 0]
