"""The page-1.1 eval scorer (WFGY eval page): what its JSON report holds, oddities of the published code included.

Where prose and code of that page disagree, this oracle follows the code. It raises what the script would raise:
AttributeError, KeyError, TypeError or ValueError, at the same step, so a later bad value hides behind an earlier one.
"""

from __future__ import annotations

TOKEN = "not in context"
SHORTEST_SUBSTRING = 5


def contains(claim, substrings):
    """Whether the claim holds one of the substrings of five characters or more; it holds [], but not a missing list."""
    for substring in substrings or []:
        lowered = substring.lower()
        if len(lowered) >= SHORTEST_SUBSTRING and lowered in claim.lower():
            return True
    return substrings == []


def hits(citations, gold_citations, retrieved):
    """Whether the citations were all retrieved and meet the gold ones; without gold only citing nothing is a hit."""
    if not isinstance(citations, list):
        return False
    if not set(citations) <= set(retrieved):
        return False
    if not gold_citations:
        return citations == []
    return bool(set(citations) & set(gold_citations))


def judge(item, trace, k):
    """One gold item with its trace (an empty dict when there is none) as named yes-or-no facts."""
    answer = trace.get("answer_json") or {}
    claim = (answer.get("claim") or "").strip()
    citations = answer.get("citations") or []
    retrieved = trace.get("retrieved_ids") or []
    answerable = item.get("answerable")
    shipped = claim.lower() != TOKEN
    row = {
        "shipped": shipped,
        "in_a": bool(answerable),
        "is_true": answerable == True,  # noqa: E712 - the script compares by ==, so 1 counts as true and "false" as neither
        "is_false": answerable == False,  # noqa: E712 - likewise: 0 is false, a missing value is not
        "claim": False,
        "hit": False,
        "recalled": False,
    }
    if shipped:
        row["claim"] = contains(claim, item.get("gold_claim_substr"))
        row["hit"] = hits(citations, item.get("gold_citations"), retrieved)
    if row["is_true"]:
        row["recalled"] = set(item.get("gold_citations") or []) <= set(retrieved[:k])
    return row


def ratio(numerator, denominator, when_empty):
    """A quotient, or the value the script invents for an empty denominator."""
    return len(numerator) / len(denominator) if denominator else when_empty


def passes(values, gates):
    """Whether all four gates hold; a gate after the first failing one is never looked up."""
    high_enough = all(values[name] >= float(gates[name]) for name in ("precision", "chr"))
    return high_enough and all(values[name] <= float(gates[name]) for name in ("under", "over"))


def score(gold, traces, k=5, gates="precision=0.80,chr=0.75,under=0.05,over=0.10"):
    """The report of the published scorer as a dict, keys in printed order.

    Args:
        gold: gold objects as read from JSON, unchecked.
        traces: trace objects as read from JSON; of several with one qid the last counts, a falsy qid none.
        k: depth of recall, used as the end of a slice.
        gates: the value of ``--gates``.
    """
    items = {item["qid"]: item for item in gold}
    last = {}
    for trace in traces:
        qid = trace.get("qid") or trace.get("q_id")
        if qid:
            last[qid] = trace
    rows = [judge(item, last.get(qid, {}), k) for qid, item in items.items()]

    shipped = [row for row in rows if row["shipped"]]
    refused = [row for row in rows if not row["shipped"]]
    answerable = [row for row in rows if row["in_a"]]
    unanswerable = [row for row in rows if not row["in_a"]]
    recall_rows = [row for row in rows if row["is_true"]]
    # A shipped item is out of both numerators only if `answerable` equals false: an absent value still scores.
    scorable = [row for row in shipped if not row["is_false"]]
    values = {
        "precision": ratio([row for row in scorable if row["claim"] and row["hit"]], shipped, 1.0),
        "chr": ratio([row for row in scorable if row["hit"]], shipped, 1.0),
        "under": ratio([row for row in shipped if row["is_false"]], unanswerable, 0.0),
        "over": ratio([row for row in refused if row["is_true"]], answerable, 0.0),
    }
    recall = ratio([row for row in recall_rows if row["recalled"]], recall_rows, 0.0)
    thresholds = dict(pair.split("=") for pair in gates.split(","))
    passed = passes(values, thresholds)
    return {
        "answered": len(shipped),
        "refused": len(refused),
        "answerable": len(answerable),
        "unanswerable": len(unanswerable),
        "precision": round(values["precision"], 4),
        "chr": round(values["chr"], 4),
        "under_refusal": round(values["under"], 4),
        "over_refusal": round(values["over"], 4),
        "recall@k": round(recall, 4),
        "k": k,
        "gates": thresholds,
        "pass": passed,
    }
