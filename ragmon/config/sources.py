"""Reading ragmon.toml and what it extends into one tree that knows where everything stood.

What the environment says: it wins over ragmon.toml and loses against arguments.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from ragmon.config.positions import KeyPath, dotted, locate, repeat
from ragmon.config.problems import Problem, SourceLocation, syntax_problem
from ragmon.config.tables import is_merged
from ragmon.core.constants import DISABLED, ON
from ragmon.core.errors import ConfigError

MAX_BYTES: Final = 2**20
_AT: Final = re.compile(r" \((?:at line (\d+), column (\d+)|at end of document)\)$")
_SYNTAX_HINTS: Final = {
    "Invalid value": 'text and durations stand in quotes: window = "5m"',
    "Expected '=' after a key": 'a line is key = value, a table is [name]; "recall@5" is quoted',
    "Invalid statement": "a line is key = value, [table] or a comment",
    "Unclosed array": "a list ends with ]",
}


@dataclass
class Tree:
    """Tables, and where each of their keys was written."""

    data: dict[str, Any] = field(default_factory=dict)
    places: dict[KeyPath, SourceLocation] = field(default_factory=dict)


class Broken(Exception):  # noqa: N818 - carries a Problem, which is the error
    """A file whose text is not TOML."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def read_text(path: Path) -> str:
    """The text of a configuration file.

    Raises:
        ConfigError: It is not there, no file, too large, not readable or not UTF-8.
    """
    shown = str(path)
    try:
        with path.open("rb") as handle:
            raw = handle.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError("there is no such file", path=shown, hint="name it with --config or RAGMON_CONFIG") from None
    except IsADirectoryError:
        raise ConfigError("is a directory", path=shown, hint="name the file in it, such as ragmon.toml") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot be read: {reason}", path=shown, hint="make it a readable file") from None
    if len(raw) > MAX_BYTES:
        raise ConfigError("is larger than 1 MiB", path=shown, hint="this is not a configuration; name another file")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        bad = raw[error.start : error.end]
        raise ConfigError("is not UTF-8", path=shown, line=line, value=bad, hint="save the file as UTF-8") from None


def parse(text: str, place: SourceLocation) -> Tree:
    """The tables of one file.

    Args:
        text: Its content.
        place: The file.

    Raises:
        Broken: The text is not TOML 1.0.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Broken(_syntax(str(error), text, place)) from None
    except RecursionError:
        problem = Problem(place.path, None, "", "is nested too deeply", None, "nothing in ragmon.toml nests that deep")
        raise Broken(problem) from None
    places = {path: SourceLocation(place.path, line, place.label, place.folder) for path, line in locate(text).items()}
    return Tree(data, places)


def _syntax(message: str, text: str, place: SourceLocation) -> Problem:
    again = repeat(text)
    if again is not None:
        key = dotted(again.path)
        wrong = f"{key} is set twice, first on line {again.first}"
        return Problem(place.path, again.line, key, wrong, None, "keep one of the two")
    at = _AT.search(message)
    line = int(at[1]) if at and at[1] else len(text.splitlines()) or 1
    column = f" (column {at[2]})" if at and at[2] else ""
    what = _AT.sub("", message)
    hint = next((hint for start, hint in _SYNTAX_HINTS.items() if what.startswith(start)), "ragmon.toml is TOML 1.0")
    where = SourceLocation(place.path, line)
    return syntax_problem(where, f"not TOML: {what[:1].lower()}{what[1:]}{column}", text, hint)


def chain(path: Path) -> list[Path]:
    """A file and those it extends, as far as they can be read."""
    found: list[Path] = []
    while path not in found:
        found.append(path)
        try:
            extend = tomllib.loads(read_text(path)).get("extend")
        except (ConfigError, ValueError):
            break
        if isinstance(extend, str) and extend:
            path = path.parent / Path(extend).expanduser()
    return found


def gather(path: Path, report: Callable[[Problem], None]) -> tuple[SourceLocation, Tree]:
    """A file and everything it extends, merged: the extending file wins.

    Args:
        path: The main file.
        report: Is told of problems with extended files and of text that is not TOML.

    Returns:
        The main file, and the merged tree.

    Raises:
        ConfigError: The main file cannot be read.
    """
    root = SourceLocation(str(path), None, path.name, path.parent)
    tree = _follow(path, root, (_real(path),), report)
    return root, tree


def _follow(path: Path, place: SourceLocation, chain: tuple[Path, ...], report: Callable[[Problem], None]) -> Tree:
    """One file on top of what it extends; `chain` holds the files on the way here, the main one first."""
    text = read_text(path)
    try:
        tree = parse(text, place)
    except Broken as broken:
        report(broken.problem)
        return Tree()
    extend = tree.data.get("extend")
    if not isinstance(extend, str) or not extend:
        return tree
    base = path.parent / Path(extend).expanduser()
    here = tree.places[("extend",)]
    real = _real(base)
    if real in chain:
        circle = " -> ".join(file.name for file in (*chain, real))
        report(Problem(here.path, here.line, "extend", f"extend goes in a circle: {circle}", None, "drop one extend"))
        return tree
    label = os.path.relpath(real, chain[0].parent)
    try:
        below = _follow(base, SourceLocation(str(base), None, label, base.parent), (*chain, real), report)
    except ConfigError as error:
        hint = f"the path is relative to {here.path}; {error.hint}"
        report(Problem(here.path, here.line, "extend", f"extend names a file nobody can use: {error}", None, hint))
        return tree
    return Tree(merge(below.data, tree.data), {**below.places, **tree.places})


def _real(path: Path) -> Path:
    """The one name of a file; of one the system refuses, the name it was given: reading it says what is wrong."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        return path.absolute()


def merge(
    base: Mapping[str, Any],
    top: Mapping[str, Any],
    *,
    merged: Callable[[Sequence[str | int]], bool] = is_merged,
    at: KeyPath = (),
) -> dict[str, Any]:
    """Two trees of tables as one; `top` wins.

    Args:
        base: What is extended.
        top: What extends it.
        merged: Whether tables at a key are merged; otherwise the later one replaces the earlier.
        at: The key both trees stand at.
    """
    result = dict(base)
    for key, value in top.items():
        old, here = result.get(key), (*at, key)
        if isinstance(old, dict) and isinstance(value, dict) and merged(here):
            result[key] = merge(old, value, merged=merged, at=here)
        else:
            result[key] = value
    return result


CONFIG: Final = "RAGMON_CONFIG"
BUILD: Final = "RAGMON_BUILD"
RESOURCE: Final = "OTEL_RESOURCE_ATTRIBUTES"
SERVICE: Final = "OTEL_SERVICE_NAME"
OVERRIDES: Final[dict[str, tuple[str, str]]] = {
    "RAGMON_SAMPLE": ("sampling", "rate"),
    "RAGMON_CONTENT": ("capture", "content"),
    "RAGMON_HASH_KEY_FILE": ("capture", "hash_key_file"),
    "RAGMON_ENDPOINT": ("export", "endpoint"),
    "RAGMON_TOKEN_FILE": ("serve", "token_file"),
    "RAGMON_STATE_DIR": ("serve", "state_dir"),
}
"""Variables that stand for a key of ragmon.toml."""
_OFF: Final = ("", "0", "false", "no", "off")


@dataclass(frozen=True)
class Process:
    """What is said about the running process.

    Attributes:
        build: The application's build; "" where nobody says.
        service: Its service name; "" where nobody says.
        disabled: Nothing is captured.
        origins: Where these three come from.
    """

    build: str
    service: str
    disabled: bool
    origins: Mapping[str, str]


def overlay(tree: Tree, environ: Mapping[str, str]) -> Tree:
    """The tree with the environment on top: a variable holds for every pipeline."""
    data, places = deepcopy(tree.data), dict(tree.places)
    for variable, path in OVERRIDES.items():
        value = environ.get(variable, "").strip()
        if not value:
            continue
        # One sink only: an endpoint from the environment takes the place of a file.
        for gone in (path, ("export", "jsonl")) if path == ("export", "endpoint") else (path,):
            _forget(data, places, gone)
        data.setdefault(path[0], {})
        if isinstance(data[path[0]], dict):
            data[path[0]][path[1]] = _number(value) if path == ("sampling", "rate") else value
            places[path] = SourceLocation(f"environment {variable}", None, f"environment {variable}", Path.cwd())
    return Tree(data, places)


def _forget(data: dict[str, Any], places: dict[KeyPath, SourceLocation], path: KeyPath) -> None:
    """Take a key out, at the top and in every pipeline."""
    pipelines = data.get("pipelines")
    scopes: list[KeyPath] = [(), *(("pipelines", name) for name in (pipelines if isinstance(pipelines, dict) else ()))]
    for scope in scopes:
        table: Any = data
        for key in (*scope, path[0]):
            table = table.get(key) if isinstance(table, dict) else None
        if isinstance(table, dict):
            table.pop(path[1], None)
        places.pop((*scope, *path), None)


def _number(value: str) -> float | str:
    try:
        return float(value)
    except ValueError:
        return value


def process(environ: Mapping[str, str]) -> tuple[Process, list[Problem]]:
    """Build, service name and the switch, and what is wrong with them."""
    attributes = _attributes(environ.get(RESOURCE, ""))
    origins = {"build": "default", "service": "default", "disabled": "default"}
    values = {"build": "", "service": ""}
    for key, variable, attribute in (("build", BUILD, "service.version"), ("service", SERVICE, "service.name")):
        own = environ.get(variable, "").strip()
        values[key] = own or attributes.get(attribute, "")
        if values[key]:
            origins[key] = f"environment {variable if own else RESOURCE}"
    switch = environ.get(DISABLED, "").strip()
    problems = []
    if switch.lower() not in (*ON, *_OFF):
        where = f"environment {DISABLED}"
        problems.append(Problem(where, None, "disabled", f"{DISABLED} must be 1 or 0", switch, "1 switches ragmon off"))
    if switch:
        origins["disabled"] = f"environment {DISABLED}"
    return Process(values["build"], values["service"], switch.lower() in ON, origins), problems


def _attributes(text: str) -> dict[str, str]:
    """OpenTelemetry's list of resource attributes: key=value, separated by commas, percent-encoded."""
    pairs = (entry.partition("=") for entry in text.split(","))
    return {unquote(key.strip()): unquote(value.strip()) for key, _, value in pairs}
