"""Durations, sizes and addresses: what they mean, how they are printed, what is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from ragmon.config.units import SIZE, TIME, address, duration, size, url


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("8s", 8), ("5m", 300), ("1h", 3600), ("1.5h", 5400), ("7d", 604_800), ("2 w", 1_209_600)],
)
def test_a_duration_is_a_number_of_seconds(text, seconds):
    assert duration(text) == seconds


@pytest.mark.parametrize(("text", "count"), [("1B", 1), ("500MB", 500_000_000), ("5GiB", 5 * 2**30), ("1.5KiB", 1536)])
def test_a_size_is_a_number_of_bytes(text, count):
    assert size(text) == count


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "m",
        "-5m",
        "5 m m",
        "5M",
        "\N{ARABIC-INDIC DIGIT FIVE}m",
        "1e400h",
        "0s",
        "9" * 400 + "h",
        5,
        True,
        None,
    ],
)
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(PydanticCustomError, match="must be a duration"):
        duration(text)


@pytest.mark.parametrize("text", ["", "5", "5G", "5gib", "0B", "0.5B", "9" * 400 + "B", 5, True])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(PydanticCustomError, match="must be a size"):
        size(text)


@given(st.integers(1, 10_000), st.sampled_from(sorted(TIME)))
def test_a_printed_duration_reads_back_as_itself(amount, unit):
    found = duration(f"{amount}{unit}")
    assert duration(str(found)) == pytest.approx(found, rel=1e-12)


@given(st.integers(1, 10_000), st.sampled_from(sorted(SIZE)))
def test_a_printed_size_reads_back_as_itself(amount, unit):
    found = size(f"{amount}{unit}")
    assert size(str(found)) == found


@pytest.mark.parametrize(("value", "text"), [("90m", "90m"), ("60s", "1m"), ("24h", "1d"), ("0.5ms", "0.5ms")])
def test_a_duration_is_printed_in_the_largest_unit_without_a_fraction(value, text):
    assert str(duration(value)) == text


@pytest.mark.parametrize(
    ("text", "host", "port", "loopback"),
    [
        ("127.0.0.1:4318", "127.0.0.1", 4318, True),
        ("127.8.8.8:1", "127.8.8.8", 1, True),
        ("localhost:0", "localhost", 0, True),
        ("[::1]:9", "::1", 9, True),
        ("0.0.0.0:9", "0.0.0.0", 9, False),
        ("[::]:9", "::", 9, False),
        ("ragmon.internal:9", "ragmon.internal", 9, False),
    ],
)
def test_an_address_knows_whether_others_can_connect(text, host, port, loopback):
    found = address(text)
    assert (found.host, found.port, found.is_loopback, str(found)) == (host, port, loopback, text)


@pytest.mark.parametrize(
    "text",
    ["", ":1", "a", "a:", "a:b", "a:-1", "a:65536", "::1:9", "http://a:1", "[]:1", "a:\N{ARABIC-INDIC DIGIT ONE}", 1],
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(PydanticCustomError, match="must be a host and a port"):
        address(text)


@pytest.mark.parametrize("text", ["", "a", "ftp://a", "http://", "http://a:b", "http://[::1", "http://a:99999", 1])
def test_what_is_no_web_address_is_refused(text):
    with pytest.raises(PydanticCustomError, match="must be an http or https address"):
        url(text)
