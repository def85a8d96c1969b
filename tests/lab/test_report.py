"""The table is read at a glance at any width; the JSON has the promised fields and nothing else."""

from __future__ import annotations

import io
import json

import pytest
from rich.cells import cell_len
from rich.console import Console

from transom.core.policy import PRESETS
from transom.lab.figures import HandleRecall, Recorded, Replay, against_recorded, totals
from transom.lab.report import (
    COLUMNS,
    dollars,
    footnotes,
    printable,
    row,
    session_title,
    sessions,
    show,
    to_json,
    tokens,
    total_rows,
)
from transom.testing.replays import replay, run

FIELDS = [
    "session format arm model events steps input_tokens cached_tokens output_tokens side_tokens cost_usd peak_tokens",
    "mean_tokens boundaries misses undeclared_misses prefix_kept handle_recall constraints_verbatim unpaired_calls",
    "counter_error recorded modelled seconds context_limit regret refused",
]


def printed(shown: Replay, width: int) -> str:
    out = io.StringIO()
    show(shown, Console(file=out, width=width))
    return out.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80, 110, 160])
def test_no_line_is_wider_than_the_terminal_and_every_arm_has_its_row(width: int) -> None:
    text = printed(replay(sessions=2), width)
    assert "…" not in text
    assert all(cell_len(line) <= width for line in text.split("\n"))
    for arm in ("raw", "fifo", "mask", "gssc", "rollover"):
        shown = sum(line.split()[:1] == [arm] for line in text.split("\n"))
        assert shown == sum(line.startswith("arm ") for line in text.split("\n"))


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
def test_a_narrow_terminal_gets_several_tables_and_every_column_and_figure(width: int) -> None:
    text = printed(replay(), width)
    heads = [line.split("   ") for line in text.split("\n") if line.startswith("arm ")]
    assert len(heads) > 1
    assert all(head[0] == "arm" for head in heads)
    names = " ".join(" ".join(head[1:]) for head in heads).split()
    assert names == " ".join(column.name for column in COLUMNS[1:]).split()
    for figure in ("105.5k", "7.24M", "75/24/1 %", "6/6"):
        assert figure in text


def test_a_long_name_is_folded_and_costs_no_other_column_its_place() -> None:
    text = printed(Replay(runs=(run("a-policy-of-my-own-with-a-very-long-name"),), context_limit=1), 60)
    assert "…" not in text
    lines = text.split("\n")
    at = next(number for number, line in enumerate(lines) if line.startswith("a-policy"))
    assert lines[at].split()[0] + lines[at + 1].split()[0] == "a-policy-of-my-own-with-a-very-long-name"
    assert len(lines[at].split()) > 3


def test_a_wide_terminal_shows_causes_and_reasons() -> None:
    text = printed(replay(), 180)
    assert "hard-limit 2" in text
    assert "initial 1, reset:rollover 2" in text
    assert "6/6" in text


def test_a_pipe_gets_no_colour() -> None:
    assert "\x1b" not in printed(replay(), 100)


def test_words_of_a_transcript_cannot_command_the_terminal() -> None:
    evil = run(
        title="\x1b]0;owned\x07 [red]x[/red] \u202egnp", model="m\x1b[2J", refused="no\x1b[1A room", modelled=("a\rb",)
    )
    text = printed(Replay(runs=(evil,), context_limit=1, assumed=("x\x1b[0m",)), 100)
    assert not set(text) & set("\x1b\x07\r\u202e")
    assert "[red]x[/red]" in text
    assert printable("a\ud800\tb") == "a?�b"


def test_a_refused_arm_says_so_with_its_numbers() -> None:
    text = printed(
        Replay(runs=(run("gssc", refused="protected words alone are 40,000 of 32,000 tokens"),), context_limit=32_000),
        160,
    )
    assert "gssc stopped: protected words alone are 40,000 of 32,000 tokens" in text
    assert "† stopped before its end" in text


def test_what_stops_several_arms_is_said_once() -> None:
    runs = (run("mask", refused="step 1: no room"), run("gssc", refused="step 1: no room"), run("fifo", refused="no"))
    text = printed(Replay(runs=runs, context_limit=1_000), 160)
    assert "mask, gssc stopped: step 1: no room" in text
    assert text.count("no room") == 1
    assert "fifo stopped: no" in text


def test_an_arm_that_was_stopped_at_once_has_no_figures() -> None:
    stopped_at_once = run("gssc", refused="step 1: no room", input_tokens=0, cost_usd=0.0).result
    assert row([stopped_at_once]) == ("gssc †", *["–"] * (len(COLUMNS) - 1))


def test_totals_are_over_the_sessions_that_every_arm_finished() -> None:
    runs = [run(arm, session, cost_usd=1.0) for session in "abc" for arm in ("raw", "mask")]
    runs[3] = run("mask", "b", cost_usd=0.1, refused="step 9: no room")
    runs += [run("gssc", session, cost_usd=0.0, refused="step 1: no room") for session in "abc"]
    text = printed(Replay(runs=tuple(runs), context_limit=1_000), 200)
    assert "The 2 of 3 sessions that every arm finished, without gssc, which finished none" in text
    assert [(cells[0], cells[4]) for cells in total_rows(runs)] == [("raw", "$2.00"), ("mask *", "$2.00")]
    text = printed(Replay(runs=(*runs[2:4], run("mask", "a"), run("raw", "a", refused="x")), context_limit=1), 200)
    assert "No totals: none of the 2 sessions was finished by every arm" in text


def test_a_difference_that_rounds_to_nothing_has_no_sign() -> None:
    cost = run().result.recorded.cost_usd
    assert cost is not None
    assert [row([run(cost_usd=cost * by).result])[5] for by in (0.999, 1.001, 1.5, 0.5)] == [
        "0 %",
        "0 %",
        "+50 %",
        "-50 %",
    ]


def test_totals_add_up_and_keep_peaks_and_weighted_means() -> None:
    runs = [run("raw", "a", steps=10), run("raw", "b", steps=30, counter_error=-0.2, recorded=Recorded())]
    first, second = (each.result for each in runs)
    (total,) = totals([first, second])
    assert total.session == "2"
    assert total.input_tokens == first.input_tokens + second.input_tokens
    assert total.peak_tokens == max(first.peak_tokens, second.peak_tokens)
    assert total.mean_tokens == pytest.approx((first.mean_tokens + 3 * second.mean_tokens) / 4)
    assert total.handle_recall == HandleRecall(n=400, visible=400)
    assert total.misses == {"initial": 2}
    assert total.recorded.cost_usd == 2.5
    assert total.counter_error == pytest.approx(0.1065)


def test_a_cost_nobody_knows_is_unknown_in_the_total_and_never_zero() -> None:
    (total,) = totals([run(session="a").result, run(session="b", cost_usd=None).result])
    assert total.cost_usd is None
    assert row([total])[4] == "–"
    assert totals([]) == ()


def test_the_comparison_counts_only_sessions_where_both_prices_are_known_and_no_arm_stopped() -> None:
    known = run(session="a", cost_usd=5.0).result
    others = [
        run(session="b", cost_usd=9.0, recorded=Recorded()).result,
        run(session="c", cost_usd=1.0, refused="x").result,
    ]
    assert against_recorded([known, *others]) == pytest.approx(2.0)
    assert row([known, *others])[5] == "+100 %"
    assert against_recorded(others) is None


def test_json_is_one_array_with_exactly_the_promised_fields_in_order() -> None:
    document = to_json(replay(sessions=2))
    objects = json.loads(document)
    assert len(objects) == 10
    assert all(list(each) == " ".join(FIELDS).split() for each in objects)
    assert list(objects[0]["handle_recall"]) == ["n", "visible", "recallable", "lost"]
    assert list(objects[0]["constraints_verbatim"]) == ["n", "kept"]
    assert list(objects[0]["recorded"]) == ["input", "cached", "written", "output", "cost_usd", "compactions"]
    assert document == to_json(replay(sessions=2))


def test_json_of_text_with_half_an_emoji_is_valid() -> None:
    document = to_json(
        Replay(runs=(run(model="m\ud83d", modelled=("\ud83d",), boundaries={"x\ud83d": 1}),), context_limit=1)
    )
    assert json.loads(document)[0]["model"] == "m\ud83d"
    assert document.isascii()


def test_sessions_stay_together_in_order_of_appearance() -> None:
    runs = [run("raw", "b"), run("raw", "a"), run("mask", "b")]
    assert [[each.result.arm for each in group] for group in sessions(runs)] == [["raw", "mask"], ["raw"]]


def test_a_session_without_a_title_is_called_by_its_id() -> None:
    assert session_title(run(title=" \n")) == "0b5f-1"
    assert session_title(run(title="two\nlines")) == "two lines"


def test_footnotes_explain_each_arm_that_is_shown_and_every_column() -> None:
    notes = footnotes(replay())
    for arm in ("raw", "fifo", "mask", "gssc", "rollover"):
        assert sum(note.startswith(f"{arm}: ") for note in notes) == 1
    assert not any(note.startswith(("rollover-cost: ", "recorded: ")) for note in notes)
    text = "\n".join(notes + footnotes(Replay(runs=(run(regret=1.0),), context_limit=9)))
    assert [column.name for column in COLUMNS if column.name not in text and column.name != "arm"] == []
    assert "Results of more than 2,048 tokens are kept out of the window from the start: gssc, rollover." in text
    own = footnotes(Replay(runs=(run("my-own"),), context_limit=9))
    assert not any(note.startswith("my-own: ") for note in own)


def test_every_preset_that_a_replay_shows_is_explained() -> None:
    runs = tuple(run(name) for name in PRESETS)
    notes = footnotes(Replay(runs=runs, context_limit=9))
    assert all(any(note.startswith(f"{name}: ") for note in notes) for name in PRESETS)


def test_footnotes_name_the_limit_the_prices_what_is_modelled_and_what_is_wrong() -> None:
    notes = "\n".join(footnotes(replay()))
    assert "64,000 tokens" in notes
    assert "prices of 2026-10-01" in notes
    assert "1.3% (median)" in notes
    assert "* modelled: recalls the recorded agent would have needed (fifo, mask, gssc, rollover)." in notes
    assert "Not as it should be" not in notes
    bad = Replay(runs=(run(undeclared_misses=2, counter_error=None),), context_limit=9, assumed=("m is priced as n.",))
    notes = "\n".join(footnotes(bad))
    assert "2 undeclared misses" in notes
    assert "could not be checked" in notes
    assert "m is priced as n." in notes
    assert "no price table" in notes


@pytest.mark.parametrize(
    ("n", "text"),
    [(987, "987"), (12_345, "12.3k"), (999_949, "999.9k"), (999_950, "1.00M"), (0, "0"), (2 * 10**9, "2.00B")],
)
def test_token_counts_are_short(n: int, text: str) -> None:
    assert tokens(n) == text


@pytest.mark.parametrize(("usd", "text"), [(None, "–"), (0.0123, "$0.0123"), (1234.5, "$1,234.50"), (0.0, "$0.0000")])
def test_money_has_its_currency(usd: float | None, text: str) -> None:
    assert dollars(usd) == text


def test_a_session_without_usage_handles_or_constraints_is_shown_with_dashes() -> None:
    none = run(recorded=Recorded(), handle_recall=HandleRecall(), counter_error=None, input_tokens=0, cached_tokens=0)
    text = printed(Replay(runs=(none,), context_limit=1), 160)
    assert "no usage recorded" in text
    assert "–" in text
