"""A model behind OpenAI's chat API on this machine, as Ollama would be; given tools it asks for a search first."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from handbook import complete


def reply(body):
    messages = body["messages"]
    if body.get("tools") and messages[-1]["role"] == "user":
        name = body["tools"][0]["function"]["name"]
        arguments = json.dumps({"query": messages[-1]["content"]})
        call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    prompt = sorted(messages, key=lambda message: message["role"] == "user")
    return {"role": "assistant", "content": complete("\n".join(message.get("content") or "" for message in prompt))}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        choices = [{"index": 0, "message": reply(body), "finish_reason": "stop"}]
        whole = {"id": "c1", "object": "chat.completion", "created": 1, "model": body["model"], "choices": choices}
        data = json.dumps(whole).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    wbufsize = -1  # headers and body in one packet

    def log_message(self, *_):
        """Write nothing."""


def start():
    """Serve in a thread; returns the base address for OpenAI's client."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/v1"
