"""What tests of dashboards share: replicas that have seen everything a panel may show, and how Grafana asks."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from time import time

import msgspec
from prometheus_client import CollectorRegistry, start_http_server

from ragmon.core import constants
from ragmon.core.record import Label, Latency
from ragmon.export.prometheus import Collector
from ragmon.export.status import SdkStats, ServerStats
from ragmon.monitor.embedded import Monitor
from ragmon.testing import FakeClock
from tests.support.alarming import NOON, Traffic, write_config

ROOT = Path(__file__).parents[2]
DEPLOYED = ROOT / "deploy" / "ragmon.toml"
GRAFANA = ROOT / "grafana"
MORE = '\n[slices]\nlang = ["de", "en"]\n[judges.tone]\n'
"""Beside what is deployed: slices and a judge."""
WELL, ILL, LATER = 70, 15, 2
"""Minutes that alarms learn from; minutes in which answers are wrong; minutes after the first scrape."""
WRONG = {"wrong": 0.6, "over": 0.3, "under": 0.5, "error": 0.15, "empty": 0.2}
_VARIABLE = re.compile(r"\$\{?([a-z_]\w*)\}?")
CHOSEN = {
    **dict.fromkeys(("job", "instance", "pipeline", "source"), ".+"),
    "window": "1h",
    "__rate_interval": "5m",
    "__range": "5m",
}
"""What Grafana puts in place of its variables, here: everything, over five minutes."""


def configuration(folder, more=MORE):
    """The deployed configuration, and more, with a gold set beside it; returns its path."""
    return write_config(folder, DEPLOYED.read_text(encoding="utf-8") + more)


class Replica:
    """A monitor that has seen good minutes and bad ones, served with what a server says of itself.

    Args:
        settings: The configuration.
        seed: Of its traffic.
    """

    def __init__(self, settings, seed):
        self._clock = FakeClock(60.0 * NOON)
        self._traffic = Traffic(seed, live=40, gold=12, pipeline="harbour")
        self.monitor = Monitor(settings, clock=self._clock)
        self._minute, self.fed, self._number = NOON, 0, 0
        self.monitor.captured = self._captured
        self._server = self._thread = self._reading = None

    def run(self, minutes, **shares):
        """So many minutes of traffic; then somebody labels what was answered."""
        answered = []
        for _ in range(minutes):
            for record in self._traffic.minute(self._minute, index=f"i{self._minute % 2}", **shares):
                found = self._filled(record)
                self._clock.now = found.ts
                self.monitor.submit(found)
                self.fed += 1
                if found.source == "live" and found.answer_json is not None and found.answer_json.citations:
                    answered.append(found)
            self._minute += 1
            self._clock.now = 60.0 * self._minute
        labels = [
            Label(trace_id=one.trace_id, rater="ada", correct=one.measures["judge_tone"] > 0.5 or place % 7 == 0)
            for place, one in enumerate(answered[-120:])
        ]
        self.monitor.label([*labels, Label(trace_id="f" * 32, rater="ada", correct=True)])
        self._reading = self._read()  # once: the clock stands still until more traffic comes

    def _filled(self, record):
        """A record with all that metrics may ask for."""
        self._number = number = self._number + 1
        total = record.latency_ms.total
        changed = {
            "candidate_ids": ["d9", *record.retrieved_ids] if record.retrieved_ids else None,
            "contexts": ["that is right", "or not"] if number % 3 else ["of something else"],
            "measures": {"judge_tone": 0.9 if number % 3 else 0.3},
            "latency_ms": Latency(total=total, retrieve=total / 5, generate=total / 2),
            "tags": {"lang": ("de", "en", "fr")[number % 3]},
            "build": f"b{self._minute // 60 % 2}",
            "exported": number % 10 == 0,
        }
        if record.source == "live" and number % 5 == 0:
            changed["q"] = f"What is {number % 30}?"
        return msgspec.structs.replace(record, **changed)

    def _captured(self):
        n, user = self.fed, ("harbour", constants.LIVE)
        return SdkStats(
            calls={(*user, "rest"): 20 * n, (*user, "error"): n, ("harbour", constants.PROBE, "rest"): n},
            errors={("harbour", "TimeoutError"): n},
            orphans=n,
            withheld=n,
            spans={"late": n},
            judged={("tone", constants.SCORED): n, ("tone", constants.TIMEOUT): n},
        )

    def _read(self):
        """What is exported: the monitor's reading, in a server."""
        n = self.fed
        served = ServerStats(
            refused={"unauthorized": n},
            size=n << 10,
            missing=1,
            lost={"queue_full": n},
            unknown={("contexts", "content_not_captured"): n},
            probes={("harbour", "asked"): n, ("harbour", "failed"): n},
        )
        found = self.monitor.snapshot()
        books = {**found.stages, "ingest": replace(found.stages["score"], received=3 * n, ignored={"no_rag": 2 * n})}
        books["score"] = replace(books["score"], received=books["score"].received + n, dropped={"too_old": n})
        return replace(found, served=served, stages=books, last_scored=time())  # in Prometheus it is today

    def __enter__(self):
        self._reading = self._read()
        registry = CollectorRegistry()
        registry.register(Collector(lambda: self._reading))
        self._server, self._thread = start_http_server(0, "127.0.0.1", registry)
        self.address = f"127.0.0.1:{self._server.server_port}"
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def asked(expression, **chosen):
    """An expression as Grafana sends it."""
    return _VARIABLE.sub(lambda found: {**CHOSEN, **chosen}[found[1]], expression)


def panels(document):
    """The panels of a dashboard without its headings."""
    return [panel for panel in document["panels"] if panel["type"] != "row"]


def read(folder):
    """The dashboards in a folder by their uid."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
