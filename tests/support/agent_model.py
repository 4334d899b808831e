"""A model on loopback that answers from the documents in its prompt, or first calls a tool that searches.

It speaks OpenAI's chat and responses, Gemini's, Anthropic's and Bedrock's APIs, and holds the small corpus that is
searched, and the questions. Standard library only: it runs in the environments of the frameworks, where ragmon is not
installed.
"""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

CORPUS = {
    "ferry#1": "The first ferry to Sund leaves at six in the morning.",
    "ferry#2": "The night ferry uses berth four, behind the customs house.",
    "ferry#3": "Bicycles travel free of charge on every ferry.",
    "harbour#1": "The harbour office opens at eight, on Sundays at ten.",
    "harbour#2": "The watch tells which berth the night ferry does not use.",
}
ANSWERS = {
    "When does the first ferry to Sund leave?": ("ferry#1", "The first ferry leaves at six"),
    "Which berth does the night ferry use?": ("ferry#2", "The night ferry uses berth four"),
    "Do bicycles travel free of charge?": ("ferry#3", "Bicycles travel free"),
    "On Sundays, when does the harbour office open?": ("harbour#1", "The office opens at ten on Sundays"),
}
"""The document that answers a question, and the answer; the model adds the place of the document."""
UNANSWERABLE = "Where are season tickets sold?"
FAILING = "How long does the crossing take?"
REFUSAL = "I'm sorry, but the provided documents do not contain any information about that."
QUESTIONS = (*ANSWERS, UNANSWERABLE, FAILING)
_FIRST, _SECOND, _THIRD, _STREAMED = ANSWERS
TURNS = (
    (_FIRST, "visit-1", False),
    (_SECOND, "visit-1", False),
    (_THIRD, "visit-2", False),
    (_STREAMED, "visit-2", True),
    (UNANSWERABLE, "visit-2", False),
    (FAILING, "visit-3", False),
)
"""What programs are asked in order: a question, its session, and whether the answer is streamed."""
TOP_K = 3
SEARCH = "/search"
"""The path at which programs in other languages search."""
OBSERVED = "Observation:"
"""What frameworks write before a tool's result where they give it to the model as a message of the user."""
_ids = count(1)
_OUTPUT_FIELDS = ("answer", "citations")


def search(query):
    """Search the timetable of the ferries: the documents that share the most words with the query, best first."""
    words = set(query.lower().strip("?").split())
    scores = {name: len(words & set(text.lower().strip(".").split())) / len(words) for name, text in CORPUS.items()}
    best = sorted(CORPUS, key=lambda name: -scores[name])[:TOP_K]
    return [{"id": name, "score": round(scores[name], 3), "text": CORPUS[name]} for name in best]


class FailedCallError(Exception):
    """The model refuses to be called; the client gets HTTP status 400."""


def next_step(messages, *, has_tools):
    """The arguments of the next call of the tool, or None and the answer.

    Args:
        messages: Pairs of a role and a text, oldest first; a result of a tool has the role `tool`.
        has_tools: Whether there is a tool that searches.
    """
    place, question = [
        (place, question)
        for place, (role, text) in enumerate(messages)
        for question in QUESTIONS
        if role in ("user", "system") and question in text
    ][-1]
    since = messages[place:]
    if "[[ ## next_tool_name ## ]]" in since[-1][1] and "[[ ## observation_0 ## ]]" not in since[-1][1]:
        return None, ""  # the first step of DSPy's agent
    if has_tools and not any(role == "tool" or OBSERVED in text for role, text in since):
        return {"query": question.rstrip("?")}, ""  # as a model does: not quite what the user asked
    if question == FAILING:
        raise FailedCallError
    if question == UNANSWERABLE:
        return None, REFUSAL
    found = _documents("\n".join(text for _, text in since)) or _documents("\n".join(text for _, text in messages))
    name, answer = ANSWERS[question]
    return None, f"{answer} [{found.index(name) + 1}]."


def _documents(text):
    """The documents whose text stands in a text, in the order they stand there."""
    return sorted(
        (name for name, content in CORPUS.items() if content in text), key=lambda name: text.index(CORPUS[name])
    )


def cited_places(answer):
    """The places of the documents that an answer cites."""
    return [int(answer.rpartition("[")[2].partition("]")[0])] if "[" in answer else []


def _text(content):
    if isinstance(content, list):
        return "\n".join(_text(part) if isinstance(part, str) else _part(part) for part in content)
    return content if isinstance(content, str) else ""


def _part(part):
    if "toolResult" in part:
        return _text(part["toolResult"]["content"])
    held = part.get("text") or part.get("content") or part.get("output") or part.get("json") or ""
    return _text(held) if isinstance(held, str | list) else json.dumps(held, ensure_ascii=False)


def _searching(names):
    return next((name for name in names if "search" in name or "retrieve" in name), None)


def chat_completion(body):
    """A reply of OpenAI's chat completions."""
    tools = {tool["function"]["name"]: tool["function"] for tool in body.get("tools") or ()}
    messages = [(message["role"], _text(message.get("content"))) for message in body["messages"]]
    tool = _searching(tools)
    arguments, answer = next_step(messages, has_tools=tool is not None)
    message = {"role": "assistant", "content": _in_fields(messages, answer)}
    if arguments is not None:
        message = {"role": "assistant", "content": None, "tool_calls": [_call(tool, arguments)]}
    elif output := next((name for name in tools if name != tool and "transfer" not in name), None):
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [_call(output, _structured(tools[output], answer))],
        }
    elif schema := (body.get("response_format") or {}).get("json_schema"):
        message["content"] = json.dumps(_structured({"parameters": schema["schema"]}, answer))
    return {
        "id": f"chatcmpl-{next(_ids)}",  # LangGraph in JavaScript replaces messages of the same id
        "object": "chat.completion",
        "created": 1,
        "model": "fake",
        "choices": [
            {"index": 0, "message": message, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def _in_fields(messages, answer):
    """An answer as DSPy asks for it, in fields; its agent's first field is the name of a tool."""
    asked = messages[-1][1]
    if "[[ ## next_tool_name ## ]]" in asked:
        (question,) = (question for question in QUESTIONS if question in asked)
        if "[[ ## observation_0 ## ]]" in asked:
            fields = {"next_thought": "I know.", "next_tool_name": "finish", "next_tool_args": "{}"}
        else:
            fields = {"next_thought": "I look it up.", "next_tool_name": "search"}
            fields["next_tool_args"] = json.dumps({"query": question.rstrip("?")})
    elif "[[ ## answer ## ]]" in asked:
        fields = {"reasoning": "It is in the timetable.", "answer": answer}
    else:
        return answer
    return "\n\n".join(f"[[ ## {name} ## ]]\n{value}" for name, value in fields.items()) + "\n\n[[ ## completed ## ]]"


def _structured(tool, answer):
    """The arguments of a tool by which an agent answers: the answer, and the places it cites where there is a field."""
    fields = tool["parameters"]["properties"]
    values = (answer, cited_places(answer))
    return {name: value for name, value in zip(_OUTPUT_FIELDS, values, strict=True) if name in fields}


def _call(name, arguments):
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def _words(text):
    return [f"{word} " for word in text.split(" ")[:-1]] + text.split(" ")[-1:]


def chat_chunks(body):
    """The same reply as a stream of events."""
    whole = chat_completion(body)
    (choice,) = whole["choices"]
    message = choice["message"]
    deltas = [{"role": "assistant", "content": word} for word in _words(message["content"] or "") if word]
    if "tool_calls" in message:
        deltas = [{"role": "assistant", "tool_calls": [{"index": 0, **call} for call in message["tool_calls"]]}]
    common = {"id": whole["id"], "object": "chat.completion.chunk", "created": 1, "model": "fake"}
    for delta in deltas:
        yield {**common, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**common, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    if (body.get("stream_options") or {}).get("include_usage"):
        yield {**common, "choices": [], "usage": whole["usage"]}


def response(body):
    """A reply of OpenAI's responses."""
    items = [{"role": "user", "content": body["input"]}] if isinstance(body["input"], str) else body["input"]
    messages = [
        ("tool", _text(item["output"]))
        if item.get("type") == "function_call_output"
        else (item.get("role", ""), _text(item.get("content")))
        for item in items
    ]
    tool = _searching([tool["name"] for tool in body.get("tools") or () if "name" in tool])
    arguments, answer = next_step(messages, has_tools=tool is not None)
    if arguments is None:
        text = {"type": "output_text", "text": answer, "annotations": []}
        output = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]}
    else:
        output = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": tool, "status": "completed"}
        output["arguments"] = json.dumps(arguments)
    return {
        "id": f"resp_{next(_ids)}",
        "object": "response",
        "created_at": 1,
        "model": "fake",
        "status": "completed",
        "output": [output],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": body.get("tools", []),
        "usage": {
            "input_tokens": 1,
            "output_tokens": 1,
            "total_tokens": 2,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }


def response_events(body):
    """The same reply as a stream of events."""
    whole = response(body)
    (item,) = whole["output"]
    yield {"type": "response.created", "response": {**whole, "status": "in_progress", "output": []}}
    yield {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}}
    if item["type"] == "message":
        place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        (part,) = item["content"]
        yield {"type": "response.content_part.added", **place, "part": {**part, "text": ""}}
        for word in _words(part["text"]):
            yield {"type": "response.output_text.delta", **place, "delta": word, "logprobs": []}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {"type": "response.completed", "response": whole}


def generate_content(body):
    """A reply of Gemini's generateContent."""
    messages = []
    for content in body["contents"]:
        results = [
            json.dumps(part["functionResponse"], ensure_ascii=False)
            for part in content["parts"]
            if "functionResponse" in part
        ]
        role = "tool" if results else content.get("role", "user")
        messages.append((role, "\n".join(results) or _text(content["parts"])))
    declared = [function["name"] for tool in body.get("tools") or () for function in tool["functionDeclarations"]]
    tool = _searching(declared)
    arguments, answer = next_step(messages, has_tools=tool is not None)
    part = {"text": answer} if arguments is None else {"functionCall": {"name": tool, "args": arguments}}
    return _candidate(part)


def _candidate(part):
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "fake"}


def content_chunks(body):
    """The same reply as a stream."""
    whole = generate_content(body)
    (part,) = whole["candidates"][0]["content"]["parts"]
    yield from (_candidate({"text": word}) for word in _words(part["text"])) if "text" in part else [whole]


def _with_results(messages):
    """Messages of Anthropic and Bedrock, where the result of a tool is a part of a message of the user."""
    for message in messages:
        content = message["content"]
        results = (
            [part for part in content if "toolResult" in part or part.get("type") == "tool_result"]
            if isinstance(content, list)
            else []
        )
        yield ("tool", _text(results)) if results else (message["role"], _text(content))


def anthropic_message(body):
    """A reply of Anthropic's messages."""
    tool = _searching([tool["name"] for tool in body.get("tools") or ()])
    arguments, answer = next_step(list(_with_results(body["messages"])), has_tools=tool is not None)
    if arguments is None:
        part = {"type": "text", "text": answer}
    else:
        part = {"type": "tool_use", "id": "toolu_1", "name": tool, "input": arguments}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "fake",
        "content": [part],
        "stop_reason": "end_turn" if arguments is None else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def anthropic_events(body):
    """The same reply as a stream of events."""
    whole = anthropic_message(body)
    (part,) = whole["content"]
    yield {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}}
    yield {"type": "content_block_start", "index": 0, "content_block": {**part, "text": ""}}
    for word in _words(part["text"]):
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}}
    yield {"type": "content_block_stop", "index": 0}
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": whole["usage"],
    }
    yield {"type": "message_stop"}


def converse(body):
    """A reply of Bedrock's converse."""
    _, answer = next_step(list(_with_results(body["messages"])), has_tools=False)
    return {
        "output": {"message": {"role": "assistant", "content": [{"text": answer}]}},
        "stopReason": "end_turn",
        "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2},
        "metrics": {"latencyMs": 1},
    }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            self.answer(self.path.partition("?")[0], body)
        except FailedCallError:
            error = {"message": "the model does not answer this", "type": "invalid_request_error", "code": 400}
            error["status"] = "INVALID_ARGUMENT"
            self.reply({"type": "error", "error": error, "message": error["message"]}, status=HTTPStatus.BAD_REQUEST)

    def answer(self, path, body):
        if path == SEARCH:
            self.reply(search(body["query"]))
        elif path.endswith(":generateContent"):
            self.reply(generate_content(body))
        elif path.endswith(":streamGenerateContent"):
            self.stream(content_chunks(body))
        elif path.endswith("/converse"):
            self.reply(converse(body))
        elif path.endswith("/messages"):
            self.stream(anthropic_events(body), named=True) if body.get("stream") else self.reply(
                anthropic_message(body)
            )
        elif path.endswith("/responses"):
            self.stream(response_events(body), named=True) if body.get("stream") else self.reply(response(body))
        elif body.get("stream"):
            self.stream(chat_chunks(body), end="data: [DONE]\n\n")
        else:
            self.reply(chat_completion(body))

    def stream(self, events, *, named=False, end=""):
        names = "event: {type}\n" if named else ""
        numbered = ({"sequence_number": number, **event} if named else event for number, event in enumerate(events))
        lines = [f"{names.format_map(event)}data: {json.dumps(event)}\n\n" for event in numbered]
        self.reply("".join(lines) + end, "text/event-stream")

    def reply(self, content, kind="application/json", status=HTTPStatus.OK):
        encoded = (content if isinstance(content, str) else json.dumps(content)).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def log_message(self, *args):
        """Nothing: frameworks ask often."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """Nothing: clients break off when they end."""


@contextmanager
def model():
    """Run the model; gives its address."""
    server = _Server(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
