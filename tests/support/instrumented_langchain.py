"""LangChain under OpenInference or OpenLLMetry: chains over an in-memory vector store."""

from __future__ import annotations

from contextlib import suppress

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.instrumentation.langchain import LangchainInstrumentor

from tests.support.instrumented import ANSWER, MANY, QUESTION, forget, main, report


class Backwards(BaseRetriever):
    """A retriever that reranks what another one finds."""

    inner: BaseRetriever

    def _get_relevant_documents(self, query, *, run_manager):
        return list(reversed(self.inner.invoke(query, config={"callbacks": run_manager.get_child()})))[:2]


def inputs(retriever):
    return {"context": retriever, "question": RunnablePassthrough()}


def pipeline(retriever):
    prompt = ChatPromptTemplate.from_template("{context} {question}")
    return inputs(retriever) | prompt | FakeListChatModel(responses=[ANSWER]) | StrOutputParser()


def joined(documents):
    return "\n".join(document.page_content for document in documents)


def found(retriever):
    """What a retriever returns, its spans forgotten."""
    documents = retriever.invoke(QUESTION)
    forget()
    return [document.id for document in documents]


def runs():
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    store.add_documents(
        [Document(id=f"n#{n}", page_content=f"text {n}", metadata={"chunk_id": f"c{n}"}) for n in range(MANY)]
    )
    few, many = (store.as_retriever(search_kwargs={"k": k}) for k in (3, MANY))
    backwards = Backwards(inner=few)
    ids, all_ids, backwards_ids = found(few), found(many), found(backwards)
    labels = [name.replace("n#", "c") for name in ids]
    contexts = [name.replace("n#", "text ") for name in ids]
    report("invoke", ids, pipeline(few).invoke(QUESTION), labels=labels, contexts=contexts)
    report("stream", ids, "".join(pipeline(few).stream(QUESTION)))
    report("joined text", ids, pipeline(few | joined).invoke(QUESTION))
    report("many documents", all_ids, pipeline(many).invoke(QUESTION))
    report("reranked inside", backwards_ids, pipeline(backwards).invoke(QUESTION), candidates=ids)
    with suppress(ZeroDivisionError):
        (inputs(few) | RunnableLambda(lambda _: 1 / 0)).invoke(QUESTION)
    report("failure", ids, error="ZeroDivisionError")
    few.invoke(QUESTION)
    report("retriever alone", ids, labels=labels)
    return pipeline(few).invoke


if __name__ == "__main__":
    main({"openinference": LangChainInstrumentor, "openllmetry": LangchainInstrumentor}, runs)
