"""A transcript that is a folder, and may be wrapped in one more: a tar of a folder has the folder's name inside."""

from __future__ import annotations

import re

from transom.importers.source import Source

__all__ = ["root_of"]


def root_of(source: Source, mark: re.Pattern[str]) -> str | None:
    """The inner path, "" or "name/", under which a file that matches `mark` stands: in the source itself, or in its
    only folder. None if there is no such file: a folder of several transcripts is none itself."""
    members = source.members()
    tops = {path.partition("/")[0] for path in members}
    roots = ("", f"{min(tops)}/") if len(tops) == 1 else ("",)
    for root in roots:
        if any(path.startswith(root) and mark.fullmatch(path, len(root)) for path in members):
            return root
    return None
