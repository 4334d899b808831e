"""A LlamaIndex query engine under OpenInference: nothing is decorated, ragmon reads the spans."""

import os
import re

import ragmon
from llama_index.core import Document, Settings, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider

PIERS = ("north", "south", "east", "old")
TEXTS = {f"ferry#{number}": f"Ferry {number} leaves from the {PIERS[number % 4]} pier." for number in range(100)}
QUESTIONS = [f"Where does ferry {number} leave?" for number in range(100)]


# Two stand-ins, so that this runs without a key. In your application they are OpenAIEmbedding() and OpenAI().
def words(text):
    """The words of a text."""
    return set(re.findall(r"\w+", text.lower()))


VOCABULARY = sorted(set().union(*map(words, TEXTS.values())))


class WordEmbedding(BaseEmbedding):
    """A text as a vector: which words it has."""

    def _get_text_embedding(self, text):
        return [0.01 + (word in words(text)) for word in VOCABULARY]

    _get_query_embedding = _get_text_embedding

    async def _aget_query_embedding(self, query):
        return self._get_text_embedding(query)


class FakeModel(CustomLLM):
    """Repeats the first passage of the prompt."""

    @property
    def metadata(self):
        return LLMMetadata(model_name="fake")

    @llm_completion_callback()
    def complete(self, prompt, formatted=False, **kwargs):
        found = (text for text in TEXTS.values() if text in prompt)
        return CompletionResponse(text=next(found, "not in context"))

    @llm_completion_callback()
    def stream_complete(self, prompt, formatted=False, **kwargs):
        yield self.complete(prompt)


def build():
    """The query engine. BROKEN=1 is a release that asks for an edition of the handbook that nobody has indexed."""
    Settings.llm, Settings.embed_model = FakeModel(), WordEmbedding()
    edition = "2027" if os.environ.get("BROKEN") else "2026"
    documents = [Document(text=text, id_=name, metadata={"edition": "2026"}) for name, text in TEXTS.items()]
    index = VectorStoreIndex.from_documents(documents)
    wanted = MetadataFilters(filters=[MetadataFilter(key="edition", value=edition)])
    return index.as_query_engine(similarity_top_k=1, filters=wanted)


if __name__ == "__main__":
    engine = build()
    provider = TracerProvider(resource=Resource.create({"service.name": "ferry-chat"}))
    LlamaIndexInstrumentor().instrument(tracer_provider=provider)
    installation = ragmon.install(provider=provider)

    for question in QUESTIONS:
        engine.query(question)

    installation.flush()
    for outcome in installation.monitor.outcomes():
        print(outcome.gate.name, outcome.verdict, "-", outcome.reason)
