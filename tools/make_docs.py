"""Writes docs/log-format.md from `core/event.py` and `core/block.py`, read as text: nothing is imported.

python tools/make_docs.py
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["log_format", "main"]

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "src" / "transom" / "core"
TARGET = ROOT / "docs" / "log-format.md"

_HEAD = """# Log format

Generated from `core/event.py`, `core/block.py` and `core/canon.py` by `make docs`; do not edit.

Format version: **{version}**. A log with a higher number is refused; an older one is read for ever (`upcast`).

An event is its envelope around one fact. Its canonical bytes are JSON with sorted keys, no spaces, UTF-8, defaults
left out, for example:

```json
{{"at":1772612400000,"fact":{{"blocks":[{{"text":"Honour Retry-After.","tokens":5,"type":"text"}}],"fact":"user_said"}},"seq":2,"session_id":"s1","uuid":"u1"}}
```

`digest(0)` is `sha256("transom-log-{version}\\0")`; `digest(n)` is `sha256("transom-log-{version}\\0" + digest(n-1) + bytes(n))`. A
fork's first event follows the digest of its parent at the fork point. Keys below without a default are always there.
"""


def _prose(text: str | None) -> str:
    return re.sub(r"\s*\n\s*", " ", text or "").strip()


def _tag(node: ast.ClassDef) -> str:
    values = [keyword.value for keyword in node.keywords if keyword.arg == "tag"]
    return next(
        (value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str)), ""
    )


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, str, str, str]]:
    """(name, type, default, meaning); a string right under a field is its meaning."""
    for here, below in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(here, ast.AnnAssign) and isinstance(here.target, ast.Name):
            meaning = ""
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                meaning = _prose(str(below.value.value))
            yield here.target.id, ast.unparse(here.annotation), ast.unparse(here.value) if here.value else "", meaning


def _shape(node: ast.ClassDef) -> str:
    tag = _tag(node)
    lines = [f"### {node.name}" + (f" — `{tag}`" if tag else ""), ""]
    if document := _prose(ast.get_docstring(node)):
        lines += [document, ""]
    rows = list(_fields(node))
    if rows:
        lines += ["| key | type | default | meaning |", "|---|---|---|---|"]
        for name, kind, default, meaning in rows:
            shown = kind.replace("|", "\\|").replace("'", '"')
            standing = f"`{default}`".replace("'", '"') if default else ""
            lines.append(f"| `{name}` | `{shown}` | {standing} | {meaning} |".replace("|  |", "| |"))
        lines.append("")
    return "\n".join(lines)


def _sections(path: Path, first: str) -> Iterator[tuple[str, list[ast.ClassDef]]]:
    """Classes under the headings that `# -- name` comments make."""
    text = path.read_text("utf-8")
    marks = [(0, first)]
    marks += [(n, line[5:].strip()) for n, line in enumerate(text.splitlines(), 1) if line.startswith("# -- ")]
    classes = [
        node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    for (start, title), (end, _) in zip(marks, [*marks[1:], (10**9, "")], strict=True):
        inside = [node for node in classes if start <= node.lineno < end and node.name != "Draft"]
        envelope = [node for node in inside if node.name == "Event"]
        if rest := [node for node in inside if node.name != "Event"]:
            yield title, rest
        if envelope:
            yield "envelope", envelope


def _aliases(path: Path) -> str:
    """The small closed sets the tables refer to."""
    lines = []
    for node in ast.parse(path.read_text("utf-8")).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript(value=ast.Name(id="Literal")) as value):
                members = ast.unparse(value.slice).strip("()").replace("'", '"')
                lines.append(f"- `{name}`: {', '.join(f'`{member}`' for member in members.split(', '))}")
            case _:
                pass
    return "\n".join(lines)


def log_format() -> str:
    """The page."""
    version = re.search(r"^FORMAT = (\d+)$", (CORE / "canon.py").read_text("utf-8"), re.MULTILINE)
    assert version, "canon.FORMAT is a plain number"
    pages = [_HEAD.format(version=version[1])]
    for title, classes in [*_sections(CORE / "event.py", "facts"), *_sections(CORE / "block.py", "blocks")]:
        pages.append(f"## {title}\n")
        pages += [_shape(node) for node in classes]
    pages.append("## closed sets\n")
    pages.append(_aliases(CORE / "block.py"))
    pages.append(_aliases(CORE / "event.py"))
    return "\n".join(pages) + "\n"


def main() -> None:
    TARGET.write_text(log_format(), "utf-8")
    print(TARGET.relative_to(ROOT))


if __name__ == "__main__":
    main()
