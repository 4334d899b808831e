"""What a report is in a session of Python: a short repr, a piece of HTML, DataFrames, pages and plots."""

from __future__ import annotations

import html
import os
import sys

import pytest
from msgspec.structs import replace

import ragmon
from ragmon.core.errors import RagmonError, UnknownNameError
from ragmon.core.policy import Gate, Policy
from ragmon.export.report_page import stored_page
from ragmon.export.text import FAILURES, report_markdown
from ragmon.testing import make_gold, make_record
from tests.support.runs import GOLD, small_report

START = 1_763_683_200
NASTY = "<script>alert(1)</script>\u202egnp" + "x" * 10_000


def timed(n=400, **fields):
    """Requests over ten hours, of which three of ten are refused."""
    return [
        make_record(
            qid,
            ts=START + 36_000 * place / n,
            claim="not in context" if place % 10 < 3 else "yes",
            citations=["d"],
            retrieved=["d"],
            **fields,
        )
        for place, qid in enumerate(f"q{k}" for k in range(n))
    ]


@pytest.fixture(scope="module")
def report():
    return ragmon.replay(timed(), make_gold(*((f"q{k}", True) for k in range(400))))


class TestRepr:
    def test_it_has_verdict_counts_and_the_gates_that_fail(self, report):
        head, *failing = repr(report).splitlines()
        assert (
            head
            == "<Report fail: 1 of 8 gates fail, 3 insufficient; 400 records, 400 scored; gates of the preset default>"
        )
        assert failing == ["  default/over_refusal_rate: 30.0 % of 400, threshold <= 10 %"]

    def test_of_many_gates_that_fail_a_few_are_named(self, report):
        gates = tuple(Gate(f"g{k}", "over_refusal_rate", 0.01, "at_most") for k in range(9))
        many = ragmon.replay(timed(), make_gold(*((f"q{k}", True) for k in range(400))), Policy(gates))
        assert len(repr(many).splitlines()) == FAILURES + 2
        assert repr(many).endswith(f"and {9 - FAILURES} more")

    def test_names_cannot_control_a_terminal(self):
        gate = Gate("\x1b[31m", "error_rate", 0.0, "at_most", pipeline=NASTY, min_samples=1)
        broken = ragmon.replay([make_record("a", error="Timeout", pipeline=NASTY)], GOLD, Policy((gate,), mode="point"))
        assert broken.verdict == "fail"
        assert "\x1b" not in repr(broken)
        assert "\u202e" not in repr(broken)
        assert len(repr(broken)) < 1000

    def test_without_gates_and_records_it_is_one_line(self):
        empty = repr(ragmon.replay([], None, Policy()))
        assert empty == "<Report pass: 0 of 0 gates pass; 0 records, 0 scored; gates of the policy given>"


class TestFrames:
    def test_metrics_have_a_row_a_series_and_metric_with_the_numbers_of_the_json(self, report):
        pytest.importorskip("pandas")
        frame = report.to_frame()
        expected = [
            (series["pipeline"], series["source"], series["gold"], name, figures["value"], figures["n"])
            for series in report.data()["series"]
            for name, figures in series["metrics"].items()
        ]
        columns = frame[["pipeline", "source", "gold", "metric", "value", "n"]].astype(object)
        found = columns.where(columns.notna(), None).itertuples(index=False, name=None)
        assert list(found) == sorted(expected, key=lambda row: row[4] is None), "metrics without a value come last"

    def test_intervals_contain_their_values(self, report):
        pytest.importorskip("pandas")
        frame = report.to_frame().dropna(subset="value")
        assert len(frame) > 10
        assert ((frame["lower"] <= frame["value"]) & (frame["value"] <= frame["upper"])).all()

    def test_gates_and_questions(self, report):
        pytest.importorskip("pandas")
        gates, questions = report.to_frame("gates"), report.to_frame(what="questions")
        assert list(gates["gate"]) == [outcome.gate.name for outcome in report.outcomes]
        assert dict(gates["verdict"].value_counts()) == {"pass": 4, "insufficient": 3, "fail": 1}
        assert questions["times"].sum() == 400
        assert dict(questions["label"].value_counts()) == {"OVER_REFUSAL": 120, "ANS_NO_HIT": 280}

    def test_a_report_on_nothing_has_columns_and_no_rows(self):
        pytest.importorskip("pandas")
        empty = ragmon.replay([], None, Policy())
        assert {"metric", "value", "n"} <= set(empty.to_frame().columns)
        assert len(empty.to_frame("questions")) == 0

    def test_an_unknown_table_names_the_others(self, report):
        with pytest.raises(UnknownNameError, match="metric"):
            report.to_frame("metric")

    def test_without_pandas_the_error_says_what_to_install(self, report, monkeypatch):
        monkeypatch.setitem(sys.modules, "pandas", None)
        with pytest.raises(RagmonError, match="needs pandas") as caught:
            report.to_frame()
        assert caught.value.hint == "pip install 'ragmon[notebook]'"


class TestPages:
    def test_the_page_has_charts_over_time_and_every_question(self, report):
        page = report.to_html()
        assert "default/over_refusal_rate over time" in page
        assert page.count("</td><td class=") >= 400
        assert "… and 390 more" in report.to_html(questions=10)

    def test_sentences_name_the_pipeline_and_no_reason_is_cut(self):
        answer = {"claim": "x", "citations": ["d9"]}
        records = [
            {"pipeline": name, "q": f"q{k}", "retrieved_ids": ["d1"], "answer_json": answer}
            for name in "ab"
            for k in range(60)
        ]
        report = ragmon.replay(records, config=os.devnull)
        page = html.unescape(report.to_html())
        for name in "ab":
            assert f"<li>{name}/citation_scope is 0.0 % of 60; it should be at least 95 %.</li>" in page
        reason = "too few samples; " * 20
        gates = [replace(gate, reason=reason) for gate in report.document.gates]
        assert html.unescape(stored_page(replace(report.document, gates=gates))).count(reason) == len(gates)

    def test_markdown_is_that_of_the_command(self, report):
        assert report.to_markdown() == report_markdown(report, None)

    @pytest.mark.slow
    @pytest.mark.parametrize("suffix", ["", NASTY], ids=["short ids", "hostile ids"])
    def test_the_page_of_a_thousand_questions_is_small(self, suffix):
        records, gold = timed(1000), make_gold(*((f"q{k}{suffix}", True) for k in range(1000)))
        for record in records:
            record.qid += suffix
        report = ragmon.replay(records, gold)
        page = report.to_html()
        assert len(report.questions) == 1000
        assert page.count(">OVER_REFUSAL</td>") == 300
        assert len(page.encode()) < 1_000_000
        assert "<script>alert" not in page
        assert "\u202e" not in page

    def test_a_report_without_times_has_no_history(self):
        assert small_report().histories == {}
        assert "Over time" not in small_report().to_html()


class TestNotebook:
    def test_it_shows_every_gate_and_the_charts(self, report):
        shown = report._repr_html_()
        for outcome in report.outcomes:
            assert f"default/{outcome.gate.name}</th>" in shown
        assert shown.count('class="over-time"') == sum(len(h.values) > 2 for h in report.histories.values())

    def test_it_needs_nothing_else_and_no_script(self, report):
        shown = report._repr_html_()
        for part in ("<script", "src=", "href=", "url(", "@import", " id="):
            assert part not in shown

    def test_every_rule_of_its_style_holds_inside_it_alone(self, report):
        style = report._repr_html_().partition("<style>")[2].partition("</style>")[0]
        rules = [rule for rule in style.partition("*/")[2].split("}") if rule.strip()]
        assert rules
        for rule in rules:
            assert rule.strip().startswith(":is(.ragmon-report, #_)")

    def test_names_from_records_are_text(self):
        shown = ragmon.replay(timed(60, pipeline=NASTY))._repr_html_()
        assert "<script" not in shown
        assert "&lt;script&gt;" in shown
        assert "\u202e" not in shown
        assert "x" * 1000 not in shown


class TestPlots:
    @pytest.fixture(autouse=True)
    def pyplot(self):
        pytest.importorskip("matplotlib").use("agg")
        pyplot = pytest.importorskip("matplotlib.pyplot")
        yield pyplot
        pyplot.close("all")

    def test_all_gates_with_a_value_are_drawn(self, report):
        names = [label.get_text() for label in report.plot().get_yticklabels()]
        assert "default/over_refusal_rate: fail" in names
        assert len(names) == sum(outcome.value is not None for outcome in report.outcomes)

    def test_a_gate_is_drawn_over_time_into_given_axes(self, report, pyplot):
        _, given = pyplot.subplots()
        for name in ("over_refusal_rate", "default/over_refusal_rate"):
            assert report.plot(name, ax=given) is given
        line = given.lines[0].get_ydata()
        assert list(line) == report.histories["default", "over_refusal_rate"].values

    def test_what_cannot_be_drawn_is_said(self, report):
        with pytest.raises(UnknownNameError, match="over_refusal") as caught:
            report.plot("over_refusal")
        assert "default/over_refusal_rate" in caught.value.hint
        with pytest.raises(RagmonError, match="no values over time"):
            small_report().plot("answer_precision")
        with pytest.raises(RagmonError, match="no gate has a value"):
            ragmon.replay([], None, Policy()).plot()

    def test_a_name_is_no_formula(self):
        gate = Gate("$x^{$", "error_rate", 0.5, "at_most")
        ragmon.replay(timed(60), None, Policy((gate,))).plot().figure.canvas.draw()

    def test_without_matplotlib_the_error_says_what_to_install(self, report, monkeypatch):
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(RagmonError, match="needs matplotlib") as caught:
            report.plot()
        assert caught.value.hint == "pip install 'ragmon[notebook]'"
