"""PromQL for rules and dashboards: matchers, selectors, bounds, and queries over several replicas.

Ratios are never averaged. A value of a window is weighted with its number of requests, and its interval follows from
those of the replicas, exactly for one replica. Counters are summed, then divided.
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


def graded(ratio: str, spread: str, samples: str, z: float, *, upper: bool = False) -> str:
    """A bound of the interval of a mean of graded scores, as `ragmon.stats.graded` has it.

    Args:
        ratio: The mean.
        spread: The variance of the scores, as a part of the variance a share with this mean has; above 0, at most 1.
        samples: The number of observations.
        z: The normal quantile of the interval.
        upper: The upper bound; else the lower one.
    """
    share = f"{ratio} * (1 - {ratio})"
    more_data = _score_bound(ratio, f"({z * z:.10g} * {spread} / {samples})", share, upper=upper)
    less_variance = _score_bound(ratio, f"({z * z:.10g} / {samples})", f"{spread} * {share}", upper=upper)
    return f"(\n  {more_data}\n  {'>' if upper else '<'} {less_variance}\n)\nor {less_variance}"


def _score_bound(ratio: str, noise: str, variance: str, *, upper: bool) -> str:
    """Wilson's bound: `noise` is the squared quantile per observation, `variance` that of one observation."""
    half = f"sqrt({noise} * {variance} + {noise} ^ 2 / 4)"
    return f"(({ratio} + {noise} / 2 {'+' if upper else '-'} {half}) / (1 + {noise}))"


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


class ReplicaSeries(NamedTuple):
    """The series of an estimate, or expressions of them, one for each replica.

    Attributes:
        value, lower, upper: The value and its bounds.
        samples: The number of requests in the value.
        unknown: The number of requests beside them whose score is unknown; "" where no series tells.
    """

    value: str
    lower: str
    upper: str
    samples: str
    unknown: str = ""


def bounds_over_replicas(series: ReplicaSeries, by: str) -> tuple[str, str]:
    """The bounds of a value over all replicas.

    What is unknown adds up as counts do: the lower bound takes it as 0 and the upper bound as 1 (Manski, Am. Econ. Rev.
    80, 1990), whatever the number of replicas. What is left of the distances to the replicas' own bounds is sampling
    error: it is squared and added, as for strata (MOVER: Zou and Donner, Stat. Med. 27, 2008). For one replica the
    bounds are its own.

    Args:
        series: The series, or expressions of them.
        by: The labels to keep.

    Returns:
        Expressions of the lower and the upper bound.
    """
    value, lower, upper, samples, unknown = series
    total = f"({samples} + ({unknown} or 0 * {samples}))" if unknown else samples
    below = _worst_case(f"{samples} * {value}", f"{total} * {lower}", total, by)
    above = _worst_case(f"{samples} * (1 - {value})", f"{total} * (1 - {upper})", total, by)
    return below, f"1 - {above}"


def correlated_over_replicas(series: ReplicaSeries, by: str) -> tuple[str, str]:
    """The bounds of a value over replicas that asked the same questions, so that their errors are the same.

    Such errors do not average out: the distance to a bound is the mean of those of the replicas.

    Args:
        series: The series, or expressions of them.
        by: The labels to keep.

    Returns:
        Expressions of the lower and the upper bound.
    """
    samples, unknown = series.samples, series.unknown
    total = f"({samples} + ({unknown} or 0 * {samples}))" if unknown else samples
    lower, upper = (
        f"sum by ({by}) ({total} * {bound}) / (sum by ({by}) ({total}) > 0)" for bound in (series.lower, series.upper)
    )
    return lower, upper


def _worst_case(scores: str, bound: str, total: str, by: str) -> str:
    """A lower bound over replicas, from each one's sum of known scores and the sum at its own lower bound."""
    # A weighted value is only near the mean of its scores, and may lie below its own bound by rounding.
    least = f"({scores} > {bound} or {bound})"
    return (
        f"(\n"
        f"  sum by ({by}) ({least})\n"
        f"  - sqrt(sum by ({by}) (({least} - {bound}) ^ 2))\n"
        f") / (sum by ({by}) ({total}) > 0)"
    )


def pooled(series: ReplicaSeries, by: str, *matchers: str) -> EstimateQuery:
    """A value over all replicas.

    Args:
        series: The names of the series.
        by: The labels to keep.
        matchers: Which series.
    """
    chosen = ReplicaSeries(*(at(name, *matchers) if name else "" for name in series))
    total = f"sum by ({by}) ({chosen.samples})"
    mean = f"sum by ({by}) ({chosen.value} * {chosen.samples}) / {total}"
    return EstimateQuery(mean, *bounds_over_replicas(chosen, by), total)


def windowed(metric: str) -> ReplicaSeries:
    """The names of a metric's series over windows."""
    name = f"{series_names.PREFIX}{metric}"
    endings = (series_names.VALUE, series_names.LOWER, series_names.UPPER, series_names.SAMPLES)
    return ReplicaSeries(*(f"{name}{ending}" for ending in endings))


GATE: Final = ReplicaSeries(
    series_names.GATE_VALUE,
    series_names.GATE_LOWER,
    series_names.GATE_UPPER,
    series_names.GATE_SAMPLES,
    series_names.GATE_UNKNOWN,
)
"""The names of a gate's series."""


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
    """A gate's verdict over replicas: 2 if one fails, else 0 if one passes, else 1.

    A gate that does not apply to its pipeline has no verdict: all of its statuses are 0.
    """
    failed = worst(series_names.GATE_STATUS, "pipeline, gate", *matchers, equals("status", "fail"))
    passed = worst(series_names.GATE_STATUS, "pipeline, gate", *matchers, equals("status", "pass"))
    unknown = worst(series_names.GATE_STATUS, "pipeline, gate", *matchers, equals("status", "insufficient"))
    return f"2 * {failed} > 0 or 0 * ({passed} > 0) or {unknown} > 0"


def of_gate(expression: str) -> str:
    """The largest value over all alarms of a gate: `answer_precision:look` belongs to `answer_precision`.

    The part before the colon is first written into a label of its own, so that two alarms do not become one series.
    """
    with_gate = f'max by (pipeline, of) (label_replace({expression}, "of", "$1", "gate", "([^:]+).*"))'
    return f'max by (pipeline, gate) (label_replace({with_gate}, "gate", "$1", "of", "(.+)"))'
