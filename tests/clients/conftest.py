"""One stage a client, in a folder that stays the same for all its runs, and what the client does without a gateway."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.clients.kept import Kept
from tests.clients.kit import Client, Kit, kit
from tests.clients.stage import Run, Stage
from tests.clients.table import ROWS

__all__ = ["Row"]

Row = Callable[..., None]


@pytest.fixture(scope="session", name="kit")
def _kit() -> Kit:
    return kit()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clients")


@pytest.fixture
def on(kit: Kit, folder: Path) -> Callable[..., Stage]:
    """The stage of a client; `inside` another folder where it has to stand beside itself."""
    return lambda client, inside="", **more: Stage(kit, client, folder / inside / client.id, **more)


@pytest.fixture(scope="session")
def alone() -> Callable[[Stage], Run]:
    """A client's run without a gateway; made once."""
    made: dict[tuple[str, bool, int], Run] = {}

    def run(stage: Stage) -> Run:
        key = (stage.client.id, stage.thinks, stage.lines)
        if key not in made:
            made[key] = stage.direct()
        return made[key]

    return run


@pytest.fixture
def row(kit: Kit, request: pytest.FixtureRequest) -> Row:
    """Keeps the figures of a run that was right, for the table (`tests/clients/table.py`)."""

    def add(client: Client, run: Run, kept: Kept, session_id: str, **more: object) -> None:
        figures = {
            "test": request.node.originalname,
            "client": client.id,
            "name": client.name,
            "version": kit.version(client.name),
            "api": client.api,
            "limit": client.limit,
            "steps": len(run.asked) or len(run.main),
            "upstream": len(run.main),
            "windows": kept.rollovers(session_id),
            "most_tokens": run.upstream_tokens(),
            "cached": round(run.cached_share(), 3),
            "kept": round(run.prefix_kept(), 3),
            "breaks": run.breaks(),
            "verdicts": kept.verdicts(session_id),
            **more,
        }
        ROWS.mkdir(parents=True, exist_ok=True)
        (ROWS / f"{client.id}.{request.node.originalname}.json").write_text(json.dumps(figures) + "\n")

    return add
