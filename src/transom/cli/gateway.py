"""`transom gateway`: agents that exist are governed by changing one URL. Serve it, ask how a client is set, start a
client behind it, see what it does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number

from transom.cli.options import AsJson, StoreFolder, whole_number

if TYPE_CHECKING:
    from transom.gateway.serving import Plan

__all__ = ["gateway"]

_PORT = 4141


def _port(least: int, words: str) -> Parameter:
    return Parameter(validator=Number(gte=least, lte=65_535), converter=whole_number, show_default=True, help=words)


_Port = Annotated[int, _port(0, "To listen on; 0 = any that is free, and it is said which.")]
_PortThere = Annotated[int, _port(1, "Of the gateway that serves.")]
_Ups = Annotated[
    list[str] | None,
    Parameter(
        name=["--upstream"],
        consume_multiple=False,
        help="NAME=URL, NAME being anthropic or openai; may be given for each. Without it, the makers' own.",
    ),
]
_Limit = Annotated[
    str, Parameter(help="Tokens of the window: 32k, 128000. Without it, or with 0, what is known of each model.")
]
_PolicyName = Annotated[
    str, Parameter(show_default=True, help="A preset (rollover, gssc, mask, …; raw = relay only) or FILE.toml.")
]
_Token = Annotated[
    str,
    Parameter(
        env_var="TRANSOM_GATEWAY_TOKEN", help="What clients must show: needed to serve others than this machine."
    ),
]
_Redact = Annotated[
    str,
    Parameter(help="known (the forms of common credentials), or FILE.toml with names and patterns under [redact]: what "
              "they match is neither stored nor sent on."),
]  # fmt: skip
_Address = Annotated[str, Parameter(show_default=True, help="Where a running gateway is: its URL, or HOST:PORT.")]

gateway = App(
    name="gateway",
    help="Serve the gateway: agents that exist get rollover, offload, recall and a log by changing one URL.",
    help_format="plaintext",
    default_parameter=Parameter(show_default=False, negative=()),
)


@gateway.default
def _serve(
    *,
    port: _Port = _PORT,
    host: Annotated[str, Parameter(help="The address to listen on. Others than this machine's need --token.")] = (
        "127.0.0.1"
    ),
    upstream: _Ups = None,
    context_limit: _Limit = "",
    policy: _PolicyName = "rollover",
    token: _Token = "",
    redact: _Redact = "",
    log: Annotated[
        Literal["text", "json"],
        Parameter(show_default=True, help="Lines on stderr: what went wrong as text, or every request as JSON."),
    ] = "text",
    max_mb: Annotated[
        int,
        Parameter(
            validator=Number(gte=1),
            converter=whole_number,
            show_default=True,
            help="Largest request, in MB; others get 413.",
        ),
    ] = 64,
    timeout: Annotated[
        float,
        Parameter(
            validator=Number(gt=0),
            show_default=True,
            help="Seconds without a byte after which upstream is given up.",
        ),
    ] = 600.0,
    store: StoreFolder = None,
) -> int:
    """Serve until stopped. Requests under way are ended first (Ctrl-C or SIGTERM)."""
    from transom.cli.serving import serve_until_stopped

    plan = _plan(upstream, context_limit, policy, host=host, token=token, redact=redact, store=store)
    serve_until_stopped(replace(plan, max_body=max_mb << 20, silence=timeout), port, log)
    return 0


@gateway.command(name="env")
def _env(
    client: Annotated[str, Parameter(help="claude-code, codex, opencode, pi, qwen-code, aider, mini-swe-agent.")],
    /,
    *,
    port: _PortThere = _PORT,
    host: Annotated[str, Parameter(help="By which the client reaches it.")] = "127.0.0.1",
    token: _Token = "",
) -> int:
    """Print the settings that make a client use the gateway, to be pasted into a shell or a file."""
    from transom.cli.serving import address_of, show_settings

    show_settings(client, address_of(host, port, token))
    return 0


@gateway.command(name="run")
def _run(
    *command: Annotated[str, Parameter(allow_leading_hyphen=True, help="The client and its arguments, after --.")],
    client: Annotated[str, Parameter(help="Which client it is, where its command does not say so.")] = "",
    upstream: _Ups = None,
    context_limit: _Limit = "",
    policy: _PolicyName = "rollover",
    redact: _Redact = "",
    store: StoreFolder = None,
) -> int:
    """Start a client behind a gateway of its own; the gateway ends with it. Exits as the client does."""
    from transom.cli.serving import run_behind

    return run_behind(_plan(upstream, context_limit, policy, redact=redact, store=store), list(command), client)


@gateway.command(name="status")
def _status(
    *,
    at: _Address = f"http://127.0.0.1:{_PORT}",
    token: _Token = "",
    watch: Annotated[bool, Parameter(help="Stay, and show it again as it changes, until Ctrl-C.")] = False,
    json: AsJson = False,
) -> int:
    """Show sessions, windows, cached share, boundaries, misses and spend of a running gateway."""
    from transom.cli.status import show_status

    show_status(at, token, is_live=watch, is_json=json)
    return 0


def _plan(
    upstream: list[str] | None,
    limit: str,
    policy: str,
    *,
    host: str = "127.0.0.1",
    token: str = "",
    redact: str,
    store: Path | None,
) -> Plan:
    from transom.cli.serving import plan_of

    named = {"policy": policy, "redact": redact, "limit": limit, "token": token}
    return plan_of(host=host, upstream=upstream or [], store=store, **named)
