"""LlamaIndex under OpenInference or OpenLLMetry: query engines over a vector index."""

from __future__ import annotations

from llama_index.core import MockEmbedding, Settings, VectorStoreIndex
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import TextNode
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor
from opentelemetry.instrumentation.llamaindex import LlamaIndexInstrumentor as OpenLLMetryInstrumentor

from tests.support.instrumented import ANSWER, MANY, QUESTION, main, report


class Model(CustomLLM):
    """A model that always gives the same answer."""

    @property
    def metadata(self):
        return LLMMetadata(model_name="fixed")

    @llm_completion_callback()
    def complete(self, prompt, formatted=False, **kwargs):
        return CompletionResponse(text=ANSWER)

    @llm_completion_callback()
    def stream_complete(self, prompt, formatted=False, **kwargs):
        def spoken():
            for end in range(1, len(ANSWER) + 1):
                yield CompletionResponse(text=ANSWER[:end], delta=ANSWER[end - 1])

        return spoken()


class Backwards(BaseNodePostprocessor):
    """Reranks without telling the framework."""

    def _postprocess_nodes(self, nodes, query_bundle=None):
        return list(reversed(nodes))[:2]


class Announced(Backwards):
    """Tells the framework that it reranks, as its cross-encoders do."""

    def _postprocess_nodes(self, nodes, query_bundle=None):
        tell = get_dispatcher(__name__).event
        tell(ReRankStartEvent(query=query_bundle, nodes=nodes, top_n=2, model_name="backwards"))
        kept = super()._postprocess_nodes(nodes, query_bundle)
        tell(ReRankEndEvent(nodes=kept))
        return kept


def runs():
    Settings.llm, Settings.embed_model = Model(), MockEmbedding(8)
    index = VectorStoreIndex(
        [TextNode(id_=f"n#{n}", text=f"text {n}", metadata={"chunk_id": f"c{n}"}) for n in range(MANY)]
    )
    report("index building")

    def run(case, k=3, postprocessors=(), **more):
        response = index.as_query_engine(similarity_top_k=k, node_postprocessors=list(postprocessors)).query(QUESTION)
        report(case, [node.node.node_id for node in response.source_nodes], str(response), **more)

    ids = [node.node.node_id for node in index.as_retriever(similarity_top_k=3).retrieve(QUESTION)]
    labels = [name.replace("n#", "c") for name in ids]
    report("retriever alone", ids)
    run("invoke", labels=labels, contexts=[name.replace("n#", "text ") for name in ids])
    run("many documents", MANY)
    run("postprocessed", postprocessors=[Backwards()], candidates=ids)
    run("reranked", postprocessors=[Announced()], candidates=ids)
    streamed = index.as_query_engine(similarity_top_k=3, streaming=True).query(QUESTION)
    report("stream", ids, "".join(streamed.response_gen))
    return index.as_query_engine(similarity_top_k=3).query


if __name__ == "__main__":
    main({"openinference": LlamaIndexInstrumentor, "openllmetry": OpenLLMetryInstrumentor}, runs)
