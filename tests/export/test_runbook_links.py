"""The link to the runbook in a fired alert opens: without any setting, at the monitor that the alert is about."""

from __future__ import annotations

import json
import re
import urllib.request
import xml.etree.ElementTree as ET

import pytest

from ragmon.core.errors import RagmonError
from ragmon.export.pages import CONTENT_SECURITY_POLICY
from ragmon.export.rules import render, rule_groups
from ragmon.monitor.embedded import Monitor
from tests.support.alertmanagers import alertmanager_in, listening
from tests.support.deployed import ROOT
from tests.support.servers import prometheus
from tests.support.waiting import TIMEOUT, wait_for

TEXT = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
ALERTS = re.findall(r"^## (Ragmon\w+)$", TEXT, re.MULTILINE)
ALERT = "RagmonConfigReloadFailed"
"""An alert that a monitor fires at once where its rule does not wait."""


def opened(url):
    """The page at an address."""
    with urllib.request.urlopen(url, timeout=TIMEOUT) as response:
        assert response.status == 200
        return response.read().decode(), response.headers


@pytest.fixture
def monitor(configured):
    with Monitor(configured("")).start("127.0.0.1:0") as running:
        yield running


def test_the_page_has_a_section_for_every_alert_and_loads_nothing(monitor):
    body, headers = opened(f"http://{monitor.address}/runbook")
    page = ET.fromstring(body)
    anchors = [element.attrib["id"] for element in page.iter() if "id" in element.attrib]
    assert anchors == [alert.lower() for alert in ALERTS]
    links = [element.attrib["href"] for element in page.iter() if "href" in element.attrib]
    assert [link for link in links if link.startswith("#")] == [f"#{anchor}" for anchor in anchors]
    assert not [link for link in links if "//" in link]
    assert headers["Content-Security-Policy"] == CONTENT_SECURITY_POLICY


def test_a_command_of_the_runbook_is_on_the_page_as_it_is_typed(monitor):
    body, _ = opened(f"http://{monitor.address}/runbook")
    shown = "".join(ET.fromstring(body).itertext())
    for block in re.findall(r"^```bash\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL):
        assert block in shown


def at_once(rules):
    """Rules whose alerts do not wait."""
    return re.sub(r"\n\s+for: \d+[mh]", "", rules)


@pytest.mark.slow
@pytest.mark.parametrize("links", ["", "[links]\nstatus = 'http://{address}/'"])
def test_the_link_of_an_alert_that_alertmanager_tells_opens_at_its_section(real, configured, tmp_path, links):
    """Of an alert with an instance, and of one without."""
    with Monitor(configured("")).start("127.0.0.1:0") as running:
        running.trouble = RagmonError("ragmon.toml has an unknown key")
        settings = configured(links.format(address=running.address))
        (tmp_path / "rules.yml").write_text(at_once(render(rule_groups(settings))))
        with listening() as (hook, told):
            route = {"receiver": "all", "group_wait": "0s", "group_interval": "1s", "group_by": ["alertname"]}
            receivers = [{"name": "all", "webhook_configs": [{"url": f"{hook}/all"}]}]
            (tmp_path / "alertmanager.yml").write_text(json.dumps({"route": route, "receivers": receivers}))
            with (
                alertmanager_in(tmp_path) as manager,
                prometheus(real("prometheus"), tmp_path, [running.address], [tmp_path / "rules.yml"], [manager]),
            ):
                for alert in (ALERT, "RagmonWatchdog"):

                    def urls(alert=alert):
                        """Its link as it was told last; before the first scrape it names a file."""
                        of_alert = [one for _, one in told if one["labels"]["alertname"] == alert]
                        return [one["annotations"]["runbook_url"] for one in of_alert]

                    (*_, url) = wait_for(urls, lambda found: found and found[-1].startswith("http"))
                    assert url == f"http://{running.address}/runbook#{alert.lower()}"
                    assert f'<h2 id="{alert.lower()}">{alert}</h2>' in opened(url)[0]


def test_a_runbook_of_ones_own_comes_before_the_status_page(configured):
    def links(text):
        groups = rule_groups(configured(f"[links]\n{text}"))
        return {rule.annotations["runbook_url"] for group in groups for rule in group.rules if rule.alert}

    status, own = 'status = "https://ragmon.example"\n', 'runbook = "https://wiki.example/{alert}"\n'
    assert "https://ragmon.example/runbook#ragmondown" in links(status)
    assert "https://wiki.example/ragmondown" in links(status + own)
    assert all(url.startswith("https://wiki.example/ragmon") for url in links(status + own))
