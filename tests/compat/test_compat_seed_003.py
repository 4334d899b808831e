"""seed-003: AdalFlow's RetrieverEvaluator, a test for every rule and every quirk."""

import gzip
import json

import pytest

from ragmon.compat import Options, run
from ragmon.compat.seed_003 import normalized


@pytest.fixture
def publish(tmp_path):
    """Score inline gold items and traces; gold is written as JSONL."""

    def score(gold, traces):
        paths = []
        for name, records in (("gold.jsonl", gold), ("trace.jsonl", traces)):
            path = tmp_path / name
            path.write_text("".join(json.dumps(record) + "\n" for record in records))
            paths.append(str(path))
        return run("seed-003", paths[1:], paths[:1], Options())

    return score


@pytest.fixture
def evaluate(publish):
    """The result dictionary for parallel lists of retrieved and gold texts, as `compute` takes them."""

    def score(retrieved, wanted):
        gold = [{"qid": f"q{n}", "gold_contexts": texts} for n, texts in enumerate(wanted)]
        traces = [{"qid": f"q{n}", "contexts": texts} for n, texts in enumerate(retrieved)]
        result = publish(gold, traces)
        assert (result.exit_code, result.error) == (0, None)
        return json.loads(result.text)

    return score


class TestNormalisation:
    @pytest.mark.parametrize(
        ("text", "normal"),
        [
            ("The A!!", ""),
            ("C++", "c"),
            ("C#", "c"),
            ("  An   apple\tfell ", "apple fell"),
            ("a.n. other", "other"),
            ("theatre of THE absurd", "theatre of absurd"),
            ("it's", "its"),
            ("«Élan»", "«élan»"),
        ],
    )
    def test_lower_then_ascii_punctuation_then_articles_then_spaces(self, text, normal):
        assert normalized(text) == normal

    def test_texts_are_compared_normalised(self, evaluate):
        assert evaluate([["The Apple, fell!"]], [["apple fell"]])["recall_list"] == [1.0]

    def test_different_ids_can_become_one(self, evaluate):
        """Ids pass through the text normalisation: C++ and C# are the same document."""
        assert evaluate([["C++"]], [["C#"]])["recall_list"] == [1.0]


class TestScores:
    def test_docstring_example_gives_one_sixth_not_two_thirds(self, evaluate):
        """The docstring promises a match in the joined context, [1/3, 1.0]; the code intersects whole strings."""
        scored = evaluate(
            [
                ["Apple is founded before Google."],
                ["February has 28 days in common years. February has 29 days in leap years."],
            ],
            [
                ["Apple is founded in 1976.", "Google is founded in 1998.", "Apple is founded before Google."],
                ["February has 28 days in common years", "February has 29 days in leap years"],
            ],
        )
        assert scored["recall_list"] == [1 / 3, 0.0]
        assert scored["avg_recall"] == 1 / 6

    def test_recall_is_over_gold_and_precision_over_retrieved(self, evaluate):
        scored = evaluate([["x", "y", "z", "w"]], [["x", "q"]])
        assert (scored["recall_list"], scored["precision_list"]) == ([0.5], [0.25])

    def test_averages_are_over_queries(self, evaluate):
        """Macro: 1 of 1 and 0 of 3 average to one half, not to one quarter."""
        assert evaluate([["x"], ["x"]], [["x"], ["p", "q", "r"]])["avg_recall"] == 0.5

    def test_equal_texts_count_once(self, evaluate):
        scored = evaluate([["x", "X!", "y"]], [["x", "the x"]])
        assert (scored["recall_list"], scored["precision_list"]) == ([1.0], [0.5])

    def test_top_k_is_the_length_of_the_first_list(self, evaluate):
        assert evaluate([["x", "x"], ["x", "y", "z"]], [["x"], ["x"]])["top_k"] == 2

    def test_result_is_unrounded_and_in_the_published_order(self, publish):
        result = publish([{"qid": "q1", "gold_contexts": ["x", "y", "z"]}], [{"qid": "q1", "contexts": ["x"]}])
        assert result.text == (
            "{\n"
            '  "avg_recall": 0.3333333333333333,\n'
            '  "avg_precision": 1.0,\n'
            '  "recall_list": [\n'
            "    0.3333333333333333\n"
            "  ],\n"
            '  "precision_list": [\n'
            "    1.0\n"
            "  ],\n"
            '  "top_k": 1\n'
            "}\n"
        )


class TestJoining:
    @pytest.mark.parametrize("name", ["gold_citations", "gold_ids"])
    def test_ids_are_allowed(self, publish, name):
        """Gold by id is compared with the retrieved ids, even where the trace holds texts as well."""
        traces = [{"qid": "q1", "retrieved_ids": ["p1#1", "p2#1"], "contexts": ["some text"]}]
        assert json.loads(publish([{"qid": "q1", name: ["p1#1"]}], traces).text)["precision_list"] == [0.5]

    def test_retrieved_ids_stand_in_where_contexts_are_absent(self, publish):
        result = publish([{"qid": "q1", "gold_contexts": ["p1"]}], [{"qid": "q1", "retrieved_ids": ["p1"]}])
        assert json.loads(result.text)["avg_recall"] == 1.0

    def test_queries_come_in_the_order_of_the_gold(self, publish):
        gold = [{"qid": "a", "gold_ids": ["x"]}, {"qid": "b", "gold_ids": ["y"]}]
        traces = [{"q_id": "b", "retrieved_ids": ["z", "z"]}, {"qid": "a", "retrieved_ids": ["x"]}]
        scored = json.loads(publish(gold, traces).text)
        assert (scored["recall_list"], scored["top_k"]) == ([1.0, 0.0], 1)

    def test_last_trace_of_a_qid_counts_and_strangers_do_not(self, publish):
        traces = [{"qid": qid, "retrieved_ids": [found]} for qid, found in (("a", "x"), ("a", "y"), ("stranger", "x"))]
        assert json.loads(publish([{"qid": "a", "gold_ids": ["x"]}], traces).text)["recall_list"] == [0.0]

    def test_gold_may_be_a_json_array(self, tmp_path):
        gold, traces = tmp_path / "qaset.json", tmp_path / "trace.jsonl"
        gold.write_text('[\n{"qid": "a", "gold_ids": ["x"]}\n]')
        traces.write_text('{"qid": "a", "retrieved_ids": ["x"]}')
        assert json.loads(run("seed-003", [str(traces)], str(gold), Options()).text)["avg_recall"] == 1.0


class TestCrashes:
    def test_empty_gold_list_divides_by_zero(self, publish):
        result = publish([{"qid": "a", "gold_contexts": []}], [{"qid": "a", "contexts": ["x"]}])
        assert (result.exit_code, result.text) == (3, "")
        assert "gold.jsonl:1" in result.error
        assert "ZeroDivisionError" in result.error

    @pytest.mark.parametrize("trace", [{"contexts": []}, {"contexts": None}, {}])
    def test_empty_retrieved_list_divides_by_zero(self, publish, trace):
        result = publish([{"qid": "a", "gold_contexts": ["x"]}], [{"qid": "a", **trace}])
        assert result.exit_code == 3
        assert "trace.jsonl:1" in result.error
        assert "ZeroDivisionError" in result.error

    def test_no_queries_at_all_are_an_index_error(self, publish):
        result = publish([], [{"qid": "a", "contexts": ["x"]}])
        assert (result.exit_code, "IndexError" in result.error) == (3, True)

    def test_gold_query_without_a_trace_makes_the_lists_unequal(self, publish):
        gold = [{"qid": "a", "gold_ids": ["x"]}, {"qid": "b", "gold_ids": ["y"]}]
        result = publish(gold, [{"qid": "a", "retrieved_ids": ["x"]}])
        assert result.exit_code == 3
        assert "gold.jsonl:2" in result.error
        assert "ValueError" in result.error
        assert "b" in result.error.splitlines()[0].rpartition(":")[2]

    @pytest.mark.parametrize(
        ("gold", "trace", "place"),
        [
            ({"qid": "a", "gold_contexts": [3]}, {"qid": "a", "contexts": ["x"]}, "gold.jsonl:1"),
            ({"qid": "a", "gold_contexts": ["x"]}, {"qid": "a", "contexts": [None]}, "trace.jsonl:1"),
            ("a", {"qid": "a", "contexts": ["x"]}, "gold.jsonl:1"),
            ({"qid": "a", "gold_contexts": ["x"]}, "a", "trace.jsonl:1"),
        ],
    )
    def test_what_is_not_text_or_not_an_object_crashes_at_its_line(self, publish, gold, trace, place):
        result = publish([gold], [trace])
        assert (result.exit_code, f"{place}: the published scorer crashes here" in result.error) == (3, True)

    def test_a_whole_gold_run_with_unanswerable_items_crashes(self, data):
        """Unanswerable items have no gold ids, which the evaluator cannot divide by."""
        small = data / "squad2/small"
        result = run("seed-003", [str(small / "traces.jsonl")], str(small / "gold.jsonl"), Options())
        assert (result.exit_code, "gold.jsonl:2" in result.error) == (3, True)


def test_real_rankings_give_the_recall_other_libraries_compute(data, tmp_path):
    """One gold paragraph a question: recall of ten is the success@10 of pytrec_eval."""
    squad = data / "squad2"
    lines = gzip.decompress((squad / "gold.jsonl.gz").read_bytes()).decode().splitlines()
    answerable = tmp_path / "answerable.jsonl"
    answerable.write_text("\n".join(line for line in lines if json.loads(line)["gold_citations"]))
    expected = json.loads((squad / "expected/retrieval.json").read_text())["gold_paragraph"]["pytrec_eval"]
    scored = json.loads(run("seed-003", [str(squad / "traces/bert.jsonl.gz")], str(answerable), Options()).text)
    assert scored["avg_recall"] == pytest.approx(expected["recall_10"], abs=1e-12)
    assert scored["avg_precision"] == pytest.approx(expected["P_10"], abs=1e-12)
    assert (len(scored["recall_list"]), scored["top_k"]) == (2910, 10)
