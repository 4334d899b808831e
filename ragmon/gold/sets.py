"""Named, versioned sets of gold items, the index that finds the item of a record, and counts of the items of a set."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from ragmon.core import constants
from ragmon.core.errors import GoldError
from ragmon.core.gold_item import GoldItem, Match
from ragmon.core.process import keyed_hash
from ragmon.core.record import Record, is_redacted
from ragmon.core.text import normalise_question
from ragmon.tabular.columns import USUAL, TableOptions
from ragmon.tabular.files import Frame, frame_table

SHOWN: Final = 8
"""Hex digits of a gold version that are displayed and exported."""
_MATCHED_VALUES: Final = (constants.BY_QUESTION, constants.BY_PARAPHRASE, constants.BY_EMBEDDING)
"""Values of `matched` that are accepted from a record."""
REMEMBERED: Final = 1024
"""Pairs of pipeline and source whose items are cached; records name any pipeline, so the cache needs a bound."""


@dataclass(frozen=True)
class GoldSet:
    """Gold items under one name.

    Args:
        name: The name of the set in gates and series.
        items: The items; every qid once.
        pipeline: The pipeline it judges; None for any.
        use: Which records may match it: `probe`, `match` (user questions); replayed records always may.
        tags: Slices every item of the set belongs to.

    Raises:
        GoldError: Two items share a qid.

    Examples:
        >>> rows = [{"qid": "a", "question": "Who sails?", "answerable": True, "gold_citations": ["d1"]}]
        >>> gold = GoldSet.from_rows(rows, name="harbour")
        >>> len(gold.items), gold.items[0].citations
        (1, ('d1',))
    """

    name: str
    items: tuple[GoldItem, ...]
    pipeline: str | None = None
    use: Collection[str] = (constants.PROBE, constants.MATCH)
    tags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        duplicate = next((qid for qid, count in Counter(item.qid for item in self.items).items() if count > 1), None)
        if duplicate is not None:
            hint = "qids are permanent: give one question a new one"
            raise GoldError("qid appears twice", path=self.name, value=duplicate, hint=hint)
        version = self.short_version
        object.__setattr__(self, "items", tuple(item.in_set(self.name, version, self.tags) for item in self.items))

    @classmethod
    def load(
        cls,
        path: str | Path | Sequence[str | Path],
        name: str | None = None,
        *,
        match: Match = "exact",
        pipeline: str | None = None,
        use: Collection[str] = (constants.PROBE, constants.MATCH),
        tags: Mapping[str, str] | None = None,
        options: TableOptions = USUAL,
        empty_reference: str | None = None,
    ) -> GoldSet:
        """Read gold files strictly: all are accepted or none (`ragmon.gold.files` lists the shapes).

        Args:
            path: A file of any known shape, a directory of the three files of seed 004, `-` for standard input, or
                several of them, which make one set.
            name: The name of the set; default: the stem of the first file.
            match: How gold texts are compared with contexts.
            pipeline: The pipeline the set judges; None for any.
            use: Which records may match it.
            tags: Slices every item of the set belongs to.
            options: How tables are read, and which columns hold which field.
            empty_reference: What a row of a table means that names no answer: `unanswerable`, or `skip` it; None
                refuses it.

        Raises:
            GoldError: A file is wrong; the message names file, line and value, the hint the correction.
        """
        from ragmon.gold.files import as_paths, read_items, set_name  # noqa: PLC0415 - few programs need it
        from ragmon.gold.tables import RowReader  # noqa: PLC0415 - as above

        paths = as_paths(path)
        items = read_items(paths, RowReader(match, options, empty_reference))
        return cls(set_name(paths) if name is None else name, items, pipeline, use, tags or {})

    @classmethod
    def from_rows(
        cls,
        rows: Iterable[Mapping[str, Any]] | Frame,
        name: str = "gold",
        *,
        columns: Mapping[str, str] | None = None,
        empty_reference: str | None = None,
    ) -> GoldSet:
        """The gold set of rows that a program holds.

        Args:
            rows: Dictionaries as the lines of a gold file hold them, or a DataFrame of pandas or polars.
            name: The name of the set; it stands in messages for the file.
            columns: The column of each field, where the names are not the usual ones: `{"gold_claim": "truth"}`.
            empty_reference: What a row means that names no answer: `unanswerable`, or `skip` it; None refuses it.

        Raises:
            GoldError: A row is no gold item; the message counts from 1.

        Examples:
            >>> GoldSet.from_rows([{"user_input": "Who wrote it?", "reference": "Ada did."}]).items[0].gold_claim
            'Ada did.'
        """
        from ragmon.gold.strict_json import JsonLocation  # noqa: PLC0415 - few programs need it
        from ragmon.gold.tables import RowReader  # noqa: PLC0415 - as above

        reader = RowReader(options=TableOptions(columns=columns or {}), empty_reference=empty_reference)
        table = frame_table(rows)
        if table is not None:
            items = reader.table(table, name)
        elif isinstance(rows, Iterable):
            items = reader.objects((JsonLocation(name, number), row) for number, row in enumerate(rows, 1))
        else:
            raise GoldError("gold is dictionaries or a DataFrame", path=name, value=type(rows), hint="or a GoldSet")
        return cls(name, tuple(item for _, item in items))

    @cached_property
    def version(self) -> str:
        """sha256 of the fingerprints of the items in the order of their qids: equal content has an equal version."""
        digest = hashlib.sha256()
        for item in sorted(self.items, key=lambda item: item.qid):
            digest.update(item.fingerprint.encode())
        return digest.hexdigest()

    @property
    def short_version(self) -> str:
        """The displayed digits of the version."""
        return self.version[:SHOWN]

    def judges(self, pipeline: str, source: str | None) -> bool:
        """Whether records of a pipeline and source may match the set."""
        use = constants.MATCH if source == constants.LIVE else source
        return self.pipeline in (None, pipeline) and (use not in (constants.PROBE, constants.MATCH) or use in self.use)

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[GoldItem]:
        return iter(self.items)


class GoldIndex:
    """Finds the gold item of a record: by qid, else by its normalised question, else by the keyed hash of that.

    Args:
        sets: Gold sets; where two hold the same question, the first one wins.
        keys: The secrets of question hashes by pipeline; the one under None is for all other pipelines. Without a key,
            hashes match nothing.
    """

    def __init__(self, sets: Sequence[GoldSet] | GoldSet = (), keys: Mapping[str | None, bytes] | None = None) -> None:
        self.sets = (sets,) if isinstance(sets, GoldSet) else tuple(sets)
        self._keys = dict(keys or {})
        self._shared: dict[tuple[tuple[int, ...], bytes | None], Items] = {}
        self._lookups: dict[tuple[str | None, str | None], Items] = {}

    def match(self, record: Record) -> GoldItem | None:
        """The gold item of a record; None where there is none."""
        return self.items_for(record.pipeline, record.source).match(record)

    def how(self, record: Record) -> str:
        """How the item of a record was found; the record must have one."""
        return self.items_for(record.pipeline, record.source).how(record)

    def items_for(self, pipeline: str | None, source: str | None) -> Items:
        """The items that records of a pipeline and source may match."""
        lookup = self._lookups.get((pipeline, source))
        if lookup is not None:
            return lookup
        name = pipeline or constants.DEFAULT_PIPELINE
        set_indices = tuple(index for index, gold in enumerate(self.sets) if gold.judges(name, source))
        shared_key = (set_indices, self._keys.get(name, self._keys.get(None)))
        if shared_key not in self._shared:
            self._shared[shared_key] = Items([self.sets[index] for index in set_indices], shared_key[1])
        if len(self._lookups) >= REMEMBERED:
            self._lookups.clear()
        lookup = self._lookups[(pipeline, source)] = self._shared[shared_key]
        return lookup

    def infos(self) -> tuple[GoldInfo, ...]:
        """The name, version and size of each set."""
        return tuple(GoldInfo(gold.name, gold.short_version, len(gold)) for gold in self.sets)


class Items:
    """The items that records of one pipeline and source may match.

    Args:
        sets: The sets in order; of equal qids and questions the first one counts.
        key: The secret of question hashes; None: hashes match nothing.
    """

    def __init__(self, sets: Sequence[GoldSet], key: bytes | None = None) -> None:
        self.by_qid: dict[str | None, GoldItem] = {}
        self.by_question: dict[str, GoldItem] = {}
        self._paraphrases: set[str] = set()
        for gold in sets:
            self._add(gold)
        self._by_hash: dict[str | None, GoldItem] = {}
        if key is not None:
            self._by_hash.update({keyed_hash(key, question): item for question, item in self.by_question.items()})

    @cached_property
    def ids(self) -> frozenset[str]:
        """All document ids that the items name."""
        return frozenset(name for item in self.by_qid.values() for name in item.ids)

    def match(self, record: Record) -> GoldItem | None:
        """The gold item of a record; None where there is none."""
        item = self.by_qid.get(record.qid)
        return self.by_text(record) if item is None else item

    def by_text(self, record: Record) -> GoldItem | None:
        """The item with the question of a record: by its text, or by its hash where the text was not exported."""
        if record.q is not None and not is_redacted(record, "q"):
            return self.by_wording(record.q)
        facts = record.facts
        return None if facts is None else self._by_hash.get(facts.question_hash)

    def how(self, record: Record) -> str:
        """How the item of a record was found (`ragmon.core.constants.MATCH_METHODS`); the record must have one.

        >>> items = Items([GoldSet("g", (GoldItem("a", "Why?", answerable=False, paraphrases=["How come?"]),))])
        >>> items.how(Record(qid="a")), items.how(Record(q="how come"))
        ('qid', 'paraphrase')
        """
        if record.qid in self.by_qid:
            return record.matched if record.matched in _MATCHED_VALUES else constants.BY_QID
        if record.q is None or is_redacted(record, "q"):
            return constants.BY_HASH
        return constants.BY_PARAPHRASE if self.is_paraphrase(normalise_question(record.q)) else constants.BY_QUESTION

    def is_paraphrase(self, key: str) -> bool:
        """Whether a key of `by_question` is another wording of its item's question."""
        return key in self._paraphrases

    def by_wording(self, question: str) -> GoldItem | None:
        """The item with this question or paraphrase."""
        return self.by_question.get(normalise_question(question)) if self.by_question else None

    def _add(self, gold: GoldSet) -> None:
        """Add a set. A question that two of its items share is ambiguous and matches neither."""
        questions: dict[str, list[GoldItem]] = {}
        for item in gold:
            self.by_qid.setdefault(item.qid, item)
            for wording in (item.question, *item.paraphrases):
                questions.setdefault(normalise_question(wording), []).append(item)
        for question, items in questions.items():
            if question and question not in self.by_question and all(item is items[0] for item in items):
                self.by_question[question] = items[0]
                if question != normalise_question(items[0].question):
                    self._paraphrases.add(question)


def stats(gold: GoldSet) -> dict[str, Any]:
    """Count the content of a set: `with_…` are answerable items, `tags` has all items by tag and value.

    >>> from ragmon.core.gold_item import GoldItem
    >>> counts = stats(GoldSet("g", (GoldItem("a", "Why?", answerable=False, tags={"lang": "en"}),)))
    >>> counts["items"], counts["answerable"], counts["tags"]
    (1, 0, {'lang': {'en': 1}})
    """
    answerable = [item for item in gold if item.answerable]
    tags = Counter((tag, value) for item in gold for tag, value in item.tags.items())
    by_tag: dict[str, dict[str, int]] = {}
    for (tag, value), count in sorted(tags.items()):
        by_tag.setdefault(tag, {})[value] = count
    return {
        "name": gold.name,
        "version": gold.version,
        "items": len(gold),
        "answerable": len(answerable),
        "unanswerable": len(gold) - len(answerable),
        "with_substrings": sum(1 for item in answerable if item.phrases),
        "with_gold_claim": sum(1 for item in answerable if item.gold_claim),
        "with_citations": sum(1 for item in answerable if item.ids),
        "with_contexts": sum(1 for item in answerable if item.texts),
        "with_sections": sum(1 for item in answerable if item.sections),
        "tags": by_tag,
    }


@dataclass(frozen=True)
class GoldInfo:
    """The name, short version and size of a gold set in use."""

    name: str
    version: str
    items: int
