"""Which alarms and alerts fire while four of five pipelines are broken: at ragmon, and by its rules for Prometheus.

The application and `ragmon serve` run under a hurried clock. What `/metrics` said, minute by minute, is given to
`promtool test rules` with the rules of `ragmon generate rules`: so a busy machine misses no alert.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

from tests.support.before import ROOT, environment
from tests.support.many_commands import Run, run_all

PACE = 60
"""An hour of the drill takes a minute."""
WELL, BROKEN = 75, 60
"""Minutes of the first two parts, the first longer than alarms learn; the third ends when no alarm fires."""
PATIENCE = 240
"""Minutes of the third part at most."""
LIMIT = 60.0
"""Seconds for a program to start, to end, or to answer."""
CONFIGURATION = """
[sampling]
rate = 1.0
[capture]
content = "full"
[gold.main]
path = "gold.jsonl"
[metrics]
answered_within = "20ms"
[gates]
preset = "default"
[gates.answered_within]
at_least = 0.90
[gates.index_hash]
kind = "distinct"
at_most = 1.0
[pipelines.swapped]
[pipelines.refusing]
[pipelines.failing]
[pipelines.slow]
[pipelines.quiet]
[serve]
otlp = "127.0.0.1:0"
grpc = "127.0.0.1:0"
admin = "127.0.0.1:0"
state_dir = "state"
"""
LABELS = ("alertname", "pipeline", "gate", "severity")


def drill(folder: Path) -> dict[str, Any]:
    """`drill/alerts`: the alarms of `/api/status` and the alerts of the rules, well, broken and in the end.

    Args:
        folder: An empty folder.
    """
    (folder / "ragmon.toml").write_text(CONFIGURATION, encoding="utf-8")
    (folder / "gold.jsonl").write_text("".join(json.dumps(item) + "\n" for item in gold()), encoding="utf-8")
    (rules,) = run_all(folder, [Run(["generate", "rules"])])
    (folder / "rules.yml").write_text(rules["out"], encoding="utf-8")
    env = environment(TMPDIR=str(folder), PACE=str(PACE), BEGUN=str(time.time()))
    alarms: dict[str, set[str]] = {}
    with ExitStack() as stack:
        places = stack.enter_context(_server(folder, env))
        program = str(ROOT / "tests" / "support" / "drill_program.py")
        sending = env | {"RAGMON_ENDPOINT": f"http://{places['otlp']}"}
        app = stack.enter_context(_hurried(folder, sending, program))
        watch = Watch(places["admin"])
        alarms["well"] = watch.look(WELL)
        app.send_signal(signal.SIGUSR1)
        alarms["broken"] = watch.look(WELL + BROKEN)
        app.send_signal(signal.SIGUSR2)
        watch.look(watch.minute + PATIENCE, until_quiet=True)
        alarms["end"] = watch.alarms()
    alerts = _alerts(folder, watch.series, [*range(5, WELL + BROKEN + 5, 5)])
    parts = {"well": range(WELL), "broken": range(WELL, WELL + BROKEN + 5)}
    found = {part: set[str]().union(*(alerts.get(minute, ()) for minute in parts[part])) for part in parts}
    for alerted in found.values():  # an incident may be confirmed sooner than its ticket is seen
        alerted -= {alert.removesuffix("page") + "ticket" for alert in alerted if alert.startswith("RagmonIncident")}
    told = {part: sorted(alerted) for part, alerted in found.items()}
    return {"drill/alerts": {"alarms": {part: sorted(held) for part, held in alarms.items()}, "alerts": told}}


class Watch:
    """Looks at a server every minute of the hurried clock.

    Args:
        admin: The server's admin port.

    Attributes:
        minute: How many have passed.
        series: The values of every series of `/metrics` by minute.
    """

    def __init__(self, admin: str) -> None:
        self.minute = 0
        self.series: dict[str, dict[int, str]] = {}
        self._admin, self._begun = admin, time.monotonic()

    def look(self, until: int, *, until_quiet: bool = False) -> set[str]:
        """The alarms that fire at any minute up to one, or up to the first in which none does."""
        found: set[str] = set()
        while self.minute < until:
            time.sleep(max(0.0, self._begun + self.minute * 60 / PACE - time.monotonic()))
            with suppress(OSError):  # a busy machine answers later
                for line in _get(f"http://{self._admin}/metrics").splitlines():
                    if not line.startswith("#"):
                        name, _, value = line.rpartition(" ")
                        self.series.setdefault(name, {})[self.minute] = value
                found |= (firing := self.alarms())
                if until_quiet and not firing:
                    break
            self.minute = int((time.monotonic() - self._begun) * PACE / 60) + 1
        return found

    def alarms(self) -> set[str]:
        """The alarms that fire now."""
        alarms = json.loads(_get(f"http://{self._admin}/api/status"))["alarms"]
        return {f"{alarm['pipeline']}/{alarm['alert']}" for alarm in alarms}


def _alerts(folder: Path, series: dict[str, dict[int, str]], minutes: list[int]) -> dict[int, set[str]]:
    """The alerts that fire at some minutes by the rules in a folder, by their labels; from the words of promtool.

    It is told to expect none, and says what it got.
    """
    names = re.findall(r"- alert: (\w+)", (folder / "rules.yml").read_text(encoding="utf-8"))
    asked = [{"eval_time": f"{minute}m", "alertname": name} for minute in minutes for name in names]
    last, target = max(minutes), 'instance="a:1",job="ragmon"'
    written = [{"series": f"up{{{target}}}", "values": f"1x{last}"}]
    for name, values in series.items():
        told = " ".join(values.get(minute, "_") for minute in range(last + 1))
        family, _, labels = name.partition("{")
        written.append({"series": f"{family}{{{target},{labels or '}'}", "values": told})
    test = {"interval": "1m", "input_series": written, "alert_rule_test": asked}
    document = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [test]}
    (folder / "tests.yml").write_text(json.dumps(document), encoding="utf-8")  # JSON is YAML
    promtool = shutil.which("promtool")
    assert promtool is not None, "promtool is not installed"
    done = subprocess.run(
        [promtool, "test", "rules", "tests.yml"], cwd=folder, capture_output=True, text=True, check=False
    )
    found: dict[int, set[str]] = {}
    minute = None
    for line in (done.stdout + done.stderr).splitlines():
        if told_at := re.search(r"alertname: \w+, time: (\w+)", line):
            minute = sum(
                int(n) * {"h": 60, "m": 1, "s": 0}[unit] for n, unit in re.findall(r"(\d+)([hms])", told_at[1])
            )
        elif held := re.search(r"Labels:\{(.*)\}", line):
            assert minute is not None
            labels = dict(re.findall(r'(\w+)="([^"]*)"', held[1]))
            if labels["severity"] != "info":  # which tells nobody, and comes and goes by a hair
                found.setdefault(minute, set()).add(" ".join(labels[name] for name in LABELS if name in labels))
    return found


def gold() -> Iterator[dict[str, Any]]:
    """Forty questions that have an answer, and twenty that have none."""
    for number in range(40):
        claims = {"gold_claim_substr": [f"number {number}"], "gold_citations": [f"d{number + 1}"]}
        yield {"qid": f"a{number}", "question": f"What is on page {number}?", "answerable": True, **claims}
    for number in range(20):
        yield {"qid": f"u{number}", "question": f"Who wrote page {number}?", "answerable": False}


@contextmanager
def _hurried(folder: Path, env: dict[str, str], *arguments: str, **how: Any) -> Iterator[Any]:
    """A program under the hurried clock, ended at the end."""
    command = [sys.executable, "-W", "ignore", str(ROOT / "tests" / "support" / "hurried_program.py"), *arguments]
    with subprocess.Popen(command, cwd=folder, env=env, text=True, **how) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(LIMIT)


@contextmanager
def _server(folder: Path, env: dict[str, str]) -> Iterator[dict[str, str]]:
    """`ragmon serve` under the hurried clock; gives its addresses."""
    with _hurried(folder, env, "serve", stderr=subprocess.PIPE) as process:
        places = {}
        for line in process.stderr:
            name, _, place = line.strip().partition(": ")
            places[name] = place
            if line == "ready\n":
                break
        Thread(target=process.stderr.read, daemon=True).start()  # so that it can go on writing
        yield places


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=LIMIT) as answer:
        text: str = answer.read().decode()
        return text


SUBJECTS: dict[str, Callable[[Path, Path], dict[str, Any]]] = {"drill": drill}
