"""`ragmon gold diff`: what changed between two versions, and which qids were given to another question."""

import dataclasses
import json

import pytest
from click.testing import CliRunner

from ragmon.cli.commands import gold as gold_commands
from ragmon.core.errors import GoldError
from ragmon.core.gold_item import GoldItem
from ragmon.ingest.gold import GoldSet, ItemChange, diff

A = GoldItem("a", "Who led?", answerable=True, claim_substrings=("Rollo",), citations=("n#1",))
B = GoldItem("b", "Where?", answerable=False)
C = GoldItem("c", "When?", answerable=True, contexts=("In 911.",), tags={"lang": "en"})


def gold(*items):
    return GoldSet("g", items)


class TestDiff:
    def test_a_set_does_not_differ_from_itself_in_another_order(self):
        found = diff(gold(A, B, C), gold(C, A, B))
        assert found.same
        assert (found.added, found.removed, found.changed, found.unchanged) == ((), (), (), 3)

    def test_added_and_removed_items_are_listed_in_their_files_order(self):
        found = diff(gold(A), gold(C, B))
        assert (found.added, found.removed, found.unchanged, found.same) == (("c", "b"), ("a",), 0, False)

    @pytest.mark.parametrize(
        ("change", "fields"),
        [
            ({"answerable": False}, ("answerable",)),
            ({"claim_substrings": ("Rollo", "Hrolf")}, ("gold_claim_substr",)),
            ({"citations": ("n#2",)}, ("gold_citations",)),
            ({"citations": None}, ("gold_citations",)),
            ({"contexts": ("Rollo led.",)}, ("gold_contexts",)),
            ({"gold_claim": "Rollo led."}, ("gold_claim",)),
            ({"sections": ("d_1_",)}, ("sections",)),
            ({"tags": {"lang": "de"}}, ("tags",)),
            ({"paraphrases": ("Whose lead?",)}, ("paraphrases",)),
            ({"negatives": ("n#9",)}, ("negatives",)),
            ({"constraints": ("Rollo led.",)}, ("constraints",)),
            ({"answerable": False, "claim_substrings": ()}, ("answerable", "gold_claim_substr")),
        ],
    )
    def test_a_changed_item_names_its_fields_as_gold_files_spell_them(self, change, fields):
        found = diff(gold(A, B), gold(dataclasses.replace(A, **change), B))
        assert found.changed == (ItemChange("a", fields),)
        assert (found.unchanged, found.same, found.changed[0].mutated) == (1, False, False)

    def test_a_qid_with_another_question_is_mutated(self):
        (change,) = diff(gold(A), gold(dataclasses.replace(A, question="Who followed?"))).changed
        assert (change.fields, change.mutated) == (("question",), True)

    def test_both_versions_are_named(self):
        old, new = gold(A), gold(A, B)
        found = diff(old, new)
        assert (found.old_version, found.new_version) == (old.version, new.version)

    def test_a_list_and_a_tuple_are_no_difference(self):
        listed = dataclasses.replace(A, citations=["n#1"], claim_substrings=["Hrolf"])
        assert diff(gold(A), gold(listed)).changed == (ItemChange("a", ("gold_claim_substr",)),)

    def test_the_name_of_the_set_is_no_difference(self):
        assert diff(GoldSet("old", (A,)), GoldSet("new", (A,))).same


ROW = {
    "qid": "a",
    "question": "Who led?",
    "answerable": True,
    "gold_claim_substr": ["Rollo"],
    "gold_citations": ["n#1"],
}


@pytest.fixture
def compare(tmp_path):
    """Run `ragmon gold diff` on two lists of rows."""

    def run(old, new, *options):
        paths = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
        for path, rows in zip(paths, (old, new), strict=True):
            path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return CliRunner().invoke(gold_commands, ["diff", *map(str, paths), *options])

    return run


class TestCommandLine:
    def test_equal_sets_exit_with_0(self, compare):
        """Field names, empty lists and the order of keys are no difference in content."""
        same = {"answerable": True, "gold_ids": ["n#1"], "q": "Who led?", "qid": "a", "gold_claim_substr": ["Rollo"]}
        result = compare([ROW], [{**same, "negatives": []}])
        assert result.exit_code == 0
        assert result.stdout.startswith("0 added, 0 removed, 0 changed, 1 unchanged: version ")

    def test_different_sets_exit_with_1_and_list_what_changed(self, compare):
        old = [ROW, {**ROW, "qid": "b", "question": "Where?"}, {**ROW, "qid": "c", "question": "When?"}]
        new = [{**ROW, "gold_citations": ["n#2"]}, {**old[1], "question": "Whither?"}, {**ROW, "qid": "d"}]
        result = compare(old, new)
        assert result.exit_code == 1
        assert result.stdout.splitlines()[:-1] == [
            "added: d",
            "removed: c",
            "changed: a: gold_citations",
            "changed: b: question (mutated: qids are permanent, give it a new one)",
        ]
        assert result.stdout.splitlines()[-1].startswith("1 added, 1 removed, 2 changed, 0 unchanged: version ")

    def test_json_says_the_same(self, compare):
        result = compare([ROW], [{**ROW, "question": "Who followed?"}], "--format", "json")
        report = json.loads(result.stdout)
        assert (result.exit_code, report["same"], report["unchanged"]) == (1, False, 0)
        assert report["changed"] == [{"qid": "a", "fields": ["question"], "mutated": True}]

    def test_a_broken_file_raises_the_error_the_main_group_prints(self, compare):
        result = compare([ROW], [{**ROW, "qid": None}])
        assert isinstance(result.exception, GoldError)
        assert "new.jsonl:1: qid is null" in str(result.exception)
