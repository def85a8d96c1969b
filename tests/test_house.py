"""The house rules that a linter cannot see: who imports whom, what the core may touch, sizes, names, and the laws.

The order of the core's modules stands in docs/architecture.md, the words no public name contains in docs/glossary.md,
and the laws with their tests in docs/invariants.md: this file reads them there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

import transom

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src" / "transom"
# What lies in data/ is handed out and not imported: the demo's repository is a stranger's.
MODULES = sorted(
    name for path in SRC.rglob("*.py") if not (name := path.relative_to(SRC).as_posix()).startswith("data/")
)
CORE = [module for module in MODULES if module.startswith("core/") and module != "core/__init__.py"]

_INNER = {"errors", "core", "ports"}
_DRIVERS = {"measuring", "hosting", "session", "agent", "loop", "flow", "compose", "live"}
_EDGES = {"lab", "viewer", "gateway", "mcp", "integrations"}
# Room -> the rooms it may import, besides itself.
ALLOWED = {
    "errors": set(),
    "core": {"errors"},
    "ports": {"errors", "core"},
    "adapters": _INNER,
    "measuring": _INNER,
    "hosting": _INNER,
    "importers": _INNER | {"measuring"},
    "session": _INNER | {"measuring", "hosting"},
    "agent": _INNER | {"session"},
    "loop": _INNER | {"session", "agent"},
    "flow": _INNER | {"session", "agent"},
    "compose": _INNER | (_DRIVERS - {"live"}) | {"adapters", "importers"},
    "live": _INNER | _DRIVERS | {"adapters"},
    "lab": _INNER | _DRIVERS | {"testing"},
    "viewer": _INNER | _DRIVERS,
    "gateway": _INNER | _DRIVERS | {"adapters", "importers"},
    "mcp": _INNER | _DRIVERS,
    "integrations": _INNER | _DRIVERS,
    "cli": _INNER | _DRIVERS | _EDGES,
    "testing": _INNER | _DRIVERS | _EDGES | {"adapters", "importers", "cli"},
    "__init__": _INNER | _DRIVERS,
    "__main__": {"cli"},
}

# The standard library's modules that neither do nor ask anything: no I/O, clock, randomness, environment, threads.
PURE = {
    *("__future__", "abc", "array", "base64", "binascii", "bisect", "collections", "dataclasses", "difflib", "enum"),
    *("fnmatch", "fractions", "functools", "hashlib", "heapq", "itertools", "json", "math", "operator", "posixpath"),
    *("re", "statistics", "string", "textwrap", "tomllib", "types", "typing", "unicodedata"),
}
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "__import__"}
# Where a broad `except` may stand: the command line's main, a gateway request, a loop's task.
BROAD = ("cli/__init__.py", "cli/main.py", "gateway/", "loop.py")
LATE = ("cli/", "compose.py")
NO_NOUNS = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc"}
MODULE_LINES, FUNCTION_LINES = 400, 60
# Every stored type stands in one file, docstrings and all: that is worth more here than its length.
LONG = {"core/event.py": 640}


@lru_cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


def room_of(module: str) -> str:
    return module.split("/", 1)[0].removesuffix(".py")


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, dotted module) of every import, `from transom import x` as `transom.x`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            name = node.module or ""
            if name == "transom":
                yield from ((node.lineno, f"transom.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, name


def core_order() -> list[str]:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    block = re.search(r"```text core-order\n(.*?)```", text, re.DOTALL)
    assert block, "docs/architecture.md has a block marked `text core-order`"
    return block[1].split()


@pytest.mark.parametrize("module", MODULES)
def test_a_room_imports_only_the_rooms_it_may(module: str) -> None:
    room = room_of(module)
    assert room in ALLOWED, f"{module}: a new room; say in tests/test_house.py what it may import"
    for line, name in imports(tree_of(SRC / module)):
        if name.startswith("transom."):
            target = name.split(".")[1]
            assert target == room or target in ALLOWED[room], f"{module}:{line}: {room} does not import {target}"


@pytest.mark.parametrize("module", [m for m in MODULES if m.startswith("adapters/")])
def test_adapters_never_meet(module: str) -> None:
    """`sqlite_log` and `sqlite_search` are one adapter in two files: they share their first word."""
    own = module.split("/")[1].removesuffix(".py").split("_")[0]
    for line, name in imports(tree_of(SRC / module)):
        if name.startswith("transom.adapters."):
            other = name.split(".")[2]
            assert other.split("_")[0] == own, f"{module}:{line}: an adapter imports its sibling {other}"


@pytest.mark.parametrize("module", CORE)
def test_the_core_imports_only_what_is_pure_and_stands_above_it(module: str) -> None:
    order = core_order()
    own = module.removeprefix("core/").removesuffix(".py").split("/")[0]
    assert own in order, f"{module}: docs/architecture.md does not list it in the core's order"
    for line, name in imports(tree_of(SRC / module)):
        top = name.split(".")[0]
        if name.startswith("transom.core."):
            other = name.split(".")[2]
            assert other in order[: order.index(own)] or other == own, f"{module}:{line}: {other} stands below {own}"
        elif top != "transom":
            assert top in PURE or top == "msgspec", f"{module}:{line}: {name} is not for the core"


@pytest.mark.parametrize("module", CORE)
def test_the_core_has_no_colour_and_touches_nothing(module: str) -> None:
    for node in ast.walk(tree_of(SRC / module)):
        assert not isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.Global), f"{module}: async or global state"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in IMPURE_CALLS, f"{module}:{node.lineno}: {node.func.id}() in the core"


@pytest.mark.parametrize("module", MODULES)
def test_modules_and_functions_stay_small(module: str) -> None:
    path = SRC / module
    limit = LONG.get(module, MODULE_LINES)
    assert len(path.read_text("utf-8").splitlines()) <= limit, f"{module} is longer than {limit} lines"
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= FUNCTION_LINES, f"{module}:{node.lineno}: {node.name} is {length} lines"


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_named_by_a_noun_that_says_something(module: str) -> None:
    words = set(re.split(r"[/_.]", module))
    assert not words & NO_NOUNS, f"{module}: find the noun"


@pytest.mark.parametrize("module", [m for m in MODULES if not m.startswith(LATE)])
def test_imports_stand_at_the_top(module: str) -> None:
    for node in ast.walk(tree_of(SRC / module)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            late = [inner.lineno for inner in ast.walk(node) if isinstance(inner, ast.Import | ast.ImportFrom)]
            assert not late, f"{module}:{late}: only compose and cli import late"


@pytest.mark.parametrize("module", MODULES)
def test_a_broad_except_stands_at_an_edge_and_is_never_silent(module: str) -> None:
    """One that tidies up and raises the same again hides nothing."""
    for node in ast.walk(tree_of(SRC / module)):
        if not isinstance(node, ast.ExceptHandler):
            continue
        names = {n.id for n in ast.walk(node.type) if isinstance(n, ast.Name)} if node.type else {"everything"}
        cleans_up = isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None
        if names & {"everything", "Exception", "BaseException"} and not cleans_up:
            assert module.startswith(BROAD), f"{module}:{node.lineno}: except {', '.join(names)} away from the edges"
            silent = all(isinstance(inner, ast.Pass | ast.Continue) for inner in node.body)
            assert not silent, f"{module}:{node.lineno}: a silent except"


def exported(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]:
            names = ast.literal_eval(node.value)
            assert isinstance(names, list)
            return names
    return None


def defined(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """(name, must be exported if public) of every module-level name."""
    for node in tree.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, True
            case ast.Assign():
                for target in node.targets:
                    yield from ((n.id, False) for n in ast.walk(target) if isinstance(n, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name, False
            case ast.ImportFrom() | ast.Import():
                yield from ((alias.asname or alias.name, False) for alias in node.names)
            case _:
                pass


def handed_out(tree: ast.Module, names: list[str]) -> set[str]:
    """What an exported table holds, such as the cases of a conformance kit, is exported with it."""
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)} & set(names):
                found |= {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
    return found


def export_key(name: str) -> tuple[int, list[tuple[int, int, str]]]:
    """Constants, classes, functions; then by letter, digits by value: the order ruff's RUF022 keeps."""
    group = 0 if name.isupper() else 1 if name[:1].isupper() else 2
    return group, [(0, int(w), "") if w.isdigit() else (1, 0, w) for w in re.findall(r"\d+|\D+", name)]


@pytest.mark.parametrize("module", MODULES)
def test_all_is_true_and_sorted(module: str) -> None:
    tree = tree_of(SRC / module)
    names = exported(tree)
    known = dict(defined(tree))
    if names is None:
        assert not known or module.endswith("__main__.py"), f"{module} has no __all__"
        return
    assert names == sorted(set(names), key=export_key), f"{module}: __all__ is not sorted"
    missing = set(names) - set(known)
    if module == "__init__.py":  # loaded when it is asked for
        missing = {name for name in missing if not hasattr(transom, name)}
    assert not missing, f"{module}: __all__ names what is not there: {missing}"
    public = {name for name, required in known.items() if required and not name.startswith("_")}
    public -= handed_out(tree, names)
    assert public <= set(names), f"{module}: public but not in __all__: {public - set(names)}"


def words_of(name: str) -> set[str]:
    return {word.casefold() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)}


def forbidden_words() -> dict[str, tuple[str, ...]]:
    """Word -> the rooms where it is allowed, from the glossary's checked list."""
    text = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    section = text.split("## Words no public name contains", 1)[1]
    found = re.findall(r"^- `(\w+)`(?:, except in ([\w`, ]+?))?:", section, re.MULTILINE)
    assert found
    return {word: tuple(re.findall(r"`(\w+)`", rooms)) for word, rooms in found}


@pytest.mark.parametrize("module", MODULES)
def test_public_names_use_the_glossary(module: str) -> None:
    for name in exported(tree_of(SRC / module)) or []:
        for word, rooms in forbidden_words().items():
            if room_of(module) not in rooms:
                assert word not in words_of(name), f"{module}: {name} says {word}; see docs/glossary.md"


def laws() -> dict[str, tuple[str, str]]:
    """Law -> (statement, where it is tested), from docs/invariants.md."""
    text = (ROOT / "docs" / "invariants.md").read_text("utf-8")
    rows = re.findall(r"^\| (L\d+) \| (.+?) \| (.+?) \|$", text, re.MULTILINE)
    return {law: (statement, tested) for law, statement, tested in rows}


def test_every_law_is_listed() -> None:
    assert list(laws()) == [f"L{number}" for number in range(1, 13)]


@pytest.mark.parametrize("law", [f"L{number}" for number in range(1, 13)])
def test_a_law_has_a_property_test_that_cites_it(law: str) -> None:
    tested = laws()[law][1]
    if tested.startswith("later: "):
        assert len(tested) > len("later: ") + 20, f"{law}: say why later"
        return
    places = re.findall(r"`(tests/[\w/.]+)::(\w+)`", tested)
    assert places, f"{law}: docs/invariants.md names no test and no reason"
    for file, name in places:
        path = ROOT / file
        assert path.is_file(), f"{law}: {file} is not there"
        source = path.read_text("utf-8")
        found = [n for n in ast.walk(tree_of(path)) if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name == name]
        assert found, f"{law}: {file} has no {name}"
        text = ast.get_source_segment(source, found[0]) or ""
        decorated = "".join(ast.unparse(decorator) for decorator in found[0].decorator_list)
        is_machine = isinstance(found[0], ast.ClassDef)
        assert is_machine or "given(" in decorated, f"{law}: {name} is no property test"
        assert re.search(rf"\b{law}\b|_{law.lower()}_", text), f"{law}: {name} does not cite it"


def test_no_property_test_lowers_the_number_of_examples_that_the_slow_profile_asks_for() -> None:
    """2,000 examples a law must mean 2,000: only conftest.py sets the number."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if path != Path(__file__):
            assert "max_examples" not in path.read_text("utf-8"), f"{path.relative_to(ROOT)} sets max_examples"
