"""Gold files: every known shape is read, and every broken file is refused whole with file, line, value and hint."""

import gzip
import io
import json
import logging
import sys
from pathlib import Path

import pytest

from ragmon.core.errors import GoldError
from ragmon.ingest.gold import GoldSet

ROW = {
    "qid": "A1",
    "question": "Who led?",
    "answerable": True,
    "gold_claim_substr": ["Rollo"],
    "gold_citations": ["n#1"],
}


def row(**fields):
    return {**ROW, **fields}


@pytest.fixture
def write(tmp_path):
    """Write a file: bytes and text as they are, a list as JSON Lines, anything else as JSON."""

    def write_one(content, name="gold.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, list):
            content = "".join(json.dumps(line) + "\n" for line in content)
        elif isinstance(content, dict):
            content = json.dumps(content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_one


@pytest.fixture
def refusal(write):
    """What a file is refused with: the message without the directory, and the hint."""

    def refuse(content, name="gold.jsonl"):
        path = write(content, name)
        with pytest.raises(GoldError) as caught:
            GoldSet.load(path)
        assert caught.value.path == str(path)
        return str(caught.value).removeprefix(f"{path.parent}/"), caught.value.hint

    return refuse


@pytest.fixture
def benchmark(write):
    """Write seed 004's three files."""

    def write_three(queries=None, qrels=None, answers=None):
        write(queries if queries is not None else {"q1": {"query": "Why?"}}, "arxiv/queries.json")
        write(qrels if qrels is not None else {"q1": {"doc_id": "2401.01872v2", "section_id": 12}}, "arxiv/qrels.json")
        return write(answers if answers is not None else {"q1": "Because."}, "arxiv/answers.json").parent

    return write_three


class TestShapes:
    def test_the_eval_page_writes_json_lines(self, write):
        gold = GoldSet.load(write([row(constraints=["Rollo led."]), row(qid="A2", answerable=False)]))
        first, second = gold
        assert (first.qid, first.question, first.answerable) == ("A1", "Who led?", True)
        assert (first.claim_substrings, first.citations, first.constraints) == (("Rollo",), ("n#1",), ("Rollo led.",))
        assert (second.qid, second.answerable) == ("A2", False)

    def test_example_08_writes_a_json_array(self, write):
        text = '[{"qid": "q1", "q": "What is X?", "answerable": true, "gold_ids": ["p#1"], "gold_claim": "X maps."}]'
        (item,) = GoldSet.load(write(text, "qaset.json"))
        assert (item.question, item.citations, item.gold_claim) == ("What is X?", ("p#1",), "X maps.")

    def test_gold_by_text_keeps_the_match_it_is_asked_for(self, write):
        path = write([{"qid": "t", "question": "Who?", "gold_contexts": ["Rollo led the Norse."]}])
        (item,) = GoldSet.load(path, match="contains")
        assert (item.contexts, item.match, item.answerable) == (("Rollo led the Norse.",), "contains", True)

    def test_a_directory_holds_queries_qrels_and_answers(self, benchmark):
        gold = GoldSet.load(benchmark({"q1": {"query": "Why?", "type": "abstractive", "source": "text"}}))
        (item,) = gold
        assert gold.name == "arxiv"
        assert (item.qid, item.question, item.answerable, item.gold_claim) == ("q1", "Why?", True, "Because.")
        assert item.sections == ("2401.01872v2_12_",)
        assert item.tags == {"type": "abstractive", "source": "text"}

    def test_the_three_files_may_be_named_one_by_one(self, benchmark, write):
        directory = benchmark()
        three = [directory / name for name in ("qrels.json", "answers.json", "queries.json")]
        gold = GoldSet.load([write([row()]), *three])
        assert [item.qid for item in gold] == ["A1", "q1"]
        assert GoldSet.load(three).name == "arxiv"

    def test_queries_without_a_usable_qrel_are_left_out_and_counted(self, benchmark, caplog):
        queries = {key: {"query": f"{key}?"} for key in ("q1", "q2", "q3")}
        directory = benchmark(queries, {"q1": {"doc_id": "d", "section_id": 0}, "q2": {"doc_id": "d"}})
        with caplog.at_level(logging.WARNING, "ragmon"):
            gold = GoldSet.load(directory)
        assert [item.sections for item in gold] == [("d_0_",)]
        assert [record.getMessage() for record in caplog.records] == [
            f"{directory / 'queries.json'}: 2 of 3 queries left out, no usable qrel"
        ]

    def test_trec_judgements_above_zero_are_relevant(self, write):
        path = write("301 0 FT-1 1\n301 0 FT-2 0\n302\t0\tFT-3\t2\n301 0 FT-9 -1\n", "qrels.txt")
        gold = GoldSet.load(path)
        assert [(item.qid, item.question, item.answerable, item.citations) for item in gold] == [
            ("301", "", True, ("FT-1",)),
            ("302", "", True, ("FT-3",)),
        ]

    def test_a_trec_query_without_relevant_documents_stays_an_item(self, write):
        (item,) = GoldSet.load(write("301 0 FT-2 0\n"))
        assert (item.qid, item.citations) == ("301", None)

    def test_the_chunking_page_names_relevant_ids_paraphrases_and_negatives(self, write):
        fields = {"paraphrases": ["Whose lead?"], "relevant": ["c1", 2], "anchor_section": "s1", "negatives": ["c9"]}
        (item,) = GoldSet.load(write([{"qid": 7, **fields}]))
        assert (item.qid, item.question, item.answerable) == ("7", "", True)
        assert (item.citations, item.paraphrases, item.negatives) == (("c1", "2"), ("Whose lead?",), ("c9",))

    def test_field_names_of_several_shapes_may_be_mixed(self, write):
        rows = [
            {"qid": "a", "q": "One?", "answerable": True, "gold_citations": ["x"]},
            {"qid": "b", "question": "Two?", "answerable": True, "gold_ids": ["y"], "q": "Two?"},
        ]
        assert [(item.question, item.citations) for item in GoldSet.load(write(rows))] == [
            ("One?", ("x",)),
            ("Two?", ("y",)),
        ]

    def test_unknown_fields_are_ignored(self, write):
        extra = {"id": 5, "answer": "Rollo", "score": 1.5, "meta": {"deep": [None]}}
        assert GoldSet.load(write([row(**extra)])).version == GoldSet.load(write([row()])).version

    def test_an_absent_list_null_and_an_empty_list_say_the_same(self, write):
        bare = {"qid": "a", "question": "Why?", "answerable": False}
        rows = [bare, {**bare, "gold_claim_substr": None}, {**bare, "gold_claim_substr": [], "gold_citations": []}]
        loaded = [GoldSet.load(write([one])) for one in rows]
        assert len({gold.version for gold in loaded}) == 1
        assert {item.claim_substrings for gold in loaded for item in gold} == {None}

    def test_integer_ids_become_strings(self, write):
        (item,) = GoldSet.load(write([row(qid=12, gold_citations=[3, "p4"])]))
        assert (item.qid, item.citations) == ("12", ("3", "p4"))

    def test_tags_of_the_set_are_added_to_those_of_the_item(self, write):
        (item,) = GoldSet.load(write([row(tags={"lang": "fr"})]), tags={"lang": "de", "team": "x"})
        assert item.tags == {"lang": "fr", "team": "x"}

    def test_name_pipeline_and_use_are_taken_over(self, write):
        gold = GoldSet.load(write([row()]), "mine", pipeline="support", use=["probe"])
        assert (gold.name, gold.pipeline, tuple(gold.use)) == ("mine", "support", ("probe",))
        assert {(item.set_name, item.set_version) for item in gold} == {("mine", gold.short_version)}


class TestSources:
    def test_gzip_is_unpacked_and_left_out_of_the_name(self, write):
        gold = GoldSet.load(write(gzip.compress(json.dumps(ROW).encode()), "gold.v2.jsonl.gz"))
        assert (gold.name, len(gold)) == ("gold.v2", 1)

    def test_a_dash_is_standard_input(self, monkeypatch):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(ROW).encode())))
        gold = GoldSet.load("-")
        assert (gold.name, len(gold)) == ("stdin", 1)

    def test_standard_input_is_named_in_errors(self, monkeypatch):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'\n{"qid": ""}')))
        with pytest.raises(GoldError, match=r"^<stdin>:2: qid is empty: ''$"):
            GoldSet.load("-")

    def test_several_files_make_one_set_named_after_the_first(self, write):
        paths = [write([row()], "one.jsonl"), write('[{"qid": "B", "answerable": false}]', "two.json")]
        gold = GoldSet.load(paths)
        assert (gold.name, [item.qid for item in gold]) == ("one", ["A1", "B"])

    def test_a_byte_order_mark_windows_line_ends_and_blank_lines_are_accepted(self, write):
        text = "\ufeff\r\n" + json.dumps(ROW) + "\r\n\r\n"
        assert len(GoldSet.load(write(text))) == 1

    def test_line_separators_inside_a_string_do_not_end_a_line(self, write):
        (item,) = GoldSet.load(write(json.dumps(row(question="one\u2028two\x85three"), ensure_ascii=False)))
        assert item.question == "one\u2028two\x85three"

    def test_a_string_path_is_enough(self, write):
        assert len(GoldSet.load(str(write([row()])))) == 1


class TestUnreadableFiles:
    def test_a_file_that_is_not_there(self, tmp_path):
        with pytest.raises(GoldError, match=r"absent\.jsonl: no such file$") as caught:
            GoldSet.load(tmp_path / "absent.jsonl")
        assert "JSON Lines" in caught.value.hint

    @pytest.mark.parametrize("missing", ["queries.json", "qrels.json", "answers.json"])
    def test_a_directory_without_one_of_the_three_files(self, benchmark, missing):
        directory = benchmark()
        (directory / missing).unlink()
        with pytest.raises(GoldError, match=rf"arxiv: directory lacks a file: '{missing}'$") as caught:
            GoldSet.load(directory)
        assert "queries.json, qrels.json, answers.json" in caught.value.hint

    def test_a_directory_in_the_place_of_a_file(self, benchmark):
        directory = benchmark()
        (directory / "answers.json").unlink()
        (directory / "answers.json").mkdir()
        with pytest.raises(GoldError, match=r"answers\.json: is a directory, not a file$"):
            GoldSet.load(directory)

    def test_no_path_at_all(self):
        with pytest.raises(GoldError, match=r"^no gold file given$"):
            GoldSet.load([])

    def test_invalid_utf_8_names_the_line_and_the_bytes(self, refusal):
        message, hint = refusal(json.dumps(ROW).encode() + b'\n{"qid": "\xe9"}\n')
        assert message == "gold.jsonl:2: not UTF-8: b'\\xe9'"
        assert hint == "save the file as UTF-8"

    def test_invalid_utf_8_after_a_byte_order_mark_names_the_right_line(self, refusal):
        assert refusal(b"\xef\xbb\xbf\n\n\xff")[0] == "gold.jsonl:3: not UTF-8: b'\\xff'"

    def test_utf_16_is_not_utf_8(self, refusal):
        assert refusal(json.dumps(ROW).encode("utf-16"))[0].startswith("gold.jsonl:1: not UTF-8")

    def test_a_truncated_gzip_file(self, refusal):
        message, hint = refusal(gzip.compress(json.dumps(ROW).encode())[:-9], "gold.jsonl.gz")
        assert message.startswith("gold.jsonl.gz: broken gzip file: ")
        assert "compress the file again" in hint

    @pytest.mark.parametrize("content", ["", "\n \n", "\ufeff", "[]", " [ ] \n"])
    def test_an_empty_file_holds_no_item(self, refusal, content):
        assert refusal(content)[0] == "gold.jsonl: holds no item"

    def test_a_second_file_must_hold_items_too(self, write):
        with pytest.raises(GoldError, match=r"two\.jsonl: holds no item$"):
            GoldSet.load([write([row()], "one.jsonl"), write("", "two.jsonl")])

    def test_a_benchmark_without_a_usable_query_holds_no_item(self, benchmark):
        with pytest.raises(GoldError, match=r"queries\.json: holds no item$"):
            GoldSet.load(benchmark(qrels={}))


class TestMalformedJson:
    def test_a_broken_line_names_line_and_column(self, refusal):
        message, hint = refusal(json.dumps(ROW) + '\n{"qid": "A2", }\n')
        assert message == "gold.jsonl:2: not JSON at column 15, expecting property name enclosed in double quotes: '}'"
        assert hint == "write one JSON object a line, or one JSON array of objects"

    def test_two_objects_on_a_line(self, refusal):
        message, _ = refusal(json.dumps(ROW) + ' {"qid"')
        assert message.startswith("gold.jsonl:1: not JSON at column ")
        assert "nothing may follow here" in message

    def test_an_array_names_the_line_inside_it(self, refusal):
        message, _ = refusal('[\n  {"qid": "a",\n   "q": }\n]', "qaset.json")
        assert message == "qaset.json:3: not JSON at column 9, expecting value: '}'"

    @pytest.mark.parametrize(
        ("text", "place", "problem"),
        [
            ('[{"qid": "a", "answerable": false},\n]', "2: not JSON at column 1", "expecting value"),
            ('[{"qid": "a", "answerable": false}\n', "2: not JSON at column 1", "']' belongs here"),
            ('[{"qid": "a", "answerable": false}] 5', "1: not JSON at column 37", "nothing may follow here"),
        ],
    )
    def test_an_array_that_does_not_end_properly(self, refusal, text, place, problem):
        message, _ = refusal(text)
        assert message.startswith(f"gold.jsonl:{place}")
        assert problem in message

    def test_neither_json_nor_judgements(self, refusal):
        assert refusal("Q1, Why?\n")[0] == "gold.jsonl:1: not JSON at column 1, expecting value: 'Q1, Why?'"

    def test_a_table_that_says_nothing_of_what_is_right(self, refusal):
        """A header is known by its names, whatever the file is called."""
        message, hint = refusal("qid,question\nA1,Why?\n")
        assert message.endswith("no column is known as the question and what is right; its columns: qid, question")
        assert "--map gold_claim=COLUMN" in hint

    @pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity", "1e999"])
    def test_numbers_that_are_not_finite_are_absent(self, write, constant):
        """Python writes them for what pandas has no value for."""
        written = (
            f'{{"qid": "A2", "answerable": false, "question": {constant}, "gold_citations": ["a", {constant}, 3.0]}}'
        )
        item = GoldSet.load(write(written)).items[0]
        assert (item.question, item.citations) == ("", ("a", "3"))

    @pytest.mark.parametrize("place", ["question", "notes"])
    def test_half_a_surrogate_pair(self, refusal, place):
        message, hint = refusal([row(), row(qid="A2", **{place: "\ud83d"})])
        assert message == "gold.jsonl:2: half of a surrogate pair is not a character: '\\ud83d'"
        assert "both halves" in hint

    def test_a_whole_surrogate_pair_is_a_character(self, write):
        assert GoldSet.load(write(json.dumps(row(question="\U0001f600")))).items[0].question == "\U0001f600"

    def test_a_name_given_twice(self, refusal):
        message, _ = refusal('{"qid": "a", "answerable": true, "answerable": false}')
        assert message == "gold.jsonl:1: name appears twice in one object: 'answerable'"

    def test_nesting_without_end(self, refusal):
        message, _ = refusal('{"qid": "a", "x": ' + "[" * 100_000)
        assert message == "gold.jsonl:1: nested too deeply"

    def test_a_number_of_thousands_of_digits(self, refusal):
        message, hint = refusal('{"qid": ' + "1" * 5000 + "}")
        assert message.startswith("gold.jsonl:1: number cannot be read: ")
        assert hint == "write long ids as strings"


class TestBrokenRows:
    @pytest.mark.parametrize(
        ("fields", "problem", "hint"),
        [
            ({"answerable": "false"}, "answerable is not a boolean: 'false'", "true or false, without quotes"),
            ({"answerable": 1}, "answerable is not a boolean: 1", "true or false"),
            ({"answerable": None}, "answerable is missing", "true or false"),
            ({"qid": ""}, "qid is empty: ''", '"qid": "A0001"'),
            ({"qid": " \t"}, "qid is empty: ' \\t'", '"qid": "A0001"'),
            ({"qid": None}, "qid is null", '"qid": "A0001"'),
            ({"qid": True}, "qid is neither a string nor an integer: True", '"qid": "A0001"'),
            ({"qid": 1.5}, "qid is neither a string nor an integer: 1.5", '"qid": "A0001"'),
            ({"question": 5}, "question is not a string: 5", "write the question as a string"),
            ({"gold_citations": "n#1"}, "gold_citations is not a list: 'n#1'", 'list of ids: ["p1#2"]'),
            ({"gold_citations": [True]}, "gold_citations[0] is neither a string nor an integer: True", "list of ids"),
            ({"gold_citations": ["a", 2.5]}, "gold_citations[1] is neither a string nor an integer: 2.5", "list of"),
            ({"gold_citations": [""]}, "gold_citations[0] is empty: ''", "list of ids"),
            ({"gold_citations": [None]}, "gold_citations[0] is null", "list of ids"),
            ({"gold_claim_substr": "Rollo"}, "gold_claim_substr is not a list: 'Rollo'", "list of phrases"),
            ({"gold_claim_substr": ["a", 5]}, "gold_claim_substr[1] is not a string: 5", "list of phrases"),
            ({"gold_claim_substr": [" "]}, "gold_claim_substr[0] is empty: ' '", "list of phrases"),
            ({"gold_claim": ["X"]}, "gold_claim is not a string: ['X']", "one string"),
            ({"gold_contexts": [1]}, "gold_contexts[0] is not a string: 1", "list of passages"),
            ({"tags": ["de"]}, "tags is not an object: ['de']", '{"lang": "de"}'),
            ({"tags": {"lang": 1}}, "tags['lang'] is not a string: 1", '{"lang": "de"}'),
            ({"paraphrases": "Who?"}, "paraphrases is not a list: 'Who?'", "list of questions"),
            ({"negatives": [{}]}, "negatives[0] is neither a string nor an integer: {}", "list of ids"),
            ({"constraints": [[]]}, "constraints[0] is not a string: []", "list of statements"),
            ({"q": "Another?"}, "question and q differ: 'Another?'", "keep one"),
            ({"gold_ids": ["x"]}, "gold_citations and gold_ids differ: ['x']", "keep one"),
        ],
    )
    def test_a_wrong_value_is_refused_with_line_value_and_hint(self, refusal, fields, problem, hint):
        message, given = refusal([row(qid="A0"), row(**fields)])
        assert message == f"gold.jsonl:2: {problem}"
        assert hint in given

    @pytest.mark.parametrize("name", ["qid", "answerable"])
    def test_a_required_field_that_is_missing(self, refusal, name):
        message, hint = refusal([row(qid="A0"), {key: value for key, value in ROW.items() if key != name}])
        assert message == f"gold.jsonl:2: {name} is missing"
        assert f'"{name}": ' in hint

    def test_answerable_may_not_be_missing_where_no_document_is_named(self, refusal):
        assert refusal([{"qid": "a", "relevant": []}])[0] == "gold.jsonl:1: answerable is missing"

    @pytest.mark.parametrize(
        ("misspelt", "meant"),
        [
            ("answerble", "answerable"),
            ("Answerable", "answerable"),
            ("is_answerable", "answerable"),
            ("q_id", "qid"),
            ("quesiton", "question"),
            ("goldCitations", "gold_citations"),
            ("gold_citation", "gold_citations"),
            ("gold_claim_substrings", "gold_claim_substr"),
            ("gold_id", "gold_ids"),
            ("tag", "tags"),
            ("paraphrase", "paraphrases"),
            ("negative", "negatives"),
            ("gold_context", "gold_contexts"),
        ],
    )
    def test_a_misspelt_field_is_refused_and_the_nearest_name_suggested(self, refusal, misspelt, meant):
        message, hint = refusal([row(), row(qid="A2", **{misspelt: None})])
        assert message == f"gold.jsonl:2: misspelt field: '{misspelt}'"
        assert hint == f"did you mean {meant}?"

    def test_a_row_that_is_not_an_object(self, refusal):
        message, hint = refusal(json.dumps(ROW) + "\n[1]\n")
        assert message == "gold.jsonl:2: not a JSON object: [1]"
        assert "JSON Lines" in hint

    def test_an_element_of_an_array_is_named_by_its_line(self, refusal):
        rows = [row(), row(qid="A2"), row(qid="A3", answerable="no")]
        message, _ = refusal(json.dumps(rows, indent=1), "qaset.json")
        line = 1 + json.dumps(rows[:2], indent=1).count("\n")
        assert message == f"qaset.json:{line}: answerable is not a boolean: 'no'"

    def test_long_values_are_shortened(self, refusal):
        assert len(refusal([row(answerable="x" * 5000)])[0]) < 150


class TestDuplicateQids:
    def test_a_repeated_qid_names_both_lines(self, refusal):
        message, hint = refusal([row(), row(qid="A2"), row(question="Another?")])
        assert message == "gold.jsonl:3: qid appears twice, first on line 1: 'A1'"
        assert hint == "qids are permanent: give one question a new one"

    def test_a_number_and_its_digits_are_one_qid(self, refusal):
        assert "qid appears twice, first on line 1: '1'" in refusal([row(qid=1), row(qid="1")])[0]

    def test_a_qid_repeated_in_another_file_names_that_file(self, write):
        one, two = write([row()], "one.jsonl"), write([row(qid="B"), row()], "two.jsonl")
        with pytest.raises(GoldError) as caught:
            GoldSet.load([one, two])
        assert str(caught.value) == f"{two}:2: qid appears twice, first in {one}:1: 'A1'"


class TestBrokenBenchmarks:
    @pytest.mark.parametrize(
        ("files", "problem"),
        [
            ({"queries": {"q1": {"text": "Why?"}}}, "queries.json:1: query is missing"),
            ({"queries": {"q1": "Why?"}}, "queries.json:1: not a JSON object: 'Why?'"),
            ({"queries": {" ": {"query": "Why?"}}}, "queries.json:1: query id is empty: ' '"),
            (
                {"qrels": {"q1": {"doc_id": "d", "section_id": 1.5}}},
                "section_id is neither a string nor an integer: 1.5",
            ),
            ({"qrels": {"q1": {"docid": "d", "section_id": 1}}}, "qrels.json:1: misspelt field: 'docid'"),
            ({"qrels": '[{"q1": 5}]'}, "qrels.json:1: not JSON at column 1, '{' belongs here"),
            ({"answers": {"q1": ["Because."]}}, "answers.json:1: answer of 'q1' is not a string: ['Because.']"),
            ({"answers": "{'q1': 'x'}"}, "answers.json:1: not JSON at column 2, a name in double quotes belongs here"),
        ],
    )
    def test_a_broken_file_is_named(self, benchmark, files, problem):
        with pytest.raises(GoldError) as caught:
            GoldSet.load(benchmark(**files))
        assert problem in str(caught.value)
        assert caught.value.hint

    def test_a_query_given_twice_names_both_lines(self, benchmark):
        text = '{"q1": {"query": "Why?"},\n\n "q1": {"query": "How?"}}'
        with pytest.raises(GoldError, match=r"queries\.json:3: name appears twice, first on line 1: 'q1'$"):
            GoldSet.load(benchmark(text))


class TestBrokenJudgements:
    @pytest.mark.parametrize(
        ("line", "problem"),
        [
            ("301 0 FT-2", "3 columns instead of 4: '301 0 FT-2'"),
            ("301 0 FT-2 yes", "relevance is not an integer: 'yes'"),
            ("301 0 FT-2 1.0", "relevance is not an integer: '1.0'"),
            ("301 0 FT-1 0", "judged twice, first on line 1: '301 FT-1'"),
        ],
    )
    def test_a_broken_line_is_named(self, refusal, line, problem):
        message, hint = refusal(f"301 0 FT-1 1\n{line}\n", "qrels.txt")
        assert message == f"qrels.txt:2: {problem}"
        assert hint


class TestRealFiles:
    @pytest.mark.parametrize("name", ["gold.jsonl", "qaset.json"])
    def test_the_small_squad_files_load(self, data, name):
        gold = GoldSet.load(data / "squad2/small" / name)
        assert (len(gold), sum(item.answerable for item in gold)) == (200, 100)

    def test_both_small_squad_files_ask_the_same_questions(self, data):
        one, two = (GoldSet.load(data / "squad2/small" / name) for name in ("gold.jsonl", "qaset.json"))
        assert [(i.qid, i.question, i.answerable, i.citations) for i in one] == [
            (i.qid, i.question, i.answerable, i.citations) for i in two
        ]

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "name",
        [
            "squad2/gold.jsonl",
            "squad2/gold_partial.jsonl",
            "squad2/qaset.json",
            "squad2/small/gold.jsonl",
            "squad2/small/qaset.json",
            "qaeval/gold.jsonl",
            "scenario/standard/gold.jsonl",
        ],
    )
    def test_every_row_of_the_large_files_becomes_an_item(self, shared: Path, name):
        path = shared / name
        text = path.read_text()
        rows = json.loads(text) if path.suffix == ".json" else [json.loads(line) for line in text.split("\n") if line]
        assert [(item.qid, item.answerable) for item in GoldSet.load(path)] == [
            (one["qid"], one["answerable"]) for one in rows
        ]

    def test_trec_evals_own_judgements_load(self, shared: Path):
        path = shared / "trec_eval/qrels.test"
        judged = [line.split() for line in path.read_text().splitlines()]
        gold = GoldSet.load(path)
        assert {item.qid for item in gold} == {columns[0] for columns in judged}
        assert sum(len(item.ids) for item in gold) == sum(columns[3] != "0" for columns in judged)


def test_citations_of_an_answer_are_not_taken_for_what_gold_names(tmp_path):
    """The field is named `gold_citations`; an item that has it, or names its documents otherwise, may carry more."""
    row = {"qid": "a", "question": "Is it?", "answerable": True, "citations": ["d1"]}
    path = tmp_path / "gold.jsonl"
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(GoldError) as refused:
        GoldSet.load(path)
    assert "gold.jsonl:1: citations is not a field of gold: ['d1']" in str(refused.value)
    assert refused.value.hint.startswith("gold_citations: the ids of the documents that hold the answer")
    for named in ({"gold_citations": ["d1"]}, {"gold_ids": ["d1"]}, {"gold_contexts": ["text"]}, {"citations": []}):
        path.write_text(json.dumps({**row, **named}) + "\n")
        assert len(GoldSet.load(path).items) == 1
