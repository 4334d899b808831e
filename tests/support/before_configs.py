"""Random ragmon.toml, a line a key, so that any of them can be left out: `sampling.rate = 0.5`."""

from __future__ import annotations

import random

GATED = (
    *("answer_precision", "citation_hit_rate", "under_refusal_rate", "over_refusal_rate", "claim_containment", "mrr"),
    *("recall@5", "hit_rate@3", "ndcg@10", "precision@1", "full_recall", "error_rate", "empty_retrieval_rate"),
    *("compliance", "citation_scope", "coverage", "refusal_rate", "answered_within", "groundedness", "grounded_rate"),
    *("answer_correct", "judge_faithfulness"),
)
PRESETS = ('"default"', '"wfgy-eval"', '"wfgy-example-08"', '"wfgy-live"')
SHARE, DURATION = ("0.333", "0.05", "1", "0.0"), ('"30s"', '"8s"', '"1h"', '"250ms"', '"2d"')
TEXT, WORDS, PATH = (
    ('"a b"', '"ä"', '""'),
    ('["a", "b"]', '["not in context", "n/a"]', "[]"),
    ('"first.jsonl"', '"gone"'),
)
SWITCH, NUMBER = ("true", "false"), ("1", "5", "1000", "30")
KEYS: dict[str, tuple[str, ...]] = {
    "windows": ('["5m", "1h"]', '["10s"]', '["1h", "24h", "7d"]', '["7s"]', "[]"),
    "sampling.rate": SHARE,
    "sampling.slow_above": DURATION,
    "sampling.detail": SWITCH,
    "sampling.latency": ('"all"', '"kept"'),
    "sampling.parent": ('"ignore"', '"respect"'),
    "sampling.keep.error": SHARE,
    "sampling.keep.refusal": SHARE,
    "sampling.keep.slow": SHARE,
    "capture.content": ('"none"', '"hash"', '"redacted"', '"full"'),
    "capture.probe_content": ('"none"', '"full"'),
    "capture.id_from": ('"metadata.chunk_id"', '"a..b"', '"id"'),
    "capture.retrievers": WORDS,
    "capture.merge": ('"concat"', '"last"', '"rrf"'),
    "capture.gold": PATH,
    "refusal.tokens": WORDS,
    "refusal.patterns": ('"default"', "[]", '["sorry", "no (idea|answer)"]', '["("]', '["Ärger|[A-Z]+"]'),
    "refusal.window": NUMBER,
    "refusal.matcher_counts": SWITCH,
    "slices.lang": ('["de", "en"]', "[]"),
    "slices.tier": ('["gold"]',),
    "metrics.k": ("[1, 3, 5]", "[2]", "[0]", "[1001]"),
    "metrics.answered_within": DURATION,
    "metrics.grounded_threshold": SHARE,
    "metrics.cluster": ('["session"]', '["session", "question"]', "[]"),
    "metrics.citations_required": SWITCH,
    "alarms.false_pages_per_30d": ("1.0", "0.1", "30", "0"),
    "alarms.looks_per_day": ("4.0", "0.5"),
    "alarms.baseline": ('{ learn = "1h" }', '{ learn = "3d" }', '{ file = "gone.json" }', "{}"),
    "labels.column.trace_id": TEXT,
    "labels.values.true": WORDS,
    "labels.proxy": ('"groundedness"', '"judge_faithfulness"', '"mrr"'),
    "links.trace": ('"http://t/{trace_id}"', '"http://t/"'),
    "links.runbook": ('"http://r/#{alert}"', '"x"'),
    "links.status": ('"http://s"', '"s"'),
    "links.dashboard": ('"http://d:3000"',),
    "export.endpoint": ('"http://127.0.0.1:4318"', '"ftp://x"'),
    "export.jsonl": ('"runs/trace.jsonl"',),
    "export.rotate_size": ('"10MiB"', '"1GB"', '"x"'),
    "export.fsync": ('"never"', '"record"'),
    "pipeline.name": ('"support"', '"a/b"', '""'),
    "pipelines.support.sampling.rate": SHARE,
    "pipelines.support.metrics.k": ("[7]",),
    "pipelines.sales.refusal.tokens": WORDS,
    "pipelines.sales.gates.preset": PRESETS,
    "pipelines.sales.gates.mrr.at_least": SHARE,
    "probe.daily.target": ('"app:answer"', '"http://127.0.0.1:1/ask"', '"app"'),
    "probe.daily.every": DURATION,
    "probe.daily.gold": ('"first"', '"gone"'),
    "judges.faithfulness.url": ('"http://127.0.0.1:1/v1"',),
    "judges.faithfulness.model": TEXT,
    "judges.faithfulness.sample": SHARE,
    "serve.otlp": ('"127.0.0.1:4318"', '"0.0.0.0:4318"', "4318", '"x"'),
    "serve.retention": DURATION,
    "serve.max_size": ('"5GiB"', '"1 byte"'),
    "serve.max_series": NUMBER,
    "serve.tls": ('"off"', '"upstream"', '{ cert = "a.pem", key = "b.pem" }'),
    "gold.first.path": ('"first.jsonl"', '["first.jsonl", "second.jsonl"]', '"gone.jsonl"'),
    "gold.first.use": ('["probe", "match"]', '["match"]', '["live"]'),
    "gold.first.match": ('"exact"', '"contains"'),
    "gold.second.path": ('"second.jsonl"',),
    "gold.second.pipeline": ('"support"',),
    "gold.second.tags": ('{ lang = "de" }',),
    "gates.preset": (*PRESETS, '"wfgy"'),
    "gates.verdict": ('"interval"', '"point"'),
    "gates.on_insufficient": ('"hold"', '"pass"', '"fail"'),
}
"""What may stand in a file; few of the values are wrong."""
GATE: dict[str, tuple[str, ...]] = {
    "metric": tuple(f'"{name}"' for name in GATED),
    "source": ('"probe"', '"match"', '"label"', '"live"', '"replay"'),
    "gold": ('"first"', '"second"'),
    "slice": ('{ lang = "de" }', '{ lang = "en" }', '{ lang = "fr" }'),
    "window": ('"1h"', '"5m"', '"24h"', '"9h"'),
    "estimand": ('"gold_set"', '"questions_like_these"'),
    "min_samples": NUMBER,
    "page_below": ("0.5", "0.1"),
    "page_above": ("0.5", "0.9"),
    "severity": ('"page"', '"ticket"'),
    "kind": ('"threshold"', '"distinct"', '"quantile_ratio"'),
}
WRONG = ("-1", "1e400", '"x"', "[1]", "true", "{}", "2026-01-01", "nan", '"""\nlong"""')
MISSPELT = ("samplng.rate = 0.1", "gates.mrr.atleast = 0.5", "serve.opt = 1", "x = 1", "= 1", "[a", "capture = 1")
PORTS = '[serve]\notlp = "127.0.0.1:0"\ngrpc = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\nstate_dir = "state"\n'
"""A server on ports that are free."""


def gate_lines(rng: random.Random, name: str, *, right: bool) -> list[str]:
    """The keys of a gate."""
    side, level = rng.choice((("at_least", "page_below"), ("at_most", "page_above")))
    names = [key for key in GATE if not right or key not in ("metric", "kind", "page_below", "page_above", "source")]
    chosen = rng.sample([*names, level], rng.choice((0, 0, 1, 1, 2, 3)))
    bound = "0.45" if right else rng.choice(("0.8", "0.05", "0.5", "1", "2.5"))
    values = {"page_below": ("0.2",), "page_above": ("0.7",)} if right else {}
    lines = [f"{side} = {bound}", *(f"{key} = {picked(rng, (GATE | values)[key], right=right)}" for key in chosen)]
    return [f'gates."{name}".{line}' for line in lines]


def picked(rng: random.Random, values: tuple[str, ...], *, right: bool) -> str:
    """One of the values of a key; the wrong ones stand last."""
    return rng.choice(values[: max(1, len(values) - 1)] if right else values)


def config_lines(rng: random.Random) -> list[str]:
    """A file in an order of chance; half of the files are meant to be right."""
    right = rng.random() < 0.5
    names = [name for name in KEYS if not right or not name.startswith(PARTIAL)]
    found = [f"{key} = {picked(rng, KEYS[key], right=right)}" for key in rng.sample(names, rng.randint(1, 20))]
    found += NEEDED if right else []
    found = list({line.partition(" = ")[0]: line for line in found}.values()) if right else found
    for name in rng.sample(GATED[: -1 if right else None], rng.choice((0, 1, 2, 4))):
        found += gate_lines(rng, name, right=right)
    if rng.random() < 0.1 or not right:
        at = rng.randrange(len(found))
        found[at] = found[at].partition(" = ")[0] + " = " + rng.choice(WRONG)
    if not right and rng.random() < 0.15:
        found.append(rng.choice((*MISSPELT, *found)))
    rng.shuffle(found)
    return found


NEEDED = (
    *('gold.first.path = "first.jsonl"', 'gold.second.path = "second.jsonl"', 'slices.lang = ["de", "en"]'),
    "pipelines.support.sampling.rate = 0.5",
)
"""What others name."""
PARTIAL = (
    "probe",
    "judges",
    "labels.proxy",
    "capture.gold",
    "export",
    "pipeline.name",
    "refusal.patterns",
    "serve.tls",
)
"""Keys that need others, or that do not go with others."""


def rule_lines(rng: random.Random) -> list[str]:
    """A file of which rules are made."""
    names = [name for name in KEYS if name.startswith(("windows", "slices", "alarms", "links", "pipelines", "metrics"))]
    found = [f"{key} = {KEYS[key][0]}" for key in rng.sample(names, rng.randint(0, 6))]
    found += [line for line in NEEDED if line.partition(" = ")[0] not in "".join(found)]
    found += [f"gates.preset = {rng.choice(PRESETS)}"] if rng.random() < 0.4 else []
    for name in rng.sample(GATED[:-1], rng.randint(1, 5)):
        found += gate_lines(rng, name, right=rng.random() < 0.95)
    return found
