"""The table of the clients in docs/gateway.md, of what the last runs of these tests left in `out/clients`.

`python -m tests.clients.table` prints it. A run that was not right leaves nothing.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

__all__ = ["ROWS", "table"]

ROWS = Path(__file__).resolve().parents[2] / "out" / "clients"
_NAMES = {"claude": "Claude Code", "codex": "Codex", "mini": "mini-swe-agent", "qwen": "qwen-code"}
_APIS = {"anthropic": "Messages", "chat": "Chat", "responses": "Responses"}
_LABELS = {"codex-websocket": ", websocket first", "codex-lite": ", lite"}
_HEAD = (
    *("client", "API", "limit", "steps", "windows", "by code", "with thoughts", "resumed", "killed"),
    *("largest prompt", "cached"),
)
_TESTS = {
    "windows": ("test_a_client_does_not_notice_its_windows",),
    "by code": (
        "test_a_client_does_not_notice_that_its_model_never_hands_over",
        "test_aider_does_not_notice_its_windows",
    ),
    "with thoughts": ("test_a_client_s_thoughts_stay_valid_over_windows",),
    "resumed": (
        "test_a_session_is_gone_on_with_by_another_process_behind_another_gateway",
        "test_aider_goes_on_with_its_chat_behind_another_gateway",
    ),
    "killed": (
        "test_a_client_comes_to_its_end_though_the_gateway_is_killed_twenty_times",
        "test_aider_comes_to_its_end_though_the_gateway_is_killed_twenty_times",
    ),
}


def table(folder: Path = ROWS) -> str:
    """One row a client and API, in Markdown."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.json")):
        figures = json.loads(path.read_text())
        found.setdefault(figures["client"], {})[figures["test"]] = figures
    rows = [_row(client, tests) for client, tests in found.items()]
    rows.sort(key=lambda row: (row[0].lower(), row[1]))
    return "".join(f"| {' | '.join(row)} |\n" for row in (_HEAD, ("---",) * len(_HEAD), *rows))


def _row(client: str, tests: dict[str, Any]) -> tuple[str, ...]:
    ran = {column: tests[one] for column, names in _TESTS.items() for one in names if one in tests}
    first = next(iter((ran or tests).values()))
    return (
        f"{_NAMES.get(first['name'], first['name'])} {first['version']}",
        _APIS[first["api"]] + _LABELS.get(client, ""),
        f"{first['limit']:,}",
        str(first["steps"]),
        *(str(len(ran[column]["windows"]) + 1) if column in ran else "" for column in _TESTS),
        f"{max((one['most_tokens'] for one in ran.values()), default=0):,}",
        f"{first['cached']:.0%}",
    )


if __name__ == "__main__":
    sys.stdout.write(table())
