"""Compatibility modes: five published scorers, reproduced exactly and independent of ragmon's own metrics.

A mode reads its files without validation, as its script does, and prints what its script prints. Where the script ends
in a traceback, the mode ends with exit code 3 and names the rule that failed and the line. ragmon's own definitions
differ on purpose; no code is shared with them.

| mode | the published scorer |
|---|---|
| `seed-000` | WFGY eval page, `score_eval.py`: JSON report |
| `seed-001` | DeepEval contextual precision (Elixir port) on recorded verdicts or a judge's: one JSON result a line |
| `seed-002` | WFGY Example 08, `score.md.py`: Markdown report |
| `seed-003` | AdalFlow `RetrieverEvaluator`: JSON of its result |
| `seed-004` | ResearchMate evaluation: flat JSON |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from ragmon.compat import seed_000, seed_001, seed_002, seed_003, seed_004
from ragmon.compat.base import Options, PublishedScorerFailed, Result

__all__ = ["MODES", "Options", "PublishedScorerFailed", "Result", "run"]

Scorer = Callable[[Sequence[str], Sequence[str], Options], str]

MODES: Final[Mapping[str, Scorer]] = MappingProxyType(
    {
        "seed-000": seed_000.score,
        "seed-001": seed_001.score,
        "seed-002": seed_002.score,
        "seed-003": seed_003.score,
        "seed-004": seed_004.score,
    }
)


def run(mode: str, traces: Sequence[str], gold: Sequence[str] | str | None, options: Options) -> Result:
    """Score trace files as a published scorer does."""
    files = (gold,) if isinstance(gold, str) else tuple(gold or ())
    try:
        return Result(_scorer(mode, files)(traces, files, options), exit_code=0)
    except PublishedScorerFailed as failure:
        return Result("", exit_code=3, error=f"{failure}\nhint: {failure.hint}")


def _scorer(mode: str, gold: Sequence[str]) -> Scorer:
    if mode not in MODES:
        hint = f"one of {', '.join(MODES)}"
        raise PublishedScorerFailed("no such compat mode", path="--compat", value=mode, hint=hint)
    if not gold and mode != "seed-001":
        raise PublishedScorerFailed(f"{mode} cannot score without gold", path="--gold", hint="name the gold it reads")
    return MODES[mode]
