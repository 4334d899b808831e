"""Random worlds: one or two gold sets, and a trace log with something of everything that such a log may hold."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from typing import Any

from tests.support.before_configs import GATED, gate_lines
from tests.support.before_worker import START
from tests.support.mutated_lines import Mutator

Row = dict[str, Any]
WORDS = ("harbour", "value", "opens", "Straße", "closed", "old", "naïve", "north", "bridge", "日本", "nine", "itu")
REFUSALS = (
    *(
        "not in context",
        " Not in context ",
        "I could not find anything about this.",
        "Dazu liegen mir keine Angaben vor.",
    ),
    *("As a language model I have no live data. However, it was 42.", "Je n'ai rien trouvé dans les documents."),
)
STRATA = {"error": 1.0, "refusal": 0.2, "slow": 1.0, "rest": 0.1}
PRESETS = ("default", "default", "wfgy-eval", "wfgy-example-08", "wfgy-live")


class World:
    """One world.

    Args:
        seed: Everything follows from it.

    Attributes:
        files: What lies in the folder: gold files, `ragmon.toml`.
        lines: The lines of the trace log, each with its newline.
        options: Of `ragmon replay`.
    """

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.span = rng.choice((600.0, 3000.0, 6 * 3600.0, 30 * 3600.0, 4 * 86_400.0))
        self.pipelines = rng.choice(([None], ["support"], ["support", "sales"], ["support", "sales", None]))
        self.sampled, self.with_text = rng.random() < 0.5, rng.random() < 0.6
        self.gold = [self._item(n) for n in range(rng.choice((6, 15, 40)))]
        self.second = [self._item(n) for n in range(3, 9)] if rng.random() < 0.5 else []
        self._odd = Mutator(seed, wild=0.5)
        self._calls: dict[tuple[str, str], int] = {}
        self._began = START - self.span - 60
        self.lines = self._log(rng.choice((20, 60, 150, 300)))
        self.options = self._options()
        self.files = {"ragmon.toml": self._config(), "first.jsonl": _json_lines(self.gold)}
        if self.second:
            self.files["second.jsonl"] = _json_lines(self.second)

    def _one(self, *values: Any) -> Any:
        return self.rng.choice(values)

    def _item(self, n: int) -> Row:
        """A gold item: documents by id, texts, phrases or a whole answer; or a question without an answer."""
        row: Row = {"qid": f"g{n}", "question": f"What is number {n} of {self._one(*WORDS)}?"}
        if n % 4 == 0:
            return row | {"answerable": False}
        kinds: tuple[Row, ...] = (
            {"gold_citations": [f"d{n}"], "gold_claim_substr": [f"number {n}", str(n)]},
            {"gold_citations": [f"d{n}", f"e{n}"], "gold_claim": f"It is number {n}."},
            {"gold_ids": [f"d{n}"], "gold_claim_substr": [self._one(*WORDS)], "negatives": [f"e{n}"]},
            {"gold_contexts": [f"The text of {n}"], "gold_claim_substr": [f"number {n}"]},
        )
        row |= {"answerable": True} | self._one(*kinds)
        row |= self._one(
            {}, {}, {"tags": {"lang": self._one("de", "en")}}, {"paraphrases": [f"Number {n}, what is it?"]}
        )
        return row

    def _log(self, count: int) -> list[str]:
        """The lines in the order in which they were written, which is mostly that of time."""
        rng, rows, written = self.rng, [], []
        bad = rng.uniform(0.3, 1.0)
        for place in range(count):
            ts = START - self.span * (1 - place / count)
            row = self._request(round(ts, self._one(0, 3)), wrong=0.5 if place > bad * count else 0.08)
            rows.append(row)
            written.append(self._written(row))
            if self.sampled and place % 20 == 19:
                written += self._totals(ts)
            if rng.random() < 0.15:
                written += self._beside(row, rng.choice(rows))
        for _ in range(rng.choice((0, 0, 3, 10))):
            written.insert(rng.randrange(len(written)), written.pop(rng.randrange(len(written))))
        return written

    def _request(self, ts: float, wrong: float) -> Row:
        """One request in ragmon's own words."""
        rng = self.rng
        n = rng.randrange(len(self.gold) + 5)
        item = self.gold[n] if n < len(self.gold) else {"question": f"And what of {rng.randrange(9)}?"}
        is_wrong, answerable = rng.random() < wrong, n % 4 > 0 and n < len(self.gold)
        ids = [f"{rng.choice('dex')}{rng.randrange(40)}" for _ in range(self._one(0, 3, 5, 5, 5, 12))]
        if answerable and not is_wrong:
            ids.insert(rng.randrange(4), f"d{n}")
        row: Row = {"v": 1, "trace_id": f"{rng.getrandbits(127) + 1:032x}", "ts": ts}
        row |= {"pipeline": self._one(*self.pipelines), "q": item["question"], "retrieved_ids": ids}
        row["source"] = self._one("live", "live", "probe", "match", "replay", None)
        if n < len(self.gold) and (row["source"] == "probe" or rng.random() < 0.3):
            row["qid"] = item["qid"]
        claim = (
            f"It is number {n}, {self._one(*WORDS)} and {self._one(*WORDS)}."
            if answerable != is_wrong
            else self._one(*REFUSALS)
        )
        cited = [one for one in ids if one == f"d{n}"] or ids[:1] if claim not in REFUSALS else []
        row["answer_json"] = {"claim": claim, "citations": self._one(cited, cited, cited, ["x1"], None)}
        if rng.random() < 0.3:
            row["contexts"] = [f"The text of {n}" if one == f"d{n}" else " ".join(rng.sample(WORDS, 4)) for one in ids]
        total = round(rng.lognormvariate(6, 1), 2)
        row["latency_ms"] = self._one(
            {"total": total, "retrieve": total / 8, "generate": total / 2}, {"total": total}, total, None
        )
        row |= {"build": self._one("b1", "b1", "b2", None), "index_hash": self._one("i1", "i1", "i2", None)}
        row |= {
            "session": self._one(None, f"s{rng.randrange(30)}"),
            "model": self._one("m1", "m2", None),
            "user": self._one(None, "u7"),
        }
        row["tags"] = self._one(
            None, {"lang": self._one("de", "en", "fr")}, {"lang": "de", "tier": self._one("a", 2, True)}
        )
        if rng.random() < wrong / 3:
            row |= {
                "error": self._one("timeout", "rate limited"),
                "answer_json": None,
                "retrieved_ids": self._one(None, ids),
            }
        if rng.random() < 0.3:
            row |= self._rare(ids)
        if not self.with_text and row["answer_json"] is not None:
            row |= {"q": None, "contexts": None, "facts": self._facts(claim)}
            row["answer_json"]["claim"] = None
        if self.sampled and row["source"] in ("live", None):
            stratum = (
                "error" if row.get("error") else "refusal" if claim in REFUSALS else "slow" if total > 1500 else "rest"
            )
            row["sampling"] = {"audit": rng.random() < 0.5, "stratum": stratum, "p_audit": 0.1, "p": STRATA[stratum]}
        return {name: value for name, value in row.items() if value is not None}

    def _rare(self, ids: list[str]) -> Row:
        """What few records have."""
        rng = self.rng
        some: tuple[Row, ...] = (
            {"verdicts": [rng.random() < 0.4 for _ in ids]},
            {"measures": {"judge_faithfulness": round(rng.random(), 2)}, "judge_versions": {"judge_faithfulness": "1"}},
            {"measures": {"groundedness": round(rng.random(), 2)}},
            {"candidate_ids": [*ids, *(f"d{rng.randrange(40)}" for _ in range(9))]},
            {"scores": [round(rng.gauss(0.5, 0.2), 3) for _ in ids]},
            {"partial": True, "retrieved_ids": None, "answer_json": None},
            {"ended": self._one("cancelled", "abandoned", "cut"), "answer_json": None},
            {"exported": self._one(True, False), "parent_span_id": "00f067aa0ba902b7"},
            {"matched": self._one("question", "paraphrase", "embedding"), "source": "match"},
            {"ts": None},
            {"latency_ms": {"total": self._one(-1, 86_400_001, 0), "retrieve": 5}},
        )
        return rng.choice(some)

    def _facts(self, claim: str) -> Row:
        """What was decided about texts that stayed in the application."""
        told = {"answered": True, "refused": claim in REFUSALS, "refusal_like": claim in REFUSALS[2:]}
        told |= {"question_chars": 20, "claim_chars": len(claim)}
        told |= {name: self._one(True, False) for name in ("contains_claim", "grounded") if self.rng.random() < 0.7}
        return told

    def _written(self, row: Row) -> str:
        """A record as a line, now and then in the words of another program."""
        answer, ids = row.get("answer_json") or {}, row.get("retrieved_ids")
        if self.rng.random() < 0.85 or not answer.get("claim") or ids is None:
            return json.dumps(row, ensure_ascii=False) + "\n"
        kept = {name: row[name] for name in ("trace_id", "pipeline", "session", "build", "tags") if name in row}
        claim, cited = answer["claim"], answer["citations"] or []
        iso = datetime.fromtimestamp(row.get("ts", START), UTC).isoformat()
        others: tuple[Row, ...] = (
            {
                "q_id": row.get("qid"),
                "q": row["q"],
                "retrieved_ids": ids,
                "answer_json": answer,
                "latency_ms": 12,
                "ts": iso,
            },
            {"qid": row.get("qid"), "question": row["q"], "chunks": [{"id": one, "text": f"of {one}"} for one in ids]}
            | {"answer": claim + f" citations: [{', '.join(cited)}]", "ok": True},
            {"q": row["q"], "retrieval": {"topk": [{"id": one, "score": 0.5} for one in ids], "index_hash": "i1"}}
            | {
                "answer": {"citations": [{"id": one} for one in cited]},
                "perf": {"t_retrieve_ms": 5, "t_reason_ms": 90},
            },
            {"user_input": row["q"], "response": claim, "retrieved_contexts": [f"The text of {one}" for one in ids]},
            {
                "question": row["q"],
                "answer": claim,
                "contexts": [f"The text of {one}" for one in ids],
                "probe": self._one(True, False),
            },
            {**row, "v": None, "unknown": {"a": [1, None]}, "retrieved_ids": [{"id": one} for one in ids]},
        )
        return json.dumps(kept | self.rng.choice(others), ensure_ascii=self._one(True, False)) + "\n"

    def _totals(self, ts: float) -> list[str]:
        """What a producer says of all its calls so far; now and then it starts anew."""
        if self.rng.random() < 0.1:
            self._calls, self._began = {}, ts - 5
        lines = []
        for pipeline in self.pipelines:
            for stratum, share in STRATA.items():
                key = pipeline or "default", stratum
                self._calls[key] = calls = self._calls.get(key, 0) + self.rng.randrange(200)
                known = {
                    "kind": "totals",
                    "v": 1,
                    "ts": ts,
                    "instance": "web-1",
                    "started": self._began,
                    "source": "live",
                }
                known |= {
                    "pipeline": key[0],
                    "stratum": stratum,
                    "calls": calls,
                    "kept": round(calls * share),
                }
                lines.append(known | {"dropped": self._one({}, {"queue_full": 1}), "latency_ms": {"65600": calls}})
        return [json.dumps(line) + "\n" for line in lines]

    def _beside(self, row: Row, other: Row) -> list[str]:
        """What stands beside a request: a label, a duplicate, a late record, another answer of its trace, odd lines."""
        ts = row.get("ts", START)
        label = {"kind": "label", "trace_id": other["trace_id"], "rater": self._one("r1", "r2"), "ts": ts + 5}
        late = {**row, "trace_id": f"{self.rng.getrandbits(127) + 1:032x}", "ts": ts - self._one(30, 4000, 100_000)}
        chosen: Any = self._one(
            label | self._one({"correct": True}, {"correct": False}, {"correct": 0.5}, {"answerable": False}),
            label | {"relevant_ids": other.get("retrieved_ids", [])[:2]},
            label | {"trace_id": "0" * 31 + "1", "correct": True},
            *(row, other, late, {**other, "ts": ts, "answer_json": {"claim": "not in context", "citations": []}}),
            *("{", '{"v": 2}', "[]", "", '{"kind": "other"}', '{"v": 1, "ts": "x"}', "null"),
            self._odd.line().decode("utf-8", "surrogateescape"),
        )
        return [chosen.rstrip("\n") + "\n" if isinstance(chosen, str) else json.dumps(chosen) + "\n"]

    def _options(self) -> list[str]:
        """Of `ragmon replay`; windows are many where the time is long."""
        windows = ["--windows"] if self.span < 1000 or (self.span < 4000 and self.rng.random() < 0.25) else []
        return windows + self._one(
            [], [], ["--alerts-out", "alerts.jsonl"], ["--duplicates", "last"], ["--duplicates", "first"]
        )

    def _config(self) -> str:
        """A right ragmon.toml, a key a line."""
        rng = self.rng
        found = [
            'gold.first.path = "first.jsonl"',
            'slices.lang = ["de", "en"]',
            "pipelines.support.sampling.rate = 0.5",
        ]
        if self.second:
            found += [
                'gold.second.path = "second.jsonl"',
                self._one('gold.second.use = ["match"]', 'gold.second.pipeline = "support"'),
            ]
        usual = (
            *(
                'windows = ["5m", "1h"]',
                'windows = ["10m", "1h", "24h", "7d"]',
                "metrics.k = [2, 7]",
                'metrics.cluster = ["session"]',
            ),
            *(
                'metrics.answered_within = "800ms"',
                "metrics.citations_required = true",
                'gold.first.match = "contains"',
            ),
            *('refusal.tokens = ["n/a", "not in context"]', "refusal.matcher_counts = false", "refusal.window = 30"),
            *(
                'gates.verdict = "point"',
                'gates.on_insufficient = "fail"',
                "alarms.looks_per_day = 40",
                'slices.tier = ["a", "2"]',
            ),
            *("pipelines.support.metrics.grounded_threshold = 0.4", "pipelines.sales.gates.mrr.at_least = 0.5"),
        )
        keys = {line.partition(" = ")[0]: line for line in rng.sample(usual, rng.choice((0, 2, 5)))}
        found += [*keys.values(), f'gates.preset = "{self._one(*PRESETS)}"']
        for name in rng.sample(GATED[:-1], rng.choice((0, 3, 6))):
            lines = [line for line in gate_lines(rng, name, right=True) if self._fits(line, keys)]
            few = [] if any(".min_samples" in line for line in lines) else [f'gates."{name}".min_samples = 5']
            found += lines + few
        return "".join(line + "\n" for line in found)

    def _fits(self, line: str, keys: Row) -> bool:
        """Whether what a key of a gate names is there."""
        key = line.partition(" = ")[0].rpartition(".")[2]
        return not (key == "gold" and not self.second) and not (key == "window" and "windows" in keys)


def _json_lines(rows: list[Row]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
