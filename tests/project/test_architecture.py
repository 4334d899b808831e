"""How the package is built: no import cycles, functions that fit a screen, and a light `import ragmon`."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import ragmon

PACKAGE = Path(ragmon.__file__).parent


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name without `ragmon.`."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = list(path.relative_to(PACKAGE).with_suffix("").parts)
        if parts[-1] == "__init__":
            parts.pop()
        found[".".join(parts)] = path
    return found


def imports(path: Path, *, lazy: bool = True) -> set[str]:
    """The ragmon modules a file imports; imports for types alone do not count."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    nodes = ast.walk(tree) if lazy else iter(tree.body)
    known = modules()
    found = set()
    for node in nodes:
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "ragmon":
            base = node.module.removeprefix("ragmon").removeprefix(".")
            for alias in node.names:
                name = f"{base}.{alias.name}".lstrip(".")
                found.add(name if name in known else base)
        elif isinstance(node, ast.Import):
            found |= {
                a.name.removeprefix("ragmon").removeprefix(".") for a in node.names if a.name.startswith("ragmon.")
            }
    return found - {""}


def test_there_are_no_import_cycles():
    """Module by module, imports at load time form no cycle."""
    graph = {name: imports(path, lazy=False) & set(modules()) for name, path in modules().items()}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join((*trail[trail.index(name) :], name))
        if name not in done:
            for target in graph[name]:
                # A package and its own modules are one thing to the importer.
                if not name.startswith(f"{target}.") and target != name:
                    visit(target, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_functions_fit_a_screen():
    """A function has at most 40 lines without its docstring."""
    for module, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                lines = body[-1].end_lineno - body[0].lineno + 1 if body else 0
                assert lines <= 40, f"{module}.{node.name} has {lines} lines"


HEAVY = ("pydantic", "prometheus_client", "grpc", "google.protobuf", "starlette", "rich", "opentelemetry.sdk")


@pytest.mark.parametrize("code", ["import ragmon", "import ragmon; ragmon.trace; ragmon.record; ragmon.stage"])
def test_importing_ragmon_and_decorating_is_light(code):
    """A pipeline that only decorates its functions loads none of the heavy dependencies."""
    script = f"{code}\nimport sys\nprint(*[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_no_public_name_is_also_a_submodule():
    """`ragmon.replay` is the function, whatever was imported before; only `testing` is a module on purpose."""
    top = {module.split(".")[0] for module in modules()} - {""}
    assert not top & (set(ragmon.__all__) - {"testing"})


def test_public_names_are_sorted_and_importable():
    assert list(ragmon.__all__) == sorted(ragmon.__all__)
    for name in ragmon.__all__:
        assert getattr(ragmon, name) is not None
