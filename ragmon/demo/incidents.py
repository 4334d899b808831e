"""Faults to put into a running pipeline: each is one that real RAG systems have had.

A fault is healed by building a fresh `Pipeline`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from ragmon.demo.pipeline import Pipeline

_SEED: Final = 20
_WRONG_SCALE: Final = 8.0
_SLOW_SECONDS: Final = 0.3


def index_drift(pipeline: Pipeline) -> None:
    """Rebuild the index with half of the ids handed round; turns answer_precision and citation_hit_rate red."""
    corpus = list(pipeline.corpus)
    # A fixed seed: the same incident gives the same screen twice. Nothing here is a secret.
    drifted = random.Random(_SEED).sample(range(len(corpus)), len(corpus) // 2)  # noqa: S311
    ids = [corpus[at].id for at in drifted]
    for at, id_ in zip(drifted, ids[1:] + ids[:1], strict=True):
        corpus[at] = replace(corpus[at], id=id_)
    pipeline.rebuild(corpus)


def refusal_wave(pipeline: Pipeline) -> None:
    """Set the score threshold as for another retriever's scale; turns over_refusal_rate red."""
    pipeline.min_score = _WRONG_SCALE


def hallucination(pipeline: Pipeline) -> None:
    """Drop the thresholds, so that everything is answered; under_refusal_rate, answer_precision, citation_hit_rate."""
    pipeline.min_score = pipeline.min_support = 0.0


def citation_break(pipeline: Pipeline) -> None:
    """Cite the document instead of the passage; citation_scope, coverage, answer_precision, citation_hit_rate."""
    pipeline.cite = _without_chunk


def latency(pipeline: Pipeline) -> None:
    """Let every answer wait a few hundred milliseconds; turns answered_within and the p95 latency ratio red."""
    pipeline.delay = _SLOW_SECONDS


INCIDENTS: Final[Mapping[str, Callable[[Pipeline], None]]] = MappingProxyType(
    {incident.__name__: incident for incident in (index_drift, refusal_wave, hallucination, citation_break, latency)}
)
"""The faults by name."""


def _without_chunk(passage_id: str) -> str:
    return passage_id.partition("#")[0]
