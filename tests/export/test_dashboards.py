"""`ragmon generate dashboard`: what it writes, compares and refuses, and that Grafana's SDK knows every word of it."""

from __future__ import annotations

import json
import re
from copy import deepcopy

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from ragmon.export import families
from tests.support.command_line import ragmon
from tests.support.dashboard_world import DEPLOYED, GRAFANA, configuration, panels, read

UIDS = ("ragmon-answers", "ragmon-health", "ragmon-overview", "ragmon-retrieval", "ragmon-traffic")
DASHBOARDS = read(GRAFANA)
OF_THE_DATA_SOURCE = {"titleFormat", "textFormat", "tagKeys"}
"""Keys of an annotation that Grafana's Prometheus data source reads, and the SDK has no name for."""
PLUGIN = '''
import ragmon


@ragmon.register
class CitesNothing(ragmon.Metric):
    """Share of shipped answers without a single citation."""

    name = "cites_nothing_rate"
    better = "lower"

    def score(self, facts):
        return float(not facts.cites_retrieved) if facts.shipped else None
'''


def generate(*arguments, **options):
    return ragmon("generate", "dashboard", *arguments, **options)


@pytest.mark.slow
def test_the_dashboards_of_the_repository_are_those_of_the_deployed_configuration():
    """After a change that is meant to show: `ragmon generate dashboard -c deploy/ragmon.toml -o grafana`."""
    done = generate("--config", DEPLOYED, "--output", GRAFANA, "--check")
    assert (done.code, done.out, done.err) == (0, "", "")
    everything = sorted(path.stem for path in GRAFANA.rglob("*.json"))
    assert tuple(everything) == UIDS, "Grafana takes every .json below its folder for a dashboard"


@pytest.mark.slow
def test_check_names_what_differs_and_what_is_missing_and_writes_nothing(tmp_path):
    assert generate("--config", DEPLOYED, "--output", tmp_path).code == 0
    changed, missing = tmp_path / "ragmon-health.json", tmp_path / "ragmon-traffic.json"
    changed.write_text(changed.read_text().replace("Unassessed", "unassessed"))
    missing.unlink()
    done = generate("--config", DEPLOYED, "--output", tmp_path, "--check")
    assert done.code == 1
    assert done.out.splitlines() == [f"{missing}: missing", f"{changed}: out of date"]
    assert not missing.exists()


@pytest.mark.slow
def test_one_dashboard_goes_to_stdout_the_overview_unless_another_is_named():
    assert generate("--config", DEPLOYED).json == DASHBOARDS["ragmon-overview"]
    done = generate("--config", DEPLOYED, "--name", "health")
    assert done.json == DASHBOARDS["ragmon-health"]
    assert done.out == (GRAFANA / "ragmon-health.json").read_text(encoding="utf-8")
    assert done.out.endswith("}\n")


@pytest.mark.slow
def test_a_mistyped_name_and_options_that_contradict_each_other_are_refused(tmp_path):
    assert generate("--name", "helth").error == ("unknown dashboard: 'helth'", "did you mean health?")
    assert "--output DIR" in generate("--check").error[0]
    assert "one of them" in generate("--name", "health", "--output", tmp_path).error[0]


@pytest.mark.slow
def test_a_broken_configuration_is_told_before_anything_is_written(tmp_path):
    (tmp_path / "ragmon.toml").write_text("[gates.compliance]\nat_leest = 0.9\n")
    message, hint = generate("--config", tmp_path / "ragmon.toml", "--output", tmp_path / "grafana").error
    assert "ragmon.toml:2" in message
    assert "at_least" in hint
    assert not (tmp_path / "grafana").exists()


@pytest.mark.slow
def test_without_the_sdk_the_error_names_the_extra(tmp_path):
    """A module of its name that cannot be imported stands before the installed one, as if that were not there."""
    blocked = tmp_path / "grafana_foundation_sdk.py"
    blocked.write_text("raise ModuleNotFoundError(\"No module named 'grafana_foundation_sdk'\", name=__name__)\n")
    done = generate("--config", DEPLOYED, env={"PYTHONPATH": str(tmp_path)})
    assert done.error[1] == "pip install 'ragmon[dashboard]'"
    assert ragmon("config", "show", "--config", DEPLOYED, env={"PYTHONPATH": str(tmp_path)}).code == 0


@pytest.mark.slow
def test_metrics_of_plugins_judges_and_slices_get_panels_in_their_own_words(tmp_path):
    (tmp_path / "ours.py").write_text(PLUGIN)
    path = configuration(tmp_path)
    path.write_text('plugins = ["ours"]\n' + path.read_text())
    assert generate("--config", path, "--output", tmp_path / "grafana", cwd=tmp_path).code == 0
    found = {panel["title"]: panel for panel in panels(read(tmp_path / "grafana")["ragmon-answers"])}
    new = set(found) - {panel["title"] for panel in panels(DASHBOARDS["ragmon-answers"])}
    assert new == {"cites_nothing_rate", "judge_tone", "Gated metrics by slice"}
    says = found["cites_nothing_rate"]["description"]
    assert says.startswith("Share of shipped answers without a single citation. Less is better.")
    assert found["judge_tone"]["description"].startswith("Mean score of the judge tone over the requests it judged.")


def test_every_gate_has_a_panel_whose_threshold_is_a_series():
    found = {panel["title"]: panel for panel in panels(DASHBOARDS["ragmon-overview"])}
    for gate in re.findall(r"^\[gates\.(\w+)\]", DEPLOYED.read_text(), re.MULTILINE):
        asks = [target["expr"] for target in found[gate]["targets"]]
        assert any(asked.startswith(f"max by (pipeline) ({families.GATE_THRESHOLD}{{") for asked in asks), gate
    assert not [panel for panel in found.values() if "thresholdsStyle" in json.dumps(panel)]


def sdk(document):
    """What the SDK makes of a dashboard."""
    register_default_plugins()
    return json.loads(json.dumps(Dashboard.from_json(deepcopy(document)), cls=JSONEncoder))


def differences(one, other, at=""):
    """Where two documents differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            if key not in one or key not in other:
                yield f"{at}.{key}"
            else:
                yield from differences(one[key], other[key], f"{at}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for place, pair in enumerate(zip(one, other, strict=True)):
            yield from differences(*pair, f"{at}[{place}]")
    elif one != other:
        yield at


def unknown(document):
    """Keys the SDK does not know, or would write in another way."""
    told = re.compile(rf"\.annotations\.list\[\d+\]\.({'|'.join(OF_THE_DATA_SOURCE)})")
    return [path for path in differences(document, sdk(document)) if not told.fullmatch(path)]


@pytest.mark.parametrize("uid", UIDS)
def test_grafanas_sdk_knows_every_key(uid):
    assert unknown(DASHBOARDS[uid]) == []


@pytest.mark.parametrize(
    "misspell",
    [
        lambda one: one.update(refesh=one.pop("refresh")),
        lambda one: one["panels"][1].update(tittle=one["panels"][1].pop("title")),
        lambda one: one["panels"][1]["targets"][0].update(legendFromat=""),
        lambda one: one["panels"][1]["fieldConfig"]["defaults"].update(units="none"),
        lambda one: one["panels"][1]["options"].update(grafMode="none"),
        lambda one: one["templating"]["list"][1].update(allvalue=".+"),
        lambda one: one["annotations"]["list"][0].update(colour="red"),
    ],
)
def test_a_misspelt_key_would_be_found(misspell):
    document = deepcopy(DASHBOARDS["ragmon-overview"])
    misspell(document)
    assert unknown(document)


@pytest.mark.parametrize("uid", UIDS)
def test_panels_are_numbered_queries_named_and_nothing_lies_over_anything(uid):
    document = DASHBOARDS[uid]
    assert [panel["id"] for panel in document["panels"]] == list(range(1, len(document["panels"]) + 1))
    cells = set()
    for panel in document["panels"]:
        names = [target["refId"] for target in panel.get("targets", ())]
        assert names == sorted(set(names))
        assert all(names)
        place = panel["gridPos"]
        mine = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in mine) < 24, panel["title"]
        assert not mine & cells, panel["title"]
        cells |= mine


@pytest.mark.parametrize("uid", UIDS)
def test_every_series_asked_for_is_one_the_exporter_names_and_every_variable_is_used(uid):
    document = DASHBOARDS[uid]
    text = json.dumps(document)
    known = {value for name, value in vars(families).items() if name.isupper() and isinstance(value, str)}
    asked = set(re.findall(r"\b(ragmon_\w+)(?=\{)", text))
    assert asked
    assert asked <= known
    for variable in document["templating"]["list"]:
        others = json.dumps({key: value for key, value in document.items() if key != "templating"})
        assert re.search(rf"\$\{{?{variable['name']}\b", others), variable["name"]


def test_titles_on_one_dashboard_are_told_apart():
    for document in DASHBOARDS.values():
        titles = [panel["title"] for panel in panels(document)]
        assert len(titles) == len(set(titles)), titles
