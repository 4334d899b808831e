"""The configuration changes under a running server: what is right comes into force, what is broken does not."""

from __future__ import annotations

import json
import re
import signal
import threading
import time
from contextlib import contextmanager
from html import unescape

import pytest

from ragmon.core.errors import printable_line
from ragmon.server.journal import RetentionLimits
from tests.server.test_serve_admin import still
from tests.support.alarming import write_config
from tests.support.saved import saved
from tests.support.serving import (
    PORTS,
    accounted,
    asked,
    configuration,
    get,
    process,
    send_body,
    serving,
    values,
    whole,
)
from tests.support.waiting import wait_for

LOADED = "ragmon_config_last_reload_successful"
ERRORS = "[pipelines.support]\n[gates.errors]\nmetric = 'error_rate'\nat_most = {}\n"


def put(path, text):
    """Write a file as editors and deployments do: another one takes its place."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


def gate(running, name="errors"):
    """A gate of the pipeline `support` as the status shows it."""
    (found,) = (one for one in running.status()["gates"] if (one["pipeline"], one["gate"]) == ("support", name))
    return found


def shown(running):
    """`/metrics` as values by line."""
    return values(get(f"{running.admin}/metrics")[1])


def logged(running, text):
    """Wait until the log says something."""
    wait_for(lambda: list(running.lines), lambda lines: any(text in line for line in lines))


def reloaded(running):
    """Tell a server to read its configuration again, and wait until it says that it has."""
    before = sum("the configuration " in line for line in running.lines)
    running.send(signal.SIGHUP)
    wait_for(lambda: sum("the configuration " in line for line in running.lines), lambda n: n > before)


def some(first, n=100, wrong=30):
    """Requests of users, the first of which fail."""
    return [asked(first + k, error="TimeoutError" if k < wrong else None) for k in range(n)]


# --- what is right ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_changed_threshold_is_in_force_without_a_signal_and_no_count_is_lost(tmp_path):
    configuration(tmp_path, ERRORS.format(0.5))
    with process(tmp_path) as running:
        send_body(running, whole(some(0)))
        accounted(running)
        before = gate(running)
        assert (before["threshold"], before["verdict"], before["n"]) == (0.5, "pass", 100)
        put(tmp_path / "ragmon.toml", ERRORS.format(0.1) + PORTS)
        after = wait_for(lambda: gate(running), lambda found: found["threshold"] == 0.1)
        assert (after["verdict"], after["n"], after["value"]) == ("fail", 100, before["value"])
        assert accounted(running)["scored"] == 100
        assert shown(running)[LOADED] == 1
        assert running.stop() == 0


def test_what_could_not_be_read_before_the_configuration_changed_leaves_no_gate_undecided_after_it(tmp_path):
    """The counts stay; the gate is judged on what the settings in force read, as if its window began with them."""
    gates, (clock, moved) = "[pipelines.support]\n[gates]\ncitation_scope.at_least = 0.9\n", still()
    with serving(tmp_path, gates, clock=clock) as running:

        def send(first, n, **fields):
            send_body(running, whole([asked(first + k, ts=moved.now, **fields) for k in range(n)]))
            moved.advance(20.0)
            accounted(running)
            return gate(running, "citation_scope")

        send(0, 150, retrieved=None)
        before = send(150, 100)
        assert (before["verdict"], before["n"]) == ("insufficient", 100)
        assert "150 of 250 not assessable" in before["reason"]
        put(tmp_path / "ragmon.toml", f'{gates}[capture]\nid_from = "metadata.source"\n{PORTS}')
        assert running.server.reloading.reload()
        moved.advance(20.0)
        after = send(250, 100)
        assert (after["verdict"], after["n"]) == ("pass", 100)


def mounted(folder, name, text):
    """A ConfigMap as Kubernetes mounts it: links to links, of which one is swapped at once (AtomicWriter)."""
    fresh = folder / f"..{name}"
    fresh.mkdir()
    (fresh / "ragmon.toml").write_text(text + PORTS, encoding="utf-8")
    (folder / "..data_tmp").symlink_to(fresh.name)
    (folder / "..data_tmp").replace(folder / "..data")
    if not (folder / "ragmon.toml").is_symlink():
        (folder / "ragmon.toml").symlink_to("..data/ragmon.toml")


@pytest.mark.slow
def test_a_configmap_that_is_swapped_is_noticed(tmp_path):
    mounted(tmp_path, "2026_01", ERRORS.format(0.5))
    with process(tmp_path) as running:
        mounted(tmp_path, "2026_02", ERRORS.format(0.1))
        send_body(running, whole(some(0)))
        wait_for(lambda: gate(running)["threshold"], lambda found: found == 0.1)
        assert accounted(running)["scored"] == 100


@pytest.mark.slow
def test_a_changed_port_is_warned_of_and_nothing_more(tmp_path):
    configuration(tmp_path, ERRORS.format(0.5))
    with process(tmp_path) as running:
        moved = PORTS.replace('admin = "127.0.0.1:0"', 'admin = "127.0.0.1:9"').replace('"state"', '"elsewhere"')
        put(tmp_path / "ragmon.toml", f'{ERRORS.format(0.1)}{moved}hosts = ["ragmon"]\n')
        reloaded(running)
        for key in ("admin", "state_dir", "hosts"):
            logged(running, f"`[serve] {key}` changed; it takes effect when the server is restarted")
        assert not any("`[serve] otlp` changed" in line for line in running.lines)
        assert gate(running)["threshold"] == 0.1
        assert not (tmp_path / "elsewhere").exists()


@contextmanager
def changed(folder, before, after, **how):
    """A server in this process whose configuration is about to be another one; yields it and what reads it again."""
    with serving(folder, before, **how) as running:

        def reload():
            put(folder / "ragmon.toml", after + PORTS)
            return running.server.reloading.reload()

        yield running, reload


def test_how_much_the_journal_holds_is_in_force_at_once(tmp_path):
    with changed(tmp_path, "", "") as (running, _):
        put(tmp_path / "ragmon.toml", f'{PORTS}retention = "1h"\nmax_size = "1GiB"\n')
        assert running.server.reloading.reload()
        assert running.server.writer.journal.limits == RetentionLimits(retention=3600.0, size=1 << 30)
        assert running.status()["journal"]["limit"] == 1 << 30


@pytest.mark.slow
@pytest.mark.parametrize(
    "after",
    [
        "[metrics]\nk = [2, 7]\n[pipelines.support.gates.deep]\nmetric = 'recall@7'\nat_least = 0.5\n",
        "windows = ['10m']\n[gates.errors]\nmetric = 'error_rate'\nat_most = 0.1\nwindow = '10m'\n",
        "[slices]\nlang = ['de', 'en']\n[pipelines.support]\n[pipelines.sales]\n",
        "[refusal]\nreplace = true\n[metrics]\ncluster = ['session']\n[alarms.baseline]\nlearn = '20m'\n",
    ],
)
def test_whatever_changes_what_was_counted_stays(tmp_path, after):
    with changed(tmp_path, ERRORS.format(0.5), after) as (running, reload):
        send_body(running, whole(some(0)))
        books = accounted(running)
        assert reload(), running.server.reloading.broken
        assert accounted(running) == books
        send_body(running, whole(some(1000)))
        assert accounted(running)["scored"] == 200


# --- what is broken ---------------------------------------------------------------------------------------------------

BROKEN = {
    "no TOML": ("[gates\n", "ragmon.toml:1: not TOML"),
    "a key twice": ("[gates.errors]\nat_most = 0.1\nat_most = 0.08\n", "gates.errors.at_most is set twice"),
    "a gate of 8.0": ("[gates.errors]\nmetric = 'error_rate'\nat_most = 8.0\n", "must be a number from 0 to 1: 8.0"),
    "a key nobody knows": ("[gates.errors]\nmetrics = 'error_rate'\n", "metrics is not a known key"),
    "a gold file that is missing": ("[gold.gold]\npath = 'absent.jsonl'\n", "absent.jsonl: the gold file is refused"),
    "half a gold file": ("[gold.gold]\npath = 'half.jsonl'\n", "half.jsonl:2: the gold file is refused"),
    "an empty gold file": ("[gold.gold]\npath = 'empty.jsonl'\n", "empty.jsonl: the gold file is refused"),
    "a baseline that is none": ("[alarms.baseline]\nfile = 'empty.jsonl'\n", "the baseline is not JSON"),
    "a plugin nobody has": ("plugins = ['not_a_module_of_anybody']\n", "not_a_module_of_anybody"),
    "no end of brackets": (f"a = {'[' * 5000}\n", "is nested too deeply"),
    "the home of nobody": ("extend = '~nobody-lives-here/ragmon.toml'\n", "RuntimeError"),
    "a name no file has": ('extend = "\\u0000"\n', "extend names a file that cannot be used"),
    "nothing at all": (None, "there is no such file"),
}


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A server in a process of its own, with a hundred requests."""
    folder = tmp_path_factory.mktemp("broken")
    configuration(folder, ERRORS.format(0.5))
    (folder / "half.jsonl").write_text('{"qid": "a", "question": "?", "answerable": false}\n{"qid": "b", "quest')
    (folder / "empty.jsonl").write_text("")
    with process(folder) as found:
        send_body(found, whole(some(0)))
        accounted(found)
        yield found


@pytest.mark.slow
@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_configuration_leaves_the_old_one_in_force_until_it_is_repaired(running, what):
    text, reason = BROKEN[what]
    config, began = running.folder / "ragmon.toml", time.time()
    good = config.read_text(encoding="utf-8")
    if text is None:
        config.unlink()
    else:
        put(config, text + PORTS)
    reloaded(running)
    assert shown(running)[LOADED] == 0
    status = running.status()
    assert reason in status["config"]["broken"]
    (doubt,) = status["doubts"]
    assert doubt["what"] == status["config"]["broken"]
    assert began - 1 <= doubt["since"] <= time.time()
    trusted = unescape(get(f"{running.admin}/")[1].partition("Can it be trusted?")[2].partition("<h2>")[0])
    assert f"{printable_line(status['config']['broken'])}; the previous configuration is in force" in trusted
    logged(running, "ERROR the configuration on disk is not in force: ")
    assert gate(running)["threshold"] == 0.5
    assert accounted(running)["scored"] == 100
    put(config, good)
    reloaded(running)
    assert shown(running)[LOADED] == 1
    assert (running.status()["config"]["broken"], running.status()["doubts"]) == ("", [])


@pytest.mark.slow
def test_a_gold_file_that_comes_late_is_noticed_though_nothing_else_changes(tmp_path):
    """The configuration was deployed before the file it names."""
    configuration(tmp_path, ERRORS.format(0.5))
    with process(tmp_path) as running:
        put(tmp_path / "ragmon.toml", "[gold.late]\npath = 'late.jsonl'\n" + ERRORS.format(0.1) + PORTS)
        wait_for(lambda: shown(running)[LOADED], lambda found: found == 0)
        put(tmp_path / "late.jsonl", '{"qid": "a", "question": "?", "answerable": false}\n')
        wait_for(lambda: shown(running)[LOADED], lambda found: found == 1)
        assert gate(running)["threshold"] == 0.1
        assert shown(running)['ragmon_gold_items{gold="late"}'] == 1


def test_the_time_it_broke_is_the_first_time(tmp_path):
    clock, moved = still()
    with changed(tmp_path, "", "[gates\n", clock=clock) as (running, reload):
        began = moved.now
        for _ in range(3):
            assert not reload()
            moved.advance(60.0)
        assert running.status()["doubts"][0]["since"] == began
        assert "(3 min ago)" in running.get("/")[1]


# --- files that are being written -------------------------------------------------------------------------------------


def golden(n, claim="right"):
    """Gold items with an answer."""
    told = {"answerable": True, "gold_claim_substr": [claim], "gold_citations": ["d1"]}
    rows = [{"qid": f"a{k}", "question": f"What is {k}?", **told} for k in range(n)]
    return [json.dumps(row) + "\n" for row in rows]


def test_a_file_is_read_once_it_holds_still(tmp_path):
    """Half a gold file of whole lines is a good gold file, and would be believed."""
    path, lines = tmp_path / "gold.jsonl", golden(40)
    path.write_text("".join(lines[:5]))
    with serving(tmp_path, "[gold.gold]\npath = 'gold.jsonl'\n") as running:
        look, items = running.server.reloading.poll, 'ragmon_gold_items{gold="gold"}'
        assert not look()
        with path.open("w") as file:
            for line in lines:
                file.write(line)
                file.flush()
                assert not look()
                assert running.metrics()[items] == 5
        assert look()
        assert running.metrics()[items] == 40
        assert not look()


def test_what_changes_the_list_of_files_is_read_once(tmp_path):
    (tmp_path / "gold.jsonl").write_text("".join(golden(3)))
    with changed(tmp_path, "", "[gold.gold]\npath = 'gold.jsonl'\n") as (running, reload):
        assert reload()
        assert [running.server.reloading.poll() for _ in range(3)] == [False] * 3


def test_a_file_inside_a_folder_of_gold_counts(tmp_path):
    folder = tmp_path / "gold"
    folder.mkdir()
    qrels = {name: {"doc_id": name, "section_id": 1} for name in "ab"}
    for name, told in (("queries", {"a": {"query": "What is a?"}}), ("qrels", qrels), ("answers", {})):
        (folder / f"{name}.json").write_text(json.dumps(told))
    with serving(tmp_path, "[gold.gold]\npath = 'gold'\n") as running:
        (folder / "queries.json").write_text(json.dumps({name: {"query": f"What is {name}?"} for name in "ab"}))
        assert [running.server.reloading.poll() for _ in range(3)] == [False, True, False]
        assert running.metrics()['ragmon_gold_items{gold="gold"}'] == 2


PROBED = "[gold.gold]\npath = 'gold.jsonl'\npipeline = 'support'\n[pipelines.support]\n"
PROBED += "[pipelines.support.gates.precision]\nmetric = 'answer_precision'\nat_least = 0.5\nsource = 'probe'\n"


def probes(first, n=40):
    """Answers to the gold questions, all of them right by the first version and wrong by the second."""
    found = [asked(first + k, source="probe", claim="that is right") for k in range(n)]
    for k, record in enumerate(found):
        record.qid = f"a{k}"
    return found


@pytest.mark.slow
def test_a_gold_file_swapped_in_the_middle_of_a_window_never_mixes_its_versions(tmp_path):
    """Every answer is right by the old version and wrong by the new one: no number lies between, at no moment."""
    gold = tmp_path / "gold.jsonl"
    gold.write_text("".join(golden(40)))
    with serving(tmp_path, PROBED) as running:
        stop, sent, seen = threading.Event(), [], []

        def send():
            while not stop.is_set():
                send_body(running, whole(probes(1000 * len(sent))))
                sent.append(40)

        sender = threading.Thread(target=send)
        sender.start()
        try:
            wait_for(lambda: gate(running, "precision")["n"], lambda n: n >= 80)
            put(gold, "".join(golden(40, claim="something else")))
            assert running.server.reloading.reload()
            seen += [gate(running, "precision") for _ in range(10)]
            wait_for(lambda: gate(running, "precision")["n"], lambda n: n >= 80)
        finally:
            stop.set()
            sender.join()
        books, metrics = accounted(running), running.metrics()
        seen.append(gate(running, "precision"))
        assert {found["value"] for found in seen} <= {None, 0.0}
        by_version = {}
        for name, value in metrics.items():
            if found := re.match(r'rag_answer_precision_(score|scored)_total\{.*gold_version="(\w+)"', name):
                by_version.setdefault(found[2], {})[found[1]] = value
        shares = sorted(counts["score"] / counts["scored"] for counts in by_version.values())
        assert shares == [0.0, 1.0]
        assert sum(counts["scored"] for counts in by_version.values()) == sum(sent) == books["scored"]
        assert metrics['ragmon_gold_items{gold="gold"}'] == 40


# --- alarms -----------------------------------------------------------------------------------------------------------

ALARMED = "[pipelines.support]\n[gates.errors]\nmetric = 'error_rate'\nat_most = 0.05\n[gates.empty]\n"
ALARMED += "metric = 'empty_retrieval_rate'\nat_most = {}\n[alarms.baseline]\nlearn = '10m'\n"


def minutes(running, moved, n, wrong):
    """So many minutes of sixty requests each, some of which fail."""
    for _ in range(n):
        first = int(moved.now) * 100
        found = [asked(first + k, ts=moved.now + k, error="E" if k < wrong else None) for k in range(60)]
        moved.advance(60.0)
        send_body(running, whole(found))
    moved.advance(1.0)
    accounted(running)


def alarms(running):
    """Everything alarms and baselines hold, by name."""
    with running.server.writer.lock:
        return saved(running.server.writer.server_state.engine.alarms.state).pipelines["support"]


def fires(running):
    return {alarm["alert"]: alarm["firing"] for alarm in running.status()["alarms"]}


@pytest.mark.slow
def test_alarms_and_baselines_survive_a_reload_that_does_not_concern_them(tmp_path):
    clock, moved = still()
    with changed(tmp_path, ALARMED.format(0.1), ALARMED.format(0.2), clock=clock) as (running, reload):
        minutes(running, moved, 20, wrong=0)
        minutes(running, moved, 5, wrong=20)
        before, firing = alarms(running), fires(running)
        assert "errors" in firing
        assert any(baseline for baseline in before.baselines.values())
        assert reload()
        after = alarms(running)
        assert fires(running) == firing
        assert gate(running, "empty")["threshold"] == 0.2
        for name in before.alarms.keys() - {"empty"}:
            assert after.alarms[name] == before.alarms[name], name
        learned = [(state.baselines, state.latency, state.selection) for state in (before, after)]
        assert learned[0] == learned[1]


@pytest.mark.slow
def test_an_alarm_whose_gate_changed_is_silent_and_starts_from_nothing(tmp_path):
    """What it saw so far proves that the old level is not kept; of the new one it says nothing."""
    clock, moved = still()
    after = ALARMED.format(0.1).replace("0.05", "0.6")
    with changed(tmp_path, ALARMED.format(0.1), after, clock=clock) as (running, reload):
        minutes(running, moved, 5, wrong=20)
        assert "errors" in fires(running)
        assert reload()
        assert "errors" not in fires(running)
        last = [edge for edge in running.server.writer.server_state.engine.transitions if edge.alert == "errors"][-1]
        assert last.state == "resolved"
        minutes(running, moved, 5, wrong=20)
        assert "errors" not in fires(running)
        minutes(running, moved, 5, wrong=60)
        assert "errors" in fires(running)


def test_a_gate_that_became_less_urgent_fires_on(tmp_path):
    clock, moved = still()
    ticket = ALARMED.format(0.1).replace("at_most = 0.05", "at_most = 0.05\nseverity = 'ticket'")
    with changed(tmp_path, ALARMED.format(0.1), ticket, clock=clock) as (running, reload):
        minutes(running, moved, 5, wrong=20)
        began = fires(running)["errors"]
        assert reload()
        (found,) = (alarm for alarm in running.status()["alarms"] if alarm["alert"] == "errors")
        assert (found["firing"], found["severity"]) == (began, "ticket")


# --- under load -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_is_accepted_while_it_is_read_again_is_scored_once(tmp_path):
    """Three senders, ten reloads, two of them broken."""
    path = write_config(tmp_path, ERRORS.format(0.5) + "[gold.gold]\npath = 'gold.jsonl'\n")
    text = path.read_text(encoding="utf-8")
    put(path, text + PORTS)
    with process(tmp_path) as running:
        stop, sent = threading.Event(), [0, 0, 0]

        def send(place):
            while not stop.is_set():
                first = 1_000_000 * place + sent[place]
                send_body(running, whole(some(first, n=50, wrong=10)))
                sent[place] += 50

        senders = [threading.Thread(target=send, args=(place,)) for place in range(3)]
        for sender in senders:
            sender.start()
        try:
            for turn in range(10):
                put(path, "[gates\n" if turn in (3, 7) else text.replace("0.5", f"0.{turn + 1}") + PORTS)
                before = list(sent)
                reloaded(running)
                wait_for(lambda before=before: all(now > then for now, then in zip(sent, before, strict=True)), bool)
        finally:
            stop.set()
            for sender in senders:
                sender.join()
        books = accounted(running)
        assert (books["scored"], books["received"], books["residual"]) == (sum(sent), sum(sent), 0)
        assert sum("the configuration was read again" in line for line in running.lines) == 8
        assert (gate(running)["n"], shown(running)[LOADED]) == (sum(sent), 1)
        assert running.stop() == 0
