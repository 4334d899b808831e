"""The map of the package as numbers; `python -m tests.support.imports` prints them.

The import rule itself is import-linter's contracts in pyproject.toml; this counts what they leave open.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "ragmon"
APART = {"__init__", "__main__", "testing"}
"""Modules beside the packages: the public names, `python -m ragmon`, and help for users' tests."""


class Import(NamedTuple):
    """One import between modules of ragmon, by their dotted names without `ragmon.`."""

    importer: str
    imported: str


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name without `ragmon.`; "" is the package itself."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(*, lazy: bool = True) -> list[Import]:
    """Imports of ragmon's modules from one another; imports for types alone do not count.

    Args:
        lazy: Also those inside functions.
    """
    known = modules()
    found = []
    for importer, path in known.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for_types = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree) if lazy else tree.body:
            if id(node) not in for_types and isinstance(node, ast.ImportFrom) and node.module:
                base, _, rest = node.module.partition(".")
                names = (f"{rest}.{alias.name}".lstrip(".") for alias in node.names)
                found += [Import(importer, name if name in known else rest) for name in names if base == "ragmon"]
    return found


def package(module: str) -> str:
    """The package a module belongs to."""
    return module.partition(".")[0] or "__init__"


def arrows() -> set[tuple[str, str]]:
    """Which package imports which other one."""
    found = {(package(one.importer), package(one.imported)) for one in imports()}
    return {(importer, imported) for importer, imported in found if importer != imported}


def layers() -> list[list[str]]:
    """The layers of the contract in pyproject.toml, the highest first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    contract = next(one for one in settings["contracts"] if one["type"] == "layers")
    return [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]


def cycles() -> list[tuple[str, ...]]:
    """Rings of modules that import one another when they are loaded."""
    graph = defaultdict(set)
    for one in imports(lazy=False):
        # A package and its own modules are one thing to the importer.
        if one.importer != one.imported and not one.importer.startswith(f"{one.imported}."):
            graph[one.importer].add(one.imported)
    rings: list[tuple[str, ...]] = []
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        if module in trail:
            rings.append((*trail[trail.index(module) :], module))
        elif module not in done:
            for imported in graph[module]:
                visit(imported, (*trail, module))
            done.add(module)

    for module in modules():
        visit(module, ())
    return rings


def public_classes() -> dict[str, list[str]]:
    """Modules that define a public class of each name."""
    found = defaultdict(list)
    for module, path in modules().items():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(module)
    return found


def main() -> int:
    """Print the numbers; returns 1 where the map has a ring, a sideways arrow or a name that means two things."""
    level = {name: place for place, layer in enumerate(reversed(layers())) for name in layer}
    between = {(a, b) for a, b in arrows() if not {a, b} & APART}
    sideways = {(a, b) for a, b in between if level[a] <= level[b]}
    names = {name: where for name, where in public_classes().items() if len(where) > 1}
    rings = cycles()
    found = {package(module) for module in modules()}
    lines = [
        f"packages: {len(found - APART)}, and {', '.join(sorted(found & APART))}",
        f"arrows between packages: {len(between)}",
        f"layers: {len(layers()) - 1}, the demo above",
        f"cycles: {len(rings)}",
        *(f"  {' -> '.join(ring)}" for ring in rings),
        f"sideways or upward arrows: {len(sideways)}",
        *(f"  {importer} -> {imported}" for importer, imported in sorted(sideways)),
        f"files: {len(modules())}",
        f"public class names used twice: {len(names)}",
        *(f"  {name}: {', '.join(where)}" for name, where in sorted(names.items())),
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if rings or sideways or names else 0


if __name__ == "__main__":
    sys.exit(main())
