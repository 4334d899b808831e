"""seed-004: the ResearchMate evaluation, a test for every rule and every quirk."""

import json

import pytest

from ragmon.compat import Options, run
from ragmon.compat.seed_004 import STOP_WORDS, groundedness, tokens


@pytest.fixture
def publish(tmp_path):
    """Score traces against a benchmark with one query per qrel; the relevant section of `q1` is `2401.1v1`, 12."""

    def score(traces, qrels=None, queries=None, corpus=None, answers=None, **options):
        qrels = {"q1": {"doc_id": "2401.1v1", "section_id": 12}} if qrels is None else qrels
        queries = {qid: {"query": f"Question {qid}?"} for qid in qrels} if queries is None else queries
        for name, content in (("queries", queries), ("qrels", qrels), ("answers", answers or {})):
            (tmp_path / f"{name}.json").write_text(json.dumps(content))
        for doc_id, sections in (corpus or {}).items():
            (tmp_path / "corpus").mkdir(exist_ok=True)
            (tmp_path / "corpus" / f"{doc_id}.json").write_text(json.dumps({"title": "T", "sections": sections}))
        path = tmp_path / "trace.jsonl"
        path.write_text("".join(json.dumps(trace) + "\n" for trace in traces))
        return run("seed-004", [str(path)], str(tmp_path), Options(**options))

    return score


@pytest.fixture
def flat(publish):
    """The README's five figures."""

    def score(traces, *args, **options):
        result = publish(traces, *args, **options)
        assert (result.exit_code, result.error) == (0, None)
        return json.loads(result.text)

    return score


@pytest.fixture
def detailed(flat):
    """The shape the code writes."""

    def score(traces, *args, **options):
        return flat(traces, *args, include_details=True, **options)

    return score


def trace(qid="q1", rank=1, **fields):
    """A trace whose only relevant chunk stands at a rank (0: nowhere) among 15."""
    ids = [f"other_1_{n}" for n in range(15)]
    if rank:
        ids[rank - 1] = "2401.1v1_12_0"
    return {"qid": qid, "retrieved_ids": ids, **fields}


def qrels(*query_ids):
    return {query_id: {"doc_id": "2401.1v1", "section_id": 12} for query_id in query_ids}


class TestRetrieval:
    def test_recall_at_k_is_the_share_of_queries_with_a_hit(self, flat):
        traces = [trace("q1", 1), trace("q2", 4), trace("q3", 10), trace("q4", 0)]
        scored = flat(traces, qrels("q1", "q2", "q3", "q4"))
        assert (scored["recall@3"], scored["recall@5"], scored["recall@10"]) == (0.25, 0.5, 0.75)

    def test_mrr_is_the_mean_of_inverse_ranks_and_0_where_nothing_was_found(self, flat):
        traces = [trace("q1", 1), trace("q2", 2), trace("q3", 5), trace("q4", 0)]
        assert flat(traces, qrels("q1", "q2", "q3", "q4"))["mrr"] == pytest.approx((1 + 1 / 2 + 1 / 5) / 4)

    def test_first_relevant_chunk_decides_the_rank(self, flat):
        ids = ["x_1_0", "2401.1v1_12_3", "2401.1v1_12_0"]
        assert flat([{"qid": "q1", "retrieved_ids": ids}])["mrr"] == 0.5

    def test_nothing_below_rank_10_is_seen(self, flat):
        """The published retriever returns ten chunks, so its MRR is an MRR@10."""
        assert flat([trace(rank=11)])["mrr"] == 0.0

    @pytest.mark.parametrize(
        ("chunk", "relevant"),
        [
            ("2401.1v1_12_0", True),
            ("2401.1v1_12_17", True),
            ("2401.1v1_1_2", False),
            ("2401.1v1_120_0", False),
            ("2401.1v2_12_0", False),
            ("2401.1v1_12_3_0", False),
            ("2401.1v1_12", False),
            (12, False),
        ],
    )
    def test_every_chunk_of_the_one_relevant_section_is_relevant(self, flat, chunk, relevant):
        assert flat([{"qid": "q1", "retrieved_ids": [chunk]}])["recall@3"] == float(relevant)

    def test_figures_are_rounded_to_four_digits(self, flat):
        assert flat([trace("q1", 3), trace("q2", 0)], qrels("q1", "q2"))["mrr"] == 0.1667


class TestQueries:
    def test_query_without_a_qrel_is_dropped(self, detailed):
        queries = {"q0": {"query": "No judgment?"}, "q1": {"query": "Judged?"}}
        scored = detailed([trace("q0", 0), trace("q1")], qrels("q1"), queries)
        assert (scored["metrics"]["total_queries"], scored["metrics"]["recall@3"]) == (1, 1.0)

    @pytest.mark.parametrize(
        ("sections", "kept"),
        [
            ([{"section_id": 12, "text": "About it."}], 1),
            ([{"section_id": 12, "text": "  "}], 0),
            ([{"section_id": 3, "text": "About else."}], 0),
        ],
        ids=["usable", "no text", "no section"],
    )
    def test_with_a_corpus_a_query_needs_its_section_in_it(self, detailed, sections, kept):
        scored = detailed([trace()], corpus={"2401.1v1": sections})
        assert scored["metrics"]["total_queries"] == kept

    def test_query_without_a_trace_or_without_recorded_retrieval_is_in_no_denominator(self, detailed):
        """The published runner drops a query whose retrieval raises."""
        scored = detailed([trace("q1"), {"qid": "q2", "retrieved_ids": None}], qrels("q1", "q2", "q3"))
        assert (scored["metrics"]["total_queries"], scored["metrics"]["recall@10"]) == (1, 1.0)

    def test_empty_retrieval_is_a_miss(self, flat):
        traces = [trace("q1"), {"qid": "q2", "retrieved_ids": []}]
        assert flat(traces, qrels("q1", "q2"))["recall@10"] == 0.5

    def test_query_with_empty_text_is_not_evaluated(self, detailed):
        scored = detailed([trace()], queries={"q1": {"query": ""}})
        assert scored["metrics"]["queries_with_retrieval"] == 0
        assert scored["per_query_results"] == [{"error": "Query not found"}]

    def test_max_queries_takes_the_first_usable_ones(self, flat):
        traces = [trace("q1", 1), trace("q2", 0), trace("q3", 0)]
        queries = {name: {"query": "?"} for name in ("q0", "q1", "q2", "q3")}
        assert flat(traces, qrels("q3", "q2", "q1"), queries, max_queries=1)["recall@3"] == 1.0

    def test_max_queries_of_0_means_all(self, detailed):
        scored = detailed([trace("q1"), trace("q2")], qrels("q1", "q2"), max_queries=0)
        assert scored["metrics"]["total_queries"] == 2

    def test_last_trace_of_a_query_counts_and_q_id_is_read(self, flat):
        renamed = trace(rank=2)
        renamed["q_id"] = renamed.pop("qid")
        assert flat([trace(rank=1), renamed, trace("stranger", 1)])["mrr"] == 0.5

    def test_no_queries_give_zeros(self, flat):
        assert set(flat([], qrels={}).values()) == {0.0}


class TestGroundedness:
    CONTEXTS = ("Paris is the capital of France.", "Lyon is not.")

    def grounded(self, **fields):
        return trace(contexts=list(self.CONTEXTS), **fields)

    def test_share_of_answer_tokens_in_the_contexts_repeats_counted(self):
        assert groundedness("Paris! Paris, then Berlin", "paris is here") == 2 / 3

    @pytest.mark.parametrize(
        "field", [{"answer": "Paris, not Berlin"}, {"answer_json": {"claim": "Paris, not Berlin"}}]
    )
    def test_answer_is_read_from_either_contract(self, flat, field):
        assert flat([self.grounded(**field)])["groundedness"] == 0.5

    def test_tokens_are_lower_case_ascii_runs_without_stop_words_and_single_characters(self):
        assert tokens("The GPU-2's x is at 30% of naïve") == ["gpu", "30", "na", "ve"]

    def test_stop_words_are_about_110_plain_words_that_can_occur(self):
        assert 100 <= len(STOP_WORDS) <= 130
        assert all(word.isalpha() and word.islower() and len(word) > 1 for word in STOP_WORDS)

    @pytest.mark.parametrize("answer", ["", "It is so."])
    def test_answer_without_tokens_is_fully_grounded(self, flat, answer):
        assert flat([self.grounded(answer=answer)])["groundedness"] == 1.0

    @pytest.mark.parametrize("contexts", [None, []])
    def test_no_retrieved_text_is_silently_not_counted(self, detailed, contexts):
        traces = [self.grounded(answer="Paris"), trace("q2", contexts=contexts, answer="Paris")]
        metrics = detailed(traces, qrels("q1", "q2"))["metrics"]
        assert (metrics["queries_with_retrieval"], metrics["queries_with_groundedness"]) == (2, 1)
        assert metrics["groundedness"] == 1.0

    @pytest.mark.parametrize(
        "fields",
        [{"answer": "Berlin", "error": "timeout"}, {"answer": None}, {"answer": 5}, {"answer_json": "Berlin"}],
    )
    def test_generation_error_is_silently_not_counted(self, detailed, fields):
        scored = detailed([self.grounded(**fields)])
        assert scored["metrics"]["queries_with_groundedness"] == 0
        assert scored["per_query_results"][0]["generation_error"]

    def test_skip_generation_leaves_retrieval_alone(self, flat):
        scored = flat([self.grounded(answer="Paris")], skip_generation=True)
        assert (scored["recall@3"], scored["groundedness"]) == (1.0, 0.0)

    def test_only_the_first_ten_contexts_are_read(self, flat):
        contexts = ["nothing"] * 10 + ["Paris"]
        assert flat([trace(contexts=contexts, answer="Paris")])["groundedness"] == 0.0

    @pytest.mark.parametrize(("threshold", "ratio"), [(None, 1.0), (0.125, 1.0), (0.2, 0.0)])
    def test_grounded_ratio_uses_the_readme_threshold_of_10_percent_or_the_given_one(self, detailed, threshold, ratio):
        """The stored code uses .20."""
        answer = "Paris one1 two2 three3 four4 five5 six6 seven7"
        assert detailed([self.grounded(answer=answer)], threshold=threshold)["metrics"]["grounded_ratio"] == ratio


class TestOutput:
    def test_flat_json_of_the_readme(self, publish):
        assert publish([trace(rank=2, contexts=["Paris"], answer="Paris")]).text == (
            '{\n  "recall@3": 1.0,\n  "recall@5": 1.0,\n  "recall@10": 1.0,\n  "mrr": 0.5,\n  "groundedness": 1.0\n}\n'
        )

    def test_details_have_the_shape_the_code_writes(self, detailed):
        record = {"qid": "q1", "retrieved_ids": ["2401.1v1_12_0"], "contexts": ["Paris"], "answer": "Paris", "ts": 7}
        assert detailed([record], answers={"q1": "Paris."}) == {
            "timestamp": 7,
            "metrics": {
                "recall@3": 1.0,
                "recall@5": 1.0,
                "recall@10": 1.0,
                "mrr": 1.0,
                "groundedness": 1.0,
                "grounded_ratio": 1.0,
                "total_queries": 1,
                "queries_with_retrieval": 1,
                "queries_with_groundedness": 1,
            },
            "per_query_results": [
                {
                    "query_id": "q1",
                    "query_text": "Question q1?",
                    "retrieved_chunk_ids": ["2401.1v1_12_0"],
                    "relevant_chunk_ids": ["2401.1v1_12_0"],
                    "generated_answer": "Paris",
                    "reference_answer": "Paris.",
                }
            ],
        }

    def test_timestamp_is_the_newest_of_the_traces(self, detailed):
        traces = [trace(ts=stamp) for stamp in (5.5, 9.25, 7, "10", float("nan"))]
        assert detailed(traces)["timestamp"] == 9.25

    def test_timestamp_is_null_without_any(self, detailed):
        assert detailed([trace()])["timestamp"] is None


class TestCrashes:
    @pytest.mark.parametrize("name", ["queries", "qrels", "answers"])
    def test_absent_file(self, publish, tmp_path, name):
        publish([trace()])
        (tmp_path / f"{name}.json").unlink()
        result = run("seed-004", [str(tmp_path / "trace.jsonl")], str(tmp_path), Options())
        assert (result.exit_code, result.text, f"{name}.json: cannot be read" in result.error) == (3, "", True)

    @pytest.mark.parametrize(
        ("broken", "place"),
        [
            ({"queries": {"q1": {"text": "Q?"}}}, "queries.json (query 'q1')"),
            ({"queries": ["q1"]}, "queries.json"),
            ({"qrels": {"q1": {"doc_id": "d"}}, "queries": {"q1": {"query": "Q?"}}}, "qrels.json (query 'q1')"),
            ({"answers": ["Paris"]}, "answers.json"),
            ({"corpus": {"d": [{"text": "no section_id"}]}}, "d.json"),
        ],
    )
    def test_entry_that_lacks_what_the_loader_reads(self, publish, broken, place):
        result = publish([trace()], **broken)
        assert (result.exit_code, f"{place}: the published scorer crashes here" in result.error) == (3, True)

    def test_gold_that_is_no_directory(self, tmp_path):
        gold = tmp_path / "gold.jsonl"
        gold.touch()
        result = run("seed-004", [], str(gold), Options())
        assert (result.exit_code, "not a directory" in result.error) == (3, True)
        assert "queries.json, qrels.json and answers.json" in result.error

    def test_two_gold_directories(self, tmp_path):
        result = run("seed-004", [], [str(tmp_path), str(tmp_path)], Options())
        assert (result.exit_code, "one directory" in result.error) == (3, True)

    def test_trace_that_is_no_object(self, publish):
        result = publish([trace(), ["q1"]])
        assert (result.exit_code, "trace.jsonl:2" in result.error) == (3, True)
