"""seed-001: DeepEval's contextual precision as its Elixir port computes it, on recorded verdicts or a judge's.

Verdicts are recorded on the trace (`verdicts`), or in a gold file that carries them by qid (`verdicts`, or the 0/1 list
`has_answer`). The reason is then the trace's `reason`, if any; the latency is unknown. Nothing checks that there is one
verdict a node: the verdicts are what is scored, however many there are, and `context_count` stands beside them unused.
A trace without any is put before the judge, where one is given; that one must give a verdict on every node.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ragmon.compat.base import Ask, Entry, Options, published_rule, read_items, read_lines

METRIC: Final = "Contextual Precision"
DEFAULT_THRESHOLD: Final = 0.5

_NODES = ("retrieval_context", "contexts", "context", "retrieved_ids")
_PARAMETERS: Final = {
    "input": ("input", "question", "q"),
    "expected_output": ("expected_output", "gold_claim"),
    "retrieval_context": ("retrieval_context", "contexts", "context"),
}
"""What a judge needs, by the port's names, and where it may stand."""
_OBJECTS = "one JSON object a case"


def score(traces: Sequence[str], gold: Sequence[str], options: Options) -> str:
    """One JSON result a line, a line a trace, in their order; a case that cannot be scored is `{"error": …}`.

    Args:
        traces: Trace files (JSONL).
        gold: Files of verdict lists or expected outputs by qid, for traces that carry none; may be empty.
        options: `threshold`, `strict` and `ask` are read.

    Raises:
        PublishedScorerFailed: A file is not JSON, or a case is not an object.
    """
    recorded = _by_qid(gold)
    return "".join(json.dumps(_measured(trace, recorded, options)) + "\n" for trace in read_lines(traces))


def average_precision(relevant: Sequence[bool]) -> float:
    """Mean over the relevant ranks of the precision there; 0 when nothing is relevant.

    >>> [round(average_precision(r), 2) for r in ([1, 1, 0], [1, 0, 1], [0, 1, 1], [0, 0, 1])]
    [1.0, 0.83, 0.58, 0.33]
    """
    found, total = 0, 0.0
    for rank, is_relevant in enumerate(relevant, start=1):
        if is_relevant:
            found += 1
            total += found / rank
    return total / found if found else 0.0


def _by_qid(paths: Sequence[str]) -> dict[Any, Any]:
    recorded: dict[Any, Any] = {}
    for item in read_items(paths):
        with published_rule(item, "a verdict list is looked up by its qid", _OBJECTS):
            recorded[item.value.get("qid")] = item.value
    return recorded


def _recorded(record: dict[str, Any]) -> Any:
    verdicts = record.get("verdicts")
    return record.get("has_answer") if verdicts is None else verdicts


def _measured(trace: Entry, recorded: dict[Any, Any], options: Options) -> dict[str, Any]:
    with published_rule(trace, "a case is built from an object", _OBJECTS):
        verdicts = _recorded(trace.value)
        beside = recorded.get(trace.value.get("qid") or trace.value.get("q_id"), {})
        if verdicts is None:
            verdicts = _recorded(beside)
    if verdicts is None and options.ask is not None:
        return _asked(trace.value, beside, options.ask, options)
    nodes = next((trace.value[name] for name in _NODES if isinstance(trace.value.get(name), list)), None)
    if verdicts is None:
        return {"error": {"missing_params": ["verdicts"] if nodes else ["retrieval_context", "verdicts"]}}
    if not isinstance(verdicts, list):
        return {"error": {"invalid_verdicts_response": verdicts}}
    read = [_verdict(verdict) for verdict in verdicts]
    return _result(read, None if nodes is None else len(nodes), {"reason": trace.value.get("reason")}, options)


def _asked(trace: dict[str, Any], beside: dict[str, Any], ask: Ask, options: Options) -> dict[str, Any]:
    """A case before the judge."""
    case = {name: _first(name, places, trace, beside) for name, places in _PARAMETERS.items()}
    missing = [name for name, found in case.items() if found is None]
    if missing:
        return {"error": {"missing_params": missing}}
    found = ask(case["input"], case["expected_output"], case["retrieval_context"])
    if "error" in found:
        return {"error": found["error"]}
    return _result([_verdict(verdict) for verdict in found["verdicts"]], len(case["retrieval_context"]), found, options)


def _first(name: str, places: Sequence[str], *objects: dict[str, Any]) -> Any:
    """What stands at the first of these places and is what the parameter must be: a text, or a list of texts."""
    for found in (held.get(place) for held in objects for place in places):
        if name != "retrieval_context":
            if isinstance(found, str):
                return found
        elif isinstance(found, list) and all(isinstance(text, str) for text in found):
            return found
    return None


def _verdict(entry: Any) -> dict[str, Any]:
    """A verdict as the port normalises it: the word yes, whatever its case and the space around it; all else is no.

    A bare string, boolean or 0/1 (the recorded forms the port does not know) is read the same way.
    """
    if isinstance(entry, dict):
        word, reason = entry.get("verdict"), entry.get("reason")
    else:
        word, reason = ("yes" if entry == 1 else entry), None
    relevant = isinstance(word, str) and word.strip().lower() == "yes"
    return {"verdict": "yes" if relevant else "no", "reason": reason}


def _result(
    verdicts: list[dict[str, Any]], context_count: int | None, told: Mapping[str, Any], options: Options
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
        "reason": told.get("reason"),
        "latency_ms": told.get("latency_ms"),
        "metadata": {"context_count": context_count, "verdicts": verdicts},
    }
