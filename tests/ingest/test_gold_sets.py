"""Gold sets: one content, one version; and which gold item a record belongs to."""

import dataclasses
import pickle
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.core.errors import GoldError
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Record
from ragmon.ingest.gold import REMEMBERED, GoldIndex, GoldSet

texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=8)
lists = st.lists(texts, max_size=3).map(tuple)
contents = {
    "question": texts,
    "answerable": st.booleans(),
    "claim_substrings": lists,
    "gold_claim": texts,
    "citations": lists,
    "contexts": lists,
    "sections": lists,
    "tags": st.dictionaries(texts, texts, max_size=2),
    "paraphrases": lists,
    "negatives": lists,
    "constraints": lists,
}
FIELDS = sorted(contents)


def items_with(qids):
    return st.tuples(*(st.builds(GoldItem, qid=st.just(qid), **contents) for qid in qids))


item_lists = st.lists(texts, min_size=1, max_size=4, unique=True).flatmap(items_with)


class TestVersions:
    @given(item_lists, st.randoms(use_true_random=False))
    def test_the_order_of_the_items_does_not_matter(self, items, random):
        shuffled = list(items)
        random.shuffle(shuffled)
        assert GoldSet("g", tuple(shuffled)).version == GoldSet("g", items).version

    @pytest.mark.slow
    @given(item_lists, st.sampled_from(FIELDS), st.data())
    def test_changing_any_field_changes_the_version_and_that_items_fingerprint_alone(self, items, field, data):
        changed, *others = items
        other = data.draw(contents[field].filter(lambda value: value != getattr(changed, field)))
        after = dataclasses.replace(changed, **{field: other})
        assert after.fingerprint != changed.fingerprint
        old, new = GoldSet("g", items), GoldSet("g", (after, *others))
        assert old.version != new.version
        assert [i.fingerprint for i in old][1:] == [i.fingerprint for i in new][1:]

    @pytest.mark.slow
    @given(item_lists)
    def test_a_qid_is_part_of_the_content(self, items):
        renamed = dataclasses.replace(items[0], qid=items[0].qid + "x" * 9)
        assert GoldSet("g", (renamed, *items[1:])).version != GoldSet("g", items).version

    @pytest.mark.slow
    @given(item_lists)
    def test_leaving_an_item_out_changes_the_version(self, items):
        assert GoldSet("g", items[1:]).version != GoldSet("g", items).version

    @given(item_lists, st.dictionaries(texts, texts, max_size=2))
    def test_name_pipeline_use_and_tags_of_the_set_are_not_part_of_it(self, items, tags):
        """The same file has one version, in the application and on the server, whatever it is called there."""
        assert GoldSet("other", items, "support", ("probe",), tags).version == GoldSet("g", items).version

    def test_every_item_knows_its_set(self):
        gold = GoldSet("g", (GoldItem("a", "Why?", answerable=False),))
        assert [(item.set_name, item.set_version) for item in gold] == [("g", gold.version[:8])]

    @given(st.dictionaries(st.sampled_from("ab"), texts), st.dictionaries(st.sampled_from("bc"), texts))
    def test_an_items_own_tag_beats_the_sets(self, of_set, of_item):
        (item,) = GoldSet("g", (GoldItem("a", "Why?", answerable=False, tags=of_item),), tags=of_set)
        assert item.tags == of_set | of_item

    def test_a_qid_stands_for_one_item(self):
        item = GoldItem("a", "Why?", answerable=False)
        with pytest.raises(GoldError, match="qid appears twice: 'a'") as caught:
            GoldSet("mine", (GoldItem("b", "How?", answerable=False), item, item))
        assert (caught.value.path, caught.value.hint) == ("mine", "qids are permanent: give one question a new one")


def gold(name, *items, **fields):
    return GoldSet(name, items, **fields)


def ask(qid, question, **fields):
    return GoldItem(qid, question, answerable=True, **fields)


def found(index, **fields):
    item = index.match(Record(**fields))
    return item and (item.set_name, item.qid)


class TestMatching:
    def test_by_qid_whatever_the_question(self):
        index = GoldIndex(gold("g", ask("a", "Why?"), ask("b", "How?")))
        assert found(index, qid="a", q="How?") == ("g", "a")

    def test_by_question_where_the_qid_is_unknown_or_absent(self):
        index = GoldIndex(gold("g", ask("a", "Why?")))
        assert found(index, q="Why?") == ("g", "a")
        assert found(index, qid="zzz", q="Why?") == ("g", "a")

    @given(st.text(alphabet=string.ascii_letters + " ", min_size=1).filter(str.strip))
    def test_case_spaces_and_punctuation_of_a_question_do_not_matter(self, question):
        index = GoldIndex(gold("g", ask("a", question)))
        assert found(index, q=f"  {question.upper()} ?!") == ("g", "a")

    def test_by_paraphrase(self):
        index = GoldIndex(gold("g", ask("a", "Who led?", paraphrases=("Whose lead was it?",))))
        assert found(index, q="whose lead was it") == ("g", "a")

    @pytest.mark.parametrize("fields", [{}, {"q": "What?"}, {"qid": "b"}, {"q": ""}, {"q": "?!"}])
    def test_nothing_matches_what_nobody_asked(self, fields):
        assert found(GoldIndex(gold("g", ask("a", "Why?"), ask("x", ""))), **fields) is None

    def test_an_index_without_sets_matches_nothing(self):
        assert found(GoldIndex(), qid="a", q="Why?") is None

    def test_a_question_of_two_items_matches_neither_but_their_qids_do(self):
        index = GoldIndex(gold("g", ask("a", "Why?"), ask("b", "why")))
        assert found(index, q="Why?") is None
        assert found(index, q="Why?", qid="b") == ("g", "b")

    def test_a_paraphrase_that_is_another_items_question_matches_neither(self):
        index = GoldIndex(gold("g", ask("a", "Why?", paraphrases=("How?",)), ask("b", "How?")))
        assert found(index, q="How?") is None
        assert found(index, q="Why?") == ("g", "a")

    def test_an_item_may_repeat_its_own_question(self):
        assert found(GoldIndex(gold("g", ask("a", "Why?", paraphrases=("why",)))), q="Why?") == ("g", "a")

    def test_of_two_sets_with_one_question_the_first_wins(self):
        one, two = gold("one", ask("a", "Why?")), gold("two", ask("b", "Why?"), ask("a", "Other?"))
        assert found(GoldIndex([one, two]), q="Why?") == ("one", "a")
        assert found(GoldIndex([two, one]), q="Why?") == ("two", "b")
        assert found(GoldIndex([one, two]), qid="a") == ("one", "a")


class TestWhichSetsMayMatch:
    def test_a_set_with_a_pipeline_judges_that_one_alone(self):
        index = GoldIndex([gold("s", ask("a", "Why?"), pipeline="support"), gold("any", ask("b", "How?"))])
        assert found(index, pipeline="support", q="Why?") == ("s", "a")
        assert found(index, pipeline="sales", q="Why?") is None
        assert found(index, pipeline="sales", q="How?") == ("any", "b")

    def test_a_record_without_a_pipeline_belongs_to_the_default_one(self):
        index = GoldIndex(gold("d", ask("a", "Why?"), pipeline="default"))
        assert found(index, q="Why?") == ("d", "a")

    @pytest.mark.parametrize(
        ("use", "source", "matches"),
        [
            (("probe",), "probe", True),
            (("probe",), "live", False),
            (("probe",), "match", False),
            (("match",), "live", True),
            (("match",), "match", True),
            (("match",), "probe", False),
            ((), "live", False),
            ((), "probe", False),
            ((), "replay", True),
            ((), "label", True),
            ((), None, True),
        ],
    )
    def test_use_says_which_sources_may_match(self, use, source, matches):
        index = GoldIndex(gold("g", ask("a", "Why?"), use=use))
        assert found(index, source=source, q="Why?") == (("g", "a") if matches else None)

    def test_pipelines_without_number_do_not_fill_the_memory(self):
        """Records name their pipeline freely; the items are indexed once per combination of sets."""
        index = GoldIndex([gold("s", ask("a", "Why?"), pipeline="support"), gold("any", ask("b", "How?"))])
        for number in range(3 * REMEMBERED):
            assert found(index, pipeline=f"p{number}", q="How?") == ("any", "b")
        assert found(index, pipeline="support", q="Why?") == ("s", "a")
        assert len(index._lookups) <= REMEMBERED
        assert len(index._shared) == 2

    def test_an_index_that_travelled_to_another_process_matches_alike(self):
        index = GoldIndex([gold("s", ask("a", "Why?"), pipeline="support"), gold("any", ask("b", "Why?"))])
        assert found(index, pipeline="support", q="Why?") == ("s", "a")
        there = pickle.loads(pickle.dumps(index))
        assert found(there, pipeline="support", q="Why?") == ("s", "a")
        assert found(there, pipeline="sales", q="Why?") == ("any", "b")

    def test_the_sets_introduce_themselves(self):
        sets = [gold("one", ask("a", "Why?")), gold("two", ask("b", "How?"), ask("c", "When?"))]
        assert [(info.name, info.version, info.items) for info in GoldIndex(sets).infos()] == [
            ("one", sets[0].short_version, 1),
            ("two", sets[1].short_version, 2),
        ]
