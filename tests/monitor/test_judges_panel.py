"""The judges of a process: which requests they look at, how many at once, and that none is ever lost."""

from __future__ import annotations

import asyncio
import json
import threading
from time import monotonic

import msgspec
import pytest

import ragmon
from ragmon.capture.judges import WAITING, Judge
from ragmon.config.services import JudgeTable
from ragmon.core import constants
from ragmon.core.errors import RagmonError
from ragmon.core.record import Answer, Record
from ragmon.metrics.facts import FactReader
from ragmon.monitor.judges import Panel
from ragmon.testing import FakeClock
from tests.support.chat_model import TABLE, status
from tests.support.waiting import TIMEOUT

FOREVER = float("inf")


def record(n=0, claim="good.", contexts=("c",), **fields):
    return Record(
        trace_id=f"{n:032x}",
        source="live",
        q="q",
        contexts=None if contexts is None else list(contexts),
        answer_json=Answer(claim=claim, citations=["d"]),
        **fields,
    )


def returned(panel, given, until=FOREVER, timeout=TIMEOUT):
    """What comes back of records, all of them."""
    back, end = panel.take(given, until), monotonic() + timeout
    while panel.holds and monotonic() < end:
        next(iter(panel._held)).is_done.wait(0.05)
        back += panel.take([], until)
    assert not panel.holds
    return back


class TestWhoIsJudged:
    def test_a_record_nobody_draws_passes_at_once(self, configured, model):
        with Panel(configured(TABLE.format(url=model.url).replace("1.0", "0.0"))) as panel:
            assert panel.take([record()], FOREVER) == [record()]
            assert panel.calls() == {}

    def test_a_judged_record_comes_back_with_its_score(self, configured, model):
        with Panel(configured(TABLE.format(url=model.url))) as panel:
            (back,) = returned(panel, [record(claim="good. bad.", measures={"groundedness": 0.5})])
            assert back.measures == {"groundedness": 0.5, "judge_faithfulness": 0.5}
            assert panel.calls() == {("faithfulness", "scored"): 1}

    @pytest.mark.parametrize(
        "nothing",
        [
            record(claim="not in context"),
            record(claim=" "),
            record(claim=None),
            record(contexts=None),
            record(contexts=()),
            record(error="ValueError"),
            record(contexts=["x" * 400_001]),
        ],
    )
    def test_where_there_is_nothing_to_judge_nobody_is_asked(self, configured, model, nothing):
        with Panel(configured(TABLE.format(url=model.url))) as panel:
            assert returned(panel, [nothing]) == [nothing]
            assert panel.calls() == {("faithfulness", "skipped"): 1}
            assert model.asked == []

    def test_contextual_precision_needs_the_gold_item_of_the_question(self, configured, model, tmp_path):
        (tmp_path / "gold.jsonl").write_text(
            '{"qid": "a", "question": "Who?", "answerable": true, "gold_claim": "good"}\n'
            '{"qid": "b", "question": "Why?", "answerable": false}\n'
        )
        table = TABLE.format(url=model.url).replace("faithfulness", "contextual_precision")
        with Panel(configured(f'[gold.g]\npath = "gold.jsonl"\n{table}')) as panel:
            asked = [record(1, qid="a", contexts=["bad", "good"]), record(2, qid="b"), record(3)]
            back = {one.trace_id: one.measures for one in returned(panel, asked)}
            assert list(back.values()).count(None) == 2
            assert back[f"{1:032x}"] == {"judge_contextual_precision": 0.5}
            assert panel.calls() == {("contextual_precision", "scored"): 1, ("contextual_precision", "skipped"): 2}

    def test_a_pipelines_own_judge_judges_it_alone(self, configured, model):
        table = TABLE.format(url=model.url).replace("[judges", "[pipelines.a.judges")
        with Panel(configured(f"{table}[pipelines.b]\n")) as panel:
            back = returned(panel, [record(1, pipeline="a"), record(2, pipeline="b"), record(3)])
            assert [one.pipeline for one in back if one.measures] == ["a"]


class TestFunctions:
    def test_a_function_and_an_async_one_score_answers(self, configured, judge):
        @judge("short")
        def short(found):
            return ragmon.Verdict(float(len(found.answer_json.claim) < 6), "it is")

        @judge("tone")
        async def tone(found):
            await asyncio.sleep(0)
            return 0.25

        settings = configured("[judges.short]\nsample = 1.0\n[judges.tone]\nsample = 1.0\n")
        with Panel(settings) as panel:
            (back,) = returned(panel, [record()])
            assert back.measures == {"judge_short": 1.0, "judge_tone": 0.25}

    @pytest.mark.parametrize("said", [1.5, -0.1, float("nan"), True, "yes", [0.5], ragmon.Verdict(7)])
    def test_what_is_no_score_is_a_judge_error(self, configured, judge, said):
        judge("odd")(lambda _: said)
        with Panel(configured("[judges.odd]\nsample = 1.0")) as panel:
            assert returned(panel, [record()])[0].measures is None
            assert panel.calls() == {("odd", "judge_error"): 1}

    @pytest.mark.parametrize("said", [None, ragmon.Verdict(None, "nothing to say")])
    def test_none_is_no_score(self, configured, judge, said):
        judge("quiet")(lambda _: said)
        with Panel(configured("[judges.quiet]\nsample = 1.0")) as panel:
            assert returned(panel, [record()])[0].measures is None
            assert panel.calls() == {("quiet", "skipped"): 1}

    @pytest.mark.parametrize(
        "error", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError]
    )
    def test_what_a_function_raises_is_counted_and_its_words_stay_out_of_the_log(
        self, configured, judge, caplog, error
    ):
        def broken(found):
            raise error(f"secret {found.q}")

        judge(f"broken_{error.__name__.lower()}")(broken)
        with Panel(configured(f"[judges.broken_{error.__name__.lower()}]\nsample = 1.0")) as panel:
            assert len(returned(panel, [record(1), record(2)])) == 2
            assert list(panel.calls().values()) == [2]
        assert "failed" in caplog.text
        assert "secret" not in caplog.text

    def test_a_tracer_that_fails_ends_no_judge(self, configured, judge, monkeypatch):
        def broken(_):
            raise GeneratorExit

        judge("traced")(lambda _: 1.0)
        monkeypatch.setattr("ragmon.capture.judges.suppressed", broken)
        with Panel(configured("[judges.traced]\nsample = 1.0\nconcurrency = 1")) as panel:
            assert len(returned(panel, [record(1), record(2)])) == 2
            assert panel.calls() == {("traced", "judge_error"): 2}

    def test_locks_a_fork_copied_while_they_were_held_hold_up_nobody(self, configured, judge):
        judge("forked")(lambda _: 1.0)
        with Panel(configured("[judges.forked]\nsample = 1.0\ntimeout = '1s'")) as panel:
            (quota,) = panel._quotas
            with quota._lock, panel._lock:
                panel.reset_after_fork()
                assert [one.result for one in panel.judge(record())[1]] == ["scored"]

    def test_a_name_is_a_metrics_and_stands_for_one_function(self, judge):
        judge("one")(len)
        with pytest.raises(RagmonError, match="registered already"):
            judge("one")(repr)
        for name in ("Big", "", "a-b", "n_total", 7):
            with pytest.raises(RagmonError):
                judge(name)(len)
        with pytest.raises(RagmonError, match="not a function"):
            judge("two")("text")

    def test_a_function_with_a_models_name_is_refused_at_the_start(self, configured, judge, model):
        judge("faithfulness")(lambda _: 1.0)
        with pytest.raises(RagmonError, match="a function and a model"):
            Panel(configured(TABLE.format(url=model.url)))


class TestLimits:
    def test_no_more_are_judged_at_once_than_configured(self, configured, judge):
        most, lock, full = [0, 0], threading.Lock(), threading.Barrier(3)

        @judge("slow")
        def slow(_):
            with lock:
                most[0] += 1
                most[1] = max(most)
            full.wait(timeout=TIMEOUT)  # three at a time, so four would leave one behind
            with lock:
                most[0] -= 1
            return 1.0

        with Panel(configured("[judges.slow]\nsample = 1.0\nconcurrency = 3")) as panel:
            assert len(returned(panel, [record(n) for n in range(12)])) == 12
        assert most[1] == 3

    def test_a_model_gets_no_more_requests_at_once_than_configured(self, configured, model):
        with Panel(configured(TABLE.format(url=model.url) + "concurrency = 2")) as panel:
            returned(panel, [record(n, claim=f"good {n}.") for n in range(20)])
        assert 1 <= model.most_at_once <= 2
        assert len(model.asked) == 40

    def test_what_finds_no_room_goes_on_unjudged(self, configured, judge):
        opened = threading.Event()
        judge("slow")(lambda _: opened.wait(TIMEOUT) and 1.0)
        with Panel(configured("[judges.slow]\nsample = 1.0\nconcurrency = 1")) as panel:
            given = [record(n) for n in range(WAITING + 10)]
            back = panel.take(given, FOREVER)
            assert len(back) in (9, 10), "one may be before the judge already"
            opened.set()
            back += returned(panel, [])
            assert sorted(one.trace_id for one in back) == [one.trace_id for one in given]
            assert panel.calls()["slow", "queue_full"] == sum(one.measures is None for one in back)

    def test_the_budget_holds_over_probes_and_users_and_comes_back_the_next_day(self, configured, model):
        clock = FakeClock(20_000.5 * 86_400)
        settings = configured(TABLE.format(url=model.url) + "max_per_day = 4")
        with Panel(settings, clock=clock) as panel:
            given = [record(n, claim=f"good {n}.") for n in range(3)]
            given[1].source = "probe"
            for one in given:
                returned(panel, [one])
            assert panel.calls() == {("faithfulness", "scored"): 2, ("faithfulness", "budget"): 1}
            clock.advance(86_400)
            returned(panel, [given[2]])
            assert panel.calls()["faithfulness", "scored"] == 3
        assert len(model.asked) == 6

    def test_every_attempt_is_paid_for(self, configured, model):
        model.script = [status(500, Retry_After="0")] * 2
        with Panel(configured(TABLE.format(url=model.url) + "max_per_day = 2")) as panel:
            returned(panel, [record()])
            assert panel.calls() == {("faithfulness", "budget"): 1}

    def test_what_is_known_costs_nothing(self, configured, model):
        with Panel(configured(TABLE.format(url=model.url) + "max_per_day = 2")) as panel:
            for n in range(5):
                (back,) = returned(panel, [record(n)])
                assert back.measures == {"judge_faithfulness": 1.0}
            assert panel.calls() == {("faithfulness", "scored"): 1, ("faithfulness", "cached"): 4}


class TestNobodyIsLost:
    def test_a_judge_that_hangs_costs_its_scores_and_no_record(self, configured, judge):
        opened = threading.Event()
        judge("hung")(lambda _: opened.wait(TIMEOUT) and 1.0)
        judge("quick")(lambda _: 0.5)
        settings = configured('[judges.hung]\nsample = 1.0\ntimeout = "100ms"\n[judges.quick]\nsample = 1.0\n')
        with Panel(settings) as panel:
            back = panel.take([record(n) for n in range(5)], FOREVER)
            while panel.calls().get(("quick", "scored")) != 5:
                back += panel.take([], FOREVER)
            back += returned(panel, [], until=0.0)
            assert len(back) == 5
            assert {tuple(one.measures) for one in back} == {("judge_quick",)}
            assert panel.calls()["hung", "skipped"] == 5
            opened.set()
        assert panel.calls()["hung", "skipped"] == 5, "what comes too late is counted once"

    def test_where_no_thread_can_be_started_a_record_goes_on_once(self, configured, judge, monkeypatch, caplog):
        judge("quick")(lambda _: 1.0)
        monkeypatch.setattr(threading.Thread, "start", lambda _: (_ for _ in ()).throw(RuntimeError("no more threads")))
        with Panel(configured("[judges.quick]\nsample = 1.0")) as panel:
            assert panel.take([record(1), record(2)], FOREVER) == [record(1), record(2)]
            assert not panel.holds

    def test_nobody_waits_longer_than_twice_the_time_limit(self, configured, judge):
        opened = threading.Event()
        judge("hung")(lambda _: opened.wait(TIMEOUT) and 1.0)
        with Panel(configured('[judges.hung]\nsample = 1.0\ntimeout = "100ms"\nconcurrency = 1')) as panel:
            assert len(returned(panel, [record(n) for n in range(5)])) == 5
            assert panel.calls() == {("hung", "timeout"): 5}
            opened.set()

    def test_a_function_that_took_too_long_scores_nothing(self, configured, judge):
        """It cannot be interrupted, and its word comes too late."""
        slow = Judge("slow", JudgeTable.model_construct(timeout=0.05), lambda _: threading.Event().wait(0.1) or 1.0)
        found = asyncio.run(slow.judge(record(), None, FactReader()))
        assert (found.result, found.score) == (constants.TIMEOUT, None)


class TestAnyThread:
    def test_a_prober_judges_the_reply_it_holds(self, configured, model):
        with Panel(configured(TABLE.format(url=model.url).replace("1.0", "0.0"))) as panel:
            back, (judgement,) = panel.judge(record(claim="good. bad."))
            assert back.measures == {"judge_faithfulness": 0.5}
            assert (judgement.score, judgement.success, judgement.opinion.context_count) == (0.5, True, 1)
            assert panel.judge(record(), sampled=True) == (record(), [])

    def test_it_waits_no_longer_than_it_says(self, configured, judge):
        opened = threading.Event()
        judge("hung")(lambda _: opened.wait(TIMEOUT) and 1.0)
        with Panel(configured("[judges.hung]")) as panel:
            assert panel.judge(record(), timeout=0.05) == (record(), [])
            assert panel.calls() == {("hung", "timeout"): 1}
            opened.set()


class TestWhatJudgesSee:
    """Under `content = "redacted"` judges get what may leave, and under every other content the text as it is."""

    CLAIM = "Write to good.person@mail.example. It is good."

    def sent(self, model):
        return json.dumps([request.body["messages"] for request in model.asked])

    @pytest.mark.parametrize("content", ["none", "redacted", "full"])
    def test_a_model_is_sent_redacted_text_where_text_leaves_redacted(self, configured, model, content):
        text = TABLE.format(url=model.url) + f'[capture]\ncontent = "{content}"\n'
        given = record(claim=self.CLAIM, contexts=[f"as {self.CLAIM}"])
        with Panel(configured(text)) as panel:
            (back,) = returned(panel, [given])
        assert ("good.person@" in self.sent(model)) is (content != "redacted")
        assert "It is good" in self.sent(model)
        assert back.answer_json == given.answer_json, "what the record may take along is decided when it leaves"
        assert back.contexts == given.contexts
        assert "judge_faithfulness" in back.measures

    def test_a_function_gets_the_same(self, configured, judge):
        seen = []

        @judge("seeing")
        def seeing(record):
            seen.append((record.q, record.answer_json.claim))
            return 1.0

        text = '[capture]\ncontent = "redacted"\n[judges.seeing]\nsample = 1.0\n'
        with Panel(configured(text)) as panel:
            returned(panel, [msgspec.structs.replace(record(claim=self.CLAIM), q="Is good.person@mail.example in?")])
        ((question, claim),) = seen
        assert "good.person@" not in question + claim
        assert "It is good" in claim

    def test_probes_follow_their_own_setting(self, configured, model):
        probe = msgspec.structs.replace(record(claim=self.CLAIM), source="probe")
        text = TABLE.format(url=model.url) + '[capture]\ncontent = "redacted"\n'
        with Panel(configured(text)) as panel:
            returned(panel, [probe])
        assert "good.person@" in self.sent(model)
        model.asked.clear()
        with Panel(configured(text + 'probe_content = "redacted"\n')) as panel:
            returned(panel, [probe])
        assert "good.person@" not in self.sent(model)

    def test_where_a_redactor_fails_nobody_is_asked(self, configured, model):
        text = TABLE.format(url=model.url)
        text += '[capture]\ncontent = "redacted"\nredactors = ["tests.support.chat_model:no_redactor"]\n'
        with Panel(configured(text)) as panel:
            (back,) = returned(panel, [record(claim=self.CLAIM)])
            assert panel.calls() == {("faithfulness", "skipped"): 1}
        assert (model.asked, back.measures) == ([], None)
