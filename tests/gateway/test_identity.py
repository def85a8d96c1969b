"""Which client a request is from, for whoever reads the status."""

from __future__ import annotations

import json

import pytest

from transom.gateway.face import Face
from transom.gateway.face_anthropic import AnthropicFace
from transom.gateway.face_openai_chat import OpenAIChatFace
from transom.gateway.face_openai_responses import OpenAIResponsesFace
from transom.gateway.identity import identify

QWEN = "You are Qwen Code, a non-interactive CLI agent"
AIDER = "Act as an expert software developer.\nAlways use best practices"
MINI = "You are a helpful assistant that can interact with a computer."


FACES: dict[str, Face] = {
    "anthropic": AnthropicFace(),
    "chat": OpenAIChatFace(),
    "responses": OpenAIResponsesFace(),
}


def body(api: str, system: str) -> bytes:
    said = [{"role": "user", "content": "Go."}]
    match api:
        case "anthropic":
            asked = {"system": [{"type": "text", "text": system}], "messages": said, "max_tokens": 9}
        case "chat":
            asked = {"messages": [{"role": "system", "content": system}, *said]}
        case _:
            asked = {"input": [{"role": "developer", "content": system}, *said]}
    return json.dumps({"model": "m1"} | asked).encode()


@pytest.mark.parametrize("api", ["anthropic", "chat", "responses"])
@pytest.mark.parametrize(
    ("agent", "system", "client"),
    [
        ("pi/1.6.0 (linux; node/v24.21.0; x64)", "You are of use.", "pi"),
        ("QwenCode/0.24.4 (linux; x64)", "You are of use.", "qwen-code"),
        ("claude-cli/0.24.4 (external, cli)", QWEN, "qwen-code"),
        ("claude-cli/2.1.332 (external, cli)", "You are Claude Code.", "claude-code"),
        ("codex_cli_rs/0.171.0", "You are of use.", "codex"),
        ("litellm/1.81.10", AIDER, "aider"),
        ("OpenAI/Python 3.57.0", MINI, "mini-swe-agent"),
        ("OpenAI/Python 3.57.0", f"He said: {MINI}", ""),
        ("piper/1.0", "You are of use.", ""),
        ("", "You are of use.", ""),
    ],
)
def test_a_client_without_a_header_of_its_own_is_known_by_how_it_introduces_itself(
    api: str, agent: str, system: str, client: str
) -> None:
    face = FACES[api]
    found = identify(face, face.call(body(api, system)), {"user-agent": agent})
    assert (found.client, found.is_named) == (client, False)


def test_a_client_s_own_header_says_more_than_its_words() -> None:
    face = FACES["anthropic"]
    found = identify(face, face.call(body("anthropic", QWEN)), {"x-claude-code-session-id": "s"})
    assert (found.client, found.is_named) == ("claude-code", True)


def test_who_it_is_does_not_part_one_history_from_itself() -> None:
    face = FACES["chat"]
    call = face.call(body("chat", MINI))
    assert len({identify(face, call, {"user-agent": one}).key for one in ("pi/1", "litellm/1", "")}) == 1


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("Your task is to create a detailed summary of the conversation so far.", "compaction"),
        ("CONTEXT CHECKPOINT COMPACTION: write a handoff.", "compaction"),
        ("Now create a detailed summary of our conversation for the changelog.", "main"),
        ("What does context compaction do here?", "main"),
    ],
)
def test_a_person_who_asks_for_a_summary_is_no_client_that_compacts(words: str, kind: str) -> None:
    face = FACES["anthropic"]
    tool = {"name": "read", "input_schema": {"type": "object"}}
    said = [{"role": "user", "content": words}]
    call = face.call(json.dumps({"model": "m1", "max_tokens": 9, "tools": [tool], "messages": said}).encode())
    assert identify(face, call, {}).kind == kind
