"""A program of its own: an application of one web framework that streams answers in several wire formats over a socket.

`python -m tests.support.wire_apps FRAMEWORK` asks it one answerable and one unanswerable question a format, and prints
what a client got and what ragmon recorded.
"""

from __future__ import annotations

import asyncio
import http.server
import json
import sys
from contextlib import contextmanager
from threading import Event, Thread
from time import perf_counter, sleep
from wsgiref.simple_server import WSGIRequestHandler, make_server

import flask
import httpx
import uvicorn
from aiohttp import web
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import StreamingHttpResponse
from django.urls import path
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route

import ragmon
from ragmon.config.load import defaults
from tests.support.waiting import TIMEOUT

DOCUMENTS = [{"id": "h1", "text": "The harbour opens at nine."}, {"id": "h2", "text": "It closes at ten."}]
ANSWER = "The harbour opens at nine [1]."
REFUSAL = "not in context"
PAUSE = 0.005
"""Seconds before each token: a latency that ends with the handler is shorter than all of them."""
TYPE = "text/event-stream"


def words(question):
    for number, word in enumerate((ANSWER if "harbour" in question else REFUSAL).split(" ")):
        sleep(PAUSE)
        yield word if number == 0 else f" {word}"


def frame(data, event=None):
    name = "" if event is None else f"event: {event}\n"
    return f"{name}data: {data if isinstance(data, str) else json.dumps(data)}\n\n"


def tokens(question):
    yield ": ping\n\n"
    for word in words(question):
        yield frame(word)
    yield frame("[DONE]")


def objects(question):
    yield frame({"sources": DOCUMENTS})
    for word in words(question):
        yield frame({"delta": word})
    yield frame({"done": True, "usage": {"total_tokens": 9}})


def openai(question):
    for word in words(question):
        yield frame(
            {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": word}}]}
        )
    yield frame("[DONE]")


def anthropic(question):
    def event(kind, **fields):
        return frame({"type": kind, **fields}, kind)

    yield event("message_start", message={"id": "m", "role": "assistant", "content": []})
    yield event("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "Not [2]."})
    for word in words(question):
        yield event("content_block_delta", index=1, delta={"type": "text_delta", "text": word})
    yield event("message_stop")


def ndjson(question):
    yield json.dumps({"type": "sources", "data": DOCUMENTS}) + "\n"
    for word in words(question):
        yield json.dumps({"type": "token", "content": word}) + "\n"
    yield json.dumps({"type": "usage", "tokens": 9}) + "\n"


def vercel(question):
    yield f"2:{json.dumps([{'sources': DOCUMENTS}])}\n"
    yield 'g:"Not [2]."\n'
    for word in words(question):
        yield f"0:{json.dumps(word)}\n"
    yield 'd:{"finishReason":"stop"}\n'


FORMATS = {made.__name__: made for made in (tokens, objects, openai, anthropic, ndjson, vercel)}
RECORDED = ("tokens", "openai", "anthropic")
"""Formats whose frames hold no documents: the handler records them."""


def body(name, question):
    if name in RECORDED:
        ragmon.record(retrieved=DOCUMENTS)
    return FORMATS[name](question)


async def abody(name, question):
    for piece in body(name, question):
        yield piece
        await asyncio.sleep(0)


@contextmanager
def served_by_uvicorn(app):

    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = Thread(target=server.run)
    thread.start()
    while not server.started:
        thread.join(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join()


@contextmanager
def in_a_thread(server):
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


class _Silent(WSGIRequestHandler):
    def log_message(self, *args):
        pass


def served_by_wsgi(app):
    return in_a_thread(make_server("127.0.0.1", 0, app, handler_class=_Silent))


def fastapi_app():

    app = FastAPI()

    @app.get("/ask")
    @ragmon.trace(sample=1.0)
    async def ask(name: str, question: str) -> StreamingResponse:
        return StreamingResponse(abody(name, question), media_type=TYPE)

    return served_by_uvicorn(app)


def starlette_app():

    @ragmon.trace(sample=1.0)
    def ask(request):
        name, question = request.query_params["name"], request.query_params["question"]
        return StreamingResponse((piece.encode() for piece in body(name, question)), media_type=TYPE)

    return served_by_uvicorn(Starlette(routes=[Route("/ask", ask)]))


def flask_app():

    app = flask.Flask("wire")

    @app.get("/ask")
    @ragmon.trace(sample=1.0)
    def ask():
        return flask.Response(
            flask.stream_with_context(body(flask.request.args["name"], flask.request.args["question"])), mimetype=TYPE
        )

    return served_by_wsgi(app)


def flask_tuple_app():

    app = flask.Flask("wire")

    @app.get("/ask")
    @ragmon.trace(sample=1.0)
    def ask():
        return body(flask.request.args["name"], flask.request.args["question"]), 200, {"Content-Type": TYPE}

    return served_by_wsgi(app)


def django_app():

    @ragmon.trace(sample=1.0)
    def ask(request):
        return StreamingHttpResponse(body(request.GET["name"], request.GET["question"]), content_type=TYPE)

    settings.configure(ROOT_URLCONF=(path("ask", ask),), ALLOWED_HOSTS=["*"])
    return served_by_wsgi(get_wsgi_application())


def django_async_app():

    @ragmon.trace(sample=1.0)
    async def ask(request):
        return StreamingHttpResponse(abody(request.GET["name"], request.GET["question"]), content_type=TYPE)

    settings.configure(ROOT_URLCONF=(path("ask", ask),), ALLOWED_HOSTS=["*"])
    return served_by_uvicorn(get_asgi_application())


@contextmanager
def _served_by_aiohttp(handler):

    app, loop, started, port = web.Application(), asyncio.new_event_loop(), Event(), []
    app.add_routes([web.get("/ask", handler)])
    runner = web.AppRunner(app)

    async def start():
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port.append(runner.addresses[0][1])
        started.set()

    def run():
        loop.run_until_complete(start())
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = Thread(target=run)
    thread.start()
    started.wait(TIMEOUT)
    yield port[0]
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


def aiohttp_app():

    @ragmon.trace(sample=1.0)
    async def answer(name, question):
        async for piece in abody(name, question):
            yield piece

    async def ask(request):
        response = web.StreamResponse(headers={"Content-Type": TYPE})
        await response.prepare(request)
        async for piece in answer(request.query["name"], request.query["question"]):
            await response.write(piece.encode())
        return response

    return _served_by_aiohttp(ask)


def aiohttp_handler_app():

    @ragmon.trace(sample=1.0)
    async def ask(request):
        response = web.StreamResponse(headers={"Content-Type": TYPE})
        await response.prepare(request)
        async for piece in abody(request.query["name"], request.query["question"]):
            await response.write(piece.encode())
        return response

    return _served_by_aiohttp(ask)


def plain_app():
    @ragmon.trace(sample=1.0)
    def answer(name, question):
        yield from body(name, question)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked = httpx.URL(self.path).params
            self.send_response(200)
            self.send_header("Content-Type", TYPE)
            self.end_headers()
            for piece in answer(asked["name"], asked["question"]):
                self.wfile.write(piece.encode())
                self.wfile.flush()

        def log_message(self, *args):
            pass

    return in_a_thread(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler))


FRAMEWORKS = {
    "FastAPI": fastapi_app,
    "Starlette": starlette_app,
    "Flask": flask_app,
    "Flask with a tuple": flask_tuple_app,
    "Django": django_app,
    "Django with ASGI": django_async_app,
    "aiohttp": aiohttp_app,
    "a handler of aiohttp": aiohttp_handler_app,
    "a plain generator": plain_app,
}


def main(framework):
    sink = ragmon.testing.Collected()
    installed = ragmon.install(defaults(), sink=sink)
    found = []
    with FRAMEWORKS[framework]() as port, httpx.Client(timeout=TIMEOUT, trust_env=False) as client:
        for name in FORMATS:
            for question in ("When does the harbour open?", "Who painted the ferry?"):
                started = perf_counter()
                reply = client.get(f"http://127.0.0.1:{port}/ask", params={"name": name, "question": question})
                elapsed = perf_counter() - started
                found.append({"format": name, "asked": question, "status": reply.status_code, "elapsed": elapsed})
    installed.flush(30)
    installed.shutdown()
    for asked, record in zip(found, sink.records, strict=True):
        answer = record.answer_json
        asked["q"], asked["ids"] = record.q, record.retrieved_ids
        asked["answer"] = answer and answer.claim
        asked["ended"], asked["error"] = record.ended, record.error
        asked["milliseconds"] = record.latency_ms.total
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
