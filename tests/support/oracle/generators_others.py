"""Small inputs in the shapes of the other four documents."""

from __future__ import annotations

from tests.support.oracle.draw import ABSENT, drawn, without_absent
from tests.support.oracle.generators import GOLD_CLAIMS, NO_CLAIMS, REFUSALS, TEXTS

# --- seed 001: recorded verdicts --------------------------------------------------------------------------------------

WORDS = ("yes", "no", " Yes\n", "YES", "No", "idk", "")


def verdict(draw):
    """A verdict as a judge writes it, or as a log records it."""
    word = draw.one(WORDS)
    return draw.mostly(
        lambda: word,
        lambda: {"verdict": word, "reason": draw.one(("it says so", None))},
        lambda: draw.one((0, 1, True, False)),
        weight=3,
    )


def verdict_case(draw):
    """A case with its verdicts and the nodes they are about, whose number the metric never looks at."""
    return without_absent(
        qid="q",
        retrieval_context=draw.one((ABSENT, draw.some(TEXTS, 4, 0))),
        verdicts=draw.mostly(
            lambda: [verdict(draw) for _ in range(draw.number(8))], lambda: draw.one((ABSENT, None, "yes")), weight=12
        ),
        reason=draw.one((ABSENT, None, "the second node is irrelevant")),
    )


def verdict_lists():
    """A judge's verdicts on a ranking, best rank first."""
    return drawn(lambda draw: draw.some(WORDS, 8, 0), 9)


def verdict_cases():
    """Up to five cases."""
    return drawn(lambda draw: [verdict_case(draw) for _ in range(draw.number(5))], 160)


# --- seed 002: Example 08 ---------------------------------------------------------------------------------------------


def example_08_item(draw):
    """A gold item; several may share a question."""
    return without_absent(
        qid=draw.one(("q1", "q2", "a|b", "<b>x</b>", 0, "", 3)),
        q=draw.one(("What is X?", "what is x?", "What is X? ", "Röntgen?", "")),
        answerable=draw.one((True, True, False)),
        gold_ids=draw.mostly(
            lambda: draw.some(("p1#1", "p1#2", "x;y", "", 7), 3), lambda: draw.one((ABSENT, [])), lambda: ABSENT
        ),
        gold_claim=draw.one((ABSENT, None, *GOLD_CLAIMS)),
    )


def example_08_prediction(draw):
    """A prediction: citations as a field, in the text, in both or nowhere."""
    in_text = ("", "\n- citations: [p1#1]", "\nCITATIONS : [ p1#2,p1#1 ]", " citations: [x;y]", "citations: []")
    twice = "citations: [p9] citations: [p1#1]"

    def sentence():
        return draw.one((*GOLD_CLAIMS, "- claim")) + draw.one((*in_text, twice))

    return without_absent(
        q=draw.one(("What is X?", "what is x?", "Röntgen?", "", None, ABSENT)),
        question=draw.one((ABSENT, ABSENT, "What is X? ", "Who?")),
        chunks=[{"id": "p1#1"}],
        answer=draw.mostly(sentence, lambda: draw.one((*REFUSALS, *NO_CLAIMS)), weight=3),
        citations=draw.mostly(
            lambda: draw.one((ABSENT, ABSENT, None, "p1#1", [])),
            lambda: draw.some((" p1#1", "p1#2", 7, ""), 2),
            weight=1,
        ),
    )


EXAMPLE_08_CRASHES = ({"gold_ids": None}, {"gold_claim": 5}, {"answer": 5}, {"q": ["What is X?"]}, {"gold_ids": [[]]})


def example_08_run(draw):
    """A gold array and predictions; one run in twenty holds a field the script crashes on."""
    gold = [example_08_item(draw) for _ in range(draw.number(6))]
    predictions = [example_08_prediction(draw) for _ in range(draw.number(12))]
    for records in (gold, predictions):
        if records and draw.number(19) == 19:
            records[0] = records[0] | draw.one(EXAMPLE_08_CRASHES)
        if records and draw.number(39) == 39:
            del records[0][draw.one(tuple(records[0]))]
    return gold, predictions


def example_08_runs():
    """Gold arrays and predictions of Example 08."""
    return drawn(example_08_run, 320)


# --- seed 003: the retriever evaluator --------------------------------------------------------------------------------


def context_pair(draw, *, empty):
    """Retrieved and ground-truth strings per query."""
    least = 0 if empty and draw.number(3) == 3 else 1
    texts = lambda: draw.some((*TEXTS, "C#", "c", "a-b", "p1#1", "p11"), 4, least)  # noqa: E731 - drawn per query
    queries = least + draw.number(3)
    return [texts() for _ in range(queries)], [texts() for _ in range(queries)]


def context_lists(*, empty=False):
    """Retrieved and ground-truth strings per query; `empty=True` may draw the lists the evaluator fails on."""
    return drawn(lambda draw: context_pair(draw, empty=empty), 60)


# --- seed 004: the ResearchMate evaluation ----------------------------------------------------------------------------

DOCS, SECTIONS = ("2401.1v1", "2401.1v1_1"), (1, 12)
CHUNKS = tuple(f"{doc}_{section}_{number}" for doc in DOCS for section in SECTIONS for number in (0, 1))


def research_query(draw, number):
    """A query with its ranking and its answer."""
    judged = {"doc_id": draw.one(DOCS), "section_id": draw.one(SECTIONS)}
    return {
        "query_id": f"query-{number}",
        "qrel": draw.mostly(
            lambda: judged, lambda: None, lambda: draw.one((judged, {}, {"doc_id": DOCS[0]})), weight=9
        ),
        "retrieved": draw.some(CHUNKS, 12, 0),
        "contexts": draw.some((*TEXTS, ""), 3, 0),
        "answer": draw.one((*TEXTS, "", "the of is", "So it is.", None)),
    }


def research_runs():
    """Up to six queries of the ResearchMate evaluation with their rankings and answers."""
    return drawn(lambda draw: [research_query(draw, number) for number in range(draw.number(6))], 160)
