"""The same content is one record and one report, whoever reads it.

Readers: the decorator, a line of JSON, CSV, Parquet, a DataFrame, a span.
"""

from __future__ import annotations

import csv
import json
import re

import msgspec
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import ragmon
from ragmon.capture.convert import call_to_record
from ragmon.core import semconv
from ragmon.core.record import Answer, Latency, Record
from ragmon.ingest.files import ReadSummary, read_files, read_table
from ragmon.ingest.lines import decode
from ragmon.ingest.spans.span import Event
from ragmon.ingest.tables import TableOptions, frame_table
from tests.support.capturing import capturing
from tests.support.examples import cases
from tests.support.otlp_requests import as_json, export
from tests.support.recorded_spans import TRACE, made

IDS = ["page-0", "kb-0", "kb-1"]
TEXTS = ["Buses leave at nine.", "Trains leave at ten.", "Ferries do not sail."]
DOCUMENTS = [
    {"id": name, "text": text, "score": score} for name, text, score in zip(IDS, TEXTS, (0.9, 0.5, 0.25), strict=True)
]
LANGCHAIN = [{"page_content": text, "metadata": {"id": name}} for name, text in zip(IDS, TEXTS, strict=True)]
CITED_PART = {"type": "char_location", "cited_text": "nine", "document_index": 1, "document_title": None}
ANTHROPIC = [{"type": "text", "text": "At "}, {"type": "text", "text": "nine.", "citations": [CITED_PART]}]
SEARCHED = {"type": "search_result_location", "source": "kb-1", "title": "Ferries", "search_result_index": 0}
URL = {"type": "url_citation", "start_index": 0, "end_index": 8, "url": "https://a.example/bus", "title": "Buses"}
FILES = [{"type": "file_path", "file_id": "kb-1"}, {"type": "file_citation", "file_id": "kb-0", "index": 5}]


def of_openai(text, *annotations):
    """A reply of the Responses API."""
    part = {"type": "output_text", "text": text, "annotations": annotations}
    searched = {"type": "file_search_call", "id": "fs_1", "status": "completed", "queries": ["bus"], "results": None}
    return {"output": [searched, {"type": "message", "role": "assistant", "content": [part]}]}


def of_chat(text, *annotations):
    return {"choices": [{"index": 0, "message": {"role": "assistant", "content": text, "annotations": annotations}}]}


TITLES = ["Bus plan", "Train times", "Ferries"]
WITH_TITLES = [{"id": name, "text": text, "title": title} for name, text, title in zip(IDS, TEXTS, TITLES, strict=True)]
IN_METADATA = [{"id": each["id"], "text": each["text"], "metadata": {"title": each["title"]}} for each in WITH_TITLES]
TITLED = {"question": "When?", "answer": "At nine.", "documents": WITH_TITLES}
OF_TITLED = {"q": "When?", "retrieved_ids": IDS, "contexts": TEXTS}
SCORES = [0.9, 0.5, 0.25]
ROWS = list(zip(IDS, TEXTS, SCORES, strict=True))
OF_STORES = {
    "MongoDB": [{"_id": {"$oid": name}, "text": text} for name, text in zip(IDS, TEXTS, strict=True)],
    "LangChain for MongoDB": [
        {"page_content": text, "metadata": {"_id": name}} for name, text in zip(IDS, TEXTS, strict=True)
    ],
    "LangChain.js": [{"pageContent": text, "metadata": {"id": name}} for name, text in zip(IDS, TEXTS, strict=True)],
    "LangChain, serialised": [
        {"lc": 1, "type": "constructor", "id": ["Document"], "kwargs": {"id": name, "page_content": text}}
        for name, text in zip(IDS, TEXTS, strict=True)
    ],
    "LangChain with scores in metadata": [
        {"id": name, "page_content": text, "metadata": {"relevance_score": score}} for name, text, score in ROWS
    ],
    "LlamaIndex": [{"node": {"id_": name, "text": text}, "score": score} for name, text, score in ROWS],
    "Haystack": [{"id": name, "content": text, "meta": {"page": 1}, "score": score} for name, text, score in ROWS],
    "Chroma": {
        "ids": [IDS],
        "documents": [TEXTS],
        "distances": [[0.1, 0.2, 0.3]],
        "metadatas": [[{"page": 1}, None, {}]],
    },
    "columns": {"id": IDS, "text": TEXTS, "score": SCORES},
    "Qdrant": {"points": [{"id": name, "score": score, "payload": {"document": text}} for name, text, score in ROWS]},
    "Pinecone": {"matches": [{"id": name, "score": score, "metadata": {"text": text}} for name, text, score in ROWS]},
    "Weaviate": {
        "objects": [
            {"uuid": name, "metadata": {"score": score, "distance": 0.1}, "properties": {"content": text}}
            for name, text, score in ROWS
        ]
    },
    "Milvus": [
        [{"pk": name, "distance": 0.1, "entity": {"text": text}} for name, text in zip(IDS, TEXTS, strict=True)]
    ],
    "LanceDB": [{"chunk_id": name, "text": text, "_distance": 0.1} for name, text in zip(IDS, TEXTS, strict=True)],
    "Vespa": {"root": {"children": [{"id": name, "relevance": s, "fields": {"text": text}} for name, text, s in ROWS]}},
    "Typesense": {
        "hits": [{"document": {"id": name, "text": text}, "text_match": score} for name, text, score in ROWS]
    },
    "Elasticsearch": {
        "took": 3,
        "hits": {
            "total": {"value": 3},
            "hits": [{"_id": name, "_score": score, "_source": {"content": text}} for name, text, score in ROWS],
        },
    },
    "Azure AI Search": {
        "value": [{"@search.score": score, "chunk_id": name, "chunk": text, "title": "t"} for name, text, score in ROWS]
    },
    "Bedrock": {
        "retrievalResults": [
            {
                "content": {"type": "TEXT", "text": text},
                "location": {"type": "S3", "s3Location": {"uri": name}},
                "score": score,
                "metadata": {"x-amz-bedrock-kb-data-source-id": "KB"},
            }
            for name, text, score in ROWS
        ]
    },
    "OpenAI": {
        "data": [
            {"file_id": name, "filename": "a", "score": score, "content": [{"type": "text", "text": text}]}
            for name, text, score in ROWS
        ]
    },
    "DSPy": [{"pid": name, "long_text": text, "score": score} for name, text, score in ROWS],
    "a query of SQL": [[name, text] for name, text, _ in ROWS],
}
SCORED = OF_STORES.keys() - {
    *("MongoDB", "LangChain for MongoDB", "LangChain.js", "LangChain, serialised", "Chroma", "Milvus", "LanceDB"),
    "a query of SQL",
}
ASKED = {"question": "When does the bus leave?", "answer": "At nine.", "retrieved_ids": IDS}
OF_ALL = {"q": ASKED["question"], "retrieved_ids": IDS}
IN_JSON = '{"answer": "At nine.", "citations": ["page-0", "kb-1"]}'


def cites(*names, **fields):
    return {**OF_ALL, "answer_json": Answer("At nine.", list(names)), **fields}


def citing(citations, **fields):
    return {**ASKED, "citations": citations, **fields}


CONTENT = {
    "ids": (citing(["page-0", "kb-1"]), cites("page-0", "kb-1")),
    "no citations": (ASKED, {**OF_ALL, "answer_json": Answer("At nine.")}),
    "an empty list": (citing([]), cites()),
    "JSON in a text": (citing('[{"document_id": "kb-1"}]'), cites("kb-1")),
    "one object": (citing({"document_id": "kb-1", "quote": "at nine"}), cites("kb-1")),
    "titles": (citing(["Bus plan, p. 3"]), cites("Bus plan, p. 3")),
    "document ids": (
        citing([{"document_id": "page-0"}, {"doc_id": "kb-1"}, {"chunk_id": "kb-0"}]),
        cites("page-0", "kb-1", "kb-0"),
    ),
    "source ids": (citing([{"source_id": "kb-0", "text": "nine"}, {"source": "kb-1"}]), cites("kb-0", "kb-1")),
    "camel case": (citing([{"documentId": "kb-0"}, {"chunkId": "kb-1"}]), cites("kb-0", "kb-1")),
    "URLs": (citing([{"title": "Buses", "url": "https://a.example/bus"}]), cites("https://a.example/bus")),
    "metadata": (citing([{"metadata": {"id": "kb-1"}}, {"meta": {"doc_id": "kb-0"}}]), cites("kb-1", "kb-0")),
    "LangChain's documents": (citing(LANGCHAIN[1:]), cites("kb-0", "kb-1")),
    "Cohere": (
        citing([{"start": 0, "end": 4, "text": "At 9", "document_ids": ["page-0", "kb-0"]}]),
        cites("page-0", "kb-0"),
    ),
    "Cohere's sources": (citing([{"text": "At 9", "sources": [{"type": "document", "id": "kb-0"}]}]), cites("kb-0")),
    "Anthropic": (
        citing([{"type": "char_location", "cited_text": "nine", "document_index": 1, "document_title": None}]),
        cites("kb-0"),
    ),
    "Anthropic, beyond the list": (citing([{"document_index": 7}, {"document_index": 0}]), cites("[8]", "page-0")),
    "OpenAI": (citing([{"type": "file_citation", "file_id": "kb-0", "index": 9}]), cites("kb-0")),
    "a number beside the id": (citing([{"id": 1, "document_id": "kb-0"}]), cites("kb-0")),
    "null among ids": (citing([None, "kb-0"]), cites("kb-0")),
    "null among what was retrieved": ({**citing(["kb-0"]), "retrieved_ids": [None, *IDS]}, cites("kb-0")),
    "ids of pandas": ({**citing([7.0]), "retrieved_ids": [12.0, 7.0]}, cites("7", retrieved_ids=["12", "7"])),
    "numbers as ids": ({**citing([7]), "retrieved_ids": [12, 7]}, cites("7", retrieved_ids=["12", "7"])),
    "lists in a list": (citing([["page-0"], ["kb-0", "kb-1"]]), cites("page-0", "kb-0", "kb-1")),
    "an object without a name": (citing([{"quote": "at nine"}]), {**OF_ALL, "answer_json": Answer("At nine.")}),
    "numbers": (citing([1, 3]), None),
    "numbers of pandas": (citing([1.0, 3.0]), None),
    "marks": (citing(["[1]", "[3]"]), None),
    "marks in one text": (citing("[1][3]"), None),
    "labels": (citing(["Source 1", "Source 3"]), None),
    "objects with a number": (citing([{"index": 1}, {"index": 3, "snippet": "sail"}]), None),
    "marks in the text": ({**ASKED, "answer": "At nine [1], not at ten [2]."}, None),
    "marks of full width": ({**ASKED, "answer": "九時です［1］。"}, None),
    "a list at the end": ({**ASKED, "answer": "At nine.\ncitations: [page-0, kb-1]"}, cites("page-0", "kb-1")),
    "a refusal": (
        {**ASKED, "answer": "I don't know.", "citations": []},
        {**OF_ALL, "answer_json": Answer("I don't know.", [])},
    ),
    **{
        f"a thought {how}": ({**ASKED, "answer": said}, cited_by_rank)
        for cited_by_rank in [{**OF_ALL, "answer_json": Answer("At nine [1].", ["page-0"], [1])}]
        for how, said in {
            "in front": "<think>\n[2] does not help.\n</think>\n\nAt nine [1].",
            "whose first mark is in the prompt": "[2] does not help.\n</think>\n\nAt nine [1].",
            "in brackets": "[THINK]Is it [2]?[/THINK]At nine [1].",
            "of a channel": "<|channel|>analysis<|message|>[2]?<|end|><|start|>assistant<|channel|>final<|message|>"
            "At nine [1].",
            "between the words": "<thinking>[2]?</thinking>At nine<reasoning>[3]?</reasoning> [1].",
        }.items()
    },
    **{
        f"an answer {how}": ({**ASKED, "answer": said}, cites("page-0", "kb-1"))
        for how, said in {
            "in JSON": IN_JSON,
            "in a fence": f"```json\n{IN_JSON}\n```",
            "in JSON, amid talk": f"Here it is: {IN_JSON}",
            "in JSON in JSON": '{"output": {"answer": "At nine.", "citations": [{"id": "page-0"}, "kb-1"]}}',
            "in JSON, written twice": json.dumps(IN_JSON),
            "in a text in JSON": json.dumps({"answer": IN_JSON}),
            "in a value of Python": "{'answer': 'At nine.', 'citations': ['page-0', 'kb-1']}",
            "in JSON behind a thought": f"<think>Hm.</think>\n{IN_JSON}",
            "in JSON with a thought": '{"answer": "<think>Hm.</think>At nine.", "citations": ["page-0", "kb-1"]}',
            "in structured output": '{"messages": [{"type": "ai", "content": ""}], "structured_response": '
            '{"answer": "At nine.", "citations": ["page-0", "kb-1"]}}',
        }.items()
    },
    "a refusal in JSON": (
        {**ASKED, "answer": '{"answer": "Ask at the pier.", "refused": true}'},
        {**OF_ALL, "answer_json": Answer("Ask at the pier.", refused=True)},
    ),
    "JSON that was asked for": (
        {**ASKED, "answer": '["At nine.", "At ten."]'},
        {**OF_ALL, "answer_json": Answer('["At nine.", "At ten."]')},
    ),
    "contexts with ids": (
        {**ASKED, "contexts": TEXTS},
        {**OF_ALL, "contexts": TEXTS, "answer_json": Answer("At nine.")},
    ),
    "contexts without ids": (
        {"question": "When?", "answer": "At nine.", "contexts": TEXTS},
        {"q": "When?", "contexts": TEXTS, "answer_json": Answer("At nine.")},
    ),
    "documents with scores": (
        {"question": "When?", "answer": "At nine.", "documents": DOCUMENTS, "citations": [{"id": "kb-1"}]},
        {
            "q": "When?",
            "retrieved_ids": IDS,
            "contexts": TEXTS,
            "scores": [0.9, 0.5, 0.25],
            "answer_json": Answer("At nine.", ["kb-1"]),
        },
    ),
    "titles of documents": (
        {**TITLED, "citations": ["Train times", "BUS  PLAN"]},
        {**OF_TITLED, "answer_json": Answer("At nine.", ["kb-0", "page-0"])},
    ),
    "titles in metadata": (
        {**TITLED, "documents": IN_METADATA, "citations": [{"title": "Ferries", "quote": "not"}]},
        {**OF_TITLED, "answer_json": Answer("At nine.", ["kb-1"])},
    ),
    "a title of two documents": (
        {**TITLED, "documents": [{**each, "title": "Bus plan"} for each in DOCUMENTS], "citations": ["Bus plan"]},
        {**OF_TITLED, "scores": [0.9, 0.5, 0.25], "answer_json": Answer("At nine.", IDS)},
    ),
    "a title that no document has": (
        {**TITLED, "citations": ["Bus plan", "Tram plan"]},
        {**OF_TITLED, "answer_json": Answer("At nine.", ["page-0", "Tram plan"])},
    ),
    "ids of documents with titles": (
        {**TITLED, "citations": ["page-0", "Train times"]},
        {**OF_TITLED, "answer_json": Answer("At nine.", ["page-0", "Train times"])},
    ),
    "parts of Anthropic": ({**ASKED, "answer": ANTHROPIC}, cites("kb-0")),
    "a message of Anthropic": ({**ASKED, "answer": {"role": "assistant", "content": ANTHROPIC}}, cites("kb-0")),
    "a file of Anthropic": (
        {
            **ASKED,
            "answer": [{**ANTHROPIC[1], "text": "At nine.", "citations": [{**CITED_PART, "file_id": "file_01"}]}],
        },
        cites("kb-0"),
    ),
    "search results of Anthropic": (
        {**ASKED, "answer": [{"type": "text", "text": "At nine.", "citations": [SEARCHED, CITED_PART]}]},
        cites("kb-1", "kb-0"),
    ),
    "titles in parts": (
        {**TITLED, "answer": [{"type": "text", "text": "At nine.", "citations": [{"document_title": "Ferries"}]}]},
        {**OF_TITLED, "answer_json": Answer("At nine.", ["kb-1"])},
    ),
    "parts without citations": (
        {**ASKED, "answer": [{**part, "citations": None} for part in ANTHROPIC]},
        {**OF_ALL, "answer_json": Answer("At nine.")},
    ),
    "marks in parts": ({**ASKED, "answer": [{"type": "text", "text": "At nine [2]."}]}, None),
    "a file of OpenAI": ({**ASKED, "answer": of_openai("At nine.", *FILES)}, cites("kb-0")),
    "a page of OpenAI": ({**ASKED, "answer": of_openai("At nine.", URL)}, cites("https://a.example/bus")),
    "a page in a chat": (
        {**ASKED, "answer": of_chat("At nine.", {"type": "url_citation", "url_citation": {"url": URL["url"]}})},
        cites("https://a.example/bus"),
    ),
    "no annotation": ({**ASKED, "answer": of_chat("At nine.")}, {**OF_ALL, "answer_json": Answer("At nine.")}),
    "a list beside a message": (
        {**citing(["page-0"]), "answer": {"role": "assistant", "content": ANTHROPIC}},
        cites("page-0"),
    ),
    "documents of LangChain": (
        {"question": "When?", "answer": "At nine.", "documents": LANGCHAIN},
        {"q": "When?", "retrieved_ids": IDS, "contexts": TEXTS, "answer_json": Answer("At nine.")},
    ),
    **{
        f"documents of {kind}": (
            {"question": "When?", "answer": "At nine.", "documents": documents},
            {"q": "When?", "retrieved_ids": IDS, "contexts": TEXTS, "answer_json": Answer("At nine.")}
            | ({"scores": SCORES} if kind in SCORED else {}),
        )
        for kind, documents in OF_STORES.items()
    },
    "documents without ids": (
        {"question": "When?", "answer": "At nine.", "documents": [{"content": text} for text in TEXTS]},
        {"q": "When?", "contexts": TEXTS, "answer_json": Answer("At nine.")},
    ),
    "candidates": (
        {**ASKED, "retrieved_ids": ["kb-1", "page-0"], "candidate_ids": IDS},
        {**OF_ALL, "retrieved_ids": ["kb-1", "page-0"], "candidate_ids": IDS, "answer_json": Answer("At nine.")},
    ),
    **{
        f"reranked: {kind}": (
            {"question": "When?", "answer": "At nine.", "documents": documents, "candidate_ids": DOCUMENTS},
            {
                "q": "When?",
                "retrieved_ids": ["kb-1", "page-0"],
                "candidate_ids": IDS,
                "contexts": [TEXTS[2], TEXTS[0]],
                "scores": [0.8, 0.7],
                "answer_json": Answer("At nine."),
            },
        )
        for kind, documents in {
            "ids": [{"id": "kb-1", "score": 0.8}, {"id": "page-0", "score": 0.7}],
            "texts": [{"text": TEXTS[2], "score": 0.8}, {"text": TEXTS[0], "score": 0.7}],
            "places": [{"index": 2, "relevance_score": 0.8}, {"index": 0, "relevance_score": 0.7}],
            "Cohere": {"results": [{"index": 2, "relevance_score": 0.8}, {"index": 0, "relevance_score": 0.7}]},
            "Jina": {
                "results": [
                    {"index": 2, "relevance_score": 0.8, "document": {"text": TEXTS[2]}},
                    {"index": 0, "relevance_score": 0.7, "document": {"text": TEXTS[0]}},
                ]
            },
        }.items()
    },
    "nothing was found": (
        {**ASKED, "retrieved_ids": []},
        {**OF_ALL, "retrieved_ids": [], "answer_json": Answer("At nine.")},
    ),
    "an error": (
        {"question": "When?", "retrieved_ids": IDS, "error": "LookupError"},
        {"q": "When?", "retrieved_ids": IDS, "error": "LookupError"},
    ),
    "a session": ({**ASKED, "session": "s-1"}, {**OF_ALL, "session": "s-1", "answer_json": Answer("At nine.")}),
    "tags": (
        {**ASKED, "tags": {"lang": "en", "tier": 2}},
        {**OF_ALL, "tags": {"lang": "en", "tier": "2"}, "answer_json": Answer("At nine.")},
    ),
    "latencies": (
        {**ASKED, "latency_ms": 812.0, "retrieval_ms": 96.0, "generation_ms": 700.0},
        {**OF_ALL, "latency_ms": Latency(812.0, 96.0, 700.0), "answer_json": Answer("At nine.")},
    ),
}
"""What each shape holds, in the names of a line, and the record of it; None where `[citations] base` decides ranks."""


def decorated(content, folder):
    @ragmon.trace
    def answer(question):
        if "error" in content:
            ragmon.record(retrieved=content["retrieved_ids"])
            raise LookupError
        ragmon.record(tags=content.get("tags"), session=content.get("session"))
        return {name: content[name] for name in content.keys() - {"question", "tags", "session"}}

    with capturing() as (_, kept):
        if "error" in content:
            with pytest.raises(LookupError):
                answer(content["question"])
        else:
            answer(content["question"])
    return call_to_record(kept[0])


def of_line(content, folder):
    return decode(json.dumps(content).encode())


def of_array(content, folder):
    return of_file(folder / "log.json", json.dumps([content], indent=1))


def of_file(path, text=None):
    if text is not None:
        path.write_text(text, "utf-8")
    intake = ReadSummary()
    (record,) = read_files([str(path)], intake)
    assert not intake.rejected
    return record


def in_columns(content):
    tags = {f"tags.{name}": value for name, value in content.get("tags", {}).items()}
    return {name: value for name, value in content.items() if name != "tags"} | tags


def of_csv(content, folder):
    cells = {n: v if isinstance(v, str) else json.dumps(v) for n, v in in_columns(content).items()}
    with (folder / "log.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(cells))
        writer.writeheader()
        writer.writerow(cells)
    return of_file(folder / "log.csv")


def of_parquet(content, folder):
    parquet.write_table(pa.Table.from_pylist([in_columns(content)]), folder / "log.parquet")
    return of_file(folder / "log.parquet")


def of_frame(content, folder):
    (record,) = read_table(frame_table(pd.DataFrame([in_columns(content)])), "records", ReadSummary(), TableOptions())
    return record


def spans_of(content):
    """A retrieval, a reranking where there are candidates, and an answer, as instrumentations write them."""
    latency = content.get("latency_ms", 812.0) / 1000
    root = {semconv.SPAN_KIND: semconv.CHAIN, semconv.INPUT_VALUE: content["question"]}
    events = []
    if "error" in content:
        events = [Event(semconv.EXCEPTION, {semconv.EXCEPTION_TYPE: content["error"]})]
    else:
        said = content["answer"]
        root[semconv.OUTPUT_VALUE] = said if isinstance(said, str) else json.dumps(said)
    if "citations" in content:
        said = content["citations"]
        root[semconv.RAGMON_CITATIONS] = said if isinstance(said, str) else json.dumps(said)
    if "session" in content:
        root[semconv.SESSION] = content["session"]
    chain = made(root, end=latency, events=events, failed="error" in content)
    yield chain
    ids, texts = content.get("retrieved_ids"), content.get("contexts")
    documents = content.get("documents") or (
        [name if name is None else {"id": name} for name in ids]
        if texts is None
        else [{"content": text} for text in texts]
    )
    if ids is not None and texts is not None:
        documents = [{"id": name, "content": text} for name, text in zip(ids, texts, strict=True)]
    if "candidate_ids" in content:
        first = json.dumps([name if isinstance(name, dict) else {"id": name} for name in content["candidate_ids"]])
        yield made({semconv.SPAN_KIND: semconv.RETRIEVER, semconv.DOCUMENTS: first}, parent=chain, end=0.05)
    kind = semconv.RERANKER if "candidate_ids" in content else semconv.RETRIEVER
    start = 0.05 if "candidate_ids" in content else 0.0
    found = {semconv.SPAN_KIND: kind, semconv.DOCUMENTS: json.dumps(documents)}
    yield made(found, parent=chain, start=start, end=start + content.get("retrieval_ms", 96.0) / 1000)
    if "generation_ms" in content:
        yield made({semconv.SPAN_KIND: semconv.LLM}, parent=chain, start=0.1, end=0.1 + content["generation_ms"] / 1000)


def of_spans(content, folder):
    return of_file(folder / "spans.jsonl", as_json(export(list(spans_of(content)))).decode())


READERS = {
    "decorator": decorated,
    "line": of_line,
    "array": of_array,
    "CSV": of_csv,
    "Parquet": of_parquet,
    "DataFrame": of_frame,
    "span": of_spans,
}
OF_A_CALL = (
    *("v", "trace_id", "ts", "pipeline", "source", "sampling", "partial", "exported", "ended", "parent_span_id"),
    *("instrumentation", "why_unknown"),
)
UNKNOWN_TO = {"decorator": ("latency_ms",), "span": ("tags",)}
"""The decorator measures; spans have no tags."""


def said(record, reader):
    """What a record says of the content, as far as the reader can know it."""
    left_out = (*OF_A_CALL, *UNKNOWN_TO.get(reader, ()))
    return {name: getattr(record, name) for name in Record.__struct_fields__ if name not in left_out}


def of_reader(name, content, folder):
    record = READERS[name](content, folder)
    if name == "span" and "latency_ms" not in content:
        record = msgspec.structs.replace(record, latency_ms=None)  # spans always have times
    return record


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("shape", CONTENT)
def test_one_content_is_one_record_for_every_reader(shape, reader, tmp_path):
    content, expected = CONTENT[shape]
    record = of_reader(reader, content, tmp_path)
    wanted = of_line(content, tmp_path) if expected is None else Record(**expected)
    assert said(record, reader) == said(wanted, reader)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "said",
    [
        *("null", "NaN", '""', "<app.Stream object at 0x7f2b3c4d5e6f>", "tool_calls=[ToolCall(name='search')]"),
        '{"name": "search", "arguments": {"query": "bus"}}',
    ],
)
def test_what_is_no_answer_is_none_for_every_reader(said, reader, tmp_path):
    record = of_reader(reader, {**ASKED, "answer": said}, tmp_path)
    assert record.answer_json in (None, Answer())
    assert record.retrieved_ids == IDS


RANKS = ("numbers", "numbers of pandas", "marks", "marks in one text", "labels", "objects with a number")


@pytest.mark.parametrize("reader", READERS)
def test_ranks_are_read_alike_in_every_form(reader, tmp_path):
    read = [of_reader(reader, CONTENT[shape][0], tmp_path).answer_json.citations for shape in RANKS]
    assert len(read[0]) == 2
    assert read == [read[0]] * len(RANKS)


@pytest.mark.parametrize("reader", READERS)
def test_the_records_of_every_reader_are_one_report(reader, tmp_path):
    """Of everything but latency, which the decorator measures."""

    def report(reader):
        records = []
        for content, _ in CONTENT.values():
            record = of_reader(reader, {name: value for name, value in content.items() if name != "tags"}, tmp_path)
            of_call = dict.fromkeys((*OF_A_CALL, "latency_ms", "model")) | {"partial": False}
            records.append(msgspec.structs.replace(record, **of_call))
        return ragmon.replay(records)

    assert report(reader).digest == report("line").digest


def lines_of(said):
    return json.dumps(citing(said))


def span_lines_of(said):
    return as_json(export(list(spans_of(citing(said))), service=str(said))).decode().replace(TRACE, f"{id(said):032x}")


@pytest.mark.parametrize("written", [lines_of, span_lines_of])
def test_unreadable_citations_are_counted_with_an_example_and_the_record_stays(written, tmp_path):
    intake = ReadSummary()
    path = tmp_path / "log.jsonl"
    cited = ([{"quote": "nine"}], [True], "[{'quote': ", ["kb-0"], [])
    path.write_text("".join(written(said) + "\n" for said in cited))
    records = list(read_files([str(path)], intake))
    assert [record.answer_json.citations for record in records] == [None, None, None, ["kb-0"], []]
    assert (intake.rejected, intake.unknown) == ({}, {"citations: unreadable": 3})
    (sentence,) = intake.sentences(examples=True)
    assert sentence.startswith(f"citations: 3 values could not be read, e.g. at {path}:")
    assert re.search(r": citations (have an entry that names no document|is a list that cannot be read): .", sentence)
    assert intake.sentences(examples=False) == [f"citations: 3 values could not be read in {path}"]


keys = st.sampled_from(
    [
        "id",
        "_id",
        "document_id",
        "documentId",
        "chunk_id",
        "source",
        "sources",
        "url",
        "index",
        "document_index",
        "document_ids",
        "metadata",
        "document",
        "node",
        "kwargs",
        "title",
        "quote",
        "text",
    ]
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 2**70)
    | st.sampled_from((0.0, 1.0, 1.5, 1e300))
    | st.sampled_from((*IDS, "", " ", "[1]", "[1][2]", "Source 2", "page-0, kb-0", "a|b", '{"id": "kb-0"}', '["kb-1"]'))
    | st.text("ab[]{}(),;|:'\"\\ 1\n", max_size=12)
)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=24
)


@settings(max_examples=cases(150), deadline=None)
@given(anything)
@example([[[[[["kb-0"]]]]]])
@example("page-0")
@example(["]["])
@example({"metadata": {"metadata": {"metadata": {"metadata": {"metadata": {"id": "kb-0"}}}}}})
def test_whatever_stands_as_citations_never_raises_and_every_reader_reads_it_alike(tmp_path_factory, said):
    folder = tmp_path_factory.mktemp("log")
    content = citing(said)
    record = of_line(content, folder)
    readers = {"decorator", "array"}
    if isinstance(said, list | dict):  # in a cell, a text is a name
        readers |= {"CSV", "DataFrame", "span"}
    for reader in readers:
        assert of_reader(reader, content, folder).answer_json == record.answer_json, reader
