"""Asking a model over HTTP: what is sent, what is understood of the answer, and what never passes for a verdict."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from ragmon.core import constants
from tests.support.chat_model import completion, send, serving, status, verdicts
from tests.support.model_judges import faithful, judged, precision, record, short_pauses  # noqa: F401 - a fixture


@pytest.fixture
def model():
    with serving() as found:
        yield found


class TestGoodVerdicts:
    def test_contexts_are_judged_in_rank_order(self, model):
        found = judged(precision(model))
        assert (found.result, found.score) == (constants.SCORED, (1 + 2 / 3) / 2)
        assert [one.verdict for one in found.opinion.findings] == ["yes", "no", "yes"]
        assert found.opinion.context_count == 3

    def test_the_model_gets_question_expected_output_and_contexts_in_one_request_of_the_chat_api(self, model):
        judged(precision(model))
        (asked,) = model.asked
        assert asked.path == "/v1/chat/completions"
        assert asked.body["model"] == "m"
        assert [message["role"] for message in asked.body["messages"]] == ["system", "user"]
        assert asked.texts("QUESTION") == ["Who?"]
        assert asked.texts("EXPECTED") == ["Einstein won in 1921."]
        assert asked.texts("CONTEXT") == ["good a", "b", "good c"]
        assert asked.headers["Authorization"] == "Bearer sesame"

    def test_the_schema_asked_for_is_the_form_that_is_read(self, model):
        judged(precision(model))
        form = model.asked[0].body["response_format"]
        item = form["json_schema"]["schema"]["properties"]["verdicts"]["items"]
        assert (form["type"], form["json_schema"]["strict"]) == ("json_schema", True)
        assert set(item["required"]) == {"number", "verdict", "reason"}
        assert item["properties"]["verdict"]["enum"] == ["yes", "no"]

    def test_every_claim_of_the_answer_is_held_against_all_contexts(self, model):
        found = judged(faithful(model), record("x", "y", claim="good 1. good 2. bad 3. good 4."))
        assert (found.result, found.score) == (constants.SCORED, 0.75)
        assert model.asked[0].texts("ANSWER") == ["good 1. good 2. bad 3. good 4."]
        assert model.asked[1].texts("CLAIM") == ["good 1", "good 2", "bad 3", "good 4"]
        assert model.asked[1].texts("CONTEXT") == ["x", "y"]

    def test_the_result_has_the_fields_of_seed_001(self, model):
        told = judged(precision(model)).as_dict()
        assert (told["metric"], told["threshold"], told["success"]) == ("judge_p", 0.5, True)
        assert told["latency_ms"] > 0
        assert told["metadata"]["verdicts"][1] == {"verdict": "no", "reason": "because 2"}
        assert told["reason"] == "2 of 3 contexts are relevant. 2: because 2"

    def test_without_reasons_none_are_asked_for_and_none_are_kept(self, model):
        found = judged(precision(model, include_reason=False))
        assert "reason" not in json.dumps(model.asked[0].body)
        assert found.opinion.reason is None
        assert {one.reason for one in found.opinion.findings} == {None}

    def test_strictly_only_a_perfect_score_counts(self, model):
        found = judged(precision(model, strict=True))
        assert (found.score, found.threshold, found.success) == (0.0, 1.0, False)
        perfect = judged(precision(model, strict=True), record("good", "b"))
        assert (perfect.score, perfect.success) == (1.0, True)

    def test_no_context_at_all_is_a_miss_and_nobody_is_asked(self, model):
        assert judged(precision(model), record()).score == 0.0
        assert model.asked == []

    @pytest.mark.parametrize("word", [" YES\n", "Yes"])
    def test_yes_is_the_word_whatever_its_case_and_the_space_around_it(self, model, word):
        model.script = [verdicts(word, "maybe", "no")]
        assert [one.is_yes for one in judged(precision(model)).opinion.findings] == [True, False, False]

    def test_a_fence_around_the_json_is_taken_off(self, model):
        model.script = [f"```json\n{verdicts('yes', 'no', 'no')}\n```"]
        assert judged(precision(model)).score == 1.0

    def test_what_was_judged_before_is_not_asked_again(self, model):
        judge = precision(model)
        results = [judged(judge).result, judged(judge).result, judged(judge, record("good a", "b")).result]
        assert results == [constants.SCORED, constants.CACHED, constants.SCORED]
        assert len(model.asked) == 2


GARBAGE = {
    "no json": "I think yes",
    "half of it": verdicts("yes", "no", "yes")[:40],
    "another form": '{"answer": "yes"}',
    "a list": '["yes", "no", "yes"]',
    "nothing": "",
    "null": "null",
    "verdicts that are no words": '{"verdicts": [{"verdict": true}, {"verdict": 1}, {"verdict": null}]}',
    "bare words": '{"verdicts": ["yes", "no", "yes"]}',
    "too few": verdicts("yes", "yes"),
    "none": verdicts(),
    "too many": verdicts("yes", "yes", "yes", "yes"),
    "out of order": '{"verdicts": [{"verdict": "no"}, {"number": 3, "verdict": "no"}, {"number": 2, "verdict": "no"}]}',
    "deep": "[" * 100_000,
}


class TestNeverAPass:
    @pytest.mark.slow
    @pytest.mark.parametrize("reply", GARBAGE.values(), ids=GARBAGE)
    def test_a_reply_that_is_not_what_was_asked_for_is_a_judge_error(self, model, reply):
        model.script = [reply]
        found = judged(precision(model))
        assert (found.result, found.score, found.success) == (constants.JUDGE_ERROR, None, None)
        assert len(model.asked) == 1, "a model that answers is not asked again until it says yes"

    @pytest.mark.parametrize("reply", ['{"claims": "one"}', '{"claims": [1]}', '{"claims": [" "]}', "{}"])
    def test_claims_that_cannot_be_read_are_a_judge_error(self, model, reply):
        model.script = [reply]
        assert judged(faithful(model)).result == constants.JUDGE_ERROR

    def test_verdicts_that_do_not_match_the_claims_are_a_judge_error(self, model):
        model.script = ['{"claims": ["a", "b", "c"]}', verdicts("yes", "yes")]
        assert judged(faithful(model)).result == constants.JUDGE_ERROR

    def test_an_answer_without_claims_has_no_score(self, model):
        model.script = ['{"claims": []}']
        found = judged(faithful(model))
        assert (found.result, found.score) == (constants.SKIPPED, None)

    @pytest.mark.parametrize("choice", [{"finish_reason": "length"}, {"message": {"content": None, "refusal": "no"}}])
    def test_a_reply_that_was_cut_or_refused_is_a_judge_error(self, model, choice):
        model.script = [lambda handler, _: completion(handler, verdicts("yes", "yes", "yes"), **choice)]
        assert judged(precision(model)).result == constants.JUDGE_ERROR

    @pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b'{"choices": []}', b'{"choices": "yes"}', b"\xff\xfe"])
    def test_an_answer_that_is_no_completion_is_a_judge_error(self, model, body):
        model.script = [lambda handler, _: send(handler, 200, body)]
        assert judged(precision(model)).result == constants.JUDGE_ERROR

    def test_a_huge_answer_is_not_read_to_its_end(self, model):
        def flood(handler, _):
            handler.send_response(200)
            handler.send_header("Content-Length", str(1 << 40))
            handler.end_headers()
            while True:
                handler.wfile.write(b" " * 65_536)

        model.script = [flood]
        assert judged(precision(model)).result == constants.JUDGE_ERROR

    @pytest.mark.parametrize("slow", ["silent", "dripping", "dripping headers"])
    def test_a_server_that_takes_too_long_is_a_timeout_however_it_does_so(self, model, slow):
        over = threading.Event()

        def wait(handler, _):
            if slow == "dripping":
                handler.send_response(200)
                handler.end_headers()
            elif slow == "dripping headers":
                handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
            while not over.wait(0.05):
                if slow != "silent":
                    handler.wfile.write(b"x")
                    handler.wfile.flush()

        model.script = [wait]
        try:
            found = judged(precision(model, timeout=0.5))
        finally:
            over.set()
        assert (found.result, found.score, found.success) == (constants.TIMEOUT, None, None)

    def test_nobody_there_is_a_judge_error(self):
        with serving() as gone:
            pass
        assert judged(precision(gone)).result == constants.JUDGE_ERROR

    @pytest.mark.parametrize("code", [401, 403, 404, 418])
    def test_a_refusal_of_the_server_is_not_tried_again(self, model, code):
        model.script = [status(code)]
        assert judged(precision(model)).result == constants.JUDGE_ERROR
        assert len(model.asked) == 1


class TestAskingAgain:
    @pytest.mark.slow
    @pytest.mark.parametrize("code", [408, 429, 500, 502, 503, 504])
    def test_what_may_pass_is_tried_again(self, model, code):
        model.script = [status(code)]
        assert judged(precision(model)).result == constants.SCORED
        assert len(model.asked) == 2

    def test_three_attempts_are_all(self, model):
        model.script = [status(500)] * 5
        assert judged(precision(model)).result == constants.JUDGE_ERROR
        assert len(model.asked) == 3

    @pytest.mark.slow
    @pytest.mark.parametrize("pause", ["0.3", "date"])
    def test_the_server_is_left_alone_for_as_long_as_it_asks(self, model, pause):
        soon = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
        model.script = [status(429, Retry_After=soon if pause == "date" else pause)]
        found = judged(precision(model))
        assert found.result == constants.SCORED
        assert found.latency_ms >= 300

    @pytest.mark.parametrize("pause", ["3600", "1e400", "-1", "nan", "soon"])
    def test_a_wait_that_is_too_long_is_not_begun_and_nonsense_is_none(self, model, pause):
        model.script = [status(429, Retry_After=pause)]
        found = judged(precision(model))
        assert found.result == (constants.RATE_LIMITED if pause in ("3600", "1e400") else constants.SCORED)

    def test_while_the_server_wants_to_be_left_alone_nobody_asks_it(self, model):
        model.script = [status(429, Retry_After="3600")]
        judge = precision(model)
        assert [judged(judge).result for _ in range(3)] == [constants.RATE_LIMITED] * 3
        assert len(model.asked) == 1

    def test_a_server_that_does_not_know_schemas_is_asked_without_and_so_ever_after(self, model):
        model.script = [status(400)]
        judge = precision(model)
        assert judged(judge).result == judged(judge, record("good")).result == constants.SCORED
        assert [sorted(asked.body) for asked in model.asked] == [
            ["messages", "model", "response_format", "temperature"],
            ["messages", "model"],
            ["messages", "model"],
        ]
        assert "JSON" in model.asked[1].system
