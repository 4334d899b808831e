"""Gold sets and traces in the shapes of data sets and tools: documents of JSON, long tables, tests of promptfoo."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from ragmon import replay
from ragmon.core.errors import GoldError
from ragmon.ingest.datasets import rows_of
from ragmon.ingest.files import ReadSummary, read_file
from ragmon.ingest.gold import GoldSet

ROWS = [{"question": f"Q{n}?", "answer": f"A{n}.", "retrieved_ids": [f"p{n}", "x"]} for n in range(3)]
FRAME = pd.DataFrame(ROWS)


def gold_of(tmp_path, content, name="gold.json", **options):
    """The items of a gold file by qid."""
    text = content if isinstance(content, str) else json.dumps(content)
    (tmp_path / name).write_text(text)
    return list(GoldSet.load(tmp_path / name, **options))


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize(
    "document",
    [
        {"results": ROWS},
        {"version": 2, "results": {"stats": {}, "results": ROWS}},
        {"data": ROWS},
        FRAME.to_dict(orient="list"),
        json.loads(FRAME.to_json()),
        json.loads(FRAME.to_json(orient="index")),
        json.loads(FRAME.to_json(orient="split")),
        json.loads(FRAME.to_json(orient="table")),
    ],
)
def test_traces_in_one_json_document_are_those_of_its_rows(tmp_path, document, indent):
    (tmp_path / "log.json").write_text(json.dumps(document, indent=indent))
    records = list(read_file(str(tmp_path / "log.json"), ReadSummary()))
    assert [(record.q, record.answer_json.claim, record.retrieved_ids) for record in records] == [
        (row["question"], row["answer"], row["retrieved_ids"]) for row in ROWS
    ]


@pytest.mark.parametrize("indent", [None, 1])
def test_one_trace_in_a_file_is_a_trace(tmp_path, indent):
    (tmp_path / "log.json").write_text(json.dumps(ROWS[0], indent=indent))
    (record,) = read_file(str(tmp_path / "log.json"), ReadSummary())
    assert record.q == "Q0?"


@pytest.mark.parametrize(
    "row",
    [
        {"question": "Why?", "data": [{"answer": "So."}]},
        {"input": "Why?", "output": "So.", "documents": [{"id": "a"}]},
        {"retrieved_ids": ["a", "b"], "answer": "So."},
        {"kind": "totals", "calls": 3},
        {},
    ],
)
def test_a_row_is_no_table(row):
    assert rows_of(row, gold=False) is None


def test_a_run_of_ranx_is_ranked_by_score(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({"q1": {"a": 0.2, "b": 0.9}, "q2": {"c": 1}}))
    records = list(read_file(str(tmp_path / "run.json"), ReadSummary()))
    assert [(record.qid, record.retrieved_ids, record.partial) for record in records] == [
        ("q1", ["b", "a"], True),
        ("q2", ["c"], True),
    ]


QRELS = [
    ("qrels.tsv", "query-id\tcorpus-id\tscore\n1\ta\t1\n1\tb\t0\n1\tc\t2\n2\td\t1\n"),
    ("qrels.csv", "query_id,doc_id,relevance\n1,a,1\n1,b,0\n2,d,1\n1,c,1\n"),
    ("qrels.tsv", "qid\tdocid\tlabel\n1\ta\t1.0\n1\tb\t0.0\n1\tc\t1\n2\td\t1\n"),
    ("qrels.csv", "query-id,corpus-id\n1,a\n1,c\n2,d\n"),
    ("qrels.tsv", "1\t0\ta\t1\n1\t0\tb\t0\n1\t0\tc\t1\n2\t0\td\t1\n"),
    ("qrels.json", {"1": {"a": 2, "b": 0, "c": 1}, "2": {"d": 1}}),
    ("qrels.json", {"1": ["a", "c"], "2": ["d"]}),
    (
        "qrels.jsonl",
        "\n".join(
            json.dumps({"query-id": qid, "corpus-id": name, "score": score})
            for qid, name, score in (("1", "a", 1), ("1", "b", 0), ("1", "c", 1), ("2", "d", 1))
        ),
    ),
]


@pytest.mark.parametrize(("name", "content"), QRELS)
def test_judgements_of_one_question_are_one_item_and_a_score_of_zero_is_no_gold(tmp_path, name, content):
    items = gold_of(tmp_path, content, name)
    assert [(item.qid, item.answerable, item.citations) for item in items] == [
        ("1", True, ("a", "c")),
        ("2", True, ("d",)),
    ]


BEIR_QUERIES = [
    {"_id": "1", "text": "When does the bus leave?", "metadata": {}},
    {"_id": "2", "text": "Who drives it?"},
    {"_id": "3", "text": "Is there a night bus?"},
]


@pytest.mark.parametrize(("name", "content"), QRELS)
@pytest.mark.parametrize("folder", [".", ".."])
def test_judgements_have_the_questions_that_beir_lays_beside_them(tmp_path, monkeypatch, name, content, folder):
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / folder / "queries.jsonl").write_text("\n".join(map(json.dumps, BEIR_QUERIES)))
    (tmp_path / "corpus.jsonl").write_text(json.dumps({"_id": "a", "title": "", "text": "Buses leave at nine."}))
    items = gold_of(tmp_path / "qrels", content, name)
    assert [(item.qid, item.question, item.citations) for item in items] == [
        ("1", "When does the bus leave?", ("a", "c")),
        ("2", "Who drives it?", ("d",)),
    ]
    monkeypatch.chdir(tmp_path / "qrels")
    assert [item.question for item in GoldSet.load(name)] == [item.question for item in items]


def test_traces_without_qid_find_their_judgements_by_the_question_beside_them(tmp_path):
    (tmp_path / "queries.jsonl").write_text("\n".join(map(json.dumps, BEIR_QUERIES)))
    (tmp_path / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\ta\t1\n2\td\t1\n")
    asked = [{"question": "when does the bus leave", "retrieved_ids": ["x", "a"], "answer": "At nine."}]
    assert replay(asked, tmp_path / "test.tsv").metric("mrr").value == 0.5


def test_questions_beside_judgements_that_are_none_of_them_change_nothing(tmp_path):
    (tmp_path / "queries.jsonl").write_text('{"_id": "9", "text": "Why?"}\n["a"]\n{"query": "1", "text": 7}\n')
    content = "query-id\tcorpus-id\tscore\n1\ta\t1\n"
    assert [item.question for item in gold_of(tmp_path, content, "test.tsv")] == [""]
    own = [{"qid": "9", "question": "Who?", "answerable": False}]
    assert [item.question for item in gold_of(tmp_path, own)] == ["Who?"]
    (tmp_path / "queries.jsonl").write_text('{"_id": "1", "text": "Why?"}\n{')
    with pytest.raises(GoldError, match=r"queries.jsonl:2: not JSON"):
        gold_of(tmp_path, content, "test.tsv")


def test_a_document_is_judged_once(tmp_path):
    with pytest.raises(GoldError, match=r"qrels.tsv:3: judged twice, first on line 2: '1 a'"):
        gold_of(tmp_path, "query-id\tcorpus-id\tscore\n1\ta\t1\n1\ta\t0\n", "qrels.tsv")


SQUAD = {
    "version": "v2.0",
    "data": [
        {
            "title": "Cup",
            "paragraphs": [
                {
                    "context": "Denver won the cup in 2015.",
                    "qas": [
                        {
                            "id": "s1",
                            "question": "Who won?",
                            "answers": [{"text": "Denver", "answer_start": 0}, {"text": "Denver", "answer_start": 0}],
                            "is_impossible": False,
                        },
                        {
                            "id": "s2",
                            "question": "How old is the moon?",
                            "answers": [],
                            "is_impossible": True,
                            "plausible_answers": [{"text": "2015", "answer_start": 22}],
                        },
                    ],
                }
            ],
        }
    ],
}
SQUAD_ROWS = """id,title,context,question,answers
s1,Cup,Denver won the cup in 2015.,Who won?,"{'text': %s, 'answer_start': %s}"
s2,Cup,Denver won the cup in 2015.,How old is the moon?,"{'text': %s, 'answer_start': %s}"
"""


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("squad.json", SQUAD),
        ("squad.csv", SQUAD_ROWS % ("['Denver', 'Denver']", "[0, 0]", "[]", "[]")),
        (
            "squad.csv",
            SQUAD_ROWS
            % ("array(['Denver'], dtype=object)", "array([0], dtype=int32)", "array([], dtype=object)", "array([])"),
        ),
        (
            "squad.jsonl",
            "\n".join(
                json.dumps(
                    {"id": qid, "question": question, "context": "Denver won the cup in 2015.", "answers": found}
                )
                for qid, question, found in (
                    ("s1", "Who won?", {"text": ["Denver"], "answer_start": [0]}),
                    ("s2", "How old is the moon?", {"text": [], "answer_start": []}),
                )
            ),
        ),
    ],
)
def test_squad_says_which_questions_have_no_answer(tmp_path, name, content):
    items = gold_of(tmp_path, content, name)
    assert [(item.qid, item.answerable, item.claim_substrings, item.contexts) for item in items] == [
        ("s1", True, ("Denver",), ("Denver won the cup in 2015.",)),
        ("s2", False, None, None),
    ]


@pytest.mark.parametrize(
    "content",
    [
        [{"question": "Who wrote it?", "answer": ["Ada", "A. L."]}],
        [{"question": "Who wrote it?", "question_id": "t", "answer": {"value": "Ada", "aliases": ["A. L."]}}],
        {"Data": [{"Question": "Who wrote it?", "QuestionId": "t", "Answer": {"Value": "Ada", "Aliases": ["A. L."]}}]},
        [{"id": 7, "question": "Who wrote it?", "possible_answers": '["Ada", "A. L."]'}],
        [{"question": "Who wrote it?", "answers": ["Ada", "A. L."]}],
    ],
)
def test_right_answers_of_data_sets_are_phrases_of_which_one_is_enough(tmp_path, content):
    (item,) = gold_of(tmp_path, content)
    assert (item.question, item.answerable, item.claim_substrings) == ("Who wrote it?", True, ("Ada", "A. L."))


def test_data_sets_of_llama_index_are_read(tmp_path):
    example = {"query": "Why?", "reference_contexts": ["It is so."], "reference_answer": "So.", "query_by": None}
    (item,) = gold_of(tmp_path, {"examples": [example]})
    assert (item.question, item.gold_claim, item.contexts) == ("Why?", "So.", ("It is so.",))
    pairs = {"queries": {"u1": "Why?"}, "corpus": {"n1": "It is so."}, "relevant_docs": {"u1": ["n1"]}, "mode": "text"}
    (item,) = gold_of(tmp_path, pairs)
    assert (item.qid, item.question, item.citations) == ("u1", "Why?", ("n1",))


@pytest.mark.parametrize(
    "content",
    [
        {"question": ["Why?", "How?"], "ground_truth": ["so", "thus"]},
        {"question": {"0": "Why?", "1": "How?"}, "ground_truth": {"0": "so", "1": "thus"}},
        {"results": [{"question": "Why?", "reference": "so"}, {"question": "How?", "reference": "thus"}]},
        {"columns": ["question", "reference"], "index": [0, 1], "data": [["Why?", "so"], ["How?", "thus"]]},
    ],
)
def test_gold_by_column_and_in_a_wrapper_is_read(tmp_path, content):
    assert [(item.question, item.gold_claim) for item in gold_of(tmp_path, content)] == [
        ("Why?", "so"),
        ("How?", "thus"),
    ]


@pytest.mark.parametrize(
    ("expected", "answerable", "phrases", "claim"),
    [
        ("contains:07:07", True, ("07:07",), None),
        ("icontains: at seven", True, ("at seven",), None),
        ("contains-any: 7, seven", True, ("7", "seven"), None),
        ("is-refusal", False, None, None),
        ("equals: At seven.", True, None, "At seven."),
        ("At seven.", True, None, "At seven."),
        ("not-is-refusal", True, None, None),
    ],
)
def test_what_promptfoo_expects_is_a_phrase_a_reference_or_a_refusal(tmp_path, expected, answerable, phrases, claim):
    (item,) = gold_of(tmp_path, f'question,__expected\nWhen?,"{expected}"\n', "tests.csv")
    assert (item.answerable, item.claim_substrings, item.gold_claim) == (answerable, phrases, claim)


def test_tests_of_promptfoo_in_several_columns_and_in_json_are_read(tmp_path):
    (item,) = gold_of(tmp_path, "question,__expected1,__expected2\nWhen?,contains:7,icontains:seven\n", "tests.csv")
    assert item.claim_substrings == ("7", "seven")
    test = {"vars": {"question": "When?"}, "assert": [{"type": "contains-any", "value": ["7", "seven"]}]}
    (item,) = gold_of(tmp_path, [test])
    assert (item.question, item.claim_substrings) == ("When?", ("7", "seven"))


@pytest.mark.parametrize(
    "expected", ["llm-rubric: is polite", "not-contains: 8", "contains-all: 7, seven", "regex: 0?7"]
)
def test_an_assertion_that_says_no_phrase_is_said_and_skipped_where_the_user_says_so(tmp_path, expected):
    rows = f'question,__expected\nWhen?,"{expected}"\nWhere?,contains:here\n'
    with pytest.raises(GoldError, match=r"tests.csv:2: its `__expected` is .*, which names no phrase") as caught:
        gold_of(tmp_path, rows, "tests.csv", empty_reference="unanswerable")
    assert "--empty-reference skip" in caught.value.hint
    assert [item.question for item in gold_of(tmp_path, rows, "tests.csv", empty_reference="skip")] == ["Where?"]


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("ragas.csv", "user_input,reference,reference_contexts\nWhy?,so,\"['It is so.']\"\nHow?,,\"['It is so.']\"\n"),
        ("ragas.csv", "user_input,reference,reference_context_ids\nWhy?,so,a\nHow?,,b\n"),
        ("squad.csv", "question,context,answers\nWhy?,It is so.,so\nHow?,It is so.,\n"),
        (
            "goldens.json",
            json.dumps(
                [
                    {"input": "Why?", "expected_output": "so", "context": ["It is so."], "actual_output": None},
                    {"input": "How?", "expected_output": None, "context": ["It is so."], "actual_output": None},
                ]
            ),
        ),
    ],
)
def test_what_the_user_says_about_an_empty_reference_holds_whatever_other_columns_there_are(tmp_path, name, rows):
    items = gold_of(tmp_path, rows, name, empty_reference="unanswerable")
    assert [item.answerable for item in items] == [True, False]
    assert (items[1].contexts, items[1].citations) == (None, None)
    assert [item.question for item in gold_of(tmp_path, rows, name, empty_reference="skip")] == ["Why?"]


@pytest.mark.parametrize("answerable", ["yes", "true"])
def test_a_row_that_says_itself_that_it_is_answerable_is(tmp_path, answerable):
    rows = f"question,reference,answerable,gold_ids\nWhy?,,{answerable},a\n"
    (item,) = gold_of(tmp_path, rows, "gold.csv", empty_reference="unanswerable")
    assert (item.answerable, item.citations) == (True, ("a",))


def test_rows_without_anything_that_is_right_are_told_by_their_members(tmp_path):
    with pytest.raises(
        GoldError, match="no column is known as the question and what is right; its columns: question, n"
    ):
        gold_of(tmp_path, [{"question": "Why?", "note": "so"}])
    with pytest.raises(GoldError, match="these are traces") as caught:
        gold_of(tmp_path, [{"question": "Why?", "answer": "so"}])
    assert "--map gold_claim=answer" in caught.value.hint
