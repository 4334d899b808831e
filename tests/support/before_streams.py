"""Random traffic of some hours: gold questions and others, sampled with known rates, with an incident half-way."""

from __future__ import annotations

import random
from typing import Any

from tests.support.before_worker import START

ITEMS = 12
STEPS = (
    ("retriever", "answer_precision", "citation_hit_rate", "recall@3"),
    ("refusals", "over_refusal_rate", "refusal_rate"),
    ("errors", "error_rate"),
    ("slow", "answered_within"),
    ("prompt", "citation_scope", "compliance"),
)
"""What breaks, and metrics that say so."""


def gold() -> list[dict[str, Any]]:
    """Questions of which a quarter has no answer."""
    rows: list[dict[str, Any]] = []
    for n in range(ITEMS):
        row: dict[str, Any] = {"qid": f"g{n}", "question": f"What is number {n}?", "answerable": n % 4 > 0}
        if row["answerable"]:
            row |= {"gold_claim_substr": [f"number {n}"], "gold_citations": [f"d{n}", f"e{n}"]}
        rows.append(row | {"tags": {"lang": "de" if n % 2 else "en"}})
    return rows


def record(rng: random.Random, ts: float, *, broken: str) -> dict[str, Any]:
    """One request, right with some probability; `broken` is what breaks, if anything does."""
    n, good = rng.randrange(ITEMS + 6), rng.random() < (0.5 if broken else 0.93)
    wrong = not good and broken
    ids = [f"x{rng.randrange(9)}" for _ in range(5)]
    if n < ITEMS and not (wrong == "retriever" or rng.random() < 0.05):
        ids[rng.randrange(3)] = f"d{n}"
    answerable = n % 4 > 0 and n < ITEMS
    claim = f"It is number {n}." if answerable and rng.random() < 0.95 else "not in context"
    if wrong == "refusals":
        claim = rng.choice(("not in context", "I could not find that."))
    cited = [ids[0]] if wrong == "prompt" or not answerable else [one for one in ids if one == f"d{n}"]
    row: dict[str, Any] = {"v": 1, "trace_id": f"{rng.getrandbits(126) + 1:032x}", "ts": ts, "retrieved_ids": ids}
    row |= {"q": f"What is number {n}?" if n < ITEMS else f"And what of {n}?", "answer_json": {"claim": claim}}
    row["answer_json"] |= {"citations": cited} if rng.random() < 0.97 else {}
    row["latency_ms"] = {"total": round(rng.lognormvariate(6, 0.5) * (9 if wrong == "slow" else 1), 3)}
    row |= {"session": f"s{rng.randrange(400)}", "scores": [round(rng.random(), 3) for _ in ids]}
    row |= {"build": "b2" if broken else "b1", "index_hash": rng.choice(("i1", "i1", "i2")) if broken else "i1"}
    row |= {"tags": {"lang": rng.choice(("de", "en", "fr"))}}
    if wrong == "errors" or rng.random() < 0.02:
        row |= {"error": "timeout", "answer_json": None, "retrieved_ids": None}
    if rng.random() < 0.3 and n < ITEMS:
        row |= {"source": rng.choice(("probe", "probe", "live")), "qid": f"g{n}"}
    return {name: value for name, value in row.items() if value is not None} | {"source": row.get("source", "live")}


def traffic(rng: random.Random) -> list[dict[str, Any]]:
    """Lines of a trace log, most in order of time."""
    count = rng.choice((150, 400, 800))
    hours, incident = rng.choice((1, 4, 30)), rng.choice((0.3, 0.5, 0.7, 2))
    kind, sampled = rng.choice(STEPS)[0], rng.random() < 0.5
    rows = []
    for place in range(count):
        ts = round(START - hours * 3600 * (1 - place / count), 3)
        row = record(rng, ts, broken=kind if place > incident * count else "")
        row["pipeline"] = "sales" if rng.random() < 0.2 else "support"
        if sampled and row["source"] == "live":
            stratum = "error" if "error" in row else "rest"
            audit = rng.random() < 0.7
            row["sampling"] = {
                "audit": audit,
                "stratum": stratum,
                "p_audit": 0.2,
                "p": 1.0 if stratum == "error" else 0.2,
            }
        rows.append(row)
        if sampled and place % 50 == 49:
            rows += [
                totals(ts, pipeline, stratum, place, hours)
                for pipeline in ("support", "sales")
                for stratum in ("rest", "error")
            ]
        if rng.random() < 0.03:
            rows.append(rng.choice((row, label(rng, row), {**row, "ts": ts - rng.choice((20, 4000))})))
    for _ in range(rng.choice((0, 5))):
        at = rng.randrange(len(rows))
        rows.insert(at, rows.pop(max(0, at - rng.randrange(60))))
    return rows


def totals(ts: float, pipeline: str, stratum: str, place: int, hours: float) -> dict[str, Any]:
    """What a producer says of all its calls so far."""
    calls = place * (4 if stratum == "rest" else 1)
    known = {"kind": "totals", "v": 1, "ts": ts, "instance": "web-1", "started": START - hours * 3600 - 60}
    return known | {"pipeline": pipeline, "source": "live", "stratum": stratum, "calls": calls, "kept": place}


def label(rng: random.Random, row: dict[str, Any]) -> dict[str, Any]:
    """What a person says of an answer."""
    said = {"kind": "label", "trace_id": row["trace_id"], "rater": rng.choice(("ada", "bob")), "ts": row["ts"] + 60}
    return said | {"correct": rng.choice((True, False, 0.5))}


def config(rng: random.Random) -> str:
    """Gates on what may break, and alarms."""
    preset = rng.choice(("default", "default", "wfgy-eval", "wfgy-live", "wfgy-example-08"))
    text = '[gold.items]\npath = "gold.jsonl"\n[slices]\nlang = ["de", "en"]\n[metrics]\nanswered_within = "1s"\n'
    text += "[pipelines.support.sampling]\nrate = 0.2\n[pipelines.sales.sampling]\nrate = 0.2\n"
    text += (
        f"[alarms]\nfalse_pages_per_30d = {rng.choice((1.0, 30.0, 300.0))}\nlooks_per_day = {rng.choice((4.0, 40.0))}\n"
    )
    text += rng.choice(("", 'baseline = { learn = "30m" }\n', 'baseline = { learn = "6h" }\n'))
    text += f'[gates]\npreset = "{preset}"\nverdict = "{rng.choice(("interval", "interval", "point"))}"\n'
    for name in rng.sample([name for step in STEPS for name in step[1:]], rng.randint(0, 3)):
        low = name in ("over_refusal_rate", "refusal_rate", "error_rate")
        text += f'[gates."{name}"]\n' + ("at_most = 0.15\n" if low else "at_least = 0.7\n")
        text += f"min_samples = {rng.choice((5, 30))}\n" + rng.choice(
            ("", 'slice = { lang = "de" }\n', 'window = "5m"\n')
        )
    return text
