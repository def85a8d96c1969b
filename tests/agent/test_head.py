"""What stands before every window: sections in order, the project's rules with their share, the tools."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from transom.agent.head import Surroundings, head
from transom.agent.toolbox import Toolbox
from transom.core.event import EpochOpened
from transom.core.surface import GUIDANCE, HOST_TOOLS


@pytest.fixture
def here(root: Path) -> Surroundings:
    return Surroundings(root=root, platform="linux x86_64", today="2026-11-30", commands="they run in a sandbox")


def text(made: EpochOpened, key: str) -> str:
    return next((section.text for section in made.sections if section.key == key), "")


def test_the_sections_stand_in_a_fixed_order_and_an_empty_one_is_left_out(here: Surroundings, toolbox: Toolbox) -> None:
    made = head(here, toolbox.catalogue(), 32_000)
    assert [section.key for section in made.sections] == ["agent", "guidance", "environment"]
    assert text(made, "guidance") == GUIDANCE
    said = f"Workspace: {here.root}\nPlatform: linux x86_64\nDate: 2026-11-30\nCommands: they run in a sandbox"
    assert text(made, "environment") == said
    assert [tool.name for tool in made.tools] == [
        *("read", "write", "edit", "run", "find", "grep"),
        *(tool.name for tool in HOST_TOOLS),
    ]


def test_the_same_place_gives_the_same_bytes(here: Surroundings, toolbox: Toolbox) -> None:
    """L2."""
    assert head(here, toolbox.catalogue(), 32_000) == head(here, toolbox.catalogue(), 32_000)


def test_rules_come_from_the_repository_down_to_the_workspace(here: Surroundings) -> None:
    inner = here.root / "services" / "api"
    inner.mkdir(parents=True)
    (here.root / ".git").mkdir()
    for folder, words in ((here.root, "Outer."), (here.root / "services", "Middle."), (inner, "Inner.")):
        (folder / "AGENTS.md").write_text(words)
    said = text(head(replace(here, root=inner), (), 32_000), "rules")
    places = [said.index(words) for words in ("Outer.", "Middle.", "Inner.")]
    assert places == sorted(places)
    assert f"from {here.root / 'AGENTS.md'}:" in said
    assert "from AGENTS.md:\nInner." in said


def test_outside_of_a_repository_only_the_workspaces_own_rules_are_read(here: Surroundings) -> None:
    (here.root.parent / "AGENTS.md").write_text("Not ours.")
    assert text(head(here, (), 32_000), "rules") == ""


def test_deeper_rules_are_named_and_not_read(here: Surroundings) -> None:
    for folder in ("lib", "lib/node_modules/x", ".hidden"):
        (here.root / folder).mkdir(parents=True)
        (here.root / folder / "AGENTS.md").write_text("Deep.")
    said = text(head(here, (), 32_000), "rules")
    assert said == "More rules, for what lies beside them; read them before you work there: lib/AGENTS.md"


def test_rules_larger_than_their_share_are_cut_with_the_number_that_is_missing(here: Surroundings) -> None:
    (here.root / "AGENTS.md").write_text("r" * 5000)
    said = text(head(here, (), 10_000), "rules")
    assert "r" * 4000 in said
    assert "r" * 4001 not in said
    assert said.endswith("[1,000 characters more: read AGENTS.md]")


@pytest.mark.parametrize("kind", ["folder", "unreadable bytes", "dangling link"])
def test_rules_that_cannot_be_read_as_text_do_no_harm(here: Surroundings, kind: str) -> None:
    path = here.root / "AGENTS.md"
    match kind:
        case "folder":
            path.mkdir()
        case "dangling link":
            path.symlink_to("nowhere")
        case _:
            path.write_bytes(b"\xff\xfe rules")
    said = text(head(here, (), 32_000), "rules")
    assert ("rules" in said) == (kind == "unreadable bytes")
    said.encode()
