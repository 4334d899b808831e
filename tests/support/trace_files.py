"""Trace files for tests: good lines, files made of lines, and what a reader makes of them."""

from __future__ import annotations

import gzip
import json

import zstandard

from ragmon.core.gold_item import GoldItem
from ragmon.ingest.files import ReadSummary, read_files
from ragmon.ingest.gold import GoldSet
from ragmon.scoring.scorer import Scorer

NOON = 1_763_683_200.0
GOLD = GoldSet(
    "gold",
    tuple(
        GoldItem(qid=f"q{n}", question=f"Question {n}?", answerable=True, claim_substrings=["answer"], citations=["d1"])
        for n in range(20)
    ),
)


def good(n=0, **fields):
    """A healthy record of gold question `n`, as a line; fields may be replaced or added."""
    record = {
        "ts": NOON + n,
        "qid": f"q{n % 20}",
        "q": f"Question {n % 20}?",
        "retrieved_ids": ["d1", "d2"],
        "answer_json": {"claim": "the answer", "citations": ["d1"]},
    }
    return json.dumps(record | fields).encode() + b"\n"


def write(path, *lines):
    """A file of lines, compressed as its name says; returns its name."""
    content = b"".join(lines)
    if path.name.endswith(".gz"):
        content = gzip.compress(content)
    elif path.name.endswith(".zst"):
        content = zstandard.compress(content)
    path.write_bytes(content)
    return str(path)


def take(*paths):
    """The records of files, and what the reader counted."""
    intake = ReadSummary()
    return list(read_files([str(path) for path in paths], intake)), intake


def scorer():
    """A scorer over `GOLD`; spawned processes find it by its name."""
    return Scorer(GOLD)
