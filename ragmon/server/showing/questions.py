"""The parameters of what is asked over HTTP: each is known, given once, and of its kind, or the answer says so."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

from starlette.datastructures import QueryParams

from ragmon.config.types import duration
from ragmon.core import constants
from ragmon.core.errors import RagmonError, UnknownNameError, nearest, shorten
from ragmon.gates.releases import By
from ragmon.journal import Query
from ragmon.monitor.embedded import split
from ragmon.server.showing.asking import MAX_DROP, Asking

OUTCOME: Final = "fail"
"""The one outcome requests can be asked for by: those that keep their gates are in no index."""
LIMIT: Final = 50
_RECORDS: Final = (
    "pipeline",
    "source",
    "gate",
    "metric",
    "outcome",
    "build",
    "index_hash",
    "since",
    "limit",
    "cursor",
)
_SECONDS: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_COUNT: Final = re.compile(r"0*[1-9][0-9]{0,5}")
_SHARE: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,17})?(e-[0-9]{1,3})?")


def records(asking: Asking, given: QueryParams) -> dict[str, Any]:
    """A page of the requests that fail a gate.

    Args:
        asking: Knows them.
        given: Which.

    Raises:
        RagmonError: A parameter is wrong.
    """
    asked = _asked(given, *_RECORDS)
    if asked.get("outcome", OUTCOME) != OUTCOME:
        hint = f"{OUTCOME}: the index holds the requests that alone fail a gate, and no others"
        raise RagmonError(f"outcome is {shorten(asked['outcome'])}", hint=hint)
    source = asked.get("source")
    if source is not None and source not in constants.SOURCES:
        raise UnknownNameError("source", source, constants.SOURCES)
    pipeline = asking.known(asked["pipeline"]) if "pipeline" in asked else None
    metric = asking.metric(asked["metric"]) if "metric" in asked else None
    judged = Query(pipeline=pipeline, metric=metric)
    if "gate" in asked:
        pipeline, gate = _gate(asking, asked)
        judged = asking.judged(pipeline, gate)
        if metric not in (None, judged.metric):
            raise RagmonError(f"gate {gate} judges {judged.metric}, not {metric}", hint="give one of them")
    since = _seconds(asked)
    query = replace(
        judged,
        source=source,
        build=asked.get("build"),
        index_hash=asked.get("index_hash"),
        since=0.0 if since is None else asking.now() - since,
        limit=_limit(asked),
        cursor=asked.get("cursor"),
    )
    return asking.records(query)


def why(asking: Asking, given: QueryParams) -> dict[str, Any]:
    """What broke.

    Args:
        asking: Knows it.
        given: Which gate, and how far to look back.

    Raises:
        RagmonError: A parameter is wrong.
    """
    asked = _asked(given, "gate", "pipeline", "since")
    return asking.why(*_gate(asking, asked), _seconds(asked))


def compare(asking: Asking, given: QueryParams) -> dict[str, Any]:
    """One release against another.

    Args:
        asking: Knows them.
        given: Which.

    Raises:
        RagmonError: A parameter is wrong.
    """
    asked = _asked(given, "pipeline", "by", "baseline", "candidate", "max_drop")
    by: By = "index_hash" if asked.get("by") == "index_hash" else "build"
    if asked.get("by", by) != by:
        raise RagmonError(f"by is {shorten(asked['by'])}", hint=nearest(asked["by"], ("build", "index_hash")))
    pair = _needed(asked, "baseline"), _needed(asked, "candidate")
    drop = asked.get("max_drop", str(MAX_DROP))
    if not _SHARE.fullmatch(drop) or float(drop) >= 1:
        raise RagmonError(f"max_drop is {shorten(drop)}", hint="a share below 1: 0.02 is 2 points")
    return asking.compare(asked.get("pipeline", asking.usual), by, pair, float(drop))


def _asked(given: QueryParams, *known: str) -> dict[str, str]:
    """The parameters of a request.

    Raises:
        RagmonError: There is no such parameter, or one is given twice.
    """
    told = [name for name, _ in given.multi_items()]
    for name in told:
        if name not in known:
            close = nearest(name, known)
            raise RagmonError(f"there is no parameter {shorten(name)}", hint=close)
        if told.count(name) > 1:
            raise RagmonError(f"the parameter {name} is given twice", hint="once")
    return dict(given)


def _needed(asked: dict[str, str], name: str) -> str:
    if not asked.get(name):
        raise RagmonError(f"the parameter {name} is missing", hint=f"?{name}=…")
    return asked[name]


def _gate(asking: Asking, asked: dict[str, str]) -> tuple[str, str]:
    """Pipeline and gate; `support/precision` names both."""
    gate, pipeline = split(_needed(asked, "gate"), asked.get("pipeline", asking.usual))
    if pipeline != asked.get("pipeline", pipeline):
        told = f"gate names the pipeline {shorten(pipeline)}, and pipeline {shorten(asked['pipeline'])}"
        raise RagmonError(told, hint="name it once")
    return pipeline, gate


def _seconds(asked: dict[str, str]) -> float | None:
    text = asked.get("since")
    if text is None:
        return None
    try:
        found = float(text) if _SECONDS.fullmatch(text) else float(duration(text))
    except ValueError:
        found = 0.0
    if found <= 0:
        raise RagmonError(f"since is {shorten(text)}", hint="a span of time: 30m, 2h, or seconds")
    return found


def _limit(asked: dict[str, str]) -> int:
    text = asked.get("limit", str(LIMIT))
    if not _COUNT.fullmatch(text):
        raise RagmonError(f"limit is {shorten(text)}", hint="a number of records, at least 1; a page has 1000 at most")
    return int(text)
