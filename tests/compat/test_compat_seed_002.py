"""seed-002: the Markdown report of WFGY Example 08, a test for every rule and every quirk."""

import json
import re

import pytest

from ragmon.compat import Options, run


@pytest.fixture
def publish(tmp_path):
    """Score an inline question set and predictions; strings stand for raw lines."""

    def score(gold, traces):
        qaset, runs = tmp_path / "qaset.json", tmp_path / "trace.jsonl"
        qaset.write_text(gold if isinstance(gold, str) else json.dumps(gold))
        runs.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in traces))
        return run("seed-002", [str(runs)], str(qaset), Options())

    return score


@pytest.fixture
def rates(publish):
    """The bold figures of the six bullets, by the first word of each."""

    def score(gold, traces):
        result = publish(gold, traces)
        assert result.error is None
        return {match[1]: match[2] for match in re.finditer(r"^- (\w+).*\*\*(.*)\*\*$", result.text, re.MULTILINE)}

    return score


@pytest.fixture
def rows(publish):
    """The per-question table, cells without padding."""

    def score(gold, traces):
        table = publish(gold, traces).text.partition("|-----|----------|-----|---------|-------|\n")[2]
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]

    return score


def question(n, **fields):
    return {"qid": f"q{n}", "q": f"Question {n}?", "answerable": True, "gold_ids": [f"p{n}#1"], **fields}


def unanswerable(n):
    return question(n, answerable=False, gold_ids=[])


def answer(n, text=None, **fields):
    return {"q": f"Question {n}?", "answer": f"- claim\n- citations: [p{n}#1]" if text is None else text, **fields}


class TestTheReport:
    def test_report_of_a_real_system_byte_for_byte(self, data):
        small = data / "squad2/small"
        result = run("seed-002", [str(small / "traces_002.jsonl")], str(small / "qaset.json"), Options())
        assert result.text == (data / "squad2/expected/wfgy_002_report_small.md").read_text(encoding="utf-8")

    def test_report_is_what_main_prints_although_the_published_file_never_calls_it(self, publish):
        result = publish([question(1)], [answer(1)])
        assert (result.exit_code, result.error) == (0, None)
        assert result.text == (
            "# RAG Quality Report\n"
            "\n"
            "- Questions scored: **1**\n"
            "- Answer precision (over answered): **100.0%**\n"
            "- Over-refusal (answerable but refused): **0.0%**\n"
            "- Under-refusal / Hallucination (unanswerable but answered): **0.0%**\n"
            "- Citation hit rate (answerable): **100.0%**\n"
            "- Claim containment (answerable): **0.0%**\n"
            "\n"
            "## Per-question\n"
            "\n"
            "| qid | answered | hit | refusal | label |\n"
            "|-----|----------|-----|---------|-------|\n"
            "| q1 | true | true | false | **OK** |\n"
        )

    def test_every_label(self, rows):
        gold = [question(1), question(2), question(3), unanswerable(4), unanswerable(5)]
        refusal = "not in context"
        traces = [answer(1), answer(2, "made up"), answer(3, refusal), answer(4, "made up"), answer(5, refusal)]
        assert rows(gold, traces) == [
            ["q1", "true", "true", "false", "**OK**"],
            ["q2", "true", "false", "false", "**ANS_NO_HIT**"],
            ["q3", "false", "false", "true", "**OVER_REFUSAL**"],
            ["q4", "true", "false", "false", "**HALLUCINATION**"],
            ["q5", "false", "false", "true", "**REFUSAL_OK**"],
        ]

    def test_half_a_tenth_rounds_to_the_even_digit(self, rates):
        """1 of 80 is 1.25 %: the Python file prints 1.2, its Node twin would print 1.3."""
        gold = [question(n) for n in range(80)]
        traces = [answer(0), *(answer(n, "made up") for n in range(1, 80))]
        assert rates(gold, traces)["Answer"] == "1.2%"

    def test_zero_denominators_give_0(self, rates):
        """The eval page gives 1.0 to an empty precision; this script does not."""
        assert list(rates([], []).values()) == ["0", "0.0%", "0.0%", "0.0%", "0.0%", "0.0%"]

    def test_compliance_is_defined_on_the_page_and_not_computed(self, publish):
        assert "ompliance" not in publish([question(1)], [answer(1, "no template at all")]).text

    def test_no_gate_is_enforced(self, publish):
        assert publish([unanswerable(1)], [answer(1)]).exit_code == 0

    def test_published_grep_can_never_find_its_figure(self, publish):
        report = publish([question(1)], [answer(1)]).text
        assert re.search(r"precision .* [89]\d\.\d%|precision .* 100\.0%", report) is None


class TestMetrics:
    def test_precision_asks_neither_for_the_claim_nor_for_retrieved_citations(self, rates):
        gold = [question(1, gold_claim="The capital is Paris.")]
        assert rates(gold, [answer(1, "Rome. citations: [p1#1, never#retrieved]", chunks=[])])["Answer"] == "100.0%"

    def test_precision_is_over_answered_and_unanswerable_ones_are_wrong(self, rates):
        gold = [question(1), question(2), unanswerable(3), unanswerable(4)]
        traces = [answer(1), answer(2, "not in context"), answer(3), answer(4, "not in context")]
        scored = rates(gold, traces)
        assert (scored["Answer"], scored["Over"], scored["Under"]) == ("50.0%", "50.0%", "50.0%")

    def test_citation_hit_rate_counts_refusals_against(self, rates):
        assert rates([question(1), question(2)], [answer(1), answer(2, "not in context")])["Citation"] == "50.0%"

    def test_answerable_is_taken_as_python_truth(self, rows):
        assert rows([question(1, answerable="false")], [answer(1)])[0][-1] == "**OK**"


class TestRefusal:
    @pytest.mark.parametrize("text", ["not in context", "  NOT IN Context\n"])
    def test_whole_answer_must_be_the_token(self, rows, text):
        assert rows([unanswerable(1)], [answer(1, text)])[0][-1] == "**REFUSAL_OK**"

    @pytest.mark.parametrize("text", ["not in context.", "It is not in context", "", None])
    def test_anything_else_is_an_answer(self, rows, text):
        prediction = answer(1) | {"answer": text}
        assert rows([unanswerable(1)], [prediction])[0][-1] == "**HALLUCINATION**"


class TestCitations:
    @pytest.mark.parametrize(
        "text",
        ["citations: [p1#1]", "- CITATIONS  :\n[ x p1#1\n,y ]", "Citations:[a,,p1#1,]"],
    )
    def test_ids_are_read_from_the_text(self, rows, text):
        assert rows([question(1)], [answer(1, text)])[0][2] == "true"

    @pytest.mark.parametrize(
        "text", ["p1#1", "citations p1#1", "citations: []", "citations: [a] citations: [p1#1]", "citations: [p1#1"]
    )
    def test_only_the_first_bracketed_list_counts(self, rows, text):
        assert rows([question(1)], [answer(1, text)])[0][2] == "false"

    def test_a_semicolon_stays_part_of_the_id(self, rows):
        assert rows([question(1)], [answer(1, "citations: [p1#1; p2#1]")])[0][2] == "false"

    def test_a_json_list_wins_over_the_text(self, rows):
        assert rows([question(1)], [answer(1, citations=[])])[0][2] == "false"
        assert rows([question(1)], [answer(1, "no list", citations=[" p1#1 "])])[0][2] == "true"

    def test_a_field_that_is_no_list_is_ignored(self, rows):
        assert rows([question(1)], [answer(1, citations="elsewhere")])[0][2] == "true"

    def test_ids_are_compared_as_strings(self, rows):
        assert rows([question(1, gold_ids=["7"])], [answer(1, citations=[7])])[0][2] == "true"


class TestContainment:
    def test_a_phrase_of_the_gold_claim_suffices(self, rates):
        gold = [question(1, gold_claim="Paris, the capital")]
        assert rates(gold, [answer(1, "It is PARIS.")])["Claim"] == "100.0%"

    def test_a_sentence_must_occur_as_a_whole(self, rates):
        """Prose: any phrase of five characters; code: maximal runs of letters, digits, hyphens and spaces."""
        gold = [question(1, gold_claim="X is a constrained mapping.")]
        assert rates(gold, [answer(1, "X is a constrained map")])["Claim"] == "0.0%"
        assert rates(gold, [answer(1, "So x is a constrained mapping!")])["Claim"] == "100.0%"

    def test_non_ascii_gold_never_matches(self, rates):
        assert rates([question(1, gold_claim="Ярослав")], [answer(1, "Ярослав")])["Claim"] == "0.0%"

    def test_short_gold_never_matches(self, rates):
        assert rates([question(1, gold_claim="Rome")], [answer(1, "Rome")])["Claim"] == "0.0%"

    def test_a_refusal_never_contains(self, rates):
        gold = [question(1, gold_claim="not in context")]
        assert rates(gold, [answer(1, "not in context")])["Claim"] == "0.0%"


class TestJoining:
    def test_question_text_must_be_equal(self, rates):
        prediction = answer(1) | {"q": "question 1?"}
        assert rates([question(1)], [prediction])["Questions"] == "0"

    def test_question_is_read_where_q_is_absent(self, rates):
        prediction = {"question": "Question 1?", "answer": "citations: [p1#1]"}
        assert rates([question(1)], [prediction])["Citation"] == "100.0%"

    def test_every_duplicated_prediction_counts(self, rates):
        scored = rates([question(1)], [answer(1), answer(1, "made up"), answer(1), answer(1)])
        assert (scored["Questions"], scored["Answer"]) == ("4", "75.0%")

    def test_last_of_two_equal_gold_questions_wins(self, rows):
        assert rows([question(1), question(1, qid="later")], [answer(1)])[0][0] == "later"

    def test_gold_questions_without_a_prediction_are_not_counted(self, rates):
        """The eval page counts them as answered."""
        scored = rates([question(1), question(2), unanswerable(3)], [answer(1)])
        assert (scored["Questions"], scored["Citation"], scored["Under"]) == ("1", "100.0%", "0.0%")

    def test_an_empty_qid_is_in_the_rates_but_not_in_the_count(self, rates):
        scored = rates([question(1, qid="")], [answer(1)])
        assert (scored["Questions"], scored["Answer"]) == ("0", "100.0%")


class TestWhereTheTwinsDiffer:
    """The Node file throws on both of these; the Python file, reproduced here, does not."""

    def test_absent_gold_ids_are_no_hit(self, rows):
        item = question(1)
        del item["gold_ids"]
        assert rows([item], [answer(1)])[0][-1] == "**ANS_NO_HIT**"

    def test_lines_of_white_space_are_skipped(self, rates):
        assert rates([question(1)], ["   ", answer(1), ""])["Questions"] == "1"


class TestCrashes:
    @pytest.mark.parametrize(
        ("gold", "where"),
        [
            ('{"q": "Question 1?"}\n{"q": "Question 2?"}', "qaset.json:2: not JSON"),
            ('{"q": "Question 1?"}', "qaset.json (item 1): the published scorer crashes here"),
            ('[{"q": "a"}, {"question": "b"}]', "qaset.json (item 2): the published scorer crashes here"),
            ("3", "qaset.json: the published scorer crashes here"),
        ],
        ids=["jsonl", "object", "no q", "number"],
    )
    def test_gold_that_is_not_the_array(self, publish, gold, where):
        result = publish(gold, [])
        assert (result.exit_code, result.text, where in result.error) == (3, "", True)

    @pytest.mark.parametrize("field", ["qid", "answerable"])
    def test_a_matched_gold_item_without_a_field(self, publish, field):
        item = question(2)
        del item[field]
        assert publish([question(1), item], [answer(1)]).exit_code == 0
        result = publish([question(1), item], [answer(1), answer(2)])
        assert (result.exit_code, "item 2): the published scorer crashes here" in result.error) == (3, True)
        assert f"KeyError: '{field}'" in result.error

    def test_gold_ids_null(self, publish):
        result = publish([question(1, gold_ids=None)], [answer(1)])
        assert (result.exit_code, "TypeError" in result.error) == (3, True)

    @pytest.mark.parametrize("prediction", [["Question 1?"], {"q": ["a"]}, {"q": "Question 1?", "answer": 5}])
    def test_a_prediction_of_the_wrong_kind(self, publish, prediction):
        result = publish([question(1)], [answer(1), prediction])
        assert (result.exit_code, "trace.jsonl:2: the published scorer crashes here" in result.error) == (3, True)

    def test_a_qid_that_cannot_be_printed(self, publish):
        result = publish([question(1, qid="\ud800")], [answer(1)])
        assert (result.exit_code, "UnicodeEncodeError" in result.error) == (3, True)


@pytest.mark.slow
def test_full_set_as_published(data):
    squad = data / "squad2"
    expected = json.loads((squad / "expected/wfgy_002.json").read_text())["dev_half_bert"]
    report = run("seed-002", [str(squad / "traces_002/bert.jsonl.gz")], str(squad / "qaset.json.gz"), Options()).text
    labels = re.findall(r"\*\*([A-Z_]+)\*\* \|$", report, re.MULTILINE)
    assert report.splitlines()[2:8] == expected["report_head"]
    assert {label: labels.count(label) for label in labels} == expected["labels"]
