"""The size and the shape of the package, and how far four requests travel through it.

`python -m bench.house` prints the table; `--files`, `--helpers` and `--walks` print what stands behind a figure.

Counted: every text file of the wheel, and `deploy/*.py`. Code of Python is a line that holds a token outside comments,
docstrings and the strings below a constant or an attribute; code of a template, style sheet or script is a line that is
not blank; data (JSON lines, TOML, text, licences) has no code. A file with code has a line of code.

A single-use helper is a function of a module or a method called `_x` whose name stands in one place of the package
beside its definition: as a name, as an attribute, or as the last part of a string (`"ragmon.cli.gold:_lint"`). A name
that several definitions share hides such helpers: those that are named once in their own module are counted apart.

An arrow is an import of one file of the package by another, at the top, in a function or for types alone; it points up
where its package stands below the imported one in the layers of pyproject.toml. Files that import one another in a
circle are a cycle.

`bench.walks` says what a walk is; each is run in a process of its own.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import subprocess
import sys
import tempfile
import tokenize
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
ASKED: Final = {"code": 39_000, "lines": 53_000, "files with code": 120, "single-use helpers": 250}
WALKS: Final = {"call": 27, "otlp": 40, "replay": 28, "gate": 18}
"""The files that each walk of `bench.walks` is asked to enter at most."""
PAGES: Final = {".jinja", ".html", ".css", ".js", ".svg"}
SKIPPED: Final = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


class Size(NamedTuple):
    """How long a file is."""

    lines: int
    code: int


def size(path: Path) -> Size:
    """The lines of a text file, and those that are code."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    if path.suffix != ".py":
        return Size(len(lines), sum(bool(line.strip()) for line in lines) if path.suffix in PAGES else 0)
    held: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in SKIPPED:
            held |= {*range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            held -= {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    return Size(len(lines), len(held))


class Definition(NamedTuple):
    """A function."""

    module: str
    name: str
    line: int
    is_local: bool
    """Whether it is defined in another function."""


class House:
    """A package as its files are.

    Args:
        folder: The folder of the package.

    Attributes:
        files: Its files by their path in the folder, sorted.
        trees: Its modules by their dotted names.
        sources: The file of each module.
        functions: Every definition of a function.
    """

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        found = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        self.files = {str(path.relative_to(folder)): path for path in sorted(found)}
        self.trees: dict[str, ast.Module] = {}
        self.sources: dict[str, str] = {}
        for file, path in self.files.items():
            if path.suffix == ".py":
                module = f"{self.name}/{file}"[:-3].removesuffix("/__init__").replace("/", ".")
                self.sources[module] = file
                self.trees[module] = ast.parse(path.read_text(encoding="utf-8"), file)
        self.functions = [one for module, tree in self.trees.items() for one in definitions(module, tree)]

    def package(self, module: str) -> str:
        """The folder at the top that a module is in; "" for a module beside them."""
        file = module.split(".")
        return file[1] if len(file) > 2 or f"{'/'.join(file[1:])}/__init__.py" in self.files else ""

    def private(self) -> list[Definition]:
        """The private functions of modules and private methods."""
        return [one for one in self.functions if one.name[0] == "_" and one.name[:2] != "__" and not one.is_local]

    def helpers(self) -> tuple[list[Definition], list[Definition]]:
        """The single-use helpers, and those of a shared name that are named once in their own module."""
        named = {module: Counter(names(tree)) for module, tree in self.trees.items()}
        anywhere = sum(named.values(), Counter[str]())
        defined = Counter(one.name for one in self.functions)
        single = [one for one in self.private() if anywhere[one.name] == 1]
        shared = [one for one in self.private() if anywhere[one.name] > 1 < defined[one.name]]
        return single, [one for one in shared if named[one.module][one.name] == 1]

    def arrows(self) -> dict[str, set[str]]:
        """What each module imports of the package."""
        found: dict[str, set[str]] = {module: set() for module in self.trees}
        for module, tree in self.trees.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.Import):
                    imported = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and node.module:
                    inner = [f"{node.module}.{alias.name}" for alias in node.names]
                    imported = [name if name in self.trees else node.module for name in inner]
                else:
                    continue
                found[module] |= {name for name in imported if name in self.trees and name != module}
        return found

    def cycles(self) -> list[list[str]]:
        """The groups of modules in which each imports every other one, over whichever way."""
        arrows = self.arrows()
        reached = {module: reach(arrows, module) for module in arrows}
        groups = {frozenset(other for other in reached[one] if one in reached[other]) for one in arrows}
        return sorted(sorted(group) for group in groups if len(group) > 1)

    def between(self) -> dict[tuple[str, str], list[str]]:
        """The arrows from one package to another, each with the imports it consists of."""
        found = defaultdict(list)
        for module, imported in self.arrows().items():
            for other in sorted(imported):
                packages = self.package(module), self.package(other)
                if all(packages) and packages[0] != packages[1]:
                    found[packages].append(f"{module} -> {other}")
        return dict(sorted(found.items()))


def definitions(module: str, node: ast.AST, *, is_local: bool = False) -> Iterator[Definition]:
    """The functions that are defined in a node."""
    for child in ast.iter_child_nodes(node):
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Definition(module, child.name, child.lineno, is_local)
        yield from definitions(module, child, is_local=is_local or is_function)


def names(tree: ast.Module) -> Iterator[str]:
    """Every name that stands in a module, without those that are defined or imported there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.replace(":", ".").rpartition(".")[2]


def reach(arrows: dict[str, set[str]], start: str) -> set[str]:
    """The modules that a module imports, also over others."""
    found: set[str] = set()
    waiting = [*arrows[start]]
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting += arrows[module]
    return found


def order() -> list[list[str]]:
    """The layers of packages from below, by the contract in pyproject.toml; packages of one layer have no arrow."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    contract = next(contract for contract in settings["contracts"] if contract["type"] == "layers")
    return [[name.strip() for name in layer.split("|")] for layer in reversed(contract["layers"])]


def points_up(importer: str, imported: str) -> bool | None:
    """Whether an arrow points up or aside in the order; None where a package is not in it."""
    level = {name: row for row, packages in enumerate(order()) for name in packages}
    if importer not in level or imported not in level:
        return None
    return level[importer] <= level[imported]


def measured(name: str) -> dict[str, Any]:
    """What a walk finds, in a process and a folder of its own, without settings of this environment."""
    known = {key: value for key, value in os.environ.items() if not key.startswith(("RAGMON_", "OTEL_"))}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**known, "TMPDIR": folder, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "bench.walks", name]
        done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def sizes(house: House) -> None:
    """Print lines and code by the kind of file."""
    kinds = defaultdict(list)
    for file, path in house.files.items():
        suffix = Path(file).suffix
        kinds["Python" if suffix == ".py" else "pages" if suffix in PAGES else "data"].append(size(path))
    kinds["deploy/*.py"] = [size(path) for path in (ROOT / "deploy").glob("*.py")]
    kinds["in all"] = [one for found in [*kinds.values()] for one in found]
    print(f"{'':<20}{'files':>8}{'with code':>12}{'lines':>10}{'code':>10}")
    for kind, found in kinds.items():
        lines, code = (sum(one) for one in zip(*found, strict=True))
        print(f"{kind:<20}{len(found):>8,}{sum(one.code > 0 for one in found):>12,}{lines:>10,}{code:>10,}")
    files, lines, code = (ASKED[name] for name in ("files with code", "lines", "code"))
    print(f"asked: about {files} files of Python with code; in all at most {lines:,} lines, {code:,} of code")


def shape(house: House) -> None:
    """Print functions, packages, arrows and cycles."""
    between, (single, shared) = house.between(), house.helpers()
    packages = {house.package(module) for module in house.trees} - {""}
    unknown = sorted(packages - {name for row in order() for name in row})
    arrows = sum(len(imported) for imported in house.arrows().values())
    print(f"\nfunctions {len(house.functions):,}, {len(house.private()):,} of them private")
    print(f"single-use helpers {len(single):,} (asked: at most {ASKED['single-use helpers']})")
    print(f"  of a shared name, named once in their own module: {len(shared):,} more")
    print(f"packages {len(packages)}, not in the order: {', '.join(unknown) or 'none'}")
    print(f"arrows between files {arrows:,}, between packages {len(between)}")
    up = [f"  {' -> '.join(pair)}: {'; '.join(found)}" for pair, found in between.items() if points_up(*pair)]
    cycles = [f"  {', '.join(cycle)}" for cycle in house.cycles()]
    print(
        "\n".join((f"arrows up {len(up)} (asked: none)", *up, f"cycles of files {len(cycles)} (asked: none)", *cycles))
    )


def walks(*, by_name: bool) -> None:
    """Run and print the walks."""
    print(f"\n{'walk':<8}{'files':>8}{'asked':>8}{'functions':>12}{'calls':>8}{'moves':>8}")
    for name, asked in WALKS.items():
        found = measured(name)
        figures = f"{found['functions']:>12,}{found['calls']:>8,}{found['moves']:>8,}"
        print(f"{name:<8}{len(found['files']):>8}{asked:>8}{figures}", flush=True)
        for file in found["files"] if by_name else ():
            print(f"  {file}")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.house", description="the size and the shape of the package")
    parser.add_argument("--files", action="store_true", help="the files with code, the longest first")
    parser.add_argument("--helpers", action="store_true", help="the single-use helpers by file")
    parser.add_argument("--walks", action="store_true", help="the four walks with the files they enter")
    asked = parser.parse_args()
    house = House(ROOT / "ragmon")
    if asked.files:
        by_code = sorted(((size(path).code, file) for file, path in house.files.items()), reverse=True)
        print("\n".join(f"{code:>6,}  {file}" for code, file in by_code if code))
    if asked.helpers:
        for note, found in zip(("", "  (a shared name)"), house.helpers(), strict=True):
            for one in found:
                print(f"{house.name}/{house.sources[one.module]}:{one.line} {one.name}{note}")
    if asked.walks:
        walks(by_name=True)
    if not (asked.files or asked.helpers or asked.walks):
        sizes(house)
        shape(house)
        walks(by_name=False)


if __name__ == "__main__":
    main()
