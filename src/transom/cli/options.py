"""Options that several commands have in common, in one wording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, Token

__all__ = ["AsJson", "Options", "OptionsOf", "SessionName", "StoreFolder", "whole_number"]


def whole_number(_: type, said: Sequence[Token]) -> int:
    """An integer to the letter: the parser's own would round 1.5."""
    try:
        return int(said[0].value)
    except ValueError:
        raise ValueError(f"{said[0].value!r} is no whole number") from None


StoreFolder = Annotated[
    Path | None, Parameter(help="The store's folder. Without it TRANSOM_HOME, else the usual place for programs' data.")
]
SessionName = Annotated[str, Parameter(help="Its id, the start of it, or `latest`, which is meant without it.")]
AsJson = Annotated[bool, Parameter(help="JSON instead of text.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The flags of `run` and `resume`. What is not given comes from where `transom config` shows."""

    provider: Annotated[
        str | None,
        Parameter(help="anthropic, openai, deepseek, openrouter, ollama, vllm, llama.cpp, compatible, …; or scripted, "
                  "recorded, local. Left out, it follows from the model's name."),
    ] = None  # fmt: skip
    model: Annotated[str | None, Parameter(help="The model's name; a GGUF file for local.")] = None
    base_url: Annotated[str | None, Parameter(help="Where the provider's server is.")] = None
    script: Annotated[str | None, Parameter(help="The script that the scripted provider plays.")] = None
    context_limit: Annotated[str | None, Parameter(help="Tokens of the window: 8k, 128000, 1M.")] = None
    policy: Annotated[str | None, Parameter(help="A preset (rollover, gssc, mask, …) or FILE.toml.")] = None
    ask: Annotated[bool, Parameter(help="Ask before every write and every command.")] = False
    auto: Annotated[bool, Parameter(help="Ask nothing: the default inside a sandbox.")] = False
    unsandboxed: Annotated[bool, Parameter(help="Run commands with all your rights.")] = False
    network: Annotated[bool, Parameter(help="Let commands in the sandbox use the network.")] = False
    max_steps: Annotated[int | None, Parameter(converter=whole_number, help="End after so many steps.")] = None
    max_spend: Annotated[float | None, Parameter(help="End when the session has cost so many US dollars.")] = None
    max_minutes: Annotated[float | None, Parameter(help="End after so many minutes.")] = None
    store: StoreFolder = None
    workspace: Annotated[
        Path | None,
        Parameter(help="The folder to work in. Without it, this one, or that of what is resumed."),
    ] = None
    quiet: Annotated[bool, Parameter(help="Print the model's last words alone.")] = False
    json: Annotated[bool, Parameter(help="Print a line of JSON for each event, and one for the end.")] = False


OptionsOf = Annotated[Options, Parameter(name="*")]
