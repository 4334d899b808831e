"""The house: which room may import which, how big a room's files may be, and how light the front door is."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ragmon

PACKAGE = Path(ragmon.__file__).parent

# From the ground up: a module may import modules of lower floors, and of its own.
FLOORS = {
    "words": "printing errors names exposition attributes version keys spent",
    "facts": "contract bounds text stats refusal item facts reader spans",
    "metrics": "metrics",
    "memory": "rows tables traffic weighting windows windowed scores pairs gold snapshot groups",
    "brain": "coverage estimands rules scorer gates judging presets compare alarms canary why",
    "edges": "ingest export exemplars promql reading labels journal",
    "app": "config alerting assembly privacy embedding feedback delivery terms accounts processes "
    "admission live monitor offline questions parallel baseline arming watching releasing checkup hosts acks judges "
    "installation server remote verifying probes termination dashboards",
    "shell": "cli __main__ demo",
}
# Rooms apart: what they may import, whatever the floor.
APART = {
    "compat": {"errors"},
    "capture.notices": {"names", "printing"},
    "capture.paths": {"errors"},
    "capture.draws": set(),
    "capture.parents": {"capture.draws"},
    "capture.baggage": set(),
    "capture.calls": {"names", "capture.draws", "capture.parents"},
    "capture.runtime": {"names", "capture.calls", "capture.draws", "capture.notices", "capture.parents"},
    "capture.begin": {
        "capture.baggage",
        "capture.calls",
        "capture.draws",
        "capture.notices",
        "capture.parents",
        "capture.runtime",
    },
    "capture.outcomes": {"names", "capture.calls", "capture.draws", "capture.notices", "capture.runtime"},
    "capture.flows": {"capture.calls", "capture.outcomes"},
    "capture.iterators": {"capture.calls", "capture.flows"},
    "capture.said": {"capture.calls", "capture.outcomes", "capture.runtime"},
    "capture.decorator": {"errors", "names", "capture.calls", "capture.paths", "capture.wrappers"},
    "capture.streams": {
        "capture.begin",
        "capture.calls",
        "capture.flows",
        "capture.iterators",
        "capture.outcomes",
        "capture.runtime",
    },
    "capture.exact": {"capture.calls"},
    "capture.wrappers": {
        "capture.begin",
        "capture.calls",
        "capture.draws",
        "capture.exact",
        "capture.notices",
        "capture.outcomes",
        "capture.runtime",
        "capture.streams",
    },
    "capture.documents": {"bounds", "text", "capture.notices", "capture.paths"},
    "capture.extract": {"contract", "text", "capture.calls", "capture.documents", "capture.paths"},
    "capture.convert": {
        "names",
        "contract",
        "spans",
        "text",
        "capture.calls",
        "capture.documents",
        "capture.extract",
        "capture.foreign",
    },
    "capture.redact": {
        "errors",
        "names",
        "contract",
        "text",
        "facts",
        "gold",
        "item",
        "keys",
        "metrics",
        "reader",
        "capture.calls",
        "capture.notices",
        "capture.patterns",
    },
    "capture.sinks": {"names", "contract", "capture.notices"},
    "capture.jsonl": {"errors", "contract", "capture.notices"},
    "capture.forked": {"names", "contract", "capture.notices"},
    "capture.folders": set(),
    "capture.labels": {"capture.notices"},
    "capture.pages": {"names", "capture.folders"},
    "capture.adoption": {"capture.folders", "capture.pages"},
    "capture.totals": {"names", "contract", "stats", "capture.calls", "capture.pages", "capture.runtime"},
    "capture.signals": {"errors"},
    "capture.otlp": {"capture.otlp.scores", "capture.otlp.sink"},
    "capture.otlp.connection": set(),
    "capture.otlp.endpoint": {"errors", "version"},
    "capture.otlp.metrics": {"attributes", "contract", "stats", "capture.otlp.wire"},
    "capture.otlp.peer": {"errors", "names", "capture.notices", "capture.otlp.connection", "capture.otlp.endpoint"},
    "capture.otlp.scores": {"attributes", "names", "capture.otlp.peer", "capture.otlp.wire"},
    "capture.otlp.sink": {
        "errors",
        "names",
        "contract",
        "capture.notices",
        "capture.otlp.metrics",
        "capture.otlp.peer",
        "capture.otlp.spans",
        "capture.otlp.wire",
    },
    "capture.otlp.spans": {"attributes", "names", "contract", "capture.otlp.wire"},
    "capture.otlp.wire": {"version"},
    "capture.patterns": set(),
    "capture.foreign": {"spans"},
    "capture.gathering": set(),
    "capture.requests": {
        "names",
        "contract",
        "spans",
        "capture.draws",
        "capture.foreign",
        "capture.gathering",
        "capture.notices",
        "capture.parents",
        "capture.paths",
        "capture.worker",
    },
    "capture.processor": {
        "attributes",
        "capture.calls",
        "capture.convert",
        "capture.parents",
        "capture.gathering",
        "capture.notices",
        "capture.paths",
        "capture.requests",
        "capture.sinks",
        "capture.worker",
    },
    "capture.worker": {"names", "contract", "capture.calls", "capture.notices", "capture.pages", "capture.sinks"},
}
# Rooms without a clock, without chance, without files.
PURE = ("metrics", "facts", "stats", "reader", "windows", "gates", "judging", "alarms", "canary", "why")
# Doors the app may use into rooms apart.
INTO_CAPTURE = {
    "cli.http",
    "termination",
    "accounts",
    "delivery",
    "embedding",
    "feedback",
    "journal.layouts",
    "judges.budget",
    "judges.judge",
    "judges.panel",
    "judges.seat",
    "privacy",
    "terms",
    "monitor",
    "live",
    "server.complaints",
    "server.keeping.assembling",
    "installation",
    "testing",
    "probes.asking",
    "probes.crew",
    "probes.endpoint",
    "probes.functions",
    "probes.marks",
    "probes.outlet",
    "probes.plan",
    "probes.prober",
    "probes.question",
}
# The parts of the server that may not import one another, and what of it they may import.
SERVER = {
    "server.doors": {"server.desk", "server.complaints"},
    "server.keeping": {"server.desk", "server.complaints", "server.memory"},
    "server.showing": {"server.keeping", "server.complaints", "server.reloading"},
}
LEVEL = {room: level for level, rooms in enumerate(FLOORS.values()) for room in rooms.split()}


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name without `ragmon.`."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = list(path.relative_to(PACKAGE).with_suffix("").parts)
        if parts[-1] == "__init__":
            parts.pop()
        found[".".join(parts)] = path
    return found


def room(module: str) -> str:
    return module.split(".", maxsplit=1)[0]


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


@pytest.mark.parametrize("module", sorted(set(modules()) - {""}))
def test_every_module_stands_in_a_room_and_imports_only_downward(module):
    """Arrows point down the list of rooms; rooms apart import only what their list names."""
    wanted = imports(modules()[module])
    if module in ("testing", "capture"):
        return
    allowed = APART.get(module, APART.get(room(module)))
    if allowed is not None:
        extra = {m for m in wanted if m not in allowed and room(m) not in allowed and room(m) != module.split(".")[0]}
        inside = {m for m in wanted if room(m) == room(module) and m not in allowed and room(module) == "capture"}
        assert not extra | inside
        return
    assert room(module) in LEVEL, f"{module} stands in no room: name it in FLOORS"
    for target in wanted:
        if room(target) == "capture":
            assert module in INTO_CAPTURE or room(module) == "demo", f"{module} must not import {target}"
        elif room(target) == "compat":
            assert room(module) == "cli", f"{module} must not import {target}"
        else:
            assert target != "testing", "nothing imports testing"
            assert LEVEL[room(target)] <= LEVEL[room(module)], f"{module} must not import {target}: it stands above"


@pytest.mark.parametrize("part", SERVER)
def test_a_door_of_the_server_knows_no_journal_and_what_is_kept_knows_no_door(part):
    """What shows may look at what is kept; otherwise the parts meet at the desk."""
    for module, path in modules().items():
        if module.startswith(f"{part}."):
            wanted = {m for m in imports(path) if room(m) == "server" and not m.startswith(f"{part}.")}
            assert not {m for m in wanted if m not in SERVER[part] and m.rpartition(".")[0] not in SERVER[part]}, module


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


def test_nothing_below_the_app_reads_the_configuration_or_the_environment():
    for module, path in modules().items():
        if LEVEL.get(room(module), 0) < LEVEL["config"] and room(module) not in ("compat", "testing"):
            assert not {m for m in imports(path) if room(m) == "config"}, module
            # The switch that leaves decorated functions as they are must be read where they are decorated.
            assert module == "capture.decorator" or not re.search(r"\benviron\b", path.read_text("utf-8")), module


@pytest.mark.parametrize("module", sorted(module for module in modules() if room(module) in PURE))
def test_pure_rooms_touch_no_clock_no_chance_and_no_files(module):
    tree = ast.parse(modules()[module].read_text(encoding="utf-8"))
    names = {
        alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in (node.names if isinstance(node, ast.Import) else [ast.alias(node.module or "")])
    }
    assert not names & {"time", "random", "datetime", "logging", "pathlib", "os", "io"}


def test_files_and_functions_keep_their_budget():
    """A file has at most 500 lines, a function at most 40 without its docstring."""
    for module, path in modules().items():
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 500, f"{module} has {len(text.splitlines())} lines"
        for node in ast.walk(ast.parse(text)):
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
