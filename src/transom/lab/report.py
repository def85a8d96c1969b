"""The replay's table: for a person in a terminal, and as JSON for a program.

One row an arm, grouped by session, then the totals. A narrow terminal gets several tables, one below the other.
Everything that came from a transcript is printed as plain text: no colour codes, no markup, no control characters. The
page (`lab.page`) shows the same rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from statistics import median

import msgspec
from rich.console import Console
from rich.text import Text

from transom.core.canon import plain_text
from transom.core.policy import PRESETS
from transom.lab.figures import Replay, Result, Run, against_recorded, totals
from transom.lab.tables import Column, counted, show_table

__all__ = [
    "COLUMNS",
    "compared",
    "dollars",
    "footnotes",
    "printable",
    "recorded",
    "row",
    "session_title",
    "sessions",
    "show",
    "stopped",
    "to_json",
    "tokens",
    "total_rows",
    "total_title",
]


COLUMNS = (
    Column(name="arm", is_number=False),
    Column(name="input"),
    Column(name="cached"),
    Column(name="output"),
    Column(name="cost"),
    Column(name="vs recorded"),
    Column(name="vs optimum"),
    Column(name="peak"),
    Column(name="mean"),
    Column(name="boundaries", is_number=False, folds=True),
    Column(name="misses", is_number=False, folds=True),
    Column(name="seen/recall/lost"),
    Column(name="constraints"),
)
"""`seen/recall/lost` are shares of the handles used: in the window, one recall away, gone."""

_NOTHING = "–"

_ARMS = {
    "recorded": "what the recorded agent did to its window",
    "raw": "everything is shown, for comparison",
    "fifo": "the oldest messages are dropped",
    "mask": "old tool results are hidden, their calls kept",
    "gssc": "old results and thoughts are hidden; where that frees too little, a new window opens with a state made by "
    "code",
    "rollover": "a full window is replaced by a new one with a handoff made by code, the user's words to the letter",
    "rollover-cost": "a new window as with rollover, as soon as that is cheaper than going on",
}


def show(replay: Replay, console: Console) -> None:
    """Print the report. The table of a session is followed by why an arm stopped, the whole by what to know."""
    groups = sessions(replay.runs)
    for runs in groups:
        first = runs[0].result
        console.print(Text(session_title(runs[0]), style="bold"), no_wrap=True, overflow="ellipsis")
        if runs[0].title:
            console.print(Text(printable(first.session), style="dim"), no_wrap=True, overflow="ellipsis")
        counts = f"{counted(first.steps, 'step')} · {recorded(first)}"
        about = f"{printable(first.format)} · {printable(first.model) or 'model unknown'} · {counts}"
        console.print(Text(about, style="dim"))
        show_table(console, COLUMNS, [row((run.result,)) for run in runs])
        for arms, why in stopped(runs):
            console.print(Text(f"{arms} stopped: {why}", style="yellow"))
        console.print()
    if len(groups) > 1:
        console.print(Text(total_title(replay.runs), style="bold"))
        if rows := total_rows(replay.runs):
            show_table(console, COLUMNS, rows)
        console.print()
    for note in footnotes(replay):
        console.print(Text(note, style="dim"))


def sessions(runs: Iterable[Run]) -> list[list[Run]]:
    """The runs of each session together, in order of first appearance."""
    order: dict[str, int] = {}
    for run in runs:
        order.setdefault(run.result.session, len(order))
    ordered = sorted(runs, key=lambda run: order[run.result.session])
    return [list(group) for _, group in groupby(ordered, key=lambda run: run.result.session)]


def stopped(runs: Iterable[Run]) -> list[tuple[str, str]]:
    """(arms, why) for those that did not get to the end; what several say is said once."""
    found: dict[str, list[str]] = {}
    for run in runs:
        if run.result.refused:
            found.setdefault(printable(run.result.refused), []).append(printable(run.result.arm))
    return [(", ".join(arms), why) for why, arms in found.items()]


def session_title(run: Run) -> str:
    """The title, or the session's id, as printable text on one line."""
    return printable(" ".join(run.title.split())) or printable(run.result.session)


def compared(runs: Sequence[Run]) -> list[Result]:
    """What totals are made of, so that every arm is held to the same work: the sessions that all arms finished. An arm
    that finished none of its sessions is left out."""
    finished = {run.result.arm for run in runs if not run.result.refused}
    cut = {run.result.session for run in runs if run.result.refused and run.result.arm in finished}
    return [run.result for run in runs if run.result.arm in finished and run.result.session not in cut]


def total_title(runs: Sequence[Run]) -> str:
    """Over which sessions the totals are, and which arms they are without."""
    results, every = compared(runs), len({run.result.session for run in runs})
    kept = len({result.session for result in results})
    arms = dict.fromkeys(run.result.arm for run in runs)
    left = [printable(arm) for arm in arms if all(run.result.refused for run in runs if run.result.arm == arm)]
    without = f", without {', '.join(left)}, which finished none" if left else ""
    if not kept:
        return f"No totals: none of the {every} sessions was finished by every arm"
    return (
        f"All {every} sessions" if kept == every else f"The {kept} of {every} sessions that every arm finished"
    ) + without


def total_rows(runs: Sequence[Run]) -> list[tuple[str, ...]]:
    """One row an arm over the sessions that `compared` keeps; an arm that not all of them have says over how many."""
    results = compared(runs)
    every = len({result.session for result in results})
    rows = []
    for total in totals(results):
        arm, *cells = row([result for result in results if result.arm == total.arm])
        rows.append((arm if int(total.session) == every else f"{arm} ({total.session} of {every})", *cells))
    return rows


def row(results: Sequence[Result]) -> tuple[str, ...]:
    """The cells of one arm, over one session or more, in the order of `COLUMNS`. One that was stopped before its first
    request has no figures."""
    (total,) = totals(results)
    if total.refused and not total.input_tokens:
        return (f"{printable(total.arm)} †", *[_NOTHING] * (len(COLUMNS) - 1))
    ratio = against_recorded(results)
    recall, constraints = total.handle_recall, total.constraints_verbatim
    shares = [_share(part, recall.n) for part in (recall.visible, recall.recallable, recall.lost)]
    return (
        printable(total.arm) + (" *" if total.modelled else "") + (" †" if total.refused else ""),
        tokens(total.input_tokens),
        _percent(total.cached_tokens, total.input_tokens),
        tokens(total.output_tokens),
        dollars(total.cost_usd),
        _NOTHING if ratio is None else _difference(ratio),
        _NOTHING if total.regret is None else f"{total.regret:.2f} ×",
        tokens(total.peak_tokens),
        tokens(round(total.mean_tokens)),
        _counts(total.boundaries),
        _counts(total.misses),
        "/".join(shares) + " %" if recall.n else _NOTHING,
        f"{constraints.kept}/{constraints.n}" if constraints.n else _NOTHING,
    )


def footnotes(replay: Replay) -> list[str]:
    """What a reader must know to trust the figures, as sentences."""
    results = [run.result for run in replay.runs]
    limits = {result.context_limit or replay.context_limit for result in results} or {replay.context_limit}
    span = " to ".join(f"{limit:,}" for limit in sorted({min(limits), max(limits)}))
    notes = [f"Context limit {span} tokens. Cost in US dollars" + _dated(replay.prices_dated)]
    notes += [printable(sentence) for sentence in replay.assumed]
    notes += _legend(results)
    notes.append(
        "seen/recall/lost: handles (paths, lines, ids, SHAs, error codes) used later that were in the window, one "
        "recall away, or gone."
    )
    if any(result.constraints_verbatim.n for result in results):
        notes.append(
            "constraints: sentences of the user that say what must or must not be; those that stood word for word in "
            "every later window, of all."
        )
    if any(result.regret is not None for result in results):
        notes.append(
            "vs optimum: cost without output, over that of the cheapest schedule of windows for the session as it was "
            "recorded; over several sessions their median. Offloading, masking and a seed that shows what would else "
            "be looked up can go below 1."
        )
    errors = [abs(result.counter_error) for result in results if result.counter_error is not None]
    if errors:
        found = f"{median(errors):.1%} (median), {max(errors):.1%} at worst"
        notes.append(f"Counted prompt tokens differ from the recorded ones by {found}.")
    else:
        notes.append("The recordings hold no usage, so the token counts could not be checked against a provider's.")
    modelled: dict[str, dict[str, None]] = {}
    for result in results:
        for words in result.modelled:
            modelled.setdefault(printable(words), {})[printable(result.arm)] = None
    notes += [f"* modelled: {words} ({', '.join(arms)})." for words, arms in modelled.items()]
    if any(result.refused for result in results):
        notes.append("† stopped before its end; its figures end there and do not compare.")
    broken = sum(result.undeclared_misses for result in results), sum(result.unpaired_calls for result in results)
    if any(broken):
        notes.append(f"Not as it should be: {broken[0]} undeclared misses, {broken[1]} calls without their result.")
    return notes


def _legend(results: Sequence[Result]) -> list[str]:
    """The arms of ours in a line each, and the columns that are no sentence of their own below."""
    arms = list(dict.fromkeys(result.arm for result in results if result.arm in _ARMS))
    notes = [f"{arm}: {_ARMS[arm]}." for arm in arms]
    aside: dict[int, list[str]] = {}
    for arm in arms:
        if PRESETS[arm].offload_above:
            aside.setdefault(PRESETS[arm].offload_above, []).append(arm)
    for above, names in aside.items():
        notes.append(
            f"Results of more than {above:,} tokens are kept out of the window from the start: {', '.join(names)}."
        )
    notes.append(
        "input, output, peak, mean: tokens (k: thousands, M: millions); input is every prompt in full, peak the "
        "largest prompt, mean the average one. cached: the share of input that the provider reads from its cache."
    )
    if any(result.recorded.cost_usd is not None for result in results):
        notes.append("vs recorded: cost, against that of the recorded usage at the same prices.")
    notes.append(
        "boundaries: how often the window was replaced, by cause. misses: how often the cached start of a prompt did "
        "not hold, by reason: initial is a first prompt, what stands behind reset: was done to the window."
    )
    return notes


def to_json(replay: Replay) -> bytes:
    """One JSON document: an array with one object per session and arm, keys always in the same order."""
    results = [msgspec.to_builtins(run.result) for run in replay.runs]
    return json.dumps(results, indent=1).encode()  # ASCII: half an emoji stays valid JSON


def printable(text: str) -> str:
    """The text without anything a terminal or a reader would take for a command: control, escape, bidi characters."""
    return "".join(letter if letter.isprintable() else "�" for letter in plain_text(text))


def tokens(n: int) -> str:
    """`987`, `12.3k`, `1.23M`, `4.56B`."""
    if n < 1_000:
        return str(n)
    if n < 999_950:
        return f"{n / 1e3:.1f}k"
    return f"{n / 1e6:.2f}M" if n < 999_995_000 else f"{n / 1e9:.2f}B"


def dollars(usd: float | None) -> str:
    if usd is None:
        return _NOTHING
    return f"${usd:,.2f}" if usd >= 0.995 else f"${usd:.4f}"


def recorded(result: Result) -> str:
    """What the recording's own client used: what `vs recorded` compares with."""
    found = result.recorded
    if found.input is None:
        return "no usage recorded"
    said = f"recorded: {tokens(found.input)} input tokens, {dollars(found.cost_usd)}"
    return said + (f", compacted {found.compactions}×" if found.compactions else "")


def _dated(date: str) -> str:
    return f", prices of {printable(date)}." if date else "; no price table."


def _difference(ratio: float) -> str:
    """`+12 %`, `-3 %`, and `0 %` for what rounds to nothing."""
    percent = round((ratio - 1) * 100)
    return f"{percent:+,} %" if percent else "0 %"


def _percent(part: int, whole: int) -> str:
    return f"{_share(part, whole)} %" if whole else _NOTHING


def _share(part: int, whole: int) -> str:
    return f"{part / whole * 100:.0f}" if whole else "0"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{printable(name)} {n:,}" for name, n in counts.items()) or _NOTHING
