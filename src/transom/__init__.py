"""Transom: small, clean windows over a durable, searchable log.

What a program needs to run a session of its own; `docs/library.md` has an example.
"""

from __future__ import annotations

from transom.core import block, event
from transom.core.budget import Limits, limits
from transom.core.policy import PRESETS, Policy
from transom.errors import KernelError
from transom.session import Prepared, Rules, Session

__all__ = ["PRESETS", "KernelError", "Limits", "Policy", "Prepared", "Rules", "Session", "block", "event", "limits"]
