"""Django REST framework's views under the decorator, in both orders: question and answer are read."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.support.waiting import TIMEOUT

pytest.importorskip("rest_framework")

APP = """
import json
import django
from django.conf import settings

rest = {"UNAUTHENTICATED_USER": None, "DEFAULT_AUTHENTICATION_CLASSES": []}
settings.configure(
    ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], INSTALLED_APPS=["rest_framework"], SECRET_KEY="x", REST_FRAMEWORK=rest
)
django.setup()

from django.test import Client
from django.urls import path
from rest_framework.decorators import api_view
from rest_framework.response import Response
from rest_framework.views import APIView
import ragmon
from ragmon.config.load import defaults
from ragmon.testing import Collected

ANSWER = {"answer": "Rollo did [1]", "sources": [{"id": "n#1", "text": "Rollo ruled"}]}

def answered(asked):
    assert asked["question"]
    return Response(ANSWER)

@api_view(["POST"])
@ragmon.trace(name="function", sample=1.0)
def function(request):
    return answered(request.data)

@ragmon.trace(name="outside", sample=1.0)
@api_view(["POST"])
def outside(request):
    return answered(request.data)

class Ask(APIView):
    @ragmon.trace(name="method", sample=1.0)
    def post(self, request, format=None):
        return answered(request.data)

    @ragmon.trace(name="query", sample=1.0)
    def get(self, request):
        return answered(request.query_params)

@ragmon.trace(name="unrendered", sample=1.0)
def unrendered(question):
    return Response(ANSWER)

urlpatterns = [path("function", function), path("outside", outside), path("ask", Ask.as_view())]
sink, client = Collected(), Client()
installation = ragmon.install(defaults(), sink=sink)
for place in ("function", "outside", "ask"):
    for kind in ({"content_type": "application/json"}, {}):
        asked = {"question": "Who ruled it first?"}
        reply = client.post(f"/{place}", json.dumps(asked) if kind else asked, **kind)
        assert (reply.status_code, reply.json()) == (200, ANSWER), reply.content
assert client.get("/ask", {"question": "Who ruled it first?"}).json() == ANSWER
unrendered("Who ruled it first?")
assert installation.flush(30)
found = [[r.pipeline, r.q, r.answer_json.claim, r.answer_json.citations, r.retrieved_ids] for r in sink.records]
print(json.dumps(found))
"""


@pytest.mark.slow
def test_question_and_answer_of_function_views_and_class_views_are_read(tmp_path):
    """Django renders a response after its view has returned, so a worker may see it before or after that."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", APP]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr
    pipelines = ["function", "function", "outside", "outside", "method", "method", "query", "unrendered"]
    expected = ["Who ruled it first?", "Rollo did [1]", ["n#1"], ["n#1"]]
    assert json.loads(done.stdout) == [[pipeline, *expected] for pipeline in pipelines]
