"""Families of random cases, each made from its seed alone, for `write_before`.

Nothing of ragmon is imported here: ragmon reads files, command lines and requests.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.support import before_streams
from tests.support.before_bodies import ADMIN_PATHS, own_records, request, trace_body
from tests.support.before_configs import PORTS, config_lines, rule_lines
from tests.support.before_worker import START
from tests.support.before_worlds import World
from tests.support.mutated_lines import QUESTIONS, Mutator

RESULTS = Path(__file__).with_name("before_results.py")
FIRST = (
    {"qid": "a", "question": "What is it?", "answerable": True, "gold_claim_substr": ["42", "itu"]},
    {"qid": "b", "question": "Was heißt das?", "answerable": True, "gold_claim": "Die Hauptstraße, seit 1950"},
    {"qid": "c", "question": "Who?", "answerable": False, "paraphrases": ["wie geht’s", "Question 1?"]},
    {
        "qid": "d",
        "question": "By number?",
        "answerable": True,
        "gold_citations": ["d3#1", "d4"],
        "tags": {"lang": "de"},
    },
    {"qid": "e", "question": "By text?", "answerable": True, "gold_contexts": ["The old harbour", "a b"]},
    {"qid": "ü", "question": "Quelle est l'année ?", "answerable": True, "gold_citations": ["日本", "Ω", "d1"]},
)
SECOND = (
    {"qid": "a", "question": "What is it?", "answerable": True, "gold_citations": ["d2", "d1"]},
    {"qid": "z", "question": "Another one", "answerable": True, "gold_claim_substr": ["sorry"]},
)
GOLD = '[gold.first]\npath = "first.jsonl"\nmatch = "contains"\n[gold.second]\npath = "second.jsonl"\nuse = ["match"]\n'
GATES = (
    '[gates]\npreset = "default"\n',
    '[gates]\npreset = "wfgy-eval"\nverdict = "point"\n[gates."recall@3"]\nat_least = 0.4\nmin_samples = 3\n',
    '[gates.error_rate]\nat_most = 0.1\nmin_samples = 5\n[gates.mrr]\nat_least = 0.3\nsource = "match"\n',
)
RULES = (
    "",
    """\
[refusal]
tokens = ["n/a", "Straße"]
matcher_counts = false
[metrics]
answered_within = "100ms"
citations_required = true
cluster = ["question"]
[slices]
lang = ["de", "en"]
""",
    """\
[pipelines.support.refusal]
patterns = ["sorry|42"]
window = 20
[pipelines.sales.metrics]
grounded_threshold = 0.5
k = [2, 7]
cluster = ["session"]
[slices]
lang = ["de"]
""",
)
PIPELINES = "[pipelines.support.sampling]\nrate = 0.5\n[pipelines.shop.sampling]\nrate = 1\n"
Task = dict[str, Any]


class Case(NamedTuple):
    """What ragmon is asked.

    Attributes:
        family: What kind of case it is.
        seed: It is made from this alone.
        parts: What may be left out, to thin it out.
        task: Makes the task of some parts: `files`, `steps` by name, and files to `read`.
        volatile: Patterns of leaves of which the type alone is compared.
    """

    family: str
    seed: int
    parts: list[Any]
    task: Callable[[list[Any]], Task]
    volatile: tuple[str, ...] = ()


def json_lines(rows: Any) -> str:
    """Rows as JSON Lines."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def run(*arguments: str) -> Task:
    """The step that runs a command."""
    return {"run_command": arguments}


def gold_files() -> dict[str, str]:
    """The gold sets that lines are about."""
    return {"first.jsonl": json_lines(FIRST), "second.jsonl": json_lines(SECOND)}


def lines(seed: int) -> Case:
    """A trace log of records of every shape, some of them damaged: the report, who is refused, and one trace."""
    rng = random.Random(seed)
    config = rng.choice((GOLD, GOLD, "")) + rng.choice(RULES) + rng.choice(GATES)
    made = [line.decode("utf-8", "surrogateescape") for line in Mutator(seed, wild=rng.choice((0, 0.1, 0.4))).lines(50)]

    def task(parts: list[str]) -> Task:
        files = {"traces.jsonl": "".join(parts), "ragmon.toml": config, **gold_files()}
        steps = {"replay": run("replay", "traces.jsonl", "--format", "json", *options)}
        return {"files": files, "steps": steps | {"show": run("show", "5a" * 16, "traces.jsonl", "--format", "json")}}

    options = rng.choice(((), ("--duplicates", "last"), ("--duplicates", "first")))
    return Case("lines", seed, made, task)


def otlp(seed: int) -> Case:
    """Requests of instrumentations, agents and ragmon, changed here and there, as a file of OTLP: what was read."""
    rng = random.Random(seed)
    bodies = [json.dumps(trace_body(rng)) for _ in range(rng.randint(1, 4))]
    config = rng.choice((GOLD, "")) + rng.choice((*RULES, '[capture]\nretrievers = ["search*"]\nmerge = "rrf"\n'))
    ids = sorted({word for body in bodies for word in _trace_ids(json.loads(body))})[:3]

    def task(parts: list[str]) -> Task:
        files = {"traces.jsonl": "".join(body + "\n" for body in parts), "ragmon.toml": config, **gold_files()}
        steps = {"replay": run("replay", "traces.jsonl", "--format", "json")}
        steps |= {f"show/{n}": run("show", one, "traces.jsonl", "--format", "json") for n, one in enumerate(ids)}
        return {"files": files, "steps": steps}

    return Case("otlp", seed, bodies, task)


def streams(seed: int) -> Case:
    """Traffic of some hours with an incident: windows, verdicts, alarms, the comparison of two releases."""
    rng = random.Random(seed)
    config, gold = before_streams.config(rng), json_lines(before_streams.gold())
    rows = [json_lines([row]) for row in before_streams.traffic(rng)]
    windows = ("--windows",) if rng.random() < 0.4 and json.loads(rows[0])["ts"] > before_streams.START - 3700 else ()

    def task(parts: list[str]) -> Task:
        files = {"traces.jsonl": "".join(parts), "ragmon.toml": config, "gold.jsonl": gold}
        told = ("--format", "json")
        steps = {
            "replay": run("replay", "traces.jsonl", *told, *windows, "--alerts-out", "alerts.jsonl"),
            "gate": run("gate", "traces.jsonl", *told),
            "compare": run("compare", "traces.jsonl", *told, "--by", "build", "--baseline", "b1", "--candidate", "b2"),
        }
        return {"files": files, "steps": steps, "read": ["alerts.jsonl"]}

    return Case("streams", seed, rows, task)


def worlds(seed: int) -> Case:
    """A trace log with something of everything, gold and a ragmon.toml that go with it: the report, and alarms."""
    world = World(seed)

    def task(parts: list[str]) -> Task:
        steps = {"replay": run("replay", "traces.jsonl", "--format", "json", *world.options)}
        return {"files": world.files | {"traces.jsonl": "".join(parts)}, "steps": steps, "read": ["alerts.jsonl"]}

    return Case("worlds", seed, world.lines, task)


def verdicts(seed: int) -> Case:
    """The gates on such a world, and its builds compared: what the exit code says, too."""
    world = World(seed)

    def task(parts: list[str]) -> Task:
        two = ("--by", "build", "--baseline", "b1", "--candidate", "b2")
        steps = {
            "gate": run("gate", "traces.jsonl", "--format", "json"),
            "compare": run("compare", "traces.jsonl", "--format", "json", *two),
        }
        return {"files": world.files | {"traces.jsonl": "".join(parts)}, "steps": steps}

    return Case("verdicts", seed, world.lines, task)


def live(seed: int) -> Case:
    """Traffic with an incident as it comes to a server: evidence of alarms, windows, the reasons of a gate."""
    rng = random.Random(seed)
    config = before_streams.config(rng) + PORTS
    rows = [row for row in before_streams.traffic(rng) if "kind" not in row][:300]
    earlier = min(row["ts"] for row in rows) - START - 60
    made = [json.dumps(row | {"ts": row["ts"] - earlier}) for row in rows]
    reads = [{"port": "admin", "path": path} for path in LIVE_PATHS]

    def task(parts: list[str]) -> Task:
        told, time, sent = [json.loads(part) for part in parts], START, []
        for at in range(0, len(told), 20):
            body, newest = json.dumps(own_records(told[at : at + 20])), max(row["ts"] for row in told[: at + 20])
            post = {
                "port": "otlp",
                "path": "/v1/traces",
                "method": "POST",
                "headers": {"Content-Type": "application/json"},
            }
            sent.append(post | {"body": base64.b64encode(body.encode()).decode(), "later": newest - time})
            time = newest
        files = {"ragmon.toml": config, "gold.jsonl": json_lines(before_streams.gold())}
        return {"files": files, "steps": {"live": {"serve_requests": sent + reads}}}

    return Case("live", seed, made, task, VOLATILE)


LIVE_PATHS = (
    *(
        "/api/status",
        "/metrics",
        "/api/records?pipeline=support&gate=answer_precision",
        "/api/why?gate=support/coverage",
    ),
    "/api/compare?pipeline=support&by=build&baseline=b1&candidate=b2",
)


def _trace_ids(body: Any) -> list[str]:
    if isinstance(body, dict):
        own = [body["traceId"]] if isinstance(body.get("traceId"), str) and len(body["traceId"]) == 32 else []
        return own + [one for held in body.values() for one in _trace_ids(held)]
    return [one for held in body for one in _trace_ids(held)] if isinstance(body, list) else []


def serve(seed: int) -> Case:
    """Requests to a server, some of them hostile; then the server that is started on what the first one left."""
    rng = random.Random(seed)
    config = GOLD + rng.choice(RULES) + rng.choice(GATES) + PIPELINES + PORTS
    made = [request(rng, QUESTIONS) for _ in range(60)]
    reads = [{"port": "admin", "path": path} for path in ADMIN_PATHS]

    def task(parts: list[Task]) -> Task:
        steps = {"send": {"serve_requests": parts}, "verify": run("verify", "--state-dir", "state")}
        steps["replay"] = run("replay", "--journal", "state", "--format", "json", "--windows")
        return {"files": {"ragmon.toml": config, **gold_files()}, "steps": steps | {"read": {"serve_requests": reads}}}

    return Case("serve", seed, made, task, VOLATILE)


VOLATILE = (
    *("*.started", "*.now", "*.last_scored", "*.acknowledged*.at", "*.checkpoint.at"),
    *("*.journal.bytes", "*.journal.oldest", "*.journal.newest", "*.row", "*rows M to*"),
    *("*process_*", "*python_*", "*_seconds", "*ragmon_journal_*", "*_created"),
)
"""Times at which a server did something, how large its files are, and how many rows requests shared."""


def configs(seed: int) -> Case:
    """A ragmon.toml, right or wrong in some places."""
    rng = random.Random(seed)

    def task(parts: list[str]) -> Task:
        files = {"ragmon.toml": "".join(line + "\n" for line in parts), **gold_files()}
        steps = {"check": run("config", "check"), "show": run("config", "show", "--format", "json")}
        return {"files": files, "steps": steps}

    return Case("configs", seed, config_lines(rng), task)


def rules(seed: int) -> Case:
    """The rules of Prometheus that follow from a ragmon.toml."""
    rng = random.Random(seed)
    how = rng.choice((("rules",), ("rules",), ("rules", "--format", "kubernetes"), ("tests",)))

    def task(parts: list[str]) -> Task:
        files = {"ragmon.toml": "".join(line + "\n" for line in parts), **gold_files()}
        return {"files": files, "steps": {how[0]: run("generate", *how)}}

    return Case("rules", seed, rule_lines(rng), task)


def results(seed: int) -> Case:
    """What decorated functions return, of every kind: the lines of the trace log."""
    rng = random.Random(seed)
    content = rng.choice(("full", "full", "full", "none", "hash", "redacted"))
    config = f'[sampling]\nrate = 1.0\n[capture]\ncontent = "{content}"\nhash_key_file = "key"\n'
    config += '[export]\njsonl = "trace.jsonl"\n' + GOLD + PORTS

    def task(parts: list[int]) -> Task:
        files = {"ragmon.toml": config, "key": "k" * 32, **gold_files()}
        return {"files": files, "steps": {"call": {"call_function": (str(RESULTS), "records", {"seeds": parts})}}}

    seeds = [seed * 40 + place for place in range(40)]
    return Case("results", seed, seeds, task, ("*.ts", "*.trace_id", "*.latency_ms.*"))


FAMILIES: dict[str, Callable[[int], Case]] = {
    made.__name__: made for made in (worlds, verdicts, streams, live, lines, otlp, serve, configs, rules, results)
}
