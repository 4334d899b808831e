"""Reads ragmon.toml, the files it extends and the environment into one tree, with the place of every key.

The environment overrides ragmon.toml; arguments override the environment.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from ragmon.config.otel import header_pairs
from ragmon.config.problems import KeyPath, Problem, SourceLocation, dotted, locate, repeat, syntax_problem
from ragmon.config.tables import is_merged
from ragmon.config.types import is_name
from ragmon.core.constants import DISABLED, ON, STRICT
from ragmon.core.errors import ConfigError, nearest

MAX_BYTES: Final = 2**20
_POSITION: Final = re.compile(r" \((?:at line (\d+), column (\d+)|at end of document)\)$")
_SYNTAX_HINTS: Final = {
    "Invalid value": 'text and durations stand in quotes: window = "5m"',
    "Expected '=' after a key": 'a line is key = value, a table is [name]; "recall@5" is quoted',
    "Invalid statement": "a line is key = value, [table] or a comment",
    "Unclosed array": "a list ends with ]",
}


@dataclass
class Tree:
    """Tables, and the place where each key was written."""

    data: dict[str, Any] = field(default_factory=dict)
    places: dict[KeyPath, SourceLocation] = field(default_factory=dict)


class TomlSyntaxError(Exception):
    """A file whose text is not TOML."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def read_text(path: Path) -> str:
    """The text of a configuration file.

    Raises:
        ConfigError: It does not exist, is no file, too large, not readable or not UTF-8.
    """
    path_text = str(path)
    try:
        with path.open("rb") as handle:
            raw = handle.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(
            "there is no such file", path=path_text, hint="name it with --config or RAGMON_CONFIG"
        ) from None
    except IsADirectoryError:
        raise ConfigError("is a directory", path=path_text, hint="name the file in it, such as ragmon.toml") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot be read: {reason}", path=path_text, hint="make it a readable file") from None
    if len(raw) > MAX_BYTES:
        raise ConfigError("is larger than 1 MiB", path=path_text, hint="this is not a configuration; name another file")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        bad = raw[error.start : error.end]
        raise ConfigError("is not UTF-8", path=path_text, line=line, value=bad, hint="save the file as UTF-8") from None


def parse(text: str, place: SourceLocation) -> Tree:
    """The tables of one file.

    Args:
        text: The content of the file.
        place: The file.

    Raises:
        Broken: The text is not TOML 1.0.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TomlSyntaxError(_syntax(str(error), text, place)) from None
    except RecursionError:
        problem = Problem(place.path, None, "", "is nested too deeply", None, "nothing in ragmon.toml nests that deep")
        raise TomlSyntaxError(problem) from None
    places = {path: SourceLocation(place.path, line, place.label, place.folder) for path, line in locate(text).items()}
    return Tree(data, places)


def _syntax(message: str, text: str, place: SourceLocation) -> Problem:
    duplicate = repeat(text)
    if duplicate is not None:
        key = dotted(duplicate.path)
        wrong = f"{key} is set twice, first on line {duplicate.first}"
        return Problem(place.path, duplicate.line, key, wrong, None, "keep one of the two")
    position = _POSITION.search(message)
    line = int(position[1]) if position and position[1] else len(text.splitlines()) or 1
    column = f" (column {position[2]})" if position and position[2] else ""
    reason = _POSITION.sub("", message)
    hint = next((hint for start, hint in _SYNTAX_HINTS.items() if reason.startswith(start)), "ragmon.toml is TOML 1.0")
    line_place = SourceLocation(place.path, line)
    return syntax_problem(line_place, f"not TOML: {reason[:1].lower()}{reason[1:]}{column}", text, hint)


def chain(path: Path) -> list[Path]:
    """The paths of a file and of all files it extends, as far as they can be read."""
    paths: list[Path] = []
    while path not in paths:
        paths.append(path)
        try:
            extend = tomllib.loads(read_text(path)).get("extend")
        except (ConfigError, ValueError):
            break
        if isinstance(extend, str) and extend:
            path = path.parent / Path(extend).expanduser()
    return paths


def gather(path: Path, report: Callable[[Problem], None]) -> tuple[SourceLocation, Tree]:
    """Read a file and all files it extends, and merge them; the extending file takes precedence.

    Args:
        path: The main file.
        report: Called with each problem of an extended file, and if a text is not TOML.

    Returns:
        The main file, and the merged tree.

    Raises:
        ConfigError: The main file cannot be read.
    """
    root = SourceLocation(str(path), None, path.name, path.parent)
    tree = _read_extended(path, root, (_resolved_path(path),), report)
    return root, tree


def _read_extended(
    path: Path, place: SourceLocation, chain: tuple[Path, ...], report: Callable[[Problem], None]
) -> Tree:
    """One file merged over what it extends; `chain` holds the files from the main one to this one."""
    text = read_text(path)
    try:
        tree = parse(text, place)
    except TomlSyntaxError as broken:
        report(broken.problem)
        return Tree()
    extend = tree.data.get("extend")
    if not isinstance(extend, str) or not extend:
        return tree
    base_path = path.parent / Path(extend).expanduser()
    extend_place = tree.places[("extend",)]
    base_real = _resolved_path(base_path)
    if base_real in chain:
        cycle = " -> ".join(file.name for file in (*chain, base_real))
        report(_extend_problem(extend_place, f"extend goes in a circle: {cycle}", "drop one extend"))
        return tree
    label = os.path.relpath(base_real, chain[0].parent)
    try:
        base_tree = _read_extended(
            base_path, SourceLocation(str(base_path), None, label, base_path.parent), (*chain, base_real), report
        )
    except ConfigError as error:
        hint = f"the path is relative to {extend_place.path}; {error.hint}"
        report(_extend_problem(extend_place, f"extend names a file nobody can use: {error}", hint))
        return tree
    return Tree(merge(base_tree.data, tree.data), {**base_tree.places, **tree.places})


def _extend_problem(place: SourceLocation, message: str, hint: str) -> Problem:
    """What is wrong with an `extend`."""
    return Problem(place.path, place.line, "extend", message, None, hint)


def _resolved_path(path: Path) -> Path:
    """The resolved path of a file; the absolute path if it cannot be resolved: reading it then reports the problem."""
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
    """Merge two trees of tables; `top` takes precedence.

    Args:
        base: The tree that is extended.
        top: The tree that extends it.
        merged: Whether tables at a key are merged; otherwise the one of `top` replaces the one of `base`.
        at: The key of both trees in the document.
    """
    result = dict(base)
    for key, value in top.items():
        base_value, path = result.get(key), (*at, key)
        if isinstance(base_value, dict) and isinstance(value, dict) and merged(path):
            result[key] = merge(base_value, value, merged=merged, at=path)
        else:
            result[key] = value
    return result


CONFIG: Final = "RAGMON_CONFIG"
BUILD: Final = "RAGMON_BUILD"
RESOURCE: Final = "OTEL_RESOURCE_ATTRIBUTES"
SERVICE: Final = "OTEL_SERVICE_NAME"
SDK_DISABLED: Final = "OTEL_SDK_DISABLED"
OVERRIDES: Final[dict[str, tuple[str, str]]] = {
    "RAGMON_SAMPLE": ("sampling", "rate"),
    "RAGMON_CONTENT": ("capture", "content"),
    "RAGMON_HASH_KEY_FILE": ("capture", "hash_key_file"),
    "RAGMON_ENDPOINT": ("export", "endpoint"),
    "RAGMON_EXPORT_HEADERS": ("export", "headers"),
    "RAGMON_EXPORT_CERTIFICATE": ("export", "certificate"),
    "RAGMON_EXPORT_CLIENT_CERTIFICATE": ("export", "client_certificate"),
    "RAGMON_EXPORT_COMPRESSION": ("export", "compression"),
    "RAGMON_EXPORT_TIMEOUT": ("export", "timeout"),
    "RAGMON_TOKEN_FILE": ("serve", "token_file"),
    "RAGMON_STATE_DIR": ("serve", "state_dir"),
}
"""Variables that override a key of ragmon.toml."""
VARIABLES: Final = (CONFIG, BUILD, DISABLED, STRICT, *OVERRIDES)
"""Every variable of ragmon's own."""
_LETTERS: Final = 2
"""By how many letters a mistyped name differs at most."""
_FALSE_VALUES: Final = ("", "0", "false", "no", "off")


@dataclass(frozen=True)
class Process:
    """Settings of the running process, from the environment.

    Attributes:
        build: The application's build; "" if it is not set.
        service: Its service name; "" if it is not set.
        disabled: Whether capture is switched off.
        origins: The origin of each of these three.
    """

    build: str
    service: str
    disabled: bool
    origins: Mapping[str, str]

    @property
    def pipeline(self) -> str | None:
        """What `OTEL_SERVICE_NAME` says, where that can be the name of a pipeline."""
        is_own = self.origins["service"] == f"environment {SERVICE}"
        return self.service if is_own and is_name(self.service) else None


def overlay(tree: Tree, environ: Mapping[str, str]) -> Tree:
    """The tree with the overrides of the environment, which apply to every pipeline."""
    data, places = deepcopy(tree.data), dict(tree.places)
    for variable, path in OVERRIDES.items():
        value = environ.get(variable, "").strip()
        if not value:
            continue
        # Only one exporter is allowed: an endpoint from the environment replaces a trace log of the file.
        for removed in (path, ("export", "jsonl")) if path == ("export", "endpoint") else (path,):
            _remove(data, places, removed)
        data.setdefault(path[0], {})
        if isinstance(data[path[0]], dict):
            read = {("sampling", "rate"): _number, ("export", "headers"): header_pairs}.get(path, str)
            data[path[0]][path[1]] = read(value)
            places[path] = SourceLocation(f"environment {variable}", None, f"environment {variable}", Path.cwd())
    return Tree(data, places)


def _remove(data: dict[str, Any], places: dict[KeyPath, SourceLocation], path: KeyPath) -> None:
    """Remove a key, at the top level and in every pipeline."""
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
    """The build, the service name and the off switch, and their problems."""
    attributes = resource_attributes(environ.get(RESOURCE, ""))
    origins = {"build": "default", "service": "default", "disabled": "default"}
    values = {"build": "", "service": ""}
    for key, variable, attribute in (("build", BUILD, "service.version"), ("service", SERVICE, "service.name")):
        explicit = environ.get(variable, "").strip()
        values[key] = explicit or attributes.get(attribute, "")
        if values[key]:
            origins[key] = f"environment {variable if explicit else RESOURCE}"
    switch = environ.get(DISABLED, "").strip()
    problems = []
    if switch.lower() not in (*ON, *_FALSE_VALUES):
        source = f"environment {DISABLED}"
        problems.append(
            Problem(source, None, "disabled", f"{DISABLED} must be 1 or 0", switch, "1 switches ragmon off")
        )
    # OpenTelemetry knows no other word for it.
    is_disabled = switch.lower() in ON if switch else environ.get(SDK_DISABLED, "").strip().lower() == "true"
    if switch or is_disabled:
        origins["disabled"] = f"environment {DISABLED if switch else SDK_DISABLED}"
    return Process(values["build"], values["service"], is_disabled, origins), problems


def mistyped(environ: Mapping[str, str]) -> Iterator[Problem]:
    """A warning of each variable whose name is nearly one of `VARIABLES`; Kubernetes sets RAGMON_PORT and others."""
    for name in sorted(environ):
        if name.startswith("RAGMON_") and name not in VARIABLES:
            near = [known for known in VARIABLES if _differing(name, known) <= _LETTERS]
            if near:
                source, hint = f"environment {name}", nearest(name, near)
                yield Problem(source, None, name, f"{name} is not read", None, hint, warning=True)


def _differing(one: str, other: str) -> int:
    """How many letters of a name are replaced, left out or added in another one."""
    steps = SequenceMatcher(None, one, other, autojunk=False).get_opcodes()
    return sum(max(i2 - i1, j2 - j1) for step, i1, i2, j1, j2 in steps if step != "equal")


def resource_attributes(text: str) -> dict[str, str]:
    """Parse OpenTelemetry's resource attributes: key=value, separated by commas, percent-encoded."""
    pairs = (entry.partition("=") for entry in text.split(","))
    return {unquote(key.strip()): unquote(value.strip()) for key, _, value in pairs}
