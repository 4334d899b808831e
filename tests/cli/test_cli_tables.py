"""Tables on the command line: two spreadsheets become a report, and nothing readable is an error that helps."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from ragmon import replay
from tests.support.command_line import gold, lines, on_terminal, ragmon, traces

LOG = [
    {"user_question": "Does X support null keys?", "bot_answer": "X rejects null keys.", "docs": "p1#1; p1#2"},
    {"user_question": "Who painted Z?", "bot_answer": "not in context", "docs": "p2#1"},
    {"user_question": "When was Y built?", "bot_answer": "In 1901, they say.", "docs": "p3#1|p3#2"},
]
TRUTH = [
    {"question": "Does X support null keys?", "reference": "rejects null keys", "reference_context_ids": "p1#2"},
    {"question": "Who painted Z?", "reference": None, "reference_context_ids": None},
    {"question": "When was Y built?", "reference": "1901 in spring", "reference_context_ids": "p3#9"},
]
WRITERS = {
    "csv": lambda frame, path: frame.to_csv(path, index=False),
    "csv.gz": lambda frame, path: frame.to_csv(path, index=False),
    "tsv": lambda frame, path: frame.to_csv(path, index=False, sep="\t"),
    "xlsx": lambda frame, path: frame.to_excel(path, index=False),
    "parquet": lambda frame, path: frame.to_parquet(path, index=False),
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path, rows):
    WRITERS[path.name.partition(".")[2]](pd.DataFrame(rows), path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("suffix", WRITERS)
def test_a_sheet_of_answers_and_one_of_truth_become_a_report_with_two_commands(here, suffix):
    write(here / f"log.{suffix}", LOG)
    write(here / f"truth.{suffix}", TRUTH)
    made = ragmon("gold", "from-table", f"truth.{suffix}", "--empty-reference", "unanswerable", "-o", "gold.jsonl")
    assert (made.code, made.out) == (0, "")
    assert made.err.splitlines()[0] == "items 3: 2 answerable, 1 not"
    done = ragmon("replay", f"log.{suffix}", "--gold", "gold.jsonl")
    assert (done.code, done.err) == (0, "")
    assert done.json["records"] == {"read": 3, "scored": 3, "unmatched": 0, "duplicate": 0, "rejected": {}}
    metrics = next(series["metrics"] for series in done.json["series"] if series["gold"])
    shares = {name: metrics[name]["value"] for name in ("recall", "mrr", "over_refusal_rate", "under_refusal_rate")}
    assert shares == {"recall": 0.5, "mrr": 0.25, "over_refusal_rate": 0.0, "under_refusal_rate": 0.0}


@pytest.mark.slow
def test_the_same_table_in_every_format_has_one_digest(here):
    digests = set()
    for suffix in WRITERS:
        write(here / f"log.{suffix}", LOG)
        digests.add(ragmon("replay", f"log.{suffix}").json["digest"])
    assert len(digests) == 1


def test_names_that_nobody_knows_are_mapped(here):
    write(here / "log.csv", [{"Frage": "Why?", "Antwort": "So.", "Quelle": "a, b", "Sprache": "de"}])
    done = ragmon(
        "replay", "log.csv", "--map", "question=Frage,answer=Antwort", "--map", "retrieved_ids=Quelle,tags.lang=Sprache"
    )
    assert done.json["series"][0]["metrics"]["empty_retrieval_rate"]["n"] == 1


def test_a_mapping_holds_for_json_too(here):
    lines(here / "log.jsonl", [{"frage": "Why?", "reply": {"text": "So."}, "docs": ["a"]}])
    done = ragmon("replay", "log.jsonl", "--map", "question=frage,answer=reply.text")
    assert done.json["series"][0]["metrics"]["refusal_rate"]["n"] == 1


@pytest.mark.slow
def test_gold_in_a_table_is_read_by_replay_and_gate_as_it_is(here):
    write(here / "log.csv", LOG)
    write(here / "truth.xlsx", [TRUTH[0], TRUTH[2]])
    report = ragmon("replay", "log.csv", "--gold", "truth.xlsx").json
    assert [(entry["name"], entry["traced"]) for entry in report["gold"]] == [("truth", 2)]
    assert ragmon("gate", "log.csv", "--gold", "truth.xlsx").code in (1, 2)


@pytest.mark.slow
def test_one_file_of_ragas_is_both_traces_and_gold(here):
    row = {
        "user_input": "Does X support null keys?",
        "retrieved_contexts": ["X rejects null keys."],
        "retrieved_context_ids": ["p1#2"],
        "response": "It rejects null keys.",
        "reference": "rejects null keys",
        "reference_context_ids": ["p1#2"],
    }
    for name in ("ragas.csv", "ragas.parquet"):
        write(here / name, [row])
    lines(here / "ragas.jsonl", [row])
    (here / "ragas.json").write_text(json.dumps([row], indent=1))
    digests = set()
    for name in ("ragas.csv", "ragas.parquet", "ragas.jsonl", "ragas.json"):
        report = ragmon("replay", name, "--gold", name).json
        metrics = next(series["metrics"] for series in report["series"] if series["gold"])
        assert (metrics["recall"]["value"], metrics["claim_containment"]["value"]) == (1.0, 1.0)
        digests.add(report["digest"])
    assert len(digests) == 1


def test_test_cases_of_deepeval_are_understood(here):
    case = {
        "input": "Does X support null keys?",
        "actual_output": "It rejects null keys.",
        "expected_output": "rejects null keys",
        "retrieval_context": ["X rejects null keys, says the manual."],
        "context": ["X rejects null keys, says the manual."],
    }
    (here / "cases.json").write_text(json.dumps([case]))
    report = ragmon("replay", "cases.json", "--gold", "cases.json").json
    metrics = next(series["metrics"] for series in report["series"] if series["gold"])
    assert (metrics["recall"]["value"], metrics["claim_containment"]["value"]) == (1.0, 1.0)


class TestNothingReadable:
    """Exit code 3, what was seen, and the flag that would help; never a report of nulls."""

    @pytest.mark.slow
    @pytest.mark.parametrize("command", ["replay", "gate"])
    @pytest.mark.parametrize(
        ("name", "content", "message", "hint"),
        [
            ("log.csv", "Frage,final_answer_text\na,b\n", "", ""),
            ("log.csv", "a,b\n1,2\n", "its columns: a, b", "--map question=COLUMN,answer=COLUMN"),
            ("log.csv", "question,answer\nWhy?\n", "log.csv:2: malformed_row: it has 1 cells", "traces are JSON"),
            ("log.csv", "question,answer,response\na,b,c\n", "`answer` and `response` are both", "--map answer=answer"),
            ("log.csv", "", "log.csv: it is empty", "names the columns"),
            ("log.jsonl", "nonsense\n", "1 rejected; the first: log.jsonl:1: malformed_json", "traces are JSON Lines"),
            ("log.jsonl", '{"frage": "Why?"}\n', "the first: log.jsonl:1: invalid_schema", "--map question=NAME"),
        ],
    )
    def test_is_an_error(self, here, command, name, content, message, hint):
        (here / name).write_text(content)
        done = ragmon(command, name)
        if not message:  # the answer is found by a word in its column's name
            assert done.error[1].startswith("--map question=COLUMN,answer=final_answer_text,retrieved_ids=COLUMN")
            return
        assert message in done.error[0]
        assert hint in done.error[1]

    @pytest.mark.parametrize(("name", "content"), [("log.jsonl", ""), ("log.json", "[]"), ("log.csv", "q,answer\n")])
    def test_an_empty_run_has_no_report_and_leaves_gates_insufficient(self, here, name, content):
        (here / name).write_text(content)
        assert ragmon("replay", name).error[0] == f"{name}: there is no record in it"
        assert ragmon("gate", name).code == 2

    def test_some_bad_rows_are_a_warning_with_their_number(self, here):
        (here / "log.csv").write_text("question,answer\nWhy?\nHow?,So.\n")
        done = ragmon("replay", "log.csv")
        assert done.json["records"]["rejected"] == {"malformed_row": 1}
        assert (done.json["records"]["read"], done.json["records"]["scored"]) == (2, 1)
        assert done.err.startswith("rejected: log.csv:2: malformed_row: ")

    def test_gold_in_the_place_of_traces_is_noticed(self, here):
        for name in ("gold.jsonl", "truth.csv"):
            write(here / "truth.csv", TRUTH)
            lines(here / "gold.jsonl", gold())
            message, hint = ragmon("replay", name).error
            assert message.startswith(f"{name}: this is gold")
            assert f"--gold {name}" in hint

    @pytest.mark.parametrize("name", ["log.jsonl", "log.csv", "traces.jsonl"])
    def test_traces_in_the_place_of_gold_are_noticed(self, here, name):
        write(here / "log.csv", LOG)
        lines(here / "log.jsonl", LOG)
        lines(here / "traces.jsonl", traces())
        message, hint = ragmon("gate", name, "--gold", name).error
        assert "these are traces" in message
        assert hint.startswith("traces come first, gold after --gold")


@pytest.mark.parametrize(
    "cell", ["('{0}', 'x')", "['{0}', nan]", "{{{0},x}}", "- {0}\n- x", '{{"{0}": 0.9, "x": 0.1}}']
)
def test_lists_in_cells_find_the_documents_of_gold(here, cell):
    write(here / "log.csv", [{"question": f"Q{n}?", "answer": "A.", "doc_ids": cell.format(f"p-{n}")} for n in BUSES])
    lines(
        here / "gold.jsonl",
        [{"qid": f"q{n}", "question": f"Q{n}?", "answerable": True, "gold_citations": [f"p-{n}"]} for n in BUSES],
    )
    report = ragmon("replay", "log.csv", "--gold", "gold.jsonl").json
    metrics = next(series["metrics"] for series in report["series"] if series["gold"])
    assert (metrics["recall"]["value"], metrics["mrr"]["value"]) == (1.0, 1.0)


def test_a_list_that_cannot_be_read_is_named_with_its_column_and_an_example(here):
    write(here / "log.csv", [{"question": "Q?", "answer": "A.", "doc_ids": "['a' 'b' ... 'z']"}])
    said = ragmon("replay", "log.csv").err
    assert "retrieved_ids is a list that cannot be read, cut short by `...`: \"['a' 'b' ... 'z']\"" in said


class TestFromTable:
    def test_a_row_without_a_reference_needs_a_word_of_the_user(self, here):
        write(here / "truth.csv", TRUTH)
        message, hint = ragmon("gold", "from-table", "truth.csv").error
        assert message.startswith("truth.csv:3: the row has no reference answer")
        assert "--empty-reference unanswerable, or skip" in hint
        skipped = ragmon("gold", "from-table", "truth.csv", "--empty-reference", "skip")
        assert [json.loads(line)["answerable"] for line in skipped.out.splitlines()] == [True, True]
        assert "skipped without a reference: 1" in skipped.err

    def test_it_says_which_metrics_the_result_can_judge(self, here):
        write(here / "truth.csv", [{"question": "Why?", "reference": "because of it"}])
        said = ragmon("gold", "from-table", "truth.csv").err.splitlines()
        judged, lacking = (
            " ".join(line for line in said if line.startswith(start)) for start in ("judged", "not judged")
        )
        assert "claim_containment" in judged
        assert "recall" in lacking
        assert "reference_context_ids" in lacking

    def test_every_field_arrives(self, here):
        row = {
            "Nr": 7,
            "question": "Why?",
            "answerable": "yes",
            "truth": "because of it",
            "phrases": "because|of it",
            "gold_ids": "a; b",
            "reference_contexts": "It is so, because; of it.",
            "paraphrases": "How come?",
            "tags.lang": "en",
        }
        write(here / "truth.xlsx", [row])
        done = ragmon("gold", "from-table", "truth.xlsx", "--map", "qid=Nr,gold_claim=truth")
        assert done.json == {
            "qid": "7",
            "question": "Why?",
            "answerable": True,
            "gold_claim": "because of it",
            "gold_claim_substr": ["because", "of it"],
            "gold_citations": ["a", "b"],
            "gold_contexts": ["It is so, because; of it."],
            "tags": {"lang": "en"},
            "paraphrases": ["How come?"],
        }
        (here / "gold.jsonl").write_text(done.out)
        assert ragmon("gold", "lint", "gold.jsonl").code == 0

    def test_the_second_sheet_of_a_workbook_is_read_by_its_name(self, here):
        with pd.ExcelWriter(here / "book.xlsx") as book:
            pd.DataFrame(LOG).to_excel(book, sheet_name="log", index=False)
            pd.DataFrame(TRUTH[:1]).to_excel(book, sheet_name="truth", index=False)
        made = ragmon("gold", "from-table", "book.xlsx", "--sheet", "truth")
        assert made.json["question"] == "Does X support null keys?"
        assert ragmon("gold", "from-table", "book.xlsx", "--sheet", "x").error[1] == "its sheets: log, truth"


BUSES = range(12)
MATCH_GATE = """[pipelines.helpdesk]
[gates.precision]
metric = "answer_precision"
at_least = 0.5
source = "match"
"""


def of_bus(n):
    """The question about a bus, and its right answer: every fifth has none."""
    return f"When does bus {n} leave?", "I don't know." if n % 5 == 0 else f"At {n:02}:00."


def bus_gold():
    return [
        {"qid": f"b{n}", "question": of_bus(n)[0], "answerable": n % 5 != 0}
        | ({"gold_claim_substr": [of_bus(n)[1][3:8]]} if n % 5 else {})
        for n in BUSES
    ]


def chat(role, text):
    return {"role": role, "content": text}


SHAPES = {
    "trulens": lambda question, answer: {"input": json.dumps(question), "output": json.dumps(answer)},
    "langfuse": lambda question, answer: {
        "input": json.dumps({"question": question}),
        "output": json.dumps({"answer": answer}),
    },
    "messages": lambda question, answer: {
        "input": json.dumps([chat("system", "Be nice."), chat("user", question)]),
        "output": json.dumps(chat("assistant", answer)),
    },
    "completions": lambda question, answer: {
        "inputs": json.dumps({"messages": [chat("user", question)]}),
        "outputs": json.dumps({"choices": [{"message": chat("assistant", answer)}]}),
    },
    "python": lambda question, answer: {"input": str({"query": question}), "output": str({"response": answer})},
}


class TestJsonInCells:
    """Exports of tracing tools hold JSON in their cells."""

    @pytest.mark.parametrize("shape", SHAPES)
    @pytest.mark.parametrize("name", ["log.csv", "log.jsonl"])
    def test_question_and_answer_are_found_in_it(self, here, shape, name):
        rows = [SHAPES[shape](*of_bus(n)) for n in BUSES]
        if name == "log.csv":
            write(here / name, rows)
        else:
            lines(here / name, rows)
        lines(here / "gold.jsonl", bus_gold())
        report = ragmon("replay", name, "--gold", "gold.jsonl").json
        metrics = next(series["metrics"] for series in report["series"] if series["gold"])
        shares = {name: metrics[name]["value"] for name in ("under_refusal_rate", "over_refusal_rate")}
        assert shares == {"under_refusal_rate": 0.0, "over_refusal_rate": 0.0}
        assert metrics["claim_containment"]["value"] == 1.0

    @pytest.mark.parametrize(
        ("shape", "mapping"),
        [
            ("langfuse", "question=input.question,answer=output.answer"),
            ("messages", "question=input[-1].content,answer=output.content"),
            ("completions", "question=inputs.messages[0].content,answer=outputs.choices[0].message.content"),
        ],
    )
    def test_a_mapping_names_a_path_in_it(self, here, shape, mapping):
        rows = [SHAPES[shape](*of_bus(n)) for n in BUSES]
        write(here / "log.csv", rows)
        lines(here / "log.jsonl", [{name: json.loads(cell) for name, cell in row.items()} for row in rows])
        lines(here / "gold.jsonl", bus_gold())
        for name in ("log.csv", "log.jsonl"):
            report = ragmon("replay", name, "--gold", "gold.jsonl", "--map", mapping).json
            metrics = next(series["metrics"] for series in report["series"] if series["gold"])
            assert metrics["claim_containment"]["value"] == 1.0

    def test_a_path_that_names_nothing_is_said_with_the_cell(self, here):
        write(here / "log.csv", [SHAPES["messages"](*of_bus(1))])
        message, hint = ragmon("replay", "log.csv", "--map", "question=input[-1].text").error
        assert message == "log.csv: there is no input[-1].text in the first row"
        assert "Be nice." in hint


class TestPipelineOfAFile:
    @pytest.fixture
    def files(self, here):
        rows = [
            {"question": f"Why {n}?", "answer": f"Because {n}.", "docs": f"d{n}", "cited_ids": f"d{n}"} for n in BUSES
        ]
        write(here / "log.csv", rows)
        write(here / "other.csv", [{**row, "question": f"Where? {row['question']}"} for row in rows])
        lines(
            here / "gold.jsonl",
            [
                {
                    "qid": f"q{n}",
                    "question": f"Why {n}?",
                    "answerable": True,
                    "gold_claim_substr": [f"because {n}"],
                    "gold_citations": [f"d{n}"],
                }
                for n in BUSES
            ],
        )
        (here / "ragmon.toml").write_text(MATCH_GATE)
        return here

    def gates(self, name):
        done = ragmon("gate", name, "--gold", "gold.jsonl", "--format", "json")
        return [(gate["pipeline"], gate["value"], gate["n"], gate["reason"]) for gate in done.json["gates"]]

    def test_a_table_that_names_none_belongs_to_the_configured_one(self, files):
        (gate,) = self.gates("log.csv")
        assert gate[:3] == ("helpdesk", 1.0, 12)

    def test_lines_of_json_that_name_none_belong_to_it_as_well(self, files):
        rows = [{"q": f"Why {n}?", "answer": f"Because {n} [1].", "retrieved_ids": [f"d{n}"]} for n in BUSES]
        lines(files / "log.jsonl", rows)
        (files / "log.json").write_text(json.dumps(rows, indent=1))
        replies = [{"claim": f"Because {n}.", "citations": [f"d{n}"]} for n in BUSES]
        named = [{**row, "qid": None, "answer_json": reply} for row, reply in zip(rows, replies, strict=True)]
        lines(files / "members.jsonl", named)
        for name in ("log.jsonl", "log.json", "members.jsonl"):
            assert [gate[:3] for gate in self.gates(name)] == [("helpdesk", 1.0, 12)], name
        lines(files / "named.jsonl", [{**row, "pipeline": "shop"} for row in rows])
        assert [gate[0] for gate in self.gates("named.jsonl")] == ["helpdesk", "shop"]
        report = replay(rows, "gold.jsonl", config="ragmon.toml")
        assert [(gate.pipeline, gate.value, gate.n) for gate in report.document.gates] == [("helpdesk", 1.0, 12)]
        (files / "ragmon.toml").write_text(f"[pipelines.shop]\n{MATCH_GATE}")
        assert [gate[0] for gate in self.gates("log.jsonl")] == ["shop", "helpdesk", "default"]

    def test_a_column_or_a_second_pipeline_decides_otherwise(self, files):
        table = pd.read_csv(files / "log.csv")
        table.assign(pipeline="shop").to_csv(files / "named.csv", index=False)
        assert [gate[0] for gate in self.gates("named.csv")] == ["helpdesk", "shop"]
        (files / "ragmon.toml").write_text(f"[pipelines.shop]\n{MATCH_GATE}")
        assert [gate[0] for gate in self.gates("log.csv")] == ["shop", "helpdesk", "default"]

    def test_a_gate_on_matched_questions_says_where_none_was_found(self, files):
        (gate,) = self.gates("other.csv")
        assert gate[1] is None
        assert gate[3].startswith("no data: no question matches a gold item")


def test_ids_that_hold_a_comma_are_kept_whole_and_said(here):
    (here / "log.csv").write_text('question,docs\nWhy?,"a,b"\nHow?,"c,d"\n')
    done = ragmon("replay", "log.csv")
    assert "2 cells of `docs` hold a comma and are one id each, such as 'a,b'; --list-separator , cuts" in done.err
    assert ragmon("replay", "log.csv", "--list-separator", ",").err == ""


def test_a_table_comes_over_standard_input_by_its_header(here):
    report = ragmon("replay", "-", say="question,answer\nWhy?,So.\n").json
    assert report["records"]["scored"] == 1


def test_several_processes_read_tables_whole(here):
    for n in range(3):
        write(here / f"{n}.csv", LOG)
    one = ragmon("replay", "0.csv", "1.csv", "2.csv")
    assert ragmon("replay", "0.csv", "1.csv", "2.csv", "--jobs", 2) == one


def test_labels_meet_answers_of_a_table_whose_traces_have_ids(here):
    write(here / "log.csv", [{"trace_id": "5a1c", **LOG[0]}])
    lines(here / "labels.jsonl", [{"trace_id": "5a1c", "rater": "ada", "correct": True}])
    report = ragmon("replay", "log.csv", "--labels", "labels.jsonl").json
    assert report["labels"]["answers"] == 1
    assert report["labels"]["orphans"] == 0


class TestTerminal:
    @pytest.fixture
    def files(self, here):
        lines(here / "traces.jsonl", traces(wrong=[f"a{n}" for n in range(20)]))
        lines(here / "gold.jsonl", gold())
        return "traces.jsonl", "--gold", "gold.jsonl"

    def test_replay_shows_the_gates_on_a_terminal_and_json_in_a_pipe(self, files):
        shown = on_terminal("stdout", "replay", *files, columns=100)
        assert shown.out.startswith("60 of 60 records scored")
        assert ragmon("replay", *files).json["verdict"] == "fail"

    @pytest.mark.slow
    @pytest.mark.parametrize("columns", [60, 100, 160])
    @pytest.mark.parametrize("command", ["replay", "gate"])
    def test_no_reason_is_longer_than_the_terminal_is_wide(self, files, command, columns):
        shown = on_terminal("stdout", command, *files, "--no-color", columns=columns)
        reasons = [line for line in shown.out.splitlines() if not line.startswith(("default/", "gate"))]
        longest = max(reasons if columns < 100 else shown.out.splitlines(), key=len)
        assert len(longest) <= columns, longest
        plain = ragmon("gate", *files).out.split()
        assert shown.out.split()[-len(plain) :].count("fail") == plain.count("fail") > 1
        assert "the interval is for questions like these" in " ".join(shown.out.split())

    def test_verdicts_have_colour_on_a_terminal_alone(self, files):
        assert "\x1b[31mfail\x1b[0m" in on_terminal("stdout", "gate", *files).out
        assert "\x1b" not in ragmon("gate", *files).out

    @pytest.mark.parametrize(
        ("option", "env"), [((), {"NO_COLOR": "1"}), (("--no-color",), {}), ((), {"TERM": "dumb"})]
    )
    def test_whoever_wants_no_colour_gets_none(self, files, option, env):
        assert "\x1b" not in on_terminal("stdout", "gate", *files, *option, env=env).out

    def test_a_report_in_a_file_is_json_also_where_somebody_watches(self, files, here):
        on_terminal("stdout", "replay", *files, "--output", "report.json")
        assert json.loads((here / "report.json").read_text())["verdict"] == "fail"


def test_options_of_published_scorers_are_in_the_help_of_compat_alone():
    usual, published = ragmon("replay", "--help").out, ragmon("replay", "--compat", "help")
    assert published.code == 0
    for option in ("--max-queries", "--judge-url", "--no-reason", "--k"):
        assert option in published.out
        assert f"{option} " not in usual
