"""What is true of each application in apps/: how its users reach it, what it is asked, and what ragmon must find.

Everything follows from the construction: the search finds the passage that answers first, the model repeats it, and
declines in plain words what the handbook does not answer. So all is well with every application, but for the two that
say in their first line what is wrong with them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.strangers.apps import handbook
from tests.support.stranger_apps import GUNICORN, UVICORN, Queue, Terminal, Web
from tests.support.strangers import Truth

DAY = tuple(handbook.day())
MORNING = DAY[:150]
"""What applications are asked whose frameworks take long to answer."""
GERMAN = (
    "Was kostet ein Personalausweis?",
    "Wie lange dauert ein Reisepass?",
    "Was kostet die Ummeldung nach einem Umzug?",
    "Was kostet ein Führungszeugnis?",
    "Wie hoch ist die Hundesteuer?",
    "Wie lange gilt der Bewohnerparkausweis?",
    "Wann melden wir eine Trauung an?",
    "Wann wird Sperrmüll abgeholt?",
    "Wo finde ich das Schwimmbad?",
    "Wer ist die Bürgermeisterin?",
    "Gibt es eine Bibliothek?",
    "Welche Schulen liegen hier?",
)
UNKNOWN_IN_GERMAN = GERMAN[8:]
GOLD = [
    {
        "qid": f"a{number}",
        "question": question,
        "answerable": True,
        "gold_claim_substr": re.findall(r"\d[\d:]+", handbook.PASSAGES[name]),
        "gold_citations": [name],
    }
    for number, (question, name) in enumerate(handbook.ANSWERS.items())
] + [
    {"qid": f"u{number}", "question": question, "answerable": False}
    for number, question in enumerate(handbook.UNANSWERABLE)
]
WITH_GOLD = '[gold.handbook]\npath = "gold.jsonl"\n'
WITH_RECALL = '[gates]\npreset = "default"\n[gates.first-five]\nmetric = "recall@5"\nat_least = 0.90\n'
"""The README's gate on retrieval, beside those there are anyway."""

OF_CITATIONS = ("answer_precision", "citation_hit_rate", "citation_scope", "coverage")
OF_GOLD = ("answer_precision", "citation_hit_rate", "under_refusal_rate", "over_refusal_rate")
ALWAYS = ("empty_retrieval_rate", "error_rate")
NO_GOLD = "no gold is configured: [gold.NAME] path"
CITE = "no list of citations in"
HOW_TO_CITE = "ragmon.record(citations=...), or have answers cite retrieved documents as [1]"
NOTHING_MISSING: Mapping[str, float] = {"question": 1, "answer": 1, "ids": 1, "contexts": 1, "citations": 1}
CITES_NOTHING = {**NOTHING_MISSING, "citations": 0}


def in_session(number: int, question: str) -> dict[str, object]:
    """The body of a chat's request: three questions a session, each behind a greeting."""
    messages = [{"role": "assistant", "content": "Good morning!"}, {"role": "user", "content": question}]
    return {"session_id": f"s-{number // 3}", "messages": messages}


def refused(questions: Sequence[str]) -> int:
    """How many of the questions have no answer."""
    return sum(question in handbook.UNANSWERABLE or question in UNKNOWN_IN_GERMAN for question in questions)


def known(questions: Sequence[str], **others: float) -> dict[str, float]:
    """The values that are known of every application that is well."""
    share = refused(questions) / len(questions)
    return {"refusal_rate": share, "error_rate": 0.0, "empty_retrieval_rate": 0.0, "groundedness": 1.0, **others}


def uncited(questions: Sequence[str] = DAY, **others) -> Truth:
    """Of an application without gold whose answers name no sources."""
    return Truth(
        metrics={**known(questions), "citation_scope": None, "answer_precision": None, "over_refusal_rate": None},
        n={"refusal_rate": len(questions)},
        passes=ALWAYS,
        undecided={*OF_CITATIONS, *OF_GOLD},
        words=(NO_GOLD, HOW_TO_CITE),
        gaps=(CITE, "marks such as [1] in the answer"),
        read=len(questions),
        **others,
    )


def cited(questions: Sequence[str] = DAY, **others) -> Truth:
    """Of an application without gold whose answers name their sources."""
    return Truth(
        metrics=known(questions, citation_scope=1.0, coverage=1.0),
        n={"citation_scope": len(questions) - refused(questions)},
        passes=(*ALWAYS, "citation_scope", "coverage"),
        undecided=OF_GOLD,
        words=(NO_GOLD,),
        read=len(questions),
        **others,
    )


RIGHT = Truth(
    metrics=known(
        DAY,
        **dict.fromkeys(("answer_precision", "citation_hit_rate", "citation_scope", "coverage"), 1.0),
        **dict.fromkeys(("hit_rate@1", "recall@5", "mrr", "claim_containment"), 1.0),
        **dict.fromkeys(("under_refusal_rate", "over_refusal_rate"), 0.0),
    ),
    n={"answer_precision": 192, "under_refusal_rate": 84, "over_refusal_rate": 192},
    passes=(*ALWAYS, *OF_CITATIONS, *OF_GOLD),
    read=len(DAY),
)


@dataclass(frozen=True)
class Application:
    """An application, and what is true of it.

    Attributes:
        file: The name of its file.
        truth: What the report says of its trace log.
        users: How it is asked.
        questions: What it is asked.
        config: What its author wrote into ragmon.toml.
        pipeline: The only pipeline that anything is said of.
        captured: The share of records that have a field.
        logged: What stands in the application's own log, once; nothing from ragmon stands there else.
    """

    file: str
    truth: Truth
    users: object = field(default_factory=Terminal)
    questions: Sequence[str] = DAY
    config: str = ""
    pipeline: str = "default"
    captured: Mapping[str, float] = field(default_factory=lambda: NOTHING_MISSING)
    logged: Sequence[str] = ()


APPLICATIONS = [
    Application(
        "plain_function",
        Truth(
            metrics={"refusal_rate": 84 / 276, "error_rate": 0.0, "citation_scope": None, "empty_retrieval_rate": None},
            passes=("error_rate",),
            undecided={*OF_CITATIONS, *OF_GOLD, "empty_retrieval_rate"},
            words=(NO_GOLD, "ragmon.record(retrieved=...)"),
            gaps=("no ids of retrieved documents in 276 of 276 records: `ragmon.record(retrieved=documents)`",),
            read=276,
        ),
        captured={"question": 1, "answer": 1, "ids": 0, "contexts": 0, "citations": 0},
        logged=["no ids of retrieved documents in 20 of 20 records", "`ragmon.record(retrieved=documents)` in a call"],
    ),
    Application(
        "answer_and_sources", uncited(), captured=CITES_NOTHING, logged=[CITE, "`ragmon.record(citations=[…])`"]
    ),
    Application("pydantic_models", cited()),
    Application("dataclass_pipeline", uncited(), captured=CITES_NOTHING, logged=[CITE]),
    Application("class_methods", uncited(), captured=CITES_NOTHING, logged=[CITE]),
    Application("async_generator", uncited(), captured=CITES_NOTHING, logged=[CITE]),
    Application(
        "chat_history",
        uncited(questions := DAY * 2),
        questions=questions,
        captured={**CITES_NOTHING, "session": 1},
        logged=[CITE],
    ),
    Application("cites_nothing", uncited(), pipeline="ferries", captured=CITES_NOTHING, logged=[CITE]),
    Application(
        "german_helpdesk",
        uncited(questions := GERMAN * 20),
        questions=questions,
        captured=CITES_NOTHING,
        logged=[CITE],
    ),
    Application(
        "fastapi_body", uncited(), Web((*UVICORN, "--workers", "2"), "/ask"), captured=CITES_NOTHING, logged=[CITE]
    ),
    Application("fastapi_stream", uncited(), Web(UVICORN, "/chat"), captured=CITES_NOTHING, logged=[CITE]),
    Application("flask_app", cited(), Web(GUNICORN, "/api/ask"), pipeline="helpdesk"),
    Application("django_app", cited(), Web(GUNICORN, "/ask", form=True)),
    Application("celery_tasks", cited(), Queue("answer_ticket")),
    Application(
        "langchain_chain",
        uncited(MORNING),
        questions=MORNING,
        pipeline="ferry-chat",
        captured={**CITES_NOTHING, "build": 1},
        logged=[CITE],
    ),
    Application(
        "openllmetry_chain",
        uncited(MORNING),
        questions=MORNING,
        pipeline="ferry-stream",
        captured=CITES_NOTHING,
        logged=[CITE],
    ),
    Application(
        "haystack_pipeline",
        uncited(MORNING),
        questions=MORNING,
        pipeline="unknown_service:python",
        captured=CITES_NOTHING,
        logged=[CITE],
    ),
    Application(
        "llama_index_uuids",
        Truth(
            metrics={"under_refusal_rate": 0.0, "over_refusal_rate": 0.0, "answer_precision": None},
            passes=(*ALWAYS, "over_refusal_rate"),
            undecided={*OF_CITATIONS, "first-five"},
            words=("retrieved ids occurs in gold (`[capture] id_from` names the field", HOW_TO_CITE),
            gaps=("retrieved ids occurs in gold; they look like `", "`, gold like `bakke#1`"),
        ),
        questions=DAY[:220],  # ids are compared with gold after the first 200
        config=WITH_GOLD + WITH_RECALL,
        pipeline="unknown_service:python",
        captured={**CITES_NOTHING, "gold": 1, "gold_ids": 0},
        logged=["`metadata.chunk_id` would match 100 %", '`[capture] id_from = "metadata.chunk_id"`'],
    ),
    Application(
        "llama_index_uuids",
        Truth(
            metrics={"over_refusal_rate": 0.0, "recall@5": 1.0, "hit_rate": 1.0, "answer_precision": None},
            passes=(*ALWAYS, "over_refusal_rate", "first-five"),
            undecided=OF_CITATIONS,
            words=(HOW_TO_CITE,),
        ),
        questions=MORNING,
        config=f'{WITH_GOLD}{WITH_RECALL}[capture]\nid_from = "metadata.chunk_id"\n',
        pipeline="unknown_service:python",
        captured={**CITES_NOTHING, "gold": 1, "gold_ids": 1},
        logged=[CITE],
    ),
    Application("openai_marks", cited(MORNING), questions=MORNING),
    Application(
        "openai_undecorated",
        Truth(
            metrics={"refusal_rate": refused(MORNING) / len(MORNING), "coverage": None, "citation_scope": None},
            passes=("error_rate",),
            undecided={*OF_CITATIONS, *OF_GOLD, "empty_retrieval_rate"},
            words=(
                "ragmon.record(retrieved=...)",
            ),  # its answers carry marks: the ids that they stand for are what lacks
            gaps=("no ids of retrieved documents", "an instrumented retriever inside the request"),
        ),
        questions=MORNING,
        pipeline="unknown_service:python",
        captured={"question": 1, "answer": 1, "ids": 0, "contexts": 0},
        logged=["no ids of retrieved documents in 20 of 20 records", "an instrumented retriever inside the request"],
    ),
    Application(
        "tool_agent",
        uncited(MORNING),
        questions=MORNING,
        pipeline="unknown_service:python",
        captured=CITES_NOTHING,
        logged=[CITE],
    ),
    Application("right_by_gold", RIGHT, config=WITH_GOLD, captured={**NOTHING_MISSING, "gold": 1, "gold_ids": 1}),
    Application(
        "chat_stream",
        RIGHT,
        users=Web(UVICORN, "/chat", "/stream", body=in_session),
        config=WITH_GOLD + '[refusal]\ntokens = ["That goes beyond my hut book, dear hiker."]\n',
        captured={**NOTHING_MISSING, "session": 1, "gold": 1, "gold_ids": 1},
    ),
    Application(
        "index_breaks",
        Truth(
            metrics={"answer_precision": 1.0, "over_refusal_rate": 79 / 192, "hit_rate": 113 / 192},
            n={"over_refusal_rate": 192},
            passes=(*ALWAYS, *OF_CITATIONS, "under_refusal_rate"),
            fails=("over_refusal_rate",),
            pages=("over_refusal_rate",),
        ),
        config=WITH_GOLD,
        captured={**NOTHING_MISSING, "gold": 1},
    ),
    Application(
        "refuses_too_often",
        Truth(
            metrics={"over_refusal_rate": 1 / 3, "under_refusal_rate": 0.0, "answer_precision": 1.0, "hit_rate@1": 1.0},
            n={"over_refusal_rate": 192, "answer_precision": 128},
            passes=(*ALWAYS, *OF_CITATIONS, "under_refusal_rate"),
            fails=("over_refusal_rate",),
            pages=("over_refusal_rate",),
        ),
        config=WITH_GOLD,
        captured={**NOTHING_MISSING, "gold": 1, "gold_ids": 1},
    ),
]
