"""Live quality monitor for retrieval-augmented generation: your offline gates, on production traffic.

>>> import ragmon
>>> ragmon.replay([{"qid": "a", "answer_json": {"claim": "not in context", "citations": []}}]).verdict
'insufficient'

Importing this package is fast: each public name is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragmon.capture.judges import Verdict, judge
    from ragmon.capture.span_processor import RagmonSpanProcessor
    from ragmon.capture.trace import label, propagate, record, stage, trace, trace_id
    from ragmon.core.policy import Policy
    from ragmon.gates.evaluate import evaluate
    from ragmon.ingest.gold import GoldSet
    from ragmon.metrics.base import Metric, register
    from ragmon.monitor.embedded import Monitor
    from ragmon.monitor.install import install, install_signal_handlers
    from ragmon.monitor.replay import replay
    from ragmon.scoring.scorer import Scorer

_MODULES = {
    "GoldSet": "ragmon.ingest.gold",
    "Metric": "ragmon.metrics.base",
    "Monitor": "ragmon.monitor.embedded",
    "Policy": "ragmon.core.policy",
    "RagmonSpanProcessor": "ragmon.capture.span_processor",
    "Scorer": "ragmon.scoring.scorer",
    "Verdict": "ragmon.capture.judges",
    "evaluate": "ragmon.gates.evaluate",
    "install": "ragmon.monitor.install",
    "install_signal_handlers": "ragmon.monitor.install",
    "label": "ragmon.capture.trace",
    "judge": "ragmon.capture.judges",
    "propagate": "ragmon.capture.trace",
    "record": "ragmon.capture.trace",
    "register": "ragmon.metrics.base",
    "replay": "ragmon.monitor.replay",
    "stage": "ragmon.capture.trace",
    "trace": "ragmon.capture.trace",
    "trace_id": "ragmon.capture.trace",
}

__all__ = [
    "GoldSet",
    "Metric",
    "Monitor",
    "Policy",
    "RagmonSpanProcessor",
    "Scorer",
    "Verdict",
    "evaluate",
    "install",
    "install_signal_handlers",
    "judge",
    "label",
    "propagate",
    "record",
    "register",
    "replay",
    "stage",
    "trace",
    "trace_id",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("ragmon.core.process").current_version()
    if name == "testing":
        return import_module("ragmon.testing")
    if name not in _MODULES:
        raise AttributeError(f"module 'ragmon' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value  # so that the next access does not call __getattr__
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__", "testing"]
