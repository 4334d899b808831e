"""`ragmon top` where it prints one picture: of a real server and a real monitor in an application."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time

import pytest
from rich.cells import cell_len

from ragmon.config.load import load
from ragmon.monitor.embedded import Monitor
from ragmon.testing import FakeClock
from tests.core.test_escaping import HOSTILE, STEERING
from tests.server.test_serve_admin import still
from tests.support import stub_server
from tests.support.command_line import on_terminal, ragmon
from tests.support.serving import accounted, asked, get, send_body, serving, whole

GATES = """
[pipelines.support]
[gates.errors]
metric = "error_rate"
at_most = 0.1
[gates.empty]
metric = "empty_retrieval_rate"
at_most = 0.5
[gates.scarce]
metric = "error_rate"
at_most = 0.5
min_samples = 1000
"""
COLOURS = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9[0-7])(?:;[0-9;]*)?m")


def records(now):
    """A hundred requests of a pipeline within the last hour; every fifth is an error."""
    return [asked(n, ts=now - 36 * n - 1, error="E" if n % 5 == 0 else None) for n in range(100)]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    clock, moved = still()
    with serving(tmp_path_factory.mktemp("server"), GATES, clock=clock) as running:
        send_body(running, whole(records(moved.now)))
        accounted(running)
        yield running


@pytest.fixture(scope="module")
def embedded(tmp_path_factory):
    """A served monitor in this process that has counted the requests."""
    path = tmp_path_factory.mktemp("embedded") / "ragmon.toml"
    path.write_text(GATES)
    clock = FakeClock(time.time())
    with Monitor(load(path, environ={}), clock=clock).start("127.0.0.1:0") as monitor:
        for record in records(clock()):
            monitor.submit(record)
        yield monitor


def answering(page):
    """A server that has a status, and no other page."""
    return stub_server.serving(lambda path, *_: (200, page.encode()) if path == "/api/status" else (404, b"{}"))


def shown(url, *options, columns=120):
    """The lines that are printed; each fits the width."""
    done = ragmon("top", "--once", "--url", url, *options, env={"COLUMNS": str(columns)})
    assert (done.code, done.err) == (0, "")
    lines = done.out.split("\n")
    assert max(map(len, lines)) <= columns
    return lines


def row(lines, gate):
    """The words of a gate's line."""
    (line,) = (line for line in lines if line.startswith(gate))
    return line.split()


@pytest.mark.parametrize("monitor", ["server", "embedded"])
def test_what_is_wrong_stands_first_then_every_gate_then_the_monitors_health(monitor, request):
    running = request.getfixturevalue(monitor)
    url = running.admin if monitor == "server" else f"http://{running.address}"
    lines = shown(url)
    assert lines[0].startswith("ragmon  ")
    assert lines[1].startswith("support/errors fails: 20.0 % (13.3 – 28.9 %) of 100, should be at most 10.0 %")
    assert row(lines, "errors")[1:3] == ["fail", "0.200"]
    assert row(lines, "empty")[1:3] == ["pass", "0.000"]
    assert row(lines, "scarce")[1:3] == ["insufficient", "0.200"]
    assert "≤ 0.1 0.133 … 0.289      100 " in next(line for line in lines if line.startswith("errors"))
    kept = "journal 0." if monitor == "server" else "no journal"
    foot = " ".join(lines[next(n for n, line in enumerate(lines) if line.startswith("monitor: ")) :])
    assert re.match(rf"monitor: .*last record scored \d+ s ago; residual 0; {kept}", foot)


def test_nothing_that_is_printed_once_is_cut_at_80_columns(server):
    text = " ".join(shown(server.admin, columns=80))
    assert re.search(r"residual 0; +journal 0\.\d of \d+ +MiB; +started \d+ s +ago", text)


def test_the_figures_are_those_of_metrics_and_of_the_page(server):
    """Nothing is computed anew: the value, the interval and n of the same moment."""
    metrics = server.get("/metrics")[1]
    lines = shown(server.admin)
    for gate in server.status()["gates"]:
        line = next(line for line in lines if line.startswith(gate["gate"]))
        labels = re.escape(f'{{gate="{gate["gate"]}",pipeline="support"}}')
        names = ("value", "lower", "upper", "samples")
        figures = [re.search(rf"^ragmon_gate_{name}{labels} (\S+)$", metrics, re.MULTILINE)[1] for name in names]
        value, lower, upper = (f"{float(figure):.3f}" for figure in figures[:3])
        assert f" {value} " in line
        assert f" {lower} … {upper} " in line
        assert f" {float(figures[3]):.0f} " in line
        assert f" {gate['verdict']} " in line


def test_the_history_is_what_the_pages_draw(server, embedded):
    """The last window ends after now, and all windows together hold every request since the first one began."""
    for url in (server.admin, f"http://{embedded.address}"):
        history, status = (json.loads(get(f"{url}/api/{page}")[1]) for page in ("history", "status"))
        errors = next(entry for entry in history["gates"] if entry["gate"] == "errors")
        assert (history["span"]["name"], history["span"]["words"]) == ("1h", "last hour")
        ends = [point["end"] for point in errors["points"]]
        windows = len(ends) * (ends[1] - ends[0])
        # Requests come every 36 seconds. The first window began less than an hour ago, by at most its length.
        since = windows - (ends[-1] - status["now"])
        assert abs(sum(point["n"] for point in errors["points"]) - min(100, since / 36)) <= 1
        assert set(errors["points"][0]) == {"end", "value", "lower", "upper", "n", "source"}
        assert errors["alarms"] == []


@pytest.mark.slow
def test_a_young_gates_last_hour_is_drawn(server):
    """Every fifth request is an error, so every column of five minutes has one: the worst is shown."""
    line = next(line for line in shown(server.admin) if line.startswith("errors"))
    assert re.search("[▁▂▃▄▅▆▇█]{12}", line)
    assert "last hour" in "\n".join(shown(server.admin))


@pytest.mark.slow
@pytest.mark.parametrize("columns", [10, 20, 40, 60, 80, 100, 200])
def test_it_fits_any_width_with_the_verdict_in_words(server, columns):
    lines = shown(server.admin, columns=columns)
    verdicts = re.findall(r" (pass|fail|insuf\S*)(?: |$)", "\n".join(lines[3:]), re.MULTILINE)
    assert sorted(verdict[:4] for verdict in verdicts) == ["fail", "insu", "pass"] or columns < 20
    assert ("threshold" in "\n".join(lines)) == (columns >= 80)


def test_an_incident_is_first_in_one_sentence(tmp_path):
    clock, moved = still()
    with serving(tmp_path, "[pipelines.support]\n", clock=clock) as running:
        for minute in range(7):
            error = "E" if minute > 2 else None
            send_body(running, whole([asked(60 * minute + k, ts=moved.now + k, error=error) for k in range(60)]))
            moved.advance(60.0)
        accounted(running)
        (incident,) = json.loads(running.get("/api/incidents")[1])["incidents"]
        lines = shown(running.admin)
        assert lines[1].startswith(incident["summary"])
        since = time.strftime("%H:%M", time.gmtime(incident["cause"]["began"]))
        assert re.match(
            rf"support: since (\d{{4}}-\d\d-\d\d )?{since} UTC requests end in an error, \d+ % of requests", lines[1]
        )
        assert re.search(r"fires \d+[sm]", " ".join(row(lines, "error_rate")))
        assert ragmon("ack", "support/error_rate", "--reason", "seen", "--url", running.otlp).code == 0
        moved.advance(1.0)
        assert re.search(r"acked \d+s", " ".join(row(shown(running.admin), "error_rate")))


@pytest.mark.slow
def test_a_monitor_in_an_application_is_shown(tmp_path):
    """What `ragmon.install` serves, found by the configuration that both read."""
    script = (
        "import ragmon, sys\n@ragmon.trace\ndef ask(question):\n    return {'claim': 'x', 'retrieved': []}\n"
        "installed = ragmon.install('ragmon.toml')\n"
        "for n in range(50): ask(f'q{n}')\n"
        "installed.flush(60)\nprint(installed.monitor.address, flush=True)\nsys.stdin.read()\n"
    )
    text = '[pipeline]\nname = "shop"\n[sampling]\nrate = 1.0\n[serve]\nadmin = "127.0.0.1:0"\n'
    (tmp_path / "ragmon.toml").write_text(text)
    application = subprocess.Popen(
        [sys.executable, "-c", script], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with application:
        lines = shown(application.stdout.readline().strip())
        application.communicate("")
    assert "shop" in lines
    assert row(lines, "error_rate")[2] == "0.000"


def test_names_of_requests_steer_nothing_and_fit_their_column(tmp_path):
    with serving(tmp_path) as running:
        now = running.status()["now"]
        names = [*(text.replace("\ud83d", "") for text in HOSTILE), "[red]markup[/red] :smile:", "漢" * 10_000]
        for n, name in enumerate(names):
            send_body(running, whole([asked(n, ts=now, pipeline=name)]))
        accounted(running)
        for columns in (40, 120):
            done = ragmon("top", "--once", "--url", running.admin, env={"COLUMNS": str(columns)})
            lines = done.out.split("\n")
            assert done.code == 0
            assert not any(STEERING.search(line) for line in lines)
            assert max(map(cell_len, lines)) <= columns
        assert "[red]markup[/red] :smile:" in lines
        assert any(line.startswith("漢" * 50) for line in lines)


def test_a_pipe_gets_one_picture_without_colour(server):
    done = ragmon("top", "--url", server.admin)
    assert (done.code, done.err) == (0, "")
    assert "\x1b" not in done.out
    assert done.out.count("ragmon  ") == 1


@pytest.mark.slow
def test_colour_repeats_the_words_and_can_be_switched_off(server):
    arguments = ("stdout", "top", "--once", "--url", server.admin)
    assert COLOURS.search(on_terminal(*arguments).out)
    for plain in (on_terminal(*arguments, "--no-color"), on_terminal(*arguments, env={"NO_COLOR": "1"})):
        assert plain.code == 0
        assert not COLOURS.search(plain.out)
        assert "fail" in plain.out
    dumb = on_terminal("stdout", "top", "--url", server.admin, env={"TERM": "dumb"})
    assert (dumb.code, "\x1b" in dumb.out) == (0, False)


def test_the_address_is_that_of_the_configuration_unless_one_is_given(server, tmp_path):
    admin = server.admin.removeprefix("http://")
    (tmp_path / "ragmon.toml").write_text(f'[serve]\nadmin = "{admin}"\n')
    assert row(ragmon("top", cwd=tmp_path).out.split("\n"), "errors")[1] == "fail"


def test_where_nobody_answers_it_says_where_it_asked(tmp_path):
    (tmp_path / "ragmon.toml").write_text('[serve]\nadmin = "127.0.0.1:9"\n')
    message, hint = ragmon("top", cwd=tmp_path).error
    assert message.startswith("no answer from 127.0.0.1:9 ")
    assert "start `ragmon serve`" in hint


@pytest.mark.parametrize("page", ["[]", "{}", "no JSON", '{"gates": 3}'])
def test_what_is_no_monitor_is_named(page):
    with answering(page) as (url, _):
        assert "is not the admin port of `ragmon serve`" in ragmon("top", "--once", "--url", url).error[0]


def test_a_monitor_without_a_history_is_shown_without(server):
    with answering(server.get("/api/status")[1]) as (url, _):
        assert row(shown(url), "errors")[1:3] == ["fail", "0.200"]


@pytest.mark.parametrize("every", ["0", "nan", "inf", "-1", "soon"])
def test_a_time_between_readings_that_is_none_is_refused(server, every):
    assert "--every" in ragmon("top", "--url", server.admin, "--every", every).error[0]


def test_a_state_in_which_nothing_is_wrong_is_its_headline_and_no_more(tmp_path):
    with serving(tmp_path, "[pipelines.support]\n") as running:
        send_body(running, whole([asked(0)]))
        accounted(running)
        first, second, *_ = shown(running.admin)
    assert first.startswith("ragmon: Too early to say")
    assert second == ""
