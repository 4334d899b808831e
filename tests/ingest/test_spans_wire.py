"""Attributes off the wire: read by the layouts of spans before them, they are what protobuf itself reads."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from ragmon.core import semconv
from ragmon.ingest.otlp import attribute_layouts as reading
from ragmon.ingest.otlp.attribute_layouts import IS_READ
from ragmon.ingest.otlp.protobuf import read
from ragmon.ingest.spans import to_record
from ragmon.ingest.spans.values import LISTS, GroupedAttributes, flattened
from tests.support.examples import cases
from tests.support.otlp_requests import export, plain
from tests.support.recorded_spans import made

DOCUMENT = f"{semconv.RETRIEVED}.{{}}.document.{{}}"
KEYS = [
    semconv.INPUT_VALUE,
    semconv.METADATA,
    semconv.VECTOR_TOP_K,
    "http.route",
    *[DOCUMENT.format(place, member) for place in (0, 1, 3) for member in ("id", "score", "content")],
    f"{semconv.RETRIEVED}.x.document.id",
    f"{semconv.LLM_OUTPUT}.0.message.role",
    f"{semconv.ASSOCIATION}.{'long' * 40}",
    "",
]
VALUES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    st.sampled_from(["", "x" * 125, "x" * 126, "x" * 127, "x" * 128, "ä" * 8190, "x" * 16_381]),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.none(),
    st.binary(max_size=3),
    st.lists(st.text("ab", max_size=2) | st.floats(allow_nan=False), max_size=2),
    st.dictionaries(st.text("ab", max_size=2), st.text("ab"), max_size=2),
)


@pytest.fixture(autouse=True)
def nothing_is_known():
    reading._kinds.clear()


def arrived(request):
    """The attributes of the spans in a request."""
    return [one.span().attributes for one in read(request.SerializeToString(), json=False).external]


def assert_same(found, told):
    """Attributes are those that are wanted of what was told, flattened lists apart or not."""
    wanted = {key: value for key, value in told.items() if IS_READ[key]}
    for name in LISTS:
        assert flattened(found, name) == flattened(wanted, name)
    listed = {key for key in wanted if any(flattened({key: 0}, name).size for name in LISTS)}
    assert {key: value for key, value in found.items() if key not in listed} == {
        key: value for key, value in wanted.items() if key not in listed
    }


@pytest.mark.slow
@settings(max_examples=cases(300))
@given(st.permutations(KEYS), st.integers(1, len(KEYS)), st.data())
def test_spans_with_the_same_keys_and_values_of_any_kinds_are_told_apart(order, size, data):
    """The layout of one span is tried on the next; only where keys and kinds are the same does it hold."""
    spans = [made({key: data.draw(VALUES) for key in order[:size]}) for _ in range(4)]
    for found, span in zip(arrived(export(spans)), spans, strict=True):
        assert_same(found, {key: plain(value) for key, value in span.attributes.items()})


@pytest.mark.slow
@given(st.lists(st.sampled_from([1, 0.5, "0.5", None]), min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_scores_that_change_their_kinds_stay_with_their_documents(scores, shuffling):
    spans = []
    for _ in range(3):
        shuffling.shuffle(scores)
        documents = {
            DOCUMENT.format(place, part): value
            for place, score in enumerate(scores)
            for part, value in (("id", f"d{place}"), ("score", score))
        }
        spans.append(made({semconv.SPAN_KIND: semconv.RETRIEVER, **documents}))
    for one, span in zip(read(export(spans).SerializeToString(), json=False).external, spans, strict=True):
        assert to_record([one.span()]) == to_record([span])


def test_a_layout_is_found_out_once():
    spans = [
        made({semconv.INPUT_VALUE: f"Is it {number}?", DOCUMENT.format(0, "score"): number / 2}) for number in range(9)
    ]
    request = export(spans)
    for attributes, span in zip(arrived(request), spans, strict=True):
        assert isinstance(attributes, GroupedAttributes)
        assert_same(attributes, span.attributes)
    (recent,) = reading._kinds.values()
    assert len(recent._layouts) == 1


def test_layouts_without_end_do_not_fill_the_memory():
    """Another order in every span, other numbers of attributes, other instrumentations."""
    shuffling = random.Random(5)
    names = [f"{semconv.ASSOCIATION}.{number}" for number in range(9)]
    for number in range(3 * reading.MAX_KEPT_KINDS):
        shuffling.shuffle(names)
        told = dict.fromkeys(names[: 1 + number % 9], "x")
        (found,) = arrived(export([made(told, scope=f"scope {number % 400}")]))
        assert_same(found, told)
    assert len(reading._kinds) <= reading.MAX_KEPT_KINDS
    assert all(len(recent._layouts) <= reading.MAX_LAYOUTS for recent in reading._kinds.values())


def test_spans_that_never_look_alike_are_read_without_learning_and_right():
    shuffling = random.Random(5)
    names = [f"{semconv.ASSOCIATION}.{number}" for number in range(9)]
    spans = []
    for number in range(2 * reading.SKIPPED_SPANS):
        shuffling.shuffle(names)
        spans.append(made({name: f"{name} {number}" for name in names}))
    found = arrived(export(spans))
    for attributes, span in zip(found, spans, strict=True):
        assert_same(attributes, span.attributes)
    learnt = sum(isinstance(attributes, GroupedAttributes) for attributes in found)
    assert reading.MAX_MISSES < learnt < reading.SKIPPED_SPANS


def length(number):
    return bytes([number]) if number < 0x80 else bytes([number % 0x80 + 0x80, number // 0x80])


def padded(number):
    """A length in one byte more than it takes."""
    return bytes([number % 0x80 + 0x80, number // 0x80])


def field(number, value, size=length):
    return bytes([number * 8 + 2]) + size(len(value)) + value


KEY = field(1, semconv.METADATA.encode())
TEXT = field(1, b"said")
ODD = {
    "nothing": b"",
    "no value": KEY,
    "an empty value": KEY + field(2, b""),
    "no key": field(2, TEXT),
    "the value before the key": field(2, TEXT) + KEY,
    "long lengths": field(1, semconv.METADATA.encode(), padded) + field(2, field(1, b"said", padded), padded),
    "a long length of a text": KEY + field(2, field(1, b"said", padded)),
    "a long length of a double": KEY + field(2, b"\x21" + bytes(7) + b"\x40", padded),
    "a field of later versions": KEY + field(2, TEXT) + field(9, b"new"),
    "a double": KEY + field(2, b"\x21" + bytes(7) + b"\x40"),
}


@pytest.mark.parametrize("first", ODD)
@pytest.mark.parametrize("second", ODD)
def test_attributes_written_as_the_protocol_allows_and_no_exporter_does(first, second):
    """Each comes alone first, beside a text and a double, and then as the other one beside the same."""
    usual = [
        KeyValue(key=semconv.INPUT_VALUE, value={"string_value": "Is it?"}).SerializeToString(),
        KeyValue(key=DOCUMENT.format(0, "score"), value={"double_value": 0.5}).SerializeToString(),
    ]
    for odd in (ODD[first], ODD[second]):
        ids = field(1, b"t" * 16) + field(2, b"s" * 8)
        span = ids + b"".join(field(9, pair) for pair in (*usual, odd))
        body = field(1, field(2, field(2, span)))
        (one,) = read(body, json=False).external
        (told,) = TracesData.FromString(body).resource_spans[0].scope_spans[0].spans
        assert_same(one.span().attributes, reading.one_by_one(told))
