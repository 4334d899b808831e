"""Fuzzes the native core against plain Python: `python -m tests.support.native_fuzz [SECONDS [SEED]]`.

Lines are made and damaged from a seed, written to a file, and replayed on both paths, until the time is up or the two
differ. Then the lines are thinned out to the few that show it, and printed with the seed.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from ragmon.core.gold_item import GoldItem
from ragmon.core.refusal import RefusalRule
from ragmon.gold import GoldIndex, GoldSet
from ragmon.metrics.facts import FactReader
from ragmon.scoring.scorer import ReductionRules, Scorer
from tests.support.both_paths import differs
from tests.support.mutated_lines import Mutator

LINES = 1000
"""Lines of a file."""


def gold_sets():
    """Items of every kind: by id, by section, by text, unanswerable, with phrases in several scripts."""
    first = GoldSet(
        "first",
        (
            GoldItem("a", "What is it?", answerable=True, claim_substrings=["42", "itu"], citations=["d1", "d3#1"]),
            GoldItem("b", "Was heißt das?", answerable=True, gold_claim="Die Hauptstraße, seit 1950", citations=["d2"]),
            GoldItem("c", "Who?", answerable=False, paraphrases=["wie geht’s", "Question 1?"]),
            GoldItem("d", "By section?", answerable=True, claim_substrings=["é"], sections=["d3", "p1/"]),
            GoldItem("e", "By text?", answerable=True, contexts=["The old harbour", "a b"], match="contains"),
            GoldItem("ü", "Quelle est l'année ?", answerable=True, citations=["日本", "Ω"], claim_substrings=["rien"]),
        ),
    )
    second = GoldSet(
        "second",
        (
            GoldItem("a", "What is it?", answerable=True, citations=["d2"]),
            GoldItem("z", "Another one", answerable=True, claim_substrings=["sorry"]),
        ),
        pipeline="support",
        use=("match",),
    )
    return first, second


GOLD = gold_sets()


def usual():
    """The usual rules."""
    return Scorer(GoldIndex(GOLD))


def other_rules():
    """Rules of somebody's own for each pipeline."""
    reader = FactReader(
        RefusalRule(tokens=("n/a", "Straße"), matcher_counts=False), within_ms=100.0, citations_required=True
    )
    own = FactReader(RefusalRule(patterns=("sorry|42",), window=20, replace=True))
    off = FactReader(RefusalRule(replace=True))
    return Scorer(
        GoldIndex(GOLD),
        rules=ReductionRules(reader, cluster=("question",)),
        by_pipeline={"support": ReductionRules(own, cluster=()), "sales": ReductionRules(off, cluster=("session",))},
    )


def no_gold():
    """Traffic alone."""
    return Scorer()


SCORERS = (usual, other_rules, no_gold)


def lines_of(seed):
    """The lines of a seed; some files hold no damaged line."""
    return Mutator(seed, wild=seed % 4 / 8).lines(LINES)


def thinned(path, lines, make):
    """As few of the lines as still count differently on the two paths."""
    size = len(lines) // 2
    while size:
        at = 0
        while at < len(lines):
            fewer = lines[:at] + lines[at + size :]
            path.write_bytes(b"".join(fewer))
            if fewer and differs([path], make):
                lines = fewer
            else:
                at += size
        size //= 2
    return lines


def fuzz(folder, seconds, seed):
    """Replay files until the time is up; returns how many there were, and the lines that differ, if any do."""
    path, end, count = folder / "traces.jsonl", time.monotonic() + seconds, 0
    while time.monotonic() < end:
        make, lines = SCORERS[(seed + count) % len(SCORERS)], lines_of(seed + count)
        path.write_bytes(b"".join(lines))
        count += 1
        if differs([path], make):
            return count, thinned(path, lines, make)
    return count, []


def main(seconds=60.0, seed=None):
    """Fuzz and print what was found; the exit code is 1 where the paths differ."""
    seed = int(time.time()) * 1000 if seed is None else int(seed)
    print(f"seed {seed}, {seconds} seconds", flush=True)  # noqa: T201
    with tempfile.TemporaryDirectory() as folder:
        count, lines = fuzz(Path(folder), float(seconds), seed)
    print(f"{count} files of {LINES} lines, the last one of seed {seed + count - 1}")  # noqa: T201
    for line in lines:
        print(line)  # noqa: T201
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
