"""A live agent, put together: a model behind a name, a workspace, a sandbox, a session in a store.

    with compose.store() as kept:
        chosen = live.model("anthropic", "claude-sonnet-4-5", kept=kept)
        made = live.agent(kept, chosen, Path())
        made.say("Fix the failing test.")
        print(made.run().sentence)

The context limit is the one given, else what the price table's own entry of the model says; a window that nobody knows
is not guessed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from time import strftime, time_ns
from uuid import uuid4

import msgspec

from transom.adapters import provider_anthropic
from transom.adapters.counter import classify
from transom.adapters.local import LocalCounter, LocalModel, LocalProvider
from transom.adapters.provider_catalogue import known
from transom.adapters.recorded import RecordedProvider
from transom.adapters.sandbox import open_sandbox, secrets
from transom.adapters.scripted import ScriptedProvider
from transom.adapters.scripted_format import read_script
from transom.adapters.workspace import DirWorkspace
from transom.agent.head import head
from transom.agent.run import Agent, Bounds, Stop
from transom.agent.sources import Surroundings
from transom.agent.tally import Tally
from transom.agent.toolbox import Approve, Toolbox
from transom.compose import Store, counter, default_store_path, prices, provider
from transom.core.block import ToolCall
from transom.core.budget import LimitSource, limits
from transom.core.canon import FORMAT
from transom.core.costrule import Tariff, tariff_of
from transom.core.event import EpochOpened, Event, SessionOpened, Tool
from transom.core.evidence import Files
from transom.core.policy import PRESETS, Policy
from transom.core.pricing import Price, find_price
from transom.errors import SequenceConflict, UsageError
from transom.ports import Counter, Delta, Provider
from transom.session import Rules, Session, World

__all__ = ["Manner", "Model", "agent", "model"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model that can be asked, the size of its window, and its price (None: free)."""

    provider_name: str
    name: str
    provider: Provider
    counter: Counter
    context_limit: int
    source: LimitSource
    price: Price | None = None
    tool_tokens: Callable[[Tool], int] | None = None
    """Of a tool in the head, where the provider does not show it as its schema."""
    close: Callable[[], None] = lambda: None


def model(
    provider_name: str,
    name: str = "",
    *,
    context_limit: int = 0,
    base_url: str = "",
    script: Path | None = None,
    kept: Store | None = None,
    gone: Tally | None = None,
) -> Model:
    """The model called `name` behind a provider of the catalogue; or `scripted` (plays `script`), `recorded` (says
    again what the session `name` of `kept` was told), `local` (the GGUF file `name`). `gone`: what the session has had.

    Raises `UsageError` where the window is not known and `context_limit` does not say it, and what `provider` raises.
    """
    match provider_name:
        case "scripted":
            made = _scripted(script, context_limit, gone)
        case "recorded":
            made = _recorded(name, context_limit, kept, gone)
        case "local":
            made = _local(name, context_limit)
        case _:
            made = _served(provider_name, name, context_limit, base_url, kept)
    if not made.context_limit:
        raise UsageError(
            f"the window of {made.name or 'this model'} is not known: say --context-limit, as 128k (a script may say "
            "window_tokens)"
        )
    return made


def _scripted(script: Path | None, context_limit: int, gone: Tally | None) -> Model:
    if script is None:
        raise UsageError("scripted: say which script with --script FILE; docs/scripted.md is its manual")
    read = read_script(script)
    player = ScriptedProvider(read, provider_anthropic.DIALECT, after=gone.response_id if gone else "")
    return Model(
        provider_name="scripted",
        name=read.model,
        provider=player,
        counter=counter(),
        context_limit=context_limit or read.window_tokens,
        source="configured" if context_limit else "provider-reported",
    )


def _recorded(name: str, context_limit: int, kept: Store | None, gone: Tally | None) -> Model:
    if kept is None or not name:
        raise UsageError("recorded: name the session whose replies are said again, with --model SESSION")
    player = RecordedProvider(kept.log, name, provider_anthropic.DIALECT, skip=gone.steps if gone else 0)
    return Model(
        provider_name="recorded",
        name=name,
        provider=player,
        counter=counter(),
        context_limit=context_limit,
        source="configured",
    )


def _local(name: str, context_limit: int) -> Model:
    if not name or not context_limit:
        raise UsageError("local: name the GGUF file with --model FILE, and its window with --context-limit")
    loaded = LocalModel(name, context_limit=context_limit)
    asked = LocalProvider(loaded)
    return Model(
        provider_name="local",
        name=name,
        provider=asked,
        counter=LocalCounter(loaded, classify),
        context_limit=context_limit,
        source="configured",
        tool_tokens=asked.tool_tokens,
        close=loaded.close,
    )


def _served(provider_name: str, name: str, context_limit: int, base_url: str, kept: Store | None) -> Model:
    is_open = known(provider_name).is_open
    if not name:
        raise UsageError(f"{provider_name}: say which model with --model NAME")
    price = find_price(prices(), name)
    client = provider(provider_name, name, base_url=base_url, blobs=kept.blobs if kept else None)
    return Model(
        provider_name=provider_name,
        name=name,
        provider=client,
        counter=counter(),
        context_limit=context_limit or (0 if price.assumed else price.context_window),
        source="configured" if context_limit else "catalogue",
        price=None if price.assumed and is_open else price,
        close=client.close,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How an agent works: under which policy and bounds, what it may do, and who is told. `memory` is a file of the
    user's own that stands in every head."""

    policy: Policy = PRESETS["rollover"]
    bounds: Bounds | None = None
    stop: Stop | None = None
    approve: Approve = lambda _call, _effect: True
    is_unsandboxed: bool = False
    is_network_allowed: bool = False
    memory: Path | None = None
    show: Callable[[Delta], None] = lambda _: None
    told: Callable[[Event], None] = lambda _: None


def agent(
    kept: Store,
    chosen: Model,
    workspace: Path,
    manner: Manner | None = None,
    *,
    session_id: str = "",
    is_new: bool = True,
) -> Agent:
    """An agent in `workspace`: on a new session, or on one that is in the store.

    Raises `BadInput` for a workspace that is none, `UsageError` where no sandbox works and none was not asked for, and
    where `session_id` is another's, or nobody's.
    """
    how = manner or Manner()
    stores = _stores(kept, workspace)
    place = DirWorkspace(workspace, stores=stores, secrets=secrets())
    sandbox = open_sandbox(
        place.root,
        is_unsandboxed=how.is_unsandboxed,
        is_network_allowed=how.is_network_allowed,
        hidden=stores,
    )
    bounds = limits(chosen.context_limit, source=chosen.source)
    rules = Rules(
        policy=how.policy,
        bounds=bounds,
        counter=chosen.counter,
        dialect=chosen.provider.dialect,
        clock=lambda: time_ns() // 1_000_000,
        ids=lambda: str(uuid4()),
        tariff=_tariff(chosen),
    )
    if is_new:
        session = _begun(kept, session_id, _opened(chosen, how.policy, place.root), rules)
        for event in kept.log.read(session.session_id):
            how.told(event)
    else:
        session = Session.open(kept.log, session_id, rules, kept.snapshots)
    tools = Toolbox(place, sandbox, how.approve)
    left = session.state.window.calls.items()
    tools.tidy(ToolCall(call_id=call_id, name=name, arguments=arguments) for call_id, (name, arguments) in left)
    sources = _surroundings(place, how, chosen.context_limit)
    world = World(
        provider=chosen.provider,
        tools=tools,
        sources=sources,
        files=Files(resolve=place.resolve, text=place.text, root=str(place.root)),
        model=chosen.name,
        max_output_tokens=bounds.output_reserve,
        show=how.show,
        told=how.told,
    )
    tally = Tally(chosen.price, kept.log.read(session.session_id))
    made = Agent(session, world, tally, bounds=how.bounds, stop=how.stop)
    made.open(_weighed(head(sources, tools.catalogue()), chosen))
    return made


def _begun(kept: Store, session_id: str, opened: SessionOpened, rules: Rules) -> Session:
    try:
        return Session.start(kept.log, session_id or str(uuid4()), opened, rules, kept.snapshots)
    except SequenceConflict as problem:
        raise UsageError(f"session {session_id}: is there already; is_new=False goes on with it") from problem


def _stores(kept: Store, workspace: Path) -> tuple[Path, ...]:
    """Where sessions lie, those of other runs too; a workspace in the usual place is not hidden from itself. Raises
    `UsageError` for one in the store of this run: what stands around commands cannot spare what they work in."""
    real, usual = Path(os.path.realpath(workspace)), default_store_path()
    if real.is_relative_to(os.path.realpath(kept.path)):
        raise UsageError(f"workspace {workspace}: lies in the store {kept.path}, its own log; name another of the two")
    return (kept.path,) if real.is_relative_to(os.path.realpath(usual)) else (kept.path, usual)


def _weighed(opened: EpochOpened, chosen: Model) -> EpochOpened:
    weigh = chosen.tool_tokens
    if weigh is None:
        return opened
    tools = tuple(msgspec.structs.replace(tool, tokens=weigh(tool)) for tool in opened.tools)
    return msgspec.structs.replace(opened, tools=tools)


def _tariff(chosen: Model) -> Tariff | None:
    """What the cost rule goes by. A model on one's own machine has no price; what is played has that of its name."""
    if chosen.provider_name in ("scripted", "recorded"):
        return tariff_of(find_price(prices(), chosen.name))
    return tariff_of(chosen.price) if chosen.price else None


def _opened(chosen: Model, policy: Policy, root: Path) -> SessionOpened:
    return SessionOpened(
        format=FORMAT,
        agent="transom",
        agent_version=version("transom"),
        model=chosen.name,
        provider=chosen.provider_name,
        workspace=str(root),
        policy=policy.name,
        counter=chosen.counter.name,
        context_limit=chosen.context_limit,
    )


def _surroundings(place: DirWorkspace, how: Manner, context_limit: int) -> Surroundings:
    network = "with the network" if how.is_network_allowed else "without network"
    inside = f"they run in a sandbox, {network}; they write only to the workspace and to a private /tmp"
    return Surroundings(
        place.root,
        platform=f"{sys.platform} {os.uname().machine}",
        commands="they run with all the rights of the user" if how.is_unsandboxed else inside,
        today=lambda: strftime("%Y-%m-%d"),
        context_limit=context_limit,
        memory=how.memory,
        hidden=place.hidden,
    )
