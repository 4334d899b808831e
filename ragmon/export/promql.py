"""PromQL for rules and dashboards: matchers, selectors, bounds, and queries over several replicas.

Ratios are never averaged. A value of a window is weighted with its number of requests, and its interval is computed
from the squared distances to the bounds, which is exact for one replica. Counters are summed, then divided.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ragmon.core import series_names
from ragmon.core.series_names import label

_SPECIAL: Final = re.compile(r"[\\.+*?()|\[\]{}^$]")
"""Characters with a meaning in Prometheus' regular expressions."""


def quoted(text: str) -> str:
    """A PromQL string literal; PromQL knows all of JSON's escapes."""
    return json.dumps(text, ensure_ascii=False)


def equals(name: str, value: str) -> str:
    r"""A matcher for one value.

    >>> print(equals("gate", 'a "b"'))
    gate="a \"b\""
    """
    return f"{name}={quoted(label(value))}"


def one_of(name: str, values: Iterable[str], *, others: bool = False) -> str:
    r"""A matcher for several values, or for all others.

    >>> print(one_of("gate", ["a", "b.c"]))
    gate=~"a|b\\.c"
    """
    pattern = "|".join(_SPECIAL.sub(r"\\\g<0>", label(value)) for value in values)
    return f"{name}{'!~' if others else '=~'}{quoted(pattern)}"


Z95: Final = 1.96
Z999: Final = 3.29
Z9999: Final = 3.89
"""Normal quantiles of 95 %, 99.9 % and 99.99 % intervals."""


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
    """A number with all its digits, as the exporter writes it, because rules compare it for equality.

    >>> exact(1.0), exact(0.333333333333)
    ('1', '0.333333333333')
    """
    return repr(float(value)).removesuffix(".0")


def increase(series: str, window: str, by: str = "") -> str:
    """The increase of a counter, summed over replicas and all labels but the ones to keep.

    >>> increase("a_total", "6h"), increase("a_total", "6h", "pipeline")
    ('sum(increase(a_total[6h]))', 'sum by (pipeline) (increase(a_total[6h]))')
    """
    return f"sum{f' by ({by}) ' if by else ''}(increase({series}[{window}]))"


def wilson(ratio: str, samples: str, z: float, *, upper: bool = False) -> str:
    """A bound of the Wilson interval of a share (Wilson 1927).

    Args:
        ratio: The share.
        samples: The number of observations.
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


PIPELINE: Final = 'pipeline=~"$pipeline"'
SOURCE: Final = 'source=~"$source"'
WINDOW: Final = 'window="$window"'
EVERY: Final = "$__rate_interval"
SHOWN: Final = "$__range"
FIRES: Final = 'ALERTS{alertname=~"Ragmon.*",alertname!="RagmonWatchdog",alertstate="firing"}'
"""Firing alerts of ragmon's rules. Their labels come from the rules, so job and instance are not matched."""
_TARGET: Final = ('job=~"$job"', 'instance=~"$instance"')


def at(name: str, *matchers: str) -> str:
    """A selector for the jobs and instances chosen in the dashboard.

    >>> at("ragmon_series")
    'ragmon_series{job=~"$job",instance=~"$instance"}'
    """
    return f"{name}{{{','.join((*_TARGET, *matchers))}}}"


class EstimateQuery(NamedTuple):
    """The queries of a value, its bounds and its sample count over replicas.

    Attributes:
        value, lower, upper: Expressions.
        samples: The number of requests in the value.
    """

    value: str
    lower: str
    upper: str
    samples: str


def pooled(series: tuple[str, str, str, str], by: str, *matchers: str) -> EstimateQuery:
    """A value over all replicas.

    Args:
        series: The names of value, lower bound, upper bound and samples.
        by: The labels to keep.
        matchers: Which series.
    """
    value, lower, upper, samples = (at(name, *matchers) for name in series)
    total = f"sum by ({by}) ({samples})"
    mean = f"sum by ({by}) ({value} * {samples}) / {total}"

    def distance(bound: str) -> str:
        return f"sqrt(sum by ({by}) (({samples} * ({value} - {bound})) ^ 2)) / {total}"

    return EstimateQuery(mean, f"{mean} - {distance(lower)}", f"{mean} + {distance(upper)}", total)


def windowed(metric: str) -> tuple[str, str, str, str]:
    """The names of a metric's series over windows: value, bounds and samples."""
    name = f"{series_names.PREFIX}{metric}"
    return name, f"{name}{series_names.LOWER}", f"{name}{series_names.UPPER}", f"{name}{series_names.SAMPLES}"


GATE: Final = (series_names.GATE_VALUE, series_names.GATE_LOWER, series_names.GATE_UPPER, series_names.GATE_SAMPLES)
"""The names of a gate's series: value, bounds and samples."""


def worst(name: str, by: str, *matchers: str) -> str:
    """The largest value over replicas."""
    return f"max by ({by}) ({at(name, *matchers)})"


def rate(name: str, by: str, *matchers: str) -> str:
    """The increase of a counter per second, summed over replicas; `by=""` sums over all labels."""
    return f"sum{f' by ({by})' if by else ''} (rate({at(name, *matchers)}[{EVERY}]))"


def per_minute(name: str, by: str, *matchers: str) -> str:
    """The increase of a counter per minute, for rare events."""
    return f"60 * {rate(name, by, *matchers)}"


def increase_in_range(name: str, by: str, *matchers: str) -> str:
    """The increase of a counter over the dashboard's time range, summed over replicas."""
    return f"sum by ({by}) (increase({at(name, *matchers)}[{SHOWN}]))"


def quantile(q: float, histogram: str, by: str, *matchers: str) -> str:
    """A quantile of a histogram, over replicas."""
    return f"histogram_quantile({q}, {rate(f'{histogram}_bucket', f'le, {by}', *matchers)})"


def status(*matchers: str) -> str:
    """A gate's verdict over replicas: 2 if one fails, else 0 if one passes, else 1."""
    failed = worst(series_names.GATE_STATUS, "pipeline, gate", *matchers, equals("status", "fail"))
    unknown = at(series_names.GATE_STATUS, *matchers, equals("status", "insufficient"))
    return f"2 * {failed} > 0 or min by (pipeline, gate) ({unknown})"


def of_gate(expression: str) -> str:
    """The largest value over all alarms of a gate: `answer_precision:look` belongs to `answer_precision`.

    The part before the colon is first written into a label of its own, so that two alarms do not become one series.
    """
    with_gate = f'max by (pipeline, of) (label_replace({expression}, "of", "$1", "gate", "([^:]+).*"))'
    return f'max by (pipeline, gate) (label_replace({with_gate}, "gate", "$1", "of", "(.+)"))'
