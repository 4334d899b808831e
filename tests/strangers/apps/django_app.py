"""A whole Django site in one file: a view that takes a form and answers with JSON."""

import ragmon
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from handbook import complete, search

settings.configure(ROOT_URLCONF=__name__, SECRET_KEY="not-for-production", ALLOWED_HOSTS=["127.0.0.1"])
ragmon.install()


def rag(question):
    documents = search(question)
    return complete("\n".join(document["text"] for document in documents) + "\n" + question), documents


@csrf_exempt
@require_POST
@ragmon.trace
def ask(request):
    text, documents = rag(request.POST["question"])
    ragmon.record(retrieved=documents)
    return JsonResponse({"answer": text, "sources": [d["id"] for d in documents if d["text"] == text]})


urlpatterns = [path("ask", ask)]
app = get_wsgi_application()
