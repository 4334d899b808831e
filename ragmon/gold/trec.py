"""TREC relevance judgements: `qid iteration docid relevance`, separated by white space."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ragmon.core.gold_item import GoldItem
from ragmon.gold.source import Place

_COLUMNS: Final = 4
_INTEGER: Final = re.compile(r"[-+]?[0-9]+")
_HINT: Final = "write qid, iteration, docid and relevance, separated by spaces: 301 0 FR940202-2-00150 1"


def looks_like_qrels(line: str) -> bool:
    """Whether a line has the four columns of a judgement."""
    return len(line.split()) == _COLUMNS


def read_qrels(path: str, text: str) -> Iterator[tuple[Place, GoldItem]]:
    """One answerable item per query id, without question text, in the order of the file.

    A relevance above zero is relevant, whatever its grade.

    Raises:
        GoldError: A line is not a judgement, or judges a document a second time.
    """
    first: dict[str, Place] = {}
    judged: dict[tuple[str, str], Place] = {}
    relevant: dict[str, list[str]] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        place = Place(path, number)
        qid, docid, relevance = _judgement(line, place)
        earlier = judged.setdefault((qid, docid), place)
        if earlier is not place:
            raise place.error(f"judged twice, first on line {earlier.line}", f"{qid} {docid}", "keep one of them")
        first.setdefault(qid, place)
        relevant.setdefault(qid, []).extend([docid] if relevance > 0 else [])
    for qid, ids in relevant.items():
        yield first[qid], GoldItem(qid=qid, question="", answerable=True, citations=tuple(ids) or None)


def _judgement(line: str, place: Place) -> tuple[str, str, int]:
    columns = line.split()
    if len(columns) != _COLUMNS:
        raise place.error(f"{len(columns)} columns instead of {_COLUMNS}", line.strip(), _HINT)
    qid, _, docid, relevance = columns
    if not _INTEGER.fullmatch(relevance):
        raise place.error("relevance is not an integer", relevance, _HINT)
    return qid, docid, int(relevance)
