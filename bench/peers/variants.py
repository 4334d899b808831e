"""The rows of the table: which tracer, set up how, and what share of calls it must then record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from bench.peers import tracers
from bench.peers.tracers import Tracing

FEW: Final = 0.01
IN, OUT, OFF = "sampled in", "sampled out, 1 %", "switched off: it has no sampling"

QUIET: Final = {
    "DO_NOT_TRACK": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # others import it, and importing it downloads prices
    "LOGFIRE_SEND_TO_LOGFIRE": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_TRACKING_URI": "http://127.0.0.1:9",
    "OPIK_ANALYTICS_ENABLE": "false",
    "OPIK_PROJECT_NAME": "bench",
    "OPIK_SENTRY_ENABLE": "false",
    "OPIK_URL_OVERRIDE": "http://127.0.0.1:9/api/",
    "TRACELOOP_TELEMETRY": "false",
}
"""What keeps every tracer from calling home, in its own words; read when it is imported."""


@dataclass(frozen=True)
class Variant:
    """One row.

    Attributes:
        tracer: The decorator.
        package: The distribution it comes from.
        how: How much it was asked to record.
        share: Share of calls that must be recorded.
        set_up: Sets it up, in a process of its own.
        environment: What must stand in the environment of that process, beside `QUIET`.
    """

    tracer: str
    package: str
    how: str
    share: float
    set_up: Callable[[], Tracing]
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Its name."""
        return f"{self.tracer}: {self.how}"


def _both(tracer: str, package: str, set_up: Callable[[float], Tracing]) -> list[Variant]:
    """A tracer that samples by a rate it is given."""
    return [Variant(tracer, package, how, rate, partial(set_up, rate)) for how, rate in ((IN, 1.0), (OUT, FEW))]


def _own(how: str, share: float, sampling: str) -> Variant:
    return Variant("`@ragmon.trace`", "ragmon", how, share, partial(tracers.own, sampling))


_RATIO = "MLFLOW_TRACE_SAMPLING_RATIO"

VARIANTS: Final = (
    *_both("bare SDK span", "opentelemetry-sdk", tracers.bare),
    _own(IN, 1.0, "rate = 1.0"),
    _own(f"{OUT}; errors, refusals and slow calls too (default)", FEW, f"rate = {FEW}"),
    _own(f"{OUT}; all others counted only", FEW, f'rate = {FEW}\nkeep = {{}}\nlatency = "kept"'),
    *_both("`@openlit.trace`", "openlit", tracers.openlit),
    *_both("traceloop `@workflow`", "traceloop-sdk", tracers.traceloop),
    *_both("`@logfire.instrument`, which leaves the result out", "logfire", partial(tracers.logfire, result=False)),
    *_both("`@logfire.instrument(record_return=True)`", "logfire", partial(tracers.logfire, result=True)),
    *_both("OpenInference `@tracer.chain`", "openinference-instrumentation", tracers.openinference),
    Variant("`@opik.track`", "opik", IN, 1.0, tracers.opik, {"OPIK_TRACK_DISABLE": "false"}),
    Variant("`@opik.track`", "opik", OFF, 0.0, tracers.opik, {"OPIK_TRACK_DISABLE": "true"}),
    *_both("langfuse `@observe`", "langfuse", tracers.langfuse),
    Variant("`@mlflow.trace`", "mlflow-tracing", IN, 1.0, tracers.mlflow, {_RATIO: "1.0"}),
    Variant("`@mlflow.trace`", "mlflow-tracing", OUT, FEW, tracers.mlflow, {_RATIO: f"{FEW}"}),
)
