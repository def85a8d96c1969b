from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from transom.adapters.blobs import DirBlobs
from transom.core.block import Image, Opaque
from transom.importers.effects import effect_of
from transom.importers.fields import image, iso_ms, raw_text

__all__: list[str] = []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-03-01T10:00:00.250Z", 1772359200250),
        ("2026-03-01T11:00:00+01:00", 1772359200000),
        ("2026-03-01T10:00:00", 1772359200000),
        ("2026-03-01T10:00:00.123456789Z", 1772359200123),
        ("1969-12-31T23:59:59Z", -1000),
        ("yesterday", 0),
        ("", 0),
    ],
)
def test_a_time_is_milliseconds_and_without_a_zone_utc(text: str, expected: int) -> None:
    assert iso_ms(text) == expected


@pytest.mark.parametrize(
    ("name", "effect"),
    [
        ("Read", "read"),
        ("read_file", "read"),
        ("mcp__files__read_file", "read"),
        ("apply_patch", "write"),
        ("str_replace_based_edit_tool", "write"),
        ("TodoWrite", "none"),
        ("update_plan", "none"),
        ("Bash", "external"),
        ("anything else", "external"),
        ("", "external"),
    ],
)
def test_an_effect_is_judged_by_the_tools_name(name: str, effect: str) -> None:
    assert effect_of(name) == effect


def test_a_picture_is_stored_and_what_is_none_is_kept_as_it_came(tmp_path: Path) -> None:
    blobs = DirBlobs(tmp_path / "blobs", is_synced=False)
    found = image(blobs, "image/png", "aGk=")
    assert isinstance(found, Image)
    assert (blobs.get(found.artifact_id), found.size) == (b"hi", 2)
    assert image(blobs, "image/png", 'RED"ACTED') == Opaque(kind="image", raw='"RED\\"ACTED"')
    assert image(blobs, "image/png", "ö\ud83d") == Opaque(kind="image", raw='"ö?"')


def test_raw_json_is_text_byte_for_byte() -> None:
    assert raw_text(msgspec.Raw(b'{"a": 1.0}')) == '{"a": 1.0}'
    assert raw_text(b"\xff") == "\ufffd"
