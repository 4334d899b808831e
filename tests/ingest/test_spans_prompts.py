"""The question in a prompt: under a label, in a tag, beside the documents; what cannot be told is unknown."""

from __future__ import annotations

import json

import pytest

from ragmon.core import semconv
from ragmon.ingest.spans.mapper import to_record
from ragmon.ingest.spans.prompts import question_in_prompt
from ragmon.ingest.spans.span import PROMPT
from tests.support.recorded_spans import made

Q = "What does a day ticket cost?"
TEXTS = ["A day ticket costs seven marks.", "The oldest tram was built in 1911."]
DOCUMENTS = "[1] A day ticket costs seven marks.\n[2] The oldest tram was built in 1911."
FAQ = "[1] Question: When does it leave?\nAnswer: At nine.\n[2] Question: Where?\nAnswer: At the gate."


@pytest.mark.parametrize(
    "prompt",
    [
        f"Context:\n{DOCUMENTS}\n\nQuestion: {Q}",
        f"Question: {Q}\n\nContext:\n{DOCUMENTS}\n\nHelpful Answer:",
        f"Use the context.\n\n## Context\n{DOCUMENTS}\n\n## Question\n{Q}\n\n## Answer\n",
        f"Use the context.\n{DOCUMENTS}\n**User question:** {Q}\nAnswer in one sentence.\n\nAnswer:",
        f"<documents>{DOCUMENTS}</documents>\n<user_question>\n{Q}\n</user_question>\nBe brief.",
        f"Kontext: {DOCUMENTS}\n\nFrage: {Q}\nAntwort:",
        f"上下文：{DOCUMENTS}\n问题：{Q}",
        f"\nCurrent Task: {Q}\n\nThis is the expected criteria for your final answer: One sentence.\nBegin!",
        f"New task:\n{Q}",
        f"Q: When is it?\nA: Now.\n\nQ: {Q}\nA:",
        f'Context: {DOCUMENTS}\nUser question: "{Q}"',
        f"[[ ## context ## ]]\n{DOCUMENTS}\n\n[[ ## question ## ]]\n{Q}\n\nBegin with `[[ ## answer ## ]]`.",
        f"User: Hello\nAssistant: Hello!\nUser: {Q}\nAssistant:",
    ],
)
def test_a_question_under_a_label_or_in_a_tag(prompt):
    assert question_in_prompt(prompt) == Q
    assert question_in_prompt(prompt, TEXTS) == Q


@pytest.mark.parametrize(
    "prompt",
    [
        f"Answer from these.\n\n{DOCUMENTS}\n\n{Q}",
        f"{Q}\n\n{DOCUMENTS}",
        f"{Q}\n\nUse these documents:\n{DOCUMENTS}\nBe brief.",
        f"Documents: {json.dumps([{'text': text} for text in TEXTS])}\n{Q}",
        f"Answer from these.\n{DOCUMENTS}\n\n{Q}\nBe brief and cite.",
        f"Answer from [Document(id='a', page_content='{TEXTS[1]}', metadata={{'page': (1, 2)}})] {Q}",
    ],
)
def test_a_question_beside_the_documents_that_were_retrieved(prompt):
    assert question_in_prompt(prompt, TEXTS) == Q


@pytest.mark.parametrize(
    "prompt",
    [
        f"Answer from these.\n\n{DOCUMENTS}\n\n{Q}",
        f"Context: {DOCUMENTS}\n{Q}\nWhy?",
        f"<context>\n{TEXTS[0]}\n</context>\n{Q}",
        f"{FAQ}\n{Q}",
        f"Question: {Q}\nContext:\nQuestion: When does it leave?\nBefore nine.\nQuestion: Where?\nAt the gate.",
    ],
)
def test_a_prompt_that_cannot_be_taken_apart_has_no_question(prompt):
    assert question_in_prompt(prompt) is None


@pytest.mark.parametrize(
    "text",
    [
        Q,
        "1. Open the lid.\n2. What next?",
        "What is [1]?",
        "Why?\n\nI ask because it broke.",
        "Is it so: yes or no?",
        "",
    ],
)
def test_a_question_as_a_user_types_it_is_the_question(text):
    assert question_in_prompt(text, TEXTS) == text


def test_words_beside_the_documents_are_the_question_where_they_stand_alone():
    assert question_in_prompt(f"{DOCUMENTS}\nday ticket price", TEXTS) == "day ticket price"
    assert question_in_prompt(f"day ticket price\n{DOCUMENTS}", TEXTS) == "day ticket price"
    assert question_in_prompt(f"day ticket price\n{DOCUMENTS}\nBe brief.\nCite.", TEXTS) is None


def test_questions_among_the_documents_are_not_the_users():
    assert question_in_prompt(f"{FAQ}\n\nQuestion: {Q}\nAnswer:") == Q
    assert question_in_prompt(f"Question: {Q}\n{FAQ}", [FAQ]) == Q


LLM = {semconv.SPAN_KIND: semconv.LLM}


def call(prompt, **fields):
    return made({**LLM, semconv.INPUT_MESSAGES: json.dumps([{"role": "user", "content": prompt}])}, **fields)


def retriever(**fields):
    found = [{"id": f"tram#{n}", "content": text} for n, text in enumerate(TEXTS, 1)]
    return made({semconv.SPAN_KIND: semconv.RETRIEVER, semconv.DOCUMENTS: json.dumps(found)}, **fields)


class TestSpans:
    def test_the_prompt_of_a_model_call_is_taken_apart_by_what_was_retrieved(self):
        root = made({}, end=9)
        spans = [root, retriever(parent=root), call(f"{DOCUMENTS}\n\n{Q}", parent=root, start=2, end=3)]
        assert to_record(spans).record.q == Q

    def test_an_unknown_question_says_that_there_is_a_prompt(self):
        mapped = to_record([call(f"Context: {DOCUMENTS}\n{Q} Be brief.\nCite.")])
        assert (mapped.record.q, mapped.missing["q"]) == (None, PROMPT)

    def test_the_application_may_set_it_on_any_span(self):
        root = made({}, end=9)
        asked = made({semconv.RAGMON_QUESTION: Q}, parent=root)
        assert to_record([root, asked, call(f"{DOCUMENTS}\nBe brief.\nCite.", parent=root)]).record.q == Q

    @pytest.mark.parametrize(
        "inner",
        [
            {semconv.SPAN_KIND: semconv.CHAIN, semconv.INPUT_VALUE: json.dumps({"task": Q})},
            {semconv.TRACELOOP_KIND: "workflow", semconv.ENTITY_INPUT: json.dumps({"inputs": {"question": Q}})},
        ],
    )
    def test_an_inner_workflow_has_it_where_the_outermost_has_none(self, inner):
        root = made({semconv.OPERATION: "invoke_agent"}, end=9)
        workflow = made(inner, parent=root, end=8)
        rewritten = made({semconv.OPERATION: "retrieval", semconv.QUERY_TEXT: "ticket price"}, parent=workflow, end=2)
        spans = [root, workflow, rewritten, call(f"{DOCUMENTS}\n{Q}\nNew task:", parent=workflow, start=3, end=4)]
        assert to_record(spans).record.q == Q

    def test_arguments_and_result_of_the_applications_own_function(self):
        root = made({"question": Q, semconv.RETURN: "Seven marks."}, end=9)
        said = made({**LLM, "gen_ai.operation.name": "chat"}, parent=root, start=2, end=3)
        record = to_record([root, retriever(parent=root), said]).record
        assert (record.q, record.answer_json.claim) == (Q, "Seven marks.")
