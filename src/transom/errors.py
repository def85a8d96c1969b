"""Every error Transom raises, sorted by who must act.

    KernelError
      UsageError       the caller broke a contract              -> fix the call
        BadInput       a file or an option cannot be used       -> the message names file, line and field
      Refused          a rule said no                           -> told to the model, recorded
        OverBudget     protected words alone exceed the limit   -> raise the limit
        HandoffRefused, PathEscaped
      Damaged          it does not verify
        SequenceConflict, LogDamaged, LogTooNew, ArtifactMissing
      Unwritable       the disk is full, locked or read-only    -> make room, try again; nothing was stored
      ProviderError    the other side
        Overflow, Unavailable                                   -> recorded; the boundary decides

Budget actions, cache verdicts and refused checkpoints are values, not exceptions. A message names the
thing, the rule and the next step.
"""

from __future__ import annotations

import re

__all__ = [
    "ArtifactMissing",
    "BadInput",
    "Damaged",
    "HandoffRefused",
    "KernelError",
    "LogDamaged",
    "LogTooNew",
    "OverBudget",
    "Overflow",
    "PathEscaped",
    "ProviderError",
    "Refused",
    "SequenceConflict",
    "Unavailable",
    "Unwritable",
    "UsageError",
    "reason_of",
]


_NUMBER = re.compile(r"\[Errno -?\d+\] ?")


def reason_of(problem: BaseException) -> str:
    """What the system or a library says went wrong, without numbers and names of its own: `No such file or
    directory`."""
    inner = getattr(problem, "reason", None)  # urllib wraps what happened
    said = inner if isinstance(inner, OSError) else problem
    return (said.strerror if isinstance(said, OSError) else None) or _NUMBER.sub("", str(said))


class KernelError(Exception):
    """The root: catch this to catch everything Transom raises on purpose."""


class UsageError(KernelError):
    """The caller broke a contract; fix the call."""


class BadInput(UsageError):
    """A file, a value or an option that cannot be used; says where and what to do."""


class Refused(KernelError):
    """A rule said no. Told to the model and recorded."""


class OverBudget(Refused):
    """What must stand in every window does not fit the limit; the message prints the numbers. `needs` is a limit under
    which this request fits, with room to work in; 0 where nobody can say."""

    def __init__(self, problem: str, *, needs: int = 0) -> None:
        super().__init__(
            f"{problem}; raise --context-limit to at least {needs:,}, with room to work in" if needs else problem
        )
        self.problem, self.needs = problem, needs


class HandoffRefused(Refused):
    """A handoff that is malformed, empty, too large or names a file outside the workspace."""


class PathEscaped(Refused):
    """A path that leaves the workspace."""


class Damaged(KernelError):
    """Something stored does not verify."""


class SequenceConflict(Damaged):
    """Another writer appended first; re-read the head and try again."""


class LogDamaged(Damaged):
    """The log does not verify; the message names the first bad place."""


class LogTooNew(Damaged):
    """The log was written by a newer format; the message names both versions."""


class ArtifactMissing(Damaged):
    """An artifact the log refers to is absent or does not match its digest."""


class Unwritable(KernelError):
    """A store could not write now (disk full, locked too long, read-only). Nothing of the attempt was stored."""


class ProviderError(KernelError):
    """The other side failed."""


class Overflow(ProviderError):
    """The provider refused the request as larger than its window."""


class Unavailable(ProviderError):
    """The provider could not answer now."""
