"""`ragmon why` end to end: the installed command asks a real server, which explains what it counted."""

from __future__ import annotations

import json
import socket
from datetime import UTC, datetime, timedelta

import pytest
from msgspec import convert, to_builtins

from ragmon.gates.change import Why
from tests.support.broken_pipelines import OVER_REFUSAL, PRECISION, Pipeline
from tests.support.command_line import ragmon
from tests.support.stub_server import serving

TRACES = [{"trace_id": "ab" * 16, "ts": 1_763_690_390.0, "index_hash": "i2", "traits": ["retrieved no gold document"]}]


@pytest.fixture(scope="module")
def monitor():
    """A monitor whose index was swapped twenty minutes ago."""
    pipeline = Pipeline()
    pipeline.run(100)
    pipeline.run(20, index="i2", missed=0.6)
    gates = {("default", gate.name): gate for gate in (PRECISION, OVER_REFUSAL)}

    def answer(path, asked, _):
        gate = gates.get((asked["pipeline"], asked["gate"]))
        if path != "/api/why" or gate is None:
            told = {"error": f"unknown gate: {asked['gate']!r}", "hint": "did you mean answer_precision?"}
            return 404, json.dumps(told).encode()
        since = float(asked["since"]) if "since" in asked else None
        return 200, json.dumps({**to_builtins(pipeline.why(gate, since=since)), "traces": TRACES}).encode()

    with serving(answer) as found:
        yield found


def ask(monitor, *arguments, **options):
    return ragmon("why", *arguments, "--url", f"http://{monitor[0]}", **options)


@pytest.mark.slow
def test_it_says_what_broke(monitor):
    done = ask(monitor, "answer_precision")
    assert (done.code, done.err) == (0, "")
    assert "suspect     index_hash i2: first seen 01:40, in 100.0 % of requests since" in done.out
    assert "what broke  retrieved no gold document: " in done.out
    assert f"traces      01:59:50  {'ab' * 16}  index_hash i2  retrieved no gold document" in done.out
    assert len(done.out.splitlines()) < 25


@pytest.mark.slow
def test_it_asks_for_the_gate_the_pipeline_and_the_time(monitor):
    assert ask(monitor, "default/answer_precision", "--since", "1.5h").code == 0
    expected = {"gate": "answer_precision", "pipeline": "default", "since": "5400.000"}
    assert monitor[1][-1][:2] == ("/api/why", expected)
    assert ask(monitor, "answer_precision", "--since", "10m").out.count("no change   nothing became worse") == 1


@pytest.mark.slow
@pytest.mark.parametrize("form", ["%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S+00:00", "%Y-%m-%dT%H:%M:%SZ"])
def test_it_looks_back_to_a_time_in_utc(monitor, form):
    then = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=3)
    assert ask(monitor, "answer_precision", "--since", then.strftime(form)).code == 0
    back = float(monitor[1][-1][1]["since"])
    assert 3 * 3600 <= back <= (datetime.now(UTC) - then).total_seconds()


@pytest.mark.slow
def test_json_is_the_whole_explanation(monitor):
    data = ask(monitor, "answer_precision", "--format", "json").json
    assert data.pop("traces") == TRACES
    assert convert(data, Why).suspects[0].name == "i2"


def test_the_monitor_of_the_configuration_is_asked_and_its_links_are_used(monitor, tmp_path):
    link = "https://traces.example/{trace_id}"
    text = f'[serve]\nadmin = "{monitor[0]}"\n[pipeline]\nname = "default"\n[links]\ntrace = "{link}"\n'
    (tmp_path / "ragmon.toml").write_text(text)
    done = ragmon("why", "answer_precision", cwd=tmp_path)
    assert done.code == 0, done.err
    assert f"https://traces.example/{'ab' * 16}" in done.out


@pytest.mark.slow
def test_an_unknown_gate_is_refused_with_what_the_monitor_suggests(monitor):
    done = ask(monitor, "default/answer_precison")
    assert done.error == ("unknown gate: 'answer_precison'", "did you mean answer_precision?")


@pytest.mark.slow
def test_without_a_monitor_it_says_where_it_asked():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
        error, hint = ragmon("why", "answer_precision", "--url", f"http://{place}").error
    assert error.startswith(f"no answer from {place} (")
    assert hint == "start `ragmon serve` or your application, or pass its address, such as http://127.0.0.1:9464"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (200, b"<html>", "answered 200"),
        (200, b"[]", "answered 200"),
        (200, b'{"traces": []}', "this is no explanation of a gate: "),
        (200, b"[" * 100_000, "answered 200"),
        (404, b"not found", "answered 404"),
        (500, b'{"error": "\\u001b[31mred"}', "\\x1b[31mred"),
    ],
)
def test_what_is_no_answer_is_refused(status, body, error):
    with serving(lambda *_: (status, body)) as (address, _):
        found, hint = ragmon("why", "answer_precision", "--url", f"http://{address}").error
    assert error in found
    assert hint


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["a/b/"], "'a/b/' names no alarm"),
        (["x", "--url", "ftp://127.0.0.1"], "the server's URL is not an address: 'ftp://127.0.0.1'"),
        (["x", "--url", "http://127.0.0.1:99999"], "the server's URL is not an address: 'http://127.0.0.1:99999'"),
        (["x", "--url", "http://[::1"], "the server's URL is not an address: 'http://[::1'"),
        (["x", "--url", "http://me:secret@127.0.0.1"], "the server's URL names a user"),
        (["x", "--url", f"http://{'a' * 70}.example"], f"the server's URL is not an address: 'http://{'a' * 60}"),
        (["x", "--url", "127.0.0.1:99999"], "the server's URL is not an address: 'http://127.0.0.1:99999'"),
        (["x", "--url", "me:secret@127.0.0.1"], "the server's URL names a user"),
        (["x", "--since", "soon"], "'soon' is not a time to look back to"),
        (["x", "--since", "-1h"], "'-1h' is not a time to look back to"),
        (["x", "--since", "2999-01-01"], "'2999-01-01' is not a time to look back to"),
    ],
)
def test_what_was_typed_wrong_is_named(arguments, error):
    done = ragmon("why", *arguments)
    assert error in done.error[0]
    assert done.error[1]
