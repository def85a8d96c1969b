"""Generation loss: the bench's numbers hold, whatever the seed: told on, facts are lost and guesses harden; in the
kernel the protected four stand for 50 windows and no guess becomes a requirement (L6, L7)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from bench.generations import GENERATIONS, TIGHT, chain, session, surveyed
from bench.generations_facts import FACTS, GUESSED, PROTECTED, Kind, Teller, first, planted
from bench.generations_kernel import CONTEXT_LIMIT, SHOWN, Kept, Window
from bench.generations_local import read
from bench.generations_measure import Compaction, measure, tally
from bench.generations_page import Page
from bench.generations_rates import PLACE, Fate, Form, Hedges, Literals, Rates, load

RATES = load()


def texts(*kinds: Kind) -> set[str]:
    return {fact.text for kind in kinds for fact in planted(kind)}


# -- the kernel


@pytest.mark.parametrize("limit", [CONTEXT_LIMIT, TIGHT])
@pytest.mark.parametrize("seed", ["1", "2"])
def test_fifty_verified_handovers_keep_the_protected_four(seed: str, limit: int) -> None:
    """L6: words, state and handles in use stand in every window; failures too where their share holds them; the rest is
    one recall away."""
    kept = session(RATES, seed, "measured", limit)
    assert len(kept.windows) == GENERATIONS
    for window in kept.windows:
        assert texts("words", "used", "state") <= window.standing
        assert texts("failures") <= window.standing or limit == TIGHT
    for at in SHOWN:
        assert texts(*PROTECTED) <= kept.windows[at - 1].standing | kept.windows[at - 1].recalled
    assert kept.demoted == kept.claimed > 0
    assert not kept.invented


def test_what_is_claimed_in_each_of_fifty_handoffs_stays_an_inference() -> None:
    """L7: every guess, without its doubt, as a requirement, with the user's message for a source."""
    kept = session(RATES, "1", "insistent")
    plain = {fact.plain for kind in GUESSED for fact in planted(kind)}
    assert not kept.invented
    assert kept.demoted == kept.claimed >= GENERATIONS * len(plain)
    assert all(plain <= window.inferred for window in kept.windows)


def test_a_requirement_nobody_stated_is_seen() -> None:
    (rule, *_) = planted("words")
    shown = Window(
        standing=frozenset(), required=(rule.text, "Push."), inferred=frozenset(), recalled=frozenset(), tokens=1
    )
    assert Kept(windows=(shown,), demoted=0).invented == {"Push."}


def test_a_session_is_the_same_for_the_same_seed() -> None:
    assert session(RATES, "3") == session(RATES, "3")


def test_a_window_does_not_grow_with_the_generations() -> None:
    """Beyond the share of the window that its seed has."""
    kept = session(RATES, "1", "insistent", TIGHT)
    late = [window.tokens for window in kept.windows[20:]]
    assert max(late) < 1.1 * min(late)


# -- told on


@pytest.mark.parametrize("arm", ["summary", "prose"])
def test_told_on_facts_are_lost(arm: str) -> None:
    found = surveyed("summary" if arm == "summary" else "prose", RATES, 1, chains=40)
    for kind in PROTECTED:
        shares = [found.share(found.letter + found.other, kind, at) for at in range(1, GENERATIONS + 1)]
        assert all(later <= earlier for earlier, later in pairwise(shares))
        assert 0 < shares[0] < 1
        assert shares[14] < 0.05
        assert shares[-1] == 0


def test_half_the_loss_loses_more_slowly_and_loses_all_the_same() -> None:
    whole, half = (surveyed("summary", RATES, 1, chains=40, ease=ease) for ease in (1.0, 0.5))
    for kind in PROTECTED:
        assert half.share(half.letter, kind, 3) > whole.share(whole.letter, kind, 3)
        assert half.share(half.letter, kind, GENERATIONS) < 0.02


def test_told_on_guesses_lose_their_doubt() -> None:
    found = surveyed("summary", RATES, 1, chains=100, ease=0.5)
    assert found.plain["leads", 3] > found.plain["leads", 1] > 0


def test_a_chain_is_the_same_for_the_same_seed_and_another_for_another() -> None:
    def made(seed: int) -> list[object]:
        return list(chain(Teller(RATES, "long", seed), 5))

    assert made(1) == made(1)
    assert made(1) != made(2)


def forms(fate: Fate) -> dict[str, dict[str, Fate]]:
    kinds = ("words", "failures", "handles", "state", "inferences", "sentences")
    return {kind: dict.fromkeys(("source", "carried", "renewed"), fate) for kind in kinds}


def sure(fate: Fate, **more: object) -> Rates:
    """Rates under which all fares alike."""
    form = Form(fates=forms(fate))
    return Rates(dated="2026-01-01", forms={"long": form, "short": form}, **more)  # type: ignore[arg-type]


def test_nothing_measured_as_lost_is_lost() -> None:
    windows = list(chain(Teller(sure(Fate(verbatim=20)), "long", 1)))
    assert windows[-1] == tuple(first(fact) for fact in FACTS)


def test_everything_reworded_has_lost_its_doubt_and_its_handles_when_that_is_what_was_measured() -> None:
    rates = sure(Fate(reworded=20), literals=Literals(kept=1, dropped=10**9), hedges=Hedges(dropped=1))
    (told,) = list(chain(Teller(rates, "long", 1), 1))
    for one in told:
        assert one.text != one.fact.text or one.fact.kind in ("used", "handles")
        assert one.is_doubted == (not one.fact.plain)
        assert not one.handle or one.fact.kind in ("used", "handles")


def test_an_altered_handle_is_a_wrong_one_of_the_same_length() -> None:
    rates = sure(Fate(reworded=20), literals=Literals(standing=1, near=10**9, kept=1))
    (told,) = list(chain(Teller(rates, "long", 1), 1))
    wrong = [one for one in told if one.is_wrong]
    assert {one.fact.kind for one in wrong} == {"words", "failures", "used", "handles", "state"}
    for one in wrong:
        right = one.fact.handle.rpartition("/")[2] if one.fact.kind in ("used", "handles") else one.fact.handle
        assert len(one.handle) == len(right)
        assert one.handle != right


# -- what is measured


def test_what_is_kept_of_the_recordings_is_numbers_and_how_they_were_measured() -> None:
    def strings(value: object) -> Iterator[str]:
        if isinstance(value, dict):
            for inner in value.values():
                yield from strings(inner)
        elif not isinstance(value, int):
            yield str(value)

    dated, command = strings(json.loads(PLACE.read_text("utf-8")))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", dated)
    assert command == "python -m bench generations --measure PATH"
    assert RATES.compactions == sum(form.compactions for form in RATES.forms.values()) > 0


def test_a_share_of_too_few_items_is_taken_from_a_wider_group() -> None:
    few, many, other = Fate(verbatim=3), Fate(verbatim=1, gone=39), Fate(verbatim=10, gone=10)
    rates = Rates(
        dated="2026-01-01",
        forms={
            "long": Form(fates={"words": {"source": few, "carried": few}, "sentences": {"carried": many}}),
            "short": Form(fates={"words": {"source": other}}),
        },
    )
    assert rates.fate("short", "words", "source") == other
    assert rates.fate("long", "words", "source") == few + other
    assert rates.fate("long", "words", "carried") == many
    assert rates.fate("long", "handles", "carried").shares() == (0.0, 0.0, 1.0)


def compaction(summary: str, before: str = "", **more: object) -> Compaction:
    given: dict[str, object] = {
        "recording": "ours--1",
        "told": "nothing of note",
        "rest": "",
        "replies": (),
        "words": (),
        "failures": (),
        "handles": (),
        "tasks": (),
        "files": (),
    }
    return Compaction(summary=summary, before=before, **{**given, **more})  # type: ignore[arg-type]


SUMMARY = """## Goal
Port the reader. You must never drop a column.
## Problems
- linking failed with the flag gc-sections, refused symbol
- the page cache holds stale rows
The file parse.py was read, and src/rows/page.py changed.
"""


def test_fates_are_counted_as_by_hand() -> None:
    rates = tally(
        [
            compaction(
                SUMMARY,
                words=("You must never drop a column.", "Always write UTF-8 files without any mark."),
                failures=(("error: linker refused symbol _Z4 with gc-sections",), ("exit code 9 in bundle step",)),
                handles=("/repo/src/rows/page.py", "src/rows/parse.py", "E4711"),
                tasks=("measure page cache",),
                files=("src/rows/page.py",),
                replies=("The page cache probably holds stale rows. I guess nobody reads the legacy column there.",),
            )
        ]
    )
    found = rates.forms["short"].fates
    assert found["words"]["source"].shares() == (0.5, 0.0, 0.5)
    assert found["failures"]["source"].shares() == (0.0, 0.5, 0.5)
    assert [found["handles"]["source"].verbatim, found["handles"]["source"].reworded] == [1, 1]
    assert [found["state"]["source"].verbatim, found["state"]["source"].reworded] == [1, 1]
    assert found["inferences"]["source"].shares() == (0.0, 0.5, 0.5)
    assert (rates.hedges.kept, rates.hedges.dropped, rates.hedges.confirmed) == (0, 1, 0)


def test_a_guess_that_the_model_came_to_know_is_no_loss() -> None:
    replies = ("The page cache probably holds stale rows.", "I looked: the page cache holds stale rows.")
    rates = tally([compaction(SUMMARY, replies=replies)])
    assert (rates.hedges.dropped, rates.hedges.confirmed) == (0, 1)


def test_what_the_summary_before_had_is_carried_or_renewed() -> None:
    before = "- the page cache holds stale rows\n- the lease of the worker expires early\n- see src/old/lease.py"
    rates = tally([compaction(SUMMARY, before, told="The lease of the worker expires early, says the log.")])
    found = rates.forms["short"].fates
    assert found["sentences"]["carried"].verbatim == 1
    assert found["sentences"]["renewed"].gone == 1
    assert found["handles"]["carried"].gone == 1


def test_a_near_miss_is_told_from_a_handle_that_is_new() -> None:
    made = compaction("- src/rows/page_7.py changed\n- docs/new/readme.md was added", told="src/rows/page_1.py is here")
    literals = tally([made]).literals
    assert (literals.standing, literals.near, literals.new) == (0, 1, 1)


def test_a_path_stands_from_some_folder_on() -> None:
    page = Page("rows/page.py changed, parse.py was read")
    assert page.handle("/home/us/src/rows/page.py") == "verbatim"
    assert page.handle("/home/us/src/rows/parse.py") == "reworded"
    assert page.handle("/home/us/src/rows/lease.py") == "gone"


def test_notes_of_a_real_model_are_read_like_recorded_ones() -> None:
    note = (
        "You must never delete /srv/data/ledger.db.\nThe page cache is at fault.\nPerhaps the lease expires too early."
    )
    found = read("ours", [note])
    assert found.letter["words", 1] == 1
    assert found.plain["guesses", 1] == 1
    assert found.other["leads", 1] == 1


def test_one_recording_with_compactions_can_be_measured(shared: Path) -> None:
    rates = measure(shared / "claude-code" / "cli--7af4027ddc.jsonl.gz")
    assert (rates.recordings, rates.compactions) == (1, 3)
    assert rates.forms["long"].fates["handles"]["source"].n > 100


@pytest.mark.slow
def test_the_loss_that_is_kept_is_what_the_recordings_give(shared: Path) -> None:
    again = measure(shared)
    again.dated = RATES.dated
    assert again == RATES
