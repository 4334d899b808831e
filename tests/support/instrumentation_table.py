"""The table of instrumentations in docs/integrations/instrumentations.md, made from recordings of real packages.

A row is a program that asks one question of a small pipeline with a fake model under a real instrumentation, and prints
what the pipeline returned and the spans that were left. `--record NAME` runs it with this interpreter and keeps both in
tests/data/instrumentations/NAME.json with the versions of the packages; without arguments the table is written anew
from all recordings. Whether a recording can be read is decided anew each time, so that the table follows the mapper.

    python -m tests.support.instrumentation_table --record langchain-openinference
    python -m tests.support.instrumentation_table

A program prints lines of JSON, as `tests.support.instrumented.report` does; the line of the case `invoke` counts:

    {"case": "invoke", "question": "...", "ids": [...], "contexts": [...], "answer": "<what the pipeline returned>",
     "citations": [...], "session": "...", "spans": [<Span._asdict()>, ...], "versions": {...}}

Agents that retrieve by a tool are recorded by `tests.support.record_agents`, each in an environment of its own.

`ids`, `contexts`, `citations` and `session` are null or absent where the pipeline has none. `claim` stands beside
`answer` where the answer's text is not the answer as a whole. `versions` is for programs in other languages.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple

from ragmon.ingest.spans.mapper import per_request, to_record
from ragmon.ingest.spans.span import Event, Mapped, Span, SpanOptions
from tests.support import recorded_agents

ROOT: Final = Path(__file__).parents[2]
RECORDINGS: Final = ROOT / "tests" / "data" / "instrumentations"
PAGE: Final = ROOT / "docs" / "integrations" / "instrumentations.md"
BEGIN, END = "<!-- table: python -m tests.support.instrumentation_table -->\n", "<!-- end of the table -->\n"
FIELDS: Final = ("question", "ids", "contexts", "answer", "citations", "session")
YES: Final = "yes"
ABSENT: Final = "–"
"""The spans do not carry it."""
UNREAD: Final = "no"
"""The spans carry it, and it is not read."""


class Instrumentation(NamedTuple):
    """One row of the table.

    Attributes:
        title: What the row is called: the framework, and whose instrumentation.
        packages: The distributions whose versions the row names, as pip or npm knows them.
        program: What `python -m` runs, with arguments; or a file that `node` runs.
        setting: What a user sets for it, in Markdown: variables of the instrumentation, keys of ragmon.toml.
        options: The options of `to_record` that the keys of ragmon.toml in `setting` stand for.
    """

    title: str
    packages: tuple[str, ...]
    program: tuple[str, ...]
    setting: str = ""
    options: Mapping[str, Any] = {}


_LANGCHAIN: Final = "tests.support.instrumented_langchain"
_LLAMA_INDEX: Final = "tests.support.instrumented_llama_index"
_HAYSTACK: Final = "tests.support.instrumented_haystack"
_OPENAI: Final = "tests.support.instrumented_openai"
INSTRUMENTATIONS: Final[dict[str, Instrumentation]] = {
    "langchain-openinference": Instrumentation(
        "LangChain, OpenInference",
        ("langchain-core", "openinference-instrumentation-langchain"),
        (_LANGCHAIN, "openinference"),
    ),
    "langchain-openllmetry": Instrumentation(
        "LangChain, OpenLLMetry",
        ("langchain-core", "opentelemetry-instrumentation-langchain"),
        (_LANGCHAIN, "openllmetry"),
    ),
    "llama-index-openinference": Instrumentation(
        "LlamaIndex, OpenInference",
        ("llama-index-core", "openinference-instrumentation-llama-index"),
        (_LLAMA_INDEX, "openinference"),
    ),
    "llama-index-openllmetry": Instrumentation(
        "LlamaIndex, OpenLLMetry",
        ("llama-index-core", "opentelemetry-instrumentation-llamaindex"),
        (_LLAMA_INDEX, "openllmetry"),
    ),
    "haystack": Instrumentation(
        "Haystack, its own tracer",
        ("haystack-ai", "opentelemetry-haystack"),
        (_HAYSTACK, "own"),
        "`HAYSTACK_CONTENT_TRACING_ENABLED=true`",
    ),
    "haystack-openinference": Instrumentation(
        "Haystack, OpenInference",
        ("haystack-ai", "openinference-instrumentation-haystack"),
        (_HAYSTACK, "openinference"),
    ),
    "openai-openinference": Instrumentation(
        "OpenAI's SDK, OpenInference: a call without retrieval",
        ("openai", "openinference-instrumentation-openai"),
        (_OPENAI, "openinference"),
    ),
    "openai-openllmetry": Instrumentation(
        "OpenAI's SDK, OpenLLMetry: a call without retrieval",
        ("openai", "opentelemetry-instrumentation-openai"),
        (_OPENAI, "openllmetry"),
    ),
    "mlflow": Instrumentation(
        "MLflow tracing",
        ("mlflow-tracing",),
        ("tests.support.instrumented_mlflow",),
        "`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`",
    ),
    "langfuse": Instrumentation("Langfuse", ("langfuse",), ("tests.support.instrumented_langfuse",)),
    "vercel": Instrumentation(
        "Vercel AI SDK, a tool that retrieves",
        ("ai", "@opentelemetry/sdk-trace-node"),
        ("tests/support/instrumented_vercel.mjs",),
        "`experimental_telemetry: { isEnabled: true }`",
    ),
    "vercel7": Instrumentation(
        "Vercel AI SDK 7, a tool that retrieves",
        ("ai", "@ai-sdk/otel"),
        ("tests/support/instrumented_vercel7.mjs",),
        "`new OpenTelemetry({ runtimeContext: true })`, `telemetry: { includeRuntimeContext: { sessionId: true } }`",
    ),
}
"""The rows by the name of their recording, in the order of the table."""
AGENTS: Final = {
    "pydantic_ai": "Pydantic AI, its own",
    "mcp": "Pydantic AI with an MCP server, their own",
    "openai_agents": "OpenAI Agents SDK, OpenInference",
    "smolagents": "smolagents, OpenInference",
    "agno": "Agno, OpenInference",
    "strands": "Strands, its own",
    "crewai": "CrewAI, OpenInference",
    "traceloop": "Traceloop SDK, `@task`",
    "dspy": "DSPy ReAct, OpenInference",
    "google_genai": "Google GenAI with a function, OpenInference",
    "langgraph": "LangGraph agent, OpenInference",
    "llama_index": "LlamaIndex FunctionAgent, OpenInference",
}
"""Rows of agents that retrieve by a tool: titles by the name of their recording in `tests.support.recorded_agents`."""


class Recording(NamedTuple):
    """What a program left.

    Attributes:
        versions: The versions of its packages.
        returned: What the pipeline returned, by the fields of the table.
        spans: The spans of the request.
    """

    versions: Mapping[str, str]
    returned: Mapping[str, Any]
    spans: list[Span]


def load(name: str) -> Recording:
    """The recording of a row."""
    content = json.loads((RECORDINGS / f"{name}.json").read_text(encoding="utf-8"))
    return Recording(content["versions"], content["returned"], [_span(span) for span in content["spans"]])


def _span(fields: dict[str, Any]) -> Span:
    return Span(**(fields | {"events": [Event(*event) for event in fields["events"]]}))


def run(name: str) -> Recording:
    """Run the program of a row with this interpreter, or with node.

    The SDK's limits and the instrumentations' switches are read from variables; the program sets those it needs.
    """
    row = INSTRUMENTATIONS[name]
    foreign = ("OTEL_", "OPENINFERENCE_", "TRACELOOP_", "HAYSTACK_", "MLFLOW_", "LANGFUSE_")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    in_node = row.program[0].endswith(".mjs")
    command = ["node", *row.program] if in_node else [sys.executable, "-m", *row.program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}\n{done.stderr}")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    printed = next(line for line in lines if line["case"] == "invoke")
    versions = printed.get("versions") or {package: version(package) for package in row.packages}
    returned = {field: printed.get(field) for field in FIELDS}
    returned["answer"] = printed.get("claim") or printed["answer"]
    return Recording(versions, returned, [_span(span) for span in printed["spans"]])


def node_modules(name: str) -> bool:
    """Whether the npm packages of a row are in the folder that `RAGMON_NODE_MODULES` names, in their major versions."""
    folder = Path(os.environ.get("RAGMON_NODE_MODULES", os.devnull))
    files = {package: folder / package / "package.json" for package in INSTRUMENTATIONS[name].packages}
    if not all(file.is_file() for file in files.values()):
        return False
    installed = {package: json.loads(file.read_text(encoding="utf-8"))["version"] for package, file in files.items()}
    recorded = load(name).versions
    return all(version.split(".")[0] == recorded[package].split(".")[0] for package, version in installed.items())


def save(name: str, recording: Recording) -> None:
    """Keep a recording."""
    spans = [
        span._asdict() | {"events": [[event.name, dict(event.attributes)] for event in span.events]}
        for span in recording.spans
    ]
    content = {"versions": recording.versions, "returned": recording.returned, "spans": spans}
    RECORDINGS.mkdir(exist_ok=True)
    (RECORDINGS / f"{name}.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def mapped(recording: Recording, options: Mapping[str, Any]) -> list[Mapped]:
    """What the spans are mapped to; a request is one record."""
    return [to_record(request, SpanOptions(**options)) for request in per_request(recording.spans)]


def cells(recording: Recording, options: Mapping[str, Any]) -> dict[str, str]:
    """What ragmon reads of each field: `YES`, `ABSENT`, `UNREAD`, or "" where the pipeline has none."""
    found = mapped(recording, options)
    record = found[0].record if len(found) == 1 else None
    answer = None if record is None else record.answer_json
    read = {
        "question": record and record.q,
        "ids": record and record.retrieved_ids,
        "contexts": record and record.contexts,
        "answer": answer and answer.claim,
        "citations": answer and answer.citations,
        "session": record and record.session,
    }
    written = json.dumps([[span.attributes, span.events] for span in recording.spans], ensure_ascii=False, default=dict)
    return {field: _cell(read[field], recording.returned[field], written) for field in FIELDS}


def _cell(read: Any, returned: Any, written: str) -> str:
    if returned is None:
        return ""
    if read == returned:
        return YES
    texts = [returned] if isinstance(returned, str) else returned
    # JSON in a text in JSON has one backslash more before each quotation mark and newline.
    return UNREAD if all(json.dumps(text, ensure_ascii=False)[1:-1] in written for text in texts) else ABSENT


def table() -> str:
    """The table, in Markdown."""
    lines = [f"| instrumentation | versions | setting | {' | '.join(FIELDS)} |", "|---" * (len(FIELDS) + 3) + "|"]
    for name, row in INSTRUMENTATIONS.items():
        recording = load(name)
        versions = ", ".join(f"{package} {recording.versions[package]}" for package in row.packages)
        columns = (row.title, versions, row.setting, *cells(recording, row.options).values())
        lines.append(f"| {' | '.join(columns)} |")
    for name, title in AGENTS.items():
        first = recorded_agents.questions(name)[0]
        recording = Recording(recorded_agents.versions(name), first.returned, first.spans)
        versions = ", ".join(f"{package} {version}" for package, version in recording.versions.items())
        lines.append(f"| {' | '.join((title, versions, '', *cells(recording, {}).values()))} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """The page with the table as it would be written."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main(arguments: list[str]) -> None:
    """Record the named rows, or write the table."""
    if arguments[:1] == ["--record"]:
        for name in arguments[1:]:
            save(name, run(name))
    else:
        PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
