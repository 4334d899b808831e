"""Applications around a pipeline: behind a web server."""

# ruff: noqa: PLC0415
from __future__ import annotations

import json
import threading
import time
from functools import partial
from urllib.request import Request, urlopen


def fastapi(tracer):
    """LangChain's chain behind FastAPI, whose spans are around those of the chain."""
    import uvicorn
    from fastapi import FastAPI
    from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor

    from tests.support.programs.langchain import lcel

    calls = dict(zip(("ask", "stream"), lcel(tracer), strict=True))
    app = FastAPI()
    FastAPIInstrumentor.instrument_app(app, tracer_provider=tracer.provider)

    @app.post("/{name}")
    def answer(name: str, asked: dict[str, str]):
        with tracer.session(asked["session"]):
            return calls[name](**asked)

    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical"))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]

    def post(name, question, session):
        body = json.dumps({"question": question, "session": session}).encode()
        with urlopen(Request(f"http://127.0.0.1:{port}/{name}", body, {"Content-Type": "application/json"})) as replied:
            return json.load(replied)

    return partial(post, "ask"), partial(post, "stream")
