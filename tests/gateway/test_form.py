"""Of one prompt, first in the client's JSON and then in ours: what that costs with a provider that caches by bytes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from transom import compose
from transom.core.event import SessionOpened
from transom.core.ledger import ledger
from transom.core.losses import settle
from transom.core.pricing import find_price
from transom.gateway.serving import Plan
from transom.testing.client import Client
from transom.testing.model_server import Call, ModelServer

PAGE = "a line of the file that was asked for, with some words in it\n" * 60
PRICES = compose.prices()


def reasons(plan: Plan) -> list[str]:
    """Why each request of the only session was billed again, if it was."""
    with compose.store(plan.store) as kept:
        (row,) = kept.log.sessions()
        events = list(kept.log.read(row.session_id))
        opened = events[0].fact
        assert isinstance(opened, SessionOpened)
        dialect = compose.sent_dialect(opened, kept.blobs)
    settled = settle(list(ledger(events, dialect, lambda model: find_price(PRICES, model))))
    return [one.reason for one in settled]


@pytest.mark.parametrize(("api", "model"), [("anthropic", "claude-sonnet-4-5"), ("openai_responses", "gpt-5.1")])
def test_what_the_first_governed_request_loses_though_it_says_the_same_is_called_form(
    api: str, model: str, plan: Plan, serve: Callable[..., str]
) -> None:
    pages = count()
    with ModelServer(lambda _: ["I read on.", Call(name="read")], caches=True) as server:
        client = Client(api, serve(server, context_limit=16_000), lambda *_: f"{next(pages)}\n{PAGE}", model=model)
        client.say("Read it all.")
        while "governed" not in client.status[:-2]:
            assert client.step()
    first = client.status.index("governed")
    found = reasons(plan)
    assert found[first] == "form"
    assert found[1:first] == [""] * (first - 1)
    assert "form" not in found[first + 1 :]
