"""The application that the demo monitors: BM25 retrieval and an extractive answerer that can refuse, all offline.

It finds out what kind of answer a question expects, as question answering did before neural readers: a sentence can
share every word with "how much is …" and still hold no price. The reader then selects the best supported sentence of
the retrieved passages. Support is the share of the question's terms that the evidence covers, weighted by idf.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Final

import ragmon

_WORD: Final = re.compile(r"[^\W_]+(?:[.,:](?=\d)\d+)*(?:'s\b)?")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9])")
_SUFFIX: Final = re.compile(r"(?:ings?|ed|es|e|s)$")
_SHORTEST_STEM: Final = 3

_FUNCTION_WORDS: Final = """
    a about after all also am an and any anyone anything are as at be been before being but by can could did do does
    doing each else ever every for from had has have having he her hers him his how i if in into is it its just like
    many may me might more most much must my no not of on one only or other our out own shall she should so some still
    such than that the their them then there these they this those to too up us very was we were what when where which
    while who whom whose why will with would you your
"""
_LIGHT_WORDS: Final = """
    bring brings call called currently exactly find fit fits found get gets getting give given go goes going got happen
    happens held hold holds keep keeps kept kind let look looks made make makes maximum mean minimum need needs normal
    normally possible ring roughly send sent sort stay stays take taken takes thing things use used usual usually want
"""
_POLITE_WORDS: Final = """
    advance bother excuse good hello hi know morning please question quick say sorry tell thank thanks wonder wondering
"""
STOP_WORDS: Final = frozenset((_FUNCTION_WORDS + _LIGHT_WORDS + _POLITE_WORDS).split())
"""Words that carry no information about the subject of a question."""

_SYNONYMS: Final = (
    "build built building construct",
    "passenger people person traveller",
    "bicycle bike cycle",
    "price cost fare fee",
    "leave leaves left depart departure",
    "child children kid",
    "write written",
    "pay paid",
    "allow permit",
    "start begin began begun",
    "colour color",
    "dog pet",
    "inhabitant resident",
    "freeze froze frozen",
    "burn burnt fire",
    "sale sell sold",
    "lie lies lay laid",
    "car automobile",
)


@cache
def stem(word: str) -> str:
    """The word without its plural or verb ending, so that all forms of a word have one stem.

    >>> stem("ferries") == stem("ferry"), stem("charging") == stem("charges"), stem("stopped") == stem("stops")
    (True, True, True)
    """
    if word[0].isdigit():
        return word
    if word.endswith("ies") and len(word) > len("ties"):
        return word[:-3] + "y"
    stripped = word if word.endswith("ss") else _SUFFIX.sub("", word)
    if len(stripped) < _SHORTEST_STEM:
        return word
    is_doubled = stripped[-1] == stripped[-2] and stripped[-1] not in "lsz" and word.endswith(("ed", "ing"))
    return stripped[:-1] if is_doubled else stripped


_CANONICAL: Final = {stem(word): stem(group.split()[0]) for group in _SYNONYMS for word in group.split()}


def words(text: str) -> list[str]:
    """The words and numbers of a text, folded, without possessive endings."""
    return [word.removesuffix("'s") for word in _WORD.findall(text.casefold().replace("\u2019", "'"))]


def term(word: str) -> str:
    """The term under which a word and its synonyms are indexed."""
    stemmed = stem(word)
    return _CANONICAL.get(stemmed, stemmed)


def terms(text: str) -> list[str]:
    """The content terms of a text, in order and with repetitions.

    >>> terms("How many bikes can the Grey Heron's rack hold?")
    ['bicycl', 'grey', 'heron', 'rack']
    """
    return [term(word) for word in words(text) if word not in STOP_WORDS]


def sentences(text: str) -> list[str]:
    """The sentences of a passage."""
    return _SENTENCE_END.split(text)


_HASH_DIGITS: Final = 8


@dataclass(frozen=True, slots=True)
class Passage:
    """One chunk of the corpus."""

    id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Hit:
    """A retrieved passage."""

    id: str
    score: float
    text: str
    title: str = ""


def load_corpus() -> tuple[Passage, ...]:
    """The handbook that ships with ragmon: an invented harbour town and its ferry line."""
    lines = resources.files(__package__).joinpath("corpus.jsonl").read_text("utf-8").splitlines()
    return tuple(Passage(**json.loads(line)) for line in lines)


_K1: Final = 1.5
_B: Final = 0.75


class Bm25Index:
    """A BM25 index; it never changes once built.

    It scores as Lucene does (Kamphuis et al., "Which BM25 Do You Mean?", ECIR 2020), with k1 = 1.5 and b = 0.75. A
    hundred passages need no library, and the demo runs wherever ragmon is installed.
    """

    def __init__(self, passages: Iterable[Passage]) -> None:
        self.passages = tuple(passages)
        if not self.passages:
            raise ValueError("the corpus is empty\nhint: an index needs at least one passage")
        (id_, count), *_ = Counter(passage.id for passage in self.passages).most_common(1)
        if count > 1:
            raise ValueError(f"passage id appears {count} times: '{id_}'\nhint: every passage needs an id of its own")
        tokens = [terms(f"{passage.title}. {passage.text}") for passage in self.passages]
        self._postings = _postings(tokens)
        content = json.dumps([(passage.id, passage.text) for passage in self.passages], ensure_ascii=False)
        self.hash = hashlib.sha256(content.encode()).hexdigest()[:_HASH_DIGITS]

    def search(self, question: str, k: int) -> list[Hit]:
        """The k best passages that share a term with the question, best first; equal scores in corpus order."""
        scores: dict[int, float] = {}
        for query_term in terms(question):
            idf = self.idf(query_term)
            for position, weight in self._postings.get(query_term, {}).items():
                scores[position] = scores.get(position, 0.0) + idf * weight
        ranked = sorted(scores, key=lambda position: (-scores[position], position))[:k]
        results = [(self.passages[position], scores[position]) for position in ranked]
        return [Hit(passage.id, score, passage.text, passage.title) for passage, score in results]

    def idf(self, term: str) -> float:
        """Inverse document frequency in nats, ln(1 + (N - n + 0.5) / (n + 0.5)); highest for an unknown term."""
        passages_with_term = len(self._postings.get(term, ()))
        without = len(self.passages) - passages_with_term
        return math.log(1 + (without + 0.5) / (passages_with_term + 0.5))


def _postings(passages: list[list[str]]) -> dict[str, dict[int, float]]:
    """For each term the passages that contain it, by position, with its saturated frequency: tf / (tf + norm)."""
    mean_length = sum(map(len, passages)) / len(passages)
    postings: dict[str, dict[int, float]] = {}
    for position, tokens in enumerate(passages):
        norm = _K1 * (1 - _B + _B * len(tokens) / mean_length) if mean_length else _K1
        for token, frequency in Counter(tokens).items():
            postings.setdefault(token, {})[position] = frequency / (frequency + norm)
    return postings


_NUMBER_WORDS: Final = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty hundred thousand"
)
_N: Final = rf"(?:\d[\d.,]{{0,15}}|{'|'.join(_NUMBER_WORDS.split())}|half|a)"
_NUMBER: Final = re.compile(rf"^(?:\d[\d.,:]*|{'|'.join(_NUMBER_WORDS.split())})$")
_COUNT: Final = re.compile(r"\bhow many\b(.*)")
_MAX_DISTANCE: Final = 3

_YEAR: Final = r"\b1\d{3}\b|\b20\d\d\b"
_MONTH: Final = r"\b(?:january|february|march|april|may|june|july|august|september|october|november|december)\b"
_DAY: Final = r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b|\b(?!each|every)\w{4,} day\b"
_TIME: Final = rf"\d\d:\d\d|\bnoon\b|\bmidnight\b|\bsun(?:rise|set)\b|\b{_N} hours? before\b|{_YEAR}|{_MONTH}|{_DAY}"
_SPAN: Final = rf"\b{_N}(?: \w+)? (?:seconds?|minutes?|hours?|days?|nights?|weeks?|months?|years?)\b"
_LENGTH: Final = rf"\b{_N} (?:nautical )?(?:centi|milli|kilo)?(?:metres?|miles?)\b(?! an hour)"
_MONEY: Final = (
    r"\bcrowns?\b|\bpenn(?:y|ies)\b|\bfree\b|\bnothing\b|\bno (?:cost|charge)\b|\bthe (?:\w+ )?fare\b|\bpercent\b"
)
_COLOUR: Final = r"\b(?:black|white|gr[ae]y|red|green|blue|yellow|orange|purple|pink|brown|cream)\b"
_PLACE: Final = r"\b(?:in|at|on|by|under|behind|beside|near|from|over|below|above)\b"
_MATERIAL: Final = (
    r"\b(?:of|from|with|in|on) (?:\w+ ){0,2}(?:wood|oak|elm|larch|ash|teak|pine|wool|cotton|canvas|leather|goatskin"
    r"|paper|stone|granite|slate|brick|concrete|iron|steel|copper|brass|aluminium|glass|turf|bone|leaves|seaweed)\b"
)
_NUMERIC: Final = rf"\d|\b{_N} \w+|\bhalf\b"
_PRICE_CUE: Final = (
    r"\bhow much (?=(?:is|are|was|were|do|does|did)\b)|\b(?:costs?|prices?|fares?|fees?|charges?|charged|pay|paid)\b"
)
_LASTING: Final = r"\b(?:takes?|last|lasts|lasted|stay|held|kept|keep|wait|waits|valid|halt|mature|ripen|need)\b"
_DIMENSIONS: Final = {
    "long": r"\blong\b|\blength\b",
    "high": r"\bhigh(?:er)?\b|\btall\b|\bheight\b",
    "wide": r"\bwide\b|\bwidth\b|\bacross\b|\bdiameter\b",
    "deep": r"\bdeep\b|\bdepth\b",
}


def _length_along(dimension: str) -> str:
    """A pattern for lengths along a dimension; other lengths do not match: 85 metres wide is no depth."""
    others = "|".join(named for other, named in _DIMENSIONS.items() if other != dimension)
    return rf"^(?:(?=.*(?:{_DIMENSIONS[dimension]}))|(?!.*(?:{others}))).*(?:{_LENGTH})"


_KINDS: Final = tuple(
    (re.compile(question), re.compile(answer))
    for question, answer in (
        (r"\bwhere\b", _PLACE),
        (r"\bmaterial\b|\bwood\b|\b(?:made|built) (?:of|from)\b", _MATERIAL),
        (r"\bhow old\b", rf"{_YEAR}|\bage\b|\byears\b"),
        (r"\bhow often\b", r"\bevery\b|\btimes\b|\bonce\b|\btwice\b|\bdaily\b"),
        (r"\b(?:what|which) (?:years?|winters?)\b", _YEAR),
        (r"\b(?:what|which) months?\b", _MONTH),
        (r"\b(?:what|which) (?:days?(?: of the week)?|evenings?|holidays?)\b", _DAY),
        (r"\bwhat times?\b|\bwhen\b|\bopening hours\b", _TIME),
        (r"\b(?:what|which) colou?r\b", _COLOUR),
        (rf"\bhow long\b(?=.*{_LASTING})", _SPAN),
        (r"\bhow long\b|\blength\b", _length_along("long")),
        (r"\bhow (?:high|tall)\b|\bheight\b", _length_along("high")),
        (r"\bhow wide\b|\bwidth\b", _length_along("wide")),
        (r"\bhow deep\b|\bdepth\b", _length_along("deep")),
        (r"\bhow (?:far|thick)\b", _LENGTH),
        (r"\bhow heavy\b|\bheaviest\b|\bweigh(?:t|s)?\b", rf"\b{_N} (?:tonnes?|kilograms?)\b"),
        (r"\bhow fast\b|\bspeed\b", r"\bknots?\b|\bkilometres an hour\b"),
        (r"\bhow (?:warm|cold|hot)\b|\btemperature\b", r"\bdegrees?\b"),
        (_PRICE_CUE, _MONEY),
        (r"\bhow (?:much|big|large|strong)\b|\bwhat number\b|\bage\b", _NUMERIC),
    )
)


@dataclass(frozen=True, slots=True)
class Expected:
    """The kind of answer a question expects.

    Args:
        cues: Terms of the question that only indicate the kind of answer ("price", "colour"); the evidence need not
            cover them.
        pattern: A pattern that sentences of this kind match; None accepts every sentence.
        counted: For "how many": the term that must follow a number.
    """

    cues: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    counted: str | None = None

    def met_by(self, sentence: str) -> bool:
        """Whether the sentence contains an answer of the expected kind."""
        if self.counted is not None:
            return _has_count_of(sentence, self.counted)
        return self.pattern is None or bool(self.pattern.search(sentence.casefold()))


def expected(question: str) -> Expected:
    """The kind of answer a question expects, from its wording.

    >>> expected("What colour is the hull?").met_by("Her hull is yellow.")
    True
    >>> expected("How many seats are there?").met_by("The cabin has seats, and a crossing takes 18 minutes.")
    False
    """
    folded = question.casefold()
    if count := _COUNT.search(folded):
        counted = [term(word) for word in words(count[1]) if word not in STOP_WORDS]
        return Expected(counted=counted[0]) if counted else Expected(pattern=re.compile(_NUMERIC))
    for asks, answers in _KINDS:
        if asks.search(folded):
            cues = frozenset(term(word) for match in asks.finditer(folded) for word in words(match[0]))
            return Expected(cues, answers)
    return Expected()


def _has_count_of(sentence: str, counted: str) -> bool:
    """Whether the counted term follows a number within three words."""
    tokens = words(sentence)
    return any(
        _NUMBER.match(word)
        and counted in {term(token) for token in tokens[position + 1 : position + 1 + _MAX_DISTANCE]}
        for position, word in enumerate(tokens)
    )


IN_TITLE: Final = 0.8
IN_PASSAGE: Final = 0.5
BESIDE_THE_POINT: Final = 0.5
"""Factor on the support of a sentence of the wrong kind, about another name, or about the opposite."""

_CUE_WEIGHT: Final = 0.01
"""Weight of terms that only indicate the kind of answer: just enough to break ties."""

_NAME: Final = re.compile(r"(?<=\s)[A-Z]\w+")
_OPPOSITES: Final = tuple(
    (term(one), term(other))
    for one, other in (("open", "close"), ("start", "end"), ("arrive", "leave"), ("first", "last"))
)


@dataclass(frozen=True, slots=True)
class BackedSentence:
    """A sentence and its support."""

    sentence: str
    passage_id: str
    score: float
    support: float


@dataclass(frozen=True, slots=True)
class _ParsedQuestion:
    """A parsed question: weights of its terms, its names and the expected kind of answer."""

    weights: Mapping[str, float]
    cue_weights: Mapping[str, float]
    names: frozenset[str]
    kind: Expected


def best_evidence(question: str, hits: Sequence[Hit], index: Bm25Index) -> BackedSentence | None:
    """The best supported sentence of all hits; on a tie, that of the higher ranked hit, then the earlier one."""
    parsed = _parse_question(question, index)
    ranked = [pair for hit in hits for pair in _ranked_sentences(parsed, hit)]
    return max(ranked, key=lambda pair: pair[0])[1] if ranked else None


def _parse_question(question: str, index: Bm25Index) -> _ParsedQuestion:
    kind = expected(question)
    weights = {query_term: index.idf(query_term) for query_term in terms(question)}
    # A question of cues only ("What does it cost?") still needs evidence that covers them.
    required = {query_term: weight for query_term, weight in weights.items() if query_term not in kind.cues} or weights
    cue_weights = {query_term: weight for query_term, weight in weights.items() if query_term not in required}
    name_words = (word for name in _NAME.findall(question) for word in words(name))
    return _ParsedQuestion(
        required, cue_weights, frozenset(term(word) for word in name_words if word not in STOP_WORDS), kind
    )


def _ranked_sentences(question: _ParsedQuestion, hit: Hit) -> Iterator[tuple[float, BackedSentence]]:
    """Every sentence of a hit, with the value by which it is ranked."""
    title, passage = set(terms(hit.title)), set(terms(hit.text))
    total = sum(question.weights.values())
    if not total:
        return
    for sentence in sentences(hit.text):
        sentence_terms = set(terms(sentence))
        places = ((sentence_terms, 1.0), (title, IN_TITLE), (passage, IN_PASSAGE))
        support = _covered_weight(question.weights, places) / total
        if not _is_relevant(question, sentence, sentence_terms, title | passage):
            support *= BESIDE_THE_POINT
        value = support + _CUE_WEIGHT * _covered_weight(question.cue_weights, places)
        yield value, BackedSentence(sentence, hit.id, hit.score, support)


def _covered_weight(weights: Mapping[str, float], places: Sequence[tuple[set[str], float]]) -> float:
    """The weight of the covered terms, each multiplied by the credit of the best place that contains it."""
    return sum(
        weight * next((credit for place, credit in places if query_term in place), 0.0)
        for query_term, weight in weights.items()
    )


def _is_relevant(question: _ParsedQuestion, sentence: str, sentence_terms: set[str], hit_terms: set[str]) -> bool:
    """Whether the sentence is of the expected kind, about the names in the question, and not about the opposite."""
    is_opposite = any(
        (first in question.weights and first not in sentence_terms and second in sentence_terms)
        or (second in question.weights and second not in sentence_terms and first in sentence_terms)
        for first, second in _OPPOSITES
    )
    return question.kind.met_by(sentence) and question.names <= hit_terms and not is_opposite


REFUSAL: Final = "not in context"


@dataclass(frozen=True, slots=True)
class DemoAnswer:
    """The answer to the user."""

    claim: str
    citations: list[str] = field(default_factory=list)


class RagPipeline:
    """Retrieval and answering over a corpus.

    The thresholds, `cite` and `delay` may be changed at run time, and `rebuild` replaces the index: ragmon.demo.show
    breaks the pipeline in these ways.

    Args:
        corpus: The passages to index.
        min_score: The least BM25 score of the cited passage.
        min_support: The least share of the question's terms, weighted by idf, that the evidence covers, 0 to 1.
        cite: Converts a passage's id into the citation.
        delay: Seconds to wait before each answer.

    Raises:
        ValueError: The corpus is empty or repeats an id.

    >>> corpus = [Passage("ferry#1", "The ferry", "The ferry is 30 metres long. She carries 90 people.")]
    >>> pipeline = RagPipeline(corpus, min_score=0.1)
    >>> pipeline.answer("How long is the ferry?", pipeline.retrieve("How long is the ferry?"))
    DemoAnswer(claim='The ferry is 30 metres long.', citations=['ferry#1'])
    """

    def __init__(
        self,
        corpus: Iterable[Passage],
        *,
        min_score: float = 1.5,
        min_support: float = 0.72,
        cite: Callable[[str], str] = str,
        delay: float = 0.0,
    ) -> None:
        self.min_score = min_score
        self.min_support = min_support
        self.cite = cite
        self.delay = delay
        self._index = Bm25Index(corpus)

    @property
    def corpus(self) -> tuple[Passage, ...]:
        """The passages in the index."""
        return self._index.passages

    @property
    def index_hash(self) -> str:
        """Eight hexadecimal digits that change whenever an indexed id or text does."""
        return self._index.hash

    def rebuild(self, corpus: Iterable[Passage]) -> None:
        """Replace the corpus; requests in progress finish with the old index or the new one."""
        self._index = Bm25Index(corpus)

    def retrieve(self, question: str, k: int = 5) -> list[Hit]:
        """The k passages that match the question best, best first; fewer if fewer share a term with it."""
        return self._index.search(question, k)

    def answer(self, question: str, hits: Sequence[Hit]) -> DemoAnswer:
        """The best supported sentence of the hits with its citation, or the refusal if the evidence is weak."""
        if self.delay:
            time.sleep(self.delay)
        evidence = best_evidence(question, hits, self._index)
        if evidence is None or evidence.score < self.min_score or evidence.support < self.min_support:
            return DemoAnswer(REFUSAL)
        return DemoAnswer(evidence.sentence, [self.cite(evidence.passage_id)])


BUILD = "demo-1"


class Application:
    """A question-answering service over the demo's corpus."""

    def __init__(self) -> None:
        self.pipeline = RagPipeline(load_corpus())
        self.ask = ragmon.trace(name="harbour")(self._ask)

    def _ask(self, question: str) -> dict[str, Any]:
        """Answer a question, with citations."""
        with ragmon.stage("retrieve"):
            hits = self.pipeline.retrieve(question)
        ragmon.record(
            retrieved=[{"id": hit.id, "text": hit.text, "score": hit.score} for hit in hits],
            index_hash=self.pipeline.index_hash,
            build=BUILD,
        )
        with ragmon.stage("generate"):
            answer = self.pipeline.answer(question, hits)
        return {"answer": answer.claim, "citations": answer.citations}
