"""The generated tables of reference pages whose sentences are written by hand.

A page has two comments for each table, `<!-- generated: NAME -->` and `<!-- end -->`; what stands between them is
written by `make reference`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ragmon.cli.generate import SCHEMAS
from ragmon.config.load import BUILD, CONFIG, OVERRIDES, RESOURCE, SDK_DISABLED, SERVICE
from ragmon.core.constants import DISABLED, STRICT
from ragmon.core.http_server import CONNECTIONS, HANDSHAKE, LIMITS, LONGEST_ACK, PATIENCE
from ragmon.core.json_schema import Schema
from ragmon.export.families import (
    CHUNKS,
    CLOCK_JUMPS,
    DOCUMENTS,
    FAMILIES,
    FIELDS_UNKNOWN,
    GATE_ALARM,
    GATE_BASELINE,
    GATE_EVIDENCE,
    GATE_LOWER,
    GATE_SAMPLES,
    GATE_STATUS,
    GATE_THRESHOLD,
    GATE_UNKNOWN,
    GATE_UPPER,
    GATE_VALUE,
    GOLD_ITEMS,
    GOLD_ITEMS_SEEN,
    GOLD_LOWER,
    GOLD_N_EFF,
    GOLD_UPPER,
    JOURNAL_BYTES,
    JOURNAL_WRITABLE,
    LABELS_WAITING,
    LOWER,
    PARTITION_BEHIND,
    PENDING,
    PPI,
    PPI_LOWER,
    PPI_UPPER,
    PROBE_RECORDS,
    PROBES,
    PRODUCER_DROPPED,
    PRODUCER_MISSING,
    PROXY_GAIN,
    REFUSED,
    RELOADED,
    RESIDUAL,
    SAMPLES,
    SCORE,
    SCORED,
    SERIES,
    SLICE_SCORE,
    SLICE_SQUARES,
    SQUARES,
    STATE_RESETS,
    STREAM_CONFIGS,
    STREAM_LOST,
    UPPER,
    VALUE,
    WATERMARK,
    Family,
    SeriesScope,
)
from ragmon.ingest.otlp import MAX_ITEMS, MAX_MESSAGES
from ragmon.ingest.receiver import LABELS
from ragmon.metrics import families
from ragmon.metrics.facts import Facts

_PART: Final = re.compile(r"(<!-- generated: ([a-z_]+) -->\n).*?(<!-- end -->)", re.DOTALL)
ENDINGS: Final = (
    VALUE,
    LOWER,
    UPPER,
    SAMPLES,
    SCORE,
    SCORED,
    SQUARES,
    PPI,
    PPI_LOWER,
    PPI_UPPER,
)
SERVER_ONLY: Final = (
    REFUSED,
    PRODUCER_DROPPED,
    PRODUCER_MISSING,
    FIELDS_UNKNOWN,
    PROBES,
    PROBE_RECORDS,
    STATE_RESETS,
    CLOCK_JUMPS,
    JOURNAL_BYTES,
    JOURNAL_WRITABLE,
)
"""Families that only a server has; a test compares them with what a server shows."""
HEAD_ONLY: Final = (
    WATERMARK,
    PARTITION_BEHIND,
    CHUNKS,
    STREAM_LOST,
    STREAM_CONFIGS,
)
"""Families that only a server has that adds up what others count."""
_GROUPS: Final[Mapping[str, tuple[SeriesScope, ...]]] = {
    "traffic": (SeriesScope.STRATUM, SeriesScope.ERROR, SeriesScope.SOURCE),
    "gates": (SeriesScope.GATE, SeriesScope.ALARM, SeriesScope.BASELINE),
    "gold": (SeriesScope.GATED_WINDOW, SeriesScope.GOLD_WINDOW, SeriesScope.GOLD, SeriesScope.MATCHING),
    "details": (
        SeriesScope.SLICE,
        SeriesScope.METRIC,
        SeriesScope.PREDICTION,
        SeriesScope.BUILD,
        SeriesScope.JUDGE,
    ),
    "monitor": (SeriesScope.MONITOR,),
}
_UNITS: Final[Mapping[str, str]] = {
    DOCUMENTS: "documents",
    SLICE_SCORE: "sum of scores",
    SLICE_SQUARES: "sum of squared scores",
    PROXY_GAIN: "labels per label",
    GATE_THRESHOLD: "as the gate's value",
    GATE_VALUE: "share; ratio or number for gates on latency and index",
    GATE_LOWER: "as the gate's value",
    GATE_UPPER: "as the gate's value",
    GATE_SAMPLES: "requests",
    GATE_UNKNOWN: "requests",
    GATE_STATUS: "0 or 1",
    GATE_ALARM: "0 or 1",
    GATE_EVIDENCE: "0 to 1",
    GATE_BASELINE: "as the alarm's metric",
    GOLD_LOWER: "share",
    GOLD_UPPER: "share",
    GOLD_N_EFF: "samples",
    GOLD_ITEMS: "items",
    GOLD_ITEMS_SEEN: "items",
    PENDING: "records",
    RESIDUAL: "records",
    PRODUCER_MISSING: "records",
    LABELS_WAITING: "labels",
    RELOADED: "0 or 1",
    JOURNAL_WRITABLE: "0 or 1",
    SERIES: "series",
    STREAM_CONFIGS: "configurations",
}
"""Units that no ending of a name tells."""
_UNIT_OF_ENDING: Final = {
    "_timestamp_seconds": "seconds since 1970",
    "_seconds": "seconds",
    "_bytes": "bytes",
    "_ratio": "share, 0 to 1",
    "_info": "always 1",
    "_total": "count",
}


def filled(page: str) -> str:
    """A page with its tables made anew."""
    return _PART.sub(lambda part: f"{part[1]}\n{TABLES[part[2]]()}\n{part[3]}", page)


def kind_of(family: Family) -> str:
    """The Prometheus type of a family."""
    return "histogram" if family.bounds else "counter" if family.endswith("_total") else "gauge"


def unit_of(family: Family) -> str:
    """The unit of a family, in words."""
    if family in _UNITS:
        return _UNITS[family]
    return next(unit for ending, unit in _UNIT_OF_ENDING.items() if family.endswith(ending))


def _endings() -> str:
    units = (
        ["share, 0 to 1"] * 3 + ["requests", "sum of scores", "count", "sum of squared scores"] + ["share, 0 to 1"] * 3
    )
    rows = (
        (f"`rag_<metric>{ending}`", _help(ending.text), f"{kind_of(ending)}: {unit}", _labels(ending))
        for ending, unit in zip(ENDINGS, units, strict=True)
    )
    return _table(("series", "HELP", "type: unit", "labels"), rows)


def _help(text: str) -> str:
    return text.replace("{name}", "`rag_<metric>`").replace("{help}", "The first line of the metric's description")


def _metric_rows() -> Iterator[tuple[str, ...]]:
    for name, family in sorted(families().items()):
        gate = family.default_gate
        notes = (
            "lower is better" if family.better == "lower" else "",
            "gold" if family.needs_gold else "",
            "`k`" if family.at_k else "",
            "" if family.binary else "squares",
            f"gate {'≥' if gate[0] == 'at_least' else '≤'} {gate[1]:g}" if gate else "",
        )
        yield f"`rag_{name}`", family().help, ", ".join(filter(None, notes))


def _metrics() -> str:
    return _table(("series", "HELP", "notes"), _metric_rows())


def _families_of(scopes: Iterable[SeriesScope], among: Iterable[Family]) -> str:
    found = [family for scope in scopes for family in among if family.scope is scope]
    rows = ((f"`{f}`", f.text, f"{kind_of(f)}: {unit_of(f)}", _labels(f)) for f in found)
    return _table(("family", "HELP", "type: unit", "labels"), rows)


def _group(name: str) -> str:
    among = [family for family in FAMILIES if family not in (*ENDINGS, *SERVER_ONLY, *HEAD_ONLY)]
    return _families_of(_GROUPS[name], among)


def _buckets() -> str:
    rows = ((f"`{f}`", ", ".join(f"{bound:g}" for bound in f.bounds) + ", +Inf") for f in FAMILIES if f.bounds)
    return _table(("family", "bounds"), rows)


def _server() -> str:
    return _families_of(dict.fromkeys(family.scope for family in SERVER_ONLY), SERVER_ONLY)


def _head() -> str:
    return _families_of(dict.fromkeys(family.scope for family in HEAD_ONLY), HEAD_ONLY)


def _labels(family: Family) -> str:
    names = tuple(name for name in (*family.labels, "le") if name != "le" or family.bounds)
    return ", ".join(f"`{name}`" for name in names)


def _fact_rows() -> Iterator[tuple[str, str]]:
    for name, member in vars(Facts).items():
        if isinstance(member, property):
            yield f"`{name}`", (member.__doc__ or "").splitlines()[0]


def _facts() -> str:
    return _table(("property", "what it says"), _fact_rows())


def _fields(schema: str, name: str, *, nulls: bool = False) -> str:
    """The members of one object of a schema."""
    found = SCHEMAS[schema]()["$defs"][name]
    required = found.get("required", [])
    rows = (
        (
            f"`{member}`{' (required)' if member in required else ''}",
            type_of(inner, nulls=nulls),
            inner.get("description", ""),
        )
        for member, inner in found["properties"].items()
    )
    return _table(("member", "type", "what it is"), rows)


_NAMES: Final = {"number": "number", "integer": "whole number", "string": "text", "boolean": "true or false"}


def type_of(schema: Schema, *, nulls: bool = False) -> str:
    """The type of a schema in words."""
    return " or ".join(word for word in dict.fromkeys(_types(schema)) if word != "null" or nulls) or "absent"


def _types(schema: Schema) -> Iterator[str]:
    if "const" in schema:
        yield f"`{json.dumps(schema['const'])}`"
    elif "enum" in schema:
        yield ", ".join(f"`{value}`" for value in schema["enum"] if value is not None)
    elif "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield f"[{name}](#{name.lower()})" if name in LINKED else f"`{name}`"
    elif "anyOf" in schema:
        for each in schema["anyOf"]:
            yield from _types(each)
    elif "type" in schema:
        kinds = schema["type"]
        yield from (_kind(kind, schema) for kind in ([kinds] if isinstance(kinds, str) else kinds))
    elif "not" not in schema:
        yield from ("text", "anything else, which is passed over")


def _kind(kind: str, schema: Mapping[str, Any]) -> str:
    if kind == "array":
        return f"list of {type_of(schema['items'])}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {type_of(schema['additionalProperties'])}"
    return _NAMES.get(kind, kind)


LINKED: Final = ("Answer", "Sampling", "TextFacts", "SeriesSummary", "MetricSummary", "GateSummary")
"""Objects that have a section of their own on the page."""
_EXPLAINED: Final = {
    CONFIG: "The configuration file, where no `--config` and no argument names one.",
    BUILD: "The build of the application, for all records of the process.",
    RESOURCE: "`service.version` is the build where `RAGMON_BUILD` is not set; `service.name` is the service where"
    " `OTEL_SERVICE_NAME` is not set.",
    SERVICE: "The name of the service, and of the pipeline where ragmon.toml names none.",
    SDK_DISABLED: "`true` switches ragmon off, where `RAGMON_DISABLED` is not set.",
    DISABLED: "`1` switches ragmon off: decorators return functions unchanged. `0` does not.",
    STRICT: "`1`: `ragmon.install` raises errors instead of warning of them.",
    "NO_COLOR": "Any value: no colour on a terminal.",
}


def _limits() -> str:
    rows = (
        ("headers", f"{LIMITS.header >> 10} KiB", "431"),
        ("body, as sent", f"{LIMITS.wire >> 20} MiB", "413"),
        ("body, decompressed", f"{LIMITS.inflated >> 20} MiB", "413"),
        (
            "body, decompressed, against as sent",
            f"{LIMITS.ratio} times, where it is larger than {LIMITS.free >> 20} MiB",
            "413",
        ),
        ("spans or points in a request", f"{MAX_ITEMS:,}", "413"),
        ("messages of any kind in it, two for an attribute", f"{MAX_MESSAGES:,}", "413"),
        ("labels in a request", f"{LABELS:,}", "413"),
        ("body of an acknowledgement", f"{LONGEST_ACK >> 10} KiB", "413"),
        ("time for the body to come", f"{LIMITS.deadline:g} s", "408"),
        ("requests in flight, a port", f"{LIMITS.in_flight}", "429"),
        (
            "bodies of all requests of a port together",
            f"{LIMITS.memory >> 20} MiB, and a sixth of it for small ones",
            "429",
        ),
        (
            f"requests of more than {LIMITS.small >> 10} KiB that are read at once, a port",
            f"{LIMITS.turns}; the others wait {LIMITS.deadline:g} s at most",
            "429",
        ),
        ("connections, a port", f"{CONNECTIONS}, less where the process may open few files", "closed"),
        ("time of a connection without a request, headers of the next one included", f"{PATIENCE:g} s", "closed"),
        ("time for a TLS handshake", f"{HANDSHAKE:g} s", "closed"),
    )
    return _table(("what", "at most", "beyond it"), rows)


def _environment() -> str:
    rows = [(f"`{name}`", text) for name, text in _EXPLAINED.items()]
    for name, (table, key) in OVERRIDES.items():
        where = "." if table == "serve" else ", at the top and in every pipeline."
        log = " The trace log of `[export] jsonl` is not written then." if key == "endpoint" else ""
        rows.append((f"`{name}`", f"Overrides `[{table}] {key}`{where}{log}"))
    return _table(("variable", "what it does"), rows)


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


TABLES: Final = {
    "endings": _endings,
    "metrics": _metrics,
    **{name: (lambda name=name: _group(name)) for name in _GROUPS},
    "buckets": _buckets,
    "server": _server,
    "head": _head,
    "facts": _facts,
    "record": lambda: _fields("trace", "Record"),
    "answer": lambda: _fields("trace", "Answer"),
    "sampling": lambda: _fields("trace", "Sampling"),
    "text_facts": lambda: _fields("trace", "TextFacts"),
    "totals": lambda: _fields("trace", "Totals"),
    "label": lambda: _fields("trace", "Label"),
    "gold_item": lambda: _fields("gold", "GoldItem"),
    "report": lambda: _fields("report", "ReportData", nulls=True),
    "series": lambda: _fields("report", "SeriesSummary", nulls=True),
    "metric": lambda: _fields("report", "MetricSummary", nulls=True),
    "gate": lambda: _fields("report", "GateSummary", nulls=True),
    "limits": _limits,
    "environment": _environment,
}
