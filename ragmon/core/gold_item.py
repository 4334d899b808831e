"""A gold item: a question with its known answer, prepared once so that comparing a record with it is cheap."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Final, Literal

import msgspec

from ragmon.core.ids import EXACT, LONGEST, IdForm, folded, folded_parts, needed
from ragmon.core.text import claim_phrases, contains_phrase, fold, normalise_context

Match = Literal["exact", "contains"]
_CANONICAL: Final = msgspec.json.Encoder(order="sorted", enc_hook=list)

_OF_SET: Final = ("match", "id_forms", "set_name", "set_version")

# What a gold item provides, as bits; `ragmon.metrics.facts` combines them with the facts of a record.
GOLD, ANSWERABLE, HAS_PHRASES, HAS_GOLD_CLAIM, HAS_GOLD_IDS, HAS_RELEVANT, TOTAL_UNKNOWN, BY_TEXT = (
    1 << i for i in range(8)
)


@dataclass(frozen=True, eq=False)
class GoldItem:
    """A question whose answer is known.

    Args:
        qid: Its permanent id.
        question: Its text.
        answerable: Whether the corpus can answer it; if not, the one right answer is the refusal token.
        claim_substrings: Any of these in the claim makes the claim right; None where there are none.
        gold_claim: A complete reference answer, whose phrases are searched (claim_containment only).
        citations: The ids of the documents that hold the answer; None where there are none.
        contexts: Gold by text: the passages that hold the answer.
        sections: Gold by section: id prefixes that every chunk of a relevant section starts with.
        tags: Slices this item belongs to.
        paraphrases: Other wordings of the question.
        negatives: Ids that look relevant and are not.
        constraints: Statements for other checks; kept, not scored.
        match: How a gold text is compared with a context.
        id_forms: What an id may differ in from a gold id and be that id; without any, such an id is unknown.
        set_name: The gold set it belongs to.
        set_version: The version of that set.
    """

    qid: str
    question: str
    answerable: bool
    claim_substrings: Sequence[str] | None = None
    gold_claim: str | None = None
    citations: Sequence[str] | None = None
    contexts: Sequence[str] | None = None
    sections: Sequence[str] | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    paraphrases: Sequence[str] = ()
    negatives: Sequence[str] = ()
    constraints: Sequence[str] = ()
    match: Match = "exact"
    id_forms: Sequence[IdForm] = ()
    set_name: str = ""
    set_version: str = ""

    @cached_property
    def phrases(self) -> tuple[str, ...]:
        """The claim substrings, folded."""
        return tuple(filter(None, map(fold, self.claim_substrings or ())))

    def contained_in(self, folded: str) -> bool:
        """C: whether any claim substring occurs in a folded claim."""
        # `in` is checked first: it is cheap, and most phrases do not occur.
        return any(phrase in folded and contains_phrase(folded, phrase) for phrase in self.phrases)

    @cached_property
    def gold_phrases(self) -> tuple[str, ...]:
        """The phrases of the gold claim, folded."""
        return claim_phrases(self.gold_claim) if self.gold_claim else ()

    @cached_property
    def ids(self) -> frozenset[str]:
        """The gold ids."""
        return frozenset(self.citations or ())

    @cached_property
    def _by_stem(self) -> dict[str, list[str]]:
        by_stem: dict[str, list[str]] = {}
        for name in sorted(self.ids):
            by_stem.setdefault(folded_parts(name).stem, []).append(name)
        return by_stem

    def may_name(self, names: Iterable[str]) -> bool:
        """Whether one of some ids may differ from a gold id in form alone; a wrong one rarely does."""
        text = folded("\n".join([name for name in names if len(name) <= LONGEST]))
        return any(stem in text for stem in self._by_stem)

    def named(self, name: str) -> list[tuple[str, frozenset[IdForm]]]:
        """The gold ids that an id is, or differs from in form alone, with what it differs in.

        >>> GoldItem("a", "Why?", answerable=True, citations=["page-7"]).named("page-7#0")
        [('page-7', frozenset({'prefix'}))]
        """
        if name in self.ids:
            return [(name, frozenset())]
        if len(name) > LONGEST or EXACT in self.id_forms:
            return []
        golds = self._by_stem.get(folded_parts(name).stem, ())
        return [(gold, forms) for gold in golds if (forms := needed(name, gold)) is not None]

    @cached_property
    def texts_by_id(self) -> dict[str, frozenset[str]]:
        """The gold texts of each gold id; empty where it is not known which belong to which."""
        citations, contexts = self.citations or (), self.contexts or ()
        by_id: dict[str, frozenset[str]] = {}
        if len(citations) == len(contexts):
            for name, text in zip(citations, contexts, strict=True):
                by_id[name] = by_id.get(name, frozenset()) | ({normalise_context(text)} - {""})
        return by_id

    @cached_property
    def texts(self) -> frozenset[str]:
        """The gold texts, normalised."""
        return frozenset(filter(None, (normalise_context(text) for text in self.contexts or ())))

    @cached_property
    def offers(self) -> int:
        """What the item provides, as bits."""
        if not self.answerable:
            return GOLD
        flags = GOLD | ANSWERABLE
        if self.phrases:
            flags |= HAS_PHRASES
        if self.gold_phrases:
            flags |= HAS_GOLD_CLAIM
        if self.ids:
            flags |= HAS_GOLD_IDS | HAS_RELEVANT
        elif self.sections:
            flags |= HAS_RELEVANT | TOTAL_UNKNOWN
        elif self.texts:
            flags |= HAS_RELEVANT | BY_TEXT
        return flags

    def content(self) -> dict[str, object]:
        """The fields of the item, without the set it belongs to; absent fields are left out."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in _OF_SET}
        return {key: value for key, value in values.items() if value or value is False or value == []}

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of the canonical content of the item: items with the same fingerprint are the same question."""
        return hashlib.sha256(_CANONICAL.encode(self.content())).hexdigest()

    def in_set(self, name: str, version: str, tags: Mapping[str, str], id_forms: Sequence[IdForm] = ()) -> GoldItem:
        """The item in a gold set. What was computed from its content is not computed again.

        Args:
            name: The set.
            version: The version of the set.
            tags: The tags of the set; those of the item come before them.
            id_forms: What ids may differ in.

        >>> item = GoldItem("a", "Why?", answerable=False, tags={"lang": "en"})
        >>> item.in_set("ferry", "1f2e", {"lang": "de", "area": "fares"}).tags == {"lang": "en", "area": "fares"}
        True
        """
        both = {**tags, **self.tags}
        item = object.__new__(type(self))
        item.__dict__.update(self.__dict__)
        item.__dict__.update(set_name=name, set_version=version, tags=both, id_forms=id_forms)
        if both != self.tags:
            item.__dict__.pop("fingerprint", None)
        return item
