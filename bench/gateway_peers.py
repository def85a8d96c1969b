"""Other gateways, as processes: those whose commands are on the PATH. Each is told its window, its upstream and a
folder of its own, by its documented settings (of the versions named), and nothing else."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.served import Served

__all__ = ["GOVERNING", "PEERS", "peer"]

_LITELLM = """model_list:
  - model_name: "*"
    litellm_params: {{model: "openai/m1", api_base: "{upstream}/v1", api_key: k}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Peer:
    """`arguments` and `env` with `port`, `upstream`, `limit` and `folder` filled in; `ready`: a path that answers."""

    command: str
    arguments: Sequence[str] = ()
    env: Mapping[str, str]
    ready: str
    file: tuple[str, str] = ("", "")


_KNOWN = {
    # ctxkeeper 1.2.0
    "ctxkeeper": _Peer(
        command="ctxkeeper",
        arguments=(
            *("--upstream", "{upstream}", "--port", "{port}", "--budget", "{limit}"),
            *("--state-dir", "{folder}", "--recipe", "agent"),
        ),
        env={},
        ready="/v1/models",
    ),
    # context-guardian 0.12.0
    "context-guardian": _Peer(
        command="context-guardian",
        env={
            "GUARDIAN_UPSTREAM_URL": "{upstream}/v1",
            "GUARDIAN_PORT": "{port}",
            "GUARDIAN_NUM_CTX": "{limit}",
            "GUARDIAN_DATA_DIR": "{folder}",
        },
        ready="/v1/models",
    ),
    # headroom 0.42.0
    "headroom": _Peer(
        command="headroom",
        arguments=("proxy", "--port", "{port}", "--openai-api-url", "{upstream}", "--no-rate-limit"),
        env={"HEADROOM_TELEMETRY": "off", "HOME": "{folder}"},
        ready="/health",
    ),
    # LiteLLM 1.108.7
    "litellm": _Peer(
        command="litellm",
        arguments=("--config", "{folder}/litellm.yaml", "--port", "{port}", "--host", "127.0.0.1"),
        # The second is its own word for: on this machine, without a key.
        env={"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"},
        ready="/health/liveliness",
        file=("litellm.yaml", _LITELLM),
    ),
}
PEERS = tuple(name for name, one in _KNOWN.items() if shutil.which(one.command))
"""Those that are installed."""
GOVERNING = tuple(name for name in PEERS if name != "litellm")
"""Those that change what they pass on."""


@contextmanager
def peer(name: str, upstream: str, limit: int, folder: Path) -> Iterator[Served]:
    one = _KNOWN[name]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    known = {"port": port, "upstream": upstream, "limit": limit, "folder": folder}
    file, text = one.file
    if file:
        (folder / file).write_text(text.format(**known))
    program = shutil.which(one.command)
    assert program is not None, f"{one.command} is not on the PATH"
    command = [program, *(argument.format(**known) for argument in one.arguments)]
    env = {variable: value.format(**known) for variable, value in one.env.items()}
    with Served(command, base_url=f"http://127.0.0.1:{port}", ready=one.ready, env={**os.environ, **env}) as served:
        yield served
