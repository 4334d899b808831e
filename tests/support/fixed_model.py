"""A model behind OpenAI's chat API on loopback that gives one answer to everything, streamed where that is asked."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODEL = "fixed-1"


def serve(answer):
    """Serve the model until the process ends.

    Args:
        answer: What it says to everything.

    Returns:
        The base address for OpenAI's clients.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            streamed = asked.get("stream", False)
            body = _stream(answer) if streamed else json.dumps(_completion("message", answer)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream" if streamed else "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            """Write nothing: standard error is for what goes wrong."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/v1"


def _completion(member, text, finish_reason="stop"):
    choice = {"index": 0, member: {"role": "assistant", "content": text}, "finish_reason": finish_reason}
    kind = "chat.completion" if member == "message" else "chat.completion.chunk"
    usage = {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
    return {"id": "c1", "object": kind, "created": 1, "model": MODEL, "choices": [choice], "usage": usage}


def _stream(answer):
    parts = [_completion("delta", character, None) for character in answer] + [_completion("delta", "")]
    return b"".join(b"data: " + json.dumps(part).encode() + b"\n\n" for part in parts) + b"data: [DONE]\n\n"
