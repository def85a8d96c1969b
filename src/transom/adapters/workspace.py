"""The files an agent works on: a folder, and the check that every path passes before anything opens it.

A path is written with `/`, holds no control characters and is relative to the folder, or names it whole (some models
always do); Windows roots, drive letters and
`~` are refused by name, since on another system, or by a shell, they mean another place. Then the *real* path (every
symbolic link followed) must lie inside the folder. `..` is fine as long as the end is inside.

Not contained here: a link that is changed between the check and the opening. Calls run one after another and no
command outlives its call, so there is nobody to change it but the user.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from transom.errors import BadInput, PathEscaped

__all__ = ["DirWorkspace"]

_PATH_BYTES = 4096
"""Linux's PATH_MAX."""
_SHOWN_CHARS = 100
_TEXT_BYTES = 16 * 1024 * 1024
"""`text` reads no more of a file: it serves checks of quoted words, and a quote that far down is not confirmed."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_DRIVE = re.compile(r"[A-Za-z]:")


class DirWorkspace:
    """The `Workspace` port over a folder that is there; neither the `stores` nor the `secrets` in it are reached, nor
    what lies below them. Raises `BadInput` if it is not there."""

    def __init__(self, root: Path, *, stores: Iterable[Path] = (), secrets: Iterable[Path] = ()) -> None:
        if not root.is_dir():
            raise BadInput(f"workspace {root}: is not a folder; name the folder to work in")
        self._root = Path(os.path.realpath(root))
        self._hidden = {Path(os.path.realpath(path)): "is where the sessions are stored" for path in stores}
        for path in map(Path, map(os.path.realpath, secrets)):
            if not self._root.is_relative_to(path):  # a folder of keys may be what is to be worked on
                self._hidden.setdefault(path, "holds keys or a login, which are kept from the model")

    @property
    def root(self) -> Path:
        return self._root

    @property
    def hidden(self) -> tuple[Path, ...]:
        return tuple(self._hidden)

    def resolve(self, path: str) -> Path:
        problem = self._problem(path)
        if not problem:
            real = Path(os.path.realpath(self._root / path))  # an absolute path stands alone
            if not real.is_relative_to(self._root):
                problem = "leads outside the workspace; name a path inside it"
            elif reason := next((reason for path, reason in self._hidden.items() if real.is_relative_to(path)), ""):
                problem = f"{reason}; name another one"
            else:
                return real
        raise PathEscaped(f"path {_shown(path)}: {problem}")

    def text(self, path: str) -> str | None:
        """None also for a folder, a device, and a file that may not be read."""
        real = self.resolve(path)
        try:
            if not real.is_file():  # opening a named pipe would wait for its writer
                return None
            with real.open("rb") as file:
                return file.read(_TEXT_BYTES).decode("utf-8", "replace")
        except OSError:
            return None

    def _problem(self, path: str) -> str:
        if not path:
            return "is empty; `.` is the workspace itself"
        if _CONTROL.search(path):
            return "holds a control character; write it without"
        if len(path.encode()) > _PATH_BYTES:
            return f"is longer than {_PATH_BYTES} bytes; name a shorter one"
        if "\\" in path or _DRIVE.match(path):
            return "looks like a Windows path; write it relative to the workspace, with /"
        if path.split("/", 1)[0].startswith("~"):
            return "begins with ~, which is a home folder elsewhere; write it relative to the workspace"
        if path.startswith("/") and not Path(os.path.realpath(path)).is_relative_to(self._root):
            return "is absolute and outside the workspace; name a path inside it, relative to it"
        return ""


def _shown(path: str) -> str:
    """The path as a person can read it: escaped, and not a megabyte."""
    return ascii(path if len(path) <= _SHOWN_CHARS else f"{path[:_SHOWN_CHARS]}…")
