"""What ragmon imports is what pyproject.toml declares, and the reverse."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import Distribution, distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]
ASKED_FOR = {"opentelemetry-exporter-otlp"}
"""Declared because users ask for the package by this name; what is imported is a part that it requires."""


def normalised(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def modules_of(distribution: Distribution) -> set[str]:
    """The modules that a distribution installs, dotted."""
    paths = [path for path in distribution.files or () if path.suffix in (".py", ".so")]
    return {".".join((*path.parts[:-1], path.name.partition(".")[0])).removesuffix(".__init__") for path in paths}


def imported_modules() -> set[str]:
    """The modules of others that ragmon imports, lazily or for types alone too: each with what is imported from it."""
    found = set[str]()
    for path in (ROOT / "ragmon").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
    standard = {*sys.stdlib_module_names, "ragmon", "_typeshed"}
    return {name for name in found if name.partition(".")[0] not in standard}


def declared() -> set[str]:
    """The distributions that pyproject.toml names for users: the dependencies, and all extras but `dev`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [names for extra, names in project["optional-dependencies"].items() if extra != "dev"]
    requirements = [*project["dependencies"], *(name for names in extras for name in names)]
    return {normalised(re.match(r"[\w.-]+", requirement)[0]) for requirement in requirements}


def test_what_is_imported_is_declared_and_the_reverse():
    """A package that another one happens to bring may go with its next version; one that nothing needs is a burden."""
    owners: dict[str, str] = {}
    for distribution in distributions():
        owners |= dict.fromkeys(modules_of(distribution), normalised(distribution.name))
    imported = dict[str, str]()
    for name in sorted(imported_modules()):
        parts = name.split(".")
        prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
        imported[name] = next((owners[prefix] for prefix in prefixes if prefix in owners), f"nobody's {name}")
    undeclared = {name: owner for name, owner in imported.items() if owner not in declared()}
    assert undeclared == {}
    assert declared() - set(imported.values()) == ASKED_FOR
