"""A model on loopback that speaks OpenAI's and Gemini's APIs and calls a search tool before it answers.

It is also the small corpus that the tool searches, and the answers to the two questions that agents are asked. Standard
library only: it runs in the environments of the frameworks, where ragmon is not installed.
"""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

QUESTIONS = {
    "When does the first ferry to Sund leave?": "The first ferry leaves at six [1].",
    "Which berth does the night ferry use?": "The night ferry uses berth four [1].",
}
CORPUS = {
    "ferry#1": "The first ferry to Sund leaves at six in the morning.",
    "ferry#2": "The night ferry uses berth four, behind the customs house.",
    "ferry#3": "Bicycles travel free of charge on every ferry.",
    "harbour#1": "The harbour office opens at eight.",
}
TOP_K = 3
OBSERVED = "Observation:"
"""What frameworks write before a tool's result where they give it to the model as a message of the user."""


def search(query):
    """Search the timetable of the ferries: the documents that share the most words with the query, best first."""
    words = set(query.lower().strip("?").split())
    scores = {name: len(words & set(text.lower().strip(".").split())) / len(words) for name, text in CORPUS.items()}
    best = sorted(CORPUS, key=lambda name: -scores[name])[:TOP_K]
    return [{"id": name, "score": round(scores[name], 3), "text": CORPUS[name]} for name in best]


def next_step(messages):
    """The arguments of the next call of the tool, or None and the answer.

    Args:
        messages: Pairs of a role and a text, oldest first; a result of a tool has the role `tool`.
    """
    place, question = [
        (place, question)
        for place, (role, text) in enumerate(messages)
        for question in QUESTIONS
        if role == "user" and question in text
    ][-1]
    searched = any(role == "tool" or OBSERVED in text for role, text in messages[place:])
    return (None, QUESTIONS[question]) if searched else ({"query": question}, "")


def _text(content):
    if isinstance(content, list):
        return "".join(part.get("text") or part.get("content") or "" for part in content)
    return content or ""


def chat_completion(body):
    """A reply of OpenAI's chat completions."""
    arguments, answer = next_step([(message["role"], _text(message.get("content"))) for message in body["messages"]])
    tools = [tool["function"]["name"] for tool in body.get("tools") or ()]
    if arguments is None and "final_answer" in tools:  # the tool by which smolagents' agents answer
        message = {"role": "assistant", "content": None, "tool_calls": [_call("final_answer", {"answer": answer})]}
    elif arguments is None:
        message = {"role": "assistant", "content": answer}
    else:
        name = next(name for name in tools if "search" in name)
        message = {"role": "assistant", "content": None, "tool_calls": [_call(name, arguments)]}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "fake",
        "choices": [
            {"index": 0, "message": message, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def _call(name, arguments):
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def chunks(body):
    """The same reply as a stream of events."""
    whole = chat_completion(body)
    (choice,) = whole["choices"]
    delta = dict(choice["message"])
    if "tool_calls" in delta:
        delta["tool_calls"] = [{"index": 0, **call} for call in delta["tool_calls"]]
    common = {"id": whole["id"], "object": "chat.completion.chunk", "created": 1, "model": "fake"}
    yield {**common, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**common, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    yield {**common, "choices": [], "usage": whole["usage"]}


def response(body):
    """A reply of OpenAI's responses."""
    items = [{"role": "user", "content": body["input"]}] if isinstance(body["input"], str) else body["input"]
    arguments, answer = next_step(
        [
            ("tool" if item.get("type") == "function_call_output" else item.get("role", ""), _text(item.get("content")))
            for item in items
        ]
    )
    if arguments is None:
        text = {"type": "output_text", "text": answer, "annotations": []}
        output = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]}
    else:
        name = next(tool["name"] for tool in body["tools"] if "search" in tool["name"])
        output = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": name, "status": "completed"}
        output["arguments"] = json.dumps(arguments)
    return {
        "id": "resp_1",
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


def generate_content(body):
    """A reply of Gemini's generateContent."""
    messages = []
    for content in body["contents"]:
        called = any("functionResponse" in part for part in content["parts"])
        messages.append(("tool" if called else content.get("role", "user"), _text(content["parts"])))
    arguments, answer = next_step(messages)
    part = {"text": answer} if arguments is None else {"functionCall": {"name": "search", "args": arguments}}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "fake"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith(":generateContent"):
            self.reply(generate_content(body))
        elif self.path.endswith("/responses"):
            self.reply(response(body))
        elif body.get("stream"):
            events = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks(body)) + "data: [DONE]\n\n"
            self.reply(events, "text/event-stream")
        else:
            self.reply(chat_completion(body))

    def reply(self, content, kind="application/json"):
        encoded = (content if isinstance(content, str) else json.dumps(content)).encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def log_message(self, *args):
        """Nothing: frameworks ask often."""


@contextmanager
def model():
    """Run the model; gives its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
