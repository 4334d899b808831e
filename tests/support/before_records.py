"""The trace log's line of every shape that a call has, of every recorded span, and of cases.

What a program under `@ragmon.trace` leaves in `[export] jsonl` is the outermost place where a whole record stands.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.before import ROOT, environment
from tests.support.many_commands import Run, run_all

DATA = ROOT / "tests" / "data"
SHARED = ROOT.parent / "shared"

CONFIGURATION = """
[sampling]
rate = 1.0
[capture]
content = "{content}"
gold = "gold.jsonl"
hash_key_file = "key"
[export]
jsonl = "traces.jsonl"
[serve]
admin = "127.0.0.1:0"
"""
GOLD = {"qid": "a1", "question": "Is it?", "answerable": True, "gold_claim_substr": ["yes"], "gold_citations": ["d1"]}
POLICIES = ("full", "none", "hash", "redacted")
IDS = ("trace_id", "parent_span_id")


def shapes(folder: Path, module: str, content: str) -> dict[str, Any]:
    """`records/MODULE-CONTENT`: the lines of every shape in a module, with `[capture] content` as given.

    Args:
        folder: A folder for this alone.
        module: Of `tests.support`, such as `shapes_plain`.
        content: A policy.
    """
    folder = new(folder, f"{module}-{content}")
    _configure(folder, content)
    said = json.loads(_program(folder, "shapes_program.py", module))
    lines, totals = _log(folder / "traces.jsonl")
    found: dict[str, Any] = {"(labels)": lines.get("label", [])}
    for name in said["shapes"]:
        found[name] = {"lines": lines.get(name, []), "totals": totals.get(name), "raised": said["raised"].get(name)}
    return {f"records/{module.removeprefix('shapes_')}-{content}": found}


def new(folder: Path, name: str) -> Path:
    """A new folder in a folder."""
    (folder / name).mkdir()
    return folder / name


def _configure(folder: Path, content: str) -> None:
    (folder / "ragmon.toml").write_text(CONFIGURATION.format(content=content), encoding="utf-8")
    (folder / "gold.jsonl").write_text(json.dumps(GOLD), encoding="utf-8")
    (folder / "key").write_text("a key of more than sixteen bytes", encoding="ascii")


def _program(folder: Path, name: str, *arguments: str, say: str = "") -> str:
    """What a program of `tests/support` prints that uses ragmon under test; its warnings are not looked at."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(ROOT / "tests" / "support" / name), *arguments],
        cwd=folder,
        env=environment(TMPDIR=str(folder)),
        input=say,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    return done.stdout


def _log(path: Path) -> tuple[dict[str, list[Any]], dict[str, dict[str, Any]]]:
    """The lines of a trace log by pipeline, without what differs from run to run; and the last counts of calls."""
    lines: dict[str, list[Any]] = {}
    totals: dict[str, dict[str, Any]] = {}
    for line in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        if line.get("kind") == "totals":
            counts = {name: line[name] for name in ("calls", "kept", "dropped") if name in line}
            totals.setdefault(line["pipeline"], {})[f"{line['source']} {line['stratum']}"] = counts
        else:
            lines.setdefault(line.get("pipeline", line.get("kind")), []).append(same(line))
    return lines, totals


def same(line: dict[str, Any]) -> dict[str, Any]:
    """A line with times, ids and durations replaced by what they are; long texts by their beginning and length."""
    kept = {name: _cut(value) for name, value in line.items() if name != "ts"}
    kept |= {name: f"({name})" for name in IDS if name in kept}
    if "latency_ms" in kept:
        kept["latency_ms"] = dict.fromkeys(kept["latency_ms"], "(ms)")
    return kept


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > 2000:
        return [value[:200], len(value)]
    if isinstance(value, list):
        return [*map(_cut, value[:40]), *([len(value)] if len(value) > 40 else [])]
    return {name: _cut(inner) for name, inner in value.items()} if isinstance(value, dict) else value


# --- spans ------------------------------------------------------------------------------------------------------------


def recordings() -> dict[str, Any]:
    """Export requests in OTLP's JSON by where they come from: all recorded spans, and the cases where they are."""
    found: dict[str, list[Any]] = {}
    for path in sorted((DATA / "spans").glob("*.json")):
        found[f"spans/{path.stem}"] = [request([_of_sdk(span) for span in _json(path)])]
    for path in sorted((DATA / "wire" / "instrumentations").glob("*.json")):
        found[f"instrumentations/{path.stem}"] = [request(_json(path)["spans"])]
    for path in sorted((DATA / "wire" / "agents").glob("*.jsonl.gz")):
        lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()[1:]]
        found[f"agents/{path.name.partition('.')[0]}"] = [body for line in lines for body in line["requests"]]
    return found


def cases() -> dict[str, Any]:
    """Export requests of the cases in spans, by name; empty where the cases are not."""
    found = {}
    for path in sorted((SHARED / "cases" / "spans").glob("*.json")):
        told = _json(path)
        found[path.stem] = [told[name] for name in ("traces", "first", "second") if name in told]
    return found


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _of_sdk(told: dict[str, Any]) -> dict[str, Any]:
    """A span as OpenTelemetry's SDK writes it, in plain dicts."""
    return {
        "trace_id": told["context"]["trace_id"].removeprefix("0x"),
        "span_id": told["context"]["span_id"].removeprefix("0x"),
        "parent_id": (told["parent_id"] or "").removeprefix("0x") or None,
        "name": told["name"],
        "start_ns": _nanoseconds(told["start_time"]),
        "end_ns": _nanoseconds(told["end_time"]),
        "attributes": told["attributes"],
        "events": [(event["name"], event["attributes"]) for event in told["events"]],
        "failed": told["status"]["status_code"] == "ERROR",
        "scope": told["instrumentation_scope"],
    }


def _nanoseconds(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return int(moment.timestamp()) * 1_000_000_000 + moment.microsecond * 1000


def request(spans: list[dict[str, Any]]) -> dict[str, Any]:
    """An export request in OTLP's JSON."""
    scopes = [
        {"scope": dict(zip(("name", "version"), span["scope"].split("@"), strict=False)), "spans": [_otlp(span)]}
        for span in spans
    ]
    return {"resourceSpans": [{"resource": {"attributes": _pairs({"service.name": "app"})}, "scopeSpans": scopes}]}


def _otlp(span: dict[str, Any]) -> dict[str, Any]:
    return {
        "traceId": span["trace_id"],
        "spanId": span["span_id"],
        "parentSpanId": span["parent_id"] or "",
        "name": span["name"],
        "startTimeUnixNano": str(span["start_ns"]),
        "endTimeUnixNano": str(span["end_ns"]),
        "attributes": _pairs(span["attributes"]),
        "events": [{"name": name, "attributes": _pairs(held)} for name, held in span["events"]],
        "status": {"code": 2 if span["failed"] else 0},
    }


def _pairs(held: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _any_value(value)} for key, value in held.items()]


def _any_value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list | tuple):
        return {"arrayValue": {"values": [_any_value(inner) for inner in value]}}
    return {"stringValue": str(value)}


def _spans(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The spans of an export request, in plain dicts."""
    for process in body["resourceSpans"]:
        for scope in process["scopeSpans"]:
            for span in scope["spans"]:
                events = span.get("events", [])
                yield {
                    "trace_id": span["traceId"],
                    "span_id": span["spanId"],
                    "parent_id": span.get("parentSpanId") or None,
                    "name": span["name"],
                    "start_ns": int(span["startTimeUnixNano"]),
                    "end_ns": int(span["endTimeUnixNano"]),
                    "attributes": _held(span.get("attributes", [])),
                    "events": [(event["name"], _held(event.get("attributes", []))) for event in events],
                    "failed": span.get("status", {}).get("code") in (2, "STATUS_CODE_ERROR"),
                    "scope": scope.get("scope", {}).get("name", ""),
                }


def _held(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    return {pair["key"]: _value(pair["value"]) for pair in pairs}


def _value(value: dict[str, Any]) -> Any:
    ((kind, held),) = value.items() if value else (("stringValue", ""),)
    if kind == "arrayValue":
        return [_value(inner) for inner in held.get("values", [])]
    if kind == "kvlistValue":
        return json.dumps(_held(held.get("values", [])))
    return int(held) if kind == "intValue" else held


def trace_ids(bodies: list[dict[str, Any]]) -> list[str]:
    """The ids of all traces in some requests, as they come."""
    return list(dict.fromkeys(span["trace_id"] for body in bodies for span in _spans(body)))


def provided(folder: Path, sources: dict[str, list[Any]]) -> dict[str, Any]:
    """The trace log's lines where the spans end in the application itself, by source.

    Args:
        folder: A folder for this alone.
        sources: What `recordings` and `cases` return.
    """
    _configure(folder, "full")
    groups = [[span for body in bodies for span in _spans(body)] for bodies in sources.values()]
    _program(folder, "spans_program.py", say=json.dumps(groups))
    lines = [json.loads(line) for line in (folder / "traces.jsonl").read_text(encoding="utf-8").splitlines()]
    return {
        name: [line for line in lines if line.get("trace_id") in trace_ids(bodies) and line.get("kind") is None]
        for name, bodies in sources.items()
    }


def shown(folder: Path, sources: dict[str, list[Any]]) -> dict[str, Any]:
    """What `ragmon show` says of each trace in a file of export requests, by source.

    Args:
        folder: A folder for this alone.
        sources: As for `provided`.
    """
    _configure(folder, "full")
    runs = {}
    for number, (name, bodies) in enumerate(sources.items()):
        (folder / f"{number}.jsonl").write_text("".join(json.dumps(body) + "\n" for body in bodies), encoding="utf-8")
        for trace in trace_ids(bodies):
            runs[name, trace] = Run(["show", trace, f"{number}.jsonl", "--format", "json"])
    found: dict[str, Any] = {name: {} for name in sources}
    for (name, trace), said in zip(runs, run_all(folder, list(runs.values())), strict=True):
        found[name][trace] = json.loads(said["out"]) if said["code"] == 0 else said
    return found


def spans(folder: Path) -> dict[str, Any]:
    """`records/recorded-spans` and `-shown`: every recorded span, as the application and as a file brings it."""
    sources = recordings()
    return {
        "records/recorded-spans": provided(new(folder, "provided"), sources),
        "records/recorded-spans-shown": shown(new(folder, "shown"), sources),
    }


def span_cases(folder: Path) -> dict[str, Any]:
    """`records/cases`: the same of the cases in spans."""
    sources = cases()
    log, said = (make(new(folder, make.__name__), sources) for make in (provided, shown))
    return {"records/cases": {name: {"log": log[name], "shown": said[name]} for name in sources}}


# --- cases in files and in programs -----------------------------------------------------------------------------------

PROGRAMS = (
    *(("json-as-text/app.py", mode) for mode in ("dict", "text", "fence", "inner")),
    *(("thinking/app.py", mode) for mode in ("none", "think", "think-open")),
    *(("streams/app.py", mode) for mode in ("plain", "sse", "sse-json", "sse-openai", "ndjson", "vercel")),
    ("thinking/spans.py", ""),
    ("unreadable-field/props.py", ""),
    ("pickling/pickles.py", ""),
)
"""Programs of cases that need no package that is absent, and print the same on every run."""


def file_cases(folder: Path) -> dict[str, Any]:
    """`records/file-cases`: reports of the cases in texts and tables, and what gold commands say of theirs.

    Args:
        folder: An empty folder.
    """
    runs = {}
    for kind in ("text", "tables"):
        for case in sorted((SHARED / "cases" / kind).glob("*")):
            copied = folder / case.name
            shutil.copytree(case, copied)
            for path in sorted(copied.iterdir()):
                for name, arguments in _asked_of(path, folder):
                    runs[f"{kind}/{path.relative_to(folder)}: {name}"] = Run(arguments)
    said = run_all(folder, list(runs.values()))
    return {"records/file-cases": {name: _parsed(answer) for name, answer in zip(runs, said, strict=True)}}


def _asked_of(path: Path, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """The commands for a file of a case: of gold, or of traces with the gold beside them."""
    name, config = str(path.relative_to(folder)), path.with_name("ragmon.toml")
    if path.suffix in (".py", ".toml", ".yml"):
        return
    if path.parent.name == "gold":
        yield "lint", ["gold", "lint", name]
        yield "from-table", ["gold", "from-table", name, "--empty-reference", "unanswerable"]
    elif "gold" not in path.name:
        golds = [path.with_name(f"{path.stem}.gold.jsonl"), path.with_name("gold.jsonl")]
        gold = [f"--gold={found.relative_to(folder)}" for found in golds if found.exists()][:1]
        config_options = ["-c", str(config.relative_to(folder))] if config.exists() else []
        yield "replay", ["replay", name, "--format", "json", *gold, *config_options]
        yield "gate", ["gate", name, *gold, *config_options]


def _parsed(answer: dict[str, Any]) -> dict[str, Any]:
    out = answer["out"]
    return answer | {"out": json.loads(out) if out.startswith("{\n") else out.splitlines()}


def program_cases(folder: Path) -> dict[str, Any]:
    """`records/program-cases`: what programs of cases print.

    Args:
        folder: An empty folder.
    """
    shutil.copytree(SHARED / "cases" / "capture", folder / "capture")
    found = {}
    for program, mode in PROGRAMS:
        path = folder / "capture" / program
        done = subprocess.run(
            [sys.executable, "-W", "ignore", path.name, *([mode] if mode else [])],
            cwd=path.parent,
            env=environment(PYTHONSAFEPATH="", TMPDIR=str(folder)) | _path(folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=False,
        )
        found[f"{program} {mode}".strip()] = {"code": done.returncode, "out": done.stdout.splitlines()}
    return {"records/program-cases": found}


def _path(folder: Path) -> dict[str, str]:
    """Where the helper of the cases is found, behind what the interpreter is told anyway."""
    given = environment().get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join(filter(None, (given, str(folder / "capture"))))}


SUBJECTS: dict[str, Callable[[Path, Path], dict[str, Any]]] = {
    f"{module}-{content}": partial(shapes, module=module, content=content)
    for module in ("shapes_plain", "shapes_calls", "shapes_frameworks")
    for content in (POLICIES if module == "shapes_plain" else POLICIES[:2])
}
SUBJECTS["spans"] = spans
CASES: dict[str, Callable[[Path, Path], dict[str, Any]]] = {
    "span cases": span_cases,
    "file cases": file_cases,
    "program cases": program_cases,
}
"""Subjects whose inputs lie beside this repository, or nowhere."""
