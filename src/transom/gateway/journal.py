"""What the gateway says of its own running: a line an event, as text or as JSON, and no word of what anybody said.

A line is made of what the gateway itself knows (path, status, milliseconds, session, the kind of an error and where it
was raised). Bodies, headers, queries and the texts of errors, which may quote them, never enter one; that holds for
what the libraries below report too. The texts of a few errors quote nothing and say what to do; they do enter.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Literal

from transom.errors import OverBudget, Unwritable, UsageError

__all__ = ["LOG", "Style", "note", "place_of", "write_to"]

Style = Literal["text", "json"]
LOG = logging.getLogger("transom.gateway")
_BELOW = ("aiohttp", "asyncio")
"""Loggers of the libraries that serve and ask."""
_SAID = (OverBudget, UsageError, Unwritable)
"""Errors whose texts hold numbers, ids, names of models and what a disk says."""
_SAID_CHARS = 300
"""Of such a text: a client may call its model what it likes."""
_FRAMES = 4
"""Places of a raised error that are named, the innermost last."""


def note(level: int, event: str, **fields: str | int) -> None:
    """A line. `event` and the fields' values hold nothing that a client or a model said."""
    LOG.log(level, event, extra={"fields": fields})


def place_of(problem: BaseException) -> str:
    """The kind of an error and where it was raised; its text only where that quotes nothing."""
    frames = traceback.extract_tb(problem.__traceback__)[-_FRAMES:]
    way = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
    said = f" ({str(problem)[:_SAID_CHARS]})" if isinstance(problem, _SAID) else ""
    kind = f"{type(problem).__name__}{said}"
    return f"{kind} at {way}" if way else kind


def write_to(stream: IO[str] = sys.stderr, *, style: Style = "text") -> None:
    """Send the lines to a stream. `json` writes every request, `text` what went wrong."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Lines(style))
    level = logging.INFO if style == "json" else logging.WARNING
    for name in (LOG.name, *_BELOW):
        log = logging.getLogger(name)
        log.handlers[:] = [handler]
        log.propagate = False
        log.setLevel(level if name == LOG.name else logging.WARNING)


class _Lines(logging.Formatter):
    def __init__(self, style: Style) -> None:
        super().__init__()
        self._is_json = style == "json"

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, str | int] = getattr(record, "fields", {})
        event = record.msg
        if record.name != LOG.name:
            event, fields = "fault", {"of": record.name, "what": _foreign(record)}
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        level = record.levelname.lower()
        if self._is_json:
            return json.dumps({"at": at, "level": level, "event": event, **fields})
        shown = " ".join(f"{name}={value}" for name, value in fields.items())
        return f"gateway: {level}: {event} {shown}".rstrip()


def _foreign(record: logging.LogRecord) -> str:
    info = record.exc_info
    if isinstance(info, tuple) and info[1] is not None:  # a library may say False
        return place_of(info[1])
    return f"{Path(record.pathname).name}:{record.lineno}"
