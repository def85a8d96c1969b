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
    *("client", "API", "limit", "steps", "windows", "largest prompt", "cached"),
    *("by code", "with thoughts", "resumed", "20 kills"),
)
_MAIN = ("test_a_client_does_not_notice_its_windows", "test_aider_does_not_notice_its_windows")
_MORE = (
    "test_a_client_does_not_notice_that_its_model_never_hands_over",
    "test_a_client_s_thoughts_stay_valid_over_windows",
    "test_a_session_is_gone_on_with_by_another_process_behind_another_gateway",
    "test_a_client_comes_to_its_end_though_the_gateway_is_killed_twenty_times",
)


def table(folder: Path = ROWS) -> str:
    """One row a client and API, in Markdown."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.json")):
        figures = json.loads(path.read_text())
        found.setdefault(figures["client"], {})[figures["test"]] = figures
    rows = [_HEAD, ("---",) * len(_HEAD), *(_row(client, tests) for client, tests in found.items())]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _row(client: str, tests: dict[str, Any]) -> tuple[str, ...]:
    any_one = next(iter(tests.values()))
    name = _NAMES.get(any_one["name"], any_one["name"])
    main = next((tests[test] for test in _MAIN if test in tests), None)
    figures = ("", "", "", "") if main is None else _figures(main)
    api = _APIS[any_one["api"]] + _LABELS.get(client, "")
    windows = (str(_windows(tests[test])) if test in tests else "" for test in _MORE)
    return (f"{name} {any_one['version']}", api, f"{any_one['limit']:,}", *figures, *windows)


def _figures(main: dict[str, Any]) -> tuple[str, ...]:
    return (str(main["steps"]), str(_windows(main)), f"{main['most_tokens']:,}", f"{main['cached']:.0%}")


def _windows(figures: dict[str, Any]) -> int:
    """That were opened, with the first."""
    return len(figures["windows"]) + 1


if __name__ == "__main__":
    sys.stdout.write(table())
