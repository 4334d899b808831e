"""Redaction: which parts of a record may leave the process.

| field | none | hash | redacted | full |
|---|---|---|---|---|
| q, claim, contexts | dropped | dropped | redacted | unchanged |
| citations of documents that were not retrieved, tags, error | redacted | redacted | redacted | unchanged |
| qid, session | unchanged | unchanged | redacted, or hashed if there is a key | unchanged |
| user | redacted, or hashed if there is a key | the same | the same | unchanged |
| ids of documents, index, build, model, times, scores, names of tags | unchanged | unchanged | unchanged | unchanged |
| facts: lengths, decisions, measured scores | yes | yes | if redaction changed a text | no |
| facts: hash of the question | with a key | yes | if redaction changed a text, with a key | no |
| facts: hashes of claim and contexts | no | yes | no | no |

A citation of a document that was not retrieved is the model's own text. Ids belong to the application: if an id
contains user input, as a session id may, choose `redacted`. What names the user is personal data wherever it is no
opaque id, and spans bring it without being asked. A document's id is compared with gold, so it is never
changed.
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
from ragmon.core.errors import RagmonError, error_location, warn_once
from ragmon.core.gold_item import GoldItem
from ragmon.core.process import KEY_BYTES, keyed_hash
from ragmon.core.record import Answer, Record, TextFacts
from ragmon.core.text import normalise_question
from ragmon.ingest.gold import GoldIndex
from ragmon.metrics import facts as bits
from ragmon.metrics.base import Metric
from ragmon.metrics.facts import FactReader
from ragmon.metrics.grounding import DEFAULT_THRESHOLD, Groundedness

Content = Literal["none", "hash", "redacted", "full"]
Redactor = Callable[[str], str]
WITHHELD: Final = "[withheld]"
"""Replaces text that a failed redactor should have redacted."""


class _Treatment(NamedTuple):
    """The functions applied to the parts of a record; a part is dropped if its function is None or returns None.

    Attributes:
        text: For q, claim and contexts.
        label: For tags, the error and citations of documents that were not retrieved.
        name: For qid and session.
        user: For the user.
    """

    text: Callable[[str], str] | None
    label: Callable[[str], str | None]
    name: Callable[[str], str | None]
    user: Callable[[str], str | None]


_WITHHOLD: Final = _Treatment(text=None, label=lambda _: None, name=lambda _: None, user=lambda _: None)


class _NoTextError(TypeError):
    """A redactor returned no string; the message names the redactor and quotes no text."""


@dataclass(frozen=True)
class Redaction:
    """The redaction policy of one pipeline (see the module's table).

    If a redactor fails, the record is sent without text, tags, qid, session and user, and counted in `failed`.

    Args:
        content: Policy of user traffic.
        probe_content: Policy of probes; gold questions are not user data.
        gold: The gold sets, if the application has them: then a record without text names its gold item, and its facts
            say whether the claim contains the gold claim.
        facts: The fact reader, with the refusal rule.
        grounded_threshold: Groundedness from which an answer counts as grounded.
        measured: The metrics that read text.
        key: The secret key of hashes, shared by replicas and monitor.
        redactors: The application's own redactors, applied after the built-in detectors.

    Raises:
        RagmonError: `hash` has no key, or the key is too short.
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
        """The record without the parts that the policy removes."""
        content = self._content(record)
        if content == "full":
            return record
        item = self.gold.match(record)
        try:
            redacted = _apply(record, item, self._treatment(content))
        except BaseException as error:  # noqa: BLE001 - a redactor written in Rust may panic, which is no Exception
            self._count_failure(record, error)
            content, redacted = "none", _apply(record, item, _WITHHOLD)
        if item is not None and record.qid != item.qid:
            redacted.matched = self.gold.how(record)
        changed = _changed_texts(record, redacted) if content == "redacted" else None
        if changed == []:
            return redacted
        measures = self._measures(record, item)
        facts = self._facts(record, item, measures, hashed=content == "hash")
        facts.redacted = changed
        return msgspec.structs.replace(redacted, facts=facts, measures=measures or None)

    def redacted_copy(self, record: Record) -> Record:
        """The record for judges: redacted if the policy is `redacted`, or without text if that fails; else complete.

        A failure is not counted here; it is counted when the record itself is sent.
        """
        if self._content(record) != "redacted":
            return record
        item = self.gold.match(record)
        try:
            return _apply(record, item, self._treatment("redacted"))
        except BaseException:  # noqa: BLE001 - as above
            return _apply(record, item, _WITHHOLD)

    def _content(self, record: Record) -> Content:
        return self.probe_content if record.source == constants.PROBE else self.content

    def _treatment(self, content: Content) -> _Treatment:
        if content == "redacted":
            name = self._redact_name
            return _Treatment(text=self._redact_text, label=self._redact_text, name=name, user=name)
        return _Treatment(text=None, label=self._redact_text, name=lambda name: name, user=self._redact_name)

    def _redact_text(self, text: str) -> str:
        """A text without the personal data that the detectors and the application's redactors find."""
        text = redact(text)
        for redactor in self.redactors:
            redacted: object = redactor(text)
            if not isinstance(redacted, str):
                redactor_name = getattr(redactor, "__qualname__", type(redactor).__name__)
                raise _NoTextError(f"{redactor_name} returned {type(redacted).__name__} instead of str")
            text = redacted.encode("utf-8", "replace").decode()  # a lone surrogate and a str subclass cannot be encoded
        return text

    def _redact_name(self, name: str) -> str:
        """A keyed hash of a name that contains personal data, so that equal names stay equal; other names unchanged."""
        cleared = self._redact_text(name)
        return cleared if cleared == name or self.key is None else keyed_hash(self.key, name)

    def _count_failure(self, record: Record, error: BaseException) -> None:
        next(self._failed)
        reason = str(error) if isinstance(error, _NoTextError) else error_location(error)
        pipeline = record.pipeline or constants.DEFAULT_PIPELINE
        warn_once(f"redaction for {pipeline} failed, and such records go without text: {reason}")

    def _measures(self, record: Record, item: GoldItem | None) -> dict[str, float]:
        """The scores of metrics that need the text; existing scores stay."""
        scores = dict(record.measures or {})
        for metric in self.measured:
            score = None if metric.key in scores else metric.measure(record, item)
            if score is not None and math.isfinite(score):
                scores[metric.key] = score
        return scores

    def _facts(
        self, record: Record, item: GoldItem | None, measures: Mapping[str, float], *, hashed: bool
    ) -> TextFacts:
        """The facts that replace the text; decisions that came with the record stay."""
        claim, facts = _claim(record), record.facts
        facts = self._decisions(record, item, measures) if claim is not None or facts is None else facts
        return msgspec.structs.replace(facts, **_sizes(record), **self._hashes(record, hashed=hashed))

    def _decisions(self, record: Record, item: GoldItem | None, measures: Mapping[str, float]) -> TextFacts:
        """The decisions about the claim, as the fact reader makes them."""
        flags = self.facts.read(record, item)[0]
        score, earlier_facts = measures.get(Groundedness.name), record.facts
        facts = TextFacts(grounded=earlier_facts.grounded if earlier_facts is not None else None)
        if score is not None:
            facts.grounded = score >= self.grounded_threshold
        if not flags & (bits.ERROR | bits.OUTCOME_UNKNOWN):
            facts.answered = bool(flags & (bits.SHIPPED | bits.REFUSED))
        if flags & bits.TEXT:
            facts.refused = bool(flags & bits.REFUSED)
            facts.refusal_like = bool(flags & bits.REFUSAL_LIKE)
        if item is not None and flags & bits.CLAIM_KNOWN:
            facts.gold_version = item.set_version
            if_missing = None if flags & bits.CLAIM_CUT else False
            facts.contains_claim = True if flags & bits.CONTAINS_CLAIM else if_missing
            facts.contains_gold_claim = True if flags & bits.CONTAINS_GOLD_CLAIM else if_missing
        cut_flags = {"claim": bits.CLAIM_CUT, "contexts": bits.CONTEXTS_CUT}
        facts.cut = [text for text, cut in cut_flags.items() if flags & cut] or None
        return facts

    def _hashes(self, record: Record, *, hashed: bool) -> dict[str, str | list[str]]:
        """Keyed hashes of the texts, as far as there is a key and the policy asks for them."""
        claim, hashes = _claim(record), dict[str, str | list[str]]()
        if self.key is not None and record.q is not None:
            hashes["question_hash"] = keyed_hash(self.key, normalise_question(record.q))
        if self.key is not None and hashed and claim is not None:
            hashes["claim_hash"] = keyed_hash(self.key, claim)
        if self.key is not None and hashed and record.contexts is not None:
            hashes["context_hashes"] = [keyed_hash(self.key, context) for context in record.contexts]
        return hashes


def _claim(record: Record) -> str | None:
    return None if record.answer_json is None else record.answer_json.claim


def _sizes(record: Record) -> dict[str, int]:
    """The lengths of the captured texts."""
    claim, contexts = _claim(record), record.contexts
    sizes = {} if record.q is None else {"question_chars": len(record.q)}
    if claim is not None:
        sizes["claim_chars"] = len(claim)
    if contexts is not None:
        sizes |= {"contexts": len(contexts), "context_chars": sum(map(len, contexts))}
    return sizes


def _changed_texts(record: Record, redacted: Record) -> list[str]:
    """The names of the texts that redaction changed."""
    texts = {
        "q": (record.q, redacted.q),
        "claim": (_claim(record), _claim(redacted)),
        "contexts": (record.contexts, redacted.contexts),
    }
    return [name for name, (before, after) in texts.items() if before != after]


def _apply(record: Record, item: GoldItem | None, treatment: _Treatment) -> Record:
    """A record after treatment; its facts are unchanged.

    Raises:
        BaseException: A redactor raised it.
    """
    answer, contexts, q = record.answer_json, record.contexts, record.q
    if answer is not None:
        claim = None if answer.claim is None or treatment.text is None else treatment.text(answer.claim)
        answer = Answer(claim=claim, citations=_citations(record, item, treatment))
    return msgspec.structs.replace(
        record,
        # Without the question's text, the qid must identify the gold item.
        qid=item.qid if item is not None else None if record.qid is None else treatment.name(record.qid),
        q=None if q is None or treatment.text is None else treatment.text(q),
        contexts=None
        if contexts is None or treatment.text is None
        else [treatment.text(context) for context in contexts],
        answer_json=answer,
        error=(treatment.label(record.error) or WITHHELD) if record.error else record.error,
        session=None if record.session is None else treatment.name(record.session),
        user=None if record.user is None else treatment.user(record.user),
        tags=_tags(record.tags, treatment),
    )


def _citations(record: Record, item: GoldItem | None, treatment: _Treatment) -> list[str] | None:
    """The citations; one that is no id of a document of this request is treated as text."""
    citations = record.answer_json.citations if record.answer_json is not None else None
    if citations is None:
        return None
    document_ids = {
        *(record.retrieved_ids or ()),
        *(record.candidate_ids or ()),
        *(item.ids if item is not None else ()),
    }
    return [name if name in document_ids or not name else treatment.label(name) or WITHHELD for name in citations]


def _tags(tags: Mapping[str, str] | None, treatment: _Treatment) -> dict[str, str] | None:
    if tags is None:
        return None
    return {name: tag for name, text in tags.items() if (tag := treatment.label(text)) is not None}
