"""Files to gold items: recognises each file's shape by what is in it, and takes all of them or none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ragmon.core.errors import GoldError
from ragmon.core.gold_item import GoldItem, Match
from ragmon.gold.benchmark import NAMES, Files, gather, read_benchmark
from ragmon.gold.jsontext import JsonText
from ragmon.gold.shapes import read_item
from ragmon.gold.source import SHAPES, STDIN, Place, place_of, read_text
from ragmon.gold.trec import looks_like_qrels, read_qrels

Paths = str | Path | Sequence[str | Path]


def as_paths(path: Paths) -> tuple[str | Path, ...]:
    """One path or several, as several."""
    return (path,) if isinstance(path, (str, Path)) else tuple(path)


def set_name(paths: Sequence[str | Path]) -> str:
    """What a set is called when nobody names it: after its first file, or the directory of seed 004's files."""
    first = Path(paths[0])
    if str(first) == STDIN:
        return "stdin"
    bare = first.name.removesuffix(".gz")
    if bare in NAMES:
        return first.resolve().parent.name
    return first.resolve().name if first.is_dir() else Path(bare).stem


def read_items(paths: Sequence[str | Path], match: Match) -> tuple[GoldItem, ...]:
    """All items of all files, in their order.

    Args:
        paths: At least one file or directory.
        match: How gold texts are compared with contexts.

    Raises:
        GoldError: One of the files is broken or empty, or a qid appears twice.
    """
    if not paths:
        raise GoldError("no gold file given", hint=SHAPES)
    first: dict[str, Place] = {}
    items: list[GoldItem] = []
    for source in gather(paths):
        before = len(items)
        for place, item in _read(source, match):
            earlier = first.setdefault(item.qid, place)
            if earlier is not place:
                raise _twice(item, place, earlier)
            items.append(item)
        if len(items) == before:
            whole = place_of(source.queries if isinstance(source, Files) else source)
            raise whole.error("holds no item", hint=SHAPES)
    return tuple(items)


def _twice(item: GoldItem, place: Place, earlier: Place) -> GoldError:
    where = f"on line {earlier.line}" if earlier.path == place.path else f"in {earlier.path}:{earlier.line}"
    return place.error(f"qid appears twice, first {where}", item.qid, "qids are permanent: give one question a new one")


def _read(source: str | Path | Files, match: Match) -> Iterator[tuple[Place, GoldItem]]:
    if isinstance(source, Files):
        return read_benchmark(source)
    path, text = place_of(source).path, read_text(source)
    start = text.lstrip()
    if not start.startswith(("[", "{")) and looks_like_qrels(start.partition("\n")[0]):
        return read_qrels(path, text)
    rows = JsonText(path, text).array() if start.startswith("[") else JsonText.lines(path, text)
    return ((place, read_item(place, raw, match)) for place, raw in rows)
