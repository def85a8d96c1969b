"""`transom replay`: recorded sessions under several policies, as a table, a page, JSON and traces."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from transom import compose
from transom.cli.files import check_target, write
from transom.cli.intake import Chosen, choose
from transom.cli.options import StoreFolder
from transom.cli.reading import headline
from transom.cli.terminal import Bar, bar, out, say
from transom.cli.terms import Market, arms_of, market, parse_tokens, terms_of
from transom.core.budget import limits
from transom.core.event import UserSaid
from transom.core.policy import PRESETS, Policy
from transom.errors import BadInput, UsageError
from transom.lab import report
from transom.lab.arms import Setting
from transom.lab.figures import Replay, Run
from transom.lab.replay import Progress, replay_script
from transom.lab.script import Script, script_of
from transom.ports import Counter

if TYPE_CHECKING:
    from transom.lab.trace import SessionTrace

__all__ = ["replay"]

_Files = Annotated[
    Path,
    Parameter(
        help="Transcripts, folders or archives. They are imported into the store; what it knows is not read again."
    ),
]
_Latest = Annotated[bool, Parameter(help="The newest session under the usual places; an error where there is none.")]
_Sessions = Annotated[
    tuple[str, ...],
    Parameter(help="A stored session: its id, the start of it, or `latest`. May be given more than once."),
]
_Every = Annotated[
    bool,
    Parameter(name="--all", help="Replay sub-agents, and forks without a reply of their own, as well."),
]
_Arms = Annotated[
    str,
    Parameter(
        help="Policies, with commas between: raw, fifo, mask, gssc, rollover, rollover-cost, recorded. Without it all "
        "of them, `recorded` where the recording was compacted."
    ),
]
_Limit = Annotated[
    str,
    Parameter(help="Tokens of the model's window: 32k, 128000, 1M. Without it the recording's own, else the model's."),
]
_Model = Annotated[str, Parameter(help="Take price and window of this model, whatever was recorded.")]
_Price = Annotated[
    str,
    Parameter(
        help="An entry of the price table (`@1h` behind it: with the one-hour cache), or your own table, FILE.toml."
    ),
]
_Policies = Annotated[
    tuple[Path, ...],
    Parameter(help="A policy of your own, FILE.toml: an arm called by its `name`. May be given often."),
]
_Json = Annotated[
    Path | None,
    Parameter(
        allow_leading_hyphen=True,
        help="Write the figures, one object a session and arm; `-` is stdout instead of the table.",
    ),
]
_Html = Annotated[Path | None, Parameter(help="Write one page with plots that needs no network.")]
_Trace = Annotated[
    Path | None,
    Parameter(help="Write each session's trace and parameters in the terms of the cost model, as JSON."),
]
_Quiet = Annotated[bool, Parameter(help="Say nothing but the result and what went wrong.")]


_SAMPLE_LIMIT = 48_000
"""The sample is short: in a window of today's size no policy would have anything to do."""
_SAMPLE = (
    "The sample's work and its usage are made up, at three bytes a token whatever the text: hence the difference "
    "between counted and recorded tokens."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What the options ask for, checked."""

    policies: tuple[Policy, ...]
    adds_recorded: bool
    market: Market
    limit: int | None
    counter: Counter
    has_trace: bool


@dataclass(slots=True, kw_only=True)
class _Done:
    runs: list[Run] = field(default_factory=list)
    traces: list[SessionTrace] = field(default_factory=list)
    assumed: dict[str, None] = field(default_factory=dict)
    """Sentences, each once."""
    skipped: list[str] = field(default_factory=list)


def replay(
    *files: _Files,
    latest: _Latest = False,
    session: _Sessions = (),
    every: _Every = False,
    arms: _Arms = "",
    context_limit: _Limit = "",
    model: _Model = "",
    price: _Price = "",
    policy: _Policies = (),
    json: _Json = None,
    html: _Html = None,
    trace: _Trace = None,
    store: StoreFolder = None,
    quiet: _Quiet = False,
) -> int:
    """Replay recorded sessions under several policies: tokens, price, boundaries, what was lost.

    Without FILE, --session or --latest: the newest session under the usual places of Claude Code, Codex, opencode and
    pi; with none there, a sample that ships with Transom.
    """
    for option, path in (("--json", json), ("--html", html), ("--trace", trace)):
        check_target(option, path)
    _check_extras(html)
    policies = arms_of(arms, policy)
    wanted = _Wanted(
        policies=policies,
        adds_recorded=not arms,
        market=market(price, model),
        limit=parse_tokens(context_limit) if context_limit else None,
        counter=compose.counter(),
        has_trace=trace is not None,
    )
    if wanted.limit is not None:
        limits(wanted.limit)
    with compose.store(store) as kept, bar(is_quiet=quiet) as shown:
        chosen = choose(
            kept, wanted.counter, files=files, names=session, latest=latest, every=every, shown=shown, is_quiet=quiet
        )
        if chosen.is_sample and wanted.limit is None:
            wanted = replace(wanted, limit=_SAMPLE_LIMIT)
        done = _replay_all(kept, chosen, wanted, shown)
    if chosen.is_sample:
        done.assumed[_SAMPLE] = None
    _publish(done, wanted, json=json, html=html, trace=trace)
    for sentence in done.skipped if not quiet else ():
        say(sentence)
    return 2 if chosen.unusable else 0


def _check_extras(html: Path | None) -> None:
    if html and not importlib.util.find_spec("plotly"):
        raise UsageError("--html needs the extra `report`: pip install 'transom[report]'")


def _replay_all(kept: compose.Store, chosen: Chosen, wanted: _Wanted, shown: Bar) -> _Done:
    done = _Done()
    for number, session_id in enumerate(chosen.sessions, 1):
        which = f"{number}/{len(chosen.sessions)} " if len(chosen.sessions) > 1 else ""
        try:
            script = script_of(kept.log, session_id)
        except BadInput as problem:
            done.skipped.append(f"left out: {problem}")
            continue
        _replay_one(script, wanted, done, _teller(shown, which))
    if not done.runs:
        raise BadInput("; ".join(done.skipped) or "no session to replay: none has a reply of its model")
    return done


def _teller(shown: Bar, which: str) -> Progress:
    return lambda arm, step, steps: shown.tell(f"{which}{arm}", step, steps)


def _replay_one(script: Script, wanted: _Wanted, done: _Done, progress: Progress) -> None:
    terms = terms_of(script, wanted.market, wanted.limit)
    done.assumed.update(dict.fromkeys(terms.assumed))
    bounds = limits(terms.limit, source=terms.source)
    recorded = (PRESETS["recorded"],) if wanted.adds_recorded and script.compactions else ()
    dialect = compose.dialect_for(script.provider, script.model)
    replayed = replay_script(
        script,
        (*recorded, *wanted.policies),
        Setting(bounds=bounds, counter=wanted.counter, dialect=dialect),
        price=terms.price,
        scratch=compose.scratch_log,
        progress=progress,
    )
    title = script.title or _first_words(script)
    done.runs += [msgspec.structs.replace(run, title=title) for run in replayed.runs]
    if wanted.has_trace:
        from transom.lab.trace import trace_of

        done.traces.append(trace_of(replayed))


def _first_words(script: Script) -> str:
    return next((headline(event.fact) for event in script.events if isinstance(event.fact, UserSaid)), "")


def _publish(done: _Done, wanted: _Wanted, *, json: Path | None, html: Path | None, trace: Path | None) -> None:
    found = Replay(
        runs=tuple(done.runs),
        context_limit=max(run.result.context_limit for run in done.runs),
        prices_dated=wanted.market.table.dated,
        assumed=tuple(done.assumed),
    )
    if html:
        from transom.lab.page import page

        write(html, page(found).encode("utf-8", "replace"))
    if trace:
        write(trace, msgspec.json.format(msgspec.json.encode(done.traces), indent=1) + b"\n")
    if json:
        write(json, report.to_json(found) + b"\n")
    if json is None or str(json) != "-":
        report.show(found, out())
