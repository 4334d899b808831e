"""Questions and answers in the shapes that frameworks and conventions write them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.core import semconv
from ragmon.core.record import Answer
from ragmon.core.written import REDACTED, decode
from ragmon.ingest.spans.mapper import to_record
from ragmon.ingest.spans.span import ATTRIBUTES_DROPPED, CONTENT_NOT_CAPTURED, NOT_UNDERSTOOD, Event
from tests.support.recorded_spans import made

CHAIN = {semconv.SPAN_KIND: semconv.CHAIN}
Q = "Is it?"


def chain_with_call(attributes, call=None):
    """A chain around a model call."""
    chain = made(CHAIN | attributes, end=9)
    return to_record([chain, made({semconv.SPAN_KIND: semconv.LLM} | (call or {}), parent=chain)])


def question(**attributes):
    return chain_with_call({name.replace("__", "."): value for name, value in attributes.items()}).record.q


def answer(output, **call):
    """The answer of a chain's output, as claim and citations."""
    found = chain_with_call({semconv.OUTPUT_VALUE: output}, call).record.answer_json
    return None if found is None else (found.claim, found.citations)


@pytest.mark.parametrize(
    "value",
    [
        Q,
        {"question": Q},
        {"query": Q, "chat_history": []},
        {"input": Q},
        {"input": {"question": Q}},
        {"question": Q, "context": [{"page_content": "text"}]},
        {"query_bundle": {"query_str": Q, "image_path": None}},
        {"data": {"retriever": {"query": Q}, "prompt": {"q": Q}}},
        {"message": Q},
        {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": Q}]},
        {"messages": [{"type": "human", "content": Q}, {"type": "ai", "content": "Ask again."}]},
        {"messages": [["human", Q]]},
        {"messages": [{"lc": 1, "kwargs": {"type": "human", "content": [{"type": "text", "text": Q}]}}]},
        [{"role": "user", "parts": [{"type": "text", "content": Q}]}],
    ],
    ids=str,
)
def test_a_question_in_the_input_of_a_chain(value):
    assert question(input__value=value if isinstance(value, str) else json.dumps(value)) == Q


@pytest.mark.parametrize(
    "value",
    [
        Q,
        {"inputs": Q, "tags": [], "metadata": {}, "kwargs": {"name": "RunnableSequence"}},
        {"inputs": {"question": Q}, "kwargs": {"name": "RunnableSequence"}},
        {"str_or_query_bundle": Q},
        {"args": [Q], "kwargs": {}},
        {"args": [], "kwargs": {"question": Q}},
    ],
    ids=str,
)
def test_a_question_in_the_input_of_an_openllmetry_workflow(value):
    """Text, too, is written as JSON there."""
    assert question(traceloop__entity__input=json.dumps(value)) == Q


def test_the_other_places_of_a_question():
    messages = [{"role": "user", "parts": [{"type": "text", "content": text}]} for text in ("Before.", Q)]
    assert question(gen_ai__input__messages=json.dumps(messages)) == Q
    assert question(gen_ai__input__messages=messages) == Q
    assert question(ai__observability__record_root__input=Q) == Q


@pytest.mark.parametrize("value", ["", "{}", "[]", REDACTED, 7, None, True])
def test_an_input_without_content(value):
    mapped = chain_with_call({semconv.INPUT_VALUE: value})
    assert (mapped.record.q, mapped.missing["q"]) == (None, CONTENT_NOT_CAPTURED)


@pytest.mark.parametrize("value", ['{"context": ["text"]}', [1], {"a": 1}])
def test_an_input_whose_question_is_not_found_was_captured(value):
    mapped = chain_with_call({semconv.INPUT_VALUE: value})
    assert (mapped.record.q, mapped.missing["q"]) == (None, NOT_UNDERSTOOD)


def test_what_was_retrieved_for_is_the_question_only_where_no_workflow_tells():
    """It may have been rewritten."""
    retriever = made({semconv.OPERATION: "retrieval", semconv.QUERY_TEXT: "rewritten"}, start=2)
    told = made(CHAIN | {semconv.INPUT_VALUE: Q}, end=0.5)
    assert to_record([retriever]).record.q == "rewritten"
    assert to_record([retriever, told]).record.q == Q
    assert to_record([made({semconv.SPAN_KIND: semconv.RERANKER, semconv.RERANKER_QUERY: Q})]).record.q == Q
    assert to_record([made({semconv.TRULENS_KIND: "retrieval", semconv.TRULENS_QUERY: Q})]).record.q == Q


def flat_messages(*messages):
    """Messages as OpenInference writes them, each a role and a text."""
    return {
        f"llm.input_messages.{n}.message.{member}": value
        for n, entry in enumerate(messages)
        for member, value in zip(("role", "content"), entry, strict=True)
    }


def test_a_prompt_is_the_question_only_where_no_other_span_tells():
    call = made({semconv.SPAN_KIND: semconv.LLM} | flat_messages(("user", "Is it? Be brief.")), start=1)
    told = made(CHAIN | {semconv.INPUT_VALUE: Q}, end=0.5)
    assert to_record([call]).record.q == "Is it? Be brief."
    assert to_record([call, told]).record.q == Q


def test_the_prompt_of_the_first_call_counts_from_the_turn_on_that_it_answers():
    """Agents add what their tools found as messages of the user, and a conversation begins with earlier turns."""
    conversation = [("system", "Be brief."), ("user", "Before?"), ("assistant", "Before."), ("user", Q), ("user", "{}")]
    first = made({semconv.SPAN_KIND: semconv.LLM} | flat_messages(*conversation), start=1)
    second = made({semconv.SPAN_KIND: semconv.LLM} | flat_messages(*conversation, ("user", "Found: ...")), start=2)
    assert to_record([second, first]).record.q == Q


@pytest.mark.parametrize(
    "output",
    [
        "Yes.",
        {"answer": "Yes.", "context": [{"page_content": "text"}]},
        {"result": "Yes.", "source_documents": []},
        {"response": "Yes.", "source_nodes": ["<NodeWithScore(...)>"], "metadata": {}},
        {"output": "Yes."},
        {"outputs": "Yes.", "kwargs": {"tags": []}},
        {"outputs": {"answer": "Yes."}},
        {"query_satisfied": True, "answer": "Yes."},
        {"replies": ["Yes.", "No."]},
        {"llm": {"replies": ["Yes."]}, "retriever": {"documents": []}},
        {"generations": [[{"text": "Yes.", "type": "ChatGeneration"}]]},
        {"messages": [{"type": "human", "content": "Is it?"}, {"type": "ai", "content": "Yes."}]},
        {"type": "ai", "data": {"content": "Yes.", "type": "ai"}},
        {"lc": 1, "kwargs": {"type": "ai", "content": "Yes."}},
        {"role": "assistant", "content": [{"type": "reasoning", "text": "Hm."}, {"type": "text", "text": "Yes."}]},
    ],
    ids=str,
)
def test_an_answer_in_the_output_of_a_chain(output):
    assert answer(output if isinstance(output, str) else json.dumps(output)) == ("Yes.", None)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ('{"claim": "Yes.", "citations": ["d1", 2]}', ("Yes.", ["d1", "2"])),
        ('{"answer": "Yes.", "citations": [{"id": "d1"}, {"chunk_id": "d2"}]}', ("Yes.", ["d1", "d2"])),
        ('{"answer": {"claim": "Yes.", "citations": []}}', ("Yes.", [])),
        ('{"answer": "Yes.", "citations": "d1"}', ("Yes.", None)),
        ('{"answer": "Yes.", "citations": ["d1", {}]}', ("Yes.", None)),
        ('{"claim": null, "citations": []}', (None, [])),
        ('Sure:\n```json\n{"claim": "Yes.", "citations": ["d1"]}\n```\nAnything else?', ("Yes.", ["d1"])),
        ('```{"claim": "Yes."}```', ("Yes.", None)),
        ("Yes.\ncitations: [d1, d2]", ("Yes.", ["d1", "d2"])),
        ('{"response": "{\\"claim\\": \\"Yes.\\", \\"citations\\": [\\"d1\\"]}"}', ("Yes.", ["d1"])),
        ("42", ("42", None)),
        ('{"answer": 42}', ("42", None)),
        ('{"claim": 0.5}', ("0.5", None)),
        ('{"claim": true}', (None, None)),
        ('{"claim": ["It ", {"text": "is."}, null]}', ("It is.", None)),
        ('"Yes," she said.', ('"Yes," she said.', None)),
        ("[sic] Yes.", ("[sic] Yes.", None)),
    ],
)
def test_claims_and_citations(output, expected):
    assert answer(output) == expected


@pytest.mark.parametrize(
    "output",
    [
        REDACTED,
        '{"context": ["text"]}',
        '{"response_gen": "<generator object>"}',
        "<generator object f at 0x7f>",
        "[]",
        None,
        {"not": ["an answer"]},
    ],
)
def test_where_the_chain_tells_no_answer_the_last_model_call_does(output):
    told = {"llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": "Yes."}
    assert answer(output, **told) == ("Yes.", None)


@pytest.mark.parametrize(
    "call",
    [
        {semconv.OUTPUT_MESSAGES: '[{"role": "assistant", "parts": [{"type": "text", "content": "Yes."}]}]'},
        {"llm.output_messages.0.message.content": "Yes."},
        {"llm.output_messages.0.message.contents.0.message_content.text": "Yes."},
        {"gen_ai.completion.0.content": "Yes.", "gen_ai.completion.0.role": "assistant"},
        {semconv.OUTPUT_VALUE: "Yes."},
        {semconv.ENTITY_OUTPUT: '"Yes."'},
    ],
)
def test_what_a_model_call_said(call):
    assert answer(None, **call) == ("Yes.", None)


def test_the_answer_is_the_last_word_of_the_request_not_of_a_step_in_retrieval():
    """A model that rewrites the question, or judges documents, answers nobody."""
    chain = made(CHAIN, end=9)
    condense = made(CHAIN | {semconv.OUTPUT_VALUE: "Is the harbour old?"}, end=1)
    said = made({semconv.OPERATION: "chat", semconv.OUTPUT_VALUE: "Yes."}, parent=chain, start=2, end=3)
    reranker = made({semconv.SPAN_KIND: semconv.RERANKER, semconv.OUTPUT_VALUE: "[]"}, parent=chain, start=3, end=5)
    judged = made({semconv.OPERATION: "chat", semconv.OUTPUT_VALUE: "Relevant."}, parent=reranker, start=4, end=5)
    assert to_record([condense, chain, said, reranker, judged]).record.answer_json == Answer(claim="Yes.")


def test_an_empty_output_of_a_workflow_that_returned_before_its_model_ended_is_no_answer():
    """Whoever asked reads the stream later; an output that is empty at the end is one."""
    chain = made(CHAIN | {semconv.INPUT_VALUE: Q, semconv.OUTPUT_VALUE: '{"response": ""}'}, end=2)
    said = made({semconv.SPAN_KIND: semconv.LLM, semconv.OUTPUT_VALUE: "Yes."}, parent=chain, start=1, end=3)
    assert to_record([chain, said]).record.answer_json.claim == "Yes."
    assert to_record([chain, said._replace(end_ns=chain.end_ns)]).record.answer_json.claim == ""


def test_representations_of_objects_are_no_citations():
    sources = ["ToolOutput(blocks=[TextBlock(block_type='text', text='At nine.')], tool_name='retriever')"]
    output = json.dumps({"response": "At nine [1].", "sources": sources})
    answer = to_record([made({semconv.SPAN_KIND: semconv.AGENT, semconv.OUTPUT_VALUE: output})]).record.answer_json
    assert (answer.claim, answer.citations) == ("At nine [1].", None)


def test_text_that_lost_attributes_says_so():
    chain = made(CHAIN, end=9, dropped=3)
    mapped = to_record([chain, made({semconv.OPERATION: "chat"}, parent=chain)])
    assert (mapped.missing["q"], mapped.missing["answer_json"]) == (ATTRIBUTES_DROPPED, ATTRIBUTES_DROPPED)


def test_json_that_a_limit_cut_off_is_nobodys_words():
    said = {semconv.OUTPUT_VALUE: '{"answer": "It is, and'}
    assert chain_with_call({semconv.INPUT_VALUE: '{"question": "Is', **said}).record.q is None
    assert answer(said[semconv.OUTPUT_VALUE]) is None
    assert answer(said[semconv.OUTPUT_VALUE], **{semconv.OUTPUT_VALUE: "Yes."}) == ("Yes.", None)


def test_words_that_are_broken_json_are_what_the_model_said():
    broken = '{"claim": "Yes.", "citations": [d1]}'
    said = {"llm.output_messages.0.message.content": broken}
    assert answer(broken, **said) == (broken, None)


def test_an_answer_nested_without_end():
    deep = '{"answer": ' * 900 + '"Yes."' + "}" * 900
    assert answer(deep) is None
    assert answer(None, **{"llm.output_messages.0.message.content": deep}) == (deep, None)
    assert question(input__value='{"input": ' * 900 + '"Is it?"' + "}" * 900) is None


def test_half_a_surrogate_pair_is_no_text():
    record = chain_with_call(
        {semconv.INPUT_VALUE: "Is it \ud83d?", semconv.OUTPUT_VALUE: '{"answer": "\\ud83d"}'}
    ).record
    assert (record.q, record.answer_json.claim) == ("Is it ??", "?")


JSON_TEXTS = st.one_of(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(st.characters(exclude_categories=[]), max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=6,
    ).map(json.dumps),
    st.text('{}[]":,\\ud8 0123456789.eE+-truefalsnNIiy\t\n\x00\x7fä', max_size=12),
    st.sampled_from(
        ["1e400", "-1e400", "1" * 5000, "[" * 2000 + "]" * 2000, '{"a": 1, "a": 2}', "\ufeff[1]", '"\ud800"']
    ),
)


@given(JSON_TEXTS)
def test_json_in_attributes_is_what_pythons_own_decoder_makes_of_it(text):
    """Whichever decoder is asked first: NaN, infinities and half a surrogate pair are nothing for a stricter one."""
    try:
        expected = json.loads(text)
    except (ValueError, RecursionError):
        expected = None
    found = decode(text)
    assert found is expected or repr(found) == repr(expected)


def test_flattened_messages_of_before_2025_hold_the_question():
    prompt = {"gen_ai.prompt.0.role": "system", "gen_ai.prompt.0.content": "Be brief.", "gen_ai.prompt.1.role": "user"}
    call = prompt | {"gen_ai.prompt.1.content": Q, "gen_ai.completion.0.content": "Yes."}
    assert chain_with_call({}, call).record.q == Q


def test_a_choice_in_an_event_is_the_message_in_it():
    """As Semantic Kernel writes it: JSON in a text, with a place beside the message."""
    choice = json.dumps({"message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop", "index": 0})
    call = made({semconv.OPERATION: "chat"}, events=[Event(semconv.CHOICE_EVENT, {"content": choice})])
    assert to_record([call]).record.answer_json == Answer("Yes.")


def test_a_prompt_in_json_holds_the_question_under_its_name():
    content = json.dumps({"question": Q, "context": ["One.", "Two."]})
    messages = json.dumps([{"role": "user", "content": content}])
    assert chain_with_call({}, {semconv.INPUT_MESSAGES: messages}).record.q == Q


def test_an_attachment_is_no_part_of_the_question():
    parts = [{"type": "text", "content": Q}, {"type": "blob", "modality": "image", "content": "aGVsbG8="}]
    messages = json.dumps([{"role": "user", "parts": parts}])
    assert chain_with_call({}, {semconv.INPUT_MESSAGES: messages}).record.q == Q


def test_a_model_that_a_workflow_names_is_the_model_of_a_request_without_calls():
    """As Instructor, which wraps the call of a client that is not traced."""
    assert to_record([made(CHAIN | {semconv.INPUT_VALUE: Q, semconv.LLM_MODEL: "m-1"})]).record.model == "m-1"


def test_a_call_that_failed_may_tell_of_its_model_alone():
    record = to_record([made({semconv.REQUEST_MODEL: "m-1"}, failed=True)]).record
    assert (record.model, record.error) == ("m-1", "error")
