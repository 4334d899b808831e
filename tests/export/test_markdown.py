"""Markdown and text reports that nobody's names can break."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from ragmon.config.gates import PRESETS
from ragmon.core.errors import printable
from ragmon.core.gold_item import GoldItem
from ragmon.core.policy import Gate, Policy
from ragmon.core.record import Latency
from ragmon.export.schema import QuestionReport
from ragmon.export.text import escape, render_gates, report_markdown, text
from ragmon.monitor.replay import replay
from ragmon.testing import make_gold, make_record
from tests.support.runs import GOLD, small_report


@pytest.fixture(scope="module")
def report():
    return small_report()


HOSTILE = (
    "a|b",
    "a\\|b\\",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "`code` ``",
    "two\nlines\r\n\nand a table | x |",
    "sep\u2028ar\u2029ated\x85",
    "\u202eesrever",
    "\ud800 alone",
    "# heading",
    "- item",
    "1. one",
    "=== ---",
    "*star* _under_ __dunder__ ~~gone~~ snake_case_",
    "[link](http://evil.example) ![image](x)",
    "http://evil.example www.evil.example someone@evil.example",
    "&lt;b&gt; &amp;",
    "\x1b[31mred\x07\x00",
    "x" * 1000,
    "",
    " ",
)
ANYTHING = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(), max_size=40))

MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def cells(markdown):
    """The tables of a Markdown text as a parser reads them: rows of plain texts."""
    rows, tokens = [], MARKDOWN.parse(markdown)
    for token, content in pairwise(tokens):
        if token.type == "tr_open":
            rows.append([])
        elif token.type in ("td_open", "th_open"):
            rows[-1].append("".join(child.content for child in content.children))
    return rows


def kinds(markdown):
    """All kinds of tokens in a Markdown text."""
    return {inner.type for token in MARKDOWN.parse(markdown) for inner in (token, *(token.children or ()))}


@given(ANYTHING)
def test_an_escaped_text_is_read_as_it_was_written(hostile):
    """A parser finds one paragraph of plain text: no markup, no HTML, no second line, no other cell."""
    table = f"| a | b |\n| --- | --- |\n| {escape(hostile)} | end |\n"
    shown = " ".join(printable(hostile).split())
    assert [" ".join(cell.split()) for cell in cells(table)[1]] == [shown, "end"]
    in_cell = {"table_open", "thead_open", "tr_open", "th_open", "inline", "text", "text_special", "th_close"}
    in_cell |= {"tr_close", "thead_close", "tbody_open", "td_open", "td_close", "tbody_close", "table_close"}
    assert kinds(table) <= in_cell
    blocks = [token.type for token in MARKDOWN.parse(f"- {escape(hostile)}")]
    paragraph = ["paragraph_open", "inline", "paragraph_close"] if shown else []
    assert blocks == ["bullet_list_open", "list_item_open", *paragraph, "list_item_close", "bullet_list_close"]


def test_addresses_do_not_become_links_by_themselves():
    """GitHub makes links of bare addresses and mentions; a backslash in the middle keeps them text."""
    shown = escape("http://evil.example WWW.evil.example someone@evil.example")
    assert shown == "http\\://evil.example WWW\\.evil.example someone\\@evil.example"


@given(ANYTHING)
def test_one_line_fits_on_a_line_of_a_terminal_or_a_file(hostile):
    line = printable(hostile)
    assert len(line.splitlines()) <= 1
    assert len(line) <= 200
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e]", line)
    line.encode("utf-8")


@pytest.mark.parametrize("plain", ["answer_precision", "normans#17", "5 of 30 (2.5 %)", "3.14", "a-b+c", "it's 'so'!"])
def test_ordinary_names_stay_readable_in_the_source(plain):
    assert escape(plain).replace("\\#", "#") == plain


def hostile_report(name):
    """A report in which everything an outsider may name is named so."""
    printable = name.encode("utf-8", "replace").decode("utf-8") or "x"
    gold = make_gold(GoldItem(printable, "q", True, citations=["d1"]), name=printable)
    gate = Gate(name, "compliance", 0.98, "at_least", pipeline=name or "default")
    records = [
        make_record(printable, pipeline=name, build=name, index_hash=name),
        make_record(printable, pipeline="other"),
        make_record(None, pipeline=name, error=name),
    ]
    distinct = Gate("index", "index_hash", 1, "at_most", pipeline=name or "default", kind="distinct")
    found = replay(records, gold, Policy((gate, distinct)))
    extra = QuestionReport(name, answered=True, hit=False, refused=False, label="OK", times=2)
    return replace(found, questions=[*found.questions, extra], notes=[name], rejected={name: 1})


def test_no_name_breaks_the_markdown_report():
    """No raw HTML or link, every row as wide as its head, every line of the source in UTF-8."""
    for name in HOSTILE:
        found = hostile_report(name)
        for shown in (report_markdown(found), render_gates(found)):
            shown.encode("utf-8")
            assert "<script" not in shown, name
            assert "<img" not in shown, name
            assert not kinds(shown) & {
                "html_block",
                "html_inline",
                "link_open",
                "image",
                "code_block",
                "fence",
                "hr",
            }, name
            width = 0
            for line in shown.split("\n"):
                row = re.sub(r"\\.", "", line)
                if line.startswith("| "):
                    width = width or row.count("|")
                    assert row.count("|") == width, line
                elif not line.startswith("| ---"):
                    width = 0 if not line.startswith("|") else width


def test_no_name_breaks_the_text_report():
    """One line a gate and the verdict last, and nothing a terminal would obey."""
    for name in HOSTILE:
        shown = text(hostile_report(name))
        lines = shown.splitlines()
        assert lines[-1].startswith("verdict: "), name
        assert len(lines) == 1 + 2 + 1 + 1 + 1, (
            name
        )  # the head, the gates, the kind of the intervals, the note, the verdict
        assert "\x1b" not in shown, name
        shown.encode("utf-8")


def test_markdown_has_every_part(report):
    shown = report_markdown(report, questions=None)
    heads = ["# RAG quality report", "## Gates", "## pipeline default, source replay", "## Per-question"]
    assert all(head in shown.split("\n") for head in heads)
    assert shown.count("| **REFUSAL_OK** |") == 85
    assert "… and" not in shown


def test_one_number_has_one_interval_and_its_kind_is_named_once():
    """Some questions were asked often, so that answers and gold items as observations give different intervals."""
    times = [(n, n % 3 != 0) for n in range(20) for _ in range(1 + n)]
    records = [make_record(f"a{n}", claim="an answer" if right else "no", citations=("d1",)) for n, right in times]
    gold = make_gold(*((f"a{n}", True) for n in range(20)))
    policy = Policy(tuple(Gate(name, name, 0.5, "at_least") for name in ("answer_precision", "citation_scope")))
    shown = report_markdown(replay(records, gold, policy=policy))
    tables = [line.split(" | ") for line in shown.splitlines() if line.startswith("| ")]
    gates = {row[0].rpartition("/")[2]: (row[1], row[2].rstrip(" *"), row[4]) for row in tables if "default/" in row[0]}
    metrics = {
        (row[0].removeprefix("| "), row[1], row[3].strip(" |")): row[2].rstrip(" *") for row in tables if len(row) == 5
    }
    assert set(gates) == {"answer_precision", "citation_scope"}
    for name, (value, interval, n) in gates.items():
        assert interval != "–"
        assert metrics[name, value, n] == interval, name
    legends = [line for line in shown.splitlines() if line.startswith("95 % intervals: ")]
    assert legends[0] == (
        "95 % intervals: for questions like these (each gold item counts once); "
        "the verdict is on the exact value over this gold set."
    )
    assert all(line.count("questions like these") <= 1 and line.count("Wilson") <= 1 for line in legends)


def test_long_question_tables_are_cut_and_say_so(report):
    shown = report_markdown(report, questions=3)
    assert "… and 197 more (`--questions all` shows them)" in shown
    assert shown.count("| **") == 3


def test_questions_name_their_pipeline_where_there_are_several_and_how_often_it_was():
    rows = [make_record("a"), make_record("a"), make_record("b", claim="not in context")]
    one, two = replay(rows, GOLD), replay([*rows, make_record("a", pipeline="other")], GOLD)
    assert [row[0] for row in cells(report_markdown(one))[-2:]] == ["a ×2", "b"]
    assert [row[0] for row in cells(report_markdown(two))[-3:]] == ["default/a ×2", "other/a", "default/b"]


def test_a_metric_without_data_is_a_dash_not_a_zero():
    shown = report_markdown(replay([make_record("a", claim=None, citations=None, retrieved=None)], GOLD))
    assert ["empty_retrieval_rate", "–", "–", "0", "1 no_ids"] in cells(shown)


def test_the_text_report_says_what_each_gate_rests_on(report):
    lines = text(report).splitlines()
    assert re.match(
        r"default/answer_precision +76\.2 % +67\.0 – 83\.5 % +>= 0\.8 +101 +fail +exact over 200 gold items; ", lines[1]
    )
    assert lines[-1] == "verdict: fail"


def test_kinds_of_gates_show_their_own_kind_of_value():
    policy = Policy(PRESETS["wfgy-live"], baseline_p95_ms={"default": 100.0})
    records = [make_record(str(i), index_hash="aa", build="v1", latency_ms=Latency(total=120.0)) for i in range(300)]
    lines = {line.split()[0]: line.split() for line in text(replay(records, None, policy)).splitlines()[1:-1]}
    ratio, unit = lines["default/latency_p95"][1:3]
    assert (float(ratio), unit) == (pytest.approx(1.2, rel=0.01), "x")
    assert lines["default/index_hash"][1] == "1"
