"""What was judged before: equal texts before the same judge have the same opinion.

One judge: which requests it looks at, and what comes of each.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Lock
from time import monotonic
from typing import Final

from ragmon.capture.judges import prompts
from ragmon.capture.judges.endpoint import ModelEndpoint
from ragmon.capture.judges.prompts import CONTEXTUAL_PRECISION, KINDS, RequestTexts
from ragmon.capture.judges.results import Function, JudgeError, Judgement, Opinion, Verdict
from ragmon.core.constants import BUDGET, CACHED, JUDGE_ERROR, SCORED, SKIPPED, TIMEOUT
from ragmon.core.gold_item import GoldItem
from ragmon.core.log import warn_once, whereabouts
from ragmon.core.record import Record, encode
from ragmon.metrics.facts import FactReader, Facts

CAPACITY: Final = 1024
"""Opinions that are remembered; the one longest unused goes first."""


def digest(*parts: str) -> bytes:
    """A fingerprint of texts and of where one ends and the next begins.

    >>> digest("ab", "c") == digest("a", "bc")
    False
    """
    found = hashlib.sha256()
    for part in parts:
        text = part.encode("utf-8", "surrogatepass")
        found.update(len(text).to_bytes(8))
        found.update(text)
    return found.digest()


class Cache:
    """Opinions by fingerprint; any thread may ask.

    Args:
        capacity: How many are remembered.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Begin anew in a forked child: a thread of the parent may have held the lock."""
        self._lock = Lock()
        self._held: OrderedDict[bytes, Opinion] = OrderedDict()

    def get(self, key: bytes) -> Opinion | None:
        """What was found before."""
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
            return found

    def put(self, key: bytes, opinion: Opinion) -> None:
        """Remember an opinion."""
        with self._lock:
            self._held[key] = opinion
            self._held.move_to_end(key)
            if len(self._held) > self._capacity:
                self._held.popitem(last=False)


LARGEST: Final = 400_000
"""Characters of one request's texts that are sent to a model; a part of them would be judged wrongly."""
_DRAWS: Final = 1 << 64


@dataclass(frozen=True)
class JudgeSettings:
    """How a judge judges.

    Attributes:
        sample: Share of the requests it looks at.
        threshold: From which score on it is a success.
        include_reason: Ask for reasons.
        strict: Only a perfect score counts; every other is 0.
        timeout: Seconds for one judgement, every attempt included.
    """

    sample: float = 0.01
    threshold: float = 0.5
    include_reason: bool = True
    strict: bool = False
    timeout: float = 30.0


class Judge:
    """Judges requests, one at a time in each event loop that asks it.

    Args:
        name: Its name.
        terms: How it judges.
        mind: A model's endpoint and the kind of question it is asked, or a function.
        spend: Takes one request out of the budget of a function; a model's endpoint has its own.
    """

    def __init__(
        self,
        name: str,
        terms: JudgeSettings,
        mind: tuple[ModelEndpoint, str] | Function,
        *,
        spend: Callable[[], bool] = lambda: True,
    ) -> None:
        self.name = name
        self.terms = terms
        self._mind = mind
        self._spend = spend
        self._cache = Cache()
        self._said: set[str] = set()

    def reset_after_fork(self) -> None:
        """Begin anew in a forked child, whose lock may have come locked."""
        self._cache.reset_after_fork()
        if isinstance(self._mind, tuple):
            self._mind[0].breaker.reset_after_fork()

    def draws(self, record: Record) -> bool:
        """Whether it looks at a request: a draw of the trace id and its own name.

        The trace id's own bits decide what is kept; a draw of the same bits would find all it keeps, or nothing.
        """
        text = encode(record) if record.trace_id is None else record.trace_id.encode()
        drawn = hashlib.blake2b(text, digest_size=8, key=self.name.encode()[:64]).digest()
        return int.from_bytes(drawn) < self.terms.sample * _DRAWS

    async def judge(self, record: Record, item: GoldItem | None, reader: FactReader) -> Judgement:
        """What it says of a request.

        Args:
            record: The request, with its texts.
            item: Its gold item.
            reader: Says whether the answer is one.
        """
        began, opinion = monotonic(), None
        try:
            async with asyncio.timeout(self.terms.timeout):
                result, opinion = await self._opinion(record, item, reader, began + self.terms.timeout)
            if monotonic() - began > self.terms.timeout:  # a function that is not async cannot be interrupted
                result, opinion = TIMEOUT, None
        except JudgeError as failure:
            result = failure.result
            self._say(result, f"judge {self.name}: {failure}")
        except TimeoutError:
            result = TIMEOUT
        except BaseException as error:  # noqa: BLE001 - a function may raise anything, and Rust's panics are no Exception
            result = JUDGE_ERROR
            self._say(result, f"judge {self.name} failed: {whereabouts(error)}")
        threshold, opinion = self._held(opinion)
        return Judgement(self.name, result, threshold, 1000 * (monotonic() - began), opinion)

    def _say(self, result: str, message: str) -> None:
        """Log the first failure of each kind."""
        if result != SKIPPED and result not in self._said:
            self._said.add(result)
            warn_once(message)

    def _held(self, opinion: Opinion | None) -> tuple[float, Opinion | None]:
        """The threshold and the opinion, strictly where that is asked (seed 001)."""
        if not self.terms.strict:
            return self.terms.threshold, opinion
        if opinion is not None and opinion.score < 1.0:
            opinion = replace(opinion, score=0.0)
        return 1.0, opinion

    async def _opinion(
        self, record: Record, item: GoldItem | None, reader: FactReader, deadline: float
    ) -> tuple[str, Opinion]:
        if not isinstance(self._mind, tuple):
            _require_answer(record, item, reader)
            return SCORED, await self._call(self._mind, record)
        endpoint, kind = self._mind
        if kind != CONTEXTUAL_PRECISION:
            _require_answer(record, item, reader)
        case = _case(record, item if kind == CONTEXTUAL_PRECISION else None, kind)
        key = digest(prompts.VERSION, kind, endpoint.url, endpoint.model, str(self.terms.include_reason), *_texts(case))
        known = self._cache.get(key)
        if known is not None:
            return CACHED, known
        async with endpoint.session(deadline) as session:
            found = await KINDS[kind](session, case, reasons=self.terms.include_reason)
        self._cache.put(key, found)
        return SCORED, found

    async def _call(self, function: Function, record: Record) -> Opinion:
        """What a function of the application says."""
        if not self._spend():
            raise JudgeError(BUDGET, "the budget of today is spent")
        said = function(record)
        if inspect.isawaitable(said):
            said = await said
        score, reason = (said.score, said.reason) if isinstance(said, Verdict) else (said, None)
        if score is None:
            raise JudgeError(SKIPPED, "it has nothing to say")
        if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
            raise JudgeError(JUDGE_ERROR, f"it returned {_kind(score)}, which is no score from 0 to 1")
        told = reason if self.terms.include_reason and isinstance(reason, str) else None
        return Opinion(float(score), told, (), None if record.contexts is None else len(record.contexts))


def _kind(score: object) -> str:
    return "another number" if isinstance(score, int | float) else type(score).__name__


def _require_answer(record: Record, item: GoldItem | None, reader: FactReader) -> None:
    """Only shipped answers are judged.

    Raises:
        NoJudgementError: This is none.
    """
    claim = None if record.answer_json is None else record.answer_json.claim
    facts = Facts._make(reader.read(record, item))
    if claim is None or not (facts.answered and facts.shipped):
        raise JudgeError(SKIPPED, "no answer was shipped")


def _case(record: Record, item: GoldItem | None, kind: str) -> RequestTexts:
    """The texts of a request.

    Raises:
        NoJudgementError: One that is needed is not there, or they are too long.
    """
    answer = None if record.answer_json is None else record.answer_json.claim
    expected = "" if item is None else _expected(item)
    found = RequestTexts(record.q or "", tuple(record.contexts or ()), answer or "", expected)
    needs_contexts = found.contexts or (kind == CONTEXTUAL_PRECISION and record.contexts is not None)
    if not needs_contexts or (kind == CONTEXTUAL_PRECISION and not (expected and found.question)):
        raise JudgeError(SKIPPED, "a text that is needed was not captured")
    if sum(map(len, _texts(found))) > LARGEST:
        raise JudgeError(SKIPPED, f"its texts have more than {LARGEST} characters")
    return found


def _texts(case: RequestTexts) -> tuple[str, ...]:
    return case.question, case.answer, case.expected, *case.contexts


def _expected(item: GoldItem) -> str:
    """What should have been answered, as far as the gold item says."""
    if not item.answerable:
        return ""
    return item.gold_claim or "\n".join(item.claim_substrings or ()) or "\n".join(item.contexts or ())
