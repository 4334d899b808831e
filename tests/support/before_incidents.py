"""Some hours of traffic, a few requests a minute, with two incidents and a calm between them, each from its seed."""

from __future__ import annotations

import math
import random
from typing import Any

from tests.support.before_worker import START

ITEMS, TOPICS = 80, 12
CALM, INCIDENT, REST = 90, 40, 55
"""Minutes: before the first incident a baseline is learned, and after each one its alarms end."""
KINDS = (
    ("wrong_index", "refusals", 11),
    ("foreign_citations", "errors", 11),
    ("nothing_found", "hallucinations", 11),
    ("wrong_claims", "burst", 11),
    ("slow", "topic", 33),
)
"""What happens in the stream of each seed, and how many requests a minute has. `burst` is traffic without a fault, and
`topic` longer texts; what is guarded without gold has a baseline after 1,500 requests."""
BUDGET = "[alarms]\nfalse_pages_per_30d = 4.0\nlooks_per_day = 12.0\n"


def gold() -> list[dict[str, Any]]:
    """Questions of which a quarter has no answer."""
    rows: list[dict[str, Any]] = []
    for n in range(ITEMS):
        row: dict[str, Any] = {"qid": f"g{n}", "question": f"What is said of item {n}?", "answerable": n % 4 > 0}
        rows.append(row | ({"gold_claim_substr": [f"value {n}."], "gold_citations": [f"d{n}"]} if n % 4 else {}))
    return rows


class Traffic:
    """The requests of a stream, in order of time.

    Args:
        seed: What happens, and everything that is drawn.
        begins: The time of the first minute.
    """

    def __init__(self, seed: int, begins: float = START) -> None:
        self.rng, self.begins = random.Random(seed), begins
        first, second, self.rate = KINDS[seed % len(KINDS)]
        phases = (("", CALM), (first, INCIDENT), ("", REST), (second, INCIDENT), ("", REST))
        self.minutes = [kind for kind, length in phases for _ in range(length)]
        self.is_sampled = seed % 2 == 1
        """Whether the records are a sample, and a producer says how many calls there were."""
        self._calls = {"rest": 0, "error": 0}

    def rows(self) -> list[dict[str, Any]]:
        """All lines of a trace log."""
        return [row for minute in range(len(self.minutes)) for row in self.minute(minute)]

    def minute(self, place: int) -> list[dict[str, Any]]:
        """The lines of a minute."""
        begun, kind = self.begins + 60.0 * place, self.minutes[place]
        count = round(self.rate * (1 + 0.3 * math.sin(place / 40))) * (4 if kind == "burst" else 1)
        times = sorted(round(begun + self.rng.random() * 59, 2) for _ in range(count))
        found = [self.request(ts, kind) for ts in times]
        if not self.is_sampled:
            return found
        for row in found:
            stratum = "error" if "error" in row else "rest"
            share = 1.0 if stratum == "error" else 0.25
            self._calls[stratum] += round(1 / share)
            row["sampling"] = {
                "audit": self.rng.random() < 0.25 / share,
                "stratum": stratum,
                "p_audit": 0.25,
                "p": share,
            }
        known = {
            "kind": "totals",
            "v": 1,
            "ts": begun + 59.5,
            "instance": "web-1",
            "started": self.begins,
            "source": "live",
        }
        known |= {"pipeline": "support"}
        return found + [known | {"stratum": name, "calls": calls, "kept": calls} for name, calls in self._calls.items()]

    def request(self, ts: float, kind: str) -> dict[str, Any]:
        """One request: a probe, or of a user who asks something else or, now and then, a question of gold."""
        rng, n = self.rng, self.rng.randrange(ITEMS)
        is_probe, is_gold = rng.random() < 0.35, rng.random() < 0.1
        answerable, right = n % 4 > 0, rng.random() < 0.95
        ids = rng.sample([f"x{m}" for m in range(40)], 5)
        if answerable and right:
            ids[rng.randrange(3)] = f"d{n}"
        shipped = answerable == right
        answer = {
            "claim": f"The value {n if right else n + 1}. " + "It is so. " * rng.randrange(4),
            "citations": ids[:3],
        }
        if not shipped:
            answer = {"claim": rng.choice(("not in context", "I could not find that.")), "citations": []}
        row: dict[str, Any] = {"v": 1, "trace_id": f"{rng.getrandbits(127) + 1:032x}", "ts": ts, "pipeline": "support"}
        row |= {
            "q": f"What is said of item {n}?"
            if is_probe or is_gold
            else f"And topic {n % TOPICS}, number {rng.random()}?"
        }
        row |= (
            {"source": "probe", "qid": f"g{n}"}
            if is_probe
            else {"source": "live", "session": f"s{rng.getrandbits(rng.choice((9, 30)))}"}
        )
        row |= {"retrieved_ids": ids, "answer_json": answer, "scores": [round(rng.gauss(0.6, 0.1), 3) for _ in ids]}
        total = rng.lognormvariate(6.5, 0.4)
        row["latency_ms"] = {"total": round(total, 2), "retrieve": round(total / 9, 2)}
        row |= {"build": "b1", "index_hash": "i1", "model": "m1", "tags": {"lang": rng.choice(("de", "en"))}}
        if kind and rng.random() < 0.75:
            self.breaks(row, kind)
        return row

    def breaks(self, row: dict[str, Any], kind: str) -> None:
        """What an incident does to a request."""
        rng = self.rng
        shipped = row["answer_json"]["citations"]
        match kind:
            case "wrong_index":
                row |= {"retrieved_ids": [f"y{m}" for m in range(5)], "index_hash": "i2"}
                row["answer_json"] = {"claim": "Something else.", "citations": ["y1"]}
            case "refusals":
                row["answer_json"] = {"claim": "not in context", "citations": []}
            case "foreign_citations" if shipped:
                row["answer_json"]["citations"] = [f"z{rng.randrange(9)}"]
            case "errors":
                row |= {"error": rng.choice(("timeout", "rate_limited")), "answer_json": None, "retrieved_ids": None}
            case "nothing_found":
                row |= {"retrieved_ids": [], "scores": []}
                row["answer_json"]["citations"] = []
            case "hallucinations" if not shipped:
                row["answer_json"] = {"claim": "It is the value 7.", "citations": row["retrieved_ids"][:1]}
            case "slow":
                row["latency_ms"]["total"] *= 4
            case "topic":
                row["q"] += " And why is that so?" * 9
                row["answer_json"]["claim"] += " In detail:" * 30
                row["scores"] = [round(score / 2, 3) for score in row["scores"]]
            case "wrong_claims" if shipped:
                row["answer_json"]["claim"] = "It depends."
