"""Transom: small, clean windows over a durable, searchable log.

What a program needs to run a session of its own; `docs/library.md` has an example.

A name is loaded when it is first asked for (PEP 562), so a command loads no more of the kernel than it uses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transom.core import block, event
    from transom.core.budget import Limits, limits
    from transom.core.policy import PRESETS, Policy
    from transom.errors import KernelError
    from transom.session import Prepared, Rules, Session

__all__ = ["PRESETS", "KernelError", "Limits", "Policy", "Prepared", "Rules", "Session", "block", "event", "limits"]

_HOMES = {
    "PRESETS": "transom.core.policy",
    "KernelError": "transom.errors",
    "Limits": "transom.core.budget",
    "Policy": "transom.core.policy",
    "Prepared": "transom.session",
    "Rules": "transom.session",
    "Session": "transom.session",
    "block": "transom.core.block",
    "event": "transom.core.event",
    "limits": "transom.core.budget",
}


if not TYPE_CHECKING:  # a checker would take any name for one that is there

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'transom' has no attribute {name!r}")
        home = import_module(_HOMES[name])
        return home if home.__name__.endswith(f".{name}") else getattr(home, name)


def __dir__() -> list[str]:
    return __all__
