"""The values of a configuration for people to read: secrets are masked, and the origin of each value is named.

Reads ragmon.toml, the files it extends and the environment into one tree, with the place of every key.

The environment overrides ragmon.toml; arguments override the environment.

The effective tables at the top level and in each pipeline, and checks that the names they refer to exist.

Paths are joined to the folder of their file, and the origin of every value is kept.

Loads the configuration: `load` returns settings, `check` lists every problem.

Plugins that register metrics are imported first: the modules that ragmon.toml names, and installed distributions with
an entry point.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, TypeVar, get_args
from urllib.parse import unquote

from ragmon.config.gates import GateContext, is_published, resolve_gates
from ragmon.config.problems import (
    KeyPath,
    Problem,
    Problems,
    SourceLocation,
    dotted,
    locate,
    repeat,
    syntax_problem,
    validate,
)
from ragmon.config.services import OTEL, SIGNALS, JudgeKind, ProbeTable, WrongVariable, header_pairs, otel_receiver
from ragmon.config.settings import (
    ConfigDocument,
    GoldSpec,
    GoldTable,
    MetricsTable,
    PipelineSettings,
    ProbeSpec,
    ScopedTable,
    Settings,
    default_source,
    flatten,
    is_merged,
)
from ragmon.config.units import NAME_HINT, Bytes, Seconds, Table, duration, is_name, is_secret
from ragmon.core import constants
from ragmon.core.constants import DISABLED, ON, STRICT
from ragmon.core.errors import ConfigError, nearest
from ragmon.core.http_client import Address
from ragmon.core.policy import Gate

MASK: Final = "***"
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def masked_values(settings: Settings) -> list[tuple[str, object, str]]:
    """Every value of a configuration.

    Args:
        settings: The configuration.

    Returns:
        `(dotted key, value as in ragmon.toml, origin)`; the value is None if it is not set. A gate that names no source
        has its default one.

    >>> from ragmon.config.load import defaults
    >>> next(row for row in masked_values(defaults()) if row[0] == "capture.content")
    ('capture.content', 'none', 'default')
    """
    return [(key, _masked(key, value), settings.origins[key]) for key, value in settings.values.items()]


def _masked(key: str, value: object) -> object:
    """The value, masked if it is a secret. The keys of `slices` are tags that users choose; they are never secrets."""
    table, _, option = key.rpartition(".")
    if value is not None and is_secret(option) and not table.endswith("slices"):
        return MASK
    if key.endswith("export.headers") and isinstance(value, Mapping):  # any of them may be a token
        return dict.fromkeys(value, MASK)
    if option == "target" and isinstance(value, str) and "?" in value:
        value = f"{value.partition('?')[0]}?{MASK}"
    return plain(value, masked=option in ("headers", "tls", "kafka"))


def plain(value: object, *, masked: bool = False) -> object:
    """The value as plain data; durations and sizes as text with their unit.

    Args:
        value: The value of a key.
        masked: Whether entries of a table that may be secrets are masked.
    """
    if isinstance(value, Seconds | Bytes | Address | Path):
        return str(value)
    if isinstance(value, str):
        return _CREDENTIALS.sub(MASK, value)
    if isinstance(value, tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, Mapping | Table):
        items = value.items() if isinstance(value, Mapping) else iter(value)
        return {key: MASK if masked and is_secret(key) else plain(entry) for key, entry in items if entry is not None}
    return value


def toml_text(value: object) -> str:
    """The value in the syntax of ragmon.toml."""
    if value is None:
        return "(not set)"
    if isinstance(value, dict):
        entries = ", ".join(f"{dotted((str(key),))} = {toml_text(entry)}" for key, entry in value.items())
        return f"{{ {entries} }}" if entries else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml_text, value))}]"
    return json.dumps(value, ensure_ascii=False)


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


def process_settings(environ: Mapping[str, str]) -> tuple[Process, list[Problem]]:
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


M = TypeVar("M", bound=Table)
S = TypeVar("S", bound=ScopedTable)
DEFAULT: Final = "default"
"""The origin of a value that is not written anywhere."""
DEFAULT_PRESET: Final = "default"
_PRESET: Final = ("gates", "preset")
_MATCHER_COUNTS: Final = ("refusal", "matcher_counts")
_NOT_INHERITED: Final = ("gold", "probe")
"""Tables that a pipeline does not inherit from the top level."""

Row = tuple[str, object, str]
"""A dotted key, its value, and the origin of the value."""


Views = Mapping[str | None, ScopedTable]
"""The effective tables of every pipeline by name; those of the top level under None."""


@dataclass(frozen=True)
class DeclaredNames:
    """The declared names, to which other tables may refer.

    Attributes:
        pipelines: The configured pipelines; none where the configuration names none.
        default: The pipeline of calls that name none.
        gold: All gold sets in the file, including those with problems.
    """

    pipelines: tuple[str, ...]
    default: str
    gold: frozenset[str]


def scope_of(pipeline: str | None) -> KeyPath:
    """The key of a pipeline's own tables; `()` for the top level."""
    return () if pipeline is None else ("pipelines", pipeline)


def effective_tables(
    data: Mapping[str, Any], problems: Problems, service: str | None = None
) -> tuple[ConfigDocument, Views, DeclaredNames]:
    """The document, the effective tables of every scope, and the names they declare.

    A pipeline's tables are merged over the top level. `[pipeline] name` and `[pipelines.NAME]` declare pipelines.
    Without either, none is declared: the top level of the file holds for every pipeline that sends records, and the
    default one has the name of the service.
    """
    top = {key: value for key, value in data.items() if key != "pipelines"}
    document = _completed(validate(ConfigDocument, top, problems), None, problems)
    if document.gates.preset is None and not document.gates.own:
        usual = document.gates.model_copy(update={"preset": DEFAULT_PRESET})
        document = document.model_copy(update={"gates": usual})
    views: dict[str | None, ScopedTable] = {None: document}
    base = {key: value for key, value in top.items() if key in ScopedTable.model_fields and key not in _NOT_INHERITED}
    scopes = dict(_pipelines(data, problems))
    for name, own in scopes.items():
        merged = merge(base, own, merged=_is_merged_inside)
        views[name] = _completed(validate(ScopedTable, merged, problems, scope_of(name)), name, problems)
    golds = (own.get("gold") for own in (top, *scopes.values()))
    gold = frozenset(name for table in golds if isinstance(table, dict) for name in table)
    default, pipelines = document.pipeline.name, tuple(scopes)
    if problems.written(("pipeline", "name")) is None:
        default = pipelines[0] if len(pipelines) == 1 else default if pipelines else service or default
        return document, views, DeclaredNames(pipelines, default, gold)
    return document, views, DeclaredNames(tuple(dict.fromkeys((default, *pipelines))), default, gold)


def _completed(tables: S, pipeline: str | None, problems: Problems) -> S:
    """The tables of a scope with paths joined to the folder of their file, and what the preset says of refusals.

    Under a published preset a refusal in other words does not count, unless the file says that it does.
    """
    scope = scope_of(pipeline)
    tables = _with_joined_paths(tables, (), problems, scope)
    if not is_published(tables.gates.preset) or problems.written(_MATCHER_COUNTS, scope):
        return tables
    return tables.model_copy(update={"refusal": tables.refusal.model_copy(update={"matcher_counts": False})})


def _pipelines(data: Mapping[str, Any], problems: Problems) -> Iterator[tuple[str, Mapping[str, Any]]]:
    pipelines = data.get("pipelines", {})
    if not isinstance(pipelines, dict):
        problems.report(("pipelines",), "must be a table", value=pipelines, hint="[pipelines.support]")
        return
    for name, own in pipelines.items():
        path = ("pipelines", name)
        if not is_name(name):
            problems.report(path, "is not usable as a name", hint=NAME_HINT)
        elif isinstance(own, dict):
            yield name, own
        else:
            problems.report(path, "must be a table", value=own, hint=f"[{dotted(path)}]; for one pipeline: [pipeline]")


def _is_merged_inside(path: Sequence[str | int]) -> bool:
    """Whether a table is merged key by key; a pipeline's gate replaces the top-level gate of the same name."""
    return is_merged(path) and not (len(path) > 1 and path[0] == "gates")


def _with_joined_paths(table: M, path: KeyPath, problems: Problems, scope: KeyPath) -> M:
    """The table, with every relative path joined to the folder of the file it was written in."""
    joined_values = {}
    for key, value in table:
        joined = _join(value, (*path, key), problems, scope)
        if joined is not value:
            joined_values[key] = joined
    return table.model_copy(update=joined_values) if joined_values else table


def _join(value: object, path: KeyPath, problems: Problems, scope: KeyPath) -> object:
    if isinstance(value, Path):
        return (problems.written(path, scope) or problems.root).folder / value
    if isinstance(value, tuple) and value and isinstance(value[0], Path):
        return tuple(_join(entry, path, problems, scope) for entry in value)
    if isinstance(value, dict) and any(isinstance(entry, Table) for entry in value.values()):
        return {key: _join(entry, (*path, key), problems, scope) for key, entry in value.items()}
    return _with_joined_paths(value, path, problems, scope) if isinstance(value, Table) else value


def origins(tables: ScopedTable, scope: KeyPath, problems: Problems) -> Iterator[Row]:
    """The rows of a scope except gates: at the top level all values, in a pipeline the values written inside it.

    Where `refusal.matcher_counts` is not written, the preset of the gates decides it and is its origin.
    """
    for path, value in flatten(tables):
        key = _PRESET if path == _MATCHER_COUNTS and problems.written(path, scope) is None else path
        place = problems.written(key, scope)
        if not scope or problems.written((*scope, *key)):
            yield dotted((*scope, *path)), value, DEFAULT if place is None else place.origin


def gold_specs(views: Views, known: DeclaredNames, problems: Problems) -> tuple[GoldSpec, ...]:
    """The gold sets, those of one pipeline first: they take precedence if two sets hold the same question."""
    specs: dict[str, GoldSpec] = {}
    for pipeline, view in views.items():
        for name, table in view.gold.items():
            report = partial(problems.report, scope=scope_of(pipeline))
            if name in specs:
                hint = "gold sets are told apart by their names in every series: choose another"
                report(("gold", name), "is defined twice", hint=hint)
            if name == constants.LABELS:
                hint = "what people say of answers is shown as gold of this name: choose another"
                report(("gold", name), "is taken", hint=hint)
            _check_pipeline(("gold", name, "pipeline"), table, pipeline, known, report)
            found = {"name": name, "pipeline": table.pipeline or pipeline}
            specs[name] = GoldSpec.model_construct(**dict(table) | found)
    return tuple(sorted(specs.values(), key=lambda spec: spec.pipeline is None))


def _check_pipeline(
    path: tuple[str, ...], table: GoldTable, enclosing: str | None, known: DeclaredNames, report: Callable[..., None]
) -> None:
    """Check that the pipeline of a gold set exists, and is the one whose table holds the set."""
    if table.pipeline is None:
        return
    if enclosing is not None and table.pipeline != enclosing:
        hint = f"it stands inside {enclosing} and belongs to it: leave pipeline out"
        report(path, "contradicts its place", value=table.pipeline, hint=hint)
    elif table.pipeline not in known.pipelines:
        hint = f'{nearest(table.pipeline, known.pipelines)}; or declare it: [pipelines."{table.pipeline}"]'
        report(path, "names no pipeline", value=table.pipeline, hint=hint)


def probe_specs(
    views: Views, gold: Mapping[str, GoldSpec], known: DeclaredNames, problems: Problems
) -> tuple[ProbeSpec, ...]:
    """The probes; the pipeline of each is the one whose table holds it, else that of its gold set, else the default.

    Args:
        views: All tables.
        gold: The gold sets by name.
        known: The declared names.
        problems: Problems are reported here.
    """
    specs: dict[str, ProbeSpec] = {}
    for pipeline, view in views.items():
        for name, table in view.probe.items():
            report = partial(problems.report, scope=scope_of(pipeline))
            if name in specs:
                report(("probe", name), "is defined twice", hint="probes are told apart by their names: choose another")
            gold_set = _gold_set_of(name, table, gold, known, report)
            if gold_set is not None:
                probed_pipeline = pipeline or gold_set.pipeline or known.default
                if known.pipelines and probed_pipeline not in known.pipelines:
                    hint = f"write it inside one, [pipelines.NAME.probe.{name}], or give its gold set a pipeline"
                    report(("probe", name), "does not say which pipeline it probes", hint=hint)
                elif gold_set.pipeline not in (None, probed_pipeline):
                    wrong = f"names a gold set that does not judge {probed_pipeline}"
                    report(("probe", name, "gold"), wrong, value=gold_set.name, hint=f"it judges {gold_set.pipeline}")
                found = {"name": name, "pipeline": probed_pipeline, "gold": gold_set.name}
                specs[name] = ProbeSpec.model_construct(**dict(table) | found)
    return tuple(specs.values())


def check_judges(views: Views, problems: Problems) -> None:
    """Check that every judge with a model has a kind."""
    for pipeline, view in views.items():
        for name, table in view.judges.items():
            if table.url is not None and table.asks(name) is None:
                kinds = " or ".join(f'"{kind}"' for kind in get_args(JudgeKind))
                hint = f"kind = {kinds}; a judge called by one of these names need not say it"
                problems.report(
                    ("judges", name), "does not say what the model is asked", scope=scope_of(pipeline), hint=hint
                )


def _gold_set_of(
    name: str, table: ProbeTable, gold: Mapping[str, GoldSpec], known: DeclaredNames, report: Callable[..., None]
) -> GoldSpec | None:
    """The gold set of a probe; None, with a problem reported, if it is not clear."""
    path = ("probe", name, "gold")
    if table.gold is None and len(known.gold) != 1:
        report(path, "is missing", hint=f"a probe asks the questions of a gold set: {nearest('', known.gold)}")
        return None
    gold_name = table.gold or next(iter(known.gold))
    if gold_name not in known.gold:
        report(path, "names no gold set", value=gold_name, hint=nearest(gold_name, known.gold))
        return None
    spec = gold.get(gold_name)
    if spec is not None and constants.PROBE not in spec.use:
        report(path, "is not used for probes", value=gold_name, hint=f'add "probe" to use of [gold.{gold_name}]')
    return spec


GROUP: Final = "ragmon.metrics"
"""The entry-point group of distributions with metrics."""


def import_plugins(modules: Sequence[str], problems: Problems) -> None:
    """Import every plugin; a failure is reported and does not stop the others.

    Args:
        modules: Modules by their dotted names.
        problems: Problems are reported here.
    """
    for index, module in enumerate(modules):
        try:
            importlib.import_module(module)
        except Exception as error:  # noqa: BLE001 - a plugin is third-party code and may raise anything
            hint = f"{type(error).__name__}: {error}; a plugin is installed or stands on PYTHONPATH"
            problems.report(("plugins", index), "cannot be imported", value=module, hint=hint)
    for point in entry_points(group=GROUP):
        try:
            point.load()
        except Exception as error:  # noqa: BLE001 - as above
            hint = f"{type(error).__name__}: {error}; uninstall or repair its distribution"
            problems.report(("plugins",), f"cannot load the installed {point.name}", value=point.value, hint=hint)


def resolve(tree: Tree, process: Process, problems: Problems, *, path: Path | None, plugins: bool) -> Settings:
    """Resolve a tree of tables into settings; problems are reported, and wrong values replaced by their defaults.

    Args:
        tree: The merged tables, including overrides of the environment.
        process: Settings of the process, from the environment.
        problems: Problems are reported here.
        path: The main file.
        plugins: Import the modules with metrics; otherwise gates on unknown metrics are omitted.
    """
    document, views, declared = effective_tables(tree.data, problems, process.pipeline)
    if plugins:
        import_plugins(document.plugins, problems)
    gold = gold_specs(views, declared, problems)
    by_name = {spec.name: spec for spec in gold}
    probes = probe_specs(views, by_name, declared, problems)
    check_judges(views, problems)
    windows = {window: int(duration(window)) for window in document.windows}

    def of_pipeline(name: str, view: str | None) -> PipelineSettings:
        tables, foreign = views[view], bool(document.plugins) and not plugins
        about = GateContext(name, scope_of(view), windows, tables.slices, by_name, declared.gold, foreign)
        gates = resolve_gates(tables.gates, document.gates, about, problems)
        metrics = _metrics(tables, tables.gates.preset or document.gates.preset)
        known = {"name": name, "metrics": metrics, "resolved_gates": tuple(gates.values())}
        known["has_probe"] = any(probe.pipeline == name for probe in probes)
        return PipelineSettings.model_construct(**dict(tables) | known)

    common = of_pipeline(declared.default, None)
    pipelines = {name: of_pipeline(name, name) if name in views else common for name in declared.pipelines}
    unconfigured = _of_any_pipeline(common, gold, is_probed=common.has_probe and not pipelines)
    rows = list(_all_rows(process, views, pipelines, unconfigured, declared.default, problems))
    return Settings(
        path,
        process.build,
        process.service,
        process.disabled,
        windows,
        declared.default,
        pipelines,
        unconfigured,
        gold,
        probes,
        document.serve,
        document.stream,
        document.rules,
        document.export,
        values={key: value for key, value, _ in rows},
        origins={key: origin for key, _, origin in rows},
    )


def _metrics(tables: ScopedTable, preset: str | None) -> MetricsTable:
    """The parameters of metrics; a published preset asks for a list of citations where the file does not say it."""
    if tables.metrics.citations_required is not None:
        return tables.metrics
    return tables.metrics.model_copy(update={"citations_required": is_published(preset)})


def _of_any_pipeline(common: PipelineSettings, gold: Sequence[GoldSpec], *, is_probed: bool) -> PipelineSettings:
    """The settings of the top level without what belongs to one pipeline: gates on its gold, and its probes.

    Args:
        common: The settings of the top level, for the default pipeline.
        gold: The gold sets.
        is_probed: Whether probes go through the pipelines that nothing names.
    """
    of_one_pipeline = {spec.name for spec in gold if spec.pipeline is not None}
    gates = tuple(gate for gate in common.resolved_gates if gate.gold not in of_one_pipeline)
    return common.model_copy(update={"resolved_gates": gates, "has_probe": is_probed})


def _all_rows(
    process: Process,
    views: Views,
    pipelines: Mapping[str, PipelineSettings],
    unconfigured: PipelineSettings,
    default: str,
    problems: Problems,
) -> Iterator[Row]:
    """The rows of all values: key, value and origin. The gates of the top level come first."""
    for key in ("build", "service", "disabled"):
        yield key, getattr(process, key), process.origins[key]
    for key, value, origin in sorted(origins(views[None], (), problems), key=lambda row: "." in row[0]):
        if key != "pipeline.name":
            yield key, value, origin
        elif not pipelines and default == process.pipeline:
            yield key, default, process.origins["service"]
        else:
            yield key, default, origin
    top = next((pipeline for name, pipeline in pipelines.items() if name not in views), unconfigured)
    for gate in top.resolved_gates:
        yield from _gate_rows(gate, top, (), problems)
    for name, pipeline in pipelines.items():
        if name in views:
            yield from origins(views[name], scope_of(name), problems)
            for gate in pipeline.resolved_gates:
                yield from _gate_rows(gate, pipeline, scope_of(name), problems)


def _gate_rows(gate: Gate, pipeline: PipelineSettings, scope: KeyPath, problems: Problems) -> Iterator[Row]:
    """The rows of a gate, including its default source; the origin of a preset's gate is the line of the preset.

    A gate of a pipeline stands in place of the gate of the top level, so none of its keys has its origin there.
    """
    path: KeyPath = ("gates", gate.name)
    table = (*scope, *path) if problems.written((*scope, *path)) else path
    preset = None if problems.written(table) else problems.written(("gates", "preset"), scope)
    for key, value in _gate_values(gate, pipeline):
        place = problems.written((*table, key)) or (preset if key != "source" else None)
        yield dotted((*scope, *path, key)), value, DEFAULT if place is None else place.origin


def _gate_values(gate: Gate, pipeline: PipelineSettings) -> Iterator[tuple[str, object]]:
    yield "metric", gate.metric
    yield gate.direction, gate.threshold
    yield "source", gate.source or default_source(gate, probed=pipeline.has_probe)
    optional = {
        "gold": gate.gold,
        "slice": dict([gate.where.split("=", 1)]) if gate.where else None,
        "window": gate.window,
        "estimand": gate.estimand,
        "min_samples": gate.min_samples,
        "page_below" if gate.at_least else "page_above": gate.page_beyond,
        "severity": gate.severity,
        "kind": gate.kind,
    }
    yield from ((key, value) for key, value in optional.items() if value is not None)


FILE: Final = "ragmon.toml"
"""The file that is read by default, if it exists."""


def load(path: str | Path | None = None, *, environ: Mapping[str, str] | None = None, plugins: bool = True) -> Settings:
    """The settings from a configuration file and the environment.

    Args:
        path: The file; None for the one `RAGMON_CONFIG` names, else `ragmon.toml` in the working directory, else the
            defaults.
        environ: The environment; None for that of the process.
        plugins: Import the modules under `plugins`. Capture does not: it evaluates no gates, and the application need
            not have them installed.

    Raises:
        ConfigError: The first problem, with file, line and hint, and the number of problems.
    """
    settings, problems = examine(path, environ=environ, plugins=plugins)
    if errors := problems.errors:
        raise errors[0].error(len(errors))
    return settings


def defaults() -> Settings:
    """The built-in defaults, without file and environment."""
    return resolve(
        Tree(), process_settings({})[0], Problems(SourceLocation(FILE, label=FILE), {}), path=None, plugins=False
    )


def check(path: str | Path | None = None, *, environ: Mapping[str, str] | None = None) -> list[Problem]:
    """All errors of a configuration file, in the order of its lines.

    Args:
        path: As for `load`.
        environ: As for `load`.

    Raises:
        ConfigError: The file cannot be read as text.
    """
    return examine(path, environ=environ)[1].errors


def find(path: str | Path | None, environ: Mapping[str, str]) -> Path | None:
    """The file to read: the argument, else that of the environment, else ragmon.toml here; None for the defaults."""
    if path is not None:
        return Path(path)
    environ_path = environ.get(CONFIG, "").strip()
    if environ_path:
        return Path(environ_path)
    default_path = Path(FILE)
    return default_path if default_path.is_file() else None


def _of_variable(found: WrongVariable) -> Problem:
    place = f"environment {found.name}"
    return Problem(place, None, found.name, f"{found.name} {found.message}", found.value, found.hint)


def examine(
    path: str | Path | None = None, *, environ: Mapping[str, str] | None = None, plugins: bool = True
) -> tuple[Settings, Problems]:
    """The settings, with defaults in place of wrong values, and the problems found; more may be reported to them.

    Args:
        path: As for `load`.
        environ: As for `load`.
        plugins: As for `load`.

    Raises:
        ConfigError: The file cannot be read as text.
    """
    environ = os.environ if environ is None else environ
    path = find(path, environ)
    file_problems: list[Problem] = []
    root, tree = (SourceLocation(FILE, label=FILE), Tree()) if path is None else gather(path, file_problems.append)
    tree = overlay(tree, environ)
    process, process_problems = process_settings(environ)
    problems = Problems(root, tree.places)
    export = tree.data.get("export")
    if isinstance(export, dict) and export.get("endpoint") == OTEL:
        for signal in SIGNALS:
            otel_receiver(environ, signal, lambda found: file_problems.append(_of_variable(found)))
    for problem in (*file_problems, *process_problems, *mistyped(environ)):
        problems.note(problem)
    settings = resolve(tree, process, problems, path=path, plugins=plugins)
    return settings, problems
