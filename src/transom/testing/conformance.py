"""What every adapter of a port must do: one kit per port, as plain functions over a factory.

    @pytest.mark.parametrize("case", LOG_CASES, ids=lambda case: case.__name__)
    def test_the_log_keeps_its_port(case, tmp_path):
        case(lambda: MyLog(tmp_path / uuid4().hex))

Each call of the factory gives a new, empty store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from transom.core.block import CONTENTS
from transom.errors import ArtifactMissing
from transom.ports import Blobs, Counter, Sources
from transom.testing.log_conformance import LOG_CASES, LogCase, refusal_of

__all__ = [
    "BLOBS_CASES",
    "COUNTER_CASES",
    "LOG_CASES",
    "SOURCES_CASES",
    "BlobsCase",
    "CounterCase",
    "LogCase",
    "SourcesCase",
]

BlobsCase = Callable[[Callable[[], Blobs]], None]
CounterCase = Callable[[Callable[[], Counter]], None]
SourcesCase = Callable[[Callable[[], Sources]], None]


# -- Blobs

_BODIES: Sequence[bytes] = (b"", b"x", bytes(range(256)) * 5000)


def a_body_is_named_by_its_digest_and_read_back(make: Callable[[], Blobs]) -> None:
    blobs = make()
    for body in _BODIES:
        name = blobs.put(body)
        assert name == hashlib.sha256(body).hexdigest() == blobs.put(body)
        assert blobs.get(name) == body
        assert blobs.has(name)
    assert sorted(blobs.ids()) == sorted(hashlib.sha256(body).hexdigest() for body in _BODIES)


def a_range_is_cut_as_a_slice_is(make: Callable[[], Blobs]) -> None:
    blobs = make()
    name = blobs.put(b"0123456789")
    for _ in range(2):
        for start, end in ((0, 4), (3, None), (3, 3), (4, 2), (8, 99), (99, 100), (-3, None), (0, -1)):
            assert blobs.get(name, start, end) == b"0123456789"[start:end]


def an_absent_body_is_named(make: Callable[[], Blobs]) -> None:
    blobs = make()
    for name in ("0" * 64, "", "../../etc/passwd", "A" * 64):
        assert not blobs.has(name)
        assert repr(name)[1:-1] in refusal_of(ArtifactMissing, lambda name=name: blobs.get(name))  # type: ignore[misc]
    assert list(blobs.ids()) == []


BLOBS_CASES: tuple[BlobsCase, ...] = (
    a_body_is_named_by_its_digest_and_read_back,
    a_range_is_cut_as_a_slice_is,
    an_absent_body_is_named,
)


# -- Counter


def a_counter_takes_any_text(make: Callable[[], Counter]) -> None:
    counter = make()
    assert counter.name
    for text in ("", "a", "\ud83d half", "\0", "压缩上下文", "<|endoftext|>", "x" * 100_000, " \n\t" * 1000):
        measure = counter.measure(text)
        assert measure.content in CONTENTS
        assert (measure.tokens == 0) == (text == "")
        assert measure == counter.measure(text)


def more_text_is_never_cheaper_by_much(make: Callable[[], Counter]) -> None:
    """Merges across a seam may save a token or two; no more."""
    counter = make()
    for left, right in (
        ("def f(x):\n", "    return x\n"),
        ("压缩", "上下文"),
        ("hello ", "world"),
        ("ab" * 50, "cd" * 50),
    ):
        parts = counter.measure(left).tokens + counter.measure(right).tokens
        assert max(counter.measure(left).tokens, 1) <= counter.measure(left + right).tokens <= parts + 2


COUNTER_CASES: tuple[CounterCase, ...] = (a_counter_takes_any_text, more_text_is_never_cheaper_by_much)


# -- Sources


def sources_keep_their_keys_and_their_order(make: Callable[[], Sources]) -> None:
    sources = make()
    keys = [one.key for one in sources.sample()]
    assert keys == [one.key for one in sources.sample()] == [one.key for one in make().sample()]
    assert len(set(keys)) == len(keys)
    assert all(keys)


def what_has_not_changed_is_said_in_the_same_bytes(make: Callable[[], Sources]) -> None:
    sources = make()
    assert sources.sample() == sources.sample() == make().sample()


SOURCES_CASES: tuple[SourcesCase, ...] = (
    sources_keep_their_keys_and_their_order,
    what_has_not_changed_is_said_in_the_same_bytes,
)
