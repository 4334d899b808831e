"""How far four requests travel through the package: `python -m bench.walks call`, `otlp`, `replay` or `gate`.

Every frame of ragmon that any thread enters is counted, from the call or the request until its record is counted or the
text is written: the second call of a decorated function, the first request of a server (what the server does meanwhile
is included), a replay against gold, and in the walk of a gate only what is below the command line. A call is an entered
frame: that of a function, a lambda, a comprehension, or a generator that goes on. A move is a call in another file than
the thread's call before it. Imports do not count: while a module or the body of a class runs, nothing does.
"""

from __future__ import annotations

import http.client
import inspect
import json
import os
import runpy
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep, time_ns
from types import CodeType, FrameType, TracebackType
from typing import Any, Final, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragmon import Scorer, install, replay, trace
from ragmon.config.load import load
from ragmon.server.server import Server

FOLDER: Final = f"{Path(__file__).parents[1] / 'ragmon'}/"


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
        self._apart = apart
        self._trails: defaultdict[int, Trail] = defaultdict(Trail)
        self._is_open = False
        threading.setprofile(self._follow)
        sys.setprofile(self._follow)

    def _follow(self, frame: FrameType, event: str, _: object) -> None:
        code, trail = frame.f_code, self._trails[threading.get_ident()]
        if not code.co_flags & inspect.CO_OPTIMIZED:  # a module or the body of a class
            if frame.f_globals.get("__name__") != "__main__":
                trail.imports = max(0, trail.imports + {"call": 1, "return": -1}.get(event, 0))
        elif event == "call" and self._is_open and not trail.imports and code.co_filename.startswith(FOLDER):
            file = code.co_filename.removeprefix(FOLDER)
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
            "files": sorted({code.co_filename.removeprefix(FOLDER) for code in functions}),
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
GOLD: Final = {"qid": "a", "question": QUESTION, "answerable": True, "gold_citations": ["quay#1"]}
WAIT: Final = 60.0
"""Seconds until a request must be counted: a server waits five for the rest of a trace."""
REST: Final = 1.0
"""Seconds in which what follows a counted record is watched, too."""


def call(walk: Walk) -> None:
    """A sampled call of a decorated function, the second one, until the monitor in its process has counted it."""
    installation = install("ragmon.toml", strict=True)

    @trace
    def answer(question: str) -> dict[str, Any]:
        return {"answer": ANSWER, "documents": [{"id": "quay#1", "text": "The quay is 74 metres long.", "score": 0.9}]}

    answer(QUESTION)
    assert installation.flush(WAIT)
    with walk:
        answer(QUESTION)
        assert installation.flush(WAIT)
    assert walk.entered(Scorer.observe)


def otlp(walk: Walk) -> None:
    """A request of a chain and its retriever in OpenInference's convention, until a server has counted their record."""
    with Server(load("ragmon.toml")) as server:
        connection = http.client.HTTPConnection(str(server.addresses()["otlp"]))
        with walk:
            connection.request("POST", "/v1/traces", two_spans(), {"Content-Type": "application/x-protobuf"})
            assert connection.getresponse().status == 200
            until = monotonic() + WAIT
            while not walk.entered(Scorer.observe):
                assert monotonic() < until, "the request is not counted"
                sleep(0.01)
            sleep(REST)


def two_spans() -> bytes:
    """A trace in protobuf."""
    sent = ExportTraceServiceRequest()
    resource = sent.resource_spans.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "support"
    scope = resource.scope_spans.add()
    scope.scope.name = "openinference.instrumentation.langchain"
    document = {"id": "quay#1", "content": "The quay is 74 metres long.", "score": "0.9"}
    chain = {"openinference.span.kind": "CHAIN", "input.value": QUESTION, "output.value": ANSWER["claim"]}
    retriever = {f"retrieval.documents.0.document.{key}": value for key, value in document.items()}
    retriever |= {"openinference.span.kind": "RETRIEVER", "input.value": QUESTION}
    now = time_ns()
    for attributes, own, parent in ((retriever, b"retrieve", b"chaining"), (chain, b"chaining", b"")):
        span = scope.spans.add(name="step", trace_id=b"a trace of spans", span_id=own, parent_span_id=parent)
        span.start_time_unix_nano, span.end_time_unix_nano = now - 10**8, now
        for key, value in attributes.items():
            span.attributes.add(key=key).value.string_value = str(value)
    return bytes(sent.SerializeToString())


def fifty_lines(walk: Walk) -> None:
    """A replay of fifty lines against gold, until its report is there."""
    row = {"v": 1, "q": QUESTION, "retrieved_ids": ["quay#1"], "answer_json": ANSWER}
    Path("traces.jsonl").write_text(50 * f"{json.dumps(row)}\n", encoding="utf-8")
    Path("gold.jsonl").write_text(f"{json.dumps(GOLD)}\n", encoding="utf-8")
    with walk:
        report = replay("traces.jsonl", gold="gold.jsonl")
    assert report.metric("citation_scope").n == 50


def gate(walk: Walk) -> None:
    """A configuration of one gate, until its rules are written; what reads the command line does not count."""
    sys.argv = ["ragmon", "generate", "rules", "--config", "ragmon.toml", "--output", "rules.yml"]
    with walk, suppress(SystemExit):
        runpy.run_module("ragmon", run_name="__main__")
    assert "citation_hit_rate" in Path("rules.yml").read_text(encoding="utf-8")


WALKS: Final = {"call": call, "otlp": otlp, "replay": fifty_lines, "gate": gate}


def main() -> None:
    """Run a walk in the working directory, and print what it found as JSON."""
    name = sys.argv[1]
    walk = Walk(apart=("cli/", "__main__.py") if name == "gate" else ())
    Path("ragmon.toml").write_text(CONFIG, encoding="utf-8")
    WALKS[name](walk)
    sys.stdout.write(json.dumps(walk.found()) + "\n")
    sys.stdout.flush()
    os._exit(0)  # what the walk started need not end


if __name__ == "__main__":
    main()
