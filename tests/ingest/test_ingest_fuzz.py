"""Whatever bytes arrive: nothing is raised, and everything read is a record or a counted reason."""

from __future__ import annotations

import io
import json
import random
import re
import string

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ragmon.core import constants
from ragmon.core.record import Record, Totals, encode
from ragmon.ingest.files import ReadSummary, read_file
from ragmon.ingest.lines import AnyShape, Rejected, decode
from ragmon.scoring.scorer import Scorer
from tests.support.examples import cases
from tests.support.saved import saved
from tests.support.trace_files import GOLD, NOON, good

REASONS = {
    constants.MALFORMED_JSON,
    constants.INVALID_UTF8,
    constants.INVALID_SCHEMA,
    constants.NON_FINITE,
    constants.DEPTH,
    constants.OVERSIZE,
    constants.TRUNCATED,
}
LIVE = json.dumps(
    {
        "qid": "q1",
        "question": "Question 1?",
        "retrieval": {"topk": [{"id": "d1", "score": 0.8, "text": "one"}], "index_hash": "i1"},
        "answer": {"citations": [{"id": "d1", "offsets": [0, 9]}]},
        "perf": {"t_retrieve_ms": 5, "t_reason_ms": 6},
        "context": {"client": "web", "build": "b1", "region": "eu"},
        "verdicts": ["yes", {"verdict": "no"}],
        "sampling": {"audit": True, "stratum": "rest", "p_audit": 0.5, "p": 1},
        "tags": {"lang": "de"},
        "ts": "2025-11-21T00:00:00Z",
    }
).encode()
EXAMPLE = (
    b'{"q":"Question 2?","chunks":[{"id":"d1"}],"answer":"x citations: [d1]","ok":true,"probe":false,"latency_ms":5}'
)
TOTALS = encode(Totals(ts=NOON, instance="i", started=NOON, pipeline="p", source="live", dropped={"x": 1}))
SEEDS = (good().strip(), LIVE, EXAMPLE, TOTALS.strip(), b"301 Q0 d1 1 0.5 tag")

numbers = st.one_of(
    st.integers(),
    st.integers(4295, 4300).map(lambda digits: 10**digits - 1),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0, -0.0, 1e308, -1e308, 2**53, 2**63, 2**64, 10**400, 253402300800.0]),
)
text = st.text(max_size=8) | st.sampled_from(
    ["\ud800", "d1", "q1", "", "not in context", "2025-11-21", "NaN", "totals"]
)
values = st.recursive(
    st.none() | st.booleans() | numbers | text,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(("id", "text", "score", "total", "claim", "citations", "topk", "p")), inner)
    ),
    max_leaves=6,
)
shapes = st.dictionaries(st.sampled_from((*AnyShape.__struct_fields__, "unknown")), values, max_size=6)


def dump(value):
    """JSON as Python writes it: with NaN, Infinity and lone surrogates."""
    return json.dumps(value).encode()


@st.composite
def mutated(draw):
    """A good line with a few bytes cut out, overwritten, repeated or put in."""
    line = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(line)))
        end = draw(st.integers(start, min(len(line), start + 12)))
        line = line[:start] + draw(st.binary(max_size=4) | st.just(line[start:end] * 2)) + line[end:]
    return line


chunks = st.one_of(
    st.binary(max_size=60),
    mutated(),
    shapes.map(dump),
    values.map(dump),
    st.sampled_from([*SEEDS, b"", b" ", b"\xef\xbb\xbf", b"\xff\xfe", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"\x00"]),
)


def decoded(line):
    """The record of a line; None where it is rejected for one of the known reasons."""
    try:
        return decode(line)
    except Rejected as error:
        rejected = error
    assert rejected.reason in REASONS
    assert str(rejected)
    return None


def take(content, monkeypatch):
    """What a reader of standard input makes of some bytes."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    intake = ReadSummary()
    return list(read_file("-", intake)), intake


@pytest.mark.slow
@settings(max_examples=cases(400), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(chunks, min_size=1, max_size=6).map(b"\n".join).filter(lambda content: content[:2] != b"\xff\xfe"))
@example(b'\x80{"kind":"totals","v":1,"source":"live","stratum":"rest","calls":0}')
def test_any_bytes_become_records_or_counted_reasons(monkeypatch, content):
    """Only a file that is UTF-16 as a whole is refused, and that by its own name."""
    if content.startswith(b"\xfe\xff"):
        return
    records, intake = take(content, monkeypatch)
    assert intake.read == len(records) + intake.rejections
    assert set(intake.rejected) <= REASONS
    assert all(str(example).isprintable() for example in intake.examples)


@pytest.mark.slow
@settings(max_examples=cases(500))
@given(shapes | st.builds(lambda good, odd: good | odd, st.sampled_from(SEEDS[:3]).map(json.loads), shapes))
def test_any_json_in_any_known_field_decodes_to_sound_records_or_a_reason(value):
    """A record that is let in can be written, read back to itself, and scored into a digest."""
    record = decoded(dump(value))
    if record is None:
        return
    again = decode(encode(record))
    if not isinstance(record, Record):
        assert again == record
        return
    scorer = Scorer(GOLD)
    assert scorer.observe(record)
    twin = Scorer(GOLD)
    assert twin.observe(again)
    assert scorer.state.digest() == twin.state.digest()
    assert saved(scorer.state) == scorer.state  # so it holds no NaN


@pytest.mark.slow
@settings(max_examples=cases(500))
@given(mutated())
def test_a_damaged_line_is_a_record_or_has_a_reason(line):
    decoded(line)


@pytest.mark.slow
def test_a_hundred_thousand_mixed_up_lines_are_records_or_have_a_reason():
    """More than hypothesis gets through in the time: pieces of all shapes put together at random, from a fixed seed."""
    chance = random.Random(20_251_121)
    pieces = [piece for seed in SEEDS for piece in re.split(rb"(?<=[,:{}\[\]])", seed)]
    for _ in range(100_000):
        line = chance.choice(SEEDS)
        for _ in range(chance.randint(1, 3)):
            start, length = chance.randint(0, len(line)), chance.randint(0, 9)
            new = chance.choice((chance.choice(pieces), chance.randbytes(2), line[start : start + 40]))
            line = line[:start] + new + line[start + length :]
        decoded(line)


@pytest.mark.slow
@settings(max_examples=cases(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(chunks.filter(lambda line: b"\n" not in line), max_size=5), st.integers(1, 4))
def test_bad_lines_never_take_a_good_one_with_them(monkeypatch, bad, every):
    """A good line between any two bad ones is read every time."""
    content = good(1) + b"".join(line + b"\n" + good(1) * every for line in bad)
    records, intake = take(content, monkeypatch)
    sound = sum(record == decode(good(1)) for record in records if isinstance(record, Record))
    assert sound >= 1 + every * len(bad)
    assert intake.read == len(records) + intake.rejections


def test_any_character_in_a_text_is_kept():
    for char in string.printable + "\u2028\u00e9\U0001f600":
        line = json.dumps({"qid": char, "q": char, "answer_json": {"claim": char}}, ensure_ascii=False).encode()
        record = decode(line)
        assert (record.qid, record.q, record.answer_json.claim) == (char, char, char), char
