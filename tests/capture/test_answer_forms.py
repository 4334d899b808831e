"""A pipeline without a fault is one whatever form its model writes: thinking aloud, JSON as text, fences."""

from __future__ import annotations

import json

import pytest
from openai.types.chat import ChatCompletion

import ragmon
from ragmon.capture.convert import call_to_record
from ragmon.core.record import Answer
from tests.support.capturing import capturing, record_of

DOCUMENTS = [{"id": "h1", "text": "The harbour opens at nine."}, {"id": "h2", "text": "Ferries are blue."}]
GOLD = [
    *(
        {
            "qid": f"a{n}",
            "question": f"When does harbour {n} open?",
            "answerable": True,
            "gold_claim_substr": ["opens at nine"],
            "gold_citations": ["h1"],
        }
        for n in range(6)
    ),
    *({"qid": f"u{n}", "question": f"Who painted ferry {n}?", "answerable": False} for n in range(6)),
]
THOUGHTS = {
    True: "Document [2] is about ferries, so it does not help. Document [1] says when.",
    False: "Document [1] is about opening hours and [2] about colours. Neither names a painter.",
}
TEXTS = {True: "The harbour opens at nine [1].", False: "not in context"}
OBJECTS = {
    True: {"answer": "The harbour opens at nine.", "citations": ["h1"]},
    False: {"answer": "not in context", "citations": []},
}
FORMS = {
    "plain": lambda known: TEXTS[known],
    "thinking": lambda known: f"<think>\n{THOUGHTS[known]}\n</think>\n\n{TEXTS[known]}",
    "thinking, begun in the prompt": lambda known: f"{THOUGHTS[known]}\n</think>\n\n{TEXTS[known]}",
    "thinking in brackets": lambda known: f"[THINK]{THOUGHTS[known]}[/THINK]{TEXTS[known]}",
    "thinking in a channel": lambda known: (
        f"<|channel|>analysis<|message|>{THOUGHTS[known]}<|end|><|start|>assistant<|channel|>final<|message|>"
        f"{TEXTS[known]}<|return|>"
    ),
    "reasoning, then an answer": lambda known: (
        f"<reasoning>{THOUGHTS[known]}</reasoning>\n<answer>{TEXTS[known]}</answer>"
    ),
    "dict": lambda known: OBJECTS[known],
    "structured response": lambda known: {"messages": [], "structured_response": OBJECTS[known]},
    "JSON": lambda known: json.dumps(OBJECTS[known]),
    "fence": lambda known: f"```json\n{json.dumps(OBJECTS[known])}\n```",
    "JSON in a dict": lambda known: {"answer": json.dumps(OBJECTS[known])},
    "JSON in JSON": lambda known: json.dumps({"output": OBJECTS[known]}),
    "JSON, written twice": lambda known: json.dumps(json.dumps(OBJECTS[known])),
    "a dict as text": lambda known: str(OBJECTS[known]),
    "JSON behind a thought": lambda known: f"<think>{THOUGHTS[known]}</think>{json.dumps(OBJECTS[known])}",
    "JSON with a thought": lambda known: json.dumps(
        {**OBJECTS[known], "answer": f"<think>{THOUGHTS[known]}</think>{TEXTS[known]}"}
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_form_of_an_answer_changes_no_metric(form):
    @ragmon.trace
    def answer(question):
        ragmon.record(retrieved=DOCUMENTS)
        return FORMS[form]("harbour" in question)

    with capturing() as (_, kept):
        for item in GOLD:
            answer(item["question"])
    report = ragmon.replay(list(map(call_to_record, kept)), GOLD)
    means = {outcome.gate.metric: outcome.value for outcome in report.outcomes}
    wanted = {"answer_precision": 1, "over_refusal_rate": 0, "under_refusal_rate": 0, "citation_hit_rate": 1}
    assert {name: means[name] for name in wanted} == wanted


def test_an_added_name_of_thoughts_comes_off():
    with capturing(reasoning=("plan",)) as (_, kept):
        ragmon.trace(lambda question: f"<plan>{THOUGHTS[True]}</plan>{TEXTS[True]}")("When?")
    assert call_to_record(kept[0]).answer_json.claim == TEXTS[True]


def test_documents_in_a_json_text_are_those_of_the_request():
    record = record_of(json.dumps({**OBJECTS[True], "documents": DOCUMENTS}))
    assert (record.retrieved_ids, record.contexts) == (["h1", "h2"], [each["text"] for each in DOCUMENTS])
    assert record.answer_json == Answer("The harbour opens at nine.", ["h1"])


@pytest.mark.parametrize(
    "text", ["null", "NaN", "<app.Stream object at 0x7f2b>", "tool_calls=[ToolCall(name='search')]"]
)
def test_a_text_that_is_no_answer_leaves_the_answer_unknown(text):
    for result in (text, {"answer": text, "documents": DOCUMENTS}):
        assert record_of(result).answer_json == Answer()


def message(**fields):
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **fields}}
    return ChatCompletion.model_validate(
        {"id": "c1", "created": 1, "model": "m", "object": "chat.completion", "choices": [choice]}
    )


@pytest.mark.parametrize(
    "result",
    [
        message(content=None, refusal="Ask at the pier."),
        {"output": [{"type": "message", "content": [{"type": "refusal", "refusal": "Ask at the pier."}]}]},
        {"answer": "Ask at the pier.", "refused": True},
        '{"answer": "Ask at the pier.", "refused": true}',
    ],
)
def test_a_result_that_says_that_it_refuses(result):
    assert record_of(result).answer_json == Answer("Ask at the pier.", refused=True)
