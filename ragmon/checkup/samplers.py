"""What the application's own sampler keeps from ragmon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ragmon.checkup.limits import Told
from ragmon.config.settings import Settings

SAMPLER: Final = "OTEL_TRACES_SAMPLER"
RATE: Final = "OTEL_TRACES_SAMPLER_ARG"
_BY_RATIO: Final = ("traceidratio", "parentbased_traceidratio")
_OFF: Final = ("always_off", "parentbased_always_off")


def samplers(settings: Settings, environ: Mapping[str, str]) -> Told:
    """What share of traces arrives.

    The sampler by ratio and ragmon's own draw read other bits of a trace's id, so they are independent: what passes
    both is the product of their rates.

    Args:
        settings: The configuration: ragmon's own rate.
        environ: The environment.
    """
    sampler = environ.get(SAMPLER, "").strip().lower()
    rate = 0.0 if sampler in _OFF else _rate(environ) if sampler in _BY_RATIO else 1.0
    if rate == 1.0:
        return Told()
    if not rate:
        lost = f"{SAMPLER}={sampler} keeps none: no trace of an instrumentation is sent; decorated calls are"
        return Told(lost, hint=f"unset {SAMPLER}, or sample by ratio")
    told = f"{SAMPLER}={sampler} keeps {rate:.3g} of traces: their numbers are of exported traffic"
    own = settings.of(settings.pipeline).sampling.rate
    if own < 1.0 and settings.origins.get("sampling.rate", "default") != "default":
        told += f"; with `[sampling] rate` {own:g} on top {rate * own:.3g} of them are scored"
    return Told(told=told, hint=f"unset {SAMPLER} and set `[sampling] rate`: ragmon then weighs what it keeps")


def _rate(environ: Mapping[str, str]) -> float:
    """The share that is kept; what is none counts as all, as in the SDK."""
    try:
        found = float(environ.get(RATE, ""))
    except ValueError:
        return 1.0
    return found if 0 <= found <= 1 else 1.0
