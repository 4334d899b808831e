"""What an answer says, out of thoughts, JSON, fences and messages, and what is no answer."""

from __future__ import annotations

import json

import pytest

from ragmon.core.answers import REASONING, Reply, parse, read, without_reasoning
from ragmon.core.record import Answer, Record
from ragmon.core.refusals import RefusalRule
from ragmon.metrics.facts import REFUSED, FactReader

SAID = "The harbour opens at nine [1]."
THOUGHT = "Document [2] is about ferries, so it does not help. Document [1] says when."


@pytest.mark.parametrize(
    "text",
    [
        *(f"<{name}>{THOUGHT}</{name}>{SAID}" for name in REASONING),
        f"<think>\n{THOUGHT}\n</think>\n\n{SAID}",
        f"<THINK>{THOUGHT}</THINK> {SAID}",
        f'<think type="deep">{THOUGHT}</think>{SAID}',
        f"<seed:think>{THOUGHT}</seed:think>{SAID}",
        f"&lt;think&gt;{THOUGHT}&lt;/think&gt;{SAID}",
        f"<think>{THOUGHT}</thinking>{SAID}",
        f"<think>It begins with `</think>`. {THOUGHT}</think>{SAID}",
        f"<think>One.<think>Two.</think>{THOUGHT}</think>{SAID}",
        f"<think>One.</think><think>{THOUGHT}</think>{SAID}",
        f"<think>{THOUGHT}</think>{SAID}</think>",
        f"{THOUGHT}\n</think>\n\n{SAID}",
        f"{THOUGHT}</think>{SAID}",
        f"So I write <think> first.\n{THOUGHT}\n</think>\n{SAID}",
        f"[THINK]{THOUGHT}[/THINK]{SAID}",
        f"{THOUGHT}[/THINK]{SAID}",
        f"◁think▷{THOUGHT}◁/think▷{SAID}",
        f"<|begin_of_thought|>{THOUGHT}<|end_of_thought|><|begin_of_solution|>{SAID}<|end_of_solution|>",
        f"<|START_THINKING|>{THOUGHT}<|END_THINKING|><|START_RESPONSE|>{SAID}<|END_RESPONSE|>",
        f"<think>{THOUGHT}</think><answer>{SAID}</answer>",
        f"<think>{THOUGHT}</think>\n<final_answer>\n{SAID}",
        f"<think>{THOUGHT}</think>\n<answer>{SAID}</answer>\n<sources>h1</sources>",
        f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>final<|message|>{SAID}<|return|>",
        f"{THOUGHT}<|end|><|start|>assistant<|channel|>final<|message|>{SAID}",
        f"analysis{THOUGHT}assistantfinal{SAID}",
        f"Thought: {THOUGHT}\nFinal Answer: {SAID}",
        f"Here is my thought process: {THOUGHT}\n\nHere is my response: {SAID}",
        f'<details type="reasoning" done="true">\n<summary>Thought</summary>\n{THOUGHT}\n</details>\n{SAID}',
        f'<think>{THOUGHT}</think>\n```json\n{{"answer": "{SAID}"}}\n```',
        f'{{"answer": "<think>{THOUGHT}</think>{SAID}"}}',
    ],
)
def test_thoughts_are_no_part_of_an_answer(text):
    assert parse(text).claim == SAID


@pytest.mark.parametrize(
    "text",
    [
        "Models think between `<think>` and `</think>`.",
        'The marks "<think>" and "</think>" stand around it.',
        "Models think between <think> and </think>.",
        "Put it into <think>...</think> tags, and it is hidden.",
        "```xml\n<think>\nHm.\n</think>\n```\nThis is how a thought looks.",
        "The thought ends with </think>, the answer follows.",
        "[Analysis] The harbour opens at nine.",
        "<think> is the mark that opens a thought, </think> closes it.",
        "- <think>: a thought begins\n- </think>: it ends",
        "| <think> | a thought begins |\n| </think> | it ends |",
        "**<think>** opens and **</think>** closes it.",
        "Thought: what Descartes began with.",
        "The `analysis` channel comes before `<|channel|>final`.",
        "if a < think > b",
    ],
)
def test_marks_that_an_answer_speaks_of_stay(text):
    assert parse(text) == Reply(text)


@pytest.mark.parametrize("text", ["<think>It opens", "[THINK]It opens", f"<|channel|>analysis<|message|>{THOUGHT}"])
def test_a_thought_without_end_leaves_an_empty_answer(text):
    assert parse(text) == Reply("")


def test_names_of_thoughts_can_be_added():
    text = f"<plan>{THOUGHT}</plan>{SAID}"
    assert without_reasoning(text) == text
    assert without_reasoning(text, ("plan",)) == SAID


FULL = {"answer": "At nine.", "citations": ["h1"]}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(FULL),
        json.dumps(FULL, indent=2),
        json.dumps(json.dumps(FULL)),
        json.dumps({"answer": json.dumps(FULL)}),
        json.dumps({"output": FULL}),
        json.dumps({"result": {"output": FULL}}),
        json.dumps({"claim": "At nine.", "citations": ["h1"], "confidence": 0.9}),
        json.dumps({"finalAnswer": "At nine.", "sources": ["h1"]}),
        json.dumps({"response": "At nine.", "citations": ["h1"]}),
        json.dumps({"structured_response": FULL, "messages": [{"type": "ai", "content": ""}]}),
        json.dumps({"role": "assistant", "content": json.dumps(FULL)}),
        json.dumps({"replies": [json.dumps(FULL)]}),
        str(FULL),
        json.dumps([FULL]),
        f"```json\n{json.dumps(FULL)}\n```",
        f"```JSON\n{json.dumps(FULL)}\n```",
        f"```json\n{json.dumps([FULL])}\n```",
        f"```\n{json.dumps(FULL)}\n```",
        f"Sure:\n```json\n{json.dumps(FULL)}\n```\nAnything else?",
        f"Here it is: {json.dumps(FULL)}",
        f"{json.dumps(FULL)}\n\nAnything else?",
        f"json\n{json.dumps(FULL)}",
        "At nine.\ncitations: [h1]",
    ],
)
def test_json_that_names_the_answer_is_taken_apart(text):
    found = parse(text)
    assert (found.claim, found.citations) == ("At nine.", ["h1"])


@pytest.mark.parametrize(
    "text",
    [
        *("42", "-1.5", "true", '["Ada", "Grace"]', "[1, 2]", '{"name": "Ada", "born": 1815}'),
        '{"text": "Ada", "page": 3}',
        '{"result": 42, "unit": "m"}',
        '[{"name": "Ada"}, {"name": "Grace"}]',
        '```json\n{"name": "Ada"}\n```',
        '```python\nprint({"answer": 42})\n```',
        '{"claim": "Yes.", "citations": [d1]}',
        "See {x} and [y].",
    ],
)
def test_json_that_is_the_answer_stays(text):
    assert parse(text) == Reply(text)


def test_json_beside_much_text_is_an_example():
    text = f"{'The service returns an object. ' * 20}\n```json\n{json.dumps(FULL)}\n```\n{'It is read so. ' * 20}"
    assert parse(text) == Reply(text)


@pytest.mark.parametrize(
    "text",
    [
        *("null", " null\n", "NaN", '""', "undefined", "[]", "{}"),
        *(
            "<app.Stream object at 0x7f2b3c4d5e6f>",
            "[<app.Chunk object at 0x7f2b3c4d5e6f>]",
            "<generator object f at 0x7f>",
        ),
        "ChatMessage(_role=<ChatRole.USER: 'user'>, _content=[TextContent(text='At nine.')])",
        "id='m1' source='clerk' models_usage=None content='At nine.' type='TextMessage'",
        "{'_all_messages': [ModelRequest(parts=[UserPromptPart(content='When?')], run_id='r')], '_stream': None}",
        "content='At nine.' additional_kwargs={} response_metadata={}",
        "Prediction(\n    answer='At nine.'\n)",
        "ResponseFunctionToolCall(arguments='{\"q\": 1}', call_id='c', name='search', type='function_call')",
        "tool_calls=[ToolCall(name='search')]",
        '[TOOL_CALLS] [{"name": "search", "arguments": {}}]',
        '<tool_call>\n{"name": "search", "arguments": {}}\n</tool_call>',
        '{"name": "search", "arguments": {"q": "bus"}}',
        '[{"id": "c", "type": "function", "function": {"name": "search", "arguments": "{}"}}]',
        '{"role": "assistant", "content": null, "tool_calls": [{"id": "c"}]}',
        '{"function_call": {"name": "search", "arguments": "{}"}}',
        '{"type": "tool_use", "name": "search", "input": {}}',
        '<think>I search.</think>\n<tool_call>{"name": "search", "arguments": {}}</tool_call>',
    ],
)
def test_what_is_no_answer(text):
    assert parse(text) is None


@pytest.mark.parametrize(
    "value",
    [
        {"answer": "Ask at the pier.", "refused": True},
        {"answer": "Ask at the pier.", "answerable": False},
        {"role": "assistant", "content": None, "refusal": "Ask at the pier."},
        {"choices": [{"message": {"role": "assistant", "content": None, "refusal": "Ask at the pier."}}]},
        {
            "output": [
                {"type": "reasoning", "summary": []},
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "refusal", "refusal": "Ask at the pier."}],
                },
            ]
        },
    ],
)
def test_an_answer_that_says_that_it_refuses(value):
    assert (read(value).claim, read(value).refused) == ("Ask at the pier.", True)


@pytest.mark.parametrize("claim", ["Ask at the pier.", None])
def test_a_refusal_by_its_own_word_is_refused_whatever_its_text(claim):
    flags = FactReader(RefusalRule(matcher_counts=False)).read(Record(answer_json=Answer(claim, refused=True)), None)[0]
    assert flags & REFUSED


def test_documents_in_an_answer():
    documents = [{"id": "h1", "text": "The harbour opens at nine."}]
    assert parse(json.dumps({**FULL, "documents": documents})).documents == documents


def test_the_word_none_is_an_answer():
    """Which of the ferries call there? None. So says the model of nlnet on two questions of SQuAD."""
    assert parse("None").claim == "None"


@pytest.mark.parametrize("value", [None, "null", "<app.Stream object at 0x7f2b>", []])
def test_an_object_whose_answer_is_none_says_nothing(value):
    assert parse(json.dumps({"answer": value, "question": "Is it?"})) == Reply(None)
