"""Labels on their way into the counts, minute by minute: live windows and alarms hear the first word on an answer.

Counters cannot be taken back, and neither can alarms: later words on an answer, and changes of mind, count in reports.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ragmon.core.record import Label, Record, joins
from ragmon.gold.labels.ratings import PROBED, Book
from ragmon.labels.joining import gold_item, labelled
from ragmon.scorer import Scorer


class Hearing:
    """Joins labels to answers, whichever comes first.

    Args:
        scorer: Where labelled answers are scored.
        admit: Gives a record the names it is counted under.
        answers: How many answers are remembered here; a server has them in its journal, and remembers none.

    Attributes:
        book: What was said so far.
        heard: Told of every label whose answer is known, with the answer and when it came.
    """

    def __init__(self, scorer: Scorer, admit: Callable[[Record, float], Record], *, answers: int = 0) -> None:
        self.book = Book()
        self.heard: Callable[[Label, Record, float], None] | None = None
        self._scorer = scorer
        self._admit = admit
        self._most = answers
        self._answers: dict[str, Record] = {}

    def see(self, answer: Record, now: float) -> None:
        """Take in an answer: labels may have waited for it.

        Args:
            answer: The answer.
            now: When it came, seconds since the epoch.
        """
        if self._most and answer.trace_id is not None and joins(answer):
            self._answers[answer.trace_id] = msgspec.structs.replace(answer, q=None, contexts=None)
            if len(self._answers) > self._most:
                del self._answers[next(iter(self._answers))]
        if self.book.waiting:
            self.book.expire(now)
            self._join_all(answer, now)

    def take(self, label: Label, now: float) -> None:
        """Take in what a person says of an answer.

        Args:
            label: The label; where nobody has its answer, it waits for it.
            now: When it came, seconds since the epoch. It counts now: windows of labels are of their arrival.
        """
        self.book.expire(now)
        answer = label.answer or self._answers.get(label.trace_id)
        if answer is None:
            self.book.keep(label, now)
        else:
            self._join(label, answer, now)

    def _join_all(self, answer: Record, now: float) -> None:
        """Score an answer with every label that waited for it, also where a metric raises on one of them."""
        failed: Exception | None = None
        for label in self.book.take(answer.trace_id):
            try:
                self._join(label, answer, now)
            except Exception as error:  # noqa: BLE001 - a metric is foreign code and may raise anything
                failed = failed or error
        if failed is not None:
            raise failed

    def _join(self, label: Label, answer: Record, now: float) -> None:
        """Score an answer with what is said of it."""
        if self.heard is not None:
            self.heard(label, answer, now)
        if not joins(answer):
            self.book.results[PROBED] += 1
            return
        verdict = self.book.hear(label, now)
        if verdict is not None:
            record = self._admit(labelled(answer, verdict, now), now)
            self._scorer.observe_label(record, gold_item(label.trace_id, verdict))
