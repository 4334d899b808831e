"""The Markdown report of WFGY Example 08, as its Python script prints it once `main` is called.

Choices: predictions and gold come as parsed objects, so reading files is outside; the report ends with one newline, as
print leaves it. The Node twin prints the same except for what it crashes on and for falsy qids, which it counts.
"""

from __future__ import annotations

import re

TOKEN = "not in context"
CITATION_LIST = re.compile(r"citations\s*:\s*\[([^\]]*)\]", re.IGNORECASE)
PHRASE = re.compile(r"[a-z0-9][a-z0-9\-\s]{4,}")


def citations_of(prediction, answer):
    """The ids of the JSON list if there is one, else of the first citation list in the text."""
    field = prediction.get("citations")
    if isinstance(field, list):
        return [str(citation).strip() for citation in field]
    found = CITATION_LIST.search(answer or "")
    return [part for part in re.split(r"[,\s]+", found.group(1)) if part] if found else []


def contains_phrase(gold_claim, answer):
    """Whether a maximal ASCII phrase of the gold claim is in the answer."""
    if not gold_claim:
        return False
    phrases = [phrase.strip() for phrase in PHRASE.findall(gold_claim.lower())]
    return any(len(phrase) >= 5 and phrase in (answer or "").lower() for phrase in phrases)


def judge(item, prediction):
    """One prediction with its gold item as named facts."""
    answer = prediction.get("answer", "")
    citations = citations_of(prediction, answer)
    return {
        "qid": item["qid"],
        "answerable": bool(item["answerable"]),
        "refused": (answer or "").strip().lower() == TOKEN,
        "hit": bool(set(citations) & set(item.get("gold_ids", []))),
        "contains": contains_phrase(item.get("gold_claim", ""), answer),
    }


def label(row):
    """The outcome's name in the table."""
    if row["answerable"] and row["refused"]:
        return "OVER_REFUSAL"
    if row["answerable"]:
        return "OK" if row["hit"] else "ANS_NO_HIT"
    return "REFUSAL_OK" if row["refused"] else "HALLUCINATION"


def percent(rows, of):
    """The share in percent with one decimal; an empty denominator prints as zero."""
    return f"{100 * (len(rows) / len(of) if of else 0.0):.1f}%"


def report(gold, preds):
    """The whole report; joins by exact question text, counts every prediction, and no item without one.

    Args:
        gold: the objects of the gold array; of two with the same question the last counts.
        preds: prediction objects in file order.
    """
    by_question = {item["q"]: item for item in gold}
    rows = []
    for prediction in preds:
        question = prediction.get("q") or prediction.get("question") or ""
        if question in by_question:
            rows.append(judge(by_question[question], prediction))

    pos = [row for row in rows if row["answerable"]]
    neg = [row for row in rows if not row["answerable"]]
    answered = [row for row in rows if not row["refused"]]
    answered_pos = [row for row in pos if not row["refused"]]
    hit = [row for row in answered_pos if row["hit"]]
    over, under = [r for r in pos if r["refused"]], [r for r in neg if not r["refused"]]
    contained = [row for row in answered_pos if row["contains"]]
    # A falsy qid (0, "") is scored and listed, but not in the number of questions.
    lines = [
        "# RAG Quality Report",
        "",
        f"- Questions scored: **{len([row for row in rows if row['qid']])}**",
        f"- Answer precision (over answered): **{percent(hit, answered)}**",
        f"- Over-refusal (answerable but refused): **{percent(over, pos)}**",
        f"- Under-refusal / Hallucination (unanswerable but answered): **{percent(under, neg)}**",
        f"- Citation hit rate (answerable): **{percent(hit, pos)}**",
        f"- Claim containment (answerable): **{percent(contained, pos)}**",
        "",
        "## Per-question",
        "",
        "| qid | answered | hit | refusal | label |",
        "|-----|----------|-----|---------|-------|",
    ]
    for row in rows:
        flags = [str(flag).lower() for flag in (not row["refused"], row["hit"], row["refused"])]
        lines.append(f"| {row['qid']} | {' | '.join(flags)} | **{label(row)}** |")
    return "\n".join(lines) + "\n"
