"""`ragmon serve` probes by itself: what comes back is counted, journalled and judged, and no user metric moves."""

from __future__ import annotations

from functools import partial
from math import inf
from time import monotonic

import pytest

from ragmon.gates.incidents import Incident
from tests.server.test_serve_reload import logged, put, reloaded, shown
from tests.support import probed_functions
from tests.support.chat_model import TABLE
from tests.support.command_line import gold, lines
from tests.support.probed import web
from tests.support.serving import (
    PORTS,
    accounted,
    asked,
    between_rows,
    digest,
    process,
    replayed,
    send_body,
    serving,
    totals,
    whole,
)
from tests.support.waiting import TIMEOUT, wait_for

CONFIG = """
[pipelines.support]
[gold.support]
path = "gold.jsonl"
pipeline = "support"
[probe.support]
target = "{}"
every = "{}"
max_per_day = 1000000000
concurrency = 4
[gates.answer_precision]
at_least = 0.8
"""
OK = 'ragmon_probe_requests_total{probe="support",result="ok"}'


def right(asked):
    """Answers as the gold of `command_line` wants it."""
    kind, _, number = asked.question.rstrip("?").partition(" is ")
    if kind == "Who":
        return {"answer": "not in context", "citations": [], "documents": []}
    name = f"d{number}"
    return {"answer": "that is right", "citations": [name], "documents": [{"id": name, "text": "right"}]}


def config(folder, target, every="500ms", more=""):
    lines(folder / "gold.jsonl", gold(8, 4))
    return CONFIG.format(target, every) + more


def prober(running):
    """The prober of a server that runs."""
    return wait_for(lambda: running.server.probing._running.get("support"), lambda found: found)[1]


def counted(running, line=OK):
    """A sample of `/metrics`, 0 where there is none."""
    return running.metrics().get(line, 0)


class TestOverHttp:
    @pytest.mark.slow
    def test_answers_are_scored_as_probes_and_no_user_metric_moves_by_one_count(self, tmp_path):
        with web(right) as there, serving(tmp_path, config(tmp_path, there.url), reply_wait=0.1) as running:
            send_body(running, whole([asked(n, q="Is it open?") for n in range(20)]))
            before = {name: value for name, value in self.settled(running).items() if 'source="live"' in name}
            wait_for(lambda: counted(running), lambda n: n >= 36)
            after = running.metrics()
            assert {name: value for name, value in after.items() if 'source="live"' in name} == before
            assert after['rag_answer_precision{gold="support",pipeline="support",source="probe",window="5m"}'] == 1.0
            assert after['rag_over_refusal_rate{gold="support",pipeline="support",source="probe",window="5m"}'] == 0.0
            running.server.probing.stop()
            running.server.writer.open_traces.replies.hurried = True
            books = wait_for(running.books, lambda books: not len(running.server.writer.open_traces.replies._waiting))
            assert (books["residual"], books["duplicate"]) == (0, 0)
            here = digest(running)
        assert replayed(tmp_path) == here

    def settled(self, running):
        """`/metrics` once the users' requests are counted."""
        wait_for(running.books, lambda books: books["scored"] >= 20)
        return running.metrics()

    @pytest.mark.slow
    def test_the_applications_own_record_of_a_probe_counts_and_the_reply_completes_it(self, tmp_path):
        with (
            web(right) as there,
            serving(tmp_path, config(tmp_path, there.url, "365d"), reply_wait=600.0) as running,
        ):
            assert prober(running).burst(0.0)
            wait_for(lambda: counted(running), lambda n: n == 12)
            assert running.books()["received"] == 0, "the replies wait"
            traces = [request.headers["traceparent"].split("-")[1] for request in there.asked]
            silent = {"claim": None, "citations": None, "retrieved": None, "index_hash": "i7"}
            send_body(running, whole([asked(0, trace_id=trace_id, **silent) for trace_id in traces]))
            books = wait_for(running.books, lambda books: books["received"] == 24)
            assert (books["scored"], books["duplicate"], books["residual"]) == (12, 12, 0)
            metrics = running.metrics()
            assert not [name for name in metrics if 'source="live"' in name]
            assert metrics['ragmon_build_seen_info{build="",index_hash="i7",pipeline="support"}'] == 1
            assert metrics['rag_answer_precision{gold="support",pipeline="support",source="probe",window="5m"}'] == 1.0
            here = digest(running)
        assert replayed(tmp_path) == here


@pytest.mark.slow
def test_a_function_is_probed_in_the_servers_own_process(tmp_path):
    with serving(tmp_path, config(tmp_path, "tests.support.probed_functions:plain")) as running:
        wait_for(lambda: counted(running), lambda n: n >= 12)
        wait_for(running.books, lambda books: books["scored"] >= 12 and not books["residual"])
        # It cites d1 for everything.
        assert counted(running, 'rag_under_refusal_rate{gold="support",pipeline="support",source="probe",window="5m"}')
        assert running.books()["duplicate"] == 0


@pytest.mark.slow
def test_what_judges_made_of_its_probes_is_counted_over_every_configuration(tmp_path, model):
    text = config(tmp_path, "tests.support.probed_functions:retrieving", "365d") + TABLE.format(url=model.url)
    with serving(tmp_path, text) as running:
        for n in (12, 24):
            assert prober(running).burst(0.0)
            wait_for(partial(counted, running), lambda found, n=n: found == n)
            judged = {name: found for name, found in running.metrics().items() if name.startswith("ragmon_judge_calls")}
            assert {name.partition(",")[0] for name in judged} == {'ragmon_judge_calls_total{judge="faithfulness"'}
            assert sum(judged.values()) == n
            capture = running.server.probing._capture._installation
            put(tmp_path / "ragmon.toml", (tmp_path / "ragmon.toml").read_text() + "# nothing\n")
            assert running.server.reloading.reload()
            wait_for(lambda: running.server.probing._capture._installation, lambda found, old=capture: found is not old)
    assert model.asked


def test_a_probe_that_fails_harms_nobody(tmp_path):
    with serving(tmp_path, config(tmp_path, "tests.support.probed_functions:breaks")) as running:
        wait_for(lambda: counted(running, OK.replace("ok", "error")), lambda n: n >= 3)
        send_body(running, whole([asked(0)]))
        wait_for(running.metrics, lambda found: any('source="live"' in name for name in found))
        assert running.get("/readyz")[0] == 200
        assert running.books()["residual"] == 0


def test_a_target_that_is_not_there_is_said_and_everything_else_goes_on(tmp_path):
    with serving(tmp_path, config(tmp_path, "no_such_module:ask")) as running:
        told = "probe support does not run: no_such_module:ask cannot be probed: ModuleNotFoundError"
        wait_for(
            lambda: [found["what"] for found in running.status()["doubts"]],
            lambda doubts: any(what.startswith(told) for what in doubts),
        )
        send_body(running, whole([asked(0)]))
        assert accounted(running)["scored"] == 1


def test_stopping_does_not_wait_for_answers(tmp_path):
    probed_functions.LET_GO.clear()
    probed_functions.HELD.clear()
    started = monotonic()
    with serving(tmp_path, config(tmp_path, "tests.support.probed_functions:holds")):
        assert probed_functions.HELD.wait(TIMEOUT)
        started = monotonic()
    assert monotonic() - started < TIMEOUT / 3
    probed_functions.LET_GO.set()


@pytest.mark.slow
def test_a_suspected_incident_asks_a_burst_and_one_of_another_pipeline_does_not(tmp_path):
    with web(right) as there, serving(tmp_path, config(tmp_path, there.url, "365d"), reply_wait=0.0) as running:
        assert prober(running)
        incidents = running.server.writer.server_state.engine.incidents.incidents
        elsewhere = Incident("sales-1", "sales", 1.0, "coverage:look", metrics=("coverage",), due=inf)
        between_rows(running, lambda: incidents.append(elsewhere))
        here = Incident("support-1", "support", 1.0, "coverage:look", metrics=("coverage",), due=inf)
        between_rows(running, lambda: incidents.append(here))
        wait_for(lambda: running.metrics().get('ragmon_probe_bursts_total{probe="support"}'), lambda n: n == 1)
        wait_for(lambda: counted(running), lambda n: n >= 1)


@pytest.mark.slow
def test_a_server_that_begins_again_goes_on_with_the_budget_of_the_day(tmp_path):
    with web(right) as there:
        text = config(tmp_path, there.url, "365d").replace("1000000000", "12")
        for result in ("ok", "skipped"):
            with serving(tmp_path, text, reply_wait=0.0) as running:
                assert prober(running).burst(0.0)
                line = OK.replace("ok", result)
                wait_for(partial(counted, running, line), lambda n: n == 12)
        assert len(there.asked) == 12


@pytest.mark.slow
def test_probes_come_change_and_go_with_the_configuration(tmp_path):
    text = config(tmp_path, "{}", "100ms")
    without = text.partition("[probe.support]")[0]
    with web(right) as first, web(right) as second:
        (tmp_path / "ragmon.toml").write_text(without + PORTS)
        with process(tmp_path) as running:
            put(tmp_path / "ragmon.toml", text.replace("{}", first.url) + PORTS)
            reloaded(running)
            wait_for(lambda: len(first.asked), lambda n: n > 3)
            put(tmp_path / "ragmon.toml", text.replace("{}", second.url) + PORTS)
            reloaded(running)
            wait_for(lambda: len(second.asked), lambda n: n > 3)
            asked_first = len(first.asked)
            wait_for(lambda: len(second.asked), lambda n: n > 10)
            assert len(first.asked) == asked_first
            put(tmp_path / "ragmon.toml", text.replace("{}", "nowhere:ask") + PORTS)
            reloaded(running)
            logged(running, "probe support does not run")
            put(tmp_path / "ragmon.toml", without + PORTS)
            reloaded(running)
            assert shown(running)[OK] > 10
            wait_for(running.status, lambda found: not any("probe" in doubt["what"] for doubt in found["doubts"]))
            assert running.stop() == 0


def test_a_probe_that_stays_as_it_is_goes_on_where_it_was(tmp_path):
    with web(right) as there, serving(tmp_path, config(tmp_path, there.url)) as running:
        before = prober(running)
        put(tmp_path / "ragmon.toml", (tmp_path / "ragmon.toml").read_text() + "# nothing\n")
        capture = running.server.probing._capture._installation
        assert running.server.reloading.reload()
        wait_for(lambda: running.server.probing._capture._installation, lambda found: found is not capture)
        n = counted(running)
        wait_for(lambda: counted(running), lambda found: found >= n + 3)
        assert prober(running) is before


def test_the_books_of_producers_know_nothing_of_the_servers_own_probes(tmp_path):
    with serving(tmp_path, config(tmp_path, "tests.support.probed_functions:plain")) as running:
        wait_for(lambda: counted(running), lambda n: n >= 5)
        assert running.status()["producers"] == {"missing": 0, "dropped": {}}
    assert totals(tmp_path) == []
