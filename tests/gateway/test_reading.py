"""Outlines of JSON are cut without reading what is inside, and the fast way and the slow way cut the same."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.errors import BadInput
from transom.gateway.reading import exchanged, extended, fields_of, items_of, spans_of, value_of, without

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
SPACES = st.sampled_from([None, 1, "\t"])
ODD = b'"half \\ud83d of it"'
"""What the fast decoder refuses: one more member makes it the slow way."""


def written(value: object, indent: int | str | None, *, is_ascii: bool) -> bytes:
    return json.dumps(value, indent=indent, ensure_ascii=is_ascii).encode("utf-8", "replace")


@given(st.dictionaries(st.text(max_size=4).filter(lambda name: name != "odd"), JSON, max_size=5), SPACES, st.booleans())
def test_fields_are_cut_as_they_stand(value: dict[str, object], indent: int | str | None, is_ascii: bool) -> None:
    raw = written(value, indent, is_ascii=is_ascii)
    expected = {name: written(one, None, is_ascii=is_ascii) for name, one in value.items()}
    slow = raw[:-1].rstrip() + (b"," if value else b"") + b'"odd":' + ODD + b"}"
    for given_raw, more in ((raw, {}), (slow, {"odd": ODD})):
        found = fields_of(given_raw)
        assert {name: json.loads(one) for name, one in without(found, "odd").items()} == {
            name: json.loads(one) for name, one in expected.items()
        }
        assert [name for name in found if name != "odd"] == list(value)
        assert found.get("odd") == more.get("odd")
        assert {name: given_raw[start:end] for name, start, end in spans_of(given_raw)} == found


@given(st.lists(JSON, max_size=5), SPACES)
def test_items_are_cut_as_they_stand(value: list[object], indent: int | str | None) -> None:
    raw = written(value, indent, is_ascii=True)
    slow = raw[:-1].rstrip() + (b"," if value else b"") + ODD + b"]"
    assert [json.loads(one) for one in items_of(raw)] == value
    assert items_of(slow) == (*items_of(raw), ODD)


@pytest.mark.parametrize(
    "inside",
    [
        b"NaN",
        b"-Infinity",
        b'"\\ud83d"',
        b'"\x01\x02"',
        b'"\xff\xfe"',
        b"9" * 9000,
        b"1e999",
        b"[" * 5000 + b"]" * 5000,
        b'{"a":1,"a":2}',
        b'"\\\\"',
        b'"]}\\""',
    ],
)
def test_what_stands_inside_is_never_refused(inside: bytes) -> None:
    raw = b' { "a" : 1 , "it" : ' + inside + b' , "list" : [ ' + inside + b" , 2 ] } "
    found = fields_of(raw)
    assert found["it"] == inside
    assert items_of(found["list"]) == (inside, b"2")
    more = {"list": extended(found["list"], [b"3"])}
    assert exchanged(raw, spans_of(raw), more) == raw.replace(b" , 2 ] }", b" , 2 ,3] }")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b'{"a"}',
        b'{"a":}',
        b'{"a":1,}',
        b'{"a":1 "b":2}',
        b'{"a":1}{}',
        b'{"a":"' + b'\\"' * 50_000,
        b"{" * 50_000,
        b"{1:2}",
        b'{"a":[}',
    ],
)
def test_what_is_no_object_is_refused_in_time(raw: bytes) -> None:
    for read in (fields_of, spans_of):
        with pytest.raises(BadInput, match="no JSON"):
            read(raw)
    with pytest.raises(BadInput):
        items_of(raw[1:] or b"1")


@pytest.mark.parametrize(
    ("raw", "made"),
    [
        (b"{}", b'{"tools":[1,2]}'),
        (b'{"a": 1 }', b'{"a": 1 ,"tools":[1,2]}'),
        (b'{"tools":[]}', b'{"tools":[1,2]}'),
        (b'{"tools" : [ ] , "b":1}', b'{"tools" : [ 1,2] , "b":1}'),
        (b'{"b":[],"tools":[{"x":[]}\n]}\n', b'{"b":[],"tools":[{"x":[]}\n,1,2]}\n'),
        (b'{"tools":null}', b'{"tools":[1,2]}'),
        (b'{"t\\u006fols":[0]}', b'{"t\\u006fols":[0,1,2]}'),
        (b'{"tools":[7],"tools":[8]}', b'{"tools":[7],"tools":[8,1,2]}'),
        (b'{"a":1,"a":12,"tools":[8]}', b'{"a":1,"a":12,"tools":[8,1,2]}'),
    ],
)
def test_a_value_is_exchanged_and_nothing_else(raw: bytes, made: bytes) -> None:
    tools = fields_of(raw).get("tools", b"")
    assert exchanged(raw, spans_of(raw), {"tools": extended(tools, [b"1", b"2"])}) == made
    assert exchanged(raw, spans_of(raw), {}) == raw


def test_an_array_to_which_nothing_comes_stays_as_it_is() -> None:
    assert extended(b"[ 1 , 2 ]", []) == b"[ 1 , 2 ]"
    assert extended(b"null", []) == b"[]"


def test_what_is_no_array_takes_no_pieces() -> None:
    with pytest.raises(BadInput):
        extended(b"{}", [b"1"])


@pytest.mark.parametrize("raw", [b'"\\ud83d"', b"[NaN, 1e999]", b"9" * 9000, b'"\xff\x01"', b'{"a":1}'])
def test_any_value_is_read(raw: bytes) -> None:
    value_of(raw)


def test_a_value_without_an_end_is_refused() -> None:
    with pytest.raises(BadInput):
        value_of(b"[" * 100_000)
