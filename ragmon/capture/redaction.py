"""How much of a record's text may leave the process.

| field | none | hash | redacted | full |
|---|---|---|---|---|
| q, claim, contexts | dropped | dropped | redacted | as it is |
| citations of documents that were not retrieved, tags, error | redacted | redacted | redacted | as it is |
| qid, session | as it is | as it is | redacted, or hashed where a key is given | as it is |
| ids of documents, index and build, times, scores, the names of tags | as it is | as it is | as it is | as it is |
| facts: lengths, decisions, measured scores | yes | yes | where redaction changed a text | no |
| facts: hash of the question | with a key | yes | as the facts, with a key | no |
| facts: hashes of claim and contexts | no | yes | no | no |

A citation of something nobody retrieved is the model's own wording. Ids are the application's: one that is made of what
users typed, as a session's may be, calls for `redacted`. A document's id is what gold is compared with, and stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Literal, NamedTuple

import msgspec

from ragmon.capture.call import count_value
from ragmon.capture.pii import redact
from ragmon.core import constants
from ragmon.core.errors import RagmonError
from ragmon.core.gold_item import GoldItem
from ragmon.core.log import warn_once, whereabouts
from ragmon.core.private_files import KEY_BYTES, keyed_hash
from ragmon.core.record import Answer, Record, TextFacts
from ragmon.core.text import normalise_question
from ragmon.gold import GoldIndex
from ragmon.metrics import facts as bits
from ragmon.metrics.base import Metric
from ragmon.metrics.facts import FactReader
from ragmon.metrics.grounding import DEFAULT_THRESHOLD, Groundedness

Content = Literal["none", "hash", "redacted", "full"]
Redactor = Callable[[str], str]
WITHHELD: Final = "[withheld]"
"""Stands for what a failed redactor would have had to clear."""


class _Treatment(NamedTuple):
    """What becomes of the parts of a record; a part for which there is None is dropped.

    Attributes:
        text: Of q, claim and contexts.
        label: Of tags, the error and citations of what was not retrieved.
        name: Of qid and session.
    """

    text: Callable[[str], str] | None
    label: Callable[[str], str | None]
    name: Callable[[str], str | None]


_WITHHOLD: Final = _Treatment(text=None, label=lambda _: None, name=lambda _: None)


class _NoTextError(TypeError):
    """A redactor returned something else; says which one, and quotes nothing."""


@dataclass(frozen=True)
class Redaction:
    """What of one pipeline's records may leave the process (the module's table).

    Where a redactor fails, the record goes without text, tags, qid and session, and is counted: `failed`.

    Args:
        content: Of user traffic.
        probe_content: Of probes; gold questions are not user data.
        gold: The gold sets, if the application has them: without text a record names its item, and the facts say
            whether the claim contains its gold claim.
        facts: The refusal rule.
        grounded_threshold: From which groundedness an answer counts as grounded.
        measured: The metrics that read text.
        key: The secret of keyed hashes, shared by replicas and monitor.
        redactors: The application's own, applied after the built-in patterns.

    Raises:
        RagmonError: `hash` without a key, or a key that is too short.
    """

    content: Content = "none"
    probe_content: Content = "full"
    gold: GoldIndex = field(default_factory=GoldIndex)
    facts: FactReader = field(default_factory=FactReader)
    grounded_threshold: float = DEFAULT_THRESHOLD
    measured: tuple[Metric, ...] = ()
    key: bytes | None = field(default=None, repr=False)
    redactors: Sequence[Redactor] = ()
    _failed: count[int] = field(default_factory=count, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        hint = f"let capture.hash_key_file name a file of at least {KEY_BYTES} random bytes"
        if self.key is None and "hash" in (self.content, self.probe_content):
            raise RagmonError('content "hash" has no key', hint=hint)
        if self.key is not None and len(self.key) < KEY_BYTES:
            raise RagmonError(f"the hash key is too short: {len(self.key)} bytes", hint=hint)

    @property
    def failed(self) -> int:
        """Records that lost their text because a redactor failed."""
        return count_value(self._failed)

    def __call__(self, record: Record) -> Record:
        """The record without what the policy keeps back."""
        content = self._content(record)
        if content == "full":
            return record
        item = self.gold.match(record)
        try:
            shown = _treated(record, item, self._treatment(content))
        except BaseException as error:  # noqa: BLE001 - some of them are written in Rust, whose panics are no Exception
            self._count(record, error)
            content, shown = "none", _treated(record, item, _WITHHOLD)
        if item is not None and record.qid != item.qid:
            shown.matched = self.gold.how(record)
        changed = _changed(record, shown) if content == "redacted" else None
        if changed == []:
            return shown
        measures = self._measures(record, item)
        told = self._facts(record, item, measures, hashed=content == "hash")
        told.redacted = changed
        return msgspec.structs.replace(shown, facts=told, measures=measures or None)

    def cleared(self, record: Record) -> Record:
        """The record as judges see it: redacted where it will leave so, or without text where that fails; else all.

        What fails is counted when the record itself leaves.
        """
        if self._content(record) != "redacted":
            return record
        item = self.gold.match(record)
        try:
            return _treated(record, item, self._treatment("redacted"))
        except BaseException:  # noqa: BLE001 - as above
            return _treated(record, item, _WITHHOLD)

    def _content(self, record: Record) -> Content:
        return self.probe_content if record.source == constants.PROBE else self.content

    def _treatment(self, content: Content) -> _Treatment:
        if content == "redacted":
            return _Treatment(text=self._clear, label=self._clear, name=self._alias)
        return _Treatment(text=None, label=self._clear, name=lambda name: name)

    def _clear(self, text: str) -> str:
        """A text without personal data, as far as patterns and the application's redactors know it."""
        text = redact(text)
        for redactor in self.redactors:
            found: object = redactor(text)
            if not isinstance(found, str):
                named = getattr(redactor, "__qualname__", type(redactor).__name__)
                raise _NoTextError(f"{named} returned {type(found).__name__} instead of str")
            text = found.encode("utf-8", "replace").decode()  # half a surrogate pair and a subclass cannot be written
        return text

    def _alias(self, name: str) -> str:
        """A name that tells no more than whether two are the same, in place of one that holds personal data."""
        cleared = self._clear(name)
        return cleared if cleared == name or self.key is None else keyed_hash(self.key, name)

    def _count(self, record: Record, error: BaseException) -> None:
        next(self._failed)
        reason = str(error) if isinstance(error, _NoTextError) else whereabouts(error)
        pipeline = record.pipeline or constants.DEFAULT_PIPELINE
        warn_once(f"redaction for {pipeline} failed, and such records go without text: {reason}")

    def _measures(self, record: Record, item: GoldItem | None) -> dict[str, float]:
        """The scores that need the text; one that was measured already stands."""
        found = dict(record.measures or {})
        for metric in self.measured:
            score = None if metric.key in found else metric.measure(record, item)
            if score is not None and math.isfinite(score):
                found[metric.key] = score
        return found

    def _facts(
        self, record: Record, item: GoldItem | None, measures: Mapping[str, float], *, hashed: bool
    ) -> TextFacts:
        """What is to be known of the text where the text is not; what was decided before stands."""
        claim, told = _claim(record), record.facts
        told = self._decisions(record, item, measures) if claim is not None or told is None else told
        return msgspec.structs.replace(told, **_sizes(record), **self._hashes(record, hashed=hashed))

    def _decisions(self, record: Record, item: GoldItem | None, measures: Mapping[str, float]) -> TextFacts:
        """What the claim says, as the reader would read it."""
        flags = self.facts.read(record, item)[0]
        score, before = measures.get(Groundedness.name), record.facts
        told = TextFacts(grounded=before.grounded if before is not None else None)
        if score is not None:
            told.grounded = score >= self.grounded_threshold
        if not flags & (bits.ERROR | bits.OUTCOME_UNKNOWN):
            told.answered = bool(flags & (bits.SHIPPED | bits.REFUSED))
        if flags & bits.TEXT:
            told.refused = bool(flags & bits.REFUSED)
            told.refusal_like = bool(flags & bits.REFUSAL_LIKE)
        if item is not None and flags & bits.CLAIM_KNOWN:
            told.gold_version = item.set_version
            unfound = None if flags & bits.CLAIM_CUT else False
            told.contains_claim = True if flags & bits.CONTAINS_CLAIM else unfound
            told.contains_gold_claim = True if flags & bits.CONTAINS_GOLD_CLAIM else unfound
        cuts = {"claim": bits.CLAIM_CUT, "contexts": bits.CONTEXTS_CUT}
        told.cut = [text for text, cut in cuts.items() if flags & cut] or None
        return told

    def _hashes(self, record: Record, *, hashed: bool) -> dict[str, str | list[str]]:
        """What equal texts have in common, as far as a key is given and they are asked for."""
        claim, found = _claim(record), dict[str, str | list[str]]()
        if self.key is not None and record.q is not None:
            found["question_hash"] = keyed_hash(self.key, normalise_question(record.q))
        if self.key is not None and hashed and claim is not None:
            found["claim_hash"] = keyed_hash(self.key, claim)
        if self.key is not None and hashed and record.contexts is not None:
            found["context_hashes"] = [keyed_hash(self.key, context) for context in record.contexts]
        return found


def _claim(record: Record) -> str | None:
    return None if record.answer_json is None else record.answer_json.claim


def _sizes(record: Record) -> dict[str, int]:
    """How long the texts are, those that were captured."""
    claim, contexts = _claim(record), record.contexts
    found = {} if record.q is None else {"question_chars": len(record.q)}
    if claim is not None:
        found["claim_chars"] = len(claim)
    if contexts is not None:
        found |= {"contexts": len(contexts), "context_chars": sum(map(len, contexts))}
    return found


def _changed(record: Record, shown: Record) -> list[str]:
    """The texts that are not what they were."""
    texts = {
        "q": (record.q, shown.q),
        "claim": (_claim(record), _claim(shown)),
        "contexts": (record.contexts, shown.contexts),
    }
    return [name for name, (before, after) in texts.items() if before != after]


def _treated(record: Record, item: GoldItem | None, how: _Treatment) -> Record:
    """A record after treatment; its facts are those it came with.

    Raises:
        BaseException: Whatever a redactor raises.
    """
    answer, contexts, q = record.answer_json, record.contexts, record.q
    if answer is not None:
        claim = None if answer.claim is None or how.text is None else how.text(answer.claim)
        answer = Answer(claim=claim, citations=_citations(record, item, how))
    return msgspec.structs.replace(
        record,
        # The question may be all that tells which gold item was asked.
        qid=item.qid if item is not None else None if record.qid is None else how.name(record.qid),
        q=None if q is None or how.text is None else how.text(q),
        contexts=None if contexts is None or how.text is None else [how.text(context) for context in contexts],
        answer_json=answer,
        error=(how.label(record.error) or WITHHELD) if record.error else record.error,
        session=None if record.session is None else how.name(record.session),
        tags=_tags(record.tags, how),
    )


def _citations(record: Record, item: GoldItem | None, how: _Treatment) -> list[str] | None:
    """The citations; what names no document of this request is text like any other."""
    cited = record.answer_json.citations if record.answer_json is not None else None
    if cited is None:
        return None
    known = {*(record.retrieved_ids or ()), *(record.candidate_ids or ()), *(item.ids if item is not None else ())}
    return [name if name in known or not name else how.label(name) or WITHHELD for name in cited]


def _tags(tags: Mapping[str, str] | None, how: _Treatment) -> dict[str, str] | None:
    if tags is None:
        return None
    return {name: tag for name, found in tags.items() if (tag := how.label(found)) is not None}
