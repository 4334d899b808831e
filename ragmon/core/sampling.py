"""Sampling as OpenTelemetry writes it, and the strata of records that a sampler in front of ragmon kept.

A trace has 56 bits of randomness: the low bits of its id, or explicit ones. A sampler rejects traces below a threshold
(OpenTelemetry, TraceState: Probability Sampling; OTEP 235).

Records that were kept with the same probability are a stratum of their own, a random sample of the calls it stands for.
Its name says of how many calls one was kept, to two digits, so that strata stay few.
"""

from __future__ import annotations

from typing import Final

RANDOM_BITS: Final = 56
SPAN: Final = 1 << RANDOM_BITS
"""The number of values of a trace's randomness."""
_HEX_DIGITS: Final = RANDOM_BITS // 4
_HEX: Final = frozenset("0123456789abcdef")
_ONE_IN: Final = "1 in "


def members(text: str) -> dict[str, str]:
    """The members of OpenTelemetry's entry in a tracestate.

    >>> members("th:c;rv:0123456789abcd")
    {'th': 'c', 'rv': '0123456789abcd'}
    """
    return dict(part.split(":", 1) for part in text.split(";") if ":" in part)


def bits(text: str, *, exact: bool = False) -> int | None:
    """A threshold of up to 14 hex digits, padded with zeros on the right, or randomness of exactly 14; None otherwise.

    >>> bits("8") == 1 << 55, bits("8", exact=True), bits("no")
    (True, None, None)
    """
    is_valid = len(text) == _HEX_DIGITS if exact else 0 < len(text) <= _HEX_DIGITS
    return int(text.ljust(_HEX_DIGITS, "0"), 16) if is_valid and _HEX.issuperset(text) else None


def stratum_of(p: float) -> str:
    """The stratum of records that were kept with a probability.

    >>> stratum_of(0.1), stratum_of(1 / 3), stratum_of(0.0123)
    ('1 in 10', '1 in 3', '1 in 81')
    """
    return f"{_ONE_IN}{float(f'{1 / p:.2g}'):g}"


def calls_per_record(stratum: str) -> float | None:
    """How many calls a record of a stratum stands for; None where the stratum does not say.

    >>> calls_per_record("1 in 10"), calls_per_record("rest"), calls_per_record("1 in 0.5")
    (10.0, None, None)
    """
    if not stratum.startswith(_ONE_IN):
        return None
    try:
        rate = float(stratum.removeprefix(_ONE_IN))
        return rate if 1.0 <= rate <= SPAN and stratum_of(1 / rate) == stratum else None
    except (ValueError, ZeroDivisionError):
        return None
