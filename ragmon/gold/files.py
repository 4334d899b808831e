"""Gold files of every known shape, read strictly: a file is taken whole or refused whole.

| shape | what it looks like |
|---|---|
| WFGY eval page (seed 000) | JSON Lines: `qid`, `question`, `answerable`, `gold_claim_substr`, `gold_citations` |
| WFGY Example 08 (seed 002) | a JSON array: `qid`, `q`, `answerable`, `gold_ids`, `gold_claim` |
| AdalFlow (seed 003) | rows with `gold_contexts`, the passages themselves |
| ResearchMate (seed 004) | a directory: `queries.json`, `qrels.json`, `answers.json` |
| WFGY chunking page | rows with `relevant`, `paraphrases`, `negatives`, `anchor_section` (read, not scored) |
| TREC qrels | `qid iteration docid relevance` |

The row shapes may be mixed, and every row may carry `tags`, `paraphrases`, `negatives` and `constraints`.
`answerable` is required, except where `relevant` or `gold_contexts` says that there is an answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ragmon.core import constants
from ragmon.core.gold_item import Match
from ragmon.gold.items import Paths
from ragmon.gold.sets import GoldSet


def load(
    path: Paths,
    name: str | None = None,
    *,
    match: Match = "exact",
    pipeline: str | None = None,
    use: Collection[str] = (constants.PROBE, constants.MATCH),
    tags: Mapping[str, str] | None = None,
) -> GoldSet:
    """Read gold files into one set.

    Args:
        path: A file of any known shape, plain or gzip; a directory of seed 004's three files; `-` for standard input;
            or several of them, which make one set.
        name: The set's name; default: the first file's stem.
        match: How gold texts are compared with contexts.
        pipeline: The pipeline the set judges; None for any.
        use: Which records may match it: `probe`, `match`.
        tags: Slices every item of the set belongs to.

    Raises:
        GoldError: With file, line, value and what would be right.
    """
    return GoldSet.load(path, name, match=match, pipeline=pipeline, use=use, tags=tags)
