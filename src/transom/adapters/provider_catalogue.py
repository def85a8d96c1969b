"""Which providers there are by name: the API each speaks, where it is, and in which variable its key stands.

Any other server is reached by its base URL, under the name of what it is compatible with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from transom.errors import BadInput, ProviderError

__all__ = ["PROVIDERS", "SYSTEM_ROLES_AS_OF", "ApiKind", "Known", "base_url_of", "key_of", "known"]

ApiKind = Literal["anthropic", "openai_chat", "openai_responses"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A provider. Without a `base_url` one must be given; a key is needed unless `is_open`."""

    name: str
    api: ApiKind
    base_url: str = ""
    key_variable: str = ""
    base_variable: str = ""
    """Variable that moves the base URL, as the provider's own SDK reads it."""
    is_open: bool = False
    system_role: str = ""
    """The role of a system message in the middle of a conversation, as of `SYSTEM_ROLES_AS_OF`; empty: what changes of
    the head is said in tagged text beside the user's (docs/sources.md says why)."""


SYSTEM_ROLES_AS_OF = "2026-12"

PROVIDERS: tuple[Known, ...] = (
    Known(
        name="anthropic",
        api="anthropic",
        base_url="https://api.anthropic.com",
        key_variable="ANTHROPIC_API_KEY",
        base_variable="ANTHROPIC_BASE_URL",
    ),
    Known(
        name="openai",
        api="openai_responses",
        base_url="https://api.openai.com/v1",
        key_variable="OPENAI_API_KEY",
        base_variable="OPENAI_BASE_URL",
        system_role="developer",
    ),
    Known(
        name="openai-chat",
        api="openai_chat",
        base_url="https://api.openai.com/v1",
        key_variable="OPENAI_API_KEY",
        base_variable="OPENAI_BASE_URL",
        system_role="developer",
    ),
    Known(name="deepseek", api="openai_chat", base_url="https://api.deepseek.com/v1", key_variable="DEEPSEEK_API_KEY"),
    Known(
        name="openrouter",
        api="openai_chat",
        base_url="https://openrouter.ai/api/v1",
        key_variable="OPENROUTER_API_KEY",
    ),
    Known(name="ollama", api="openai_chat", base_url="http://127.0.0.1:11434/v1", is_open=True),
    Known(
        name="vllm",
        api="openai_chat",
        base_url="http://127.0.0.1:8000/v1",
        key_variable="VLLM_API_KEY",
        is_open=True,
    ),
    Known(
        name="llama.cpp",
        api="openai_chat",
        base_url="http://127.0.0.1:8080/v1",
        key_variable="LLAMA_API_KEY",
        is_open=True,
    ),
    Known(name="compatible", api="openai_chat", key_variable="TRANSOM_API_KEY", is_open=True),
    Known(name="compatible-responses", api="openai_responses", key_variable="TRANSOM_API_KEY", is_open=True),
    Known(name="compatible-anthropic", api="anthropic", key_variable="TRANSOM_API_KEY", is_open=True),
)


def known(name: str) -> Known:
    """Raises `BadInput` for a name that is none, with those there are."""
    for one in PROVIDERS:
        if one.name == name:
            return one
    there_are = ", ".join(one.name for one in PROVIDERS)
    raise BadInput(
        f"{name!r} is no provider; name one of {there_are}; or scripted, recorded, local. A server of your own is "
        "`compatible`, with its base URL"
    )


def base_url_of(one: Known, given: str, env: Mapping[str, str]) -> str:
    """What was given, else what the variable says, else the provider's own. Raises `BadInput` if there is none."""
    found = given or env.get(one.base_variable, "") or one.base_url
    if not found:
        raise BadInput(f"{one.name}: give the server's base URL, such as http://127.0.0.1:8000/v1")
    found = found.rstrip("/")
    return found.removesuffix("/v1") if one.api == "anthropic" else found  # its path holds the version


def key_of(one: Known, env: Mapping[str, str]) -> str:
    """Raises `ProviderError` if it is needed and missing."""
    key = env.get(one.key_variable, "").strip() if one.key_variable else ""
    if not key and not one.is_open:
        raise ProviderError(f"{one.name}: no key; set the variable {one.key_variable} to one")
    return key
