"""What stands before every window: sections in order, the tools, the same bytes for the same place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from transom.agent.head import head
from transom.agent.sources import Surroundings
from transom.agent.toolbox import Toolbox
from transom.core.epochs import Sample
from transom.core.surface import GUIDANCE, HOST_TOOLS


def here(root: Path) -> Surroundings:
    return Surroundings(
        root, platform="linux x86_64", commands="in a sandbox", today=lambda: "2026-11-30", context_limit=32_000
    )


@dataclass
class Given:
    samples: tuple[Sample, ...]

    def sample(self) -> tuple[Sample, ...]:
        return self.samples


def test_the_sections_stand_in_a_fixed_order_and_an_empty_one_is_left_out(root: Path, toolbox: Toolbox) -> None:
    made = head(here(root), toolbox.catalogue())
    assert [section.key for section in made.sections] == ["agent", "guidance", "environment", "date"]
    texts = {section.key: section.text for section in made.sections}
    assert texts["guidance"] == GUIDANCE
    assert texts["environment"] == f"Workspace: {root}\nPlatform: linux x86_64\nCommands: in a sandbox"
    assert texts["date"] == "Date: 2026-11-30"
    assert [tool.name for tool in made.tools] == [
        *("read", "write", "edit", "run", "find", "grep"),
        *(tool.name for tool in HOST_TOOLS),
    ]


def test_every_source_has_its_place_even_where_it_says_nothing_yet(root: Path) -> None:
    order = ["agent", "guidance", "memory", "rules", "nested_rules", "skills", "environment", "date"]
    assert list(head(here(root), ()).order) == order


def test_what_cannot_be_read_at_the_start_is_left_out_until_it_can() -> None:
    made = head(Given((Sample(key="rules", is_available=False), Sample(key="date", text="d"))), ())
    assert [section.key for section in made.sections] == ["agent", "guidance", "date"]
    assert list(made.order) == ["agent", "guidance", "rules", "date"]


def test_the_same_place_gives_the_same_bytes(root: Path, toolbox: Toolbox) -> None:
    """L2."""
    assert head(here(root), toolbox.catalogue()) == head(here(root), toolbox.catalogue())
