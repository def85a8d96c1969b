"""How each client is told to use the gateway: its variables, and the settings that only a file or a flag can make.

As measured with the versions named (November 2026). A client's own compaction sleeps by itself, since it goes by the
usage that is reported, and that is the small window's; where a client can turn it off, it is turned off all the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transom.errors import BadInput

__all__ = ["CLIENTS", "Client", "client", "client_in"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """`env` and `arguments` may hold `{root}` (the gateway's address) and `{v1}` (the same with /v1); `file` and
    `settings` name a configuration file and what belongs in it."""

    name: str
    command: str
    version: str
    env: Mapping[str, str]
    arguments: tuple[str, ...] = ()
    file: str = ""
    settings: str = ""
    note: str = ""

    def filled(self, root: str) -> Client:
        """With the gateway's address in place."""

        def put(text: str) -> str:
            return text.replace("{root}", root).replace("{v1}", f"{root}/v1")

        return Client(
            name=self.name,
            command=self.command,
            version=self.version,
            env={name: put(value) for name, value in self.env.items()},
            arguments=tuple(put(one) for one in self.arguments),
            file=self.file,
            settings=put(self.settings),
            note=self.note,
        )


CLIENTS: dict[str, Client] = {
    one.name: one
    for one in (
        Client(
            name="claude-code",
            command="claude",
            version="2.1.332",
            env={"ANTHROPIC_BASE_URL": "{root}", "DISABLE_COMPACT": "1", "DISABLE_AUTO_COMPACT": "1"},
        ),
        Client(
            name="codex",
            command="codex",
            version="0.171.0",
            env={},
            arguments=("-c", 'openai_base_url="{v1}"', "-c", "model_context_window=1000000000"),
            file="~/.codex/config.toml",
            settings='openai_base_url = "{v1}"\nmodel_context_window = 1000000000   # its own compaction is off',
            note="It tries a websocket first; the gateway answers 426 and it goes on over HTTP.",
        ),
        Client(
            name="opencode",
            command="opencode",
            version="1.18.33",
            env={
                "OPENCODE_CONFIG_CONTENT": '{"provider":{"anthropic":{"options":{"baseURL":"{v1}"}},'
                '"openai":{"options":{"baseURL":"{v1}"}}},"compaction":{"auto":false,"prune":false}}'
            },
            file="opencode.json",
            settings='{"provider":{"anthropic":{"options":{"baseURL":"{v1}"}},"openai":{"options":{"baseURL":"{v1}"}}},'
            '"compaction":{"auto":false,"prune":false}}',
            note="For Anthropic too, it wants the address with /v1.",
        ),
        Client(
            name="pi",
            command="pi",
            version="1.6.0",
            env={},
            file="~/.pi/agent/models.json",
            settings='{"providers":{"anthropic":{"baseUrl":"{root}"},"openai":{"baseUrl":"{v1}"}}}',
            note='Its compaction: {"compaction":{"enabled":false}} in ~/.pi/agent/settings.json.',
        ),
        Client(
            name="qwen-code",
            command="qwen",
            version="0.24.4",
            env={"OPENAI_BASE_URL": "{v1}", "ANTHROPIC_BASE_URL": "{root}"},
            arguments=("--auth-type", "openai"),
            file="~/.qwen/settings.json",
            settings='{"model":{"generationConfig":{"contextWindowSize":1000000000}}}',
            note="It has no switch for its compaction: a huge window is one.",
        ),
        Client(
            name="aider",
            command="aider",
            version="0.86.2",
            env={"OPENAI_API_BASE": "{v1}", "ANTHROPIC_API_BASE": "{root}"},
            note="It offers no tools, so windows are opened by the gateway, never by the model.",
        ),
        Client(
            name="mini-swe-agent",
            command="mini",
            version="2.4.6",
            env={"OPENAI_API_BASE": "{v1}", "ANTHROPIC_API_BASE": "{root}"},
        ),
    )
}
_UNABLE = dict.fromkeys(
    ("gemini-cli", "gemini"), "gemini-cli speaks the Gemini API alone, which the gateway does not serve yet"
)


_STARTERS = frozenset(
    {"env", "npx", "npm", "pnpm", "yarn", "bunx", "bun", "uvx", "uv", "pipx", "node", "python", "python3", "nohup"}
    | {"timeout", "nice"}
)
"""Programs that start the one that a later word names."""
_PACKAGE = frozenset({"-p", "--package", "--from", "--with"})
"""Options of theirs before a package's name; the program's stands behind it."""
_ENDING = re.compile(r"\.(exe|cmd|bat|ps1|js)$", re.IGNORECASE)


def client_in(command: Sequence[str], name: str = "") -> tuple[Client, int]:
    """The client that a command starts (called `name`, if that is given), and the word behind which its arguments
    begin: the first, or one that a starter such as npx or env goes on to. Raises `BadInput` where none is known."""
    words = command if _called(command[0]) in _STARTERS else command[:1]
    for at, word in enumerate(words):
        found = _find(_called(word))
        if found is not None and (at == 0 or words[at - 1] not in _PACKAGE):
            return client(name) if name else found, at
    if name:
        return client(name), 0
    unable = next((_UNABLE[one] for one in map(_called, words) if one in _UNABLE), "")
    raise BadInput(
        unable
        or f"no client is known in {' '.join(command[:4])!r}; --client NAME says which it is, one of "
        f"{', '.join(CLIENTS)}"
    )


def _called(word: str) -> str:
    """The program that a word means: without its folder, its ending, and the version behind a package."""
    return _ENDING.sub("", re.split(r"[/\\]", word)[-1].partition("@")[0])


def _find(name: str) -> Client | None:
    return CLIENTS.get(name) or next((one for one in CLIENTS.values() if one.command == name), None)


def client(name: str) -> Client:
    """The client of that name, or of that command. Raises `BadInput` with the names there are."""
    found = _find(name)
    if found is None:
        raise BadInput(_UNABLE.get(name) or f"client {name!r} is not known; known are {', '.join(CLIENTS)}")
    return found
