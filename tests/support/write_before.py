"""What ragmon answers to many cases, as golden files: `python -m tests.support.write_before [SUBJECT...]`.

A subject is some cases, of the families of `before_cases` or made here, whose answers `before_worker.py` collects from
the command line and the ports. `tests/golden/before/SUBJECT.json.gz` holds the answers of the version that wrote them;
tests/before/test_before_golden.py asks today's version the same.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import islice, product
from pathlib import Path
from typing import Any

from tests.support import before_bodies, before_cases, before_incidents
from tests.support.before import NOW, ROOT, environment, leaves, write_golden
from tests.support.before_cases import GOLD, PIPELINES, VOLATILE, Case, Task, gold_files, json_lines, run
from tests.support.before_configs import PORTS
from tests.support.before_incidents import BUDGET, KINDS, Traffic
from tests.support.before_worker import START

SHARED = ROOT.parent / "shared"
SMALL = ROOT / "tests" / "data" / "squad2" / "small"
WHOLE = 20
"""The worlds of each family whose answers are stored leaf by leaf; of the others the digest of each section is."""
WORLDS = {"worlds": 150, "streams": 50, "lines": 100}
"""How many of each family."""
LIVE = range(20, 150)
"""The minutes of an incident stream that are sent live: an hour of calm, the first incident, and its end."""
LIVE_PATHS = ("/api/status", "/metrics", "/api/why?gate=answer_precision", "/api/why?gate=error_rate")
WORKER = Path(__file__).with_name("before_worker.py")
TODAY = ((r"(?m)^patterns = ", "replace = true\npatterns = "),)
"""What a ragmon.toml of a case says in other words today: patterns in a table `[refusal]` add, or replace."""
EMBEDDED = Path(__file__).with_name("before_embedded.py")
PRESETS = ("default", "wfgy-eval", "wfgy-example-08", "wfgy-live")


class Version:
    """A process that answers for this version."""

    def __init__(self) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen([NOW, WORKER], env=environment(), **pipes)

    def ask(self, task: dict[str, Any]) -> None:
        """Hand in a task, with its ragmon.toml in today's words."""
        if text := task["files"].get("ragmon.toml"):
            for pattern, words in TODAY:
                text = re.sub(pattern, words, text)
            task = task | {"files": task["files"] | {"ragmon.toml": text}}
        self._process.stdin.write(json.dumps(task).encode() + b"\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """What it says of the task; waits for it."""
        line = self._process.stdout.readline()
        assert line, f"{WORKER.name} ended with {self._process.wait()}"
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


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
    for preset, seed in product(PRESETS, range(len(KINDS))):
        files = incident_files(preset) | {"traces.jsonl": json_lines(Traffic(seed).rows())}
        steps = {"replay": run("replay", "traces.jsonl", "--format", "json", "--alerts-out", "alerts.jsonl")}
        task: Task = {"files": files, "steps": steps, "read": ["alerts.jsonl"]}
        yield Case(preset, seed, [0], lambda _, task=task: task)


def incident_files(preset: str) -> dict[str, str]:
    """What a monitor of the incidents needs."""
    config = f'[gold.items]\npath = "gold.jsonl"\n[pipelines.support]\n{BUDGET}[gates]\npreset = "{preset}"\n'
    return {"ragmon.toml": config, "gold.jsonl": json_lines(before_incidents.gold())}


def live() -> Iterator[Case]:
    """Incidents minute by minute, at a server and at a monitor in the application, which times its calls itself."""
    for seed in range(2):
        for task, volatile in ((server, VOLATILE), (embedded, (*VOLATILE, "*latency*", "*_seconds*"))):
            yield Case(task.__name__, seed, [0], lambda _, task=task, seed=seed: task(seed), volatile)


def server(seed: int) -> Task:
    """The traffic as requests to `ragmon serve`, and what it says in the end."""
    reads = [{"port": "admin", "path": path} for path in LIVE_PATHS]
    sent = posts(minutes(seed))
    for place in range(len(sent), 0, -13):  # what fires comes and goes
        sent.insert(place, reads[0])
    files = incident_files(PRESETS[seed])
    files["ragmon.toml"] += PORTS
    return {"files": files, "steps": {"serve": {"serve_requests": [*sent, *reads]}}}


def embedded(seed: int) -> Task:
    """The traffic as calls of a decorated function, and what the monitor in that process says in the end."""
    arguments = {"minutes": minutes(seed), "paths": LIVE_PATHS}
    call = {"call_function": (str(EMBEDDED), "watched", arguments)}
    return {"files": incident_files(PRESETS[seed]), "steps": {"call": call}}


def minutes(seed: int, later: float = 0.0) -> list[list[dict[str, Any]]]:
    """What each minute brings, until the first incident is over."""
    traffic = Traffic(2 * seed, START - 60.0 * LIVE.start + later)  # an even seed: of all calls
    return [traffic.minute(place) for place in LIVE]


def posts(groups: list[list[dict[str, Any]]]) -> list[Task]:
    """A request for the records of each minute, a minute after the one before."""
    bodies = (json.dumps(before_bodies.own_records(rows)).encode() for rows in groups)
    post: Task = {"port": "otlp", "path": "/v1/traces", "method": "POST"}
    post |= {"headers": {"Content-Type": "application/json"}, "later": 60.0}
    return [post | {"body": base64.b64encode(body).decode()} for body in bodies]


def journals() -> Iterator[Case]:
    """Requests that fill a journal, and what the pages say of it; a second server goes on, once beyond retention."""
    for seed, later in ((1, 0.0), (2, 0.0), (3, 2 * 86400.0)):
        rng = random.Random(seed)
        sent = [before_bodies.request(rng, before_cases.QUESTIONS) for _ in range(100)]
        first, *others = posts(minutes(seed % 2)[:30])
        # A status is read until it stays as it is: by then the traces that waited are records of this minute.
        settle = {"port": "admin", "path": "/api/status"}
        sent += [first, settle, *others]
        after = posts(minutes(seed % 2, later)[30:50]) if later else []
        after[:1] = [one for post in after[:1] for one in (post | {"later": later}, settle)]
        reads = [{"port": "admin", "path": path} for path in (*before_bodies.ADMIN_PATHS, *LIVE_PATHS)]
        config = GOLD + PIPELINES + PORTS + 'retention = "1d"\n[gates]\npreset = "default"\n'
        steps = {"send": {"serve_requests": sent + reads}, "go on": {"serve_requests": after + reads}}
        steps["verify"] = run("verify", "--state-dir", "state")
        steps["replay"] = run("replay", "--journal", "state", "--format", "json")
        task: Task = {"files": {"ragmon.toml": config, **gold_files()}, "steps": steps}
        yield Case("journal", seed, [0], lambda _, task=task: task, VOLATILE)


SQUAD2, QAEVAL = SHARED / "data" / "squad2", SHARED / "data" / "qaeval"
SUBJECTS: dict[str, Callable[[], Iterator[Case]]] = {
    "worlds/worlds": lambda: worlds("worlds", range(WORLDS["worlds"])),
    "worlds/streams": lambda: worlds("streams", range(WORLDS["streams"])),
    "worlds/lines": lambda: worlds("lines", range(WORLDS["lines"])),
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


def samples(text: str) -> dict[str, float]:
    """The samples of an exposition of metrics."""
    rows = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in rows}


def matches(path: str, patterns: tuple[str, ...]) -> bool:
    """Whether one of some patterns is that of a leaf."""
    return any(fnmatchcase(path, pattern) for pattern in patterns)


def document(text: str) -> Any:
    """A text as JSON, JSON Lines or samples of metrics, if it is that; otherwise its lines."""
    for read in (json.loads, lambda text: [json.loads(line) for line in text.splitlines()], samples):
        try:
            return shortened(read(text))
        except (ValueError, RecursionError):
            continue
    return text.splitlines()


def shortened(found: Any) -> Any:
    """A report with its windows as digests, in their order; the series of the whole run stay as they are."""
    if not isinstance(found, dict) or not found.keys() >= {"series", "gates", "digest"}:
        return found
    windows: dict[str, list[str]] = {}
    for one in found["series"]:
        if "end" in one:
            name = "/".join(one.get(key, "") for key in ("pipeline", "source", "gold", "slice", "window"))
            windows.setdefault(name, []).append(digest(one, 8))
    return found | {"series": [one for one in found["series"] if "end" not in one], "windows": windows}


def documents(said: Any) -> Any:
    """The same of every text in an answer."""
    if isinstance(said, dict):
        return {name: documents(one) for name, one in said.items()}
    if isinstance(said, list):
        return [documents(one) for one in said]
    return document(re.sub(r"rows \d+ to \d+", "rows M to N", said)) if isinstance(said, str) else said


def masked(found: Any, volatile: tuple[str, ...], path: str = "") -> Any:
    """A document in which a volatile leaf is the name of its type."""
    if isinstance(found, dict) and found:
        return {name: masked(one, volatile, f"{path}.{name}" if path else name) for name, one in found.items()}
    if isinstance(found, list) and found:
        return [masked(one, volatile, f"{path}[{place}]") for place, one in enumerate(found)]
    return type(found).__name__.replace("int", "float") if matches(path, volatile) else found


def digest(found: Any, digits: int) -> str:
    """So many digits of the digest of a document, whatever the order of its members."""
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:digits]


def digests(found: Any) -> dict[str, str]:
    """A document as a digest of each section; each series of a report is one, and sentences are apart from values."""
    sections: dict[str, list[Any]] = {}
    for path, value in leaves(found):
        place, _, line = path.partition(": ")  # a line that was printed is named by itself
        section = ".".join(re.sub(r"(?<!series)\[\d+\]", "", place).split(".")[:3])
        section += " in words" if line or (isinstance(value, str) and " " in value) else ""
        sections.setdefault(section, []).append((path, value))
    return {name: digest(sorted(rows), 10) for name, rows in sections.items()}


def answers(version: Version, subject: str, most: int | None = None) -> dict[str, Any]:
    """What a version answers to the cases of a subject, or the first of them; of most worlds, digests of sections."""
    found = {}
    for place, case in enumerate(islice(SUBJECTS[subject](), most)):
        task = case.task(case.parts)
        version.ask(task | {"steps": list(task["steps"].values())})
        answer = version.answer()
        said = documents(dict(zip(task["steps"], answer["said"], strict=True)) | answer["read"])
        told = masked(said, case.volatile)
        found[f"{case.family}/{case.seed}"] = (
            told if place < WHOLE or not subject.startswith("worlds") else digests(told)
        )
    return found


def main(subjects: list[str]) -> None:
    """Write some subjects, or all."""
    version = Version()
    for subject in subjects or SUBJECTS:
        found = answers(version, subject)
        assert '"Traceback (most' not in json.dumps(found), f"{subject}: a case does not run"
        if found:
            write_golden(subject, found)
    version.close()


if __name__ == "__main__":
    main(sys.argv[1:])
