"""Real servers for tests: started on a free loopback port in a folder of their own, ended by their process."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from time import monotonic

from tests.support.waiting import TIMEOUT

_TICK = threading.Event()


class Prometheus:
    """A running Prometheus.

    Args:
        address: Where it listens.
    """

    def __init__(self, address):
        self.address = address

    def wait_until_ready(self):
        """Wait until it answers queries: it listens before it has opened its database."""
        deadline = monotonic() + TIMEOUT
        while True:
            try:
                urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=TIMEOUT).close()
            except urllib.error.HTTPError as error:
                error.close()
                assert monotonic() < deadline, "Prometheus does not become ready"
                _TICK.wait(0.1)
            else:
                return

    def ask(self, path, **parameters):
        """What the HTTP API answers."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=TIMEOUT) as response:
            return json.load(response)["data"]

    def query(self, expression):
        """The values of an instant query by their labels, without the target's own."""
        return {
            tuple(
                sorted((k, v) for k, v in found["metric"].items() if k not in ("__name__", "job", "instance"))
            ): float(found["value"][1])
            for found in self.ask("query", query=expression)["result"]
        }

    def value(self, expression):
        """The one value of an instant query; None where there is none."""
        found = self.query(expression)
        assert len(found) <= 1, found
        return next(iter(found.values()), None)

    def wait_for(self, expression, expected):
        """Wait until an instant query has a value."""
        deadline = monotonic() + TIMEOUT
        while (value := self.value(expression)) != expected:
            assert monotonic() < deadline, f"{expression} is {value}, not {expected}"
            _TICK.wait(0.1)


@contextmanager
def prometheus(binary, folder, addresses, rules=(), alertmanagers=()):
    """A Prometheus that scrapes some addresses, and evaluates its rules, every second.

    Args:
        binary: The program.
        folder: Where it keeps its data.
        addresses: What it scrapes; as a mapping, with labels of each target.
        rules: Files of rules.
        alertmanagers: The addresses of those it tells of alerts.
    """
    labelled = addresses if isinstance(addresses, dict) else {address: {} for address in addresses}
    targets = [{"targets": [address], "labels": labels} for address, labels in labelled.items()]
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(path) for path in rules],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": list(alertmanagers)}]}]},
        "scrape_configs": [{"job_name": "ragmon", "static_configs": targets}],
    }
    path = folder / "prometheus.yml"
    path.write_text(json.dumps(config))  # JSON is YAML
    arguments = [f"--config.file={path}", f"--storage.tsdb.path={folder / 'data'}", "--web.listen-address=127.0.0.1:0"]
    arguments.append("--enable-feature=exemplar-storage")
    arguments.append("--rules.alert.resend-delay=1s")  # what fires before Alertmanager was found is told again soon
    with (folder / "prometheus.log").open("w+") as log:
        process = subprocess.Popen([binary, *arguments], stderr=log)
        try:
            running = Prometheus(_listening(process, folder / "prometheus.log"))
            running.wait_until_ready()
            yield running
        finally:
            process.terminate()
            process.wait(timeout=TIMEOUT)


def _listening(process, log):
    """The address a starting server says it listens on."""
    deadline = monotonic() + TIMEOUT
    while process.poll() is None and monotonic() < deadline:
        found = re.search(r'msg="Listening on" address=(\S+)', log.read_text())
        if found:
            return found[1]
        _TICK.wait(0.05)
    raise AssertionError(log.read_text())
