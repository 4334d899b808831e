"""PromQL for rules and dashboards: matchers, selectors, and queries over several replicas.

Ratios are never averaged. A value of a window is weighted with its number of requests; its interval is the monitor's,
of several replicas the one that holds all. Counters are summed, then divided.
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
    """A value, its bounds and its sample count: names of series, or queries over replicas.

    Attributes:
        value, lower, upper: The value and its bounds.
        samples: The number of requests in the value.
    """

    value: str
    lower: str
    upper: str
    samples: str


def pooled(series: EstimateQuery, by: str, *matchers: str) -> EstimateQuery:
    """A value over all replicas, and an interval that holds those of all: for one replica its own.

    Args:
        series: The names of the series.
        by: The labels to keep.
        matchers: Which series.
    """
    value, lower, upper, samples = (at(name, *matchers) for name in series)
    total = f"sum by ({by}) ({samples})"
    mean = f"sum by ({by}) ({value} * {samples}) / {total}"
    return EstimateQuery(mean, f"min by ({by}) ({lower})", f"max by ({by}) ({upper})", total)


def windowed(metric: str) -> EstimateQuery:
    """The names of a metric's series over windows."""
    name = f"{series_names.PREFIX}{metric}"
    endings = (series_names.VALUE, series_names.LOWER, series_names.UPPER, series_names.SAMPLES)
    return EstimateQuery(*(f"{name}{ending}" for ending in endings))


GATE: Final = EstimateQuery(
    series_names.GATE_VALUE,
    series_names.GATE_LOWER,
    series_names.GATE_UPPER,
    series_names.GATE_SAMPLES,
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
