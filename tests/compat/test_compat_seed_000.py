"""seed-000: what the published scorer of the WFGY eval page does, a test for every rule and every quirk."""

import json

import pytest

from ragmon.compat import Options, run

LENIENT = "precision=0,chr=0,under=1,over=1"


@pytest.fixture
def publish(tmp_path):
    """Score inline gold items and traces; strings stand for raw lines."""

    def score(gold, traces, **options):
        paths = []
        for name, records in (("gold.jsonl", gold), ("trace.jsonl", traces)):
            path = tmp_path / name
            path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records), "utf-8")
            paths.append(str(path))
        return run("seed-000", paths[1:], paths[:1], Options(**options))

    return score


@pytest.fixture
def report(publish):
    """The parsed JSON report."""

    def score(gold, traces, **options):
        result = publish(gold, traces, **options)
        assert result.error is None
        return json.loads(result.text)

    return score


def gold(qid="q1", **fields):
    return {"qid": qid, "answerable": True, "gold_claim_substr": ["null keys"], "gold_citations": ["p1"], **fields}


def unanswerable(qid="u1"):
    return gold(qid, answerable=False, gold_claim_substr=[], gold_citations=[])


def trace(qid="q1", claim="X rejects null keys.", citations=("p1",), retrieved=("p1", "p2")):
    return {
        "qid": qid,
        "retrieved_ids": list(retrieved),
        "answer_json": {"claim": claim, "citations": list(citations)},
    }


class TestTheReport:
    GOLD = (
        gold("A0001", gold_claim_substr=["rejects null keys"], gold_citations=["p1#2"]),
        unanswerable("A0002"),
        gold("A0003", gold_claim_substr=["only domain example.com"], gold_citations=["pB#1"]),
    )
    TRACES = (
        trace("A0001", citations=["p1#2"], retrieved=["p1#1", "p1#2", "p2#1"]),
        trace("A0002", "not in context", [], ["p1#1", "p2#1"]),
        trace("A0003", "Only domain example.com is allowed.", ["pB#1"], ["pB#1", "p1#2"]),
    )

    def test_worked_example_of_the_page_byte_for_byte(self, publish):
        result = publish(self.GOLD, self.TRACES)
        assert result.exit_code == 0
        assert result.text == (
            "{\n"
            '  "answered": 2,\n'
            '  "refused": 1,\n'
            '  "answerable": 2,\n'
            '  "unanswerable": 1,\n'
            '  "precision": 1.0,\n'
            '  "chr": 1.0,\n'
            '  "under_refusal": 0.0,\n'
            '  "over_refusal": 0.0,\n'
            '  "recall@k": 1.0,\n'
            '  "k": 5,\n'
            '  "gates": {\n'
            '    "precision": "0.80",\n'
            '    "chr": "0.75",\n'
            '    "under": "0.05",\n'
            '    "over": "0.10"\n'
            "  },\n"
            '  "pass": true\n'
            "}\n"
        )

    def test_exit_code_is_0_although_the_gates_fail(self, publish):
        result = publish([gold()], [trace(claim="wrong")])
        assert json.loads(result.text)["pass"] is False
        assert result.exit_code == 0

    def test_values_are_rounded_to_four_digits_and_gates_tested_on_unrounded_ones(self, report):
        """2/3 prints as .6667 and misses a gate of .6667."""
        items = [gold(f"q{i}") for i in range(3)]
        traces = [trace("q0"), trace("q1"), trace("q2", claim="wrong")]
        scored = report(items, traces, gates="precision=0.6667,chr=0,under=1,over=1")
        assert (scored["precision"], scored["pass"]) == (0.6667, False)

    def test_recall_is_not_gated(self, report):
        scored = report([gold()], [trace(retrieved=["p1"])], k=0)
        assert (scored["recall@k"], scored["pass"]) == (0.0, True)

    def test_constraints_are_ignored(self, report):
        assert report([gold(constraints=["never true"])], [trace()])["precision"] == 1.0


class TestAnswersAndRefusals:
    def test_missing_trace_of_an_answerable_item_is_an_answer_that_costs_precision_and_chr(self, report):
        scored = report([gold()], [])
        assert (scored["answered"], scored["precision"], scored["chr"]) == (1, 0.0, 0.0)

    def test_missing_trace_of_an_unanswerable_item_is_an_under_refusal(self, report):
        assert report([unanswerable()], [])["under_refusal"] == 1.0

    @pytest.mark.parametrize("answer", [{"claim": ""}, {"claim": None}, {}, None])
    def test_empty_claim_or_null_answer_counts_as_shipped(self, report, answer):
        scored = report([gold()], [{"qid": "q1", "retrieved_ids": [], "answer_json": answer}])
        assert (scored["answered"], scored["refused"]) == (1, 0)

    def test_refusal_token_matches_whatever_its_case_and_the_space_around_it(self, report):
        assert report([unanswerable()], [trace("u1", "  NOT IN CONTEXT ", [])])["under_refusal"] == 0.0

    def test_refusal_token_with_a_period_is_a_hallucination(self, report):
        assert report([unanswerable()], [trace("u1", "not in context.", [])])["under_refusal"] == 1.0

    def test_refusing_an_answerable_item_is_an_over_refusal(self, report):
        scored = report([gold(), gold("q2")], [trace(), trace("q2", "not in context", [])])
        assert (scored["over_refusal"], scored["precision"]) == (0.5, 1.0)

    def test_nothing_shipped_gives_precision_and_chr_of_1(self, report):
        scored = report([gold()], [trace(claim="not in context", citations=[])])
        assert (scored["answered"], scored["precision"], scored["chr"]) == (0, 1.0, 1.0)

    def test_empty_gold_file_passes(self, report):
        scored = report([], [trace()])
        rates = [scored[name] for name in ("precision", "chr", "under_refusal", "over_refusal", "recall@k")]
        assert (rates, scored["pass"]) == ([1.0, 1.0, 0.0, 0.0, 0.0], True)


class TestAnswerable:
    def test_absent_answerable_is_unanswerable_yet_can_be_correct_and_is_no_under_refusal(self, report):
        item = gold()
        del item["answerable"]
        scored = report([item], [trace()])
        assert (scored["unanswerable"], scored["precision"], scored["under_refusal"]) == (1, 1.0, 0.0)
        assert scored["pass"] is True

    def test_answerable_as_the_word_false_is_answerable_but_neither_over_refused_nor_in_recall(self, report):
        scored = report([gold(answerable="false")], [trace(claim="not in context", citations=[])])
        assert (scored["answerable"], scored["over_refusal"], scored["recall@k"]) == (1, 0.0, 0.0)

    @pytest.mark.parametrize(("label", "under"), [(0, 1.0), (None, 0.0)])
    def test_answerable_0_equals_false_and_null_does_not(self, report, label, under):
        assert report([gold(answerable=label)], [trace()])["under_refusal"] == under


class TestContainment:
    def test_any_substring_suffices(self, report):
        assert report([gold(gold_claim_substr=["absent phrase", "NULL keys"])], [trace()])["precision"] == 1.0

    def test_empty_list_of_substrings_is_vacuously_contained(self, report):
        assert report([gold(gold_claim_substr=[])], [trace(claim="anything")])["precision"] == 1.0

    @pytest.mark.parametrize("remove", [True, False], ids=["absent", "null"])
    def test_absent_or_null_substrings_are_never_contained(self, report, remove):
        item = gold(gold_claim_substr=None)
        if remove:
            del item["gold_claim_substr"]
        assert report([item], [trace()])["precision"] == 0.0

    def test_substrings_below_five_characters_never_match(self, report):
        assert report([gold(gold_claim_substr=["null"])], [trace()])["precision"] == 0.0


class TestCitations:
    def test_unanswerable_shipped_is_in_chr_denominator_only(self, report):
        scored = report([gold(), unanswerable()], [trace(), trace("u1", "made up", ["p1"])])
        assert scored["chr"] == 0.5

    def test_citing_nothing_hits_when_gold_cites_nothing(self, report):
        item = gold(gold_citations=[])
        assert report([item], [trace(citations=[])])["chr"] == 1.0
        assert report([item], [trace(citations=["p1"])])["chr"] == 0.0

    def test_one_citation_outside_the_retrieved_ids_spoils_the_hit(self, report):
        assert report([gold()], [trace(citations=["p1", "elsewhere"])])["chr"] == 0.0

    def test_citations_as_a_string_are_no_hit_and_no_error(self, report):
        answer = {"qid": "q1", "retrieved_ids": ["p1"], "answer_json": {"claim": "null keys", "citations": "p1"}}
        assert report([gold()], [answer])["chr"] == 0.0


class TestRecall:
    def test_all_gold_ids_must_be_in_the_top_k_whatever_the_answer_is(self, report):
        item = gold(gold_citations=["p1", "p2"])
        refused = trace(claim="not in context", citations=[], retrieved=["p1", "p3", "p2"])
        assert report([item], [refused], k=3)["recall@k"] == 1.0
        assert report([item], [refused], k=2)["recall@k"] == 0.0

    def test_no_gold_ids_count_as_recalled(self, report):
        assert report([gold(gold_citations=[])], [])["recall@k"] == 1.0

    def test_duplicate_retrieved_ids_take_places_in_the_top_k(self, report):
        assert report([gold()], [trace(retrieved=["p2", "p2", "p1"])], k=2)["recall@k"] == 0.0

    def test_k_defaults_to_5_and_is_printed(self, report):
        scored = report([gold()], [trace(retrieved=["a", "b", "c", "d", "e", "p1"])])
        assert (scored["k"], scored["recall@k"]) == (5, 0.0)


class TestJoining:
    def test_last_trace_and_last_gold_item_of_a_qid_win(self, report):
        items = [gold(gold_claim_substr=["first version"]), gold()]
        scored = report(items, [trace(claim="wrong"), trace()])
        assert (scored["answerable"], scored["precision"]) == (1, 1.0)

    def test_traces_with_an_unknown_qid_are_ignored(self, report):
        assert report([gold()], [trace(), trace("stranger", "not in context")])["refused"] == 0

    def test_q_id_is_read_where_qid_is_absent(self, report):
        renamed = trace()
        renamed["q_id"] = renamed.pop("qid")
        assert report([gold()], [renamed])["precision"] == 1.0

    def test_a_trace_with_qid_0_is_dropped(self, report):
        """The gold item 0 then counts as answered without a claim."""
        scored = report([gold(0)], [trace(0, "not in context")])
        assert (scored["answered"], scored["refused"]) == (1, 0)


class TestGates:
    def test_gates_print_as_the_strings_they_came_as(self, report):
        gates = report([gold()], [trace()], gates="precision=.8,chr=75e-2,under=0,over= 1")["gates"]
        assert gates == {"precision": ".8", "chr": "75e-2", "under": "0", "over": " 1"}

    def test_unknown_gate_names_are_silently_ignored(self, report):
        assert report([gold()], [trace(retrieved=["p1"])], k=0, gates=f"{LENIENT},recall=0.9")["pass"] is True

    def test_missing_gate_name_crashes(self, publish):
        result = publish([gold()], [trace()], gates="precision=0.8,under=0.05,over=0.10")
        assert (result.exit_code, result.text) == (3, "")
        assert "KeyError: 'chr'" in result.error
        assert "hint: --gates precision=0.80,chr=0.75,under=0.05,over=0.10" in result.error

    def test_missing_gate_is_not_noticed_behind_a_failing_one(self, report):
        """The published `and` stops at the first failing gate and never looks the others up."""
        assert report([gold()], [trace(claim="wrong")], gates="precision=0.8")["pass"] is False

    def test_space_after_a_comma_makes_another_name(self, publish):
        result = publish([gold()], [trace()], gates="precision=0, chr=0, under=1, over=1")
        assert (result.exit_code, "KeyError: 'chr'" in result.error) == (3, True)

    @pytest.mark.parametrize("gates", ["", "precision", "precision=0.8=0.9", "precision=high,chr=0,under=1,over=1"])
    def test_gates_that_are_not_names_and_numbers_crash(self, publish, gates):
        result = publish([gold()], [trace()], gates=gates)
        assert (result.exit_code, "ValueError" in result.error) == (3, True)


class TestRealData:
    @pytest.mark.parametrize("k", [1, 3, 5, 10])
    def test_small_set_as_published(self, data, k):
        squad = data / "squad2"
        expected = json.loads((squad / "expected/wfgy_000.json").read_text())["small"][f"k={k}"]
        result = run("seed-000", [str(squad / "small/traces.jsonl")], str(squad / "small/gold.jsonl"), Options(k=k))
        assert result.text == json.dumps(expected, indent=2) + "\n"

    @pytest.mark.slow
    @pytest.mark.parametrize("k", [1, 3, 5, 10])
    @pytest.mark.parametrize("system", ["bert", "nlnet", "extractive"])
    def test_full_set_as_published(self, data, system, k):
        squad = data / "squad2"
        expected = json.loads((squad / "expected/wfgy_000.json").read_text())["dev_half"][system][f"k={k}"]
        traces = [str(squad / f"traces/{system}.jsonl.gz")]
        result = run("seed-000", traces, str(squad / "gold.jsonl.gz"), Options(k=k))
        assert result.text == json.dumps(expected, indent=2) + "\n"
