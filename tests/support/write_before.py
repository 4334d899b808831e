"""What the yardstick says, as golden files: `python -m tests.support.write_before [SUBJECT...]`.

A subject is some cases, of the families of `before_cases` or made here, whose answers `before_worker.py` collects from
the command line and the ports. `tests/golden/before/SUBJECT.json.gz` holds what the yardstick (`make before`) answered;
tests/before/test_before_golden.py asks today's version the same.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from tests.support import before_bodies, before_cases, before_streams
from tests.support.against_before import Version, masked, samples
from tests.support.before import BEFORE, ROOT, write_golden
from tests.support.before_cases import GOLD, PIPELINES, VOLATILE, Case, Task, gold_files, json_lines, run
from tests.support.before_configs import PORTS
from tests.support.before_worker import START

SHARED = ROOT.parent / "shared"
SMALL = ROOT / "tests" / "data" / "squad2" / "small"
WHOLE = 4
"""The worlds of each family whose answers are stored leaf by leaf; of the others the digest of each section is.
`against_before --family F --seed N` shows the leaves."""
WORLDS = 150
"""Of each of two families."""
MINUTES = 120
LIVE_PATHS = ("/api/status", "/metrics", "/api/why?gate=answer_precision", "/api/why?gate=error_rate")
EMBEDDED = Path(__file__).with_name("before_embedded.py")
PRESETS = ("default", "wfgy-eval", "wfgy-example-08", "wfgy-live")


def worlds(family: str, seeds: Iterable[int]) -> Iterator[Case]:
    """Cases of a family of `before_cases`."""
    return (before_cases.FAMILIES[family](seed) for seed in seeds)


def reports(folder: Path, gold: str, traces: dict[str, str]) -> Iterator[Case]:
    """Reports, with windows, of real data.

    Args:
        folder: Where the data lies; without it there are no cases.
        gold: The gold file in it.
        traces: The files of traces by name.
    """
    for name, file in traces.items() if folder.exists() else ():
        paths = str(folder / file), "--gold", str(folder / gold)
        steps = {"replay": run("replay", *paths, "--format", "json", "--windows"), "gate": run("gate", *paths)}
        yield Case(name, 0, [0], lambda _, steps=steps: {"files": {}, "steps": steps})


def alerts() -> Iterator[Case]:
    """Incidents of some hours under each preset, and the alarms of a replay."""
    for preset in PRESETS:
        for seed in range(5):
            rng = random.Random(seed)
            rows = json_lines(before_streams.traffic(rng))
            config = '[gold.items]\npath = "gold.jsonl"\n[alarms]\nfalse_pages_per_30d = 30.0\n'
            config += f'[gates]\npreset = "{preset}"\n'
            files = {"traces.jsonl": rows, "ragmon.toml": config, "gold.jsonl": json_lines(before_streams.gold())}
            steps = {"replay": run("replay", "traces.jsonl", "--format", "md", "--alerts-out", "alerts.jsonl")}
            task: Task = {"files": files, "steps": steps, "read": ["alerts.jsonl"]}
            yield Case(preset, seed, [0], lambda _, task=task: task)


def live() -> Iterator[Case]:
    """An hour and a half with an incident, minute by minute, at a server and at a monitor in the application."""
    for seed in range(2):
        for task in (server, embedded):
            volatile = (*VOLATILE, *("*latency*", "*_seconds*"))
            yield Case(task.__name__, seed, [0], lambda _, task=task, seed=seed: task(seed), volatile)


def config(seed: int) -> str:
    """Gates and alarms for traffic minute by minute."""
    budget = "[alarms]\nfalse_pages_per_30d = 30.0\nlooks_per_day = 24.0\n"
    return f'[gold.items]\npath = "gold.jsonl"\n{budget}[gates]\npreset = "{PRESETS[seed % len(PRESETS)]}"\n'


def minutes(seed: int) -> list[list[dict[str, Any]]]:
    """What each minute brings; from the middle on something is broken."""
    rng, made = random.Random(seed), []
    kind = before_streams.STEPS[seed][0]
    for minute in range(MINUTES):
        start, broken = START + 60 * minute, kind if minute > MINUTES // 2 else ""
        rows = [before_streams.record(rng, start + rng.random() * 55, broken=broken) for _ in range(12)]
        made.append([row | {"pipeline": "support"} for row in rows])
    return made


def server(seed: int) -> Task:
    """The traffic as requests to `ragmon serve`, and what it says in the end."""
    sent: list[Task] = []
    for rows in minutes(seed):
        body = json.dumps(before_bodies.own_records(rows)).encode()
        headers = {"Content-Type": "application/json"}
        post: Task = {"port": "otlp", "path": "/v1/traces", "method": "POST", "headers": headers}
        sent.append(post | {"body": base64.b64encode(body).decode(), "later": 60.0})
    reads = [{"port": "admin", "path": path} for path in LIVE_PATHS]
    files = {"ragmon.toml": config(seed) + PORTS, "gold.jsonl": json_lines(before_streams.gold())}
    return {"files": files, "steps": {"serve": {"serve_requests": sent + reads}}}


def embedded(seed: int) -> Task:
    """The traffic as calls of a decorated function, and what the monitor in that process says in the end."""
    files = {"ragmon.toml": config(seed), "gold.jsonl": json_lines(before_streams.gold())}
    arguments = {"minutes": minutes(seed), "paths": LIVE_PATHS}
    return {"files": files, "steps": {"call": {"call_function": (str(EMBEDDED), "watched", arguments)}}}


def journals() -> Iterator[Case]:
    """Requests that fill a journal, then what the pages and the commands say of it; the last is beyond retention."""
    for seed, pause in ((1, 0.0), (2, 0.0), (3, 2 * 86400.0)):
        rng = random.Random(seed)
        sent = [before_bodies.request(rng, before_cases.QUESTIONS) for _ in range(150)]
        sent[75] |= {"later": pause}
        reads = [{"port": "admin", "path": path} for path in (*before_bodies.ADMIN_PATHS, *LIVE_PATHS)]
        files = {
            "ragmon.toml": GOLD + PIPELINES + PORTS + 'retention = "1d"\n[gates]\npreset = "default"\n',
            **gold_files(),
        }
        steps = {"send": {"serve_requests": sent + reads}, "verify": run("verify", "--state-dir", "state")}
        steps["replay"] = run("replay", "--journal", "state", "--format", "json")
        task: Task = {"files": files, "steps": steps | {"read": {"serve_requests": reads}}}
        yield Case("journal", seed, [0], lambda _, task=task: task, VOLATILE)


SQUAD2, QAEVAL = SHARED / "data" / "squad2", SHARED / "data" / "qaeval"
SUBJECTS: dict[str, Callable[[], Iterator[Case]]] = {
    "worlds/streams": lambda: worlds("streams", range(WORLDS)),
    "worlds/lines": lambda: worlds("lines", range(WORLDS)),
    "reports/small": lambda: reports(SMALL, "gold.jsonl", {"000": "traces.jsonl", "002": "traces_002.jsonl"}),
    "reports/squad2": lambda: reports(
        SQUAD2, "gold.jsonl", {name: f"traces/{name}.jsonl.gz" for name in ("bert", "extractive", "nlnet")}
    ),
    "reports/qaeval": lambda: reports(
        QAEVAL, "gold.jsonl", {name: f"traces/{name}.jsonl.gz" for name in ("chatgpt", "fid")}
    ),
    "reports/scenario": lambda: reports(
        SHARED / "data" / "scenario" / "standard", "gold.jsonl", {"standard": "stream.jsonl.gz"}
    ),
    "reports/lfrqa": lambda: reports(
        SHARED / "data" / "lfrqa", "lfrqa_citations.jsonl.gz", {"lfrqa": "lfrqa_citations.jsonl.gz"}
    ),
    "alerts/replayed": alerts,
    "alerts/live": live,
    "ports/journals": journals,
    "records/spans": lambda: worlds("otlp", range(80)),
    "records/results": lambda: worlds("results", range(40)),
    "commands/configs": lambda: worlds("configs", range(80)),
    "commands/rules": lambda: worlds("rules", range(20)),
    "ports/hostile": lambda: worlds("serve", range(6)),
}


def document(text: str) -> Any:
    """A text as JSON, JSON Lines or samples of metrics, if it is that; otherwise its lines."""
    for read in (json.loads, lambda text: [json.loads(line) for line in text.splitlines()], samples):
        try:
            return read(text)
        except (ValueError, RecursionError):
            continue
    return text.splitlines()


def documents(said: Any) -> Any:
    """The same of every text in an answer."""
    if isinstance(said, dict):
        return {name: documents(one) for name, one in said.items()}
    if isinstance(said, list):
        return [documents(one) for one in said]
    return document(re.sub(r"rows 1 to \d+", "rows 1 to N", said)) if isinstance(said, str) else said


def digests(found: dict[str, Any]) -> dict[str, str]:
    """The leaves by section: a digest of each."""
    sections: dict[str, list[Any]] = {}
    for path, value in found.items():
        sections.setdefault(re.sub(r"\[\d+\]", "", ".".join(path.split(".")[:3])), []).append((path, value))
    return {name: hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16] for name, rows in sections.items()}


def answers(version: Version, subject: str, most: int | None = None) -> dict[str, dict[str, Any]]:
    """What a version answers to the cases of a subject, or the first of them: leaves, or digests of sections."""
    found = {}
    for place, case in enumerate(islice(SUBJECTS[subject](), most)):
        task = case.task(case.parts)
        version.ask(task | {"steps": list(task["steps"].values())})
        answer = version.answer()
        said = documents(dict(zip(task["steps"], answer["said"], strict=True)) | answer["read"])
        whole = place < WHOLE or not subject.startswith(("worlds", "reports/scenario"))
        told = masked(said, case.volatile)
        found[f"{case.family}/{case.seed}"] = told if whole else digests(told)
    return found


def main(subjects: list[str]) -> None:
    """Write some subjects, or all."""
    version = Version(BEFORE)
    for subject in subjects or SUBJECTS:
        write_golden(subject, answers(version, subject))
    version.close()


if __name__ == "__main__":
    main(sys.argv[1:])
