"""Alerts on ragmon itself: whether it is up, receives records, loses records and runs the current configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ragmon.core import constants, series_names
from ragmon.export.rules import recording
from ragmon.export.rules.annotations import GATE_NAME, JOB, PAGE, TICKET, Writer
from ragmon.export.rules.file import Rule
from ragmon.export.rules.scopes import Deployments, RuleScope, pipelines

LOST: Final = 0.01
"""Share of lost records above which a ticket is due."""


def alerts(scopes: Sequence[RuleScope], of: Deployments, writer: Writer) -> list[Rule]:
    """Alerts on every fault that would silence the other alerts or make them wrong."""
    which = pipelines(scopes, constants.OTHER)
    return [
        *_reached(of, writer),
        _no_data(which, of, writer),
        *_records(of, writer),
        *_state(of, writer),
        _rules_stale(which, of, writer),
        writer.alert(
            "RagmonWatchdog",
            "vector(1)",
            "none",
            "Alerts of ragmon get through",
            "It fires always. Send it to something that calls when it is missing: then Prometheus or Alertmanager is "
            "dead.",
        ),
    ]


def _reached(of: Deployments, writer: Writer) -> list[Rule]:
    up, by = of.series("up", JOB), of.labels()
    return [
        writer.alert(
            "RagmonDown",
            f"max by ({by}) ({up}) == 0 or group by ({by}) (absent({up}))",
            PAGE,
            "Prometheus has not reached ragmon for five minutes",
            "No gate is judged and no alarm can fire until then. Producers keep what they can and count the rest.",
            pending="5m",
        ),
        writer.alert(
            "RagmonReplicaDown",
            f"{up} == 0 and on ({by}) {up} == 1",
            TICKET,
            "Prometheus has not reached ragmon at {{ $labels.instance }} for ten minutes",
            "The others go on; what this one was told is missing from every number until it is back.",
            pending="10m",
        ),
    ]


def _no_data(which: str, of: Deployments, writer: Writer) -> Rule:
    """No traffic makes no metric zero, so it needs an alert of its own.

    ragmon serves the gates of a configured pipeline from its start, and those of any other from its first record until
    the pipeline gives its place back. The range is short and the wait an hour: a Prometheus that was started a moment
    ago has not seen an hour without a request.
    """
    calls = of.series(f"{series_names.LATENCY}_count", f'source="{constants.LIVE}"', which)
    seen, by = of.total(calls, "15m", "pipeline"), of.labels("pipeline")
    expected = f"0 * group by ({by}) ({of.series(series_names.GATE_THRESHOLD, which)})"
    return writer.alert(
        "RagmonNoData",
        f"({seen} or {expected}) == 0",
        TICKET,
        "{{ $labels.pipeline }}: no request of a user for an hour",
        "Nobody asks, or nobody tells ragmon: see what its producers say, and `ragmon doctor`.",
        pending="1h",
    )


def _records(of: Deployments, writer: Writer) -> list[Rule]:
    """Alerts on records that wait, that are lost, and that are nowhere."""
    by = of.labels("stage", "instance")
    recent = f"time() - {of.series(series_names.LAST_SCORED)} < 900"
    received = of.series(series_names.RECEIVED)
    dropped = of.total(of.series(series_names.DROPPED), "15m", "stage")
    lost = of.total(of.series(series_names.PRODUCER_DROPPED), "15m")
    all_sent = f"({lost} + {of.total(received, '15m')})"
    return [
        writer.alert(
            "RagmonScoringStale",
            f"max by ({by}) ({of.series(series_names.PENDING)}) > 0 unless on ({of.labels('instance')}) {recent}",
            TICKET,
            "{{ $value }} records wait at {{ $labels.instance }}, and none was scored for 15 minutes",
            "What gates and alarms say is old. See the server's log, and `ragmon verify`.",
            pending="15m",
        ),
        writer.alert(
            "RagmonAccountingMismatch",
            f"{of.series(series_names.RESIDUAL)} != 0",
            TICKET,
            "{{ $value }} records of stage {{ $labels.stage }} are unaccounted for at {{ $labels.instance }}",
            "That is a bug in ragmon: received is not scored + ignored + dropped + duplicate + pending.",
            pending="15m",
        ),
        writer.alert(
            "RagmonRecordsDropped",
            f"{dropped} / {of.total(received, '15m', 'stage')} > {LOST:g}\n"
            f'or label_replace({lost} / {all_sent} > {LOST:g}, "stage", "producer", "", "")',
            TICKET,
            "{{ $value | humanizePercentage }} of the records of stage {{ $labels.stage }} are lost",
            "What is left may be no fair sample. The reasons: "
            f"`sum by (stage, reason) (increase({series_names.DROPPED}[15m]))`, and for stage producer "
            f"`sum by (reason) (increase({series_names.PRODUCER_DROPPED}[15m]))`.",
            pending="5m",
        ),
    ]


def _state(of: Deployments, writer: Writer) -> list[Rule]:
    """Alerts on the disk, the configuration in force, and names that found no place."""
    overflow = of.total(of.series(series_names.NAMES_OVERFLOW), "1h", "instance", "kind")
    return [
        writer.alert(
            "RagmonJournalNotWritable",
            f"{of.series(series_names.JOURNAL_WRITABLE)} == 0",
            PAGE,
            "ragmon at {{ $labels.instance }} cannot write its journal",
            "It takes no records, and producers begin to lose them. Is the disk full, or read-only? /readyz says why.",
            pending="2m",
        ),
        writer.alert(
            "RagmonConfigReloadFailed",
            f"{of.series(series_names.RELOADED)} == 0",
            TICKET,
            "ragmon at {{ $labels.instance }} runs on an older configuration than the one on disk",
            "`ragmon config check` names what is wrong with it. What ran before goes on.",
            pending="5m",
        ),
        writer.alert(
            "RagmonNamesOverflow",
            f"{overflow} > 0",
            TICKET,
            "{{ $labels.instance }}: {{ $value | humanize }} names of kind {{ $labels.kind }} had no place in an hour",
            "What came under it is counted together with others, as `__other__`. Does something put ids into names, or "
            "is `[serve] max_series` too small for the pipelines there are?",
            pending="15m",
        ),
    ]


def _rules_stale(which: str, of: Deployments, writer: Writer) -> Rule:
    """Alert when these rules were generated from another configuration than the one in force.

    A recorded threshold is there for every pipeline that has gates at all: a gate that ragmon serves no longer is
    missed by it.
    """
    labels = of.labels("pipeline", "gate")
    served = f"max by ({labels}) ({of.series(series_names.GATE_THRESHOLD, which)})"
    expected, on = of.series(recording.THRESHOLD, which), f"on ({labels})"
    return writer.alert(
        "RagmonRulesStale",
        f"{served} != {on} {expected}\nor {served} unless {on} {expected}\nor {expected} unless {on} {served}",
        TICKET,
        f"{GATE_NAME}: the rules and ragmon were configured differently",
        "Run `ragmon generate rules` with the ragmon.toml the server has, and load the result.",
        pending="15m",
    )


def stream_alerts(of: Deployments, writer: Writer) -> list[Rule]:
    """Alerts on a log that several processes count."""
    behind = of.series(series_names.PARTITION_BEHIND)
    lost = of.total(of.series(series_names.STREAM_LOST), "1h", "instance")
    chunks = of.series(series_names.CHUNKS, 'result=~"overlapping|unknown|damaged|returned"')
    return [
        writer.alert(
            "RagmonPartitionBehind",
            f"max by ({of.labels('partition')}) ({behind}) > 60",
            PAGE,
            "{{ $labels.partition }} has said nothing for {{ $value | humanizeDuration }}",
            "Alarms wait for it: until it speaks again, or `[stream] patience` is over, none of any pipeline can fire. "
            "Is there a worker for every partition?",
            pending="1m",
        ),
        writer.alert(
            "RagmonStreamIncomplete",
            f"{lost} > 0 or {of.total(chunks, '1h', 'instance')} > 0",
            TICKET,
            "{{ $value | humanize }} messages were never counted, or chunks were refused, in an hour",
            "A log was deleted before it was counted, or two versions of ragmon divide it in different ways: "
            f"`{series_names.STREAM_LOST}` and `{series_names.CHUNKS}` by result say which.",
            pending="5m",
        ),
        writer.alert(
            "RagmonStreamConfigsDiffer",
            f"{of.series(series_names.STREAM_CONFIGS)} > 1",
            TICKET,
            "Partitions are counted by {{ $value }} configurations at once",
            "While a change is rolled out that is so. When it lasts, a worker or a server has another ragmon.toml, "
            "other gold, or another version of ragmon.",
            pending="1h",
        ),
    ]
