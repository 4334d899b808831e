"""What an application does that exports to a bad server: how it ends, what that costs, and what it counts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from tests.support.bad_servers import BEHAVIOURS, BadServer, bad_server
from tests.support.before import ROOT, environment

CALLS = 50
DELAYS = {4.0: "at most 1 s", 12.0: "at most 6 s"}
"""Classes of how long the end takes; the limits are wider than the names, because machines are busy."""
MEMORY = 20 * 1024
"""KiB that the end of the process may add to its peak."""
SAID = re.compile("answered with status|is not trusted|Connection refused")
"""Lines of the log that stand there on every run; those of a connection that breaks race with the end."""
PROGRAM = ROOT / "tests" / "support" / "exporter_program.py"


def bad_servers(folder: Path, names: Sequence[str] = tuple(BEHAVIOURS)) -> dict[str, Any]:
    """`exporter/servers`: an application of 50 calls, by the server that it exports to.

    Args:
        folder: An empty folder.
        names: The servers.
    """
    with ThreadPoolExecutor(3) as pool:
        found = pool.map(partial(exported, folder), names)
        return {"exporter/servers": dict(zip(names, found, strict=True))}


def exported(folder: Path, name: str) -> dict[str, Any]:
    """How an application ends whose server is bad, and what the next one of the same folder tells the server of it.

    Args:
        folder: Where folders are made.
        name: Of the server.
    """
    folder = folder / name.replace(" ", "-")
    (folder / "temporary").mkdir(parents=True)
    with bad_server(name, folder) as (server, address, trust):
        text = f'[sampling]\nrate = 1.0\n[export]\nendpoint = "{address}"\n'
        (folder / "ragmon.toml").write_text(text, encoding="utf-8")
        env = environment(TMPDIR=str(folder / "temporary"), **trust)
        ended = _run(folder, env, CALLS)
        asked = server.asked > 0
        server.turn_good()
        _run(folder, env, 0)
        return {**ended, "asked": asked, **_accounts(server)}


def _run(folder: Path, env: dict[str, str], calls: int) -> dict[str, Any]:
    command = [sys.executable, "-W", "ignore", str(PROGRAM), str(calls)]
    with (folder / f"log-{calls}").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    peak = int(process.stdout.readline())
    called = monotonic()
    _, wait_status, usage = os.wait4(process.pid, 0)
    took = monotonic() - called
    process.returncode = os.waitstatus_to_exitcode(wait_status)
    process.stdout.close()
    lines = (folder / f"log-{calls}").read_text(encoding="utf-8").splitlines()
    return {
        "code": process.returncode,
        "delay": next((name for limit, name in DELAYS.items() if took < limit), "longer"),
        "memory": "below +20 MiB" if usage.ru_maxrss - peak < MEMORY else f"+{usage.ru_maxrss - peak} KiB",
        "log": sorted({_same(line) for line in lines if SAID.search(line)}),
    }


def _same(line: str) -> str:
    """A line of the log without ports, numbers and places in the code."""
    return re.sub(r"\d+", "N", re.sub(r"\w+\.py:\d+", "FILE", line))


def _accounts(server: BadServer) -> dict[str, Any]:
    """What was told of both processes in the end: calls, what was dropped by reason, and what arrived after all."""
    latest: dict[tuple[str, str], int] = {}
    for request in server.metrics:
        for process in request.resource_metrics:
            instance = {pair.key: pair.value.string_value for pair in process.resource.attributes}[
                "service.instance.id"
            ]
            for metric in (metric for scope in process.scope_metrics for metric in scope.metrics):
                for point in metric.sum.data_points:
                    labels = " ".join(pair.value.string_value for pair in point.attributes)
                    latest[instance, f"{metric.name} {labels}"] = point.as_int
    told: Counter[str] = Counter()
    for (_, name), count in latest.items():
        told[name] += count
    return {"told": dict(told), "delivered later": server.spans}


SUBJECTS: dict[str, Callable[[Path, Path], dict[str, Any]]] = {"bad servers": bad_servers}
