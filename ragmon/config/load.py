"""Where configuration enters: `load` for programs, `check` for people."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ragmon.config import environment
from ragmon.config.files import Tree, gather
from ragmon.config.problems import Place, Problem, Problems
from ragmon.config.resolve import resolve
from ragmon.config.settings import Settings

FILE: Final = "ragmon.toml"
"""What is read when nobody names a file, if it is there."""


def load(path: str | Path | None = None, *, environ: Mapping[str, str] | None = None, plugins: bool = True) -> Settings:
    """The settings of a configuration file under an environment.

    Args:
        path: The file; None takes the one `RAGMON_CONFIG` names, else `ragmon.toml` here, else the defaults.
        environ: The environment; None takes the process's own.
        plugins: Import the modules under `plugins`. Capture does without: it judges no gates, and the application
            need not have them installed.

    Raises:
        ConfigError: The first thing that is wrong, with file, line and hint, and how many more there are.
    """
    environ = os.environ if environ is None else environ
    settings, problems = _resolve(find(path, environ), environ, plugins=plugins)
    if problems:
        raise problems[0].error(len(problems))
    return settings


def defaults() -> Settings:
    """The built-in defaults alone: no file and no environment."""
    return resolve(Tree(), environment.process({})[0], Problems(Place(FILE, label=FILE), {}), path=None, plugins=False)


def check(path: str | Path | None = None, *, environ: Mapping[str, str] | None = None) -> list[Problem]:
    """Everything that is wrong with a configuration file, in the order of its lines.

    Args:
        path: As for `load`.
        environ: As for `load`.

    Raises:
        ConfigError: The file cannot be read as text.
    """
    environ = os.environ if environ is None else environ
    return _resolve(find(path, environ), environ, plugins=True)[1]


def find(path: str | Path | None, environ: Mapping[str, str]) -> Path | None:
    """The file that holds: the argument, else the environment's, else the one here; None for the defaults."""
    if path is not None:
        return Path(path)
    named = environ.get(environment.CONFIG, "").strip()
    if named:
        return Path(named)
    here = Path(FILE)
    return here if here.is_file() else None


def _resolve(path: Path | None, environ: Mapping[str, str], *, plugins: bool) -> tuple[Settings, list[Problem]]:
    early: list[Problem] = []
    root, tree = (Place(FILE, label=FILE), Tree()) if path is None else gather(path, early.append)
    tree = environment.overlay(tree, environ)
    process, wrong = environment.process(environ)
    problems = Problems(root, tree.places)
    for problem in (*early, *wrong):
        problems.note(problem)
    settings = resolve(tree, process, problems, path=path, plugins=plugins)
    return settings, problems.listed
