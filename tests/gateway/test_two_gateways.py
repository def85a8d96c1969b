"""Two gateways on one store: a history goes on behind either of them, and what one appended is never taken for what the
other's client said."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import count, cycle
from threading import Thread
from typing import Any

import pytest

from transom import compose
from transom.gateway.serving import Plan
from transom.testing.client import Client
from transom.testing.model_server import APIS, Call, ModelServer, Said

STEPS = 12


class Model:
    """Calls a tool of the client's, and every third time one of the host's beside it."""

    def __init__(self) -> None:
        self.asked = count(1)

    def __call__(self, asked: dict[str, Any]) -> Said:
        number = next(self.asked)
        beside = [Call(name="recall", arguments={"query": f"f{number}"})] if number % 3 == 0 else []
        return [Call(name="read", arguments={"path": f"f{number}"}), *beside]


def begun(api: str, urls: list[str], names: str) -> list[Client]:
    clients = [Client(api, url, _page_of(name)) for name, url in zip(names, cycle(urls), strict=False)]
    for client in clients:
        client.say("Go.")
    return clients


def _page_of(name: str) -> Callable[[str, dict[str, Any]], str]:
    return lambda _, arguments: f"client-{name} has {arguments} " + "a line\n" * 40


def ids(value: Any) -> Iterator[str]:
    """Of the calls and of the results in a request's history."""
    if isinstance(value, Mapping):
        if value.get("type") in {"tool_use", "function"}:
            yield f"call {value['id']}"
        elif value.get("type") == "function_call":
            yield f"call {value['call_id']}"
        answered = value.get("tool_use_id") or value.get("tool_call_id")
        if value.get("type") == "function_call_output":
            answered = value["call_id"]
        if answered:
            yield f"result {answered}"
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from ids(one)


def check(model: ModelServer, plan: Plan) -> None:
    for body in model.bodies:
        history = body.get("messages", body.get("input"))
        found = Counter(ids(history))
        assert set(found.values()) <= {1}, found
        assert {one[5:] for one in found if one[0] == "c"} == {one[7:] for one in found if one[0] == "r"}
        assert len(set(re.findall("client-[a-z]", json.dumps(history)))) <= 1
    with compose.store(plan.store) as kept:
        assert not [one.problem for one in kept.log.verify() if one.problem]


@pytest.mark.parametrize("api", list(APIS))
def test_each_request_of_a_history_may_come_to_another_gateway(api: str, plan: Plan, serve: Callable[..., str]) -> None:
    with ModelServer(Model()) as model:
        urls = [serve(model), serve(model)]
        one, two = begun(api, urls, "ab")
        for number in range(STEPS):
            for client in (one, two):
                client.base_url = urls[number // 2 % 2]
                assert client.step()
        assert {status for client in (one, two) for status in client.status} <= {"plain", "governed"}
        check(model, plan)


@pytest.mark.parametrize("api", list(APIS))
def test_clients_of_two_gateways_that_begin_with_the_same_words_do_not_mix(
    api: str, plan: Plan, serve: Callable[..., str]
) -> None:
    def work(client: Client) -> None:
        for _ in range(STEPS):
            assert client.step()

    with ModelServer(Model()) as model:
        clients = begun(api, [serve(model), serve(model)], "abcd")
        threads = [Thread(target=work, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for client, name in zip(clients, "abcd", strict=True):
            assert len(client.status) == STEPS
            assert set(re.findall("client-[a-z]", json.dumps(client.history))) == {f"client-{name}"}
        check(model, plan)


@pytest.mark.parametrize("api", list(APIS))
def test_a_fork_gets_a_name_of_its_own_where_another_gateway_took_the_next_one(
    api: str, plan: Plan, serve: Callable[..., str]
) -> None:
    said = count()
    with ModelServer(lambda _: [f"This is answer {next(said)}."]) as model:
        here, there = serve(model), serve(model)
        one, two = begun(api, [here, here], "ab")
        one.step()
        one.say("Go on.")
        one.base_url = there  # it knows of one history
        one.step()
        two.step()  # and here a second one begins, as long as what the first one's rewind shares with it
        one.history[2:] = []
        one.say("No, not so.")
        assert not one.step()
        assert {status for client in (one, two) for status in client.status} == {"plain"}
        check(model, plan)
