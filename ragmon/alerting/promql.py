"""Parts of PromQL expressions: selectors, sums of counters, bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ragmon.promql import quoted

Z95: Final = 1.96
Z999: Final = 3.29
"""Normal quantiles of 95 % and 99.9 % intervals."""


def selector(name: str, matchers: Mapping[str, str] | None = None, *more: str) -> str:
    r"""A series selector.

    Args:
        name: The series.
        matchers: Labels and the values they must have.
        more: Further matchers as PromQL.

    >>> selector("up", {"job": "ragmon"}), selector("up", {"job": 'a"b'}, 'gold!=""')
    ('up{job="ragmon"}', 'up{job="a\\"b",gold!=""}')
    """
    parts = [f"{label}={quoted(value)}" for label, value in (matchers or {}).items()] + list(more)
    return f"{name}{{{','.join(parts)}}}" if parts else name


def exact(value: float) -> str:
    """A number with all its digits, as the exporter writes it: it is compared for equality.

    >>> exact(1.0), exact(0.333333333333)
    ('1', '0.333333333333')
    """
    return repr(float(value)).removesuffix(".0")


def increase(series: str, window: str) -> str:
    """What a counter grew by over all replicas.

    >>> increase("a_total", "6h")
    'sum(increase(a_total[6h]))'
    """
    return f"sum(increase({series}[{window}]))"


def wilson(ratio: str, samples: str, z: float, *, upper: bool = False) -> str:
    """A bound of the Wilson interval of a share (Wilson 1927).

    Args:
        ratio: The share.
        samples: Of how many.
        z: The normal quantile of the interval.
        upper: The upper bound; else the lower one.
    """
    sign = "+" if upper else "-"
    square = z * z
    return (
        f"(\n"
        f"  {ratio} + {square / 2:.10g} / {samples}\n"
        f"  {sign} {z:g} * sqrt({ratio} * (1 - {ratio}) / {samples} + {square / 4:.10g} / {samples} ^ 2)\n"
        f") / (1 + {square:.10g} / {samples})"
    )
