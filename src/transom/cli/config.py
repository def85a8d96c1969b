"""`transom config`: each setting of `run` and `resume`, its value here and now, and who said so."""

from __future__ import annotations

import json as stdlib_json
import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from transom import compose
from transom.cli.options import AsJson
from transom.cli.settings import PROJECT_FILE, settle, user_file
from transom.cli.terminal import out, printable

__all__ = ["config"]

_VALUE = 24
"""Columns of a value; where it comes from stands behind a longer one."""


def config(
    *,
    workspace: Annotated[Path | None, Parameter(help="The folder to work in. Without it, this one.")] = None,
    json: AsJson = False,
) -> int:
    """Show each setting, its value, and where it comes from: flag, TRANSOM_*, the workspace's .transom.toml, your
    config.toml, or the default. The first that says it wins.
    """
    folder = (workspace or Path()).absolute()
    values = settle({}, folder).values
    home = "TRANSOM_HOME" if os.environ.get("TRANSOM_HOME") else "default"
    rows = [(key, one.value, one.origin) for key, one in values.items()]
    rows.append(("store", str(compose.default_store_path()), home))
    keys = {name: bool(os.environ.get(name, "").strip()) for name in compose.key_variables()}
    files = {str(path): path.is_file() for path in (folder / PROJECT_FILE, user_file())}
    if json:
        plain = {key: {"value": value, "origin": origin} for key, value, origin in rows}
        whole = {"settings": plain, "files": files, "keys": keys}
        out().print(Text(stdlib_json.dumps(whole, indent=1)), soft_wrap=True)
        return 0
    console = out()
    console.print(Text(_line("setting", "value", "from"), style="bold"))
    for row in rows:  # a path is never broken: the terminal wraps it, and it can be copied whole
        console.print(Text(_line(*map(printable, row))), soft_wrap=True)
    console.print()
    for name, is_there in files.items():
        console.print(Text(f"{printable(name)}: {'read' if is_there else 'not there'}", style="dim"), soft_wrap=True)
    there = ", ".join(name for name, is_set in keys.items() if is_set) or "none"
    console.print(Text(f"keys that are set: {there}", style="dim"), soft_wrap=True)
    return 0


def _line(setting: str, value: str, origin: str) -> str:
    return f"{setting:<13}  {value or '–':<{_VALUE}}  {origin}"
