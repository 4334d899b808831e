"""A LangChain chain over a vector store, traced by OpenInference; ragmon gets the provider and nothing else."""

import sys

import ragmon
from handbook import PASSAGES, complete, embed
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import SimpleChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider


class WordEmbeddings(Embeddings):
    def embed_query(self, text):
        return embed(text)

    def embed_documents(self, texts):
        return [embed(text) for text in texts]


class HandbookModel(SimpleChatModel):
    @property
    def _llm_type(self):
        return "handbook"

    def _call(self, messages, stop=None, run_manager=None, **kwargs):
        return complete(messages[-1].content)


def build():
    store = InMemoryVectorStore(WordEmbeddings())
    store.add_documents([Document(id=name, page_content=text) for name, text in PASSAGES.items()])
    retriever = store.as_retriever(search_kwargs={"k": 4})
    prompt = ChatPromptTemplate.from_template("Answer from the context.\n{context}\n\nQuestion: {question}")

    def format_docs(docs):
        return "\n\n".join(doc.page_content for doc in docs)

    inputs = {"context": retriever | format_docs, "question": RunnablePassthrough()}
    return inputs | prompt | HandbookModel() | StrOutputParser()


if __name__ == "__main__":
    provider = TracerProvider(resource=Resource.create({"service.name": "ferry-chat", "service.version": "2.1"}))
    LangChainInstrumentor().instrument(tracer_provider=provider)
    ragmon.install(provider=provider)
    chain = build()
    for line in sys.stdin:
        print(chain.invoke(line.strip()), flush=True)
