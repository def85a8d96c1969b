"""Options that several commands have in common, in one wording."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

__all__ = ["AsJson", "SessionName", "StoreFolder"]

StoreFolder = Annotated[
    Path | None, Parameter(help="The store's folder. Without it TRANSOM_HOME, else the usual place for programs' data.")
]
SessionName = Annotated[str, Parameter(help="Its id, the start of it, or `latest`.")]
AsJson = Annotated[bool, Parameter(help="JSON instead of text.")]
