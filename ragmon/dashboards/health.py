"""How the monitor itself fares: is every record accounted for, and can its numbers be trusted?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ragmon.config.settings import Settings
from ragmon.core import series_names
from ragmon.dashboards.frame import Frame
from ragmon.dashboards.panels import NUMBER, PER_MINUTE, PER_SECOND, SECONDS, STALE, Query, lines, number
from ragmon.dashboards.promql import at, per_minute, rate, worst
from ragmon.dashboards.tables import Label, Value, table

_YES = {"0": ("no", "red"), "1": ("yes", "green")}
_BYTES = "bytes"


def health(settings: Settings) -> Frame:
    """The dashboard."""
    frame = Frame(
        "health",
        "ragmon: health",
        "Is every record accounted for, what could not be judged, and does the monitor itself fare well?",
        settings,
        (),
    )
    frame.row("Now", [*_numbers()])
    frame.row("Accounting", [*_accounting()])
    frame.row("What could not be judged", [*_losses()])
    frame.row("Probes, judges, labels", [*_asked()])
    frame.row("The server", [*_server()])
    return frame


def _numbers() -> Iterator[Any]:
    residual = f"sum(abs({at(series_names.RESIDUAL)}))"
    says = "Records nobody can account for: received less scored, ignored, dropped, duplicate and pending. 0, or a bug."
    yield number("Unaccounted records", says, Query(residual, ""), NUMBER, limit=1)
    age = f"time() - min by (instance) ({at(series_names.LAST_SCORED)})"
    yield number(
        "Last scored", "How long ago a record was scored last.", Query(age, "{{instance}}"), SECONDS, limit=STALE
    )
    reloaded = Query(f"min({at(series_names.RELOADED)})", "")
    says = "Whether the configuration in force is the one on disk, everywhere."
    yield number("Configuration loaded", says, reloaded, NUMBER, look=_YES)
    writable = Query(f"min({at(series_names.JOURNAL_WRITABLE)})", "")
    yield number("Journal writable", "Records are refused where it is not.", writable, NUMBER, look=_YES)
    series = Query(f"sum({at(series_names.SERIES)})", "")
    yield number("Series", "Prometheus series of all replicas in one scrape.", series, NUMBER)
    yield number("Replicas", "How many answer.", Query(f"count({at(series_names.BUILD_INFO)})", ""), NUMBER)


def _accounting() -> Iterator[Any]:
    flows = (
        (series_names.RECEIVED, "received"),
        (series_names.RECORDS_SCORED, "scored"),
        (series_names.DUPLICATE, "duplicate"),
    )
    queries = [Query(rate(name, "stage"), f"{{{{stage}}}} {told}") for name, told in flows]
    says = "Records that came in, were counted, or were there already, a second, by stage."
    yield lines("Records", says, queries, PER_SECOND, many=True)
    queries = [
        Query(rate(name, "stage, reason"), f"{{{{stage}}}} {told}: {{{{reason}}}}")
        for name, told in ((series_names.IGNORED, "ignored"), (series_names.DROPPED, "dropped"))
    ]
    yield lines(
        "Ignored and dropped", "Records that are not RAG, and that were lost.", queries, PER_SECOND, stacked=True
    )
    pending = Query(f"sum by (stage) ({at(series_names.PENDING)})", "{{stage}}")
    yield lines("Pending", "Records that wait.", [pending], NUMBER)
    residual = Query(f"sum by (stage, instance) ({at(series_names.RESIDUAL)})", "{{stage}} {{instance}}")
    yield lines("Unaccounted records by stage", "0; anything else is a bug in ragmon.", [residual], NUMBER, floor=None)


def _losses() -> Iterator[Any]:
    query = Query(per_minute(series_names.UNASSESSED, "metric, reason", 'metric!~".+@.+"'), "{{metric}}: {{reason}}")
    says = (
        "Requests a metric is about that lack something it needs, by the reason, a minute. They are in no number. "
        "Metrics with a cut lack what they lack without it."
    )
    yield lines("Unassessed", says, [query], PER_MINUTE, width=24, many=True)
    queries = [
        Query(per_minute(series_names.PRODUCER_DROPPED, "reason"), "lost by producers: {{reason}}"),
        Query(per_minute(series_names.REFUSED, "reason"), "refused: {{reason}}"),
        Query(per_minute(series_names.SPANS_DROPPED, "reason"), "spans: {{reason}}"),
        Query(per_minute(series_names.ORPHANS, ""), "said outside of a call"),
        Query(per_minute(series_names.REDACTION_FAILURES, ""), "text withheld: a redactor failed"),
    ]
    says = "What never became a record, or came without its text, a minute."
    yield lines("Lost on the way", says, queries, PER_MINUTE)
    fields = Query(per_minute(series_names.FIELDS_UNKNOWN, "field, reason"), "{{field}}: {{reason}}")
    says = "Fields that spans of other instrumentations do not tell; `ragmon doctor` names the switch. A minute."
    yield lines("Fields unknown", says, [fields], PER_MINUTE)


def _asked() -> Iterator[Any]:
    probes = Query(per_minute(series_names.PROBES, "probe, result"), "{{probe}}: {{result}}")
    yield lines(
        "Probes", "Gold questions that were due, by what became of them, a minute.", [probes], PER_MINUTE, stacked=True
    )
    judges = Query(per_minute(series_names.JUDGE_CALLS, "judge, result"), "{{judge}}: {{result}}")
    yield lines(
        "Judge calls", "Requests before a judge, by what became of them, a minute.", [judges], PER_MINUTE, stacked=True
    )
    labels = Query(per_minute(series_names.LABELS, "result"), "{{result}}")
    yield lines("Labels", "Labels people gave, by what became of them, a minute.", [labels], PER_MINUTE, stacked=True)
    waiting = Query(f"sum({at(series_names.LABELS_WAITING)})", "waiting")
    yield lines("Labels that wait", "Labels whose answers have not come.", [waiting], NUMBER)


def _server() -> Iterator[Any]:
    size = Query(worst(series_names.JOURNAL_BYTES, "instance"), "{{instance}}")
    yield lines("Journal", "Bytes of the journal; `[serve] max_size` bounds it.", [size], _BYTES)
    missing = Query(f"sum({at(series_names.PRODUCER_MISSING)})", "missing")
    yield lines("Records missing", "Records that producers sent and that have not come.", [missing], NUMBER)
    queries = [
        Query(per_minute(series_names.STATE_RESETS, "instance"), "{{instance}} journals set aside"),
        Query(per_minute(series_names.CLOCK_JUMPS, "instance"), "{{instance}} jumps of the clock"),
    ]
    yield lines(
        "Accidents", "Damaged journals that were set aside, jumps of the system's clock, a minute.", queries, PER_MINUTE
    )
    columns: list[Label | Value] = [
        Label("instance", "instance"),
        Label("version", "version"),
        Value(worst(series_names.SERIES, "instance"), "series", NUMBER, 0),
        Value(worst(series_names.BUILD_INFO, "instance, version"), ""),
    ]
    yield table("Replicas and versions", "Who answers, in which version, with how many series.", columns, width=12)
