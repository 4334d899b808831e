"""A judge's server that fails is left alone: it takes neither the quota nor the time of those who wait."""

from __future__ import annotations

import asyncio
import threading

import pytest

from ragmon.capture.judges import FAILURES, FIRST, LONGEST, Breaker, Judge, ModelEndpoint
from ragmon.config.services import JudgeTable
from ragmon.core import constants
from ragmon.core.network import DailyQuota
from ragmon.metrics.facts import FactReader
from ragmon.testing import FakeClock
from tests.support.chat_model import serving, status
from tests.support.model_judges import ITEM, judged, record, short_pauses  # noqa: F401 - a fixture
from tests.support.waiting import TIMEOUT

PER_DAY = 500


@pytest.fixture
def model():
    with serving() as found:
        yield found


class Case:
    """A judge with a quota, and a clock that a test moves."""

    def __init__(self, url, timeout=20.0):
        self.clock = FakeClock(1000.0)
        self.quota = DailyQuota(PER_DAY, clock=lambda: 1e9)
        self.endpoint = ModelEndpoint(
            url,
            "m",
            spend=self.quota.spend,
            give_back=self.quota.give_back,
            breaker=Breaker(clock=self.clock),
        )
        self.judge = Judge("p", JudgeTable.model_construct(timeout=timeout), (self.endpoint, "contextual_precision"))

    def results(self, n):
        """What becomes of so many records, each of other texts."""
        return [judged(self.judge, record("good a", f"{self.clock()} {place}")).result for place in range(n)]

    def spent(self):
        """How much of the quota is gone; none is left after this."""
        left = 0
        while self.quota.spend():
            left += 1
        return PER_DAY - left


@pytest.mark.slow
@pytest.mark.parametrize("code", [408, 500, 503])
def test_a_server_that_says_it_cannot_is_asked_no_more(model, code):
    model.script = [status(code)] * 1000
    case = Case(model.url)
    assert case.results(50) == [constants.JUDGE_ERROR] * 50
    assert (len(model.asked), case.spent()) == (FAILURES, FAILURES)


@pytest.mark.slow
def test_one_request_tries_when_the_pause_is_over_and_the_pause_grows(model):
    model.script = [status(500)] * 1000
    case, pauses = Case(model.url), []
    case.results(2)
    for _ in range(8):
        before, began = len(model.asked), case.clock()
        while len(model.asked) == before:
            case.clock.advance(FIRST / 2)
            case.results(3)
        assert len(model.asked) == before + 1, "one request tries, and not three"
        pauses.append(case.clock() - began)
    assert pauses == [min(LONGEST, FIRST * 2**n) for n in range(8)]


def test_an_answer_to_the_trial_is_the_end_of_it(model):
    model.script = [status(500)] * FAILURES
    case = Case(model.url)
    case.results(5)
    case.clock.advance(FIRST)
    assert case.results(4) == [constants.SCORED] * 4
    case.clock.advance(1.0)
    model.script = [status(500), status(500)]
    assert case.results(1) == [constants.SCORED], "what failed before is forgotten"


@pytest.mark.slow
@pytest.mark.parametrize("code", [401, 404, 429])
def test_a_server_that_answers_is_there_whatever_it_says(model, code):
    case = Case(model.url)
    for _ in range(2):
        model.script = [status(500)] * (FAILURES - 1) + [status(code, Retry_After="0")]
        case.results(2)
    assert not case.endpoint.breaker.is_open


def test_a_server_that_is_gone_costs_no_quota():
    with serving() as gone:
        pass
    case = Case(gone.url)
    assert case.results(20) == [constants.JUDGE_ERROR] * 20
    assert case.endpoint.breaker.is_open
    assert case.spent() == 0


@pytest.mark.slow
def test_a_server_that_never_answers_in_time_is_left_alone_as_well(model):
    over = threading.Event()
    model.script = [lambda handler, _: over.wait(TIMEOUT)] * 100
    case = Case(model.url, timeout=0.2)
    try:
        assert case.results(FAILURES + 3) == [constants.TIMEOUT] * FAILURES + [constants.JUDGE_ERROR] * 3
    finally:
        over.set()
    assert case.spent() == FAILURES


@pytest.mark.slow
def test_requests_that_were_under_way_when_it_opened_do_not_lengthen_the_pause(model):
    model.script = [status(500)] * 100
    case = Case(model.url)

    async def at_once():
        one = record("good a", "b")
        await asyncio.gather(*(case.judge.judge(one, ITEM, FactReader()) for _ in range(10)))

    asyncio.run(at_once())
    case.clock.advance(FIRST)
    assert case.endpoint.breaker.admits()
