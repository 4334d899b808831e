"""What a function streams is decoded: its answer, documents and citations, whatever the wire format and the events."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import json
from time import process_time
from typing import Any, NamedTuple

import pytest
from fastapi.sse import ServerSentEvent as FastApiEvent
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGenerationChunk
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseTextDeltaEvent
from pydantic import BaseModel
from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta, ThinkingPartDelta
from sse_starlette import EventSourceResponse, ServerSentEvent

import ragmon
from ragmon.capture.objects import unread
from ragmon.core import errors
from ragmon.gates import coverage
from ragmon.testing import capture_traces

WORDS = ["The", " harbour", " opens", " at", " nine."]
ANSWER = "The harbour opens at nine."
DOCUMENTS = [{"id": "d1", "text": "It opens at nine."}, {"id": "d2", "text": "It closes at ten."}]
IDS = ["d1", "d2"]


def record_of(items, **told):
    """The record of a function that streams some items, and whose caller gets them unchanged."""

    @ragmon.trace(**told)
    def answer(question):
        yield from items

    with capture_traces() as records:
        assert list(answer("When does it open?")) == items
    (record,) = records
    return record


def said(items, **told):
    """The answer and the ids of such a record."""
    record = record_of(items, **told)
    return record.answer_json and record.answer_json.claim, record.retrieved_ids


def sse(*data, event=None):
    """Frames of server-sent events."""
    name = "" if event is None else f"event: {event}\n"
    return [f"{name}data: {piece if isinstance(piece, str) else json.dumps(piece)}\n\n" for piece in data]


def typed(*events):
    """Frames whose event has the type of its data, as Anthropic and OpenAI send them."""
    return [frame for event in events for frame in sse(event, event=event["type"])]


def cut(frames, size):
    """The bytes of frames, cut anywhere."""
    data = "".join(frames).encode()
    return [data[place : place + size] for place in range(0, len(data), size)]


def openai_chunks(words, **delta):
    made = [{"role": "assistant", "content": ""}, *({"content": word, **delta} for word in words), {}]
    fields = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return [
        *({**fields, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in made),
        {**fields, "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}},
    ]


def responses(words, *, whole):
    """Events of OpenAI's Responses: reasoning, a call of a tool, then the answer."""
    part = {"item_id": "m1", "output_index": 2, "content_index": 0}
    text = "".join(words)
    output = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Doc [2] is wrong."}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]},
    ]
    return [
        {"type": "response.created", "response": {"id": "r1", "model": "m", "output": []}},
        {"type": "response.reasoning_summary_text.delta", "item_id": "r1", "delta": "Doc [2] is wrong."},
        {"type": "response.function_call_arguments.delta", "item_id": "f1", "delta": '{"q": 1}'},
        {"type": "response.function_call_arguments.done", "item_id": "f1", "arguments": '{"q": 1}'},
        {"type": "response.content_part.added", **part, "part": {"type": "output_text", "text": ""}},
        *({"type": "response.output_text.delta", **part, "delta": word} for word in words),
        {"type": "response.output_text.done", **part, "text": text},
        {"type": "response.content_part.done", **part, "part": {"type": "output_text", "text": text}},
        *([{"type": "response.completed", "response": {"id": "r1", "model": "m", "output": output}}] if whole else []),
    ]


def anthropic(words):
    def block(number, **content):
        return {"type": "content_block_delta", "index": number, "delta": content}

    return [
        {"type": "message_start", "message": {"id": "m1", "role": "assistant", "content": [], "model": "m"}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        block(0, type="thinking_delta", thinking="Document [2] is wrong."),
        block(0, type="signature_delta", signature="c2ln"),
        {"type": "content_block_stop", "index": 0},
        {"type": "ping"},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        *(block(1, type="text_delta", text=word) for word in words),
        {"type": "content_block_stop", "index": 1},
        {"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "input": {}, "name": "f"}},
        block(2, type="input_json_delta", partial_json='{"q": 1}'),
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]


def ui_messages(words):
    """Vercel's UI message stream."""
    return [
        {"type": "start", "messageId": "m1"},
        {"type": "start-step"},
        {"type": "data-sources", "data": DOCUMENTS},
        {"type": "reasoning-start", "id": "r"},
        {"type": "reasoning-delta", "id": "r", "delta": "Document [2] is wrong."},
        {"type": "tool-input-delta", "toolCallId": "f", "inputTextDelta": '{"q": 1}'},
        {"type": "tool-output-available", "toolCallId": "f", "output": {"answer": "no"}},
        {"type": "text-start", "id": "t"},
        *({"type": "text-delta", "id": "t", "delta": word} for word in words),
        {"type": "text-end", "id": "t"},
        {"type": "finish-step"},
        {"type": "finish", "messageMetadata": {"totalUsage": 7}},
    ]


def vercel(words):
    return [
        'f:{"messageId":"m1"}\n',
        f"2:{json.dumps([{'sources': DOCUMENTS}])}\n",
        'g:"Document [2] is wrong."\n',
        '9:{"toolCallId":"f","toolName":"find","args":{"q":1}}\n',
        'a:{"toolCallId":"f","result":"no"}\n',
        *(f"0:{json.dumps(word)}\n" for word in words),
        'e:{"finishReason":"stop","usage":{"promptTokens":3,"completionTokens":2},"isContinued":false}\n',
        'd:{"finishReason":"stop","usage":{"promptTokens":3,"completionTokens":2}}\n',
    ]


# --- wire formats -----------------------------------------------------------------------------------------------------

FRAMED = {
    "tokens": [*sse(*WORDS), "data: [DONE]\n\n"],
    "tokens without the space": [*(f"data:{word}\n\n" for word in WORDS), "data:[DONE]\n\n"],
    "tokens in JSON": [*sse(*(json.dumps(word) for word in WORDS)), "data: [DONE]\n\n"],
    "objects": [*sse(*({"token": word} for word in WORDS)), *sse({"done": True})],
    "chunks of OpenAI": [*sse(*openai_chunks(WORDS)), "data: [DONE]\n\n"],
    "chunks of OpenAI with reasoning": [
        *sse(*openai_chunks([""], reasoning_content="Document [2] is wrong.")),
        *sse(*openai_chunks(WORDS, reasoning_content=None)),
    ],
    "events of OpenAI": typed(*responses(WORDS, whole=True)),
    "deltas of OpenAI alone": sse(*(e for e in responses(WORDS, whole=False) if "delta" in e)),
    "events of Anthropic": typed(*anthropic(WORDS)),
    "a UI message stream": [*sse(*ui_messages(WORDS)), "data: [DONE]\n\n"],
    "a data stream": vercel(WORDS),
    "named events": [
        *sse({"stage": "search"}, event="status"),
        *sse(DOCUMENTS, event="sources"),
        *sse(*WORDS, event="token"),
        *sse({"total": 9}, event="usage"),
        *sse("finished", event="done"),
    ],
    "heartbeats, ids and ends of lines of Windows": [
        ": ping\r\n\r\n",
        *(f"id: {n}\r\nevent: message\r\ndata: {w}\r\nretry: 10\r\n\r\n: ping\r\n\r\n" for n, w in enumerate(WORDS)),
    ],
    "a data of several lines": ["data: The harbour\ndata: opens at nine.\n\n"],
    "no empty lines": [f"data: {json.dumps({'delta': word})}\n" for word in WORDS],
    "NDJSON": [json.dumps({"token": word}) + "\n" for word in WORDS],
    "chunks of LangServe": [
        'event: metadata\ndata: {"run_id": "1"}\n\n',
        *(f"event: data\ndata: {json.dumps(word)}\n\n" for word in WORDS),
        "event: end\n\n",
    ],
    "messages of a LangGraph server": sse(
        *([{"type": "AIMessageChunk", "id": "a", "content": w}, {"langgraph_node": "generate"}] for w in WORDS),
        event="messages",
    ),
    "partial messages of a LangGraph server": [
        *sse(
            *([{"type": "ai", "id": "a", "content": "".join(WORDS[: n + 1])}] for n in range(len(WORDS))),
            event="messages/partial",
        ),
        *sse([{"type": "ai", "id": "a", "content": ANSWER}], event="messages/complete"),
    ],
    "values of a LangGraph server": sse(
        {"messages": [{"type": "human", "content": "When?"}]},
        {"messages": [{"type": "human", "content": "When?"}, {"type": "ai", "content": ANSWER}]},
        event="values",
    ),
    "an object over several lines": [f'data: {{\ndata:   "delta": {json.dumps(word)}\ndata: }}\n\n' for word in WORDS],
    "JSON without ends of lines": [json.dumps({"text": word}) for word in WORDS],
    "a JSON text sequence": ["\x1e" + json.dumps({"content": word}) + "\n" for word in WORDS],
    "a JSON array": ["[", ",\n".join(json.dumps({"delta": word}) for word in WORDS), "]"],
    "chunks of Ollama": [
        json.dumps({"model": "m", "message": {"role": "assistant", "content": word}, "done": not word}) + "\n"
        for word in (*WORDS, "")
    ],
    "generations of Ollama": [
        *(json.dumps({"model": "m", "response": word, "done": False}) + "\n" for word in WORDS),
        json.dumps({"model": "m", "response": "", "done": True, "context": list(range(40))}) + "\n",
    ],
}
NO_IDS = {"a UI message stream": IDS, "a data stream": IDS, "named events": IDS}


@pytest.mark.parametrize("name", FRAMED)
def test_texts_and_bytes_are_decoded_by_their_wire_format(name):
    folded = ANSWER.replace("harbour opens", "harbour\nopens") if name == "a data of several lines" else ANSWER
    expected = (folded, NO_IDS.get(name))
    frames = FRAMED[name]
    assert said(frames) == expected
    assert said([frame.encode() for frame in frames]) == expected


@pytest.mark.parametrize("size", [1, 3, 7, 64, 1000])
@pytest.mark.parametrize("name", FRAMED)
def test_bytes_may_be_cut_anywhere(name, size):
    folded = ANSWER.replace("harbour opens", "harbour\nopens") if name == "a data of several lines" else ANSWER
    assert said(cut(FRAMED[name], size)) == (folded, NO_IDS.get(name))


def test_a_character_may_be_cut_in_two():
    assert said(cut(sse("Où", " est", " le port ?"), 1))[0] == "Où est le port ?"
    assert said(cut(["Où", " est", " le port ?"], 1))[0] == "Où est le port ?"


@pytest.mark.parametrize(
    "items",
    [
        [*WORDS[:2], ": ping\n\n", *WORDS[2:]],
        [*WORDS[:2], ": ping - 2026-01-01 00:00:00\r\n\r\n", *WORDS[2:]],
        [*WORDS, "[DONE]"],
        [*WORDS, "data: [DONE]\n\n"],
        [*WORDS, *sse({"type": "usage", "tokens": 5})],
        [json.dumps({"done": False}) + "\n", *WORDS],
    ],
)
def test_frames_between_tokens_are_no_tokens(items):
    assert said(items)[0] == ANSWER


@pytest.mark.parametrize(
    "words",
    [
        ["As follows", ":\n\n", "it opens"],
        ["data: the plural of datum.", " See above."],
        ["1: open", " at nine\n", "2: close"],
        ['{"a": 1}', " is JSON"],
        ["[1]", " says so"],
        ["The", " type", ":", " text"],
        [":) hello"],
        ["ha", "ha", "ha"],
        ['{"id": 7, ', '"title": "Hours"}'],
        ["Use this:\n", '{"a": 1}\n', "That is all."],
    ],
)
def test_an_answer_that_looks_like_a_frame_is_text(words):
    assert said(words)[0] == "".join(words)


def test_a_token_with_an_end_of_line_is_not_lost_from_a_careless_frame():
    assert said(sse("Hours:", "\n\n- nine", "\n- ten"))[0] == "Hours:- nine\n- ten"


# --- events as objects ------------------------------------------------------------------------------------------------


class Event(BaseModel):
    kind: str
    text: str


class Thinking(BaseModel):
    text: str


@dataclasses.dataclass
class Token:
    token: str


class Named(NamedTuple):
    type: str
    value: Any


class Phase(enum.Enum):
    TOKEN = "token"
    THOUGHT = "thought"


OBJECTS = {
    "type and content": [{"type": "token", "content": word} for word in WORDS],
    "a text": [{"text": word} for word in WORDS],
    "an answer that grows": [{"answer": "".join(WORDS[: n + 1])} for n in range(len(WORDS))],
    "a text that grows": ["".join(WORDS[: n + 1]) for n in range(len(WORDS))],
    "tokens and an end": [*({"token": word} for word in WORDS), {"done": True}],
    "event and data": [{"event": "token", "data": word} for word in WORDS],
    "data of sse-starlette": [{"data": word} for word in WORDS],
    "data in JSON": [{"event": "message", "id": "1", "data": json.dumps({"delta": word})} for word in WORDS],
    "events of sse-starlette": [
        ServerSentEvent(comment="ping"),
        *(ServerSentEvent(word, event="token") for word in WORDS),
        ServerSentEvent("[DONE]"),
    ],
    "events of FastAPI": [*(FastApiEvent(data={"delta": word}) for word in WORDS), FastApiEvent(comment="ping")],
    "texts of FastAPI's events": [FastApiEvent(raw_data=word, event="token") for word in WORDS],
    "models": [Event(kind="reasoning", text="No."), *(Event(kind="token", text=word) for word in WORDS)],
    "models by their class": [Thinking(text="No."), *map(Token, WORDS)],
    "named tuples": [Named("thinking", "No."), *(Named("text", word) for word in WORDS)],
    "enumerations": [
        {"event": Phase.THOUGHT, "data": "No."},
        *({"event": Phase.TOKEN, "data": word} for word in WORDS),
    ],
    "tuples": [("status", "searching"), *(("token", word) for word in WORDS), ("done", None)],
    "statuses and titles": [
        {"type": "status", "message": "Searching"},
        *({"type": "token", "content": word} for word in WORDS),
        {"type": "title", "content": "Hours"},
        {"type": "suggestions", "content": ["When does it close?"]},
    ],
    "what the user said": [{"role": "user", "content": "When?"}, *({"role": "assistant", "content": w} for w in WORDS)],
    "the whole at last": [*({"type": "token", "content": w} for w in WORDS), {"type": "final", "content": ANSWER}],
    "an edited whole": [{"type": "token", "content": "The harbor"}, {"type": "final", "answer": ANSWER}],
    "tokens, then the answer": [*({"token": word} for word in WORDS), {"answer": ANSWER}],
    "chunks and their model": [*(ChatCompletionChunk.model_validate(chunk) for chunk in openai_chunks(WORDS))],
    "raw events of an agent": [
        {"type": "raw_response_event", "data": ResponseTextDeltaEvent.model_construct(**event)}
        for event in responses(WORDS, whole=False)
        if event["type"] == "response.output_text.delta"
    ],
    "events of Responses": responses(WORDS, whole=True),
    "events of Anthropic": anthropic(WORDS),
    "Bedrock's": [
        {"messageStart": {"role": "assistant"}},
        {"contentBlockDelta": {"delta": {"reasoningContent": {"text": "No."}}, "contentBlockIndex": 0}},
        *({"contentBlockDelta": {"delta": {"text": word}, "contentBlockIndex": 1}} for word in WORDS),
        {"contentBlockDelta": {"delta": {"toolUse": {"input": "{}"}}, "contentBlockIndex": 2}},
        {"messageStop": {"stopReason": "end_turn"}},
        {"metadata": {"usage": {"inputTokens": 3}}},
    ],
    "Bedrock's bytes": [{"chunk": {"bytes": json.dumps(event).encode()}} for event in anthropic(WORDS)],
    "Cohere's": [
        {"type": "message-start", "id": "m"},
        {"type": "tool-plan-delta", "delta": {"message": {"tool_plan": "I will search."}}},
        *({"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": w}}}} for w in WORDS),
        {"type": "message-end", "delta": {"finish_reason": "COMPLETE"}},
    ],
    "Gemini's": [
        {"candidates": [{"content": {"role": "model", "parts": [{"text": "No.", "thought": True}, {"text": word}]}}]}
        for word in WORDS
    ],
    "Pydantic AI's": [
        PartStartEvent(index=0, part=TextPart(content=WORDS[0])),
        PartDeltaEvent(index=1, delta=ThinkingPartDelta(content_delta="No.")),
        *(PartDeltaEvent(index=0, delta=TextPartDelta(content_delta=word)) for word in WORDS[1:]),
    ],
    "AG-UI's": [
        {"type": "RUN_STARTED", "runId": "1"},
        {"type": "THINKING_TEXT_MESSAGE_CONTENT", "delta": "No."},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "t", "delta": "{}"},
        {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"},
        *({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": word} for word in WORDS),
        {"type": "RUN_FINISHED", "runId": "1"},
    ],
    "chunks of LangChain": [AIMessageChunk(word) for word in WORDS],
    "stream_mode=messages": [(AIMessageChunk(word), {"langgraph_node": "generate"}) for word in WORDS],
    "messages of an agent": [
        (AIMessageChunk("Let me", id="a"), {}),
        (AIMessageChunk(" look.", id="a"), {}),
        (ToolMessage("It opens at ten.", tool_call_id="t"), {}),
        *((AIMessageChunk(word, id="b"), {}) for word in WORDS),
    ],
    "whole messages of an agent": [
        (HumanMessage("When?"), {}),
        (AIMessage("Let me look."), {}),
        (ToolMessage("It opens at ten.", tool_call_id="t"), {}),
        (AIMessage(ANSWER), {}),
    ],
    "several modes": [
        ("custom", {"progress": "searching"}),
        *(("messages", (AIMessageChunk(word), {"langgraph_node": "generate"})) for word in WORDS),
        ("updates", {"generate": {"answer": ANSWER}}),
    ],
    "subgraphs": [
        ((), "updates", {"rewrite": {"question": "When?"}}),
        *((("generate:1",), "messages", (AIMessageChunk(word), {})) for word in WORDS),
    ],
    "updates with messages": [
        {"agent": {"messages": [AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "t"}])]}},
        {"tools": {"messages": [ToolMessage("It opens at ten.", tool_call_id="t")]}},
        {"agent": {"messages": [AIMessage(ANSWER)]}},
    ],
    "values with messages": [
        {"messages": [HumanMessage("When?")]},
        {"messages": [HumanMessage("When?"), AIMessage(ANSWER)]},
    ],
    "values": [
        {"question": "When?"},
        {"question": "When?", "answer": "The harbour opens at ten."},
        {"question": "When?", "answer": ANSWER},
        {"question": "When?", "answer": ANSWER},
    ],
    "astream_events": [
        {"event": "on_chain_start", "run_id": "1", "data": {"input": "When?"}},
        *({"event": "on_chat_model_stream", "run_id": "2", "data": {"chunk": AIMessageChunk(w)}} for w in WORDS),
        *({"event": "on_chain_stream", "run_id": "1", "data": {"chunk": w}} for w in WORDS),
        {"event": "on_chain_end", "run_id": "1", "data": {"output": ANSWER}},
    ],
    "astream_events of the model alone": [
        {"event": "on_chat_model_stream", "run_id": "2", "data": {"chunk": AIMessageChunk(word)}} for word in WORDS
    ],
    "a thread of Assistants": [
        {"event": "thread.run.created", "data": {"id": "r", "object": "thread.run"}},
        *(
            {
                "event": "thread.message.delta",
                "data": {
                    "object": "thread.message.delta",
                    "delta": {"content": [{"index": 0, "type": "text", "text": {"value": word, "annotations": []}}]},
                },
            }
            for word in WORDS
        ),
    ],
    "tokens of a server of Hugging Face": [
        *({"token": {"id": n, "text": word, "special": False}} for n, word in enumerate(WORDS)),
        {"token": {"id": 9, "text": "</s>", "special": True}, "generated_text": ANSWER},
    ],
    "tokens of an AI": [{"type": "ai", "content": word} for word in WORDS],
    "results that are pieces": [{"type": "result", "text": word} for word in WORDS],
    "agents of Bedrock": [
        {"trace": {"trace": {"orchestrationTrace": {"rationale": {"text": "I will search."}}}}},
        *({"chunk": {"bytes": word.encode()}} for word in WORDS),
    ],
    "a token beside its place": [{"event": "token", "data": {"index": n}, "token": w} for n, w in enumerate(WORDS)],
    "a token and all so far": [
        {"token": word, "answer": "".join(WORDS[: n + 1]), "question": "When?"} for n, word in enumerate(WORDS)
    ],
    "answers in a question's state that are pieces": [{"question": "When?", "answer": word} for word in WORDS],
    "a status beside each message": [
        {"status": "searching", "message": "Searching"},
        *({"status": "streaming", "message": word} for word in WORDS),
        {"status": "done", "message": "ok"},
    ],
    "answers of a call that succeeded": [{"status": "ok", "answer": word} for word in WORDS],
    "keys that say so": [{"answer_delta": word} for word in WORDS],
    "keys in another style": [{"eventType": "token", "tokenText": word} for word in WORDS],
    "drafts": [{"answer": "The harbour opens at ten."}, {"answer": ANSWER}],
    "Dify's": [
        *({"event": "message", "message_id": "m", "answer": word} for word in WORDS),
        {"event": "message_end", "message_id": "m", "metadata": {"usage": {"total_tokens": 7}}},
    ],
    "nodes named as fields are": [
        {"model": {"messages": [AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "t"}])]}},
        {"tools": {"messages": [ToolMessage("It opens at ten.", tool_call_id="t")]}},
        {"model": {"messages": [AIMessage(ANSWER)]}},
    ],
    "chunks of a generation": [ChatGenerationChunk(message=AIMessageChunk(word)) for word in WORDS],
    "blocks of a message": [
        AIMessageChunk([{"type": "thinking", "thinking": "No.", "index": 0}]),
        *(AIMessageChunk([{"type": "text", "text": word, "index": 1}]) for word in WORDS),
    ],
    "a history of a chat": [
        [{"role": "user", "content": "When?"}, {"role": "assistant", "content": "".join(WORDS[: n + 1])}]
        for n in range(len(WORDS))
    ],
}


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_are_events_by_their_kind_and_their_keys(name):
    assert said(OBJECTS[name])[0] == ANSWER


# --- documents and citations ------------------------------------------------------------------------------------------

LAST = {"type": "usage", "usage": {"total_tokens": 7}}
TOLD = {
    "documents first, usage last": [{"sources": DOCUMENTS}, *({"delta": word} for word in WORDS), LAST],
    "by their type": [{"type": "sources", "data": DOCUMENTS}, *({"type": "token", "content": w} for w in WORDS), LAST],
    "by their type and content": [{"type": "context", "content": DOCUMENTS}, *({"token": word} for word in WORDS)],
    "in a tuple": [("documents", DOCUMENTS), *(("token", word) for word in WORDS), ("usage", {"total": 7})],
    "as frames": [*sse({"sources": DOCUMENTS}), *sse(*({"delta": word} for word in WORDS)), *sse(LAST)],
    "as NDJSON": [json.dumps(e) + "\n" for e in ({"documents": DOCUMENTS}, *({"token": word} for word in WORDS), LAST)],
    "before tokens that are no events": [json.dumps({"sources": DOCUMENTS}) + "\n", *WORDS],
    "after tokens that are no events": [*WORDS, json.dumps({"sources": DOCUMENTS})],
    "of a chain of LangChain": [
        {"question": "When?"},
        {"context": [Document("It opens at nine.", id="d1"), Document("It closes at ten.", id="d2")]},
        *({"answer": word} for word in WORDS),
    ],
    "of a node": [{"search": {"docs": DOCUMENTS}}, {"generate": {"answer": ANSWER}}],
    "of nodes that filter": [
        {"retrieve": {"documents": [{"id": "d3"}, *DOCUMENTS], "question": "When?"}},
        {"grade": {"documents": DOCUMENTS, "question": "When?"}},
        {"generate": {"documents": DOCUMENTS, "generation": ANSWER}},
    ],
    "of Cohere": [
        {"event_type": "search-results", "documents": DOCUMENTS},
        *({"event_type": "text-generation", "text": word} for word in WORDS),
        {"event_type": "stream-end", "response": {"text": ANSWER, "documents": DOCUMENTS}},
    ],
    "of a state": [
        {"question": "When?"},
        {"question": "When?", "documents": DOCUMENTS},
        {"question": "When?", "documents": DOCUMENTS, "answer": ANSWER},
    ],
    "of a retriever's end": [
        {"event": "on_retriever_end", "data": {"output": DOCUMENTS}},
        *({"event": "on_chat_model_stream", "data": {"chunk": AIMessageChunk(word)}} for word in WORDS),
    ],
    "one by one": [
        {"type": "source-document", "sourceId": "d1", "title": "Hours"},
        {"type": "source-document", "sourceId": "d2", "title": "More"},
        *({"type": "text-delta", "delta": word} for word in WORDS),
    ],
    "with the last token": [*({"token": w} for w in WORDS[:-1]), {"token": WORDS[-1], "documents": DOCUMENTS}],
    "of frames that are objects": [
        {"event": "sources", "data": json.dumps(DOCUMENTS)},
        *({"event": "token", "data": word} for word in WORDS),
    ],
    "of components": [{"retriever": {"documents": DOCUMENTS}}, {"llm": {"replies": [ANSWER]}}],
}


@pytest.mark.parametrize("name", TOLD)
def test_documents_are_taken_from_every_event(name):
    assert said(TOLD[name]) == (ANSWER, IDS)


@pytest.mark.parametrize(
    "items",
    [
        [{"documents": DOCUMENTS}, *({"token": word} for word in WORDS), {"citations": ["d1"]}],
        [{"documents": DOCUMENTS}, {"type": "citations", "data": ["d1"]}, *({"token": word} for word in WORDS)],
        [
            {"type": "search", "documents": DOCUMENTS},
            *({"type": "content_block_delta", "delta": {"type": "text_delta", "text": word}} for word in WORDS),
            {"type": "content_block_delta", "delta": {"type": "citations_delta", "citation": {"document_index": 0}}},
        ],
        [
            *sse({"documents": DOCUMENTS}),
            *sse(*({"type": "content-delta", "delta": {"message": {"content": {"text": w}}}} for w in WORDS)),
            *sse({"type": "citation-start", "delta": {"message": {"citations": {"sources": [{"id": "d1"}]}}}}),
        ],
    ],
)
def test_citations_are_taken_from_every_event(items):
    answer = record_of(items).answer_json
    assert (answer.claim, answer.citations) == (ANSWER, ["d1"])


def test_labels_are_taken_from_every_event():
    record = record_of([{"session": "s1"}, *({"token": word, "model": "m"} for word in WORDS)])
    assert (record.session, record.model) == ("s1", "m")


# --- what is not understood -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "items",
    [
        [1, 2.5, True],
        [{"t": word} for word in WORDS],
        [{"type": "frobnicated", "text": word} for word in WORDS],
        sse(*({"t": word} for word in WORDS)),
        [object()],
        [b"\x1f\x8b\x08\x00\xff\xfe\x90" * 9],
        [*(json.dumps({"token": word}) + "\n" for word in WORDS), '{"tok'],
        [{"type": "reasoning", "content": "It may open at nine."}],
        [{"type": "status", "message": "Searching"}, {"type": "done", "message": "Finished."}],
        [*({"token": word} for word in WORDS[:3]), {"type": "error", "message": "The model is overloaded."}],
        sse({"token": "The"}, {"error": {"message": "overloaded"}}),
        sse({"token": "The"}, {"status": "error", "message": "overloaded"}),
    ],
)
def test_the_answer_of_events_that_are_not_understood_is_unknown(items):
    assert said(items)[0] is None


@pytest.fixture
def logged(caplog, monkeypatch):
    """The log, in which nothing was said before; and no field was unread."""
    monkeypatch.setattr(errors, "_said", set())
    unread.clear()
    return caplog


def test_events_that_are_not_understood_are_named_with_what_helps(logged):
    record_of(sse(*({"t": word, "A secret!": 1} for word in WORDS)))
    assert "events are not understood (`t`)" in logged.text
    assert "@ragmon.trace(reduce=...)" in logged.text
    assert "ragmon.record(claim=...)" in logged.text
    assert "secret" not in logged.text
    assert dict(unread) == {("claim", "not_understood"): 1}


def test_what_the_call_records_needs_no_understanding(logged):
    @ragmon.trace
    def answer(question):
        yield from ({"t": word} for word in WORDS)
        ragmon.record(claim=ANSWER)

    with capture_traces() as records:
        list(answer("When does it open?"))
    assert (records[0].answer_json.claim, logged.text, dict(unread)) == (ANSWER, "", {})


def test_the_report_on_missing_answers_names_what_helps_a_stream():
    cure = coverage.remedy(coverage.Gap(coverage.ANSWER, 3, 20))
    assert "`reduce=`" in cure
    assert "`ragmon.record(claim=…)`" in cure


cyclic: list[object] = []
cyclic.append({"data": cyclic})


@pytest.mark.parametrize(
    "items",
    [
        [": " + "a" * 1_000_000],
        ["data: x\n\n", "y" * 1_000_000],
        ["[" * 100_000],
        ['{"a":' * 100_000],
        ["1" * 100_000, "{}"],
        ["\n" * 1_000_000],
        [cyclic, "yes"],
        [{"type": "source", "source": {"id": str(n)}} for n in range(5_000)],
        ["data: {}\n\n" * 5_000],
    ],
    ids=["comment", "frame", "arrays", "objects", "number", "lines", "cycle", "sources", "frames"],
)
def test_reading_a_stream_takes_no_longer_than_its_length_allows(items):
    started = process_time()
    record_of(items)
    assert process_time() - started < 5


def test_other_fields_stay_where_the_answer_is_unknown():
    assert said([{"sources": DOCUMENTS}, {"t": "The"}]) == (None, IDS)


def test_reduce_makes_the_answer_of_events_that_are_not_understood():
    assert said([{"t": word} for word in WORDS], reduce=lambda items: "".join(i["t"] for i in items))[0] == ANSWER


def test_the_answer_of_a_response_of_sse_starlette_is_what_its_events_say():
    async def events():
        yield {"event": "sources", "data": json.dumps([{"id": "d1", "text": "The harbour opens at nine."}])}
        for word in WORDS:
            yield ServerSentEvent(data=json.dumps({"delta": word}), event="token")
        yield {"event": "end", "data": ""}

    async def answer(question):
        return EventSourceResponse(events())

    async def read():
        response = await ragmon.trace(answer)("When?")
        return [item async for item in response.body_iterator]

    with capture_traces() as records:
        asyncio.run(read())
    (record,) = records
    assert (record.retrieved_ids, record.answer_json.claim) == (["d1"], "".join(WORDS))
