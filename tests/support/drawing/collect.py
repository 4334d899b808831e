"""What Prometheus answers to every query of the dashboards, for `draw.jsx`.

Two replicas live through a minute of traffic every second for a while, and a Prometheus scrapes them.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from threading import Event

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2]))

from ragmon.config.load import load  # noqa: E402
from ragmon.export.dashboards import generate  # noqa: E402
from tests.support.dashboard_world import ROOT, WELL, WRONG, Replica, asked, configuration, panels  # noqa: E402 - found just now
from tests.support.servers import prometheus  # noqa: E402

GOOD, ILL = 40, 50
"""Seconds, and minutes of traffic: first all is well, then it is not."""


def answers(server, document, start, end):
    """What each query of each panel brings: a matrix over time, or a vector of now."""
    found = {}
    for panel in panels(document):
        for target in panel["targets"]:
            query = asked(target["expr"], __rate_interval="15s", __range=f"{int(end - start)}s")
            ways = {"start": start, "end": end, "step": 1} if target.get("range") else {"time": end}
            path = "query_range" if target.get("range") else "query"
            found[f"{panel['id']}{target['refId']}"] = server.ask(path, query=query, **ways)["result"]
    return found


def main(folder):
    """Write data.json beside this file."""
    settings = load(configuration(folder), environ={})
    with Replica(settings, 1) as one, Replica(settings, 2) as other:
        for replica in (one, other):
            replica.run(WELL)
        rules = [ROOT / "deploy" / "rules" / "ragmon.yml"]
        with prometheus(shutil.which("prometheus"), folder, [one.address, other.address], rules) as server:
            start, pause = time.time(), Event()
            for second in range(GOOD + ILL):
                for replica in (one, other):
                    replica.run(1, **(WRONG if second >= GOOD else {}))
                pause.wait(max(0.0, start + second + 1 - time.time()))
            end = time.time()
            documents = [json.loads(text) for text in generate(settings).values()]
            told = [{"dashboard": one, "answers": answers(server, one, start, end)} for one in documents]
    (HERE / "data.json").write_text(json.dumps({"from": start, "to": end, "dashboards": told}))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(name))
