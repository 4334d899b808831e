"""What the environment says: it wins over ragmon.toml and loses against arguments."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from ragmon.config.files import Tree
from ragmon.config.locate import KeyPath
from ragmon.config.problems import Place, Problem
from ragmon.core.constants import DISABLED, ON

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
            places[path] = Place(f"environment {variable}", None, f"environment {variable}", Path.cwd())
    return Tree(data, places)


def _forget(data: dict[str, Any], places: dict[KeyPath, Place], path: KeyPath) -> None:
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
