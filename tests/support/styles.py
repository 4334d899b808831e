"""Flawless pipelines in the styles of many teams: how they answer, cite, refuse and name documents, and where it lies.

A style is one line of `STYLES`. A style gives 250 requests to 250 gold questions, 80 of which the documents cannot
answer; every answer is right, cites what it rests on and refuses where it has to. Every tenth answer says no.
Nothing is drawn: a style always gives the same requests.
"""

from __future__ import annotations

import csv
import hashlib
import json
import tomllib
import unicodedata
import uuid
from datetime import UTC, datetime
from functools import cache
from itertools import count
from pathlib import Path
from typing import NamedTuple

import openpyxl
import pandas as pd
import pyarrow as pa
from pyarrow import parquet

import ragmon
from ragmon.capture.convert import call_to_record
from ragmon.core import semconv
from ragmon.core.record import encode
from ragmon.ingest.spans.span import Span
from tests.support.capturing import capturing
from tests.support.otlp_requests import as_json, export

REQUESTS, UNANSWERABLE, RETRIEVED = 250, 80, 4
NOON = 1_762_776_000
"""A Monday at noon: the time of the first request; the others follow a minute apart."""
LANGUAGES = Path(__file__).parents[1] / "data" / "styles" / "languages.toml"


class Style(NamedTuple):
    """How a team does it.

    Attributes:
        language: Of questions, answers and refusals: a table of `languages.toml`.
        cites: How a mark in the text looks, as a template of a `Document`; behind `list ` an entry of a list, as JSON.
        ids: How documents are named: a key of `IDS`.
        container: Where the requests are written: a key of `CONTAINERS`.
        says: What stands around every answer, JSON as well.
        refuses: The words of the refusals in place of those of the language.
        typography: What the model does to the characters of its answers: a key of `TYPOGRAPHIES`.
    """

    language: str
    cites: str
    ids: str
    container: str
    says: str = "{}"
    refuses: tuple[str, ...] = ()
    typography: str = "plain"

    def __str__(self):
        return " ".join(part for part in self[:7] if isinstance(part, str) and part not in ("{}", "plain"))


class Document(NamedTuple):
    """A retrieved document, and its place in the list from 1 and from 0."""

    id: str
    title: str
    url: str
    text: str
    rank: int
    index: int


class Request(NamedTuple):
    """A question with the answer of the pipeline; `cited` are the entries of a list, where citations are listed."""

    number: int
    question: str
    answer: str
    cited: list | None
    documents: list[Document]

    @property
    def time(self):
        return datetime.fromtimestamp(NOON + 60 * self.number, UTC).isoformat()

    @property
    def ids(self):
        return [document.id for document in self.documents]


IDS = {
    "slug": lambda number: f"ferry-{number}",
    "number": lambda number: str(1000 + number),
    "uuid": lambda number: str(uuid.UUID(int=number * 2**96 + 2**79 * 9 + 2**62)),
    "url": lambda number: f"https://docs.example.org/ferries/{number}.html",
    "path": lambda number: f"docs/ferries/{number}.md",
    "chunk": lambda number: f"timetable.pdf#{number}",
    "title": lambda number: f"Fähre {number} – Fahrplan.pdf",
    "padded": lambda number: f"doc_{number:05}",
    "sha": lambda number: hashlib.sha256(str(number).encode()).hexdigest(),
}

FRAMEWORKS = (
    *("Empty Response", "Hmm, I'm not sure.", "no_answer", "CANNOTANSWER", "[NO ANSWER]", "N/A", "Out of scope."),
    *("Sorry! No relevant content was found in the knowledge base!", "I dont know", "Please contact support."),
)
POLICY = (
    *("I cannot fulfill your request.", "I can't discuss that topic.", "I must decline to answer that."),
    *("I'm not able to provide that information.", "I won't help with that.", "I cannot assist with this request."),
)
TOKEN = ("not in context", "Not in context.")
JSON = '{{"answer": "{}"}}'

STYLES = (
    # language, citations, ids, container, what stands around answers
    Style("en", "[{rank}]", "slug", "lines"),
    Style("en", "[{rank}]", "number", "csv", refuses=TOKEN, typography="curly"),
    Style("en", "[{index}]", "uuid", "lines"),
    Style("en", "list {rank}", "chunk", "decorator", refuses=FRAMEWORKS),
    Style("en", 'list "[{rank}]"', "slug", "parquet", refuses=POLICY),
    Style("en", 'list {{"document_id": "{id}"}}', "url", "lines", says="**{}**"),
    Style("en", 'list "{title}"', "uuid", "documents"),
    Style("en", "[{id}]", "chunk", "xlsx", says="Answer: {}", typography="bold"),
    Style("en", "[citation:{rank}]", "sha", "lines", says=JSON),
    Style("en", "[{rank}]({url})", "url", "span", typography="code"),
    Style("de", "[{rank}]", "title", "csv", typography="nfd"),
    Style("de", "[Quelle {rank}]", "path", "documents", says="Antwort: {}"),
    Style("fr", "(Source {rank})", "slug", "frame", typography="narrow"),
    Style("fr", "[^{rank}]", "url", "lines", says="«\u202f{}\u202f»"),
    Style("es", "【{rank}†source】", "uuid", "decorator"),
    Style("es", 'list "{id}"', "padded", "csv", typography="curly"),
    Style("it", "<sup>{rank}</sup>", "slug", "parquet", typography="wrapped"),
    Style("pt", "[doc{rank}]", "padded", "csv", says="Resposta: {}"),
    Style("nl", "[{rank}, p. 3]", "path", "lines", typography="dashes"),
    Style("pl", "[{rank}]", "chunk", "csv", typography="curly"),
    Style("sv", "\\[{rank}\\]", "slug", "lines", says='"{}"'),
    Style("da", "[{rank}]", "number", "xlsx"),
    Style("nb", 'list {{"source": "{id}"}}', "path", "lines"),
    Style("fi", "[S{rank}]", "chunk", "frame", says="Vastaus: {}"),
    Style("cs", "[{rank}]", "uuid", "parquet", says="„{}“"),
    Style("hu", "[ID:{index}]", "sha", "lines"),
    Style("ro", "[{rank}]", "slug", "span", typography="invisible"),
    Style("tr", 'list "Source {rank}"', "slug", "decorator", typography="dashes"),
    Style("ru", "[{rank}]", "path", "csv", says="Ответ: {}"),
    Style("uk", 'list {{"url": "{url}"}}', "url", "documents"),
    Style("el", "[{rank}]", "slug", "lines", typography="nfd"),
    Style("id", "[Sumber {rank}]", "chunk", "csv"),
    Style("vi", "[{rank}]", "slug", "lines", typography="nfd"),
    Style("he", "[{rank}]", "number", "lines", typography="directed"),
    Style("ar", "[{rank}]", "uuid", "csv", typography="eastern"),
    Style("hi", "[{rank}]", "slug", "parquet", says="उत्तर: {}"),
    Style("th", "[{rank}]", "padded", "lines", typography="invisible"),
    Style("ja", "［{rank}］", "title", "csv", says="回答：{}", typography="full"),
    Style("zh", "##{index}$$", "sha", "documents", typography="full"),
    Style("ko", "[출처 {rank}]", "slug", "decorator", says="답변: {}"),
)

# --- the requests -----------------------------------------------------------------------------------------------------


@cache
def languages():
    """The tables of `languages.toml`."""
    return tomllib.loads(LANGUAGES.read_text("utf-8"))


def fact(number):
    """What the answer to a question must hold, as gold says it."""
    hour, minute = divmod(7 * number, 60)
    return (f"{hour % 18 + 5}:{minute:02}", f"{number},{minute + 100} km", f"9-{number + 10}", f"O'Neill {number}")[
        number % 4
    ]


def answerable(number):
    return number % 25 >= UNANSWERABLE // 10


def right(style, number):
    """The id of the document that answers a question."""
    return IDS[style.ids](number)


def gold(style):
    """The gold set of a style, a row a question."""
    words = languages()[style.language]
    for number in range(REQUESTS):
        row = {"qid": f"q{number}", "question": words["question"].format(n=number), "answerable": answerable(number)}
        if row["answerable"]:
            row |= {"gold_claim_substr": [fact(number)], "gold_citations": [right(style, number)]}
        yield row


def requests(style, fault=None):
    """The requests of a style; a fault in each: `phrase`, `retrieved`, `cited` or `shipped`."""
    words = languages()[style.language]
    for number in range(REQUESTS):
        documents = retrieved(style, number, fault)
        cited, answer = None, (style.refuses or words["refusals"])[number % len(style.refuses or words["refusals"])]
        if answerable(number) or fault == "shipped":
            told = "negative" if number % 10 == 9 else "answer"
            said = fact(number + 4 if fault == "phrase" else number)
            place = number * 7 % RETRIEVED
            places = [place + 1 if fault == "cited" else place] + ([place + 2] if number % 6 == 5 else [])
            named = [style.cites.format(**documents[at % RETRIEVED]._asdict()) for at in places]
            is_list = style.cites.startswith("list ")
            cited = [json.loads(name.removeprefix("list ")) for name in named] if is_list else None
            answer = words[told].format(n=number, fact=TYPOGRAPHIES.get(style.typography, (str,))[-1](said), mark="\0")
            answer = TYPOGRAPHIES.get(style.typography, (str,))[0](answer)
            answer = answer.replace(" \0" if is_list else "\0", "" if is_list else "".join(named)).replace("\0", "")
        elif style.cites.startswith("list "):
            cited = []
        answer = json.dumps({"answer": answer}, ensure_ascii=False) if style.says == JSON else style.says.format(answer)
        yield Request(number, words["question"].format(n=number), answer, cited, documents)


def retrieved(style, number, fault=None):
    """The documents of a request, the right one at a place that changes."""
    numbers = [1000 + number * RETRIEVED + at for at in range(RETRIEVED)]
    if fault != "retrieved" or number % 3 == 0:  # a pipeline that retrieves no gold id at all names ids otherwise
        numbers[number * 7 % RETRIEVED] = number
    words = languages()[style.language]
    return [
        Document(
            id=IDS[style.ids](of),
            title=f"Ferry {of}, timetable",
            url=IDS["url"](of),
            text=words["answer"].format(n=of, fact=fact(of), mark="").replace(" .", "."),
            rank=at + 1,
            index=at,
        )
        for at, of in enumerate(numbers)
    ]


EASTERN = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")
FULL = str.maketrans("0123456789:,-", "０１２３４５６７８９：，－")
CURLY = str.maketrans({"'": "’", "-": "–", '"': "”"})
TYPOGRAPHIES = {
    # what becomes of an answer, and before that of the fact in it
    "curly": (lambda text: text.translate(CURLY),),
    "dashes": (lambda text: text.replace("-", "\u2011"),),
    "narrow": (lambda text: text.replace(" ", "\u202f"),),
    "nfd": (lambda text: unicodedata.normalize("NFD", text),),
    "bold": (str, lambda said: f"**{said}**"),
    "code": (str, lambda said: f"`{said}`"),
    "wrapped": (lambda text: text.replace(" ", "\n", 5).replace("\n", "  ", 2),),
    "invisible": (lambda text: "\u200b".join(text.partition(" ")), lambda said: f"\u2060{said}\u200b"),
    "directed": (str, lambda said: f"\u2066{said}\u2069"),
    "eastern": (str, lambda said: said.translate(EASTERN)),
    "full": (str, lambda said: said.translate(FULL)),
}

# --- the containers ---------------------------------------------------------------------------------------------------


def members(request, *, whole):
    """A request as JSON: with its documents, or with their ids alone."""
    told = {"ts": request.time, "question": request.question, "answer": request.answer}
    if whole:
        keys = {"id": "id", "title": "title", "url": "url", "text": "content"}
        told["documents"] = [{keys[key]: getattr(one, key) for key in keys} for one in request.documents]
    else:
        told["retrieved_ids"] = request.ids
    return told if request.cited is None else told | {"citations": request.cited}


def as_lines(path, requests, *, whole=False):
    lines = (json.dumps(members(request, whole=whole), ensure_ascii=False) for request in requests)
    path.write_text("\n".join(lines), "utf-8")
    return path


def cells(requests):
    """The rows of a table in which lists are JSON."""
    return [
        {name: json.dumps(value) if isinstance(value, list) else value for name, value in row.items()}
        for row in (members(request, whole=False) for request in requests)
    ]


def as_csv(path, requests):
    rows = cells(requests)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def as_sheet(path, requests):
    rows, book = cells(requests), openpyxl.Workbook()
    book.active.append([*rows[0]])
    for row in rows:
        book.active.append([*row.values()])
    book.save(path)
    return path


def as_parquet(path, requests):
    parquet.write_table(pa.Table.from_pylist([members(request, whole=False) for request in requests]), path)
    return path


def as_frame(path, requests):
    return pd.DataFrame([members(request, whole=False) for request in requests])


def as_calls(path, requests):
    """Calls of a decorated function; its records get the times of the requests."""
    at_hand = {request.question: request for request in requests}

    @ragmon.trace
    def ask(question):
        return members(at_hand[question], whole=True)

    with capturing() as (_, kept):
        for question in at_hand:
            ask(question)
    records = [call_to_record(call) for call in kept]
    for request, record in zip(at_hand.values(), records, strict=True):
        record.ts = float(NOON + 60 * request.number)
    path.write_bytes(b"".join(map(encode, records)))
    return path


def as_spans(path, requests):
    """Spans of OpenInference, in OTLP's JSON: a chain, and the retriever in it."""
    numbers, lines = count(1), []
    for request in requests:
        trace, start = format(request.number + 1, "032x"), (NOON + 60 * request.number) * 10**9
        chain, search = (format(next(numbers), "016x") for _ in range(2))
        flat = {
            f"{semconv.RETRIEVED}.{at}.document.{name}": value
            for at, document in enumerate(request.documents)
            for name, value in (("id", document.id), ("content", document.text))
        }
        asked = {semconv.SPAN_KIND: "CHAIN", "input.value": request.question, "output.value": request.answer}
        found = {semconv.SPAN_KIND: semconv.RETRIEVER, "input.value": request.question} | flat
        spans = [
            Span(trace, chain, None, "ask", start, start + 10**9, asked),
            Span(trace, search, chain, "search", start + 10**6, start + 10**8, found),
        ]
        lines.append(as_json(export(spans, scope="openinference.instrumentation")).decode())
    path.write_text("\n".join(lines), "utf-8")
    return path


CONTAINERS = {
    "lines": ("jsonl", as_lines),
    "documents": ("jsonl", lambda path, requests: as_lines(path, requests, whole=True)),
    "csv": ("csv", as_csv),
    "xlsx": ("xlsx", as_sheet),
    "parquet": ("parquet", as_parquet),
    "frame": ("", as_frame),
    "decorator": ("jsonl", as_calls),
    "span": ("jsonl", as_spans),
}


def written(style, folder, fault=None):
    """What `ragmon.replay` takes of a style: a file in a folder, or a DataFrame."""
    ending, write = CONTAINERS[style.container]
    return write(folder / f"requests.{ending}", list(requests(style, fault)))
