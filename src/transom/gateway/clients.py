"""How each client is told to use the gateway: its variables, and the settings that only a file or a flag can make.

As measured with the versions named (November 2026). A client's own compaction sleeps by itself, since it goes by the
usage that is reported, and that is the small window's; where a client can turn it off, it is turned off all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from transom.errors import BadInput

__all__ = ["CLIENTS", "Client", "client"]


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
_UNABLE = {"gemini-cli": "gemini-cli speaks the Gemini API alone, which the gateway does not serve yet"}


def client(name: str) -> Client:
    """The client of that name, or of that command. Raises `BadInput` with the names there are."""
    found = CLIENTS.get(name) or next((one for one in CLIENTS.values() if one.command == name), None)
    if found is None:
        raise BadInput(_UNABLE.get(name) or f"client {name!r} is not known; known are {', '.join(CLIENTS)}")
    return found
