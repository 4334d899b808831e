"""`ragmon replay --alerts-out`: the alarms over trace files, as the monitor would have told them."""

from __future__ import annotations

import gzip
import json
import random
import re

import msgspec
import pytest

import ragmon as ragmon_package
from ragmon.config.load import load
from ragmon.core.record import Record, Totals, encode
from ragmon.ingest.gold import load_gold
from ragmon.monitor.replay import AlarmReplay
from ragmon.scoring.scorer import ScorerFactory
from tests.support.alarming import GOOD, NOON, REFUSAL, Traffic, live, mixed, write_config
from tests.support.command_line import ragmon

KEYS = ["ts", "alert", "metric", "severity", "state"]
LEARN = (
    '[gold.gold]\npath = "gold.jsonl"\n[alarms]\nbaseline = { learn = "30m" }\n[metrics]\ncitations_required = true\n'
    '[gates]\npreset = "default"\ncompliance.at_least = 0.98\n'
)


def hour(*, bad=range(45, 60), minutes=75, seed=1, **fault):
    """Minutes of traffic, some of which are bad."""
    traffic = Traffic(seed)
    fault = fault or {"listless": 0.4}
    return [r for n in range(minutes) for r in traffic.minute(NOON + n, **(fault if n in bad else {}))]


def write(path, records):
    """A trace file; returns its name."""
    path.write_bytes(b"".join(map(encode, records)))
    return str(path)


def replayed(folder, *traces, config=LEARN, **options):
    """What the command did, and the lines it wrote."""
    alerts = folder / "alerts.jsonl"
    arguments = [str(part) for name, value in options.items() for part in (f"--{name}", value)]
    done = ragmon("replay", *traces, "--config", write_config(folder, config), "--alerts-out", alerts, *arguments)
    return done, [json.loads(line) for line in alerts.read_text("utf-8").splitlines()] if alerts.exists() else None


def followed(folder, records, config=LEARN):
    """The same without a process: the watching over records."""
    settings = load(write_config(folder, config), environ={})
    watching = AlarmReplay(ScorerFactory(settings, load_gold(settings.gold)))
    for record in watching.follow(records):
        if isinstance(record, Record):
            watching.scorer.observe(record)
    return watching


# --- what is written --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bad_hour(tmp_path_factory):
    """A folder, the command over an hour with a fault, and its lines."""
    folder = tmp_path_factory.mktemp("hour")
    return folder, *replayed(folder, write(folder / "t.jsonl", hour()))


@pytest.mark.slow
def test_every_line_has_exactly_the_documented_keys(bad_hour):
    _, done, lines = bad_hour
    assert (done.code, done.err) == (0, "")
    assert lines
    assert all(list(line) == KEYS for line in lines)
    assert {line["severity"] for line in lines} == {"page", "look"}
    assert [(line["severity"], line["state"]) for line in lines if line["alert"] == "compliance"] == [
        ("page", "firing"),
        ("page", "resolved"),
    ]
    times = [line["ts"] for line in lines]
    assert times == sorted(times)
    assert all(ts % 60 == 0 and NOON + 46 <= ts / 60 <= NOON + 75 for ts in times)


def test_the_report_is_the_one_without_alerts(bad_hour):
    folder, done, _ = bad_hour
    alone = ragmon("replay", folder / "t.jsonl", "--config", folder / "ragmon.toml")
    assert alone == done


@pytest.mark.slow
def test_incidents_are_written_as_the_alarms_tell_them(bad_hour):
    """One fault is one incident, from its first minute to the end of its last alarm."""
    folder, _, alarms = bad_hour
    path = folder / "incidents.jsonl"
    done = ragmon("replay", folder / "t.jsonl", "--config", folder / "ragmon.toml", "--incidents-out", path)
    assert (done.code, done.err) == (0, "")
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert all(list(line) == ["ts", "incident", "pipeline", "severity", "metrics", "began", "state"] for line in lines)
    assert {line["incident"] for line in lines} == {lines[0]["incident"]}
    assert [line["state"] for line in lines] in (["firing", "resolved"], ["firing", "firing", "resolved"])
    assert (lines[-1]["severity"], lines[-1]["ts"]) == ("confirmed", max(line["ts"] for line in alarms))
    assert NOON + 44 <= lines[0]["began"] / 60 <= NOON + 46
    assert set(lines[-1]["metrics"]) == {line["metric"] for line in alarms}


@pytest.mark.slow
def test_a_second_fault_in_the_midst_of_the_first_is_a_second_incident(tmp_path):
    """Nothing that is cited is retrieved from minute 45 on; ten minutes later a build refuses most questions."""
    traffic = Traffic(1)
    records = hour(minutes=45)
    for n in range(45, 75):
        new = {"build": "b2"} if n >= 55 else {}
        minute = traffic.minute(NOON + n, **({"over": 0.7} if new else {}))
        records += [msgspec.structs.replace(record, retrieved_ids=["d9"], **new) for record in minute]
    _, (first, second) = followed(tmp_path, records).incidents()
    assert (first.severity, second.severity) == ("confirmed", "confirmed")
    assert "answers cite documents that were not retrieved" in first.summary
    assert "answerable questions are refused (build b2)" in second.summary
    assert (second.began - first.began) / 60 == pytest.approx(10, abs=1)


@pytest.mark.slow
@pytest.mark.parametrize("bad", [range(45, 75), range(45, 65)])
def test_an_incident_tells_of_all_requests_of_its_fault_and_not_of_the_first_ones_alone(tmp_path, bad):
    records = hour(bad=bad, over=0.6)
    asked = [r for r in records if r.qid and r.qid.startswith("a") and int(r.ts / 60 - NOON) in bad]
    refused = sum(r.answer_json.claim == REFUSAL["answer_json"].claim for r in asked) / len(asked)
    _, (incident,) = followed(tmp_path, records).incidents()
    told = re.search(r"answerable questions are refused, (\d+) % of gold questions", incident.summary)
    assert int(told[1]) / 100 == pytest.approx(refused, abs=0.01)


@pytest.mark.slow
def test_nothing_to_tell_is_an_empty_file(tmp_path):
    done, lines = replayed(tmp_path, write(tmp_path / "t.jsonl", hour(bad=())))
    assert (done.code, lines) == (0, [])


@pytest.mark.slow
@pytest.mark.parametrize(("alerts", "report"), [("-", None), ("-", "report.json"), ("same.json", "same.json")])
def test_alerts_have_a_file_of_their_own(tmp_path, alerts, report):
    """Else one would be written over the other, or between its lines."""
    traces = write(tmp_path / "t.jsonl", hour(bad=(), minutes=1))
    place = alerts if alerts == "-" else tmp_path / alerts
    done = ragmon("replay", traces, "--alerts-out", place, *(["--output", tmp_path / report] if report else []))
    assert (done.code, done.out) == (3, "")
    assert "--alerts-out" in done.err


@pytest.mark.slow
def test_a_log_tells_what_the_monitor_told(tmp_path):
    """Three pipelines, every source, sessions, slices, faults: line by line, through files and processes."""
    config = write_config(tmp_path)
    records = list(mixed(17))
    alerts = tmp_path / "alerts.jsonl"
    traces = write(tmp_path / "t.jsonl", records)
    assert ragmon("replay", traces, "--config", config, "--alerts-out", alerts).code == 0
    lines = [json.loads(line) for line in alerts.read_text("utf-8").splitlines()]
    assert {line["alert"].rpartition("/")[0] for line in lines} >= {"support", "sales"}
    assert lines == live(load(config, environ={}), records)


# --- the order of files -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_packed_files_and_several_of_them_are_one_stream(bad_hour):
    folder, _, lines = bad_hour
    records = hour()
    first = write(folder / "first.jsonl", records[:2_000])
    second = folder / "second.jsonl.gz"
    second.write_bytes(gzip.compress(b"".join(map(encode, records[2_000:]))))
    assert replayed(folder, first, second)[1] == lines


@pytest.mark.slow
def test_a_file_may_be_out_of_order_by_ten_minutes(tmp_path):
    """As several writers leave it; every record still counts in its own minute."""
    rng, records = random.Random(4), hour()
    shuffled = sorted(records, key=lambda record: record.ts + rng.uniform(0, 599))
    expected, found = followed(tmp_path, records), followed(tmp_path, shuffled)
    assert (found.transitions, found.notes()) == (expected.transitions, [])
    assert expected.transitions


@pytest.mark.slow
def test_totals_between_the_records_change_nothing(tmp_path):
    records = hour()
    calls = [Totals(ts=r.ts, instance="i", started=r.ts, pipeline="default", source="live") for r in records[::50]]
    lines = sorted([*records, *calls], key=lambda line: line.ts)
    assert followed(tmp_path, lines).transitions == followed(tmp_path, records).transitions


def stray():
    """Two records without a time, and three that stand half an hour behind; one of them asks a gold question."""
    records = hour(bad=(), minutes=60)
    late = [Record(ts=60.0 * NOON + n, source="live", q=q, **GOOD) for n, q in enumerate(("?", "??", "What is 1?"))]
    untimed = [Record(source="live", q="?", **REFUSAL)] * 2
    return [*records[:2_400], *late, *untimed, *records[2_400:]]


UNTIMED = "alarms leave out 2 records without a time"
LATE = "alarms count 3 records late, more than ten minutes after newer ones"


@pytest.mark.slow
def test_records_that_are_in_no_alarm_or_in_another_minute_are_noted(tmp_path):
    """The default format has no place for notes: whoever reads the alerts reads them on stderr."""
    done, lines = replayed(tmp_path, write(tmp_path / "t.jsonl", stray()))
    assert (done.code, lines, done.json["records"]["scored"]) == (0, [], 60 * 70 + 5)
    assert UNTIMED in done.err
    assert LATE in done.err


@pytest.mark.slow
def test_the_markdown_report_holds_the_notes(tmp_path):
    done, _ = replayed(tmp_path, write(tmp_path / "t.jsonl", stray()), format="md")
    assert f"\n- {UNTIMED}\n" in done.out
    assert f"\n- {LATE}; sort the traces by time\n" in done.out


@pytest.mark.slow
def test_a_run_in_order_has_no_notes(bad_hour):
    folder, *_ = bad_hour
    done, _ = replayed(folder, folder / "t.jsonl", format="md")
    assert "ten minutes" not in done.out
    assert "without a time" not in done.out


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [2, 3])
def test_several_processes_write_the_same_lines(tmp_path, jobs):
    """Minutes lie across the places where a file is divided, and across files; a gzip file is one piece."""
    records = hour(minutes=120)
    untimed = msgspec.structs.replace(records[0], ts=None)
    (tmp_path / "first.jsonl.gz").write_bytes(gzip.compress(b"".join(map(encode, records[:1000]))))
    files = [str(tmp_path / "first.jsonl.gz"), write(tmp_path / "second.jsonl", [*records[1000:], untimed])]
    one, lines = replayed(tmp_path, *files)
    several, found = replayed(tmp_path, *files, jobs=jobs)
    assert lines
    assert (several.code, found) == (0, lines)
    assert (several.err, several.out) == (one.err, one.out)
    assert "alarms leave out 1 record without a time" in one.err


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--duplicates", "last"], "--alerts-out follows every record: leave out --duplicates"),
        (["--compat", "seed-000"], "--alerts-out does nothing with --compat seed-000"),
    ],
)
def test_options_that_do_not_go_together_are_refused(tmp_path, options, message):
    traces = write(tmp_path / "t.jsonl", hour(bad=(), minutes=1))
    done = ragmon("replay", traces, "--alerts-out", tmp_path / "alerts.jsonl", *options)
    assert (done.code, done.out, (tmp_path / "alerts.jsonl").exists()) == (3, "", False)
    assert message in done.err


@pytest.mark.slow
def test_a_place_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    done = ragmon("replay", tmp_path / "missing.jsonl", "--alerts-out", tmp_path / "no" / "alerts.jsonl")
    assert done.code == 3
    assert "there is no folder" in done.err


# --- baselines from a file --------------------------------------------------------------------------------------------

GIVEN = '[gold.gold]\npath = "gold.jsonl"\n[alarms]\nbaseline = { file = "baseline.json" }\n'
FROZEN = {"kind": "ragmon-baseline", "v": 1, "version": "44136fa3", "pipelines": {}}
WRONG = {  # what stands in the file, and what is said of it
    "nothing": ("", "the baseline is not JSON"),
    "half a file": ('{"kind": "ragmon-base', "the baseline is not JSON"),
    "no text": ("\0\N{SNOWMAN}", "the baseline is not JSON"),
    "depth": ("[" * 100_000, "the baseline is not JSON"),
    "a list": ("[]", "this is not a baseline file"),
    "a report": ('{"version": "0.1", "gold": [], "series": []}', "this is not a baseline file"),
    "another kind": (json.dumps(FROZEN | {"kind": "ragmon-gold"}), "this is not a baseline file"),
    "a later version": (json.dumps(FROZEN | {"v": 2}), "this is not a baseline file"),
    "no pipelines": (
        json.dumps({key: value for key, value in FROZEN.items() if key != "pipelines"}),
        "the baseline was changed after it was frozen: '44136fa3'",
    ),
    "a pipeline that was added": (
        json.dumps(FROZEN | {"pipelines": {"default": {}}}),
        "the baseline was changed after it was frozen: '44136fa3'",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", WRONG)
def test_a_baseline_file_that_is_none_is_refused_with_what_would_be_right(tmp_path, what):
    content, message = WRONG[what]
    (tmp_path / "baseline.json").write_text(content, encoding="utf-8")
    done, lines = replayed(tmp_path, write(tmp_path / "t.jsonl", hour(bad=(), minutes=1)), config=GIVEN)
    error, hint = done.error
    assert error == f"{tmp_path / 'baseline.json'}: {message}"
    assert "ragmon baseline freeze" in hint
    assert lines is None


@pytest.mark.slow
def test_a_baseline_file_that_is_missing_is_named(tmp_path):
    done, _ = replayed(tmp_path, write(tmp_path / "t.jsonl", hour(bad=(), minutes=1)), config=GIVEN)
    assert done.error[0] == f"{tmp_path / 'baseline.json'}: the baseline cannot be read (No such file or directory)"


@pytest.mark.slow
def test_with_the_baseline_of_a_good_run_the_first_hour_is_watched_as_well(tmp_path):
    """A weak fault from the first minute on would otherwise become what all is well looks like."""
    good, weak = hour(bad=(), seed=2), hour(bad=range(60), minutes=60, seed=3, wrong=0.2)
    frozen = ragmon(
        *("baseline", "freeze", write(tmp_path / "good.jsonl", good), "--config", write_config(tmp_path, LEARN)),
        *("--output", tmp_path / "baseline.json"),
    )
    assert frozen.code == 0
    learned = {edge.alert for edge in followed(tmp_path, weak).transitions}
    given = {edge.alert for edge in followed(tmp_path, weak, GIVEN).transitions}
    assert "answer_precision:look" in given - learned


# --- incidents --------------------------------------------------------------------------------------------------------


def test_command_and_notebook_tell_of_the_same_incident(tmp_path):
    traces, config = write(tmp_path / "traces.jsonl", hour(missed=0.9)), write_config(tmp_path, LEARN)
    out = tmp_path / "incidents.jsonl"
    done = ragmon("replay", traces, "--config", config, "--incidents-out", out, "--format", "md")
    (line, *_) = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    report = ragmon_package.replay(traces, config=config, incidents=True)
    (incident,) = report.incidents
    assert (line["incident"], line["began"]) == (incident.incident, incident.began)
    assert incident.began == 60.0 * (NOON + 45)
    assert "retrieval misses the right documents" in incident.summary
    assert incident.summary in repr(report)
    assert incident.summary in report._repr_html_()
    assert incident.summary in report.to_html()
    assert "## Incidents" in done.out
    assert ragmon_package.replay(traces, config=config).incidents == ()
