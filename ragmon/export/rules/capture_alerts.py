"""One ticket for each pipeline whose gates cannot be judged for want of what its records lack, with the remedy.

What is not captured pages nobody: it is unknown, not wrong. A gate on citations in a pipeline that never cites does not
apply, has none of the statuses, and so is in no ticket.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ragmon.core import constants, series_names
from ragmon.core.policy import MIN_SAMPLES, Gate
from ragmon.export.promql import one_of, selector
from ragmon.export.rules import recording
from ragmon.export.rules.annotations import TICKET, Writer
from ragmon.export.rules.file import Rule
from ragmon.export.rules.scopes import RuleScope
from ragmon.gates import needs
from ragmon.gates.captured import FEW, HALF
from ragmon.gates.remedies import Gap, remedy
from ragmon.metrics.base import parse
from ragmon.scoring.captured import FIRST

ALERT: Final = "RagmonCaptureGap"
REASONS: Final = (
    constants.NO_IDS,
    constants.NO_CITATIONS,
    constants.NO_TEXT,
    constants.NO_ANSWER,
    constants.NO_LATENCY,
)
"""Reasons why requests cannot be assessed that this ticket is about."""
UNKNOWN: Final = "pipeline_gate:ragmon_gate_unknown:sum"
_FIELDS: Final = (needs.QUESTION, needs.ANSWER, needs.IDS, needs.CONTEXTS, needs.CITATIONS, needs.LATENCY)
"""Fields that the application, or a setting, can bring into every record."""
_UNDECIDED: Final = f'max by (pipeline, gate) ({series_names.GATE_STATUS}{{status="insufficient"}}) == 1'


def recordings() -> list[Rule]:
    """Requests of each gate, over all replicas, whose score is unknown."""
    return [Rule(UNKNOWN, f"sum by (pipeline, gate) ({series_names.GATE_UNKNOWN})")]


def alerts(scopes: Sequence[RuleScope], writer: Writer) -> list[Rule]:
    """The ticket, where there is a gate that could lack something."""
    gates = [gate for scope in scopes for gate in scope.share_gates]
    return [_ticket(scopes, gates, writer)] if gates else []


def _ticket(scopes: Sequence[RuleScope], gates: Sequence[Gate], writer: Writer) -> Rule:
    every = f"({recording.SAMPLES} + {UNKNOWN})"
    unassessable = (
        f"max by (pipeline) (\n"
        f"  {UNKNOWN} / {every} > {FEW:g}\n"
        f"  and on (pipeline, gate) {every} >= {MIN_SAMPLES}\n"
        f"  and on (pipeline, gate) {_UNDECIDED}\n"
        f")"
    )
    expr = "\nor ".join([unassessable, *(clause for scope in scopes for clause in _unasked(scope))])
    lack = "{{ $value | humanizePercentage }} of its requests lack something"
    texts = writer.of(
        ALERT,
        f"{{{{ $labels.pipeline }}}}: gates cannot be judged, {lack}",
        f"Of its records {_lacking(gates)}. `ragmon doctor` and the table Captured on the status page name the setting "
        "for records of other origins. What is not captured counts as neither right nor wrong.",
        gated=True,
    )
    return Rule(ALERT, expr, {"severity": TICKET}, texts, pending="30m", keep_firing_for="10m", alert=True)


def matched_gates(scope: RuleScope) -> list[Gate]:
    """The gates that are judged on questions of users which are in gold."""
    return [gate for gate in scope.share_gates if gate.source == constants.MATCH and parse(gate.metric).needs_gold]


def _unasked(scope: RuleScope) -> list[str]:
    """Without a question no request of a user matches gold: gates on gold then have no requests, not unknown ones."""
    gates = matched_gates(scope)
    if not gates:
        return []
    live = {"source": constants.LIVE}
    question = selector(series_names.CAPTURED_RATIO, {"field": needs.QUESTION, **live}, *scope.matchers)
    blocked = selector(series_names.GATE_STATUS, {"status": "insufficient"}, one_of("gate", [g.name for g in gates]))
    requests, timed = (selector(name, live) for name in (series_names.REQUESTS, f"{series_names.LATENCY}_count"))
    enough = f"sum by (pipeline) ({requests}) >= {FIRST} or sum by (pipeline) ({timed}) >= {FIRST}"
    clause = (
        f"max by (pipeline) (1 - {question} > {HALF:g})\n"
        f"and on (pipeline) (max by (pipeline) ({blocked}) == 1)\n"
        f"and on (pipeline) ({enough})\n"
        f"and on () count({series_names.GOLD_INFO})"
    )
    return [clause]


def _lacking(gates: Sequence[Gate]) -> str:
    """A template for the fields that records lack and gates need, and what brings each of them into the records."""
    needed = {field for gate in gates for field in needs.needs(parse(gate.metric))}
    fields = [field for field in _FIELDS if field in needed]
    ratio = f"{series_names.CAPTURED_RATIO}{{pipeline=%q,{one_of('field', fields)}}}"
    # A pipeline that never cites lacks nothing: a citation there is none of.
    never = f'{series_names.CAPTURED_RATIO}{{field="{needs.CITATIONS}"}} == 0'
    query = f"min by (field) ({ratio} unless {never}) < {1 - FEW:g}"
    remedies = "".join(
        f"{{{{ if eq .Labels.field `{field}` }}}}{remedy(Gap(field, 0, 0))}{{{{ end }}}}" for field in fields
    )
    item = f"{{{{ .Value | humanizePercentage }}}} have {{{{ .Labels.field }}}} ({remedies})"
    items = f"{{{{ range $at, $found := . }}}}{{{{ if $at }}}}; {{{{ end }}}}{item}{{{{ end }}}}"
    found = f"{{{{ with printf `{query}` $labels.pipeline | query }}}}{items}"
    return f"{found}{{{{ else }}}}those of this hour have every field{{{{ end }}}}"
