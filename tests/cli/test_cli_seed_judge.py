"""`ragmon replay --compat seed-001 --judge-url`: seed 001 with a model, over a real chat API."""

from __future__ import annotations

import json

import pytest

from tests.support.chat_model import serving, status, verdicts
from tests.support.command_line import lines, ragmon

CASE = {
    "input": "Who won the Nobel Prize in 1921?",
    "expected_output": "Einstein won the Nobel Prize in 1921 for the photoelectric effect.",
    "retrieval_context": ["Einstein won: good.", "There was a cat.", "The photoelectric effect: good."],
}


@pytest.fixture
def model():
    with serving() as found:
        yield found


@pytest.fixture
def replay(tmp_path, model):
    """The results of some cases, in their order."""

    def run(*cases, gold=None, options=()):
        files = [lines(tmp_path / "c.jsonl", cases)]
        files += [] if gold is None else ["--gold", lines(tmp_path / "g.jsonl", gold)]
        done = ragmon("replay", *files, "--compat", "seed-001", "--judge-url", model.url, "--model", "m", *options)
        assert (done.code, done.err) == (0, "")
        return [json.loads(line) for line in done.out.splitlines()]

    return run


@pytest.mark.slow
def test_a_case_without_verdicts_is_put_before_the_judge(replay, model):
    (result,) = replay(CASE)
    assert result.pop("latency_ms") >= 0
    assert result == {
        "metric": "Contextual Precision",
        "score": (1 + 2 / 3) / 2,
        "success": True,
        "threshold": 0.5,
        "reason": "2 of 3 contexts are relevant. 2: because 2",
        "metadata": {
            "context_count": 3,
            "verdicts": [{"verdict": v, "reason": f"because {n}"} for n, v in enumerate(["yes", "no", "yes"], start=1)],
        },
    }
    assert model.asked[0].texts("QUESTION") == [CASE["input"]]
    assert model.asked[0].texts("EXPECTED") == [CASE["expected_output"]]


@pytest.mark.slow
def test_the_published_options_hold_for_the_judge_as_well(replay):
    (strict,) = replay(CASE, options=["--strict", "--no-reason"])
    assert (strict["score"], strict["success"], strict["threshold"], strict["reason"]) == (0.0, False, 1.0, None)
    assert {verdict["reason"] for verdict in strict["metadata"]["verdicts"]} == {None}
    assert replay(CASE, options=["--threshold", "0.9"])[0]["success"] is False


@pytest.mark.slow
def test_recorded_verdicts_are_not_asked_for_again(replay, model):
    (result,) = replay({**CASE, "verdicts": ["no", "no", "no"]})
    assert (result["score"], result["latency_ms"], model.asked) == (0.0, None, [])


@pytest.mark.slow
def test_the_expected_output_may_stand_in_a_gold_file(replay, model):
    case = {"qid": "a", "q": "Who?", "contexts": ["good"]}
    assert replay(case, gold=[{"qid": "a", "gold_claim": "Einstein"}])[0]["score"] == 1.0
    assert model.asked[0].texts("EXPECTED") == ["Einstein"]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASE)
def test_what_is_missing_is_named_and_nobody_is_asked(replay, model, name):
    (result,) = replay({key: value for key, value in CASE.items() if key != name})
    assert result == {"error": {"missing_params": [name]}}
    assert model.asked == []


def test_a_judge_that_fails_is_an_error_of_that_case_alone(replay, model):
    model.script = ["garbage", verdicts("yes"), status(401)]
    results = replay(CASE, CASE, CASE, CASE)
    assert [next(iter(result["error"])) for result in results[:3]] == ["judge_error", "judge_error", "api_error"]
    assert results[1]["error"]["judge_error"] == "the reply holds 1 verdicts, and 3 were asked for"
    assert results[2]["error"]["api_error"] == 401
    assert results[3]["success"] is True


@pytest.mark.slow
def test_the_key_comes_from_a_file(replay, model, tmp_path):
    (tmp_path / "key").write_text("sesame\n")
    replay(CASE, options=["--judge-key-file", tmp_path / "key"])
    assert model.asked[0].headers["Authorization"] == "Bearer sesame"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--judge-url", "http://127.0.0.1:1/v1"], "a judge has an address and a model"),
        (["--model", "m"], "a judge has an address and a model"),
        (["--no-reason"], "go with --judge-url"),
        (["--judge-url", "judge.example", "--model", "m"], "--judge-url is not an address: 'judge.example'"),
        (["--judge-url", "http://x", "--model", "m", "--judge-key-file", "nowhere"], "the key cannot be read"),
    ],
)
def test_half_a_judge_is_refused(tmp_path, options, error):
    cases = lines(tmp_path / "c.jsonl", [CASE])
    assert error in ragmon("replay", cases, "--compat", "seed-001", *options).error[0]
