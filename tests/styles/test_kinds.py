"""One way to write among sixty requests: a gate has the right value, or says what mends it."""

from __future__ import annotations

import unicodedata

import pytest

import ragmon

N = 60


def judged(rows, gold=None, config="", *, folder):
    """The gates of a replay by name; each row is a request, each gold row the item of its question."""
    path = folder / "ragmon.toml"
    path.write_text(config, "utf-8")
    asked = [{"question": f"Question {n}?", **row} for n, row in enumerate(rows)]
    items = gold and [
        {"qid": f"q{n}", "question": f"Question {n}?", "answerable": True} | g for n, g in enumerate(gold)
    ]
    return {outcome.gate.name: outcome for outcome in ragmon.replay(asked, items, config=path).outcomes}


@pytest.mark.parametrize(
    ("phrase", "answer", "value"),
    [
        ("It is Alzheimer's disease", "It is Alzheimer\u2019s disease .", 1.0),
        ("on-site support", "We offer on\u2011site support.", 1.0),
        ("limit is 1,000", "The limit is **1,000** requests.", 1.0),
        ("rejects null keys", "X rejects\nnull keys.", 1.0),
        ("from 2019-2020", "It ran from 2019\u20132020.", 1.0),
        ("at -5 degrees", "It freezes at \u22125 degrees.", 1.0),
        ("the timetable", "See the time\u00adtable.", 1.0),
        ("press Start", "Then press [`Start`](https://a.example/start).", 1.0),
        ("15 Nm", "Tighten it to 115 Nm.", 0.0),
        ("1,000", "The limit is 21,000 requests.", 0.0),
        ("v1.2.3", "Use v1.2.30.", 0.0),
        ("2 hours", "It takes 12 hours.", 0.0),
        ("10 EUR", "It costs 410 EUR.", 0.0),
        ("19:30", "It opens at 119:30.", 0.0),
        ("2 weeks", "It takes 52 weeks.", 0.0),
        ("5 percent", "It grew by 0.5 percent.", 0.0),
    ],
)
def test_a_phrase_is_compared_as_people_read_it(tmp_path, phrase, answer, value):
    rows = [{"answer": answer, "retrieved_ids": ["p"], "citations": ["p"]}] * N
    gold = [{"gold_claim_substr": [phrase], "gold_citations": ["p"]}] * N
    found = judged(rows, gold, folder=tmp_path)["answer_precision"]
    assert (found.value, found.n, found.verdict) == (value, N, "pass" if value else "fail")


@pytest.mark.parametrize("sign", ["\ufeff", "\u200b", "\u200f", "\u00ad", "\u2060", "\u202f"])
def test_a_question_with_characters_that_nobody_sees_finds_its_item(tmp_path, sign):
    asked = ("{0}When does the ferry leave?{0}", "When does the fer{0}ry leave?", "When{0} does the ferry leave?")
    asked = asked if sign != "\u202f" else ("{0}When does the ferry leave?{0}", "When{0}does the ferry leave?")
    rows = [{"question": question.format(sign), "answer": "It leaves at nine."} for question in asked]
    gold = [
        {"qid": "a", "question": "When does the ferry leave?", "answerable": True, "gold_claim_substr": ["at nine"]}
    ]
    report = ragmon.replay(rows, gold)
    assert (report.golds()[0]["traced"], report.data()["records"]["unmatched"]) == (1, 0)


@pytest.mark.parametrize(
    "mark", ["[{}]", "[ID:{}]", "##{}$$", "[{}](https://a.example/{})", "[Source {}]", "\uff3b{}\uff3d"]
)
def test_marks_that_count_from_zero_cite_the_document_that_the_model_saw(tmp_path, mark):
    places = [(0, 1, 1, 2)[n % 4] for n in range(N)]
    rows = [
        {
            "answer": f"At {n:02}:00 {mark.format(place, place)}.",
            "retrieved_ids": [f"page-{n}" if rank == place else f"kb-{n}-{rank}" for rank in range(4)],
        }
        for n, place in enumerate(places)
    ]
    gold = [{"gold_claim_substr": [f"At {n:02}:00"], "gold_citations": [f"page-{n}"]} for n in range(N)]
    found = judged(rows, gold, folder=tmp_path)
    for name in ("answer_precision", "citation_hit_rate"):
        assert (found[name].value, found[name].n, found[name].verdict) == (1.0, N, "pass")
    assert judged(rows, gold, "[citations]\nbase = 1\n", folder=tmp_path)["citation_hit_rate"].verdict == "fail"


@pytest.mark.parametrize(
    "said",
    [
        *({"citations": [1]}, {"citations": ["1"]}, {"citations": ["[1]"]}, {"citations": ["Source 1"]}),
        *({"citations": ["doc1"]}, {"citations": [{"index": 1}]}, {"answer": "At nine.\ncitations: [1]"}),
        *({"citations": [{"document_index": 0}]}, {"citations": [{"metadata": {"id": "page-0"}}]}),
        *({"citations": [{"document_ids": ["page-0"]}]}, {"citations": '[{"chunk_id": "page-0"}]'}),
    ],
)
def test_a_citation_in_another_form_is_in_scope(tmp_path, said):
    found = judged([{"answer": "At nine.", "retrieved_ids": ["page-0", "kb-0"]} | said] * 100, folder=tmp_path)
    assert [(found[name].value, found[name].verdict) for name in ("citation_scope", "coverage")] == [(1.0, "pass")] * 2


@pytest.mark.parametrize("name", ["Bus plan, p. 3", "https://a.example/bus", "Fahrplan 2025.pdf", "route:north"])
def test_names_that_are_no_ids_are_unknown_with_the_setting_that_reads_them(tmp_path, name):
    rows = [{"answer": "At nine.", "retrieved_ids": ["page-0", "kb-0"], "citations": [name]}] * 100
    found = judged(rows, folder=tmp_path)["citation_scope"]
    assert (found.value, found.n, found.verdict) == (None, 0, "insufficient")
    assert "100 citation_form (`[citations] base`" in found.reason
    cured = judged(rows, config='[citations]\nbase = "ids"\n', folder=tmp_path)["citation_scope"]
    assert (cured.value, cured.verdict) == (0.0, "fail")


@pytest.mark.parametrize("key", ["document_id", "chunk_id", "source", "url", "documentId", "doc_ids"])
def test_requests_whose_citations_have_another_shape_are_judged_with_the_others(tmp_path, key):
    """Every fourth answer is wrong, and cites in objects."""
    rows = [
        {
            "answer": "At nine." if n % 4 else "At noon, I guess.",
            "retrieved_ids": [f"page-{n}", f"kb-{n}"],
            "citations": [f"page-{n}"] if n % 4 else [{key: [f"page-{n}"] if key.endswith("s") else f"page-{n}"}],
        }
        for n in range(400)
    ]
    gold = [{"gold_claim_substr": ["At nine"], "gold_citations": [f"page-{n}"]} for n in range(400)]
    found = judged(rows, gold, folder=tmp_path)
    assert (found["citation_scope"].value, found["citation_scope"].n) == (1.0, 400)
    assert (found["answer_precision"].value, found["answer_precision"].n) == (0.75, 400)
    assert found["answer_precision"].verdict == "fail"


@pytest.mark.parametrize(
    ("written", "forms"),
    [
        (lambda name: unicodedata.normalize("NFD", name), "casefold"),
        (str.upper, "casefold"),
        (lambda name: f"{name}#0", "prefix"),
        (lambda name: f"plans/{name}", "path"),
    ],
)
def test_half_of_the_ids_in_another_form_are_unknown_and_right_under_the_setting(tmp_path, written, forms):
    names = [f"Gebühren-{n}.pdf" for n in range(N)]
    ids = [written(name) if n % 2 else name for n, name in enumerate(names)]
    rows = [{"answer": f"Fact {n:03}.", "retrieved_ids": [ids[n], "other"], "citations": [ids[n]]} for n in range(N)]
    gold = [{"gold_claim_substr": [f"Fact {n:03}"], "gold_citations": [names[n]]} for n in range(N)]
    for name in ("answer_precision", "citation_hit_rate"):
        found = judged(rows, gold, folder=tmp_path)[name]
        assert (found.value, found.n, found.verdict) == (1.0, 30, "insufficient")
        assert "30 of 60 not assessable: id_form" in found.reason
        assert f'ids = "{forms}"`' in found.reason


@pytest.mark.parametrize(
    ("gaps", "ids"),
    [([None, "page-0"], ["page-0"]), (["page-0", None, None], ["page-0"]), ([12.0, 7], ["12", "7"]), ([], [])],
)
def test_a_gap_among_ids_leaves_the_others(tmp_path, gaps, ids):
    rows = [
        {"answer": "A.", "retrieved_ids": gaps if n % 10 == 0 else ["page-0"], "citations": ["page-0"]}
        for n in range(100)
    ]
    report = ragmon.replay(rows)
    cited = 1.0 if "page-0" in ids else 0.9
    assert (report.data()["records"]["scored"], report.metric("citation_scope").value) == (100, cited)
