"""What a slow-burn ticket says: the time there is data of, and one window a gate."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import yaml

from ragmon.export.rules import render, rule_groups, slow_burn
from ragmon.export.rules.burn_cases import failing
from ragmon.export.rules.promtool import render_tests
from tests.export.test_rules import promtool

GATES = "[gates.answer_precision]\nat_least = 0.8\n[gates.error_rate]\nat_most = 0.05\n"


def tickets(real, settings, folder, at, *phases, gate="answer_precision"):
    """The summaries of the tickets that fire at a time, of a gate that had a hundred requests a minute."""
    groups = rule_groups(settings)
    read = [group for group in groups if group.name in ("ragmon.gates", "ragmon.burn", "ragmon.alerts.gates")]
    (folder / "ragmon.rules.yml").write_text(render(read))
    chosen = next(one for one in settings.policy(live=True).gates if one.name == gate)
    series = failing(replace(chosen, pipeline="shop"), 100, *phases)
    tests = yaml.safe_load(render_tests([], read))
    tests["evaluation_interval"] = "1m"
    tests["tests"] = [
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            # Nothing is expected, so that promtool prints what it got.
            "alert_rule_test": [{"eval_time": f"{at}m", "alertname": slow_burn.ALERT, "exp_alerts": []}],
        }
    ]
    (folder / "tests.yml").write_text(yaml.safe_dump(tests))
    done = promtool(real, "test", "rules", folder / "tests.yml")
    return re.findall(r'summary="shop/(\S+): ([^"]*)"', done.stdout + done.stderr)


def test_a_ticket_on_a_new_server_speaks_of_the_minutes_it_has(real, configured, tmp_path):
    found = tickets(real, configured(GATES), tmp_path, 14, (30, 1.0))
    assert found == [("answer_precision", "beyond its threshold in the 14m 0s of the last 3d with data")]


def test_a_fault_of_nine_minutes_has_no_ticket_half_an_hour_later(real, configured, tmp_path):
    """Its failures are half of all there ever were."""
    fault = ((9, 1.0), (60, 0.0))
    assert len(tickets(real, configured(GATES), tmp_path, 15, *fault)) == 1
    assert tickets(real, configured(GATES), tmp_path, 9 + 29, *fault) == []


@pytest.mark.slow
def test_of_a_window_that_is_full_of_data_all_is_said(real, configured, tmp_path):
    """After a good day, six bad hours are beyond the level worth a page in 6 h, and not yet proven beyond in 3 d."""
    found = tickets(real, configured(GATES), tmp_path, 1440 + 300, (1440, 0.0), (300, 0.6))
    assert found == [("answer_precision", "beyond the level worth a page in the last 6h")]


def test_a_ceiling_has_the_same_ticket(real, configured, tmp_path):
    found = tickets(real, configured(GATES), tmp_path, 20, (30, 0.5), gate="error_rate")
    assert found == [("error_rate", "beyond its threshold in the 20m 0s of the last 3d with data")]
