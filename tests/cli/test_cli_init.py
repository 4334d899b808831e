"""`ragmon init`: the configuration it writes is valid, says what was seen, and gives verdicts."""

from __future__ import annotations

import time
import tomllib

import pytest

from ragmon.config.load import load
from ragmon.monitor.embedded import Monitor
from ragmon.testing import make_record
from tests.support.command_line import SMALL, gold, lines, ragmon, traces

BEYOND = "That goes beyond my hut book, ask the warden."


def rows(n=120, **fields):
    """Answers that cite as [1], and every sixth the same refusal in words of its own."""
    for number in range(n):
        hut = f"hut-{number % 40:02d}"
        yield {
            "question": f"Question {number % 40}?",
            "answer": BEYOND if number % 3 == 2 else f"Dinner is at {number} [1].",
            "documents": [{"id": f"e{number}", "text": "a text", "metadata": {"source": hut}}],
            **fields,
        }


def truth(name="hut-{:02d}"):
    for number in range(40):
        yield {
            "qid": f"g{number}",
            "question": f"Question {number}?",
            "answerable": True,
            "gold_claim_substr": ["Dinner"],
            "gold_citations": [name.format(number)],
        }


@pytest.fixture
def written(tmp_path):
    """Writes a configuration of traces; returns its tables and its text, which `config check` finds right."""

    def write(entries, items=None, *options):
        arguments = [lines(tmp_path / "log.jsonl", entries)]
        if items is not None:
            lines(tmp_path / "gold.jsonl", items)
            arguments += ["--gold", "gold.jsonl"]
        done = ragmon("init", *arguments, *options, cwd=tmp_path)
        assert (done.code, done.out) == (0, ""), done
        checked = ragmon("config", "check", cwd=tmp_path)
        assert (checked.code, checked.out.count("error")) == (0, 0), checked
        text = (tmp_path / "ragmon.toml").read_text(encoding="utf-8")
        return tomllib.loads(text), text

    return write


def test_a_replay_of_the_same_file_gives_verdicts_of_the_gates_that_are_written(tmp_path, written):
    tables, text = written(traces(), gold())
    report = ragmon("replay", "log.jsonl", "--format", "json", cwd=tmp_path).json
    assert {gate["gate"] for gate in report["gates"]} == tables["gates"].keys()
    assert {gate["verdict"] for gate in report["gates"]} == {"pass"}
    assert tables["gold"] == {"gold": {"path": "gold.jsonl"}}
    assert "# default, replay: 60 of 60 records match an item; 40 of 40 records with ids retrieve" in text
    assert "# 33.3 % of 60 requests are refused; 'not in context' 20 times\n" in text
    assert "[gates.answer_precision]\n# 100.0 % (91.2 – 100.0 %) of 40: pass\nat_least = 0.8\n" in text


def test_of_one_question_without_an_answer_nothing_is_told_that_was_not_seen(written):
    _, text = written([{"question": "Why?", "answer": ""}])
    assert "# default, replay: 1 record has question 100 %" in text
    assert "refused" not in text


def test_what_cannot_be_judged_stands_there_with_its_reason(written):
    tables, text = written(traces())
    assert tables["gates"].keys() == {"citation_scope", "coverage", "empty_retrieval_rate", "error_rate"}
    assert "# [gates.under_refusal_rate]\n# no gold is configured: [gold.NAME] path names" in text
    assert "# at_most = 0.05\n" in text


def test_numbers_an_own_refusal_and_the_field_of_the_ids_are_found(written):
    tables, text = written(rows(pipeline="huts"), truth())
    assert tables["pipeline"] == {"name": "huts"}
    assert tables["citations"] == {"base": 1}
    assert "# 80 answers cite: 100.0 % by number, such as [1]\n" in text
    assert tables["refusal"] == {"tokens": ["not in context", BEYOND]}
    assert tables["capture"] == {"id_from": "metadata.source"}
    assert tables["gates"]["citation_hit_rate"] == {"at_least": 0.75}


def test_ids_of_another_form_are_found(written):
    entries = [row | {"documents": [{"id": row["documents"][0]["metadata"]["source"]}]} for row in rows()]
    tables, text = written(entries, truth("Hut-{:02d}.md"))
    assert sorted(tables["gold"]["gold"]["ids"]) == ["casefold", "prefix"]
    assert "none of 120 retrieved ids occurs in gold; they look like `hut-00`, gold like `Hut-00.md`" in text


def test_one_text_again_and_again_is_left_to_a_person_where_nothing_is_cited(written):
    tables, text = written([row | {"answer": "Yes."} for row in rows()])
    assert "refusal" not in tables
    assert '# tokens = ["not in context", "Yes."]' in text


def test_any_text_may_be_a_refusal(written):
    text = 'Ask `help` "now",\n\\ # or later'
    tables, _ = written([row | {"answer": text if "goes" in row["answer"] else row["answer"]} for row in rows()])
    assert tables["refusal"]["tokens"] == ["not in context", text]


@pytest.mark.parametrize("name", ["a/b", "a b", 'a"b', "line\nbreak"])
def test_any_name_of_a_pipeline_gives_a_file_that_is_read(written, name):
    tables, _ = written([*rows(60, pipeline=name), *rows(60, pipeline="other")])
    assert "error_rate" in tables["gates"]
    assert ({"a b", 'a"b'} & {name}) <= tables["pipelines"].keys()


def test_pipelines_have_their_own_citations_and_refusals_and_the_same_gates(tmp_path, written):
    mine = [row | {"answer": "Yes."} for row in rows(60, pipeline="desk")]
    tables, text = written([*rows(pipeline="huts"), *mine], truth())
    assert tables["pipelines"]["huts"]["citations"] == {"base": 1}
    assert "# desk: not applicable yet: 60 answers so far, and none with a citation" in text
    report = ragmon("replay", "log.jsonl", "--format", "json", cwd=tmp_path).json
    judged = {gate["gate"] for gate in report["gates"] if gate["pipeline"] == "huts" and gate["value"] is not None}
    assert judged == tables["gates"].keys()


@pytest.mark.parametrize(("zeros", "expected"), [(0, {"base": 1}), (60, {"base": 0})])
def test_the_first_number_is_the_one_that_is_seen(written, zeros, expected):
    entries = [
        {"question": f"Q {n}?", "answer": f"So it is [{0 if n < zeros else 1}].", "retrieved_ids": ["a", "b"]}
        for n in range(100)
    ]
    assert written(entries)[0]["citations"] == expected


def test_a_table_is_read_as_replay_reads_it(tmp_path):
    (tmp_path / "log.csv").write_text("Frage,Antwort\n" + "Wer segelt?,Ada segelt.\n" * 3, encoding="utf-8")
    options = ("--map", "question=Frage,answer=Antwort", "--output", "own.toml")
    assert ragmon("init", "log.csv", *options, cwd=tmp_path).err == "own.toml: 1 of 8 gates can be judged\n"
    assert tomllib.loads((tmp_path / "own.toml").read_text(encoding="utf-8"))["gates"].keys() == {"error_rate"}


def test_a_file_is_overwritten_only_by_force(tmp_path, written):
    (tmp_path / "ragmon.toml").write_text("# mine\n", encoding="utf-8")
    lines(tmp_path / "log.jsonl", traces())
    assert ragmon("init", "log.jsonl", cwd=tmp_path).error == (
        "ragmon.toml exists",
        "--force overwrites it, --output FILE writes another one",
    )
    assert (tmp_path / "ragmon.toml").read_text(encoding="utf-8") == "# mine\n"
    assert "gates" in written(traces(), None, "--force")[0]


def test_nothing_is_left_behind_where_nothing_can_be_read(tmp_path):
    (tmp_path / "log.jsonl").write_text("no json\n", encoding="utf-8")
    assert ragmon("init", "log.jsonl", cwd=tmp_path).code == 3
    assert [path.name for path in tmp_path.iterdir()] == ["log.jsonl"]


@pytest.mark.parametrize("arguments", [[], ["log.jsonl", "--url", "http://127.0.0.1:1"]])
def test_it_reads_traces_or_asks_a_monitor(arguments):
    assert ragmon("init", *arguments).error[0] == "TRACES are read, or a monitor is asked with --url: give one of them"


def test_real_answers_are_written_to_stdout_and_leave_no_file(tmp_path):
    done = ragmon("init", SMALL / "traces.jsonl", "--gold", SMALL / "gold.jsonl", "-o", "-", cwd=tmp_path)
    assert len(tomllib.loads(done.out)["gates"]) == 8
    assert list(tmp_path.iterdir()) == []


def test_a_running_monitor_is_asked_for_what_it_has_seen(tmp_path):
    monitor = Monitor(load("/dev/null", environ={"RAGMON_CONTENT": "full"}))
    for n in range(300):
        refused = {"claim": BEYOND, "citations": []} if n % 6 == 5 else {}
        monitor.submit(make_record(q=f"Q {n}?", pipeline="support", source="live", ts=time.time(), **refused))
    with monitor.start("127.0.0.1:0"):
        done = ragmon("init", "--url", monitor.address, cwd=tmp_path)
    assert (done.code, done.out) == (0, ""), done
    tables = tomllib.loads((tmp_path / "ragmon.toml").read_text(encoding="utf-8"))
    assert tables["pipeline"] == {"name": "support"}
    assert tables["refusal"] == {"tokens": ["not in context", BEYOND]}
    assert {"error_rate", "citation_scope"} <= tables["gates"].keys()
