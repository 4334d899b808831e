"""Baselines as a file: those of a release run, taken as they are instead of being learned in production."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from ragmon import names
from ragmon.alarms.baselines import Baseline
from ragmon.alarms.latency import LatencyBaseline
from ragmon.alarms.sight import Sight

VERSION: Final = 1
SHOWN: Final = 8
"""Hex digits of a baseline's version."""


def freeze(baselines: Mapping[str, Baseline], latency: LatencyBaseline, sight: Sight) -> dict[str, Any]:
    """What a pipeline was, as plain JSON data.

    Args:
        baselines: By what is compared with them; those nothing was seen of are left out.
        latency: The baseline of the latency.
        sight: What every gold item did first.
    """
    known: dict[str, Any] = {name: _one(one.n, one.total) for name, one in sorted(baselines.items()) if one.n}
    if latency.p95 is not None:
        known[names.LATENCY] = {**_one(latency.share.n, latency.share.total), "p95": latency.p95}
    return {"metrics": known, "golds": sight.golds, "first": {name: held for name, held in sight.first.items() if held}}


def _one(n: int, total: float) -> dict[str, Any]:
    return {"n": n, "mean": round(total / n, 6), "total": total}


def give(frozen: Mapping[str, Any], baselines: Mapping[str, Baseline], latency: LatencyBaseline, sight: Sight) -> None:
    """Put what `freeze` wrote in the place of what would be learned; what it does not know is learned."""
    for name, one in frozen.get("metrics", {}).items():
        if name == names.LATENCY:
            latency.give(one["p95"], one["n"], one["total"])
        elif name in baselines:
            baselines[name].give(one["n"], one["total"])
    sight.golds = {source: dict(held) for source, held in frozen.get("golds", {}).items()}
    sight.first = {name: dict(held) for name, held in frozen.get("first", {}).items()}


def version(pipelines: Mapping[str, Any]) -> str:
    """The fingerprint by which a baseline is named.

    >>> version({})
    '44136fa3'
    """
    canonical = json.dumps(pipelines, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:SHOWN]
