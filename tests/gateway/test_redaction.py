"""Secrets that are named by a pattern are neither stored nor sent on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom import compose
from transom.core.event import BlockReplaced, RequestSent
from transom.errors import BadInput
from transom.gateway.redaction import KNOWN, NO_RULES, read_rules
from transom.gateway.serving import Plan
from transom.testing.client import Client
from transom.testing.model_server import APIS, Call, ModelServer, Said

SECRETS = {
    "anthropic-key": "sk-ant-api03-abcdefghijklmnopqrstuv",
    "openai-key": "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789",
    "aws-access-key": "AKIAABCDEFGHIJKLMNOP",
    "github-token": "ghp_" + "a1" * 20,
    "slack-token": "xoxb-1234567890-abcdef",
    "google-key": "AIza" + "b" * 35,
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w",
    "private-key": "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAK\n-----END RSA PRIVATE KEY-----",
}
KNOWN_RULES = read_rules("known")


@pytest.mark.parametrize("name", list(KNOWN))
def test_each_known_form_is_found_wherever_it_stands_in_a_json_value(name: str) -> None:
    value = {"a": [1, {"b": f'he said "{SECRETS[name]}"\n'}], "n": 12345678901234567890, SECRETS[name]: 1}
    made = json.loads(KNOWN_RULES.json(json.dumps(value).encode()))
    assert made["a"][1]["b"] == f'he said "[redacted {name}]"\n'
    assert made["n"] == 12345678901234567890
    assert made[f"[redacted {name}]"] == 1


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_what_holds_no_secret_stays_the_same_bytes(value: object) -> None:
    raw = json.dumps(value).encode()
    assert KNOWN_RULES.json(raw) is raw
    assert NO_RULES.json(b'{"x": "sk-ant-api03-abcdefghijklmnopqrstuv"}').count(b"sk-ant") == 1


def test_a_key_that_a_diff_took_out_is_found() -> None:
    lines = SECRETS["private-key"].splitlines()
    assert KNOWN_RULES.text("\n".join(f"-{line}" for line in lines)) == "-[redacted private-key]"


@pytest.mark.parametrize("begun", ["-----BEGIN PRIVATE KEY-----\n", "-----BEGIN A ", "-eyJabcdefghijk"])
def test_a_megabyte_of_what_only_begins_like_a_secret_holds_up_nobody(begun: str) -> None:
    raw = json.dumps(begun * (1_000_000 // len(begun))).encode()
    began = process_time()
    assert KNOWN_RULES.json(raw) is raw
    assert process_time() - began < 5


def test_what_is_no_json_is_redacted_as_text() -> None:
    assert KNOWN_RULES.json(b'{"x": AKIAABCDEFGHIJKLMNOP') == b'{"x": [redacted aws-access-key]'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", r"has no \[redact\]"),
        ("[redact]\nx = 1", r"redact\.x: is no string"),
        ('[redact]\nx = "("', r"redact\.x: missing \)"),
        ('[redact]\nx = "a*"', r"redact\.x: matches nothing at all"),
        ("x =", "it takes names and patterns"),
    ],
)
def test_a_file_of_rules_that_cannot_be_used_says_where(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(text, "utf-8")
    with pytest.raises(BadInput, match=problem):
        read_rules(str(file))


def test_a_file_adds_to_the_known_forms(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text('[redact]\nknown = true\nticket = "TICKET-[0-9]+"\n', "utf-8")
    assert read_rules(str(file)).text("TICKET-7 AKIAABCDEFGHIJKLMNOP") == "[redacted ticket] [redacted aws-access-key]"
    with pytest.raises(BadInput, match="it takes names and patterns"):
        read_rules(str(tmp_path / "gone.toml"))


@pytest.mark.parametrize("api", list(APIS))
def test_a_secret_is_neither_stored_nor_sent_on_and_the_log_names_what_stood_there(
    api: str, plan: Plan, serve: Callable[..., str]
) -> None:
    secret = SECRETS["github-token"]
    turns: list[Said] = [["I look.", Call(name="read")], ["And again.", Call(name="read")], ["Done."]]
    with ModelServer(lambda _: turns.pop(0)) as model:
        client = Client(api, serve(model, redactor=KNOWN_RULES), lambda *_: f"token={secret}")
        client.say("Go. My key is " + SECRETS["aws-access-key"])
        while client.step():
            pass
        sent = b"".join(body for _, _, body in model.asked)
    assert secret.encode() not in sent
    assert b"AKIA" not in sent
    assert sent.count(b"token=[redacted github-token]") == 3
    assert secret in json.dumps(client.history)
    assert plan.store is not None
    for file in plan.store.rglob("*"):
        if file.is_file():
            assert secret.encode() not in file.read_bytes()
    with compose.store(plan.store) as kept:
        (session,) = kept.log.sessions()
        facts = [event.fact for event in kept.log.read(session.session_id)]
    assert [fact.how for fact in facts if isinstance(fact, BlockReplaced)] == ["redact"] * 3
    assert [fact.verdict for fact in facts if isinstance(fact, RequestSent)] == ["miss", "hit", "hit"]
