"""OTLP in protobuf is read with the native core as plain Python reads it, whatever arrives."""

from __future__ import annotations

import time

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from ragmon.ingest.otlp import batch, protobuf
from ragmon.ingest.otlp.batch import SPANS, exceeds_limits
from tests.support.native_core import needs_native
from tests.support.otlp_fuzz import ROUND, bodies, body_of, decoded, differs, fuzz, limit
from tests.support.otlp_requests import put

pytestmark = needs_native


@pytest.mark.parametrize("place", range(len(bodies())))
def test_what_real_instrumentations_send_is_read_alike(place):
    assert differs(bodies()[place]) is None


@pytest.mark.parametrize("seed", range(4))
def test_damaged_bodies_are_read_alike(seed):
    assert [one for one in range(seed * ROUND, (seed + 1) * ROUND) if differs(body_of(one))] == []


@pytest.mark.slow
def test_a_minute_of_fuzzing_finds_no_difference():
    """`make fuzz` goes on for longer; `body_of` makes the body of the seed that it names."""
    count, seed = fuzz(60, int(time.time()) * 1000)
    assert seed is None, f"seed {seed}, after {count} bodies: {differs(body_of(seed))}"


def test_the_bodies_hold_what_the_paths_could_differ_in():
    """Records, spans of others, malformed spans and requests are all among them."""
    said = [decoded(body_of(seed)) for seed in range(ROUND)]
    assert any(one[0] and isinstance(one[0], list) for one in said), "records"
    assert any(one[1].startswith("[(") for one in said), "spans of others"
    assert any(isinstance(one[0], int) for one in said), "requests that cannot be read"
    assert any(one[0] != 400 and one[2].dropped for one in said), "spans that cannot be read"


def test_the_core_counts_where_it_is_there(monkeypatch):
    """Python's own count is not asked then."""
    monkeypatch.setattr(batch, "_scanned", None)
    with limit(3):
        assert not exceeds_limits(b"\x0a\x04\x12\x02\x12\x00", SPANS, json=False)
        assert exceeds_limits(b"\x0a\x00" * 4, SPANS, json=False)


@pytest.mark.parametrize("place", range(len(bodies())))
def test_what_real_instrumentations_send_is_plain(place, monkeypatch):
    """Python's own reading is not asked then."""
    monkeypatch.setattr(protobuf, "read_in_python", None)
    assert protobuf.read(bodies()[place], json=False).spans


def test_a_request_of_more_spans_than_there_is_room_for_at_first_is_read_alike():
    request = TracesData()
    scope = request.resource_spans.add().scope_spans.add()
    for number in range(1, 3000):
        scope.spans.add(trace_id=number.to_bytes(16, "big"), span_id=number.to_bytes(8, "big"))
    body = request.SerializeToString()
    assert len(protobuf.read(body, json=False).external) == 2999
    assert differs(body) is None


def test_scopes_and_processes_are_told_apart():
    """Each span has the service of its process and the name of its scope, also where scopes come twice."""
    request = TracesData()
    for number in range(1, 7):
        process = request.resource_spans.add()
        put(process.resource.attributes, {batch.SERVICE: f"shop {number // 2}"} if number % 3 else {})
        for name in ("first", "", "ragmon", "first"):
            scope = process.scope_spans.add()
            scope.scope.name = name
            scope.spans.add(trace_id=bytes([number]) * 16, span_id=bytes([len(process.scope_spans)]) * 8)
    body = request.SerializeToString()
    assert {span.service for span in protobuf.read(body, json=False).external} == {None, "shop 0", "shop 1", "shop 2"}
    assert differs(body) is None
