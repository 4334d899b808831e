"""One line to a record: the contract round trip, versions and kinds, and the reason of every line that is none."""

from __future__ import annotations

import json
import time

import pytest

from ragmon.core.record import Answer, Latency, Record, TextFacts
from ragmon.ingest.lines import AnyShape, Rejected, as_flag, decode
from ragmon.ingest.tables import TableOptions
from ragmon.metrics.facts import FactReader, Facts, Unassessed

CORE = b'"qid":"a","q":"A?","retrieved_ids":["d"],"answer_json":{"claim":"x","citations":["d"]}'

MORNING = 1_763_629_200
"""9:00 on 20 November 2025, UTC."""


@pytest.fixture
def tokyo(monkeypatch):
    """A machine far from UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


def reason(line):
    """Why a line is no record, and what is said about it."""
    with pytest.raises(Rejected) as caught:
        decode(line)
    return caught.value.reason, str(caught.value)


@pytest.mark.parametrize("field", ['"ts":"2026-01-01"', '"latency_ms":5', '"qid":7', '"tags":{"n":1}', '"v":1.0'])
def test_a_totals_line_is_never_taken_for_a_record(field):
    """Whatever sends the line to a second look."""
    kind, said = reason(f'{{"kind":"totals",{field}}}'.encode())
    assert (kind, "a record" in said) == ("invalid_schema", False)


@pytest.mark.parametrize("kind", ['"labels"', '""', "3", "true", '{"a":1}', "[]"])
@pytest.mark.parametrize("rest", [CORE, b'"qid":7', b'"latency_ms":5'])
def test_a_line_of_an_unknown_kind_is_rejected_whatever_else_it_holds(kind, rest):
    assert reason(b'{"kind":%s,%s}' % (kind.encode(), rest))[0] == "invalid_schema"


def test_fields_of_a_later_ragmon_are_passed_over_in_its_first_version():
    assert decode(b'{"v":1,"qid":"a","colour":{"deep":[1,{"x":null}]}}') == Record(v=1, qid="a")


@pytest.mark.parametrize("version", ["2", "0", "-1", "9" * 30, "true", "1.5", "[1]"])
def test_another_version_of_the_contract_is_rejected_by_name(version):
    kind, said = reason(b'{"v":%s,%s}' % (version.encode(), CORE))
    assert kind == "invalid_schema"
    assert said.startswith("v is 1, the version of the trace contract")


@pytest.mark.parametrize(("version", "read"), [("1", 1), ("1.0", 1), ("null", None), ('"2.3.1"', None)])
def test_version_one_may_be_any_json_number_and_text_is_another_programs_version(version, read):
    assert decode(b'{"v":%s,%s}' % (version.encode(), CORE)).v == read


def test_a_line_that_is_no_record_has_one_reason():
    for line, why in [
        (b"", "malformed_json"),
        (b"{", "malformed_json"),
        (b'{"qid":"a"', "malformed_json"),
        (b'{"qid":"a"} {"qid":"b"}', "malformed_json"),
        (b'{"qid":"a"},', "malformed_json"),
        (b"{'qid':'a'}", "malformed_json"),
        (b'{"qid":"a\x01"}', "malformed_json"),
        (b'{"qid":"a","ts":01}', "malformed_json"),
        (b"\x00\x00\x00", "malformed_json"),
        (b'{"q":"What is NaN? And Infinity?","retr', "malformed_json"),
        (b'{"q":"What is NaN? And Infinity?",}', "malformed_json"),
        (b"[]", "invalid_schema"),
        (b'"text"', "invalid_schema"),
        (b"null", "invalid_schema"),
        (b"12", "invalid_schema"),
        (b"{}", "invalid_schema"),
        (b'{"level":"info","msg":"started"}', "invalid_schema"),
        (b'{"qid":"\xff"}', "invalid_utf8"),
        (b'{"qid":"\xed\xa0\x80"}', "invalid_utf8"),
        (b'{"tags":{"\xc3\x28":"x"},"qid":"a"}', "invalid_utf8"),
        (rb'{"qid":"\ud800"}', "invalid_utf8"),
        (rb'{"qid":"\ud800 and more text after it"}', "invalid_utf8"),
        (rb'{"qid":"\udc00"}', "invalid_utf8"),
        (rb'{"qid":"\ud800\u0041"}', "invalid_utf8"),
        (rb'{"unknown":"\ud800"}', "invalid_utf8"),
        (b'{"qid":' + b"9" * 5000 + b"}", "invalid_schema"),
        (b'{"kind":"totals","ts":1e999}', "invalid_schema"),
        (b'{"kind":"totals","ts":1,"instance":"\xff"}', "invalid_utf8"),
        (b'{"tags":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "depth"),
        (b'{"qid":"a","unknown":' + b'{"x":' * 100_000 + b"1" + b"}" * 100_001, "depth"),
        (b'{"qid":"a","unknown":' + b"[" * 500 + b"x", "depth"),
        (b'{"qid":"a","unknown":' + b"[" * 300 + b"x", "malformed_json"),
        (b'{"qid":"a","unknown":"' + b"[" * 500 + b'",x', "malformed_json"),
        (b'{"qid":"a","unknown":[' + b"[]," * 500 + b"x", "malformed_json"),
    ]:
        kind, said = reason(line)
        assert (kind, len(said) > 5) == (why, True), (line, why)
        assert len(said) < 300, "what is said fits on a terminal"


def test_the_reason_is_the_same_wherever_a_line_is_decoded():
    line = b'{"qid":' + b"[" * 970 + b"x"

    def deeper(calls):
        return deeper(calls - 1) if calls else reason(line)[0]

    assert {deeper(calls) for calls in (0, 100, 300, 500)} == {"depth"}


@pytest.mark.parametrize(
    "field",
    [b'"x":"\xff"', b'"x":1e999', b'"x":' + b"9" * 5000, b'"x":' + b"[" * 200 + b"]" * 200, b'"\xff":1', b'"x":"\x7f"'],
    ids=lambda value: repr(value)[:30],
)
@pytest.mark.parametrize("rest", [CORE, b'"question":"A?"', b'"latency_ms":5,' + CORE], ids=["first", "second", "both"])
def test_what_stands_in_a_field_nobody_reads_does_not_matter(field, rest):
    """On the fast way and on the slow one alike."""
    assert decode(b"{%s,%s}" % (field, rest)).q == "A?"


def test_a_byte_order_mark_before_a_line_is_passed_over():
    """Also in the middle of a file: logs are concatenated."""
    assert decode(b"\xef\xbb\xbf{%s}" % CORE).qid == "a"
    assert reason(b"\xef\xbb\xbf" * 3 + b"{}")[0] == "malformed_json"


def unread(line):
    """The record of a line, and what of it could not be read, with its reason by field."""
    found = {}
    record = decode(line, lambda field, reason, told="": found.update({field: (reason, told)}))
    return record, found


def test_a_mistyped_field_is_unknown_and_named_with_what_was_found_and_what_belongs_there():
    """The rest of the line is read."""
    for field, said in [
        ('"ts":-1', "not -1"),
        ('"ts":1e300', "not 1e+300"),
        ('"ts":"yesterday"', "ts is a time since 1970, not 'yesterday'"),
        ('"ts":true', "ts is a time since 1970, not True"),
        ('"source":"web"', "source is one of live, probe, match, label, replay, not 'web'"),
        ('"source":3', "not 3"),
        ('"latency_ms":"fast"', "latency_ms is a number, not 'fast'"),
        ('"latency_ms":[1]', "latency_ms is a number, not [1]"),
        ('"sampling":{"p":0}', "sampling: Expected `float` > 0"),
        ('"sampling":{"p_audit":2}', "sampling: Expected `float` <= 1"),
        ('"partial":"false"', "partial is true or false, not 'false'"),
        ('"exported":1', "exported is true or false, not 1"),
        ('"probe":"yes"', "probe is true or false, not 'yes'"),
        ('"qid":true', "qid is a string or an integer, not True"),
        ('"qid":1.5', "qid is a string or an integer, not 1.5"),
        ('"retrieved_ids":"d1"', "retrieved_ids is a list of ids, not 'd1'"),
        ('"retrieved_ids":[1.5]', "an entry of retrieved_ids is a string or an integer, not 1.5"),
        ('"retrieved_ids":[false]', "an entry of retrieved_ids is a string or an integer, not False"),
        ('"retrieved_ids":[{"doc":1}]', "an entry of retrieved_ids has no id: [{'doc': 1}]"),
        ('"retrieved_ids":[["d"]]', "an entry of retrieved_ids is a string or an integer, not ['d']"),
        ('"candidate_ids":[null]', "no entry of candidate_ids has an id"),
        ('"answer_json":"the answer"', "answer_json is an object, not 'the answer'"),
        ('"answer_json":{"claim":["x"]}', "claim is text, not ['x']"),
        ('"tags":["de"]', "tags is an object, not ['de']"),
        ('"tags":{"lang":["de"]}', "tags.lang is text, not ['de']"),
        ('"verdicts":[2]', "a verdict is yes or no, not 2"),
        ('"verdicts":"yes"', "verdicts is a list, not 'yes'"),
        ('"measures":{"m":"x"}', "measures.m is a number, not 'x'"),
        ('"contexts":[1]', "contexts: Expected `str`"),
        ('"scores":"high"', "scores: Expected `array`"),
        ('"facts":{"refused":"no"}', "facts: Expected `bool | null`"),
    ]:
        record, found = unread(b"{%s,%s}" % (CORE, field.encode()))
        ((kind, told),) = found.values()
        assert kind == "unreadable", (field, said)
        assert said in told, (field, said)
        assert record.q == "A?", (field, said)


def test_long_values_are_cut_before_they_are_shown():
    assert len(unread(b'{"qid":"a","retrieved_ids":"%s"}' % (b"d" * 10_000))[1]["retrieved_ids"][1]) < 200


@pytest.mark.parametrize("answer", ['"answer_json":"x"', '"answer_json":{"claim":["x"]}', '"answer":["x"]'])
def test_whether_an_answer_that_cannot_be_read_refused_is_not_known(answer):
    """It is not taken for no answer, which would be a fault."""
    record, _ = unread(b'{"qid":"a","q":"A?",%s}' % answer.encode())
    assert (record.answer_json.claim, record.facts) == (None, TextFacts())


def test_what_cannot_be_read_of_a_draw_or_of_facts_is_not_taken_for_its_default():
    record, _ = unread(b'{%s,"sampling":{"p":0},"facts":{"refused":"no"}}' % CORE)
    assert record.sampling.stratum == "unknown_weight"
    facts = Facts._make(FactReader().read(record, None))
    with pytest.raises(Unassessed):
        _ = facts.refusal_like


def test_marks_do_not_stand_for_a_list_of_citations_that_cannot_be_read():
    line = b'{"q":"A?","answer":"Yes [1].","retrieved_ids":["d1"],"citations":[true]}'
    assert unread(line)[0].answer_json.citations is None
    assert unread(line.replace(b"[true]", b"null"))[0].answer_json.citations == ["d1"]


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"9" * 5000])
@pytest.mark.parametrize(
    "place", [b'"ts":%s', b'"faithfulness":%s', b'"scores":[1,%s]', b'"x":{"y":[%s]}', b'"measures":{"m":%s}']
)
def test_a_number_that_no_float_holds_is_absent(number, place):
    """Python writes NaN for what pandas and Ragas have no value for."""
    record, _ = unread(b"{%s,%s}" % (CORE, place % number))
    assert (record.q, record.ts, record.scores, record.measures or {}) == ("A?", None, None, {})


@pytest.mark.parametrize(
    ("written", "read"),
    [('[null,"p"]', ["p"]), ('["p",null,null]', ["p"]), ("[12.0,3]", ["12", "3"]), ('[{"id":7.0},null]', ["7"])],
)
@pytest.mark.parametrize("name", ["retrieved_ids", "candidate_ids"])
def test_entries_that_are_null_are_left_out_and_whole_numbers_are_their_digits(written, read, name):
    record, found = unread(f'{{"qid":12.0,"{name}":{written}}}'.encode())
    assert (record.qid, getattr(record, name), found) == ("12", read, {})


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ('"20.11.2025 09:00"', MORNING),
        ('"11/20/2025 9:00 AM"', MORNING),
        ('"2025-11-20 09:00:00 UTC"', MORNING),
        ('"Thu, 20 Nov 2025 10:00:00 +0100"', MORNING),
        ('"Nov 20, 2025 @ 09:00:00.000"', MORNING),
        ("1763629200000", MORNING),
        ("1763629200000000", MORNING),
        ('"1763629200"', MORNING),
        ('"NaT"', None),
        ('""', None),
    ],
)
def test_a_time_of_one_meaning_is_read(written, seconds):
    record, found = unread(b'{%s,"ts":%s}' % (CORE, written.encode()))
    assert (record.ts, found) == (seconds, {})


@pytest.mark.parametrize("written", ['"03/04/2025"', '"3-4-2025 09:00"', '"45981.375"', '"25/11/20"'])
def test_a_time_of_two_meanings_is_unknown_in_a_line_that_has_no_column(written):
    record, found = unread(b'{%s,"ts":%s}' % (CORE, written.encode()))
    assert record.ts is None
    assert " or " in found["ts"][1]
    told = decode(b'{%s,"ts":"03/04/2025"}' % CORE, options=TableOptions(time_format="%d/%m/%Y"))
    assert told.ts == 1_743_638_400


@pytest.mark.parametrize(
    ("written", "milliseconds"),
    [
        ('"812 ms"', 812),
        ('"812,5"', 812.5),
        ('"0.8 s"', 800),
        ('"1.234,5"', 1234.5),
        ('"1.234"', 1.234),
        ('"nan"', None),
    ],
)
def test_a_number_with_a_unit_or_a_decimal_comma_is_read(written, milliseconds):
    record, found = unread(b'{%s,"latency_ms":%s}' % (CORE, written.encode()))
    assert (record.latency_ms or Latency()).total == milliseconds
    assert found == {}


def test_a_number_of_two_meanings_is_unknown():
    record, found = unread(b'{%s,"latency_ms":"1,234"}' % CORE)
    assert (record.latency_ms.total, [*found]) == (None, ["latency_ms"])


@pytest.mark.parametrize(
    ("ts", "seconds"),
    [
        ('"2025-11-21T00:00:00Z"', 1_763_683_200),
        ('"2025-11-21T01:00:00+01:00"', 1_763_683_200),
        ('"2025-11-21T00:00:00"', 1_763_683_200),
        ('"2025-11-21"', 1_763_683_200),
        ('"2025-11-21T00:00:00.250Z"', 1_763_683_200.25),
        ("0", 0),
        ("-0.0", 0),
        ("253402300799", 253_402_300_799),
        ("null", None),
    ],
)
@pytest.mark.usefixtures("tokyo")
def test_a_time_is_seconds_or_iso_8601_and_without_an_offset_utc(ts, seconds):
    """On every machine, whatever its time zone."""
    assert decode(b'{%s,"ts":%s}' % (CORE, ts.encode())).ts == seconds


def test_what_other_programs_write_differently_is_read_as_what_it_means():
    for field, name, read in [
        ('"qid":0', "qid", "0"),
        ('"qid":12345678901234567890123', "qid", "12345678901234567890123"),
        ('"qid":""', "qid", ""),
        ('"q":42', "q", "42"),
        ('"retrieved_ids":[1,"b",{"id":3}]', "retrieved_ids", ["1", "b", "3"]),
        ('"retrieved_ids":[]', "retrieved_ids", []),
        ('"retrieved_ids":null', "retrieved_ids", None),
        ('"answer_json":{"claim":"x","citations":"d1"}', "answer_json", Answer(claim="x")),
        ('"answer_json":{"claim":"x","citations":[true]}', "answer_json", Answer(claim="x", citations=None)),
        ('"answer_json":{"claim":"x","citations":{"0":"d"}}', "answer_json", Answer(claim="x", citations=None)),
        ('"answer_json":{"claim":"x","citations":[1]}', "answer_json", Answer("x", ["d"], [1])),
        ('"answer_json":null', "answer_json", None),
        ('"tags":{"tier":1,"beta":true,"none":null}', "tags", {"tier": "1", "beta": "true"}),
        ('"verdicts":["yes","no",{"verdict":"Yes","reason":"r"},1]', "verdicts", [True, False, True, True]),
        ('"latency_ms":12', "latency_ms", Latency(total=12)),
        ('"latency_ms":{"total":-0.0}', "latency_ms", Latency(total=0)),
        ('"latency_ms":{}', "latency_ms", Latency()),
        ('"scores":[1e308,-1e308]', "scores", [1e308, -1e308]),
        ('"error":{"code":500}', "error", "{'code': 500}"),
        ('"error":false', "error", None),
        ('"probe":true', "source", "probe"),
        ('"probe":false', "source", "live"),
        ('"probe":true,"source":"label"', "source", "label"),
    ]:
        assert getattr(decode(b"{%s,%s}" % (CORE, field.encode())), name) == read, (field, name, read)


@pytest.mark.parametrize("present", [True, False, None])
def test_a_flag_is_itself(present):
    assert as_flag(present, "partial") is present


def test_a_field_keeps_its_value_beside_one_that_must_be_converted():
    """A question id that another program wrote as a number costs no other field of the contract."""
    told = {
        "ended": "cut",
        "matched": "question",
        "parent_span_id": "00f067aa0ba902b7",
        "partial": True,
        "exported": False,
        "session": "s",
        "build": "v1",
        "judge_versions": {"strict": "2"},
        "instrumentation": "Haystack",
    }
    plain, converted = (decode(json.dumps({"v": 1, "qid": qid, "q": "why?", **told}).encode()) for qid in ("5", 5))
    assert converted == plain
    assert {name: getattr(converted, name) for name in told} == told


def test_every_field_of_the_contract_is_known_where_a_line_must_be_converted():
    assert set(Record.__struct_fields__) <= set(AnyShape.__struct_fields__)
