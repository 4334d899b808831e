"""seed-001: DeepEval's contextual precision as its Elixir port computes it, on recorded verdicts or a judge's.

Verdicts are recorded on the trace (`verdicts`), or in a gold file by qid (`verdicts`, or the 0/1 list `has_answer`).
The reason is then the trace's `reason`, if any; the latency is unknown. The number of verdicts is not compared with the
number of nodes: all verdicts are scored, however many there are, and `context_count` is reported but not used. A trace
without verdicts is sent to the judge, where there is one; the judge must give a verdict on every node.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ragmon.compat.base import Ask, Entry, Options, published_rule, read_items, read_lines

METRIC: Final = "Contextual Precision"
DEFAULT_THRESHOLD: Final = 0.5

_NODES = ("retrieval_context", "contexts", "context", "retrieved_ids")
# The parameters of the judge, by the names of the port, and the fields they are read from.
_PARAMETERS: Final = {
    "input": ("input", "question", "q"),
    "expected_output": ("expected_output", "gold_claim"),
    "retrieval_context": ("retrieval_context", "contexts", "context"),
}
_OBJECTS = "one JSON object a case"


def score(traces: Sequence[str], gold: Sequence[str], options: Options) -> str:
    """One JSON result a line, one line a trace, in their order; a case that cannot be scored is `{"error": …}`."""
    recorded: dict[Any, Any] = {}
    for item in read_items(gold):
        with published_rule(item, "a verdict list is looked up by its qid", _OBJECTS):
            recorded[item.value.get("qid")] = item.value
    return "".join(json.dumps(_score_trace(trace, recorded, options)) + "\n" for trace in read_lines(traces))


def average_precision(relevant: Sequence[bool]) -> float:
    """Mean over the relevant ranks of the precision there; 0 when nothing is relevant.

    >>> [round(average_precision(r), 2) for r in ([1, 1, 0], [1, 0, 1], [0, 1, 1], [0, 0, 1])]
    [1.0, 0.83, 0.58, 0.33]
    """
    hits, total = 0, 0.0
    for rank, is_relevant in enumerate(relevant, start=1):
        if is_relevant:
            hits += 1
            total += hits / rank
    return total / hits if hits else 0.0


def _recorded(record: dict[str, Any]) -> Any:
    verdicts = record.get("verdicts")
    return record.get("has_answer") if verdicts is None else verdicts


def _score_trace(trace: Entry, recorded: dict[Any, Any], options: Options) -> dict[str, Any]:
    with published_rule(trace, "a case is built from an object", _OBJECTS):
        verdicts = _recorded(trace.value)
        gold_entry = recorded.get(trace.value.get("qid") or trace.value.get("q_id"), {})
        if verdicts is None:
            verdicts = _recorded(gold_entry)
    if verdicts is None and options.ask is not None:
        return _judged(trace.value, gold_entry, options.ask, options)
    nodes = next((trace.value[name] for name in _NODES if isinstance(trace.value.get(name), list)), None)
    if verdicts is None:
        return {"error": {"missing_params": ["verdicts"] if nodes else ["retrieval_context", "verdicts"]}}
    if not isinstance(verdicts, list):
        return {"error": {"invalid_verdicts_response": verdicts}}
    normalised = [_verdict(verdict) for verdict in verdicts]
    return _result(normalised, None if nodes is None else len(nodes), {"reason": trace.value.get("reason")}, options)


def _judged(trace: dict[str, Any], gold_entry: dict[str, Any], ask: Ask, options: Options) -> dict[str, Any]:
    case = {name: _first_valid(name, fields, trace, gold_entry) for name, fields in _PARAMETERS.items()}
    missing = [name for name, value in case.items() if value is None]
    if missing:
        return {"error": {"missing_params": missing}}
    reply = ask(case["input"], case["expected_output"], case["retrieval_context"])
    if "error" in reply:
        return {"error": reply["error"]}
    return _result([_verdict(verdict) for verdict in reply["verdicts"]], len(case["retrieval_context"]), reply, options)


def _first_valid(name: str, fields: Sequence[str], *objects: dict[str, Any]) -> Any:
    # The first value of the right type: a text, or a list of texts for `retrieval_context`.
    for value in (source.get(field) for source in objects for field in fields):
        if name != "retrieval_context":
            if isinstance(value, str):
                return value
        elif isinstance(value, list) and all(isinstance(text, str) for text in value):
            return value
    return None


def _verdict(entry: Any) -> dict[str, Any]:
    # As the port normalises it: "yes" in any case, with any white space around it; all else is no. A bare string,
    # boolean or 0/1 (the recorded forms the port does not know) is read in the same way.
    if isinstance(entry, dict):
        answer, reason = entry.get("verdict"), entry.get("reason")
    else:
        answer, reason = ("yes" if entry == 1 else entry), None
    relevant = isinstance(answer, str) and answer.strip().lower() == "yes"
    return {"verdict": "yes" if relevant else "no", "reason": reason}


def _result(
    verdicts: list[dict[str, Any]], context_count: int | None, details: Mapping[str, Any], options: Options
) -> dict[str, Any]:
    value = average_precision([verdict["verdict"] == "yes" for verdict in verdicts])
    threshold = DEFAULT_THRESHOLD if options.threshold is None else options.threshold
    if options.strict:
        threshold = 1.0
        value = value if value >= threshold else 0.0
    return {
        "metric": METRIC,
        "score": value,
        "success": value >= threshold,
        "threshold": threshold,
        "reason": details.get("reason"),
        "latency_ms": details.get("latency_ms"),
        "metadata": {"context_count": context_count, "verdicts": verdicts},
    }
