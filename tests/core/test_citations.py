"""Citations in the text of an answer: the published list, and the marks people and models write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.core.citations import marked_citations, split_citations, unread_mark, with_marks
from ragmon.core.record import Answer

IDS = ["d1", "d2", "d3"]
HERONS = ["grey-heron#1", "grey-heron#2", "doc-17"]


@pytest.mark.parametrize(
    ("answer", "claim", "citations"),
    [
        ("- Rollo\n- citations: [normans#1, normans#2]", "Rollo", ["normans#1", "normans#2"]),
        ("Rollo\ncitations: [a b,c]", "Rollo", ["a", "b", "c"]),
        ("Rollo CITATIONS : [ a ]", "Rollo", ["a"]),
        ("Rollo citations: []", "Rollo", []),
        ("Rollo citations: [ , ]", "Rollo", []),
        ("Rollo citations: [a;b]", "Rollo", ["a;b"]),
        ("citations: [a]\nRollo", "Rollo", ["a"]),
        ("first citations: [a] then citations: [b]", "first then citations: [b]", ["a"]),
        ("not in context", "not in context", None),
        ("citations: a, b", "citations: a, b", None),
        ("", "", None),
    ],
)
def test_citations_are_read_out_of_the_text(answer, claim, citations):
    assert split_citations(answer) == (claim, citations)


def test_a_mark_is_the_document_of_that_rank():
    """A number past the list was not retrieved; where no number is the list's, the brackets mean something else.

    Numbers in code, in links and in front of footnotes cite nothing; where they begin at 0, they are no ranks.
    """
    for claim, found in [
        ("Rollo did [2].", ["d2"]),
        ("Rollo did.[1]", ["d1"]),
        ("[1] Rollo did, [3] says", ["d1", "d3"]),
        ("Rollo did [1][3][1].", ["d1", "d3"]),
        ("Rollo did [3, 1; 2].", ["d3", "d1", "d2"]),
        ("Rollo did [^2]", ["d2"]),
        ("Rollo did [1] [9].", ["d1", "[9]"]),
        ("Rollo did [9].", None),
        ("Rollo did.", None),
        ("in [1066]", None),
        ("Rollo did[1][3].", ["d1", "d3"]),
        ("Rollo did[1], and so [3]", ["d1", "d3"]),
        ("罗洛[1]。", ["d1"]),
        ("Rollo did [1], others too [2-3].", ["d1", "d2", "d3"]),
        ("Rollo did [1–3].", ["d1", "d2", "d3"]),
        ("Rollo did [3-1].", ["d3", "d1"]),
        ("Rollo did [0], then [1].", None),
        ("Rollo did [1].\n```python\nx = [2, 3]\n```", ["d1"]),
        ("Rollo did [1], see `[2]`", ["d1"]),
        ("row[1].name is read", None),
        ("row[1] = 2", None),
        ("see [1](https://rollo.example)", ["d1"]),
        ("on [05-11] and in [2024]", None),
        ("see [the chronicle][2] [1]\n\n[2]: https://rollo.example", ["d1"]),
        ("[1]: https://rollo.example", None),
        ("Rollo did.[^1]\n\n[^1]: The chronicle.", ["d1"]),
    ]:
        assert marked_citations(claim, IDS) == found, (claim, found)


def test_a_mark_is_read_however_it_is_written():
    for claim, found in [
        *(
            (f"Rollo did {mark}.", ["d2"])
            for mark in ("［2］", "[２]", r"\[2\]", "<sup>2</sup>", "<sup>[2]</sup>", "<cite>2</cite>")
        ),
        *(
            (f"Rollo did {mark}.", ["d2"])
            for mark in ("[doc2]", "[Doc 2]", "[Document 2]", "[Source 2]", "[source: 2]", "(Source 2)")
        ),
        *(
            (f"Rollo did {mark}.", ["d2"])
            for mark in ("[citation:2]", "[ref. 2]", "[ID:2]", "##2$$", "[S2]", "[#2]", "[Quelle 2]", "[来源 2]")
        ),
        *(
            (f"Rollo did {mark}.", ["d2"])
            for mark in ("[2, p. 3]", "[2: page 3]", "[2, pp. 3-5]", "[2, S. 3]", "[**2**]", "**[2]**", "[[2]]")
        ),
        *(
            (f"Rollo did {mark}.", ["d2"])
            for mark in ("[2](https://a.example/b)", "[[2]](https://a.example)", "[ 2 ]", "【2】", "[^2]")
        ),
        *(
            (f"Rollo did {mark}.", ["d1", "d2"])
            for mark in ("[1，2]", "[1、2]", "[1 and 2]", "[1 & 2]", "[Source 1, Source 2]", "(Sources 1, 2)")
        ),
        *(
            (f"Rollo did {mark}.", ["d1", "d2"])
            for mark in ("##1$$ ##2$$", "[ID:1][ID:2]", "[doc1] and [doc2]", "<sup>1, 2</sup>")
        ),
        ("Rollo did.²", ["d2"]),
        ("罗洛（来源：2）。", ["d2"]),
    ]:
        assert marked_citations(claim, IDS) == found, (claim, found)


def test_what_only_looks_like_a_mark_cites_nothing():
    for claim in (
        *(
            "5 m<sup>2</sup>",
            "10<sup>2</sup>",
            "x<sup>2</sup>",
            "12 m²",
            "E = mc²",
            "[p. 2]",
            "[2/3]",
            "[a 2]",
            "on [05-02]",
            "[2.5]",
        ),
        *("$x_[2]$", "$$ a_[2] = b $$", r"\( v_[2] \)", "`row [2]`", "```\nx [2]\n```", "f[2] = 1", "see (2 pieces)"),
    ):
        assert marked_citations(claim, IDS) is None, claim


@pytest.mark.parametrize(
    ("claim", "cited"),
    [
        ("Rollo did【2】.", ["d2"]),
        ("罗洛【1】【3】。", ["d1", "d3"]),
        ("Rollo did【1, 3】.", ["d1", "d3"]),
        ("Rollo did【2†source】.", ["d2"]),
        ("Rollo did【4:0†source】【4:2†chronicle.pdf】.", ["d1", "d3"]),
        ("Rollo did【4:7†source】, not another【4:0†source】.", ["[8]", "d1"]),
        ("Rollo did【4:0†source】, and later【6:0†source】.", None),
        ("Rollo did【4:0†d3】.", ["d3"]),
        ("Rollo did【9】.", None),
    ],
)
def test_lenticular_brackets_are_marks(claim, cited):
    """OpenAI counts the results of a file search from 0; results of several searches are not one ranked list."""
    assert marked_citations(claim, IDS) == cited


def test_a_number_in_parentheses_is_a_mark_only_where_it_can_be_one():
    """Parentheses count points, amounts and arguments as well; where one of them does, the others are doubtful."""
    for claim, cited in [
        ("Rollo did (2).", ["d2"]),
        ("Rollo did (2) and died (1)", ["d2", "d1"]),
        ("Rollo did (1)(3).", ["d1", "d3"]),
        ("Rollo did (1, 3).", ["d1", "d3"]),
        ("So it is said (1), (2) and (3).", ["d1", "d2", "d3"]),
        ("Rollo, who died early (3), did. (1)", ["d3", "d1"]),
        ("Rollo (911) did (2).", ["d2"]),
        ("Rollo did (9).", None),
        ("Rollo did (1), others did (9).", None),
        ("Rollo did (0), then (1).", None),
        ("(1) Rollo did.\n(2) William did.", None),
        ("- (1) Rollo did.\n- (2) William did.", None),
        ("For two reasons: (1) wind and (2) rain.", None),
        ("First (1) wind, (2) rain, (3) fog.", None),
        ("It is 12 km (3).", None),
        ("It is 12km (3).", None),
        ("It holds 5 % (1).", None),
        ("He died in 930 (1).", None),
        ("There are three (3).", None),
        ("Go on with step (2).", None),
        ("Call f(1), then ls(1).", None),
        ("Dial 0 (1) 555.", None),
        ("It is `f (1)`.", None),
        ("Rollo did [2], or so (1).", ["d2"]),
    ]:
        assert marked_citations(claim, IDS) == cited, (claim, cited)


@pytest.mark.parametrize(
    ("claim", "cited"),
    [
        ("Herons eat fish [grey-heron#2].", ["grey-heron#2"]),
        ("Herons eat fish (doc-17), and eels [grey-heron#1].", ["doc-17", "grey-heron#1"]),
        ("Herons eat fish [grey-heron#1, doc-17].", ["grey-heron#1", "doc-17"]),
        ("Herons eat fish [^doc-17] [Source: grey-heron#1].", ["doc-17", "grey-heron#1"]),
        ("Herons eat fish【grey-heron#1】.", ["grey-heron#1"]),
        ("Herons eat fish [doc-17](https://herons.example).", ["doc-17"]),
        ("Herons eat fish [grey-heron#1] and cake [red-kite#3].", ["grey-heron#1", "red-kite#3"]),
        ("Herons [sic] eat fish [well-known] [doc-17].", ["doc-17"]),
        ("Herons eat cake [red-kite#3].", None),
        ("Herons eat fish [GREY-HERON#1].", None),
        ("Herons eat fish, see grey-heron#1.", None),
    ],
)
def test_an_id_in_brackets_is_a_citation_of_it(claim, cited):
    """Beside an id of the list, one written like it counts too: it was cited, and not retrieved."""
    assert marked_citations(claim, HERONS) == cited


def test_a_word_in_parentheses_is_no_citation_of_a_document_of_that_name():
    assert marked_citations("The capital (Paris) lies inland.", ["Paris", "Rome"]) is None
    assert marked_citations("The capital lies inland [Paris].", ["Paris", "Rome"]) == ["Paris"]


def test_a_number_that_is_a_rank_is_read_as_one_and_not_as_an_id():
    assert marked_citations("It is so [2].", ["7", "2", "1"]) == ["2"]
    assert marked_citations("It is so [1].", ["7", "2", "1"]) == ["7"]
    assert marked_citations("It is so [1066].", ["1066", "2"]) == ["1066"]
    assert marked_citations("It is so [17].", ["17", "23"]) == ["17"]


def test_a_list_of_ranks_is_one_of_ids_however_the_ranks_are_written():
    for citations, found in [
        *(
            ([name], ["d2"])
            for name in ("2", "[2]", "Source 2", "doc2", "#2", "[^2]", "［2］", "【2】", "(Source 2)", "[2, p. 7]")
        ),
        (["1", "3"], ["d1", "d3"]),
        (["[1-2]"], ["d1", "d2"]),
        (["1", "9"], ["d1", "[9]"]),
        (["9"], ["9"]),
        (["0"], None),  # whether ranks count from 0 shows in the totals
        (["d2", "1"], ["d2", "1"]),  # ids are cited: a number is no rank then
        (["Bus plan"], ["Bus plan"]),
        ([], []),
    ]:
        answer = with_marks(Answer("Rollo", citations), IDS)
        assert answer.citations == found, citations
        assert with_marks(answer, IDS) == answer, "read again, it stays"
    assert with_marks(Answer("Rollo", ["2"]), ["17", "23"]).citations == ["2"], "numbers beside numbers are ids"
    assert with_marks(Answer("Rollo", ["doc3"]), ["doc4", "doc7", "doc9"]).citations == ["doc3"], "it looks like an id"


@pytest.mark.parametrize(
    ("answer", "ids"),
    [
        (None, IDS),
        (Answer(None), IDS),
        (Answer("Rollo [1]", []), IDS),
        (Answer("Rollo [1]", ["d3"]), IDS),
        (Answer("Rollo [1]", ["2"]), None),
        (Answer("Rollo [1]"), []),
        (Answer("Rollo [1]"), None),
        (Answer("Rollo"), IDS),
    ],
)
def test_marks_change_no_answer_that_has_a_list_and_invent_none(answer, ids):
    """Without a mark nothing is known of citations: an empty list would say that there are none."""
    assert with_marks(answer, ids) == answer


@given(st.text("[]()【】†#^,;-:` 0123456789ab=.\n"), st.lists(st.text(min_size=1), max_size=4))
def test_any_text_gives_ids_of_the_list_or_numbers_that_are_not(claim, ids):
    found = marked_citations(claim, ids)
    assert found is None or (found and len(set(found)) == len(found))
    assert found is None or any(name in ids for name in found)


# --- what looks like a mark ------------------------------------------------------------------------------------------

SEEMING = {
    "Tighten it to 15 Nm [src-4].": "[src-4]",
    "Tighten it to 15 Nm. [src-4]": "[src-4]",
    "Tighten it to 15 Nm [kb-12][kb-13].": "[kb-12]",
    "Tighten it [page-3.pdf]\nand wait [page-4.pdf]": "[page-3.pdf]",
    "It holds 5 % [@smith2020].": "[@smith2020]",
    "Tighten {{cite:3}} it.": "{{cite:3}}",
    "Tighten it {ref:3} to 15 Nm.": "{ref:3}",
    'Tighten it <cite id="3"/>.': '<cite id="3"/>',
    "Tighten it (ref. A).": "(ref. A)",
    "Tighten it (source: page-3), then wait.": "(source: page-3)",
    "Tighten it [Source A] and wait.": "[Source A]",
    "Tighten it \\cite{src4}.": "{src4}",
    "Tighten it ⟦2⟧.": "⟦2⟧",
    "締めます。【doc-a1】": "【doc-a1】",
}
OTHERS = (
    "See [page2](https://example.org).",
    "[page2]: https://example.org",
    "- [ ] tighten\n- [x] wait",
    "row[x1] = 2",
    "Read arr[i1].",
    "Call `f[src-4]`.",
    "```\nx [src-4].\n```",
    "Dear [NAME_1], [PERSON_2] calls.",
    "Mail to [EMAIL_ADDRESS_1].",
    "Call [PHONE2].",
    "Write {name1} and {0}.",
    "Write {{user_1}}.",
    "Put {source_1} there.",
    "It matches [0-9] and [a-z0-9].",
    "So he said [sic].",
    "Use [v1.2].",
    "It takes [10min].",
    "Since 2020 (Smith 2020).",
    "It is wide (2 km).",
    "There is gas (CO2).",
    "See (document 2020) and (see reference).",
    "See Table 3 (page 4).",
    "Sets {1, 2} and vectors [x1, y2].",
    "x < 3 and y > 2",
    "<div id=3>text</div>",
    "List[int] and Dict[str, int].",
    "[TODO] Tighten it.",
    "[kb-4] is a bolt.",
    "Tighten it [1].",
    "Tighten it [^1].\n[^1]: page",
    "",
)


@pytest.mark.parametrize(("claim", "mark"), SEEMING.items())
def test_what_looks_like_a_mark_is_found(claim, mark):
    assert unread_mark(claim) == mark
    assert marked_citations(claim, ["d1", "d2"]) is None


@pytest.mark.parametrize("claim", OTHERS)
def test_brackets_that_mean_something_else_do_not_look_like_marks(claim):
    assert unread_mark(claim) is None
