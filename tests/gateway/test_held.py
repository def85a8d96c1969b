"""More histories than a gateway holds, all begun with the same words: each is found again and goes on where it ended."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from transom import compose
from transom.gateway.serving import Plan
from transom.testing.client import Client
from transom.testing.model_server import ModelServer

CLIENTS = 70


def asked(clients: list[Client], words: str) -> None:
    for number, client in enumerate(clients):
        client.say(f"{words} of client {number}.")
        assert not client.step()


def sessions(plan: Plan) -> int:
    with compose.store(plan.store) as kept:
        assert not [one.problem for one in kept.log.verify() if one.problem]
        return len(kept.log.sessions())


def test_a_history_that_had_to_make_room_is_found_again_also_after_a_restart(
    plan: Plan, serve: Callable[..., str]
) -> None:
    said = count()
    with ModelServer(lambda _: [f"This is answer {next(said)}."]) as model:
        url = serve(model)
        clients = [Client("openai_responses", url, lambda *_: "") for _ in range(CLIENTS)]
        for client in clients:
            client.say("Go.")
            client.step()
        begun = sessions(plan)
        asked(clients, "This is the work")
        url = serve(model)
        for client in clients:
            client.base_url = url
        asked(clients, "This is the rest")
        assert {status for client in clients for status in client.status} == {"plain"}
    assert begun == CLIENTS
    assert sessions(plan) == CLIENTS
