"""What running a tool can change, judged by the name its client gave it.

The names are those of the clients whose recordings are read; case, `_`, `-` and an MCP prefix do not matter. A shell
can do anything, so it and every unknown tool is `external`.
"""

from __future__ import annotations

from functools import lru_cache

from transom.core.event import Effect

__all__ = ["effect_of"]

_READ = frozenset(
    {
        "read",
        "readfile",
        "readmanyfiles",
        "view",
        "viewimage",
        "viewfile",
        "cat",
        "open",
        "openfile",
        "grep",
        "glob",
        "ls",
        "list",
        "listdir",
        "listdirectory",
        "find",
        "findfile",
        "filesearch",
        "codesearch",
        "grepsearch",
        "globsearch",
        "search",
        "searchdir",
        "searchfile",
        "searchfiles",
        "searchfilecontent",
        "toolsearch",
        "searchtext",
        "semanticsearch",
        "ripgrep",
        "lsp",
        "notebookread",
        "readnotebook",
        "bashoutput",
        "taskoutput",
        "readbash",
        "webfetch",
        "websearch",
        "fetch",
        "listmcpresources",
        "readmcpresource",
        "gotoline",
        "scrollup",
        "scrolldown",
        "goto",
    }
)
_WRITE = frozenset(
    {
        "edit",
        "write",
        "multiedit",
        "notebookedit",
        "create",
        "createfile",
        "writefile",
        "editfile",
        "replace",
        "insert",
        "applypatch",
        "patch",
        "strreplaceeditor",
        "strreplacebasededittool",
        "strreplace",
        "texteditor",
        "fileeditor",
        "deletefile",
        "undoedit",
    }
)
_NONE = frozenset(
    {
        "todowrite",
        "todoread",
        "updatetodolist",
        "writetodos",
        "todo",
        "todos",
        "updateplan",
        "plan",
        "think",
        "thinking",
        "finish",
        "submit",
        "exitplanmode",
        "enterplanmode",
        "askuserquestion",
        "askuser",
        "tasktracker",
        "taskcreate",
        "taskupdate",
        "tasklist",
        "taskget",
        "reportintent",
        "notefailure",
    }
)


@lru_cache(maxsize=4096)
def effect_of(tool_name: str) -> Effect:
    """`none` for plans and notes, `read` for tools that only look, `write` for edits, else `external`."""
    name = tool_name.rpartition("__")[2].replace("_", "").replace("-", "").lower()
    if name in _NONE:
        return "none"
    if name in _READ:
        return "read"
    if name in _WRITE:
        return "write"
    return "external"
