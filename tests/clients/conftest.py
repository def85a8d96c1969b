"""One stage a client, in a folder that stays the same for all its runs, and what the client does without a gateway."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.clients.kept import Kept
from tests.clients.kit import Client, Kit, kit
from tests.clients.stage import Run, Stage

__all__ = ["Row"]

_OUT = Path(__file__).resolve().parents[2] / "out" / "clients"

Row = Callable[..., None]


@pytest.fixture(scope="session", name="kit")
def _kit() -> Kit:
    return kit()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clients")


@pytest.fixture
def on(kit: Kit, folder: Path) -> Callable[..., Stage]:
    """The stage of a client."""
    return lambda client, **more: Stage(kit, client, folder / client.id, **more)


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


@pytest.fixture(scope="session")
def _rows(worker_id: str) -> Iterator[list[str]]:
    rows: list[str] = []
    yield rows
    if rows:
        _OUT.mkdir(parents=True, exist_ok=True)
        (_OUT / f"{worker_id}.jsonl").write_text("".join(rows))


@pytest.fixture
def row(_rows: list[str], request: pytest.FixtureRequest) -> Row:
    """Keeps the figures of a run in `out/clients/`, a line a run."""

    def add(client: Client, run: Run, kept: Kept, session_id: str) -> None:
        figures = {
            "test": request.node.originalname,
            "client": client.id,
            "limit": client.limit,
            "steps": sum(one.said in {"plain", "governed"} for one in run.seen),
            "upstream": len(run.main),
            "rollovers": kept.rollovers(session_id),
            "most_tokens": run.upstream_tokens(),
            "cached": round(run.cached_share(), 3),
            "kept": round(run.prefix_kept(), 3),
            "breaks": run.breaks(),
            "verdicts": kept.verdicts(session_id),
        }
        _rows.append(json.dumps(figures) + "\n")

    return add
