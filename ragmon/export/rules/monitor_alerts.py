"""Alerts on ragmon itself: whether it is up, receives records, loses records and runs the current configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ragmon.core import constants, series_names
from ragmon.export.promql import increase, one_of, selector
from ragmon.export.rules import recording
from ragmon.export.rules.annotations import JOB, PAGE, TICKET, UP, Writer
from ragmon.export.rules.file import Rule
from ragmon.export.rules.scopes import RuleScope, configured_names

LOST: Final = 0.01
"""Share of lost records above which a ticket is due."""
_BY_STAGE: Final = "sum by (stage) (increase({}[15m]))"


def alerts(scopes: Sequence[RuleScope], writer: Writer) -> list[Rule]:
    """Alerts on every fault that would silence the other alerts or make them wrong."""
    return [
        _down(writer),
        _replica(writer),
        _no_data(scopes, writer),
        _stale(writer),
        _books(writer),
        _dropped(writer),
        _journal(writer),
        _reload(writer),
        _names(writer),
        _partition(writer),
        _stream(writer),
        _configs(writer),
        _rules(scopes, writer),
        _watchdog(writer),
    ]


def _ticket(name: str, expr: str, texts: Mapping[str, str], pending: str, **labels: str) -> Rule:
    return Rule(name, expr, {"severity": TICKET, **labels}, texts, pending=pending, alert=True)


def _down(writer: Writer) -> Rule:
    texts = writer.of(
        "RagmonDown",
        "Prometheus has not reached ragmon for five minutes",
        "No gate is judged and no alarm can fire until it is back. Producers keep what they can and count the rest.",
    )
    return Rule("RagmonDown", f"absent({UP})", {"severity": PAGE}, texts, pending="5m", alert=True)


def _replica(writer: Writer) -> Rule:
    texts = writer.of(
        "RagmonReplicaDown",
        "Prometheus has not reached ragmon at {{ $labels.instance }} for ten minutes",
        "The others go on; what this one was told is missing from every number until it is back.",
    )
    return _ticket("RagmonReplicaDown", f'up{{job="{JOB}"}} == 0', texts, "10m")


def _no_data(scopes: Sequence[RuleScope], writer: Writer) -> Rule:
    """No traffic makes no metric zero, so it needs an alert of its own.

    A configured pipeline is expected from the start; any other is missed once it was there, until it gives its place
    back. What is counted together as `__other__` is no pipeline that anybody waits for. The range is short and the wait
    an hour: a Prometheus that was started a moment ago has not seen an hour without a request.
    """
    names = configured_names(scopes)
    which = one_of("pipeline", [constants.OTHER], others=True)
    if not any(scope.unnamed for scope in scopes):
        which = one_of("pipeline", names)
    where = selector(f"{series_names.LATENCY}_count", {"source": constants.LIVE}, which)
    seen = increase(where, "15m", "pipeline")
    expected = f"\n  or 0 * {recording.PIPELINES}{{{one_of('pipeline', names)}}}" if names else ""
    expr = f"(\n  {seen}{expected}\n) == 0\nand on () count({UP})"
    texts = writer.of(
        "RagmonNoData",
        "{{ $labels.pipeline }}: no request of a user for an hour",
        "Nobody asks, or nobody tells ragmon: see what its producers say, and `ragmon doctor`.",
        gated=True,
    )
    return _ticket("RagmonNoData", expr, texts, "1h")


def _stale(writer: Writer) -> Rule:
    expr = (
        f"max by (stage, instance) ({series_names.PENDING}) > 0\n"
        f"unless on (instance) time() - {series_names.LAST_SCORED} < 900"
    )
    texts = writer.of(
        "RagmonScoringStale",
        "{{ $value }} records wait at {{ $labels.instance }}, and none was scored for 15 minutes",
        "What gates and alarms say is old. See the server's log, and `ragmon verify`.",
    )
    return _ticket("RagmonScoringStale", expr, texts, "15m")


def _books(writer: Writer) -> Rule:
    texts = writer.of(
        "RagmonBooksDoNotClose",
        "{{ $value }} records of stage {{ $labels.stage }} are unaccounted for at {{ $labels.instance }}",
        "That is a bug in ragmon: received is not scored + ignored + dropped + duplicate + pending.",
    )
    return _ticket("RagmonBooksDoNotClose", f"{series_names.RESIDUAL} != 0", texts, "15m")


def _dropped(writer: Writer) -> Rule:
    producers = f'label_replace(sum(increase({series_names.PRODUCER_DROPPED}[15m])), "stage", "producer", "", "")'
    all_sent = f'label_replace(sum(increase({series_names.RECEIVED}[15m])), "stage", "producer", "", "")'
    expr = (
        f"{_BY_STAGE.format(series_names.DROPPED)} / {_BY_STAGE.format(series_names.RECEIVED)} > {LOST:g}\n"
        f"or {producers} / ({producers} + {all_sent}) > {LOST:g}"
    )
    texts = writer.of(
        "RagmonRecordsDropped",
        "{{ $value | humanizePercentage }} of the records of stage {{ $labels.stage }} are lost",
        "What is left may be no fair sample. The reasons: "
        f"`sum by (stage, reason) (increase({series_names.DROPPED}[15m]))`, and for stage producer "
        f"`sum by (reason) (increase({series_names.PRODUCER_DROPPED}[15m]))`.",
    )
    return _ticket("RagmonRecordsDropped", expr, texts, "5m")


def _journal(writer: Writer) -> Rule:
    texts = writer.of(
        "RagmonJournalNotWritable",
        "ragmon at {{ $labels.instance }} cannot write its journal",
        "It takes no records, and producers begin to lose them. Is the disk full, or read-only? /readyz says why.",
    )
    expr = f"{series_names.JOURNAL_WRITABLE} == 0"
    return Rule("RagmonJournalNotWritable", expr, {"severity": PAGE}, texts, pending="2m", alert=True)


def _reload(writer: Writer) -> Rule:
    texts = writer.of(
        "RagmonConfigReloadFailed",
        "ragmon at {{ $labels.instance }} runs on an older configuration than the one on disk",
        "`ragmon config check` names what is wrong with it. What ran before goes on.",
    )
    return _ticket("RagmonConfigReloadFailed", f"{series_names.RELOADED} == 0", texts, "5m")


def _names(writer: Writer) -> Rule:
    """Alert on names counted as `__other__`, because no gate of its own covers such traffic."""
    expr = f"sum by (instance, kind) (increase({series_names.NAMES_OVERFLOW}[1h])) > 0"
    texts = writer.of(
        "RagmonNamesOverflow",
        "{{ $labels.instance }}: {{ $value | humanize }} names of kind {{ $labels.kind }} found no place in an hour",
        "What came under it is counted together with others, as `__other__`. Does something put ids into names, or is "
        "`[serve] max_series` too small for the pipelines there are?",
    )
    return _ticket("RagmonNamesOverflow", expr, texts, "15m")


def _partition(writer: Writer) -> Rule:
    texts = writer.of(
        "RagmonPartitionBehind",
        "{{ $labels.partition }} has said nothing for {{ $value | humanizeDuration }}",
        "Alarms wait for it: until it speaks again, or `[stream] patience` is over, none of any pipeline can fire. Is "
        "the server that counts it up, or a worker for every partition?",
    )
    expr = f"max by (partition) ({series_names.PARTITION_BEHIND}) > 60"
    return Rule("RagmonPartitionBehind", expr, {"severity": PAGE}, texts, pending="1m", alert=True)


def _stream(writer: Writer) -> Rule:
    texts = writer.of(
        "RagmonStreamIncomplete",
        "{{ $value | humanize }} messages were never counted, or chunks were refused, in an hour",
        "A log was deleted before it was counted, two versions of ragmon divide it in different ways, or two servers "
        f"answer at one address: `{series_names.STREAM_LOST}` and `{series_names.CHUNKS}` by result say which.",
    )
    refused = f'increase({series_names.CHUNKS}{{result=~"overlapping|unknown|damaged|returned"}}[1h])'
    expr = f"sum by (instance) (increase({series_names.STREAM_LOST}[1h])) > 0\nor sum by (instance) ({refused}) > 0"
    return _ticket("RagmonStreamIncomplete", expr, texts, "5m")


def _configs(writer: Writer) -> Rule:
    texts = writer.of(
        "RagmonStreamConfigsDiffer",
        "Partitions are counted by {{ $value }} configurations at once",
        "While a change is rolled out that is so. When it lasts, a worker or a server has another ragmon.toml, other "
        "gold, or another version of ragmon.",
    )
    return _ticket("RagmonStreamConfigsDiffer", f"{series_names.STREAM_CONFIGS} > 1", texts, "1h")


def _rules(scopes: Sequence[RuleScope], writer: Writer) -> Rule:
    """Alert when these rules were generated from another configuration than the one in force.

    A gate that is not served is missed in a configured pipeline, and in any other that has gates at all.
    """
    names = configured_names(scopes)
    of_names = f"{recording.THRESHOLD}{{{one_of('pipeline', names)}}}" if names else ""
    everywhere = any(scope.unnamed for scope in scopes)
    which = "" if everywhere else f"{{{one_of('pipeline', names)}}}"
    served = f"max by (pipeline, gate) ({series_names.GATE_THRESHOLD}{which})"
    judged = f"({recording.THRESHOLD} and on (pipeline) {series_names.GATE_THRESHOLD})" if everywhere else ""
    due = " or ".join(part for part in (of_names, judged) if part)
    expr = (
        f"{served} != on (pipeline, gate) {recording.THRESHOLD}\n"
        f"or {served} unless on (pipeline, gate) {recording.THRESHOLD}\n"
        f"or (({due}) unless on (pipeline, gate) {served}) and on () count({UP})"
    )
    texts = writer.of(
        "RagmonRulesStale",
        "{{ $labels.pipeline }}/{{ $labels.gate }}: the rules and ragmon were configured differently",
        "Run `ragmon generate rules` with the ragmon.toml the server has, and load the result.",
        gated=True,
    )
    return _ticket("RagmonRulesStale", expr, texts, "15m")


def _watchdog(writer: Writer) -> Rule:
    texts = writer.of(
        "RagmonWatchdog",
        "Alerts of ragmon get through",
        "It fires always. Send it to something that calls when it is missing: then Prometheus or Alertmanager is dead.",
    )
    return Rule("RagmonWatchdog", "vector(1)", {"severity": "none"}, texts, alert=True)
