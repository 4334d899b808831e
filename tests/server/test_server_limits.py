"""What a request may cost: inflated bodies, and what a door holds at once."""

from __future__ import annotations

import asyncio
import gzip
import random
import subprocess
import sys
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.core.http_server import HTTPError, RequestLimits
from ragmon.ingest import receiver as limits
from ragmon.ingest.receiver import MemoryLimiter, encodings, inflate

MIB = 1 << 20


def compressed(data, encoding):
    if encoding == "gzip":
        return gzip.compress(data, compresslevel=1)
    zstandard = pytest.importorskip("zstandard")
    return zstandard.ZstdCompressor().compress(data)


def refused(body, encoding="gzip", **how):
    with pytest.raises(HTTPError) as caught:
        inflate(body, encoding, RequestLimits(**how))
    return caught.value.status, caught.value.reason


@pytest.mark.parametrize("encoding", encodings())
@given(data=st.binary(max_size=5000), times=st.integers(1, 50))
def test_what_is_compressed_comes_out_again(encoding, data, times):
    assert inflate(compressed(data * times, encoding), encoding) == data * times


@given(body=st.binary(max_size=300), encoding=st.sampled_from(encodings()), most=st.integers(0, 100))
def test_whatever_is_sent_never_more_comes_out_than_may(body, encoding, most):
    with suppress(HTTPError):
        assert len(inflate(body, encoding, RequestLimits(inflated=most))) <= most


@given(data=st.binary(min_size=1, max_size=2000), cut=st.integers(1, 20), encoding=st.sampled_from(encodings()))
def test_a_body_that_breaks_off_is_refused(data, cut, encoding):
    """An independent reader says where it does: what it finds no end to, is none."""
    body = compressed(data, encoding)[:-cut]
    if body:
        assert refused(body, encoding) == (400, "truncated")


@pytest.mark.parametrize("encoding", encodings())
@pytest.mark.parametrize("beyond", [0, 1])
def test_a_body_may_have_exactly_as_much_as_it_may(encoding, beyond):
    body = compressed(bytes(1000 + beyond), encoding)
    if beyond:
        assert refused(body, encoding, inflated=1000) == (413, "decompress_limit")
    else:
        assert len(inflate(body, encoding, RequestLimits(inflated=1000))) == 1000


def test_a_ratio_is_looked_at_once_the_free_amount_is_used_up():
    small, large = gzip.compress(bytes(MIB)), gzip.compress(bytes(MIB + 1))
    assert 500 * len(small) < MIB
    assert len(inflate(small, "gzip")) == MIB
    assert refused(large) == (413, "decompress_limit")


@pytest.mark.parametrize("encoding", encodings())
def test_an_agents_spans_that_repeat_a_long_prompt_are_taken(encoding):
    """With zstd they shrink to less than a two-hundredth: its window holds a whole prompt."""
    draw = random.Random(7)
    prompt = " ".join(draw.choices(("you", "answer", "with", "a", "citation", "or", "not"), k=24_000)).encode()
    spans = b"".join(draw.randbytes(200) + prompt for _ in range(128))
    body = compressed(spans, encoding)
    assert encoding == "gzip" or len(spans) > 200 * len(body)
    assert inflate(body, encoding) == spans


def test_bodies_inside_a_body_are_not_inflated():
    """A second encoding is not declared, so what is inside is handed over as it is."""
    twice = gzip.compress(gzip.compress(b"spans"))
    assert gzip.decompress(inflate(twice, "gzip")) == b"spans"


@pytest.mark.parametrize("encoding", encodings())
def test_hundreds_of_thousands_of_empty_members_are_not_read_to_the_end(encoding):
    """They inflate to nothing, which no limit on the result would ever notice."""
    member = compressed(b"", encoding)
    assert refused(member * (8 * MIB // len(member)), encoding) == (413, "decompress_limit")


def test_bodies_that_cannot_be_made_smaller_are_inflated_all_the_same():
    noise = random.Random(7).randbytes(2 * MIB)
    assert inflate(gzip.compress(noise), "gzip") == noise


@pytest.mark.slow
def test_a_bomb_is_refused_in_little_memory():
    """In a process of its own, whose peak nothing else raises: 256 MiB of zeros, a thousand to one."""
    script = """
import gzip, resource, sys, zlib
from ragmon.ingest.receiver import inflate
from ragmon.core.http_server import HTTPError
squeezer = zlib.compressobj(9, zlib.DEFLATED, 31)
bomb = b"".join(squeezer.compress(bytes(1 << 20)) for _ in range(256)) + squeezer.flush()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    inflate(bomb, "gzip")
except HTTPError as error:
    print(error.status, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    status, kilobytes = map(int, done.stdout.split())
    assert status == 413
    assert kilobytes << 10 < 64 * MIB


def test_zstd_is_offered_where_it_is_installed(monkeypatch):
    monkeypatch.setattr(limits, "find_spec", lambda _: None)
    assert encodings() == ("gzip",)
    monkeypatch.setattr(limits, "find_spec", lambda name: name)
    assert encodings() == ("gzip", "zstd")


def test_a_full_house_takes_nobody_until_somebody_has_gone():
    intake = MemoryLimiter(RequestLimits(in_flight=2))
    with intake.ticket() as first, intake.ticket() as second, intake.ticket() as third:
        first.begin()
        second.begin()
        with pytest.raises(HTTPError) as caught:
            third.begin()
        assert (caught.value.status, caught.value.retry_after) == (429, 1.0)
        with pytest.raises(HTTPError):
            intake.ticket()
    assert intake.in_flight == 0
    intake.ticket()


def test_bytes_of_all_bodies_are_counted_together_and_given_back():
    intake = MemoryLimiter(RequestLimits(memory=100, small=0))
    with intake.ticket() as first, intake.ticket() as second:
        first.reserve(60)
        second.reserve(40)
        with pytest.raises(HTTPError):
            second.reserve(1)
        first.reserve(-10)
        second.reserve(10)
    assert intake.reserved == 0


def test_an_inflated_body_counts_with_its_size():
    async def run():
        intake = MemoryLimiter(RequestLimits(memory=1000, small=0))
        body = gzip.compress(bytes(900))
        with intake.ticket() as ticket:
            ticket.reserve(len(body))
            assert await intake.inflated(ticket, body, "gzip") == bytes(900)
            assert intake.reserved == 900
            large = gzip.compress(bytes(101))
            with intake.ticket() as other:
                other.reserve(len(large))
                with pytest.raises(HTTPError):
                    await intake.inflated(other, large, "gzip")
        assert intake.reserved == 0

    asyncio.run(run())
