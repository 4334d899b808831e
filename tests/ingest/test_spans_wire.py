"""Attributes off the wire are those that were told, whatever their kinds and however they are written."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from ragmon.core import semconv
from ragmon.ingest.otlp import IS_READ, read
from ragmon.ingest.spans.mapper import to_record
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


def arrived(request):
    """The attributes of the spans in a request."""
    return [one.span().attributes for one in read(request.SerializeToString(), json=False).external]


def read_of(told):
    """The attributes that are wanted of what was told."""
    return {key: value for key, value in told.items() if IS_READ[key]}


@pytest.mark.slow
@settings(max_examples=cases(300))
@given(st.permutations(KEYS), st.integers(1, len(KEYS)), st.data())
def test_spans_with_the_same_keys_and_values_of_any_kinds_are_told_apart(order, size, data):
    spans = [made({key: data.draw(VALUES) for key in order[:size]}) for _ in range(4)]
    for found, span in zip(arrived(export(spans)), spans, strict=True):
        assert found == read_of({key: plain(value) for key, value in span.attributes.items()})


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


@pytest.mark.parametrize("odd", ODD)
def test_attributes_written_as_the_protocol_allows_and_no_exporter_does(odd):
    """Each comes beside a text and a double."""
    usual = [
        KeyValue(key=semconv.INPUT_VALUE, value={"string_value": "Is it?"}).SerializeToString(),
        KeyValue(key=DOCUMENT.format(0, "score"), value={"double_value": 0.5}).SerializeToString(),
    ]
    ids = field(1, b"t" * 16) + field(2, b"s" * 8)
    span = ids + b"".join(field(9, pair) for pair in (*usual, ODD[odd]))
    (one,) = read(field(1, field(2, field(2, span))), json=False).external
    pair = KeyValue.FromString(ODD[odd])
    kind = pair.value.WhichOneof("value")
    value = None if kind is None else getattr(pair.value, kind)
    told = {semconv.INPUT_VALUE: "Is it?", DOCUMENT.format(0, "score"): 0.5, pair.key: value}
    assert one.span().attributes == read_of(told)
