"""Gate presets: the thresholds of the published evaluation pages, and ragmon's default."""

from __future__ import annotations

from typing import Final, Literal

from ragmon.core.policy import Gate
from ragmon.metrics import families

Threshold = tuple[str, Literal["at_least", "at_most"], float]

WFGY_EVAL: Final[tuple[Threshold, ...]] = (
    ("answer_precision", "at_least", 0.80),
    ("citation_hit_rate", "at_least", 0.75),
    ("under_refusal_rate", "at_most", 0.05),
    ("over_refusal_rate", "at_most", 0.10),
)
WFGY_EXAMPLE_08: Final[tuple[Threshold, ...]] = (
    ("answer_precision_cited", "at_least", 0.80),
    ("under_refusal_rate", "at_most", 0.05),
    ("over_refusal_rate", "at_most", 0.25),
    ("citation_hit_rate_answerable", "at_least", 0.75),
    ("compliance", "at_least", 0.98),
)


def _gates(*thresholds: Threshold) -> tuple[Gate, ...]:
    return tuple(Gate(metric, metric, bar, direction) for metric, direction, bar in thresholds)


def default() -> tuple[Gate, ...]:
    """The gates that registered metrics bring along, those of plugins included."""
    return _gates(*((name, *family.default_gate) for name, family in families().items() if family.default_gate))


def preset(name: str) -> tuple[Gate, ...]:
    """The gates of a preset; a metric registered a moment ago may have a gate in the default one."""
    return default() if name == "default" else PRESETS[name]


PRESETS: Final[dict[str, tuple[Gate, ...]]] = {
    "default": default(),
    "wfgy-eval": _gates(*WFGY_EVAL),
    "wfgy-example-08": _gates(*WFGY_EXAMPLE_08),
    "wfgy-live": (
        Gate("coverage", "coverage", 0.70, "at_least", window="5m", min_samples=200),
        Gate("citation_scope", "citation_scope", 0.95, "at_least", window="5m", min_samples=200),
        Gate("latency_p95", "latency", 1.3, "at_most", window="5m", min_samples=200, kind="quantile_ratio"),
        Gate("index_hash", "index_hash", 1, "at_most", kind="distinct"),
    ),
}
"""Gates by preset name."""
