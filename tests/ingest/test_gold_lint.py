"""`ragmon gold lint` and `stats`: what is wrong or unwise in a gold set that could be read, and what it holds."""

import dataclasses
import json

import click
import pytest
from click.testing import CliRunner

from ragmon.cli.commands import gold as gold_commands
from ragmon.config import gates as presets
from ragmon.core.errors import GoldError
from ragmon.core.gold_item import GoldItem
from ragmon.ingest.gold import SEVERITIES, GoldSet, lint
from ragmon.ingest.gold import stats as count
from ragmon.stats.intervals import wilson
from tests.support.command_line import ragmon


def answerable(qid, **fields):
    defaults = {"question": f"What is {qid}?", "claim_substrings": (f"it is {qid}",), "citations": (f"doc-{qid}",)}
    return GoldItem(qid=qid, answerable=True, **{**defaults, **fields})


def unanswerable(qid, **fields):
    return GoldItem(qid=qid, answerable=False, **{"question": f"What is {qid}?", **fields})


BALLAST = (*(answerable(f"a{n}") for n in range(40)), *(unanswerable(f"u{n}") for n in range(80)))
"""Enough flawless items to prove every default gate: what a test adds is all there is to find."""


def found(*items):
    return [(f.qid, f.severity, f.message) for f in lint(GoldSet("g", (*items, *BALLAST)))]


class TestItems:
    def test_a_flawless_set_has_no_findings(self):
        assert found() == []

    def test_an_answerable_item_without_substrings(self):
        expected = ("x", "warning", "no gold_claim_substr, answer_precision stays unassessed")
        assert found(answerable("x", claim_substrings=None)) == [expected]
        assert found(answerable("x", claim_substrings=[])) == [expected]

    def test_an_answerable_item_without_citations(self):
        message = "no gold_citations, answer_precision and citation_hit_rate stay unassessed"
        assert found(answerable("x", citations=None)) == [("x", "warning", message)]

    def test_what_all_items_lack_is_said_once(self):
        items = [dataclasses.replace(item, claim_substrings=None) for item in BALLAST]
        (finding,) = lint(GoldSet("g", tuple(items)))
        assert (finding.qid, finding.severity) == (None, "warning")
        assert finding.message.startswith("all 40 answerable items: no gold_claim_substr")

    def test_an_item_without_a_question_is_matched_by_qid_only(self):
        assert found(answerable("x", question=""), unanswerable("y", question="?!")) == [
            ("x", "info", "no question text"),
            ("y", "info", "no question text"),
        ]

    def test_substrings_the_seed_rule_can_never_match(self):
        short = answerable("x", claim_substrings=("1066", "ITV"))
        mixed = answerable("y", claim_substrings=("1066", "in 1166"))
        assert found(short, mixed) == [("x", "info", "all substrings are shorter than 5 characters")]

    def test_a_weak_phrase_is_one_that_wrong_answers_contain_as_well(self):
        for phrase in ("7", "42", "no", "Yes", "the", "x"):
            message = f"substring {phrase.lower()!r} is in many wrong answers as well"
            assert ("x", "warning", message) in found(answerable("x", claim_substrings=(phrase, "in 1066"))), phrase
        for phrase in ("7 days", "1066", "ITV", "§ 7"):
            assert not any(
                "wrong" in message for _, _, message in found(answerable("x", claim_substrings=(phrase,)))
            ), phrase

    def test_substrings_that_contain_each_other(self):
        nested = answerable("x", claim_substrings=("in France", "FRANCE"))
        assert found(nested) == [("x", "info", "substring 'in france' contains 'france'")]

    def test_equal_substrings_contain_each_other(self):
        twice = answerable("x", claim_substrings=("France", "france"))
        assert found(twice) == [("x", "info", "substring 'france' contains 'france'")]

    def test_a_short_substring_inside_a_word_is_not_contained(self):
        """`itu` does not match in `situation`, so neither makes the other superfluous."""
        assert found(answerable("x", claim_substrings=("situation", "itu"), question="One?")) == []

    @pytest.mark.parametrize(
        ("fields", "named"),
        [
            ({"claim_substrings": ("Rollo",)}, "gold_claim_substr"),
            ({"citations": ("d1",), "gold_claim": "Rollo."}, "gold_claim and gold_citations"),
            ({"contexts": ("Rollo led.",)}, "gold_contexts"),
        ],
    )
    def test_an_unanswerable_item_with_gold(self, fields, named):
        assert found(unanswerable("x", **fields)) == [("x", "warning", f"unanswerable, with {named}")]

    def test_a_negative_that_is_also_gold_contradicts_itself(self):
        item = answerable("x", citations=("d1", "d2"), negatives=("d2", "d3"))
        assert found(item) == [("x", "error", "negatives that are also gold: ['d2']")]


class TestSharedWordings:
    def test_two_items_with_one_question_cannot_be_told_apart_by_text(self):
        items = answerable("x", question="Who led?"), answerable("y", question="who LED")
        assert found(*items) == [("y", "warning", "question 'who LED' is also asked by 'x'")]

    def test_one_question_cannot_be_both_answerable_and_not(self):
        items = answerable("x", question="Who led?"), unanswerable("y", question="Who led?")
        message = "question 'Who led?' is also asked by 'x', and only one of them is answerable"
        assert found(*items) == [("y", "error", message)]

    def test_a_paraphrase_that_is_the_question_of_another_item(self):
        items = answerable("x", paraphrases=("Who led?",)), answerable("y", question="Who led?")
        assert found(*items) == [("x", "warning", "paraphrase 'Who led?' is also asked by 'y'")]

    def test_a_paraphrase_of_two_items(self):
        items = answerable("x", paraphrases=("Who led?",)), unanswerable("y", paraphrases=("Who led?",))
        message = "paraphrase 'Who led?' is also asked by 'x', and only one of them is answerable"
        assert found(*items) == [("y", "error", message)]

    def test_an_item_may_repeat_its_own_question(self):
        assert found(answerable("x", question="Who led?", paraphrases=("who led", "Whose lead?"))) == []

    def test_items_without_a_question_do_not_share_one(self):
        assert all(
            severity == "info" for _, severity, _ in found(answerable("x", question=""), answerable("y", question=""))
        )


class TestTooFewItems:
    def test_the_gates_in_mind_are_those_of_the_configuration(self, tmp_path):
        rows = [{"qid": f"u{n}", "question": f"Who is {n}?", "answerable": False} for n in range(40)]
        (tmp_path / "gold.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        assert "under_refusal_rate <= 0.05: 40, 73 are needed" in ragmon("gold", "lint", "gold.jsonl", cwd=tmp_path).out
        gates = "[gates.under_refusal_rate]\nat_most = 0.10\n[gates.error_rate]\nat_most = 0.05\n"
        (tmp_path / "own.toml").write_text(gates + '[gates."recall@5"]\nat_least = 0.9\n', encoding="utf-8")
        done = ragmon("gold", "lint", "gold.jsonl", "--config", "own.toml", cwd=tmp_path)
        assert [line for line in done.out.splitlines() if "too few" in line] == [
            "warning: too few answerable items to prove recall@5 >= 0.90: 0, 35 are needed"
        ]

    def test_73_unanswerable_items_can_prove_under_refusal_and_72_cannot(self):
        enough = tuple(answerable(f"a{n}") for n in range(40))
        refusals = tuple(unanswerable(f"u{n}") for n in range(73))
        assert lint(GoldSet("g", enough + refusals)) == []
        (finding,) = lint(GoldSet("g", enough + refusals[1:]))
        assert (finding.qid, finding.severity) == (None, "warning")
        assert finding.message == ("too few unanswerable items to prove under_refusal_rate <= 0.05: 72, 73 are needed")

    @pytest.mark.parametrize("there", [0, 11, 12, 15, 16, 34, 35])
    def test_a_gate_is_named_exactly_while_a_flawless_run_leaves_it_open(self, there):
        refusals = tuple(unanswerable(f"u{n}") for n in range(73))
        findings = lint(GoldSet("g", (*(answerable(f"a{n}") for n in range(there)), *refusals)))
        named = {message.split(" to prove ")[1].split()[0] for message in (f.message for f in findings)}
        gates = [gate for gate in presets.PRESETS["wfgy-eval"] if gate.metric != "under_refusal_rate"]
        lows, highs = wilson(there, there)[0], wilson(0, there)[1]
        is_open = {gate.metric: lows < gate.threshold if gate.at_least else highs > gate.threshold for gate in gates}
        assert named == {metric for metric in is_open if is_open[metric]}


class TestOrderAndHints:
    def test_the_worst_comes_first_and_every_finding_says_what_would_be_right(self):
        items = (
            answerable("a", claim_substrings=("1066",)),
            answerable("b", citations=None),
            answerable("c", citations=("d",), negatives=("d",)),
        )
        findings = lint(GoldSet("g", items))
        ranks = [SEVERITIES.index(finding.severity) for finding in findings]
        assert ranks == sorted(ranks)
        assert set(ranks) == {0, 1, 2}
        assert all(finding.hint for finding in findings)


class TestStats:
    def test_what_a_set_holds_is_counted(self):
        items = (
            answerable("a", tags={"lang": "de"}),
            answerable("b", claim_substrings=None, gold_claim="It is b.", tags={"lang": "en", "team": "x"}),
            answerable("c", citations=None, contexts=("Text.",)),
            answerable("d", citations=None, sections=("d_1_",)),
            unanswerable("e", claim_substrings=("never counted",), tags={"lang": "de"}),
        )
        gold = GoldSet("mine", items)
        assert count(gold) == {
            "name": "mine",
            "version": gold.version,
            "items": 5,
            "answerable": 4,
            "unanswerable": 1,
            "with_substrings": 3,
            "with_gold_claim": 1,
            "with_citations": 2,
            "with_contexts": 1,
            "with_sections": 1,
            "tags": {"lang": {"de": 2, "en": 1}, "team": {"x": 1}},
        }


@pytest.fixture
def cli(tmp_path):
    """Write gold files and run `ragmon gold …`; a broken file ends in its GoldError, as the main group expects."""
    main = click.Group()
    main.add_command(gold_commands)

    def run(*args, **files):
        paths = []
        for name, rows in files.items():
            path = tmp_path / f"{name}.jsonl"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
            paths.append(str(path))
        command, *options = args
        result = CliRunner().invoke(main, ["gold", command, *paths, *options])
        if isinstance(result.exception, GoldError):
            raise result.exception
        return result

    return run


ROW = {
    "qid": "A1",
    "question": "Who led?",
    "answerable": True,
    "gold_claim_substr": ["Rollo"],
    "gold_citations": ["n#1"],
}


class TestCommandLine:
    def test_warnings_alone_exit_with_0(self, cli):
        result = cli("lint", gold=[ROW])
        assert result.exit_code == 0
        assert "warning: too few answerable items" in result.stdout
        assert result.stdout.endswith("1 items: error 0, warning 4, info 0\n")

    def test_errors_exit_with_1(self, cli):
        result = cli("lint", gold=[{**ROW, "negatives": ["n#1"]}])
        assert result.exit_code == 1
        lines = result.stdout.splitlines()
        assert lines[0] == "error: A1: negatives that are also gold: ['n#1']"
        assert lines[1].startswith("  hint: ")

    def test_a_broken_file_raises_the_error_the_main_group_prints(self, cli):
        with pytest.raises(GoldError, match=r"gold\.jsonl:1: answerable is not a boolean: 'false'"):
            cli("lint", gold=[{**ROW, "answerable": "false"}])

    def test_several_files_are_judged_as_one_set(self, cli):
        result = cli("lint", one=[ROW], two=[{**ROW, "qid": "A2", "answerable": False}])
        assert result.exit_code == 1
        assert "question 'Who led?' is also asked by 'A1'" in result.stdout

    def test_json_lists_every_finding(self, cli):
        rows = [{**ROW, "qid": f"A{n}", "question": f"Who led {n}?", "gold_claim_substr": ["1066"]} for n in range(20)]
        report = json.loads(cli("lint", "--format", "json", gold=rows).stdout)
        assert (report["name"], report["items"], report["counts"]["info"]) == ("gold", 20, 20)
        assert report["findings"][-1].keys() == {"qid", "severity", "message", "hint"}

    def test_text_lists_the_first_of_a_kind_and_counts_the_rest(self, cli):
        rows = [{**ROW, "qid": f"A{n}", "question": f"Who led {n}?", "gold_claim_substr": ["1066"]} for n in range(20)]
        lines = cli("lint", gold=rows).stdout.splitlines()
        assert sum(line.startswith("info: A") for line in lines) == 10
        assert "info: … and 10 more like these (--format json lists them all)" in lines

    def test_errors_are_always_listed_in_full(self, cli):
        rows = [{**ROW, "qid": f"A{n}", "question": f"Who led {n}?", "negatives": ["n#1"]} for n in range(20)]
        lines = cli("lint", gold=rows).stdout.splitlines()
        assert sum(line.startswith("error: A") for line in lines) == 20

    def test_control_characters_of_a_file_do_not_reach_the_terminal(self, cli):
        rows = [{**ROW, "qid": "A\x1b[2J", "negatives": ["n#1"], "tags": {"a\nb": "c"}}]
        assert "\x1b" not in cli("lint", gold=rows).stdout
        assert "a b=c 1" in cli("stats", gold=rows).stdout

    def test_stats_print_one_count_a_line(self, cli):
        lines = cli("stats", gold=[{**ROW, "tags": {"lang": "de"}}]).stdout.splitlines()
        assert [line.split() for line in lines if line.startswith(("items", "answerable", "tag"))] == [
            ["items", "1"],
            ["answerable", "1"],
            ["tag", "lang=de", "1"],
        ]

    def test_stats_as_json_are_the_same_counts(self, cli, tmp_path):
        result = cli("stats", "--format", "json", gold=[ROW])
        assert json.loads(result.stdout) == count(GoldSet.load(tmp_path / "gold.jsonl"))

    def test_a_path_is_required(self, cli):
        assert "Missing argument 'PATHS...'" in cli("lint").stderr


class TestRealFiles:
    def test_the_small_squad_file_has_no_errors(self, data):
        findings = lint(GoldSet.load(data / "squad2/small/gold.jsonl"))
        assert {finding.severity for finding in findings} <= {"warning", "info"}

    def test_squads_contradictory_questions_are_found(self, shared):
        """The same question, once answerable and once not: no system can be right on both."""
        path = shared / "squad2/gold.jsonl"
        asked = {}
        for line in path.read_text().split("\n"):
            if line:
                row = json.loads(line)
                asked.setdefault(row["question"].lower(), set()).add(row["answerable"])
        errors = [finding for finding in lint(GoldSet.load(path)) if finding.severity == "error"]
        assert len(errors) == sum(len(kinds) == 2 for kinds in asked.values())
