"""What the sources say of a workspace, and what they say when something is missing, odd, or cannot be read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from transom.agent.rules import Nested, file_text, rules
from transom.agent.skills import front_matter, skills
from transom.agent.sources import Source, Surroundings
from transom.core.epochs import Sample
from transom.testing.conformance import SOURCES_CASES, SourcesCase


def surroundings(root: Path, *, limit: int = 32_000, memory: Path | None = None) -> Surroundings:
    return Surroundings(
        root, platform="linux", commands="they run", today=lambda: "2026-11-30", context_limit=limit, memory=memory
    )


def sample(root: Path, key: str, *, limit: int = 32_000, memory: Path | None = None) -> Sample:
    return next(one for one in surroundings(root, limit=limit, memory=memory).sample() if one.key == key)


def unreadable(path: Path) -> None:
    """A file that is there and cannot be read, for root too: a link to itself."""
    path.unlink(missing_ok=True)
    path.symlink_to(path.name)


@pytest.mark.parametrize("case", SOURCES_CASES, ids=lambda case: case.__name__)
def test_the_surroundings_keep_their_port(case: SourcesCase, root: Path) -> None:
    (root / "AGENTS.md").write_text("Be brief.")
    case(lambda: surroundings(root))


# -- a source


@pytest.mark.parametrize(
    ("found", "is_available", "text"),
    [("words", True, "words"), ("", True, None), (None, True, None), (PermissionError(), False, None)],
)
def test_a_source_is_a_text_or_nothing_or_unavailable(
    found: str | OSError | None, is_available: bool, text: str | None
) -> None:
    def load() -> str | None:
        if isinstance(found, OSError):
            raise found
        return found

    assert Source(key="k", load=load).sample() == Sample(key="k", text=text, is_available=is_available)


def test_half_a_character_does_no_harm() -> None:
    made = Source(key="k", load=lambda: "a\ud800b").sample()
    assert made.text is not None
    made.text.encode()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda path: path.mkdir(), None),
        (lambda path: path.symlink_to("nowhere"), None),
        (os.mkfifo, None),
        (lambda path: path.write_text(""), ""),
        (lambda path: path.write_bytes(b"\xff\xfe rules\n"), "\ufffd\ufffd rules"),
    ],
    ids=["folder", "dangling link", "pipe", "empty", "no text"],
)
def test_what_is_no_readable_file_is_no_text(root: Path, make: Callable[[Path], object], text: str | None) -> None:
    make(root / "AGENTS.md")
    assert file_text(root / "AGENTS.md") == text
    assert file_text(root / "AGENTS.md" / "below") is None


def test_a_file_that_cannot_be_read_makes_its_source_unavailable(root: Path) -> None:
    unreadable(root / "AGENTS.md")
    with pytest.raises(OSError, match="symbolic links"):
        file_text(root / "AGENTS.md")
    assert not sample(root, "rules").is_available


# -- rules


def test_rules_come_from_the_repository_down_to_the_workspace(root: Path) -> None:
    inner = root / "services" / "api"
    inner.mkdir(parents=True)
    (root / ".git").mkdir()
    for folder, words in ((root, "Outer."), (root / "services", "Middle."), (inner, "Inner.")):
        (folder / "AGENTS.md").write_text(words)
    said = rules(inner, 10_000) or ""
    places = [said.index(words) for words in ("Outer.", "Middle.", "Inner.")]
    assert places == sorted(places)
    assert f"from {root / 'AGENTS.md'}:" in said
    assert "from AGENTS.md:\nInner." in said


def test_outside_of_a_repository_only_the_workspaces_own_rules_are_read(root: Path) -> None:
    (root.parent / "AGENTS.md").write_text("Not ours.")
    assert rules(root, 10_000) is None


def test_rules_behind_a_link_out_of_the_repository_are_named_and_not_read(root: Path) -> None:
    (root / ".git").mkdir()
    inner = root / "api"
    inner.mkdir()
    (root.parent / "id_rsa").write_text("hush")
    (root / "CLAUDE.md").write_text("Be brief.")
    (root / "AGENTS.md").symlink_to("CLAUDE.md")
    (inner / "AGENTS.md").symlink_to(root.parent / "id_rsa")
    said = rules(inner, 10_000) or ""
    assert "Be brief." in said
    assert "hush" not in said
    assert f"[{inner / 'AGENTS.md'}: a link out of the repository; it is not read]" in said


def test_nothing_of_what_is_hidden_is_read_behind_a_link(root: Path) -> None:
    secret = root / ".ssh" / "id"
    secret.parent.mkdir()
    secret.write_text("---\nname: key\ndescription: PRIVATE\n---\n")
    (root / ".git").mkdir()
    (root / "AGENTS.md").symlink_to(".ssh/id")
    (root / ".claude" / "skills" / "a").mkdir(parents=True)
    (root / ".claude" / "skills" / "a" / "SKILL.md").symlink_to(secret)
    assert "PRIVATE" in (rules(root, 1000) or "")
    assert "PRIVATE" in (skills(root, 1000) or "")
    hidden = (secret.parent.resolve(),)
    assert rules(root, 1000, hidden) == f"[{root / 'AGENTS.md'}: a link to what is kept from the model; it is not read]"
    assert skills(root, 1000, hidden) is None


def test_rules_larger_than_their_share_are_cut_with_the_number_that_is_missing(root: Path) -> None:
    (root / "AGENTS.md").write_text("r" * 5000)
    said = sample(root, "rules", limit=10_000).text or ""
    assert "r" * 4000 in said
    assert "r" * 4001 not in said
    assert said.endswith("[1,000 characters more: read AGENTS.md]")


# -- deeper rules


def test_deeper_rules_are_named_and_not_read(root: Path) -> None:
    for folder in ("lib", "lib/node_modules/x", ".hidden", "docs/a", "docs/b"):
        (root / folder).mkdir(parents=True)
        (root / folder / "AGENTS.md").write_text("Deep.")
    (root / "AGENTS.md").write_text("Not deeper.")
    found = Nested(root).text() or ""
    assert found.endswith("before you work there: docs/a/AGENTS.md, docs/b/AGENTS.md, lib/AGENTS.md")
    assert "Deep." not in found


def test_deeper_rules_are_seen_as_they_come_and_go(root: Path) -> None:
    nested = Nested(root)
    assert nested.text() is None
    (root / "a" / "b").mkdir(parents=True)
    assert nested.text() is None
    (root / "a" / "b" / "AGENTS.md").write_text("Deep.")
    assert (nested.text() or "").endswith("a/b/AGENTS.md")
    (root / "a").rename(root / "c")
    assert (nested.text() or "").endswith("c/b/AGENTS.md")
    (root / "c" / "b" / "AGENTS.md").unlink()
    assert nested.text() is None


def test_a_folder_that_has_not_changed_is_not_listed_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        (root / f"d{number}").mkdir()
    (root / "d3" / "AGENTS.md").write_text("Deep.")
    nested, listed = Nested(root), []
    real = os.scandir

    def counted(path: Path) -> object:
        listed.append(path)
        return real(path)

    monkeypatch.setattr(os, "scandir", counted)
    first = nested.text()
    assert len(listed) == 6
    listed.clear()
    assert nested.text() == first
    assert listed == []


def test_a_folder_that_goes_while_it_is_looked_at_is_as_it_was(root: Path) -> None:
    nested = Nested(root)
    (root / "d").mkdir()
    nested.text()
    (root / "d").rmdir()
    root.rename(root.parent / "moved")
    assert nested.text() is None


# -- skills


def skill(root: Path, name: str, text: str, place: str = ".agents/skills") -> Path:
    folder = root / place / name
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(text)
    return folder


def test_skills_are_named_with_what_they_are_for_and_where_their_file_is(root: Path) -> None:
    skill(root, "release", "---\nname: release\ndescription: How a release is made.\n---\n# Steps\nSecret.")
    skill(root, "pdf", '---\nname: "pdf"\ndescription: >-\n  Fills forms,\n  and reads them.\nlicense: x\n---\n')
    skill(root, "bare", "No front matter here.", place=".claude/skills")
    skill(root, "pdf-again", "---\nname: pdf\n---\n", place=".claude/skills")
    (root / ".agents/skills/README.md").write_text("no skill")
    (root / ".agents/skills/empty").mkdir()
    said = (skills(root, 10_000) or "").splitlines()
    assert said[1:] == [
        "- pdf (.agents/skills/pdf/SKILL.md): Fills forms, and reads them.",
        "- release (.agents/skills/release/SKILL.md): How a release is made.",
        "- bare (.claude/skills/bare/SKILL.md)",
    ]


def test_no_skills_are_nothing_to_say(root: Path) -> None:
    assert skills(root, 100) is None
    (root / ".agents").write_text("a file")
    assert skills(root, 100) is None


def test_skills_beyond_their_share_are_named_alone(root: Path) -> None:
    for number in range(3):
        skill(root, f"s{number}", f"---\nname: s{number}\ndescription: {'d' * 2000}\n---\n")
    said = (skills(root, 1200) or "").splitlines()
    assert [len(line) > 1000 for line in said[1:]] == [True, False, False]
    assert said[1].endswith("d" * 1024)


def test_a_skill_that_cannot_be_read_leaves_all_as_it_was_known(root: Path) -> None:
    unreadable(skill(root, "s", "") / "SKILL.md")
    assert not sample(root, "skills").is_available


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("# no front matter\nname: x", {}),
        ("---\nname: never ends\n", {}),
        ("---\nname: 'it''s'\ndescription: \"a \\\"b\\\" c\"\n---", {"name": "it's", "description": 'a "b" c'}),
        ("---\nname: a\n  b\nallowed:\n  - x\n  - y\n---\nbody", {"name": "a b", "allowed": "- x - y"}),
        ("---\ndescription: |\n  one\n\n  two\n# a comment\n---", {"description": "one two"}),
        ("---\n  indented: 1\nurl: http://x/y: z\n---", {"url": "http://x/y: z"}),
        ("---\r\nname: crlf\r\n---\r\n", {"name": "crlf"}),
    ],
)
def test_of_a_front_matter_its_top_level_strings_are_read(text: str, found: dict[str, str]) -> None:
    assert front_matter(text) == found


# -- the user's own


def test_the_users_own_notes_stand_first_and_are_cut_with_a_number(root: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.md"
    assert sample(root, "memory", memory=own).text is None
    own.write_text("I like tabs.")
    assert (sample(root, "memory", memory=own).text or "").endswith("AGENTS.md:\nI like tabs.")
    own.write_text("x" * 1500)
    assert (sample(root, "memory", memory=own, limit=10_000).text or "").endswith(f"[500 characters more in {own}]")
    assert sample(root, "memory").text is None
