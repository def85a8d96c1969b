"""The page stands alone, shows what the table shows, and no word of a transcript becomes markup."""

from __future__ import annotations

from html.parser import HTMLParser

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("plotly", reason="the page needs the extra `report`")

from transom.lab.figures import HandleRecall, Mark, Recorded, Replay, Run, Series
from transom.lab.page import MAX_POINTS, page, thinned
from transom.lab.report import row
from transom.testing.replays import replay, run


class Seen(HTMLParser):
    """Tags, texts of cells and the JSON island of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.cells: list[str] = []
        self.island: dict[str, object] = {}
        self._open = ("", "")
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [name for name, _ in attrs if name in {"src", "href", "action"}]
        self._open = (tag, dict(attrs).get("id") or "")
        if tag == "td":
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = ("", "")

    def handle_data(self, data: str) -> None:
        if self._open[0] == "td":
            self.cells[-1] += data
        elif self._open == ("script", "data"):
            self.island = msgspec.json.decode(data)


class Line(msgspec.Struct):
    """What the tests look at of a drawn line."""

    steps: list[int]
    tokens: list[int]
    cost: list[float]
    boundaries: list[tuple[int, int, str]]


def lines(text: str) -> list[list[Line]]:
    return msgspec.convert(Seen(text).island["sessions"], list[list[Line]])


def test_the_page_asks_the_network_for_nothing() -> None:
    text = page(replay())
    assert Seen(text).links == []
    assert "default-src 'none'" in text


def test_the_page_shows_the_rows_of_the_table() -> None:
    shown = replay(arms=("raw", "rollover"))
    expected = [cell for each in shown.runs for cell in row((each.result,))]
    assert Seen(page(shown)).cells == expected


EVIL = "</script><script>alert(1)</script><!--<img src=x onerror=alert(1)>\u202e\ud800&\"'"


def test_no_word_of_a_transcript_becomes_markup() -> None:
    evil = run(
        arm=EVIL,
        session=EVIL,
        title=EVIL,
        model=EVIL,
        format=EVIL,
        refused=EVIL,
        modelled=(EVIL,),
        misses={EVIL: 1},
        boundaries={EVIL: 2},
    )
    marked = msgspec.structs.replace(evil, series=Series(tokens=(1,), boundaries=(Mark(step=1, what=EVIL),)))
    text = page(Replay(runs=(marked,), context_limit=1, prices_dated=EVIL, assumed=(EVIL,)))
    plain = run(arm="x", refused="x", modelled=("x",))
    tame = Seen(page(Replay(runs=(plain,), context_limit=1, prices_dated="x", assumed=("x",))))
    assert Seen(text).tags == tame.tags
    assert "alert(1)</script>" not in text
    text.encode()


def test_one_session_is_open_and_many_are_closed_behind_a_summary() -> None:
    assert '<details data-session="0" open>' in page(replay())
    many = page(replay(sessions=3))
    assert '<details data-session="2">' in many
    assert " open>" not in many
    assert 'id="summary"' in many
    assert "3 sessions under 5 arms" in many


def test_a_long_series_is_thinned_and_the_page_says_so() -> None:
    text = page(replay(steps=5_000))
    (session,) = lines(text)
    assert all(len(line.steps) == len(line.tokens) == len(line.cost) <= MAX_POINTS for line in session)
    assert "thinned to 1,000 points" in text
    assert "thinned" not in page(replay(steps=10)).split('<script type="application/json"')[0]


def test_the_size_of_a_page_of_many_long_sessions_is_bounded() -> None:
    plotly = len(page(Replay(runs=(), context_limit=1)))
    assert len(page(replay(sessions=4, steps=5_000))) < plotly + 4 * 5 * 50_000


def test_boundaries_are_marked_on_the_line_and_bounded() -> None:
    every = Series(tokens=tuple(range(3_000)), boundaries=tuple(Mark(step=step, what="fifo") for step in range(3_002)))
    shown = Run(result=run().result, series=every)
    ((line,),) = lines(page(Replay(runs=(shown,), context_limit=1)))
    assert len(line.boundaries) <= MAX_POINTS
    assert line.boundaries[0] == (4, 3, "fifo")


def test_a_session_without_steps_price_or_handles_still_makes_a_page() -> None:
    bare = run(cost_usd=None, recorded=Recorded(), handle_recall=HandleRecall(), boundaries={}, misses={}, steps=1)
    text = page(Replay(runs=(msgspec.structs.replace(bare, series=Series()),), context_limit=1))
    assert lines(text)[0][0].cost == []


@given(st.lists(st.integers(0, 10**6), max_size=400), st.integers(4, 50))
def test_thinning_keeps_both_ends_and_both_extremes_in_order(values: list[int], most: int) -> None:
    kept = thinned(values, most)
    assert list(kept) == sorted(set(kept))
    assert len(kept) <= most or len(kept) == len(values) <= most
    if values:
        assert (kept[0], kept[-1]) == (0, len(values) - 1)
        drawn = [values[at] for at in kept]
        assert (min(drawn), max(drawn)) == (min(values), max(values))
