"""A LlamaIndex query engine, traced by OpenInference; the nodes get ids from LlamaIndex, which are UUIDs."""

import sys

import ragmon
from handbook import PASSAGES, complete, embed
from llama_index.core import Document, Settings, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata
from llama_index.core.llms.callbacks import llm_completion_callback
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor
from opentelemetry.sdk.trace import TracerProvider


class HandbookModel(CustomLLM):
    @property
    def metadata(self):
        return LLMMetadata(model_name="handbook")

    @llm_completion_callback()
    def complete(self, prompt, formatted=False, **kwargs):
        return CompletionResponse(text=complete(prompt))

    @llm_completion_callback()
    def stream_complete(self, prompt, formatted=False, **kwargs):
        yield CompletionResponse(text=complete(prompt), delta=complete(prompt))


class WordEmbedding(BaseEmbedding):
    def _get_text_embedding(self, text):
        return embed(text)

    def _get_query_embedding(self, query):
        return embed(query)

    async def _aget_query_embedding(self, query):
        return embed(query)


if __name__ == "__main__":
    provider = TracerProvider()
    Settings.llm, Settings.embed_model = HandbookModel(), WordEmbedding()
    documents = [Document(text=text, metadata={"chunk_id": name}) for name, text in PASSAGES.items()]
    engine = VectorStoreIndex.from_documents(documents).as_query_engine(similarity_top_k=4)
    LlamaIndexInstrumentor().instrument(tracer_provider=provider)
    ragmon.install(provider=provider)
    for line in sys.stdin:
        print(engine.query(line.strip()), flush=True)
