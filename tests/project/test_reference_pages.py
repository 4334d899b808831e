"""The reference pages name what is there: public names, Prometheus families, fields of the contract, paths of ports."""

from __future__ import annotations

import inspect
import json
import re
import struct
import sys
import urllib.error
import urllib.request
from pathlib import Path

import jsonschema
import pytest
from prometheus_client.parser import text_string_to_metric_families

import ragmon
from ragmon import testing
from ragmon.config.load import load
from ragmon.core.record import Label, Record, Totals
from ragmon.ingest.gold_files import gold_schema
from ragmon.ingest.lines import decode, trace_schema
from ragmon.ingest.receiver import PROJECTS_PATH, ReceiverApp
from ragmon.metrics import families
from ragmon.monitor.admin import AdminView, admin_app
from ragmon.stats.histograms import bucket
from tests.support.dashboard_world import Replica, configuration
from tests.support.typed_pages import blocks, typed

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"


def page(name):
    """The text of a reference page."""
    return (REFERENCE / f"{name}.md").read_text(encoding="utf-8")


# The Python API.


def test_every_public_name_is_documented_once():
    documented = re.findall(r"^::: ragmon\.(\w+)$", page("python"), re.MULTILINE)
    assert sorted(documented) == sorted(ragmon.__all__)


def test_every_helper_for_tests_is_documented():
    public = {name for name, value in vars(testing).items() if getattr(value, "__module__", "") == testing.__name__}
    documented = re.findall(r"^::: ragmon\.testing\.(\w+)$", page("python"), re.MULTILINE)
    assert sorted(documented) == sorted(name for name in public if not name.startswith("_"))


@pytest.mark.parametrize("name", sorted(ragmon.__all__))
def test_every_public_name_says_what_it_is_and_shows_an_example(name):
    text = getattr(ragmon, name).__doc__
    first = text.splitlines()[0]
    assert first.endswith((".", "`."))
    assert re.search(r"^ +Examples:\n +>>> ", text, re.MULTILINE), name


# Prometheus.


def rows(name, first, cells=4):
    """The rows of a page's tables of so many cells whose first one, in backticks, matches: the other cells by it."""
    found = re.findall(rf"^\| `({first})`[^|]* \|(.*)\|$", page(name), re.MULTILINE)
    return {
        cell: [each.strip() for each in others.split(" | ")]
        for cell, others in found
        if others.count(" | ") == cells - 2
    }


@pytest.fixture(scope="module")
def exposition(tmp_path_factory):
    """The families of a real scrape of a monitor that has seen everything there is to see, and runs in a server."""
    replica = Replica(load(configuration(tmp_path_factory.mktemp("world")), environ={}), seed=1)
    replica.run(70)
    with replica, urllib.request.urlopen(f"http://{replica.address}/metrics") as answer:
        return list(text_string_to_metric_families(answer.read().decode()))


def documented(shown):
    """The row of a family, and what its name is there: a metric's has an ending."""
    listed = rows("prometheus", r"rag(?:mon)?_[a-z_0-9]+")
    endings = rows("prometheus", r"rag_<metric>[a-z_]*")
    if shown in listed and shown.removeprefix("rag_") not in families():
        return listed[shown]
    names = [name for name in (*families(), "judge_tone") if shown.startswith(f"rag_{name}")]
    ending = shown.removeprefix(f"rag_{max(names, key=len)}")
    return endings[f"rag_<metric>{ending}"]


def test_every_family_that_is_shown_is_on_the_page_with_its_type(exposition):
    assert len(exposition) > 100
    for family in exposition:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        _, kind_and_unit, labels = documented(name)
        kind, _, unit = kind_and_unit.partition(": ")
        assert kind == family.type, name
        shown = {label for sample in family.samples for label in sample.labels} - {"k"}
        assert shown == set(re.findall(r"`(\w+)`", labels)), name
        assert unit, name


def test_the_help_of_a_family_is_the_one_that_is_shown(exposition):
    helps = {cells[0] for cells in rows("prometheus", r"rag(?:mon)?_[a-z_0-9]+").values()}
    told = {family.documentation for family in exposition if not family.name.startswith("rag_")}
    assert len(told) > 30
    assert told - helps == set()


def test_what_only_a_server_has_stands_apart(exposition, tmp_path):
    """A monitor in an application shows none of it; a server shows all of it that has a value."""
    sys.path.insert(0, str(REFERENCE))
    try:
        from tables import SERVER_ONLY  # noqa: PLC0415 - a program beside the pages, in no package
    finally:
        sys.path.remove(str(REFERENCE))
    with ragmon.Monitor(load(configuration(tmp_path), environ={})).start("127.0.0.1:0") as monitor:
        monitor.submit(testing.make_record(source="live"))
        with urllib.request.urlopen(f"http://{monitor.address}/metrics") as answer:
            embedded = {family.name for family in text_string_to_metric_families(answer.read().decode())}
    apart = {name.removesuffix("_total") for name in SERVER_ONLY}
    assert apart & embedded == set()
    assert {family.name for family in exposition} - embedded & apart


# The trace contract.


def examples(name):
    """The JSON examples of a page."""
    return [json.loads(block) for block in blocks(REFERENCE / f"{name}.md", "json")]


def test_the_examples_of_the_contract_are_valid_and_read():
    record, totals, label, gold = examples("trace-contract")
    assert [type(decode(json.dumps(line).encode())) for line in (record, totals, label)] == [Record, Totals, Label]
    for line in (record, totals, label):
        assert list(jsonschema.Draft202012Validator(trace_schema()).iter_errors(line)) == []
    assert ragmon.GoldSet.from_rows([gold]).items[0].citations == ("h1",)
    assert list(jsonschema.Draft202012Validator(gold_schema()).iter_errors(gold)) == []


def test_the_bucket_of_a_latency_is_what_the_page_says():
    (bits,) = struct.unpack("q", struct.pack("d", 812.0))
    assert bucket(812.0) == bits >> 46
    assert bucket(0.0) == 0


@pytest.mark.slow
def test_the_contract_can_be_typed_line_by_line(tmp_path):
    done = typed(REFERENCE / "trace-contract.md", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    names = ["gold", "report", "trace"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{name}.schema.json" for name in names]


# Ports and paths.


def named_paths(section):
    """The paths that a section of the page of ports names."""
    (text,) = re.findall(rf"^## {section}\n(.*?)^## ", page("http"), re.MULTILINE | re.DOTALL)
    return sorted(set(re.findall(r"`(?:GET |POST )?(/[^`]*)`", text)))


def test_every_path_of_the_write_port_is_named():
    port = ReceiverApp(None, token=None)
    assert named_paths("The write port over HTTP") == sorted(["/", PROJECTS_PATH, *port._endpoints])


def test_every_path_of_the_admin_port_is_named():
    view = AdminView(lambda: None, lambda: None, dict, None, None)
    app = inspect.getclosurevars(admin_app(view, (), acknowledge=lambda *_: True)).nonlocals["app"]
    routes = {route.path.partition("/{")[0] for route in app.routes}
    named = named_paths("The admin port")
    assert routes - {re.sub(r"(?<=.)/[A-Z].*", "", path) for path in named} == set()


def test_every_path_that_is_named_for_the_admin_port_is_there(tmp_path):
    """A monitor in an application answers all of them; those of a server say that it has no journal."""
    settings = load(configuration(tmp_path), environ={})
    with ragmon.Monitor(settings).start("127.0.0.1:0") as monitor:
        monitor.submit(testing.make_record(source="live", pipeline="harbour"))
        names = {"PIPELINE": "harbour", "GATE": "answer_precision", "TRACE": "5a1c", "INCIDENT": "harbour-1"}
        for path in named_paths("The admin port"):
            if path.startswith("/v1/"):
                continue
            asked = re.sub(r"[A-Z]{4,}", lambda name: names[name[0]], path)
            status, body = get(f"http://{monitor.address}{asked}")
            no_journal = b"an embedded monitor has no journal" in body
            of_server = re.search(rf"^\| `{re.escape(path)}` \|.*\(server\)", page("http"), re.MULTILINE)
            no_incident = b"there is no incident 'harbour-1'" in body
            assert (status == 200) or no_incident or (no_journal and of_server), (path, status, body[:200])


def get(url):
    """The status and the body of an answer."""
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_every_variable_of_the_environment_is_named():
    text = page("http")
    variables = re.findall(r'"(RAGMON_[A-Z_]+)"', "".join(path.read_text() for path in (ROOT / "ragmon").rglob("*.py")))
    assert len(set(variables)) > 8
    assert [name for name in set(variables) if f"| `{name}` |" not in text] == []
