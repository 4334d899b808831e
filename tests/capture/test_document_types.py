"""Documents as clients of stores, queries, tables and rerankers return them have the right ids, texts and scores."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections import UserDict, namedtuple
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import haystack
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pydantic
import pytest
import sqlalchemy as sa
import sqlalchemy.orm
from langchain_core.documents import Document
from llama_index.core.schema import NodeWithScore, TextNode

import ragmon
from ragmon.capture.convert import call_to_record
from tests.support.capturing import capturing, record_of

HEX = "65a1b2c3d4e5f60718293a4b"
LONG = UUID("65a1b2c3-d4e5-f607-1829-3a4b00000000")


class ObjectId:
    """As of bson."""

    __slots__ = ("__id",)

    def __init__(self, text):
        self.__id = bytes.fromhex(text)

    def __str__(self):
        raise AssertionError("reading runs no code of the application")


class Hit(UserDict):
    """As of pymilvus."""


@dataclasses.dataclass
class Metadata:
    """As of Weaviate."""

    distance: float | None = None
    certainty: float | None = None
    score: float | None = None


@dataclasses.dataclass
class Object:
    uuid: UUID
    properties: dict[str, Any]
    metadata: Metadata


class Point(pydantic.BaseModel):
    """As of Qdrant."""

    id: Any
    score: float
    payload: dict[str, Any]


class Colliding:
    """A key of a document that cannot be compared."""

    def __hash__(self):
        return hash("text")

    def __eq__(self, other):
        raise LookupError


IDS = {
    "a text": ("a7", "a7"),
    "numpy's text": (np.str_("a7"), "a7"),
    "bytes": (b"doc:1", "doc:1"),
    "bytes that are no text": (b"\xff\x00", "ff00"),
    "a number": (7, "7"),
    "numpy's number": (np.int64(7), "7"),
    "a whole float": (7.0, "7"),
    "numpy's whole float": (np.float64(7), "7"),
    "a whole decimal": (Decimal(7), "7"),
    "a number of 64 bits": (2**63, "9223372036854775808"),
    "an ObjectId": (ObjectId(HEX), HEX),
    "an ObjectId in JSON": ({"$oid": HEX}, HEX),
    "a UUID": (LONG, str(LONG)),
    "the bytes of a UUID": (LONG.bytes, str(LONG)),
    "a half": (7.5, None),
    "not a number": (float("nan"), None),
    "a truth value": (True, None),
    "nothing": (None, None),
    "an empty text": ("", None),
    "a float too large to be exact": (2.0**60, None),
}


@pytest.mark.parametrize("name", IDS)
def test_ids_of_every_type(name):
    value, expected = IDS[name]
    documents = [{"_id": value, "text": "one"}]
    for found in (
        record_of({"answer": "so", "documents": documents}),
        record_of({"answer": "so", "chunks": documents}, id_from="_id"),
    ):
        assert (found.retrieved_ids, found.contexts) == (None if expected is None else [expected], ["one"])


@pytest.mark.parametrize("name", [name for name in IDS if IDS[name][1] and name != "an ObjectId in JSON"])
def test_a_citation_is_the_document_whatever_the_type_of_the_id(name):
    value, expected = IDS[name]
    found = record_of({"answer": "so", "documents": [{"id": value}], "citations": [{"id": value}]})
    assert found.answer_json.citations == found.retrieved_ids == [expected]


def rows(*, names=True):
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row if names else None
    return connection.execute("select 'd1' as id, 'one' as content, 0.5 as score").fetchall()


def queried(how):
    with sa.create_engine("sqlite://").connect() as connection:
        return how(connection.execute(sa.text("select 'd1' as id, 'one' as content, 0.5 as score")))


class Base(sa.orm.DeclarativeBase):
    pass


class Chunk(Base):
    __tablename__ = "chunk"
    chunk_id: sa.orm.Mapped[str] = sa.orm.mapped_column(primary_key=True)
    content: sa.orm.Mapped[str]


def mapped():
    """Objects and their scores, as a search with pgvector selects them."""
    with sa.orm.Session(sa.create_engine("sqlite://")) as session:
        Base.metadata.create_all(session.get_bind())
        session.add(Chunk(chunk_id="d1", content="one"))
        session.flush()
        return session.execute(sa.select(Chunk, sa.literal(0.5).label("similarity"))).all()


class ApiResponse:
    """As of the client of Elasticsearch."""

    __slots__ = ("_body", "_meta")

    def __init__(self, body):
        self._body, self._meta = body, None


class Record:
    """As of asyncpg."""

    def items(self):
        return [("id", "d1"), ("content", "one"), ("score", 0.5)]


class DictRow(list):
    """As of psycopg2."""

    def items(self):
        return zip(("content", "id", "score"), self, strict=True)


Record.__module__, DictRow.__module__ = "asyncpg", "psycopg2.extras"
ApiResponse.__module__ = "elastic_transport._response"


class OpenApiModel:
    """As of Pinecone."""

    def __init__(self, **fields):
        self.__dict__["_data_store"] = fields


OpenApiModel.__module__ = "pinecone.openapi_support.model_utils"
FRAME = {"id": ["d1"], "text": ["one"], "score": [0.5]}
WEAVIATE = Object(LONG, {"content": "one", "title": "t"}, Metadata(distance=0.1, score=0.5))
BEDROCK = {
    "content": {"text": "one", "type": "TEXT"},
    "location": {"type": "S3", "s3Location": {"uri": "s3://b/a.pdf"}},
    "score": 0.5,
    "metadata": {"x-amz-bedrock-kb-chunk-id": "1%3A0"},
}
KENDRA = {"location": {"type": "KENDRA", "kendraDocumentLocation": {"uri": "https://a.example/a"}}}
Row = namedtuple("Row", "id content score")  # noqa: PYI024 - as database clients make them
STORES = {
    "MongoDB": ([{"_id": ObjectId(HEX), "text": "one", "score": 0.5}], HEX),
    "LangChain for MongoDB": ([(Document("one", metadata={"_id": ObjectId(HEX)}), 0.5)], HEX),
    "LangChain for Qdrant": ([(Document("one", metadata={"_id": HEX, "_collection_name": "c"}), 0.5)], HEX),
    "LangChain with a score in metadata": ([Document("one", id="d1", metadata={"relevance_score": 0.5})], "d1"),
    "LangChain.js": ([{"pageContent": "one", "id": "d1", "metadata": {"score": 0.5}}], "d1"),
    "LlamaIndex": ([NodeWithScore(node=TextNode(id_="d1", text="one"), score=0.5)], "d1"),
    "Haystack": ([haystack.Document(id="d1", content="one", score=0.5)], "d1"),
    "Redis": ([{"id": b"d1", "content": b"one", "score": "0.5"}], "d1"),
    "Qdrant, page_content": ([Point(id=str(LONG), score=0.5, payload={"page_content": "one"})], str(LONG)),
    "Qdrant, document": ([Point(id=3, score=0.5, payload={"document": "one"})], "3"),
    "Qdrant's answer": (SimpleNamespace(points=[Point(id=3, score=0.5, payload={"text": "one"})]), "3"),
    "Weaviate": ([WEAVIATE], str(LONG)),
    "Weaviate's answer": (SimpleNamespace(objects=[WEAVIATE]), str(LONG)),
    "Weaviate, certainty": ([dataclasses.replace(WEAVIATE, metadata=Metadata(certainty=0.5))], str(LONG)),
    "Bedrock": ([BEDROCK], "s3://b/a.pdf"),
    "Bedrock's answer": ({"retrievalResults": [BEDROCK], "nextToken": "t"}, "s3://b/a.pdf"),
    "Bedrock, Kendra": ([BEDROCK | KENDRA], "https://a.example/a"),
    "Azure AI Search": ([{"id": "a1", "chunk": "one", "@search.score": 0.5}], "a1"),
    "Azure AI Search, chunks": (
        [{"chunk_id": "a1_p0", "parent_id": "p", "chunk": "one", "@search.score": 0.5}],
        "a1_p0",
    ),
    "Vespa": ([{"id": "id:ns:doc::1", "relevance": 0.5, "fields": {"text": "one", "documentid": "x"}}], "id:ns:doc::1"),
    "Typesense": ([{"document": {"id": "7", "text": "one"}, "text_match": 0.5}], "7"),
    "OpenSearch": ([{"_index": "i", "_id": "7", "_score": 0.5, "_source": {"content": "one"}}], "7"),
    "Elasticsearch's client": (
        ApiResponse({"took": 1, "hits": {"hits": [{"_id": "7", "_score": 0.5, "_source": {"text": "one"}}]}}),
        "7",
    ),
    "Pinecone's client": (
        OpenApiModel(matches=[OpenApiModel(id="d1", score=0.5, metadata={"text": "one"})], namespace=""),
        "d1",
    ),
    "Meilisearch": ([{"id": 7, "text": "one", "_rankingScore": 0.5}], "7"),
    "asyncpg": ([Record()], "d1"),
    "psycopg2": ([DictRow(["one", "d1", 0.5])], "d1"),
    "pandas, rows": ([row for _, row in pd.DataFrame(FRAME).iterrows()], "d1"),
    "pandas, named tuples": (list(pd.DataFrame(FRAME).itertuples()), "d1"),
    "SQLAlchemy, mapped objects": (mapped(), "d1"),
    "Elasticsearch's answer": ({"hits": {"hits": [{"_id": "7", "_score": 0.5, "_source": {"text": "one"}}]}}, "7"),
    "DSPy": ([{"pid": 7, "long_text": "one", "score": 0.5}], "7"),
    "metadata in a text": ([{"text": "one", "metadata": '{"chunk_id": "c1", "score": 0.5}'}], "c1"),
    "sqlite3": (rows(), "d1"),
    "sqlite3 without names": (rows(names=False), "d1"),
    "SQLAlchemy": (queried(lambda result: result.all()), "d1"),
    "SQLAlchemy, mappings": (queried(lambda result: result.mappings().all()), "d1"),
    "named tuples": ([Row("d1", "one", 0.5)], "d1"),
    "tuples": ([("d1", "one", 0.5)], "d1"),
    "tuples with a number": ([(7, "one", 0.5)], "7"),
    "pairs": ([({"id": "d1", "text": "one"}, 0.5)], "d1"),
    "columns": (FRAME, "d1"),
    "pandas": (pd.DataFrame(FRAME), "d1"),
    "pandas, whole floats": (pd.DataFrame(FRAME | {"id": [7.0]}), "7"),
    "pandas, metadata": (pd.DataFrame({"text": ["one"], "score": [0.5], "metadata": [{"chunk_id": "c1"}]}), "c1"),
    "pandas, a score of 32 bits": (pd.DataFrame(FRAME).astype({"score": "float32"}), "d1"),
    "polars": (pl.DataFrame(FRAME), "d1"),
    "pyarrow": (pa.table(FRAME), "d1"),
}
WITHOUT_SCORES = {
    "Milvus": ([{"id": 451, "distance": 0.2, "entity": {"text": "one"}}], "451"),
    "Milvus, pk": ([{"pk": 451, "distance": 0.2, "entity": {"text": "one"}}], "451"),
    "Milvus's answer": ([[Hit(id=451, distance=0.2, entity={"text": "one"})]], "451"),
    "LanceDB": ([{"id": "d1", "text": "one", "_distance": 0.2, "vector": np.zeros(3)}], "d1"),
    "LanceDB's table": (pa.table({"id": ["d1"], "text": ["one"], "_distance": [0.2]}), "d1"),
    "Chroma": (
        {"ids": [["d1"]], "documents": [["one"]], "distances": [[0.1]], "metadatas": [[{}]], "data": None},
        "d1",
    ),
    "Chroma's get": ({"ids": ["d1"], "documents": ["one"], "metadatas": [None], "embeddings": None}, "d1"),
    "Chroma, two queries": ({"ids": [["d1"], ["d1"]], "documents": [["one"], ["one"]]}, "d1"),
    "tuples of two": ([("d1", "one")], "d1"),
    "a score that is the user's": ([{"id": "d1", "payload": {"text": "one", "score": 87}}], "d1"),
}


@pytest.mark.parametrize("field", ["documents", "recorded", "candidates"])
@pytest.mark.parametrize("name", [*STORES, *WITHOUT_SCORES])
def test_what_clients_return(name, field):
    documents, expected = (STORES | WITHOUT_SCORES)[name]

    @ragmon.trace
    def answer(question):
        if field != "documents":
            ragmon.record(**{"retrieved" if field == "recorded" else field: documents})
            return "so [1]"
        return {"answer": "so [1]", "documents": documents}

    with capturing() as (_, kept):
        answer("Is it?")
    record = call_to_record(kept[0])
    if field == "candidates":
        assert record.candidate_ids == [expected]
    else:
        assert (record.retrieved_ids, record.contexts) == ([expected], ["one"])
        assert record.scores == ([0.5] if name in STORES else None)
        assert record.answer_json.citations == [expected]


def test_a_large_answer_of_a_store_costs_no_other_field():
    size = 900
    found = {
        "ids": [[f"d{place}" for place in range(size)]],
        "documents": [["a text " * 500] * size],
        "metadatas": [[{"page": 1}] * size],
    }
    record = record_of({"answer": "so [2]", "documents": found, "candidates": found})
    assert (len(record.retrieved_ids), len(record.contexts), len(record.candidate_ids)) == (size, size, size)
    assert (record.answer_json.claim, record.answer_json.citations) == ("so [2]", ["d1"])


@pytest.mark.parametrize(
    "ids", [["a", "b"], [["a", "b"]], np.array(["a", "b"]), pd.Series(["a", "b"]), pl.Series(["a", "b"])]
)
def test_a_list_of_ids(ids):
    assert record_of({"answer": "so", "retrieved": ids}).retrieved_ids == ["a", "b"]


@pytest.mark.parametrize("ids", [[7, 8], [[7, 8]], np.array([7, 8]), pd.Series([7.0, 8.0]), [(7, 0.5), (8, 0.25)]])
def test_a_list_of_numbers_that_are_ids(ids):
    assert record_of({"answer": "so", "retrieved": ids}).retrieved_ids == ["7", "8"]


def test_a_table_beside_the_answer():
    frame = pd.DataFrame({"id": ["d1", "d2"], "text": ["one", "two"]})
    record = record_of(("so [2]", frame))
    assert (record.retrieved_ids, record.answer_json.citations) == (["d1", "d2"], ["d2"])


def test_a_row_that_begins_with_the_text():
    record = record_of({"answer": "so", "documents": [("one of two", "d1"), ("two of two", "d2")]})
    assert (record.retrieved_ids, record.contexts) == (["d1", "d2"], ["one of two", "two of two"])


def test_a_table_without_ids_has_texts():
    record = record_of({"answer": "so", "documents": pd.DataFrame({"text": ["one", "two"], "page": [1, 2]})})
    assert (record.retrieved_ids, record.contexts) == (None, ["one", "two"])


def test_ids_that_cannot_be_read_cost_no_texts_of_other_documents():
    record = record_of({"answer": "so", "retrieved_ids": ["d1", "d2", 1.5], "documents": ["one", "two"]})
    assert (record.retrieved_ids, record.contexts) == (None, ["one", "two"])


def test_documents_of_columns_without_an_id_are_several():
    columns = {"ids": [[None, "", "c", "c"]], "documents": [["one", "two", "three", "three"]]}
    record = record_of({"answer": "so", "documents": columns})
    assert (record.retrieved_ids, record.contexts) == (None, ["one", "two", "three"])


def test_a_text_that_cannot_be_read_costs_no_id():
    documents = [{"id": "d1", "text": "one"}, {"id": "d2", Colliding(): "two"}]
    record = record_of({"answer": "so", "documents": documents})
    assert (record.retrieved_ids, record.contexts, record.answer_json.claim) == (["d1", "d2"], None, "so")


class Ranked(pydantic.BaseModel):
    """As of Cohere."""

    index: int
    relevance_score: float
    document: dict[str, str] | None = None


Voyage = namedtuple("Voyage", "index document relevance_score")  # noqa: PYI024 - as its client makes them
FOUND = [{"id": name, "text": text, "score": 0.1} for name, text in zip("abc", ("one", "two", "three"), strict=True)]
RERANKED = {
    "Cohere": SimpleNamespace(
        id="r", results=[Ranked(index=2, relevance_score=0.9), Ranked(index=0, relevance_score=0.4)]
    ),
    "Cohere with texts": [
        Ranked(index=2, relevance_score=0.9, document={"text": "three"}),
        Ranked(index=0, relevance_score=0.4, document={"text": "one"}),
    ],
    "Voyage": SimpleNamespace(results=[Voyage(2, "three", 0.9), Voyage(0, "one", 0.4)], total_tokens=7),
    "Jina": {"results": [{"index": 2, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.4}]},
    "sentence-transformers": [{"corpus_id": 2, "score": 0.9}, {"corpus_id": 0, "score": 0.4}],
    "ids and scores": [{"id": "c", "score": 0.9}, {"id": "a", "score": 0.4}],
    "texts and scores": [{"text": "three", "score": 0.9}, {"text": "one", "score": 0.4}],
    "pairs of ids": [("c", 0.9), ("a", 0.4)],
}


@pytest.mark.parametrize("told", ["candidates", "documents"])
@pytest.mark.parametrize("name", RERANKED)
def test_what_a_reranker_leaves_out_is_known_from_the_documents_that_it_was_given(name, told):
    @ragmon.trace
    def answer(question):
        ragmon.record(retrieved=RERANKED[name])
        if told == "candidates":
            ragmon.record(candidates=FOUND)
        return {"answer": "so [1]", **({told: FOUND} if told == "documents" else {})}

    with capturing() as (_, kept):
        answer("Is it?")
    record = call_to_record(kept[0])
    assert (record.retrieved_ids, record.contexts, record.scores) == (["c", "a"], ["three", "one"], [0.9, 0.4])
    assert record.answer_json.citations == ["c"]


@pytest.mark.parametrize(
    "reranked",
    [
        [{"index": 3, "score": 0.9}],
        [{"index": 0, "score": 0.9}, {"index": 0, "score": 0.8}],
        [{"index": 0, "text": "two", "score": 0.9}, {"index": 1, "text": "one", "score": 0.1}],
        [{"index": "0", "score": 0.9}],
    ],
    ids=["beyond the list", "one place twice", "other texts", "no number"],
)
def test_a_place_that_cannot_be_is_none(reranked):
    found = [{"id": "a", "text": "a text"}, {"id": "b", "text": "b text"}]
    assert record_of({"answer": "so", "retrieved": reranked, "candidates": found}).retrieved_ids is None
