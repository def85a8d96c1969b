"""What `transom gateway` and its commands do: serve, start a client behind a gateway, show settings."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from aiohttp import web

from transom import compose
from transom.cli.status import fetched
from transom.cli.terminal import out, printable, say
from transom.cli.terms import parse_tokens
from transom.core.policy import PRESETS
from transom.errors import BadInput, UsageError, reason_of
from transom.gateway.clients import client, client_in
from transom.gateway.entrance import checked_token
from transom.gateway.journal import Style, write_to
from transom.gateway.redaction import NO_RULES, read_rules
from transom.gateway.serving import UPSTREAMS, Plan, runner
from transom.lab.tables import counted

__all__ = ["address_of", "plan_of", "run_behind", "serve_until_stopped", "show_settings"]

_GRACE = 30.0
"""Seconds that requests under way get to end."""
_SIGNALLED = 128
"""What a shell adds to the signal that ended a program."""


def plan_of(
    *, host: str, upstream: Sequence[str], limit: str, policy: str, token: str, redact: str, store: Path | None
) -> Plan:
    """A plan from the flags. Raises `UsageError` for one that says nothing usable."""
    upstreams = dict(UPSTREAMS)
    for one in upstream:
        name, separator, url = one.partition("=")
        if not separator or name not in UPSTREAMS:
            raise UsageError(f"--upstream {one!r}: write anthropic=URL or openai=URL")
        upstreams[name] = url
    presets = {name: one for name, one in PRESETS.items() if name != "recorded"}  # a replay's alone
    chosen = presets.get(policy)
    if chosen is None and not policy.endswith(".toml"):
        raise UsageError(f"--policy: no preset is called {policy!r}; known are {', '.join(presets)}, or FILE.toml")
    return Plan(
        store=store,
        upstreams=upstreams,
        policy=chosen or compose.policy(Path(policy)),
        context_limit=parse_tokens(limit) if limit else 0,
        host=host,
        token=token,
        redactor=read_rules(redact) if redact else NO_RULES,
    )


def serve_until_stopped(plan: Plan, port: int, style: Style) -> None:
    """Raises `UsageError` for a port that is taken."""
    write_to(style=style)
    asyncio.run(_served(plan, port))


async def _served(plan: Plan, port: int) -> None:
    server, listening = runner(plan, grace=_GRACE), _listening(plan.host, port)
    await server.setup()
    try:
        await web.SockSite(server, listening).start()
        host, bound = listening.getsockname()[:2]
        root = address_of(host, bound)
        say(f"gateway: {root} -> {', '.join(f'{name} {url}' for name, url in plan.upstreams.items())}")
        token = " --token …" if plan.token else ""
        say(f"gateway: how a client is set: transom gateway env CLIENT --host {host} --port {bound}{token}")
        say(f"gateway: what it does: transom gateway status --at {root}{token}")
        await _stopped()
        say("gateway: ends when the requests under way have; once more ends it now")
    finally:
        await server.cleanup()


async def _stopped() -> None:
    """Until Ctrl-C or SIGTERM; the next one is the system's to obey."""
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for one in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(one, stopped.set)
    await stopped.wait()
    for one in (signal.SIGINT, signal.SIGTERM):
        loop.remove_signal_handler(one)
        signal.signal(one, signal.SIG_DFL)


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family, backlog=128)
    except OSError as problem:
        raise UsageError(f"--host {host} --port {port}: {problem.strerror or problem}; choose another") from None
    return listening


def address_of(host: str, port: int, token: str = "") -> str:
    """What a client is given as its base URL; the token stands in its path, where every client lets it stand."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}{f'/t/{checked_token(token)}' if token else ''}"


def show_settings(name: str, root: str) -> None:
    """A client's settings, ready to paste into a shell; where there are two ways, the second one as a comment."""
    found = client(name).filled(root)
    lines = [f"export {key}={shlex.quote(value)}" for key, value in found.env.items()]
    if found.arguments:
        lines.append(f"{found.command} {shlex.join(found.arguments)}")
    if found.settings and lines:
        lines.extend((f"# in {found.file}:", *(f"# {line}" for line in found.settings.splitlines())))
    elif found.settings:
        say(f"in {found.file}:")
        lines = [found.settings]
    out().print("\n".join(lines), soft_wrap=True, markup=False)
    if found.note:
        say(found.note)
    say(f"as measured with {found.name} {found.version}")


def run_behind(plan: Plan, command: list[str], name: str = "") -> int:
    """Start a client behind a gateway of its own, the one called `name` or the one that its command names. Its exit
    code."""
    if command[:1] == ["--"]:
        command = command[1:]
    if not command:
        raise UsageError("name the client after --, as in: transom gateway run -- claude -p 'Fix the tests'")
    known, place = client_in(command, name)
    if known.file and not known.env and not known.arguments:
        raise UsageError(
            f"{known.name} is set by a file alone, and that would name a gateway that is gone afterwards: start "
            f"`transom gateway`, put into {known.file} what `transom gateway env {known.name}` prints, and start "
            f"{known.name} by itself"
        )
    program = shutil.which(command[0])
    if program is None:
        raise BadInput(f"{command[0]}: no such program on the PATH")
    return asyncio.run(_behind(plan, known.name, [program, *command[1:]], place))


async def _behind(plan: Plan, name: str, command: list[str], place: int) -> int:
    """`place`: of the word in the command behind which the client's arguments begin."""
    write_to(style="text")
    server, listening = runner(plan, grace=_GRACE), _listening(plan.host, 0)
    await server.setup()
    await web.SockSite(server, listening).start()
    root = f"http://127.0.0.1:{listening.getsockname()[1]}"
    set_up = client(name).filled(root)
    say(f"gateway: {root}; what it does: transom gateway status --at {root}")
    try:
        words = (*command[: place + 1], *set_up.arguments, *command[place + 1 :])
        try:
            process = await asyncio.create_subprocess_exec(*words, env={**os.environ, **set_up.env})
        except OSError as problem:
            raise BadInput(f"{command[0]}: cannot be started: {reason_of(problem)}") from None
        loop = asyncio.get_running_loop()
        for one in (signal.SIGINT, signal.SIGTERM):  # the client hears them, and ends as it does
            loop.add_signal_handler(one, _pass_on, process, one)
        code = await process.wait()
        found = await asyncio.to_thread(fetched, root, "")
        if found.failed_open:
            say(f"gateway: not all was governed: {printable(found.failed_open)}", style="yellow")
        for row in found.sessions:
            counts = f"{counted(row.requests, 'request')}, {counted(row.window, 'window')}"
            where = f" --store {shlex.quote(str(plan.store))}" if plan.store else ""
            look = f"transom handoffs {row.session[:8]}{where}"
            left = f"; what they left to each other: {look}" if row.window > 1 else ""
            say(f"gateway: session {row.session}: {counts}{left}")
        return code if code >= 0 else _SIGNALLED - code
    finally:
        await server.cleanup()


def _pass_on(process: asyncio.subprocess.Process, number: int) -> None:
    # Ctrl-C reaches the client by itself when it runs in the same terminal.
    if number != signal.SIGINT or not sys.stdin.isatty():
        with suppress(ProcessLookupError):
            process.send_signal(number)
