"""Loads ragmon.toml and the environment: `load` returns settings, `check` lists every problem.

A file is merged over the files it extends, the environment over the file, and the tables of a pipeline over those of
the top level. Where each key was written is kept, for problems and for the origin of every value.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, TypeVar, get_args
from urllib.parse import unquote

from ragmon.config.gates import GateContext, is_published, resolve_gates
from ragmon.config.problems import KeyPath, Problem, Problems, SourceLocation, dotted, locate, repeat, validate
from ragmon.config.services import OTEL, SIGNALS, JudgeKind, WrongVariable, header_pairs, otel_receiver
from ragmon.config.settings import (
    ConfigDocument,
    GoldSpec,
    PipelineSettings,
    ProbeSpec,
    ScopedTable,
    Settings,
    flatten,
    is_merged,
    judged_live,
)
from ragmon.config.units import MASK, NAME_HINT, Table, duration, is_name, is_secret, plain
from ragmon.core import constants
from ragmon.core.constants import DISABLED, ON, STRICT
from ragmon.core.errors import ConfigError, nearest, warn_once
from ragmon.core.network import may_hold_password

FILE: Final = "ragmon.toml"
"""The file that is read by default, if it exists."""
MAX_BYTES: Final = 2**20
DEFAULT: Final = "default"
"""The origin of a value that is not written anywhere."""
PLUGINS: Final = "ragmon.metrics"
"""The entry-point group of distributions with metrics."""
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

_MAX_TYPOS: Final = 2
_FALSE_VALUES: Final = ("", "0", "false", "no", "off")
_PRESET: Final = ("gates", "preset")
_MATCHER_COUNTS: Final = ("refusal", "matcher_counts")
_NOT_INHERITED: Final = ("gold", "probe")  # by a pipeline from the top level
_POSITION: Final = re.compile(r" \((?:at line (\d+), column (\d+)|at end of document)\)$")
_BACKSLASH: Final = "put a path in 'single quotes', or write / in place of \\"
_SYNTAX_HINTS: Final = {
    "Invalid value": 'put text and durations in quotes: window = "5m"',
    "Expected '=' after a key": 'a line is key = value, a table is [name]; "recall@5" is quoted',
    "Invalid statement": "a line is key = value, [table] or a comment",
    "Unclosed array": "a list ends with ]",
    "Unescaped '\\'": _BACKSLASH,
    "Invalid hex value": _BACKSLASH,
}

Row = tuple[str, object, str]
"""A dotted key, its value, and the origin of the value."""
Report = Callable[[Problem], None]
S = TypeVar("S", bound=ScopedTable)


def load(path: str | Path | None = None, *, environ: Mapping[str, str] | None = None, plugins: bool = True) -> Settings:
    """The settings from a configuration file and the environment.

    Args:
        path: The file; None for the file `RAGMON_CONFIG` names, else `ragmon.toml` in the working directory, else the
            defaults.
        environ: The environment; None for that of the process.
        plugins: Import the modules under `plugins`. Capture does not: it evaluates no gates, and the application need
            not have them installed.

    A variable of the environment whose name is nearly one that is read is warned of once.

    Raises:
        ConfigError: The first problem, with file, line and hint, and the number of problems.
    """
    settings, problems = examine(path, environ=environ, plugins=plugins)
    if errors := problems.errors:
        raise errors[0].error(len(errors))
    for problem in problems.listed:
        warn_once(f"{problem.message}: {problem.hint}")
    return settings


def defaults() -> Settings:
    """The built-in defaults, without file and environment."""
    problems = Problems(SourceLocation(FILE, label=FILE), {})
    return resolve(Tree(), process_settings({})[0], problems, path=None, plugins=False)


def check(path: str | Path | None = None, *, environ: Mapping[str, str] | None = None) -> list[Problem]:
    """All errors of a configuration file, in the order of its lines; a ConfigError if it cannot be read as text."""
    return examine(path, environ=environ)[1].errors


def find(path: str | Path | None, environ: Mapping[str, str]) -> Path | None:
    """The file to read: the argument, else that of the environment, else ragmon.toml here; None for the defaults."""
    if path is not None:
        return Path(path)
    if named := environ.get(CONFIG, "").strip():
        return Path(named)
    return Path(FILE) if Path(FILE).is_file() else None


def examine(
    path: str | Path | None = None, *, environ: Mapping[str, str] | None = None, plugins: bool = True
) -> tuple[Settings, Problems]:
    """The settings, with defaults in place of wrong values, and the problems found; the arguments are those of `load`.

    Raises:
        ConfigError: The file cannot be read as text.
    """
    environ = os.environ if environ is None else environ
    path = find(path, environ)
    found: list[Problem] = []
    root, tree = (SourceLocation(FILE, label=FILE), Tree()) if path is None else gather(path, found.append)
    tree = overlay(tree, environ)
    export = tree.data.get("export")
    if isinstance(export, dict) and export.get("endpoint") == OTEL:

        def report(wrong: WrongVariable) -> None:
            message = f"{wrong.name} {wrong.message}"
            found.append(Problem(f"environment {wrong.name}", None, wrong.name, message, wrong.value, wrong.hint))

        for signal in SIGNALS:
            otel_receiver(environ, signal, report)
    process, process_problems = process_settings(environ)
    problems = Problems(root, tree.locations)
    for problem in (*found, *process_problems, *_mistyped_variables(environ)):
        problems.note(problem)
    return resolve(tree, process, problems, path=path, plugins=plugins), problems


@dataclass
class Tree:
    """Tables, and where each key was written."""

    data: dict[str, Any] = field(default_factory=dict)
    locations: dict[KeyPath, SourceLocation] = field(default_factory=dict)


def read_text(path: Path) -> str:
    """The text of a configuration file."""
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


def gather(path: Path, report: Report) -> tuple[SourceLocation, Tree]:
    """Read a file and all files it extends, and merge them; the extending file takes precedence."""
    main_folder = _resolved(path).parent

    def read(path: Path, location: SourceLocation, extending: tuple[Path, ...]) -> Tree:
        text = read_text(path)
        try:
            data = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            report(_syntax_problem(error, text, location))
            return Tree()
        lines = locate(text).items()
        tree = Tree(
            data, {key: SourceLocation(location.path, line, location.label, path.parent) for key, line in lines}
        )
        extend = data.get("extend")
        if not isinstance(extend, str) or not extend:
            return tree
        line = tree.locations["extend",].line
        base_path = path.parent / Path(extend).expanduser()
        files = (*extending, _resolved(path))
        if (base_file := _resolved(base_path)) in files:
            cycle = f"extend goes in a circle: {' -> '.join(file.name for file in (*files, base_file))}"
            report(Problem(location.path, line, "extend", cycle, hint="remove one extend"))
            return tree
        label = os.path.relpath(base_file, main_folder)
        try:
            base = read(base_path, SourceLocation(str(base_path), None, label, base_path.parent), files)
        except ConfigError as error:
            message = f"extend names a file that cannot be used: {error}"
            hint = f"the path is relative to {location.path}; {error.hint}"
            report(Problem(location.path, line, "extend", message, hint=hint))
            return tree
        return Tree(merge(base.data, tree.data), {**base.locations, **tree.locations})

    root = SourceLocation(str(path), None, path.name, path.parent)
    return root, read(path, root, ())


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):  # reading the file then reports the problem
        return path.absolute()


def _syntax_problem(error: Exception, text: str, location: SourceLocation) -> Problem:
    if isinstance(error, RecursionError):
        hint = "nothing in ragmon.toml nests that deep"
        return Problem(location.path, None, "", "is nested too deeply", None, hint)
    if (duplicate := repeat(text)) is not None:
        key = dotted(duplicate.path)
        message = f"{key} is set twice, first on line {duplicate.first}"
        return Problem(location.path, duplicate.line, key, message, None, "keep one of the two")
    message, lines = str(error), text.splitlines()
    position = _POSITION.search(message)
    number = int(position[1]) if position and position[1] else len(lines) or 1
    column = f" (column {position[2]})" if position and position[2] else ""
    reason = _POSITION.sub("", message)
    hint = next((hint for start, hint in _SYNTAX_HINTS.items() if reason.startswith(start)), "ragmon.toml is TOML 1.0")
    line = lines[number - 1].strip() if number <= len(lines) else ""
    is_hidden = not line or is_secret(line) or may_hold_password(line)
    message = f"not TOML: {reason[:1].lower()}{reason[1:]}{column}"
    return Problem(location.path, number, "", message, None if is_hidden else line, hint)


def merge(
    base: Mapping[str, Any],
    top: Mapping[str, Any],
    *,
    merged: Callable[[Sequence[str | int]], bool] = is_merged,
    at: KeyPath = (),
) -> dict[str, Any]:
    """Merge two trees of tables; `top` takes precedence."""
    result = dict(base)
    for key, value in top.items():
        below, path = result.get(key), (*at, key)
        if isinstance(below, dict) and isinstance(value, dict) and merged(path):
            result[key] = merge(below, value, merged=merged, at=path)
        else:
            result[key] = value
    return result


def overlay(tree: Tree, environ: Mapping[str, str]) -> Tree:
    """The tree with the overrides of the environment, which apply to every pipeline."""
    data, locations = deepcopy(tree.data), dict(tree.locations)
    pipelines = data.get("pipelines")
    pipelines = pipelines if isinstance(pipelines, dict) else {}
    scopes: dict[KeyPath, Any] = {(): data, **{("pipelines", name): pipeline for name, pipeline in pipelines.items()}}
    for variable, path in OVERRIDES.items():
        if not (text := environ.get(variable, "").strip()):
            continue
        # Only one exporter is allowed: an endpoint from the environment replaces a trace log of the file.
        for table_name, key in (path, ("export", "jsonl")) if path == ("export", "endpoint") else (path,):
            for scope, tables in scopes.items():
                table = tables.get(table_name) if isinstance(tables, dict) else None
                if isinstance(table, dict):
                    table.pop(key, None)
                locations.pop((*scope, table_name, key), None)
        value: Any = header_pairs(text) if path == ("export", "headers") else text
        if path == ("sampling", "rate"):
            with suppress(ValueError):
                value = float(text)
        table = data.setdefault(path[0], {})
        if isinstance(table, dict):
            table[path[1]] = value
            locations[path] = SourceLocation(f"environment {variable}", None, f"environment {variable}", Path.cwd())
    return Tree(data, locations)


@dataclass(frozen=True)
class Process:
    """Settings of the running process, from the environment."""

    build: str
    service: str
    disabled: bool
    origins: Mapping[str, str]

    @property
    def pipeline(self) -> str | None:
        """What `OTEL_SERVICE_NAME` says, where that can be the name of a pipeline."""
        is_own = self.origins["service"] == f"environment {SERVICE}"
        return self.service if is_own and is_name(self.service) else None


def process_settings(environ: Mapping[str, str]) -> tuple[Process, list[Problem]]:
    """The build, the service name and the off switch, and their problems."""
    attributes = resource_attributes(environ.get(RESOURCE, ""))
    origins = {"build": DEFAULT, "service": DEFAULT, "disabled": DEFAULT}
    values = {}
    for key, variable, attribute in (("build", BUILD, "service.version"), ("service", SERVICE, "service.name")):
        explicit = environ.get(variable, "").strip()
        values[key] = explicit or attributes.get(attribute, "")
        if values[key]:
            origins[key] = f"environment {variable if explicit else RESOURCE}"
    switch = environ.get(DISABLED, "").strip()
    problems = []
    if switch.lower() not in (*ON, *_FALSE_VALUES):
        message, hint = f"{DISABLED} must be 1 or 0", "1 switches ragmon off"
        problems.append(Problem(f"environment {DISABLED}", None, "disabled", message, switch, hint))
    # OpenTelemetry knows no other word than "true".
    is_disabled = switch.lower() in ON if switch else environ.get(SDK_DISABLED, "").strip().lower() == "true"
    if switch or is_disabled:
        origins["disabled"] = f"environment {DISABLED if switch else SDK_DISABLED}"
    return Process(values["build"], values["service"], is_disabled, origins), problems


def resource_attributes(text: str) -> dict[str, str]:
    """Parse OpenTelemetry's resource attributes: key=value, separated by commas, percent-encoded."""
    pairs = (entry.partition("=") for entry in text.split(","))
    return {unquote(key.strip()): unquote(value.strip()) for key, _, value in pairs}


def _mistyped_variables(environ: Mapping[str, str]) -> Iterator[Problem]:
    # A name must be near one of `VARIABLES`, because Kubernetes sets RAGMON_PORT and others.
    def typos(name: str, known: str) -> int:
        steps = SequenceMatcher(None, name, known, autojunk=False).get_opcodes()
        return sum(max(i2 - i1, j2 - j1) for step, i1, i2, j1, j2 in steps if step != "equal")

    for name in sorted(environ):
        if name.startswith("RAGMON_") and name not in VARIABLES:
            near = [known for known in VARIABLES if typos(name, known) <= _MAX_TYPOS]
            if near:
                hint = nearest(name, near)
                yield Problem(f"environment {name}", None, name, f"{name} is not read", None, hint, warning=True)


def scope_of(pipeline: str | None) -> KeyPath:
    """The key of a pipeline's own tables; `()` for the top level."""
    return () if pipeline is None else ("pipelines", pipeline)


def resolve(tree: Tree, process: Process, problems: Problems, *, path: Path | None, plugins: bool) -> Settings:
    """Resolve a tree of tables into settings; problems are reported, and wrong values replaced by their defaults."""
    tables = _EffectiveTables(tree.data, problems, process.pipeline)
    document, views = tables.document, tables.views
    if plugins:
        _import_plugins(document.plugins, problems)
    gold = tables.gold_sets()
    probes = tables.probes(gold)
    tables.check_judges()
    windows = {window: int(duration(window)) for window in document.windows}

    def of_pipeline(name: str, view: str | None) -> PipelineSettings:
        own, foreign = views[view], bool(document.plugins) and not plugins
        context = GateContext(name, scope_of(view), windows, own.slices, gold, tables.gold_names, foreign)
        metrics = own.metrics
        if metrics.citations_required is None:  # a published preset asks every answer for a list of citations
            published = is_published(own.gates.preset or document.gates.preset)
            metrics = metrics.model_copy(update={"citations_required": published})
        known = {
            "name": name,
            "metrics": metrics,
            "resolved_gates": tuple(resolve_gates(own.gates, document.gates, context, problems).values()),
            "has_probe": any(probe.pipeline == name for probe in probes),
        }
        return PipelineSettings.model_construct(**dict(own) | known)

    common = of_pipeline(tables.default, None)
    pipelines = {name: of_pipeline(name, name) if name in views else common for name in tables.pipelines}
    # Pipelines that nothing names have the top level without what belongs to one pipeline.
    of_one_pipeline = {spec.name for spec in gold.values() if spec.pipeline is not None}
    gates = tuple(gate for gate in common.resolved_gates if gate.gold not in of_one_pipeline)
    is_probed = common.has_probe and not pipelines
    unconfigured = common.model_copy(update={"resolved_gates": gates, "has_probe": is_probed})
    rows = list(tables.rows(process, pipelines, unconfigured))
    return Settings(
        path,
        process.build,
        process.service,
        process.disabled,
        windows,
        tables.default,
        pipelines,
        unconfigured,
        tuple(gold.values()),
        probes,
        document.serve,
        document.stream,
        document.rules,
        document.export,
        values={key: value for key, value, _ in rows},
        origins={key: origin for key, _, origin in rows},
    )


def _import_plugins(modules: Sequence[str], problems: Problems) -> None:
    for index, module in enumerate(modules):
        try:
            importlib.import_module(module)
        except Exception as error:  # noqa: BLE001 - a plugin is third-party code and may raise anything
            hint = f"{type(error).__name__}: {error}; a plugin must be installed or on PYTHONPATH"
            problems.report(("plugins", index), "cannot be imported", value=module, hint=hint)
    for point in entry_points(group=PLUGINS):
        try:
            point.load()
        except Exception as error:  # noqa: BLE001 - as above
            hint = f"{type(error).__name__}: {error}; uninstall or repair its distribution"
            problems.report(("plugins",), f"cannot load the installed {point.name}", value=point.value, hint=hint)


class _EffectiveTables:
    """The tables of the top level and of every pipeline, merged over the top level, and the names they declare.

    `[pipeline] name` and `[pipelines.NAME]` declare pipelines. Without either, none is declared: the top level of the
    file holds for every pipeline that sends records, and the default one has the name of the service.
    """

    def __init__(self, data: Mapping[str, Any], problems: Problems, service: str | None) -> None:
        self._problems = problems
        top = {key: value for key, value in data.items() if key != "pipelines"}
        document = self._completed(validate(ConfigDocument, top, problems), None)
        if document.gates.preset is None and not document.gates.own:
            usual = document.gates.model_copy(update={"preset": "default"})
            document = document.model_copy(update={"gates": usual})
        self.document = document
        # The effective tables by pipeline; those of the top level under None.
        self.views: dict[str | None, ScopedTable] = {None: document}
        inherited = ScopedTable.model_fields.keys() - _NOT_INHERITED
        base = {key: value for key, value in top.items() if key in inherited}
        scopes: dict[str, Mapping[str, Any]] = {}
        declared = data.get("pipelines", {})
        if not isinstance(declared, dict):
            problems.report(("pipelines",), "must be a table", value=declared, hint="[pipelines.support]")
            declared = {}
        for name, own in declared.items():
            path = ("pipelines", name)
            if not is_name(name):
                problems.report(path, "is not usable as a name", hint=NAME_HINT)
            elif isinstance(own, dict):
                scopes[name] = own
            else:
                hint = f"[{dotted(path)}]; for one pipeline: [pipeline]"
                problems.report(path, "must be a table", value=own, hint=hint)
        for name, own in scopes.items():
            # A pipeline's gate replaces the top-level gate of the same name.
            merged = merge(base, own, merged=lambda at: is_merged(at) and not (len(at) > 1 and at[0] == "gates"))
            self.views[name] = self._completed(validate(ScopedTable, merged, problems, scope_of(name)), name)
        gold = (own.get("gold") for own in (top, *scopes.values()))
        self.gold_names = frozenset(name for table in gold if isinstance(table, dict) for name in table)
        self.default, self.pipelines = document.pipeline.name, tuple(scopes)
        if problems.written(("pipeline", "name")) is not None:
            self.pipelines = tuple(dict.fromkeys((self.default, *self.pipelines)))
        elif len(self.pipelines) == 1:
            (self.default,) = self.pipelines
        elif not self.pipelines:
            self.default = service or self.default

    def _completed(self, tables: S, pipeline: str | None) -> S:
        scope = scope_of(pipeline)
        joined: S = self._with_joined_paths(tables, (), scope)
        if not is_published(joined.gates.preset) or self._problems.written(_MATCHER_COUNTS, scope):
            return joined
        # Under a published preset a refusal in other words does not count, unless the file says that it does.
        return joined.model_copy(update={"refusal": joined.refusal.model_copy(update={"matcher_counts": False})})

    def _with_joined_paths(self, value: Any, path: KeyPath, scope: KeyPath) -> Any:
        """The value, with every relative path joined to the folder of the file it was written in."""
        if isinstance(value, Path):
            return (self._problems.written(path, scope) or self._problems.root).folder / value
        if isinstance(value, tuple) and value and isinstance(value[0], Path):
            return tuple(self._with_joined_paths(entry, path, scope) for entry in value)
        if isinstance(value, dict):
            return {key: self._with_joined_paths(entry, (*path, key), scope) for key, entry in value.items()}
        if not isinstance(value, Table):
            return value
        joined = {key: self._with_joined_paths(entry, (*path, key), scope) for key, entry in value}
        changed = {key: joined[key] for key, entry in value if joined[key] != entry}
        return value.model_copy(update=changed) if changed else value

    def gold_sets(self) -> dict[str, GoldSpec]:
        """The gold sets, those of one pipeline first: they take precedence if two sets hold the same question."""
        specs: dict[str, GoldSpec] = {}
        for pipeline, view in self.views.items():
            report = partial(self._problems.report, scope=scope_of(pipeline))
            for name, table in view.gold.items():
                if name in specs:
                    hint = "gold sets are told apart by their names: choose another"
                    report(("gold", name), "is defined twice", hint=hint)
                if name == constants.LABELS:
                    hint = "labels are shown as gold of this name: choose another"
                    report(("gold", name), "is taken", hint=hint)
                named = table.pipeline
                if named is not None and pipeline is not None and named != pipeline:
                    hint = f"it is inside {pipeline} and belongs to it: leave pipeline out"
                    report(("gold", name, "pipeline"), "contradicts the table it is in", value=named, hint=hint)
                elif named is not None and named not in self.pipelines:
                    hint = f'{nearest(named, self.pipelines)}; or declare it: [pipelines."{named}"]'
                    report(("gold", name, "pipeline"), "is not a pipeline", value=named, hint=hint)
                found = {"name": name, "pipeline": named or pipeline}
                specs[name] = GoldSpec.model_construct(**dict(table) | found)
        return dict(sorted(specs.items(), key=lambda item: item[1].pipeline is None))

    def probes(self, gold: Mapping[str, GoldSpec]) -> tuple[ProbeSpec, ...]:
        """The probes; the pipeline of each is where its table stands, else that of its gold set, else the default."""
        specs: dict[str, ProbeSpec] = {}
        for pipeline, view in self.views.items():
            report = partial(self._problems.report, scope=scope_of(pipeline))
            for name, table in view.probe.items():
                path = ("probe", name, "gold")
                if name in specs:
                    hint = "probes are told apart by their names: choose another"
                    report(("probe", name), "is defined twice", hint=hint)
                if table.gold is None and len(self.gold_names) != 1:
                    hint = f"a probe asks the questions of a gold set: {nearest('', self.gold_names)}"
                    report(path, "is missing", hint=hint)
                    continue
                gold_name = table.gold or next(iter(self.gold_names))
                if gold_name not in self.gold_names:
                    report(path, "is not a gold set", value=gold_name, hint=nearest(gold_name, self.gold_names))
                    continue
                if (gold_set := gold.get(gold_name)) is None:
                    continue
                if constants.PROBE not in gold_set.use:
                    hint = f'add "probe" to use of [gold.{gold_name}]'
                    report(path, "is not used for probes", value=gold_name, hint=hint)
                probed = pipeline or gold_set.pipeline or self.default
                if self.pipelines and probed not in self.pipelines:
                    hint = f"write it inside one, [pipelines.NAME.probe.{name}], or give its gold set a pipeline"
                    report(("probe", name), "does not say which pipeline it probes", hint=hint)
                elif gold_set.pipeline not in (None, probed):
                    message = f"names a gold set that does not judge {probed}"
                    report(path, message, value=gold_name, hint=f"it judges {gold_set.pipeline}")
                found = {"name": name, "pipeline": probed, "gold": gold_name}
                specs[name] = ProbeSpec.model_construct(**dict(table) | found)
        return tuple(specs.values())

    def check_judges(self) -> None:
        """Check that every judge with a model has a kind."""
        kinds = " or ".join(f'"{kind}"' for kind in get_args(JudgeKind))
        hint = f"kind = {kinds}; a judge called by one of these names need not say it"
        for pipeline, view in self.views.items():
            for name, table in view.judges.items():
                if table.url is not None and table.asks(name) is None:
                    message, scope = "does not say what the model is asked", scope_of(pipeline)
                    self._problems.report(("judges", name), message, scope=scope, hint=hint)

    def rows(
        self, process: Process, pipelines: Mapping[str, PipelineSettings], unconfigured: PipelineSettings
    ) -> Iterator[Row]:
        """All values; the gates of the top level come first."""
        for key in ("build", "service", "disabled"):
            yield key, getattr(process, key), process.origins[key]
        for key, value, origin in sorted(self._scope_rows(None), key=lambda row: "." in row[0]):
            if key != "pipeline.name":
                yield key, value, origin
            else:
                is_service = not pipelines and self.default == process.pipeline
                yield key, self.default, process.origins["service"] if is_service else origin
        top = next((pipeline for name, pipeline in pipelines.items() if name not in self.views), unconfigured)
        yield from self._gate_rows(top, None)
        for name, pipeline in pipelines.items():
            if name in self.views:
                yield from self._scope_rows(name)
                yield from self._gate_rows(pipeline, name)

    def _scope_rows(self, pipeline: str | None) -> Iterator[Row]:
        # At the top level all values but gates, in a pipeline the values that are written inside it.
        scope, written = scope_of(pipeline), self._problems.written
        for path, value in flatten(self.views[pipeline]):
            # Where `refusal.matcher_counts` is not written, the preset of the gates decides it and is its origin.
            key = _PRESET if path == _MATCHER_COUNTS and written(path, scope) is None else path
            location = written(key, scope)
            if not scope or written((*scope, *key)):
                yield dotted((*scope, *path)), value, DEFAULT if location is None else location.origin

    def _gate_rows(self, pipeline: PipelineSettings, view: str | None) -> Iterator[Row]:
        # A gate of a pipeline stands in place of the gate of the top level, so none of its keys has its origin there.
        scope, written = scope_of(view), self._problems.written
        for gate in pipeline.resolved_gates:
            path: KeyPath = ("gates", gate.name)
            table = (*scope, *path) if written((*scope, *path)) else path
            preset = None if written(table) else written(_PRESET, scope)
            values = {
                "metric": gate.metric,
                gate.direction: gate.threshold,
                "source": judged_live(gate, probed=pipeline.has_probe).source,
                "gold": gate.gold,
                "slice": dict([gate.where.split("=", 1)]) if gate.where else None,
                "window": gate.window,
                "estimand": gate.estimand,
                "min_samples": gate.min_samples,
                "page_below" if gate.at_least else "page_above": gate.page_beyond,
                "severity": gate.severity,
                "kind": gate.kind,
            }
            for key, value in values.items():
                if value is not None or key == "source":
                    location = written((*table, key)) or (preset if key != "source" else None)
                    yield dotted((*scope, *path, key)), value, DEFAULT if location is None else location.origin


def masked_values(settings: Settings) -> list[tuple[str, object, str]]:
    """Every value of a configuration.

    Returns:
        `(dotted key, value as in ragmon.toml, origin)`; secrets are masked. The value is None if it is not set. A gate
        that names no source has its default one, and none on gold, where it judges the first that has data.

    >>> from ragmon.config.load import defaults
    >>> next(row for row in masked_values(defaults()) if row[0] == "capture.content")
    ('capture.content', 'none', 'default')
    """
    rows = []
    for key, value in settings.values.items():
        table, _, option = key.rpartition(".")
        shown: object
        # The keys of `slices` are tags that users choose; they are never secrets.
        if value is not None and is_secret(option) and not table.endswith("slices"):
            shown = MASK
        elif key.endswith("export.headers") and isinstance(value, Mapping):  # any header may be a token
            shown = dict.fromkeys(value, MASK)
        else:
            shown = plain(value, masked=option in ("headers", "tls", "kafka"))
            if option == "target" and isinstance(shown, str) and "?" in shown:
                shown = f"{shown.partition('?')[0]}?{MASK}"
        rows.append((key, shown, settings.origins[key]))
    return rows


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
