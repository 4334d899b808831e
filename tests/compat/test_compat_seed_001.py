"""seed-001: contextual precision as DeepEval's Elixir port computes it, on recorded verdicts."""

import gzip
import json

import pytest

from ragmon.compat import Options, run
from ragmon.compat.seed_001 import average_precision


@pytest.fixture
def publish(tmp_path):
    """Score inline cases, with verdict lists by qid if any."""

    def score(cases, gold=None, **options):
        paths = []
        for name, records in (("trace.jsonl", cases), ("verdicts.jsonl", gold or [])):
            path = tmp_path / name
            path.write_text("".join(json.dumps(record) + "\n" for record in records))
            paths.append(str(path))
        return run("seed-001", paths[:1], paths[1:] if gold else None, Options(**options))

    return score


@pytest.fixture
def measure(publish):
    """The result of one case."""

    def score(case, gold=None, **options):
        result = publish([case], gold, **options)
        assert (result.exit_code, result.error) == (0, None)
        return json.loads(result.text)

    return score


def case(*verdicts, nodes=None, **fields):
    count = len(verdicts) if nodes is None else nodes
    return {"qid": "q1", "contexts": [f"node {i}" for i in range(count)], "verdicts": list(verdicts), **fields}


class TestScore:
    @pytest.mark.parametrize(
        ("verdicts", "score"),
        [
            (["yes", "yes", "no"], 1.0),
            (["yes", "no", "yes"], 0.83),
            (["no", "yes", "yes"], 0.58),
            (["no", "no", "yes"], 0.33),
        ],
    )
    def test_worked_table_of_the_page(self, measure, verdicts, score):
        assert round(measure(case(*verdicts))["score"], 2) == score

    def test_score_is_not_rounded(self, measure):
        assert measure(case("yes", "no", "yes"))["score"] == (1 + 2 / 3) / 2

    def test_no_verdicts_score_0(self, measure):
        assert measure(case(nodes=2))["score"] == 0.0

    def test_nothing_relevant_scores_0(self, measure):
        assert measure(case("no", "no"))["score"] == 0.0

    def test_relevant_nodes_first_are_exactly_perfect(self):
        """No epsilon in the denominator: any number of leading hits gives 1.0, not 0.9999999999."""
        assert {average_precision([True] * n + [False] * 3) for n in range(1, 50)} == {1.0}

    @pytest.mark.parametrize("word", ["yes", " YES\n", "Yes"])
    def test_yes_counts_whatever_its_case_and_the_space_around_it(self, measure, word):
        assert measure(case(word))["score"] == 1.0

    @pytest.mark.parametrize("word", ["yes.", "y", "idk", "true", "", None, 2])
    def test_every_other_verdict_is_a_no(self, measure, word):
        assert measure(case(word, "yes"))["score"] == 0.5


class TestRecordedForms:
    @pytest.mark.parametrize(
        "verdicts",
        [
            [{"verdict": "no", "reason": "a cat"}, {"verdict": "yes", "reason": "the prize"}],
            ["no", "yes"],
            [0, 1],
            [False, True],
        ],
    )
    def test_objects_words_and_zero_one_lists_score_alike(self, measure, verdicts):
        scored = measure(case(*verdicts))
        assert scored["score"] == 0.5
        assert [verdict["verdict"] for verdict in scored["metadata"]["verdicts"]] == ["no", "yes"]

    def test_a_recorded_object_whose_verdict_is_no_text_is_a_no(self, measure):
        """The port's parser knows words only; a number inside a verdict object is not one."""
        assert measure(case({"verdict": 1, "reason": None}))["score"] == 0.0

    @pytest.mark.parametrize("name", ["verdicts", "has_answer"])
    def test_verdicts_come_from_the_gold_file_where_the_trace_has_none(self, measure, name):
        scored = measure({"qid": "q1", "retrieved_ids": ["a", "b"]}, [{"qid": "q1", name: [0, 1]}])
        assert (scored["score"], scored["metadata"]["context_count"]) == (0.5, 2)

    def test_verdicts_on_the_trace_win(self, measure):
        assert measure(case("yes"), [{"qid": "q1", "has_answer": [0]}])["score"] == 1.0

    def test_gold_verdicts_may_be_a_json_array(self, tmp_path):
        traces, gold = tmp_path / "t.jsonl", tmp_path / "g.json"
        traces.write_text('{"q_id": "q1", "retrieved_ids": ["a"]}')
        gold.write_text('[\n{"qid": "q1", "verdicts": ["yes"]}\n]')
        assert json.loads(run("seed-001", [str(traces)], str(gold), Options()).text)["score"] == 1.0


class TestVerdictsAndNodesDiffer:
    """Nothing guards against a judge that skips a node or invents one: the verdicts alone are scored."""

    def test_fewer_verdicts_than_nodes(self, measure):
        scored = measure(case("yes", nodes=3))
        assert (scored["score"], scored["metadata"]["context_count"]) == (1.0, 3)

    def test_more_verdicts_than_nodes(self, measure):
        scored = measure(case("no", "no", "yes", nodes=1))
        assert (scored["score"], scored["metadata"]["context_count"]) == (1 / 3, 1)


class TestResult:
    def test_one_line_a_case_in_their_order_with_the_published_keys(self, publish):
        verdicts = [{"verdict": "Yes ", "reason": "Nobel"}, {"verdict": "no", "reason": "cat"}]
        result = publish([case(*verdicts, reason="ranked first"), case("no")])
        assert result.text == (
            '{"metric": "Contextual Precision", "score": 1.0, "success": true, "threshold": 0.5, '
            '"reason": "ranked first", "latency_ms": null, "metadata": {"context_count": 2, '
            '"verdicts": [{"verdict": "yes", "reason": "Nobel"}, {"verdict": "no", "reason": "cat"}]}}\n'
            '{"metric": "Contextual Precision", "score": 0.0, "success": false, "threshold": 0.5, '
            '"reason": null, "latency_ms": null, "metadata": {"context_count": 1, '
            '"verdicts": [{"verdict": "no", "reason": null}]}}\n'
        )

    @pytest.mark.parametrize("name", ["retrieval_context", "contexts", "context", "retrieved_ids"])
    def test_nodes_are_counted_under_any_of_their_names(self, measure, name):
        assert measure({"verdicts": ["yes"], name: ["a", "b"]})["metadata"]["context_count"] == 2

    def test_node_count_is_unknown_where_no_nodes_were_recorded(self, measure):
        assert measure({"verdicts": ["yes"]})["metadata"]["context_count"] is None

    @pytest.mark.parametrize(("threshold", "success"), [(0.5, True), (0.51, False)])
    def test_success_is_a_score_of_at_least_the_threshold(self, measure, threshold, success):
        scored = measure(case("no", "yes"), threshold=threshold)
        assert (scored["success"], scored["threshold"]) == (success, threshold)

    def test_strict_mode_wants_1_and_scores_0_otherwise(self, measure):
        scored = measure(case("yes", "no", "yes"), strict=True, threshold=0.2)
        assert (scored["score"], scored["success"], scored["threshold"]) == (0.0, False, 1.0)

    def test_strict_mode_leaves_a_perfect_ranking_alone(self, measure):
        scored = measure(case("yes", "yes", "no"), strict=True)
        assert (scored["score"], scored["success"]) == (1.0, True)


class TestErrors:
    def test_case_without_verdicts_is_an_error_line_and_the_others_are_scored(self, publish):
        result = publish([{"qid": "q1", "contexts": ["a"]}, case("yes")])
        first, second = map(json.loads, result.text.splitlines())
        assert (result.exit_code, first) == (0, {"error": {"missing_params": ["verdicts"]}})
        assert second["score"] == 1.0

    def test_case_without_nodes_and_verdicts_names_both(self, measure):
        assert measure({"qid": "q1", "contexts": []}) == {
            "error": {"missing_params": ["retrieval_context", "verdicts"]}
        }

    def test_verdicts_that_are_no_list_are_an_error_line(self, measure):
        assert measure({"verdicts": "yes"}) == {"error": {"invalid_verdicts_response": "yes"}}

    def test_case_that_is_no_object_crashes_at_its_line(self, publish):
        result = publish([case("yes"), ["yes"]])
        assert (result.exit_code, result.text) == (3, "")
        assert "trace.jsonl:2: the published scorer crashes here" in result.error


def test_real_verdicts_give_the_independently_computed_scores(data):
    """2,910 BM25 rankings of ten, a node relevant when it holds the answer."""
    verdicts = data / "squad2/verdicts.jsonl.gz"
    expected = json.loads((data / "squad2/expected/contextual_precision_per_query.json").read_text())
    results = run("seed-001", [str(verdicts)], None, Options()).text.splitlines()
    with gzip.open(verdicts, "rt") as lines:
        scores = {
            json.loads(line)["qid"]: json.loads(result)["score"] for line, result in zip(lines, results, strict=True)
        }
    assert scores == pytest.approx(expected, abs=1e-12)
