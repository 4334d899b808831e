"""Named, versioned sets of gold items: the index that finds the item of a record, frozen sets, checks, differences.

A question that no file lists may match the gold item with the nearest embedding. The similarity threshold is calibrated
on the set itself: paraphrases against the questions of other items. A frozen gold set holds the signed fingerprints of
all items as they were approved; a set that differs is rejected.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from ragmon.config.gates import PRESETS
from ragmon.config.settings import GoldSpec, PipelineSettings, Settings
from ragmon.core import constants
from ragmon.core.errors import GoldError, RagmonError, shorten
from ragmon.core.gold_item import GoldItem, Match
from ragmon.core.ids import IdForm
from ragmon.core.policy import Gate
from ragmon.core.process import keyed_hash, read_key, without_collector
from ragmon.core.record import Record, is_redacted
from ragmon.core.text import ANYWHERE, contains_phrase, normalise_question
from ragmon.ingest.tables import USUAL, Frame, TableOptions, frame_table
from ragmon.metrics.base import parse
from ragmon.metrics.builtin import STOP_WORDS
from ragmon.stats.intervals import needed_for_pass, wilson

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

    Matrix = NDArray[float64]

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
        id_forms: What ids may differ in from gold ids: `casefold`, `prefix`, `path`, or `exact`.

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
    id_forms: Sequence[IdForm] = ()

    def __post_init__(self) -> None:
        duplicate = next((qid for qid, count in Counter(item.qid for item in self.items).items() if count > 1), None)
        if duplicate is not None:
            hint = "qids are permanent: give one question a new one"
            raise GoldError("qid appears twice", path=self.name, value=duplicate, hint=hint)
        version = self.short_version
        items = (item.in_set(self.name, version, self.tags, self.id_forms) for item in self.items)
        object.__setattr__(self, "items", tuple(items))

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
        """Read gold files strictly: all are accepted or none (`ragmon.ingest.gold_files` lists the shapes).

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
        # An application that reads no gold loads no reader.
        from ragmon.ingest.gold_files import RowReader, as_paths, read_items, set_name  # noqa: PLC0415 - as above

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
        from ragmon.ingest.gold_files import JsonLocation, RowReader  # noqa: PLC0415 - as above

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

    Where two sets hold the same question, the first one wins. The secrets of question hashes are by pipeline, for all
    other pipelines under None; without a key, hashes match nothing.
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
    """The items that records of one pipeline and source may match."""

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
            return self.by_question.get(normalise_question(record.q)) if self.by_question else None
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
        is_paraphrase = normalise_question(record.q) in self._paraphrases
        return constants.BY_PARAPHRASE if is_paraphrase else constants.BY_QUESTION

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


Embed = Callable[[list[str]], Sequence[Sequence[float]]]
PRECISION: Final = 0.99
"""Share of the pairs above the threshold that must belong to the same item."""
_ROWS: Final = 256
"""Wordings that are compared with all others in one matrix product."""
_LEVELS: Final = 1001


@dataclass(frozen=True)
class Calibration:
    """The least cosine similarity of a match, or why there is none, and its evidence.

    Attributes:
        pairs: The number of paraphrases, each compared with the other wordings of its item.
        others: The number of comparisons of a wording with another item.
        kept: Share of the paraphrases above the threshold.
    """

    threshold: float | None
    pairs: int
    others: int
    kept: float = 0.0
    reason: str = ""


class Nearest:
    """Finds the item with the wording nearest to a question."""

    def __init__(self, gold: GoldSet, embed: Embed) -> None:
        try:
            import numpy as np  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise RagmonError(f"[gold.{gold.name}] embed needs numpy", hint="pip install 'ragmon[embed]'") from error
        self._np = np
        self.gold = gold
        self._embed = embed
        wordings = {}
        for item in gold:
            # The question and its paraphrases, each wording once.
            by_key = {normalise_question(text): text for text in reversed((item.question, *item.paraphrases))}
            by_key.pop("", None)
            wordings[item] = tuple(reversed(by_key.values()))
        self._items = [item for item, words in wordings.items() if words]
        texts = [text for item in self._items for text in wordings[item]]
        sizes = [len(wordings[item]) for item in self._items]
        self._starts = np.cumsum([0, *sizes[:-1]]) if sizes else np.zeros(0, dtype=int)
        self._owner = np.repeat(np.arange(len(sizes)), sizes)
        self._vectors = self._unit_vectors(texts)
        self.calibration = self._calibrate()

    def find(self, question: str) -> GoldItem | None:
        """The nearest item, if its similarity reaches the threshold."""
        if self.calibration.threshold is None or not normalise_question(question):
            return None
        similarities = self._vectors @ self._unit_vectors([question])[0]
        best = int(similarities.argmax())
        matches = float(similarities[best]) >= self.calibration.threshold
        return self._items[int(self._owner[best])] if matches else None

    def _unit_vectors(self, texts: list[str]) -> Matrix:
        """The vectors of texts, scaled to length 1; a zero vector stays zero and is similar to nothing."""
        np = self._np
        if not texts:
            empty: Matrix = np.zeros((0, 1))
            return empty
        vectors = np.asarray(self._embed(list(texts)), dtype=np.float64)
        if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
            raise ValueError(f"embed made {vectors.shape} of {len(texts)} texts, not one vector of finite numbers each")
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        units: Matrix = vectors / np.where(lengths > 0, lengths, 1.0)
        return units

    def _calibrate(self) -> Calibration:
        """Find the smallest threshold at which at least 99 % of matches are of one item, by Wilson's lower bound.

        Every wording is compared with every other item, although a question matches at most one, so the error is
        overestimated.
        """
        np = self._np
        paraphrases: list[Matrix] = [np.zeros(0)]
        levels = np.linspace(0.0, 1.0, _LEVELS)
        above = np.zeros(len(levels) + 1, dtype=int)
        other_count = 0
        for start in range(0, len(self._owner), _ROWS):
            # Of each wording: the nearest other wording of its item, and the nearest wording of every other item.
            block = self._vectors[start : start + _ROWS] @ self._vectors.T
            rows = np.arange(len(block))
            block[rows, start + rows] = -1.0
            by_item = np.maximum.reduceat(block, self._starts, axis=1)
            owner = self._owner[start : start + _ROWS]
            own = by_item[rows, owner].copy()
            by_item[rows, owner] = -1.0
            paraphrases.append(own[~np.isin(start + rows, self._starts)])
            other_count += by_item.size - len(by_item)
            above += np.bincount(np.searchsorted(levels, by_item.ravel(), side="right"), minlength=len(levels) + 1)
        same: Matrix = np.concatenate(paraphrases)
        wrong_above = above[::-1].cumsum()[::-1][1:]
        for level, wrong in zip(levels.tolist(), wrong_above.tolist(), strict=True):
            right = int((same >= level).sum())
            if wilson(right, right + wrong)[0] >= PRECISION:
                return Calibration(level, len(same), other_count, right / len(same))
        percent = f"{100 * PRECISION:.0f} %"
        reason = f"no similarity tells paraphrases from other items' questions with {percent} precision"
        needed = needed_for_pass(PRECISION, at_least=True) or 0
        if len(same) < needed:
            reason = f"{len(same)} paraphrases: {needed} are needed to show that {percent} of matches are right"
        return Calibration(None, len(same), other_count, reason=reason)


KIND: Final = "ragmon-gold"
FROZEN_VERSION: Final = 1
HMAC: Final = "hmac-sha256"
DIGEST: Final = "sha256"
NAMED: Final = 5
_FREEZE_HINT: Final = "write it with `ragmon gold freeze GOLD --output FILE`"


class FrozenGoldSet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A gold set as it was frozen: its number of items, and their fingerprints by qid."""

    name: str
    version: str
    items: int
    fingerprints: dict[str, str]
    signed: str


def freeze(gold: GoldSet, key: bytes | None = None) -> dict[str, Any]:
    """A gold set, without tags from a configuration, as plain JSON data that holds none of its text.

    It is signed with the key (HMAC-SHA256, RFC 2104); without one, a plain digest detects only accidental changes.

    >>> from ragmon.core.gold_item import GoldItem
    >>> freeze(GoldSet("g", (GoldItem("a", "Why?", answerable=False),)))["items"]
    1
    """
    body = {
        "kind": KIND,
        "v": FROZEN_VERSION,
        "name": gold.name,
        "version": gold.version,
        "items": len(gold),
        "fingerprints": {item.qid: item.fingerprint for item in sorted(gold, key=lambda item: item.qid)},
        "signed": DIGEST if key is None else HMAC,
    }
    return {**body, "signature": _signature(body, key)}


def is_frozen(path: str | Path) -> bool:
    """Whether a file is a frozen gold set rather than a gold file."""
    try:
        data = json.loads(Path(path).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(data, dict) and data.get("kind") == KIND


def read_frozen(path: str | Path, key: bytes | None = None) -> FrozenGoldSet:
    """Read a frozen gold set and check its signature: with the key, or that it is signed without a key."""
    try:
        data = json.loads(Path(path).read_bytes())
    except OSError as error:
        message = f"the frozen gold set cannot be read ({error.strerror})"
        raise GoldError(message, path=str(path), hint=_FREEZE_HINT) from error
    except (ValueError, RecursionError) as error:
        raise GoldError("the frozen gold set is not JSON", path=str(path), hint=_FREEZE_HINT) from error
    if not isinstance(data, dict) or data.get("kind") != KIND or data.get("v") != FROZEN_VERSION:
        raise GoldError("this is not a frozen gold set", path=str(path), hint=_FREEZE_HINT)
    # Reject a file whose signature does not match its content.
    signed = data.get("signed")
    if key is None and signed == HMAC:
        raise GoldError("the frozen gold set is signed, and there is no key", path=str(path), hint="name its key_file")
    if key is not None and signed != HMAC:
        hint = "freeze it with the key: `ragmon gold freeze GOLD --output FILE --key-file KEY`"
        raise GoldError("the frozen gold set is not signed, and there is a key", path=str(path), hint=hint)
    body = {name: value for name, value in data.items() if name != "signature"}
    if not hmac.compare_digest(str(data.get("signature")).encode(), _signature(body, key).encode()):
        problem = "was changed after it was frozen" if key is None else "was changed, or signed with another key"
        raise GoldError(f"the frozen gold set {problem}", path=str(path), hint=_FREEZE_HINT)
    try:
        return msgspec.convert({k: v for k, v in data.items() if k not in ("kind", "v", "signature")}, FrozenGoldSet)
    except msgspec.ValidationError as error:
        raise GoldError(f"the frozen gold set holds what none can ({error})", path=str(path)) from error


def check(gold: GoldSet, frozen: FrozenGoldSet, *, at: str, file: str, with_key: bool = False) -> None:
    """Reject a gold set that differs from the frozen one."""
    if (gold.version, len(gold)) == (frozen.version, frozen.items):
        return
    command = f"`ragmon gold freeze {at} --output {file}{' --key-file KEY' if with_key else ''}`"
    hint = f"put the frozen version back, or read `ragmon gold diff {file} {at}` and freeze it again: {command}"
    found = diff(frozen, gold)
    kinds = {"added": found.added, "removed": found.removed, "changed": [change.qid for change in found.changed]}
    differences = []
    for kind, qids in kinds.items():
        if qids:
            more = f" and {len(qids) - NAMED} more" if len(qids) > NAMED else ""
            differences.append(f"{kind} {', '.join(shorten(qid) for qid in qids[:NAMED])}{more}")
    raise GoldError(f"differs from {file}: {'; '.join(differences)}", path=at, hint=hint)


def _signature(body: Mapping[str, Any], key: bytes | None) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(canonical).hexdigest() if key is None else hmac.digest(key, canonical, "sha256").hex()


_log: Final = logging.getLogger("ragmon")


def load_gold(specs: Sequence[GoldSpec]) -> tuple[GoldSet, ...]:
    """Read the gold sets of a configuration."""
    with without_collector():
        return tuple(
            GoldSet(gold.name, gold.items, spec.pipeline, spec.use, spec.tags, spec.ids)
            for spec, gold in ((spec, read_gold(spec)) for spec in specs)
        )


def gold_of(settings: Settings, paths: Sequence[str | Path], tables: TableOptions = USUAL) -> tuple[GoldSet, ...]:
    """The gold set of some files; without files, the gold sets of the configuration.

    Files that the configuration declares as a gold set are loaded as that set: with its name, pipeline and tags.
    """
    if not paths:
        return load_gold(settings.gold)
    files = [Path(path).resolve() for path in paths]
    configured = [spec for spec in settings.gold if [path.resolve() for path in spec.path] == files]
    if configured:
        return load_gold(configured)
    name, options = "gold" if len(paths) > 1 else None, replace(tables, columns={})
    return (GoldSet.load(list(paths), name, options=options),)


def read_gold(spec: GoldSpec) -> GoldSet:
    """The items of a gold set as in its files, for any pipeline and use."""
    gold = GoldSet.load(list(spec.path), spec.name, match=spec.match)
    if spec.frozen is not None:
        key = None if spec.key_file is None else read_key(spec.key_file, f"[gold.{spec.name}] key_file")
        files = " ".join(str(path) for path in spec.path)
        check(gold, read_frozen(spec.frozen, key), at=files, file=str(spec.frozen), with_key=key is not None)
    return gold


def without_broken_gold(settings: Settings) -> Settings:
    """The settings without the gold sets and gold files that cannot be read."""
    gold = tuple(spec for spec in settings.gold if _can_be_read(partial(read_gold, spec)))

    def usable(pipeline: PipelineSettings) -> PipelineSettings:
        path = pipeline.capture.gold
        if path is None or _can_be_read(lambda: GoldSet.load(path)):
            return pipeline
        return pipeline.model_copy(update={"capture": pipeline.capture.model_copy(update={"gold": None})})

    pipelines = {name: usable(pipeline) for name, pipeline in settings.pipelines.items()}
    return replace(settings, gold=gold, unconfigured=usable(settings.unconfigured), pipelines=pipelines)


def _can_be_read(read: Callable[[], object]) -> bool:
    try:
        read()
    except RagmonError:
        return False
    return True


def hash_keys(settings: Settings) -> dict[str | None, bytes]:
    """The keys of question hashes by pipeline (None: all other pipelines), as far as this process can read them.

    Without a key, hashed questions match nothing, and are counted as such.
    """
    pipelines: list[tuple[str | None, PipelineSettings]] = [(None, settings.unconfigured), *settings.pipelines.items()]
    files = {name: file for name, pipeline in pipelines if (file := pipeline.capture.hash_key_file) is not None}
    keys: dict[Path, bytes] = {}
    for file in sorted({*files.values()}):
        try:
            keys[file] = read_key(file, "[capture] hash_key_file")
        except RagmonError as error:
            _log.warning("hashed questions match no gold item: %s", error)
    return {name: keys[file] for name, file in files.items() if file in keys}


Severity = Literal["error", "warning", "info"]

SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "info")
"""The worst first."""

_UNDER_REFUSAL: Final = "under_refusal_rate"
"""The one metric of unanswerable questions."""


@dataclass(frozen=True, slots=True)
class LintFinding:
    """One problem of an item, or of the set as a whole: a contradiction is an error, what measures less a warning."""

    qid: str | None
    severity: Severity
    message: str
    hint: str


def lint(gold: GoldSet, gates: Sequence[Gate] = PRESETS["default"]) -> list[LintFinding]:
    """Check a gold set; the worst findings come first, within a severity grouped by kind.

    `gates` are those that the set should be large enough to prove.

    >>> [finding.message for finding in lint(GoldSet("g", (GoldItem("a", "Why?", True, ["so"], None, ["d1"]),)))][-1]
    'all substrings are shorter than 5 characters'
    """
    findings = [*_contradictions(gold), *_too_few_items(gold, gates)]
    findings += [*_missing_fields(gold), *_useless_substrings(gold)]
    return sorted(dict.fromkeys(findings), key=lambda finding: SEVERITIES.index(finding.severity))


def _contradictions(gold: GoldSet) -> Iterator[LintFinding]:
    for item in gold:
        common_ids = sorted(item.ids.intersection(item.negatives))
        if common_ids:
            hint = "an id is either gold or a negative: remove it from one list"
            yield LintFinding(item.qid, "error", f"negatives that are also gold: {shorten(common_ids)}", hint)
    questions = [(item, item.question, "question") for item in gold]
    paraphrases = [(item, wording, "paraphrase") for item in gold for wording in item.paraphrases]
    owners: dict[str, GoldItem] = {}
    for item, wording, kind in questions + paraphrases:
        key = normalise_question(wording)
        owner = owners.setdefault(key, item)
        if key and owner is not item:
            message = f"{kind} {shorten(wording)} is also asked by {shorten(owner.qid)}"
            if owner.answerable == item.answerable:
                hint = "its text matches neither item: reword one, or send the qid"
                yield LintFinding(item.qid, "warning", message, hint)
            else:
                message += ", and only one of them is answerable"
                hint = "no answer is right for both: keep one, or tell them apart"
                yield LintFinding(item.qid, "error", message, hint)


def _too_few_items(gold: GoldSet, gates: Sequence[Gate]) -> Iterator[LintFinding]:
    answerable = len(_answerable(gold))
    for gate in sorted(gates, key=lambda gate: gate.metric == _UNDER_REFUSAL):
        metric = parse(gate.metric) if gate.kind == "threshold" else None
        if metric is None or not metric.needs_gold or metric.labelled:
            continue
        sign, limit = ">=" if gate.at_least else "<=", gate.threshold
        kind, count = "answerable", answerable
        if gate.metric == _UNDER_REFUSAL:
            kind, count = "unanswerable", len(gold) - answerable
        needed = needed_for_pass(limit, at_least=gate.at_least)
        if needed is not None and count < needed:
            message = f"too few {kind} items to prove {gate.metric} {sign} {limit:.2f}: {count}, {needed} are needed"
            hint = f"even a flawless run over fewer than {needed} cannot prove it"
            yield LintFinding(None, "warning", message, hint)


def _missing_fields(gold: GoldSet) -> Iterator[LintFinding]:
    for item in gold:
        fields = {
            "gold_claim_substr": item.claim_substrings,
            "gold_claim": item.gold_claim,
            "gold_citations": item.citations,
            "gold_contexts": item.contexts,
        }
        present = [name for name, value in fields.items() if value]
        if present and not item.answerable:
            hint = "its only right answer is a refusal: remove them, or set answerable to true"
            yield LintFinding(item.qid, "warning", f"unanswerable, with {' and '.join(present)}", hint)
    answerable = _answerable(gold)
    message = "no gold_claim_substr, answer_precision stays unassessed"
    hint = 'name a phrase every right answer contains: ["rejects null keys"]'
    lacking = [item for item in answerable if not item.phrases]
    yield from _per_item(LintFinding(None, "warning", message, hint), lacking, answerable)
    message = "no gold_citations, answer_precision and citation_hit_rate stay unassessed"
    hint = 'name the documents that hold the answer: ["p1#2"]'
    lacking = [item for item in answerable if not item.ids]
    yield from _per_item(LintFinding(None, "warning", message, hint), lacking, answerable)
    hint = "it is matched only by its qid, and no probe can ask it"
    lacking = [item for item in gold if not normalise_question(item.question)]
    yield from _per_item(LintFinding(None, "info", "no question text", hint), lacking, gold.items)


def _per_item(finding: LintFinding, items: Sequence[GoldItem], out_of: Sequence[GoldItem]) -> Iterator[LintFinding]:
    """The finding once for each item, or once for the set where it applies to all of several items."""
    if 1 < len(items) == len(out_of):
        kind = "answerable " if all(item.answerable for item in items) else ""
        yield replace(finding, message=f"all {len(items)} {kind}items: {finding.message}")
        return
    for item in items:
        yield replace(finding, qid=item.qid)


_WEAK: Final = STOP_WORDS | {"yes", "no", "none", "true", "false"}


def _useless_substrings(gold: GoldSet) -> Iterator[LintFinding]:
    for item in _answerable(gold):
        if item.phrases and all(len(phrase) < ANYWHERE for phrase in item.claim_substrings or ()):
            hint = "ragmon matches them at word boundaries; the published seed 000 scorer can never match them"
            yield LintFinding(item.qid, "info", f"all substrings are shorter than {ANYWHERE} characters", hint)
    for item in _answerable(gold):
        for phrase in item.phrases:
            if len(phrase) == 1 or (len(phrase) == 2 and phrase.isdecimal()) or phrase in _WEAK:
                message = f"substring {shorten(phrase)} is in many wrong answers as well"
                hint = 'a phrase that only a right answer contains: not "7", but "7 days"'
                yield LintFinding(item.qid, "warning", message, hint)
    for item in _answerable(gold):
        pairs = (
            (longer, shorter)
            for i, longer in enumerate(item.phrases)
            for j, shorter in enumerate(item.phrases)
            if i != j and contains_phrase(longer, shorter) and (longer != shorter or i > j)
        )
        for longer, shorter in islice(pairs, 1):
            message = f"substring {shorten(longer)} contains {shorten(shorter)}"
            hint = "any of them makes the claim right: the longer one adds nothing"
            yield LintFinding(item.qid, "info", message, hint)


def _answerable(gold: GoldSet) -> list[GoldItem]:
    return [item for item in gold if item.answerable]


MUTATED: Final = "mutated: qids are permanent, give it a new one"
"""The message for a qid whose question changed: its scores before and after are about different questions."""

_FILE_NAMES: Final = {
    "claim_substrings": "gold_claim_substr",
    "citations": "gold_citations",
    "contexts": "gold_contexts",
}
"""The names of fields in gold files, where they are different."""


@dataclass(frozen=True, slots=True)
class ItemChange:
    """An item both versions have, with the names of the fields that differ.

    The names are those of gold files. A frozen set holds only fingerprints, so its changes have no names.
    """

    qid: str
    fields: tuple[str, ...]

    @property
    def mutated(self) -> bool:
        """Whether the qid now names another question."""
        return "question" in self.fields


@dataclass(frozen=True, slots=True)
class Diff:
    """The difference of two versions: qids in the order of their version, changed items in the new order."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[ItemChange, ...]
    unchanged: int
    old_version: str
    new_version: str

    @property
    def same(self) -> bool:
        """Whether both versions have the same content."""
        return self.old_version == self.new_version


def diff(old: GoldSet | FrozenGoldSet, new: GoldSet | FrozenGoldSet) -> Diff:
    """Compare two versions of a gold set; the order of items does not matter.

    >>> one, two = (GoldItem("a", question, answerable=False) for question in ("Why?", "How?"))
    >>> diff(GoldSet("g", (one,)), GoldSet("g", (two,))).changed
    (ItemChange(qid='a', fields=('question',)),)
    """
    before, after = _fingerprints(old), _fingerprints(new)
    common = [qid for qid in after if qid in before]
    items: list[dict[str, GoldItem]] = []
    if isinstance(old, GoldSet) and isinstance(new, GoldSet):
        items = [{item.qid: item for item in gold} for gold in (old, new)]
    changed = []
    for qid in common:
        if before[qid] != after[qid]:
            fields: tuple[str, ...] = ()
            if items:
                was, now = (_content(by_qid[qid]) for by_qid in items)
                fields = tuple(_FILE_NAMES.get(name, name) for name in {**was, **now} if was.get(name) != now.get(name))
            changed.append(ItemChange(qid, fields))
    return Diff(
        added=tuple(qid for qid in after if qid not in before),
        removed=tuple(qid for qid in before if qid not in after),
        changed=tuple(changed),
        unchanged=len(common) - len(changed),
        old_version=old.version,
        new_version=new.version,
    )


def _fingerprints(gold: GoldSet | FrozenGoldSet) -> Mapping[str, str]:
    return gold.fingerprints if isinstance(gold, FrozenGoldSet) else {item.qid: item.fingerprint for item in gold}


def _content(item: GoldItem) -> dict[str, object]:
    """The content with lists as tuples: both kinds have the same fingerprint, so they count as equal."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in item.content().items()}
