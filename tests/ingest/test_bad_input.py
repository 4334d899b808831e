"""Bad input end to end: every good record around it is scored, and every bad line is counted with its reason."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard

from ragmon.core.errors import InputError
from ragmon.core.policy import Policy
from ragmon.monitor.replay import run_files
from tests.support.trace_files import GOLD, good, scorer, write

CORE = b'"qid":"q1","q":"Question 1?","retrieved_ids":["d1"],"answer_json":{"claim":"answer","citations":["d1"]}'

REJECTED = {
    "malformed line": (b'{"qid": "q1", nonsense}', "malformed_json"),
    "torn line": (b'{"qid":"q1","q":"Quest', "malformed_json"),
    "zeros after a crash": (b"\x00" * 512, "malformed_json"),
    "two records on a line": (b"{%s}{%s}" % (CORE, CORE), "malformed_json"),
    "a list": (b"[{%s}]" % CORE, "invalid_schema"),
    "not a trace": (b'{"level":"info","msg":"started"}', "invalid_schema"),
    "invalid UTF-8": (b'{"qid":"q\xff1"}', "invalid_utf8"),
    "raw lone surrogate": (b'{"qid":"\xed\xa0\x80"}', "invalid_utf8"),
    "escaped lone surrogate": (rb'{"qid":"\ud800"}', "invalid_utf8"),
    "deep nesting": (b'{%s,"tags":%s1%s}' % (CORE, b'{"a":' * 50_000, b"}" * 50_000), "depth"),
    "deep nesting in an unknown field": (b'{%s,"x":%s%s}' % (CORE, b"[" * 50_000, b"]" * 50_000), "depth"),
    "an unknown kind": (b'{"kind":"span",%s}' % CORE, "invalid_schema"),
    "a later version": (b'{"v":2,%s}' % CORE, "invalid_schema"),
    "an over-long line": (b'{%s,"x":"%s"}' % (CORE, b"x" * (9 << 20)), "oversize"),
}
SCORED = {
    "U+2028 in a line": json.dumps({"qid": "q1", "q": "a\u2028b\x85c"}, ensure_ascii=False).encode(),
    "no answer": b'{"qid":"q1","q":"Question 1?","retrieved_ids":["d1"]}',
    "citations as a string": b'{"qid":"q1","retrieved_ids":["d1"],"answer_json":{"claim":"answer","citations":"d1"}}',
    "ids as integers": b'{"qid":1,"retrieved_ids":[1,2],"answer_json":{"claim":"answer","citations":[1]}}',
    "unknown qid": CORE.replace(b'"q1"', b'"elsewhere"').join((b"{", b"}")),
    "5,000 digits in an unknown field": b'{%s,"x":%s}' % (CORE, b"9" * 5000),
    "1e999 in an unknown field": b'{%s,"x":1e999}' % CORE,
    "invalid UTF-8 in an unknown field": b'{%s,"x":"\xff"}' % CORE,
    "duplicate keys": b'{"qid":"q9",%s}' % CORE,
    "no time": b"{%s}" % CORE,
    "ISO 8601": b'{%s,"ts":"2025-11-21T00:00:00Z"}' % CORE,
    "minus zero": b'{%s,"latency_ms":{"total":-0.0},"scores":[-0.0]}' % CORE,
    "enormous but finite": b'{%s,"latency_ms":1e308,"scores":[1e308]}' % CORE,
    "negative latency": b'{%s,"latency_ms":{"total":-3}}' % CORE,
    "byte order mark": b"\xef\xbb\xbf{%s}" % CORE,
    "carriage return": b"{%s}\r" % CORE,
    "NaN": b'{%s,"ts":NaN}' % CORE,
    "Infinity": b'{%s,"latency_ms":{"total":Infinity}}' % CORE,
    "1e999": b'{%s,"scores":[1e999]}' % CORE,
    "5,000 digits": b'{%s,"ts":%s}' % (CORE, b"9" * 5000),
    "a boolean id": b'{"qid":true,"retrieved_ids":["d1"]}',
    "a fractional id": b'{"qid":"q1","retrieved_ids":[1.5]}',
    "a time in milliseconds": b'{%s,"ts":1763683200000}' % CORE,
    "an absurd time": b'{%s,"ts":1e300}' % CORE,
    "a time before 1970": b'{%s,"ts":-5}' % CORE,
    "an unknown source": b'{%s,"source":"web"}' % CORE,
}


def replay(*paths, **options):
    """A run over trace files, after the books were found to balance."""
    run = run_files([str(path) for path in paths], scorer, **options)
    rejected = run.intake.rejections + sum(run.scorer.dropped.values())
    assert run.intake.read - run.intake.totals == run.scorer.scored + rejected + run._left_out
    return run


@pytest.mark.parametrize("name", REJECTED)
@pytest.mark.parametrize("where", ["first", "between", "last"])
def test_a_bad_line_is_counted_and_named_and_takes_no_good_one_with_it(tmp_path, name, where):
    line, reason = REJECTED[name]
    lines = [good(1), good(2), good(3)]
    place = {"first": 0, "between": 2, "last": 3}[where]
    lines.insert(place, line + b"\n")
    run = replay(write(tmp_path / "t.jsonl", *lines))
    assert (run.scorer.scored, run.intake.read, run.intake.rejected) == (3, 4, {reason: 1})
    assert str(run.intake.examples[0]).startswith(f"{tmp_path}/t.jsonl:{place + 1}: {reason}: ")


@pytest.mark.parametrize("name", SCORED)
def test_an_odd_line_is_scored_like_any_other(tmp_path, name):
    run = replay(write(tmp_path / "t.jsonl", good(), SCORED[name] + b"\n", good(2)))
    assert (run.scorer.scored, run.intake.read, run.intake.rejected) == (3, 3, {})


def test_all_bad_lines_together_are_counted_each_under_its_own_reason(tmp_path):
    bad = [line for line, _ in REJECTED.values()]
    lines = [part for line in bad for part in (good(1), line + b"\n", b"\n", b"  \n")]
    for name in ("t.jsonl", "t.gz", "t.zst"):
        run = replay(write(tmp_path / name, *lines))
        assert run.scorer.scored == len(bad)
        reasons = [reason for _, reason in REJECTED.values()]
        assert run.intake.rejected == {reason: reasons.count(reason) for reason in reasons}
        assert len(run.intake.examples) == 5


def test_a_record_scored_beside_bad_lines_counts_as_it_counts_alone(tmp_path):
    lines = [good(n) for n in range(40)]
    bad = [line + b"\n" for line, _ in REJECTED.values()]
    clean = replay(write(tmp_path / "clean.jsonl", *lines))
    dirty = replay(write(tmp_path / "dirty.jsonl", *bad, *lines, *bad))
    assert dirty.scorer.state.digest() == clean.scorer.state.digest()


def test_the_report_carries_the_books(tmp_path):
    path = write(tmp_path / "t.jsonl", good(1), b"{\n", good(2), b'{"qid":"\xff"}\n', good(99, qid="elsewhere", q="?"))
    report = json.loads(replay(path).report(Policy(gates=())).json())
    assert report["records"] == {
        "read": 5,
        "scored": 3,
        "unmatched": 1,
        "duplicate": 0,
        "rejected": {"malformed_json": 1, "invalid_utf8": 1},
    }


def test_a_totals_line_is_no_request_and_no_reject(tmp_path):
    totals = b'{"kind":"totals","v":1,"ts":5,"instance":"i","started":1,"pipeline":"p","source":"live","calls":900}\n'
    run = replay(write(tmp_path / "t.jsonl", good(1), totals, good(2)))
    assert (run.scorer.scored, run.intake.totals, run.intake.rejected) == (2, 1, {})
    assert run.report(Policy(gates=())).read == 2


@pytest.mark.parametrize("content", [b"", b"\n", b" \n\t\n\r\n"])
def test_a_file_with_nothing_in_it_is_no_failure(tmp_path, content):
    run = replay(write(tmp_path / "t.jsonl", content))
    assert (run.scorer.scored, run.intake.read, run.intake.rejected) == (0, 0, {})


def test_a_last_line_without_a_newline_is_read_and_a_torn_one_is_counted(tmp_path):
    whole = replay(write(tmp_path / "whole.jsonl", good(1), good(2).strip()))
    torn = replay(write(tmp_path / "torn.jsonl", good(1), good(2)[:-20]))
    assert (whole.scorer.scored, whole.intake.rejected) == (2, {})
    assert (torn.scorer.scored, torn.intake.rejected) == (1, {"malformed_json": 1})


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_a_truncated_file_among_others_costs_its_own_end_only(tmp_path, compress):
    cut = compress(b"".join(good(n, tags={"n": str(n * 7919)}) for n in range(5000)))
    (tmp_path / "cut").write_bytes(cut[: len(cut) // 2])
    run = replay(write(tmp_path / "a.jsonl", good(1)), tmp_path / "cut", write(tmp_path / "b.jsonl", good(2)))
    assert run.intake.rejected == {"truncated": 1}
    assert 2 < run.scorer.scored < 5002


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("missing", ["absent.jsonl", "absent.jsonl.gz", "."])
def test_a_file_that_is_not_there_stops_the_run_with_its_name(tmp_path, missing, jobs):
    path = write(tmp_path / "t.jsonl", *map(good, range(50)))
    with pytest.raises(InputError) as caught:
        replay(path, tmp_path / missing, jobs=jobs)
    assert str(tmp_path / missing) in str(caught.value)
    assert caught.value.hint


DUPLICATES = [
    good(1, answer_json={"claim": "not in context", "citations": []}),
    good(1),
    good(2),
    good(1, answer_json={"claim": "something else", "citations": ["d2"]}),
    good(0, qid="elsewhere", q="?"),
    good(0, qid="elsewhere", q="?"),
]


@pytest.mark.parametrize(
    ("duplicates", "scored", "labels"),
    [("all", 6, ["ANS_NO_HIT", "OK", "OVER_REFUSAL"]), ("last", 4, ["ANS_NO_HIT"]), ("first", 4, ["OVER_REFUSAL"])],
)
def test_which_record_of_a_gold_question_counts(tmp_path, duplicates, scored, labels):
    """Records that belong to no gold item are never duplicates of each other."""
    run = replay(write(tmp_path / "t.jsonl", *DUPLICATES), duplicates=duplicates)
    report = run.report(Policy(gates=()))
    assert (run.scorer.scored, report.read, report.duplicate) == (scored, 6, 2)
    assert [question.label for question in report.questions if question.qid == "q1"] == labels
    assert [question.label for question in report.questions if question.qid == "q2"] == ["OK"]


def test_pipelines_and_sources_answer_the_same_question_each_for_itself(tmp_path):
    lines = [good(1, pipeline=pipeline, source=source) for pipeline in ("a", "b") for source in ("probe", "live")]
    run = replay(write(tmp_path / "t.jsonl", *lines, *lines), duplicates="last")
    assert (run.scorer.scored, run._left_out) == (4, 4)


@pytest.mark.parametrize("duplicates", ["last", "first"])
def test_a_record_that_names_no_pipeline_or_source_repeats_one_that_names_the_default(tmp_path, duplicates):
    names = ({}, {"pipeline": "default"}, {"source": "replay"}, {"pipeline": "default", "source": "replay"})
    run = replay(write(tmp_path / "t.jsonl", *(good(1, **name) for name in names)), duplicates=duplicates)
    report = run.report(Policy(gates=()))
    assert (run.scorer.scored, report.duplicate) == (1, 3)


def ragmon(*arguments, **options):
    """The command line, as a process of its own."""
    command = [sys.executable, "-m", "ragmon", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


@pytest.fixture
def gold_file(tmp_path):
    path = tmp_path / "gold.jsonl"
    rows = [
        {
            "qid": item.qid,
            "question": item.question,
            "answerable": True,
            "gold_claim_substr": ["answer"],
            "gold_citations": ["d1"],
        }
        for item in GOLD
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_is_no_failure(tmp_path, gold_file):
    """`ragmon replay … | head`: exit code 0 and not a word on stderr; a gate keeps its verdict."""
    path = write(tmp_path / "t.jsonl", *(good(n, answer_json={"claim": "x", "citations": ["d9"]}) for n in range(20)))
    for command, code in (("replay", 0), ("gate", 1)):
        process = ragmon(command, path, "--gold", gold_file)
        process.stdout.close()
        said = process.stderr.read().decode()
        process.stderr.close()
        assert (process.wait(), said) == (code, "")


@pytest.mark.slow
def test_standard_input_gives_the_report_the_file_gives(tmp_path, gold_file):
    path = Path(write(tmp_path / "t.jsonl", *map(good, range(30)), b"nonsense\n"))
    from_file = ragmon("replay", path, "--gold", gold_file)
    piped = ragmon("replay", "-", "--gold", gold_file, stdin=subprocess.PIPE)
    report, said = piped.communicate(path.read_bytes())
    assert report == from_file.communicate()[0]
    assert (piped.returncode, from_file.returncode) == (0, 0)
    assert said.decode().startswith("rejected: -:31: malformed_json: ")
    assert json.loads(report)["records"]["scored"] == 30


@pytest.mark.slow
@pytest.mark.parametrize("traces", ["absent.jsonl", "."])
def test_the_command_line_says_which_file_is_wrong_and_exits_with_3(tmp_path, gold_file, traces):
    process = ragmon("replay", tmp_path / traces, "--gold", gold_file)
    report, said = process.communicate()
    assert (process.returncode, report) == (3, b"")
    first, second = said.decode().splitlines()
    assert first.startswith(f"error: {tmp_path / traces}: ")
    assert second.startswith("hint: ")
