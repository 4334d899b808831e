"""The size and the shape of the package, and how far four requests travel through it.

`python -m bench.house` prints the table; `--files`, `--helpers` and `--walks` print what stands behind a figure.

Counted: every text file of the wheel, and `deploy/*.py`. Code of Python is a line that holds a token outside comments,
docstrings and the strings below a constant or an attribute; code of a template, style sheet or script is a line that is
not blank; data (JSON lines, TOML, text, licences) has no code. A file with code has a line of code.

A single-use helper is a function of a module or a method called `_x` whose name stands in one place beside its
definition: as a name, as an attribute, or as the last part of a string (`"ragmon.cli.gold:_lint"`). Where several
definitions in the package share the name, the places in the helper's own module count.

An arrow is an import of one file of the package by another, at the top, in a function or for types alone; it points up
where its package stands below the imported one in `ORDER`. Files that import one another in a circle are a cycle.

A walk is run in a process of its own, and every frame of ragmon that any thread enters is counted, from the call or the
request until the record is counted or the text is written. A call is an entered frame: that of a function, a lambda, a
comprehension, or a generator that goes on. A move is a call in another file than the thread's call before it. Imports
do not count: while a module or the body of a class runs, nothing does.
"""

from __future__ import annotations

import argparse
import ast
import http.client
import inspect
import io
import json
import os
import runpy
import subprocess
import sys
import tempfile
import threading
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep, time_ns
from types import CodeType, FrameType, TracebackType
from typing import Any, Final, NamedTuple, Self

ROOT: Final = Path(__file__).parents[1]
ORDER: Final = (
    *(("core",), ("stats", "compat"), ("metrics",), ("config",), ("ingest",), ("scoring", "capture"), ("alarms",)),
    *(("gates",), ("export",), ("monitor",), ("stream",), ("server",), ("cli",), ("demo",)),
)
"""The packages from below; between two of one row there is no arrow, and `compat` imports core alone."""
ASKED: Final = {
    **{"code": 39_000, "lines": 53_000, "files with code": 120, "single-use helpers": 250, "arrows up": 0, "cycles": 0},
    **{"a call": 27, "an OTLP request": 40, "a replay": 28, "a gate": 18},
}
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
        functions: Every definition of a function.
    """

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        found = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        self.files = {str(path.relative_to(folder)): path for path in sorted(found)}
        self.trees: dict[str, ast.Module] = {}
        for file, path in self.files.items():
            if path.suffix == ".py":
                module = f"{self.name}/{file}"[:-3].removesuffix("/__init__").replace("/", ".")
                self.trees[module] = ast.parse(path.read_text(encoding="utf-8"), file)
        self.functions = [one for module, tree in self.trees.items() for one in definitions(module, tree)]

    def package(self, module: str) -> str:
        """The folder at the top that a module is in; "" for a module beside them."""
        file = module.split(".")
        return file[1] if len(file) > 2 or f"{'/'.join(file[1:])}/__init__.py" in self.files else ""

    def private(self) -> list[Definition]:
        """The private functions of modules and private methods."""
        return [one for one in self.functions if one.name[0] == "_" and one.name[:2] != "__" and not one.is_local]

    def helpers(self) -> list[Definition]:
        """The private functions that are named once beside their definition."""
        named = {module: Counter(names(tree)) for module, tree in self.trees.items()}
        anywhere = sum(named.values(), Counter[str]())
        defined = Counter(one.name for one in self.functions)
        return [
            one
            for one in self.private()
            if (anywhere if defined[one.name] == 1 else named[one.module])[one.name] == 1
        ]

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


def points_up(importer: str, imported: str) -> bool | None:
    """Whether an arrow points up or aside in `ORDER`; None where a package is not in it."""
    level = {name: row for row, packages in enumerate(ORDER) for name in packages}
    if importer not in level or imported not in level:
        return None
    return level[importer] <= level[imported] or (importer == "compat" and imported != "core")


@dataclass
class Trail:
    """The way of one thread: the file it is in, and how many imports it is inside of."""

    file: str = ""
    imports: int = 0
    calls: int = 0
    moves: int = 0
    functions: set[CodeType] = field(default_factory=set)


class Walk:
    """The frames of ragmon that the threads of this process enter while it is open; threads must be younger than it.

    Args:
        apart: Files that do not count, by the start of their path in the package.
    """

    def __init__(self, apart: tuple[str, ...] = ()) -> None:
        self._folder, self._apart = f"{ROOT / 'ragmon'}/", apart
        self._trails: defaultdict[int, Trail] = defaultdict(Trail)
        self._is_open = False
        threading.setprofile(self._follow)
        sys.setprofile(self._follow)

    def _follow(self, frame: FrameType, event: str, _: object) -> None:
        code, trail = frame.f_code, self._trails[threading.get_ident()]
        if not code.co_flags & inspect.CO_OPTIMIZED:  # a module or the body of a class
            if frame.f_globals.get("__name__") != "__main__":
                trail.imports = max(0, trail.imports + {"call": 1, "return": -1}.get(event, 0))
        elif event == "call" and self._is_open and not trail.imports and code.co_filename.startswith(self._folder):
            file = code.co_filename.removeprefix(self._folder)
            if not file.startswith(self._apart or ("/",)):
                trail.moves += bool(trail.file) and file != trail.file
                trail.calls += 1
                trail.file = file
                trail.functions.add(code)

    def __enter__(self) -> Self:
        self._is_open = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._is_open = False

    def entered(self, function: Callable[..., Any]) -> bool:
        """Whether a thread entered a function."""
        return any(function.__code__ in trail.functions for trail in [*self._trails.values()])

    def found(self) -> dict[str, Any]:
        """Files and figures."""
        trails = [*self._trails.values()]
        functions = {code for trail in trails for code in trail.functions}
        defined = {code for code in functions if code.co_name[0] != "<" or code.co_name == "<lambda>"}
        return {
            "files": sorted({code.co_filename.removeprefix(self._folder) for code in functions}),
            "functions": len(defined),
            "calls": sum(trail.calls for trail in trails),
            "moves": sum(trail.moves for trail in trails),
        }


CONFIG: Final = """[pipeline]
name = "support"
[sampling]
rate = 1.0
[gates.citation_hit_rate]
at_least = 0.75
[serve]
otlp = "127.0.0.1:0"
grpc = "127.0.0.1:0"
admin = "127.0.0.1:0"
state_dir = "state"
"""
QUESTION: Final = "How long is the quay?"
ANSWER: Final = {"claim": "It is 74 metres long.", "citations": ["quay#1"]}
WAIT: Final = 60.0
"""Seconds until a request must be counted: a server waits five for the rest of a trace."""
REST: Final = 1.0
"""Seconds in which what follows a counted record is watched, too."""


def call(walk: Walk) -> None:
    """A sampled call of a decorated function, until the monitor in its process has counted it."""
    import ragmon

    installation = ragmon.install("ragmon.toml", strict=True)

    @ragmon.trace
    def answer(question: str) -> dict[str, Any]:
        return {"answer": ANSWER, "documents": [{"id": "quay#1", "text": "The quay is 74 metres long.", "score": 0.9}]}

    with walk:
        answer(QUESTION)
        assert installation.flush(WAIT)
    assert walk.entered(ragmon.Scorer.observe)


def otlp(walk: Walk) -> None:
    """A request of a chain and its retriever in OpenInference's convention, until a server has counted their record."""
    import ragmon
    from ragmon.config.load import load
    from ragmon.server.server import Server

    with Server(load("ragmon.toml")) as server:
        connection = http.client.HTTPConnection(str(server.addresses()["otlp"]))
        with walk:
            connection.request("POST", "/v1/traces", two_spans(), {"Content-Type": "application/x-protobuf"})
            assert connection.getresponse().status == 200
            until = monotonic() + WAIT
            while not walk.entered(ragmon.Scorer.observe):
                assert monotonic() < until, "the request is not counted"
                sleep(0.01)
            sleep(REST)


def two_spans() -> bytes:
    """A trace in protobuf."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    sent = ExportTraceServiceRequest()
    resource = sent.resource_spans.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "support"
    scope = resource.scope_spans.add()
    scope.scope.name = "openinference.instrumentation.langchain"
    document = {"id": "quay#1", "content": "The quay is 74 metres long.", "score": "0.9"}
    chain = {"openinference.span.kind": "CHAIN", "input.value": QUESTION, "output.value": ANSWER["claim"]}
    retriever = {
        **{"openinference.span.kind": "RETRIEVER", "input.value": QUESTION},
        **{f"retrieval.documents.0.document.{key}": value for key, value in document.items()},
    }
    ids: tuple[dict[str, bytes], ...] = ({"span_id": b"retrieve", "parent_span_id": b"chaining"}, {"span_id": b"chaining"})
    for attributes, own in zip((retriever, chain), ids, strict=True):
        now = time_ns()
        span = scope.spans.add(name="step", trace_id=b"a trace of spans", end_time_unix_nano=now, **own)
        span.start_time_unix_nano = now - 10**8
        for key, value in attributes.items():
            span.attributes.add(key=key).value.string_value = str(value)
    return bytes(sent.SerializeToString())


def replay(walk: Walk) -> None:
    """A replay of fifty lines of a trace log."""
    import ragmon

    rows = [{"v": 1, "q": f"{QUESTION} ({n})", "retrieved_ids": ["quay#1"], "answer_json": ANSWER} for n in range(50)]
    Path("traces.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with walk:
        report = ragmon.replay("traces.jsonl", config="ragmon.toml")
    assert report.metric("citation_scope").n == 50


def gate(walk: Walk) -> None:
    """A configuration of one gate, until its rules are written; what reads the command line does not count."""
    sys.argv = ["ragmon", "generate", "rules", "--config", "ragmon.toml", "--output", "rules.yml"]
    with walk:
        try:
            runpy.run_module("ragmon", run_name="__main__")
        except SystemExit as end:
            assert not end.code
    assert "citation_hit_rate" in Path("rules.yml").read_text(encoding="utf-8")


WALKS: Final = {"a call": call, "an OTLP request": otlp, "a replay": replay, "a gate": gate}
APART: Final = {"a gate": ("cli/", "__main__.py")}


def measured(name: str) -> dict[str, Any]:
    """What a walk finds, in a process and a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "ragmon.toml").write_text(CONFIG, encoding="utf-8")
        known = {key: value for key, value in os.environ.items() if not key.startswith(("RAGMON_", "OTEL_"))}
        environment = {**known, "TMPDIR": folder, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "bench.house", "--walk", name]
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
    print(f"{'asked, at most':<20}{'':>8}{ASKED['files with code']:>12,}{ASKED['lines']:>10,}{ASKED['code']:>10,}")


def shape(house: House) -> None:
    """Print functions, packages, arrows and cycles."""
    between, cycles = house.between(), house.cycles()
    up = {pair: found for pair, found in between.items() if points_up(*pair)}
    packages = {house.package(module) for module in house.trees} - {""}
    unknown = sorted(packages - {name for row in ORDER for name in row})
    arrows = sum(len(imported) for imported in house.arrows().values())
    helpers = len(house.helpers())
    print(f"\nfunctions {len(house.functions):,}, {len(house.private()):,} of them private in a module or a class")
    print(f"single-use helpers {helpers:,} (asked: at most {ASKED['single-use helpers']})")
    print(f"packages {len(packages)}; not in the order: {', '.join(unknown) or 'none'}")
    print(f"arrows {arrows:,} between files, {len(between)} between packages")
    print(f"arrows up {len(up)} (asked: {ASKED['arrows up']})")
    for (importer, imported), found in up.items():
        print(f"  {importer} -> {imported}: {'; '.join(found)}")
    print(f"cycles of files {len(cycles)} (asked: {ASKED['cycles']})")
    for cycle in cycles:
        print(f"  {', '.join(cycle)}")


def walks(*, by_name: bool) -> None:
    """Run and print the walks."""
    print(f"\n{'walk':<20}{'files':>8}{'asked':>8}{'functions':>12}{'calls':>8}{'moves':>8}")
    for name in WALKS:
        found = measured(name)
        figures = f"{found['functions']:>12,}{found['calls']:>8,}{found['moves']:>8,}"
        print(f"{name:<20}{len(found['files']):>8}{ASKED[name]:>8}{figures}", flush=True)
        for file in found["files"] if by_name else ():
            print(f"  {file}")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.house", description="the size and the shape of the package")
    parser.add_argument("--files", action="store_true", help="files with code, the longest first")
    parser.add_argument("--helpers", action="store_true", help="the single-use helpers")
    parser.add_argument("--walks", action="store_true", help="the four walks with the files they enter")
    parser.add_argument("--walk", choices=WALKS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.walk:
        walk = Walk(APART.get(asked.walk, ()))
        WALKS[asked.walk](walk)
        print(json.dumps(walk.found()))
        sys.stdout.flush()
        os._exit(0)  # what the walk started need not end
    house = House(ROOT / "ragmon")
    if asked.files:
        for file, found in sorted(((file, size(path)) for file, path in house.files.items()), key=lambda one: -one[1].code):
            print(f"{found.code:>6,}  {file}")
    if asked.helpers:
        for one in house.helpers():
            print(f"{one.module}:{one.line} {one.name}")
    if asked.walks:
        walks(by_name=True)
    if not (asked.files or asked.helpers or asked.walks):
        sizes(house)
        shape(house)
        walks(by_name=False)


if __name__ == "__main__":
    main()
