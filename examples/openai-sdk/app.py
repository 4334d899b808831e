"""OpenAI's SDK and a search of one's own: the decorator and `ragmon.record` say what no instrumentation sees."""

import json
import os
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import ragmon
from openai import OpenAI

PIERS = ("north", "south", "east", "old")
TEXTS = {f"ferry#{number}": f"Ferry {number} leaves from the {PIERS[number % 4]} pier." for number in range(100)}
QUESTIONS = [f"Where does ferry {number} leave?" for number in range(100)]


def words(text):
    """The words of a text."""
    return set(re.findall(r"\w+", text.lower()))


class FakeEndpoint(BaseHTTPRequestHandler):
    """A stand-in for the API, so that this runs without a key: it repeats the first passage and names its source.

    BROKEN=1 is the day on which the model behind the name changed: it invents its sources.
    """

    def do_POST(self):
        prompt = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"][0]["content"]
        source, passage = re.search(r"^\[(.+?)\] (.+)$", prompt, re.MULTILINE).groups()
        cited = "manual#7" if os.environ.get("BROKEN") else source
        reply = {"role": "assistant", "content": f"{passage}\ncitations: [{cited}]"}
        body = {"id": "1", "object": "chat.completion", "created": 1, "model": "fake"}
        body["choices"] = [{"index": 0, "message": reply, "finish_reason": "stop"}]
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        """Write nothing."""


server = ThreadingHTTPServer(("127.0.0.1", 0), FakeEndpoint)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = OpenAI(api_key="unused", base_url=f"http://127.0.0.1:{server.server_port}/v1")  # yours is OpenAI()


def search(question, k=2):
    """The passages that share most words with a question, best first."""
    best = sorted(TEXTS, key=lambda name: -len(words(question) & words(TEXTS[name])))[:k]
    return [{"id": name, "text": TEXTS[name]} for name in best]


@ragmon.trace(name="ferry-bot")
def answer(question):
    """Answer a question from the handbook."""
    with ragmon.stage("retrieve"):
        documents = search(question)
    ragmon.record(retrieved=documents)
    context = "\n".join(f"[{document['id']}] {document['text']}" for document in documents)
    instruction = f"Answer from this context. End with `citations: [ids]`.\n{context}"
    messages = [{"role": "system", "content": instruction}, {"role": "user", "content": question}]
    return client.chat.completions.create(model="gpt-4o-mini", messages=messages).choices[0].message.content


if __name__ == "__main__":
    installation = ragmon.install()
    for question in QUESTIONS:
        answer(question)
    installation.flush()
    for outcome in installation.monitor.outcomes():
        print(outcome.gate.name, outcome.verdict, "-", outcome.reason)
