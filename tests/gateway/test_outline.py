"""A body read on from a known one has the outline that it has alone."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from transom.errors import BadInput
from transom.gateway.outline import LISTED, Outline, outline
from transom.gateway.reading import exchanged

MEMBERS: list[object] = [1, 12, "", "],", {"a": [1]}, {"a": [1], "b": ","}, [], None, {"list": [2]}]
ITEMS = st.lists(st.sampled_from(MEMBERS), max_size=5)
FIELDS = st.dictionaries(st.sampled_from(["a", "b", "tools", "\0", "list"]), st.sampled_from([1, [2], {"a": 3}]))
GAPS = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", ":")])
Parts = tuple[Mapping[str, object], list[object], Mapping[str, object], tuple[str, str]]
BODIES = st.tuples(FIELDS, ITEMS, FIELDS, GAPS)


def written(parts: Parts) -> bytes:
    """An object in which names may stand twice."""
    ahead, items, behind, (comma, colon) = parts
    fields = [*ahead.items(), ("list", items), *behind.items()]
    shown = (f"{json.dumps(name)}{colon}{json.dumps(value, separators=(comma, colon))}" for name, value in fields)
    return ("{" + comma.join(shown) + "}").encode()


def read(body: bytes, *known: Outline) -> tuple[list[tuple[str, bytes]], tuple[bytes, ...], tuple[object, ...]]:
    found = outline(body, "list", known)
    return list(found.fields.items()), found.items, tuple(found.spans)


@given(BODIES, BODIES, st.integers(0, 5))
@example(({}, [{"a": 1}], {}, (",", ":")), ({}, [{"a": 1}, {"a": 2}], {"\0": [3]}, (",", ":")), 0)
@example(({}, [{"a": 1}, 2], {}, (",", ":")), ({}, [{"a": 1}, 2], {"list": [3]}, (",", ":")), 0)
@example(({}, [1, 2], {}, (",", ":")), ({}, [12, 2], {}, (",", ":")), 0)
def test_an_outline_does_not_depend_on_what_is_known(first: Parts, second: Parts, kept: int) -> None:
    _, items, behind, _ = second
    grown = (first[0], first[1][:kept] + items, behind, first[3])
    for before, after in ((first, second), (first, grown), (grown, first), (second, grown)):
        known = [outline(written(one), "list") for one in (before, second)]
        assert read(written(after), *known) == read(written(after))
        assert read(written(after), outline(written(after), "list", known)) == read(written(after))


@given(BODIES)
def test_spans_say_where_values_stand(parts: Parts) -> None:
    body = written(parts)
    found = outline(body, "list", [outline(body, "list")])
    for name, start, end in found.spans:
        if name != "list" and [one for one, _, _ in found.spans].count(name) == 1:
            assert body[start:end] == found.fields[name]
    assert exchanged(body, found.spans, {}) == body
    changed = json.loads(exchanged(body, found.spans, {"new": b"7"}))
    assert changed == {**json.loads(body), "new": 7}


def test_a_rest_that_cannot_be_read_is_refused_as_the_whole_is() -> None:
    known = outline(b'{"list":[1,2,3]}', "list")
    for body in (b'{"list":[1,2,', b'{"list":[1,2,]}', b'{"list":[1,2,3]', b'{"list":[1,2,3}'):
        with pytest.raises(BadInput):
            outline(body, "list", [known])


def test_what_is_no_list_is_the_value_of_its_field() -> None:
    assert outline(b'{"list":"words"}', "list").fields == {"list": b'"words"'}
    assert outline(b'{"list":[ ]}', "list").fields == {"list": LISTED}
    assert not outline(b"{}", "list").fields
