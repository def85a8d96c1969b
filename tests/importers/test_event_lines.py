"""An export that was tampered with, cut or mixed up is named by line; what is sound before it is kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from transom import compose
from transom.core.block import Image, Text
from transom.core.event import Draft, Link, SessionOpened, UserSaid
from transom.errors import BadInput, LogDamaged

PICTURE = b"\x89PNG not really"


@pytest.fixture
def lines(tmp_path: Path) -> list[str]:
    """A parent with a picture, and a child it started."""
    with compose.store(tmp_path / "first") as kept:
        picture = Image(media_type="image/png", artifact_id=kept.blobs.put(PICTURE), size=len(PICTURE))
        said = UserSaid(blocks=(Text(text="half an emoji: \ud83d"), picture))
        opened = Draft(fact=SessionOpened(format=1), uuid="a", at=1)
        head = kept.log.append("parent", 0, [opened, Draft(fact=said, uuid="b", at=2)])[-1]
        parent = Link(session_id="parent", seq=head.seq, digest=head.digest.hex())
        child = SessionOpened(format=1, kind="child", parent=parent)
        kept.log.append("child", 0, [Draft(fact=child, uuid="c", at=3)])
        return [line.decode() for line in compose.event_lines_of("child", kept)]


def taken(tmp_path: Path, lines: list[str]) -> dict[str, int]:
    path = tmp_path / "export.jsonl"
    path.write_text("".join(lines))
    with compose.store(tmp_path / "second") as kept:
        try:
            found = compose.import_file(path, kept, counts=compose.counter())
        finally:
            assert not [one.problem for one in kept.log.verify() if one.problem]
    return {one.session_id: one.appended for one in found}


def test_a_child_comes_with_its_parent_and_every_body(tmp_path: Path, lines: list[str]) -> None:
    assert len(lines) == 4
    assert taken(tmp_path, lines) == {"parent": 2, "child": 1}
    assert taken(tmp_path, lines) == {"parent": 0, "child": 0}
    with compose.store(tmp_path / "second") as kept:
        assert list(kept.blobs.ids())
        assert [line.decode() for line in compose.event_lines_of("child", kept)] == lines


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda lines: [*lines[:3], lines[3].replace('"uuid":"c"', '"uuid":"d"')],
            "line 4: its digest does not follow",
        ),
        (lambda lines: [lines[0], lines[2]], "line 2: the body [0-9a-f]+ that it refers to is not there"),
        (lambda lines: [lines[1], *lines[3:]], "line 2: event 2 of parent, which it names, is missing"),
        (
            lambda lines: [*lines[:1], lines[1].replace('base64":"', 'base64":"AAAA'), *lines[2:]],
            "line 2: the body is not",
        ),
        (lambda lines: [*lines[:1], lines[1].replace('base64":"', 'base64":"*'), *lines[2:]], "line 2: base64"),
        (lambda lines: [lines[0], '{"digest":"' + "0" * 64 + '"}\n'], "line 2: has no fact"),
        (lambda lines: [lines[0], "not JSON\n"], "line 2"),
        (lambda lines: [lines[0], lines[2], lines[0]], "line"),
    ],
    ids=["changed", "body-missing", "parent-missing", "other-body", "no-base64", "no-fact", "no-json", "twice"],
)
def test_a_line_that_cannot_be_right_is_named(
    tmp_path: Path, lines: list[str], change: Callable[[list[str]], list[str]], said: str
) -> None:
    with pytest.raises(BadInput, match=said):
        taken(tmp_path, change(lines))


def test_a_session_of_the_same_name_and_other_events_is_refused(tmp_path: Path, lines: list[str]) -> None:
    with compose.store(tmp_path / "second") as kept:
        kept.log.append("parent", 0, [Draft(fact=SessionOpened(format=1, title="another"), uuid="z", at=9)])
    with pytest.raises(BadInput, match="event 1 of parent is another one in this store"):
        taken(tmp_path, lines)


def test_what_a_store_already_holds_is_derived_again_all_the_same(tmp_path: Path, lines: list[str]) -> None:
    assert taken(tmp_path, lines) == {"parent": 2, "child": 1}
    bent = [*lines[:2], lines[2].replace("half", "a half"), lines[3]]
    with pytest.raises(BadInput, match=r"line 3: its digest does not follow.*\. What stands before it is kept"):
        taken(tmp_path, bent)


def test_an_export_is_verified_without_a_store(tmp_path: Path, lines: list[str]) -> None:
    path = tmp_path / "export.jsonl"
    path.write_text("".join(lines))
    assert compose.verified_export(path) == {"parent": 2, "child": 1}
    for bent, said in (
        ([*lines[:2], lines[2].replace("emoji", "emoj1"), lines[3]], "line 3: its digest does not follow"),
        ([*lines[:2], lines[2].replace('"seq":2', '"seq":3'), lines[3]], "line 3: its digest does not follow"),
        ([*lines[:2], lines[2].replace('{"blocks"', '{"new":1,"blocks"'), lines[3]], "line 3: its digest"),
        ([lines[0], *lines[2:]], "line 2: the body"),
        (lines[1:], "line 2: the events of parent before this one are missing"),
        ([lines[0], lines[1], lines[3]], "line 3: event 2 of parent, which it names, is missing"),
        ([*lines[:3], lines[3][:-30]], "line 4"),
    ):
        path.write_text("".join(bent))
        with pytest.raises(LogDamaged, match=said):
            compose.verified_export(path)
    path.write_text("another text")
    with pytest.raises(BadInput, match="does not begin as a file of `transom export` does"):
        compose.verified_export(path)
