"""What `run` and `resume` have in common: the settings and the agent their options make, the turns with a person."""

from __future__ import annotations

import json as stdlib_json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from transom import compose
from transom.cli.asking import approver, is_person_there, next_message
from transom.cli.naming import find_session
from transom.cli.settings import KEYS, Settings, settle, user_file
from transom.cli.terminal import out, printable, printable_lines, say
from transom.cli.terms import parse_tokens
from transom.core.block import Text
from transom.core.event import SessionOpened
from transom.core.policy import PRESETS
from transom.core.pricing import find_price
from transom.errors import KernelError, UsageError
from transom.lab.tables import counted

if TYPE_CHECKING:
    from transom.agent.run import Agent, Ended, Stop
    from transom.agent.tally import Tally
    from transom.cli.display import Display, Silent
    from transom.cli.options import Options
    from transom.live import Manner, Model

__all__ = ["chosen_model", "drive", "manner_of", "note_price", "settings_of"]

_INTERRUPTED = 130


def settings_of(options: Options, workspace: Path, session: dict[str, str] | None = None) -> Settings:
    if options.ask and options.auto:
        raise UsageError("--ask and --auto are two answers to one question; give one of them")
    flags: dict[str, str | None] = {}
    for key in KEYS:
        value = getattr(options, key, None)
        flags[key] = None if value is None or value is False else str(value).lower() if value is True else str(value)
    flags["approve"] = "ask" if options.ask else "auto" if options.auto else None
    return settle(flags, workspace, session)


def chosen_model(settings: Settings, kept: compose.Store, gone: Tally | None = None) -> Model:
    """Raises `UsageError` if no model is named anywhere."""
    from transom import live

    script = settings.text("script")
    name = settings.text("model")
    provider = settings.text("provider") or _provider_of(name, script)
    if provider == "recorded" and name:
        name = find_session(kept.log, name, is_replied=True).session_id
    return live.model(
        provider,
        name,
        context_limit=settings.tokens(),
        base_url=settings.text("base_url"),
        script=Path(script) if script else None,
        kept=kept,
        gone=gone,
    )


def _provider_of(name: str, script: str) -> str:
    if script:
        return "scripted"
    if name.endswith(".gguf"):
        return "local"
    if not name:
        raise UsageError(
            "no model is named: say --model NAME (claude-…, gpt-…, a GGUF file), or --provider and --model; "
            "TRANSOM_MODEL and the files that `transom config` shows say it for every run"
        )
    price = find_price(compose.prices(), name)
    if price.assumed or price.provider not in ("anthropic", "openai", "deepseek"):
        raise UsageError(f"{name}: whose model this is does not follow from its name; say --provider too")
    return price.provider


def note_price(chosen: Model, settings: Settings) -> None:
    """Say what a person would else take for exact."""
    if chosen.price is None and settings.microusd():
        say(f"{chosen.name} has no price here, so --max-spend ends nothing", style="yellow")
    elif chosen.price is not None and chosen.price.assumed:
        say(f"{chosen.name}: no price of its own is known; {chosen.price.name} stands in", style="yellow")


def manner_of(settings: Settings, view: Display | Silent, stop: Stop) -> Manner:
    from transom import live
    from transom.agent.rules import RULES_FILE
    from transom.agent.run import Bounds

    is_unsandboxed = settings.flag("unsandboxed")
    how = settings.approval() or ("ask" if is_unsandboxed else "auto")
    if is_unsandboxed and not settings.approval() and not is_person_there():
        raise UsageError("--unsandboxed with nobody to ask needs --auto: commands would run with all your rights")
    return live.Manner(
        policy=settings.policy(),
        bounds=Bounds(
            steps=settings.steps(),
            microusd=settings.microusd(),
            seconds=60 * settings.number("max_minutes"),
        ),
        stop=stop,
        approve=approver(how, stop),
        is_unsandboxed=is_unsandboxed,
        is_network_allowed=settings.flag("network"),
        memory=user_file().parent / RULES_FILE,
        show=view.show,
        told=view.told,
    )


def drive(agent: Agent, view: Display | Silent, options: Options, words: str) -> int:
    """Say `words` (if any), run, and go on with what a person says then. Returns the exit code."""
    view.attach(agent)
    is_talk = is_person_there() and not (options.quiet or options.json)
    try:
        with agent.stop.listening():
            if words:
                agent.say(words)
            ended = agent.run()
            while (
                ended.reason in ("answered", "refused")
                and is_talk
                and (words := next_message("\nyou (empty line: end)> "))
            ):
                agent.say(words)
                ended = agent.run()
    except (KernelError, KeyboardInterrupt, BrokenPipeError) as problem:
        if options.json and not isinstance(problem, BrokenPipeError):
            is_stopped = isinstance(problem, KeyboardInterrupt)
            _tell_end(
                agent, "interrupted" if is_stopped else "error", "stopped at once" if is_stopped else str(problem)
            )
        say(f"everything so far is stored; go on with: {_go_on(agent, options)}")
        raise
    _conclude(agent, ended, options)
    return 0 if ended.reason == "answered" else _INTERRUPTED if ended.reason == "interrupted" else 1


def _go_on(agent: Agent, options: Options) -> str:
    """The command with the flags that the session does not hold, or holds otherwise; bounds are of one run."""
    given = {"store": options.store, "base-url": options.base_url, "script": options.script}
    given |= _held_otherwise(agent, options)
    flags = "".join(f" --{name} {shlex.quote(str(value))}" for name, value in given.items() if value)
    rights = {"--unsandboxed": options.unsandboxed, "--network": options.network, "--ask": options.ask}
    rights["--auto"] = options.auto
    flags += "".join(f" {name}" for name, is_given in rights.items() if is_given)
    return printable(f"transom resume {agent.session.session_id}{flags}")


def _held_otherwise(agent: Agent, options: Options) -> dict[str, Path | str | None]:
    opened = next(agent.session.log.read(agent.session.session_id, 0, 1)).fact
    if not isinstance(opened, SessionOpened):
        return {}
    workspace, limit = options.workspace, options.context_limit
    is_model_named = opened.provider not in ("recorded", "scripted") or options.provider not in (None, opened.provider)
    return {
        "workspace": workspace if workspace and str(workspace.resolve()) != opened.workspace else None,
        "provider": options.provider if options.provider != opened.provider else None,
        "model": options.model if is_model_named and options.model != opened.model else None,
        "context-limit": limit if limit and parse_tokens(limit) != opened.context_limit else None,
        "policy": options.policy if options.policy not in PRESETS or options.policy != opened.policy else None,
    }


def _tell_end(agent: Agent, reason: str, sentence: str) -> None:
    """The last line of a run told in JSON, whatever ended it."""
    tally = agent.tally
    plain = {
        "ended": reason,
        "sentence": sentence,
        "session_id": agent.session.session_id,
        "steps": tally.steps,
        "windows": tally.windows,
        "prompt_tokens": tally.prompt_tokens,
        "cached_tokens": tally.cached_tokens,
        "output_tokens": tally.output_tokens,
        "microusd": tally.microusd,
    }
    out().print(stdlib_json.dumps(plain), soft_wrap=True)


def _conclude(agent: Agent, ended: Ended, options: Options) -> None:
    tally = agent.tally
    if options.json:
        _tell_end(agent, ended.reason, ended.sentence)
        return
    if options.quiet:
        last = next((item for item in reversed(agent.session.state.window.items) if item.role == "assistant"), None)
        said = [one.text for one in last.blocks if isinstance(one, Text)] if last else []
        out().print(printable_lines("\n".join(said)), soft_wrap=True)
    else:
        counts = f"{counted(tally.steps, 'step')}, {counted(tally.windows, 'window')}"
        spent = f", {tally.spent}" if tally.spent else ""
        say(
            f"{agent.session.session_id}: {counts}, {tally.prompt_tokens:,} tokens in "
            f"({tally.cached_share:.0%} cached), {tally.output_tokens:,} out{spent}",
            style="dim",
        )
    if ended.reason != "answered":
        say(f"ended: {ended.sentence}; go on with: {_go_on(agent, options)}", style="yellow")
