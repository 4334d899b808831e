"""Draws the pictures of the concept pages anew: `python docs/images/concepts/draw.py`.

Each number in a picture is computed here, by the code that the page is about. tests/project/test_concepts.py compares
what is committed with what this draws.
"""

from __future__ import annotations

import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final

from ragmon.alarms.detector import Detector, evidence
from ragmon.alarms.observations import Observations
from ragmon.alarms.plan import AlarmBudget, plan
from ragmon.capture.call import SamplingDecision
from ragmon.config.gates import preset_gates
from ragmon.core.constants import BUCKET_SECONDS, FOLDED_SECONDS, FRESH, STRATA
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Answer, Record
from ragmon.metrics import build
from ragmon.metrics.facts import FactReader, Facts
from ragmon.stats.intervals import needed_to_decide, wilson
from ragmon.stats.prediction import labels_to_detect

HERE: Final = Path(__file__).parent
WIDTH: Final = 720
STYLE: Final = """
text { font-family: system-ui, sans-serif; font-size: 16px; fill: #1f2430; }
.bold { font-weight: 700; }
.small { font-size: 14px; fill: #4f5866; }
.mono { font-family: ui-monospace, monospace; font-size: 14px; }
.back { fill: #ffffff; stroke: #d5dae3; }
.box { fill: #eef1f8; stroke: #8a94a8; }
.inner { fill: #ffffff; stroke: #8a94a8; }
.hot { fill: #e0e4fa; stroke: #3f51b5; }
.area { fill: none; stroke: #8a94a8; stroke-dasharray: 6 5; }
.line { stroke: #5b6578; stroke-width: 2; fill: none; }
.thin { stroke: #b4bccb; stroke-width: 1; fill: none; }
.curve { stroke: #3f51b5; stroke-width: 3; fill: none; }
.limit { stroke: #b3261e; stroke-width: 2; stroke-dasharray: 7 5; fill: none; }
.head { fill: #5b6578; }
.a { fill: #3f51b5; } .b { fill: #00796b; } .c { fill: #b26a00; } .d { fill: #9aa3b5; }
.good { fill: #1b7f4d; } .bad { fill: #b3261e; } .open { fill: #b26a00; }
.good-line { stroke: #1b7f4d; stroke-width: 5; } .bad-line { stroke: #b3261e; stroke-width: 5; }
.open-line { stroke: #b26a00; stroke-width: 5; }
@media (prefers-color-scheme: dark) {
text { fill: #e7eaf0; }
.small { fill: #b3bac6; }
.back { fill: #1e222b; stroke: #3a414e; }
.box { fill: #2b313d; stroke: #78839a; }
.inner { fill: #1e222b; stroke: #78839a; }
.hot { fill: #303a66; stroke: #9fa8da; }
.area { stroke: #78839a; }
.line { stroke: #a5afc0; }
.thin { stroke: #4a5261; }
.curve { stroke: #9fa8da; }
.limit { stroke: #f28b82; }
.head { fill: #a5afc0; }
.a { fill: #9fa8da; } .b { fill: #6fc3b8; } .c { fill: #e6b25c; } .d { fill: #687286; }
.good { fill: #6fcf97; } .bad { fill: #f28b82; } .open { fill: #e6b25c; }
.good-line { stroke: #6fcf97; } .bad-line { stroke: #f28b82; } .open-line { stroke: #e6b25c; }
}
"""


class Picture:
    """An SVG picture for light and dark backgrounds."""

    def __init__(self, title: str, height: int, source: str) -> None:
        self._parts = [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
                f'height="{height}" role="img">'
            ),
            f"<title>{escape(title)}</title>",
            f"<!-- Drawn by docs/images/concepts/draw.py. {source} -->",
            f"<style>{STYLE}</style>",
        ]
        self.rect(1, 1, WIDTH - 2, height - 2, "back", radius=10)

    def add(self, part: str) -> None:
        """Add an element."""
        self._parts.append(part)

    def rect(self, x: float, y: float, width: float, height: float, look: str = "box", radius: float = 6) -> None:
        """Add a rectangle."""
        self.add(
            f'<rect class="{look}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius}"/>'
        )

    def text(self, x: float, y: float, text: str, look: str = "", anchor: str = "start") -> None:
        """Add a line of text."""
        self.add(f'<text class="{look}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>')

    def box(self, x: float, y: float, width: float, lines: Sequence[str], look: str = "box") -> None:
        """Add a box with a bold first line and small further ones, all in the middle."""
        self.rect(x, y, width, 20 + 20 * len(lines), look)
        for place, line in enumerate(lines):
            self.text(x + width / 2, y + 25 + 20 * place, line, "small" if place else "bold", "middle")

    def path(self, points: Sequence[tuple[float, float]], look: str = "line") -> None:
        """Add a line through points."""
        self.add(f'<path class="{look}" d="M{" L".join(f"{x:.1f} {y:.1f}" for x, y in points)}"/>')

    def arrow(self, *points: tuple[float, float]) -> None:
        """Add a line through points that ends in an arrow."""
        (x, y), (end_x, end_y) = points[-2:]
        angle = math.atan2(end_y - y, end_x - x)
        back = (end_x - 9 * math.cos(angle), end_y - 9 * math.sin(angle))
        self.path([*points[:-1], back])
        sides = [(back[0] + side * 5 * math.sin(angle), back[1] - side * 5 * math.cos(angle)) for side in (-1.0, 1.0)]
        corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in (*sides, (end_x, end_y)))
        self.add(f'<polygon class="head" points="{corners}"/>')

    def dot(self, x: float, y: float, look: str, radius: float = 7) -> None:
        """Add a dot."""
        self.add(f'<circle class="{look}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>')

    def svg(self) -> str:
        """The picture as a file."""
        return "\n".join((*self._parts, "</svg>", ""))


def percent(share: float) -> str:
    """A share in per cent, as reports write it."""
    return f"{100 * share:.1f} %"


def ideas() -> Picture:
    """The map of all concepts."""
    p = Picture("From a call to a verdict and to an alarm: the ideas and how they follow from each other", 500, "")
    left, width, step = (20, 142, 172)
    column = [left + step * place for place in range(4)]
    p.box(column[2], 20, width, ["Gold item", "the right answer"])
    p.arrow((column[2] + 71, 80), (column[2] + 71, 122))
    row = 124
    for place, lines in enumerate(
        (
            ["Call", "one question in", "your application"],
            ["Record", "what was asked,", "found, answered"],
            ["Facts", "a small tuple of", "whole numbers"],
            ["Rows", "counts of facts in", "ten seconds"],
        )
    ):
        p.box(column[place], row, width, lines, "hot" if place == 2 else "box")
    for place in range(3):
        p.arrow((column[place] + width, row + 40), (column[place + 1] - 2, row + 40))
    p.text(column[0] + 71, row + 104, "sampling: 1 in 20", "small", "middle")
    p.text(column[1] + 71, row + 104, "text stays inside", "small", "middle")
    second, third = 264, 384
    for place, lines in enumerate(
        (
            ["You", "a report, a page,", "an exit code"],
            ["Gates", "pass, fail or", "insufficient"],
            ["Metrics", "a value and", "its interval"],
            ["Windows", "5 minutes, 1 hour,", "24 hours"],
        )
    ):
        p.box(column[place], second, width, lines)
    for place, lines in enumerate(
        (
            ["You", "are called", "when it is proved"],
            ["Severity", "page, look", "or ticket"],
            ["Alarms", "add up the", "evidence"],
            ["Minutes", "one after", "the other"],
        )
    ):
        p.box(column[place], third, width, lines)
    for y in (second, third):
        p.arrow((column[3] + width, row + 40), (700, row + 40), (700, y + 40), (column[3] + width + 2, y + 40))
        for place in (3, 2, 1):
            p.arrow((column[place], y + 40), (column[place - 1] + width + 2, y + 40))
    return p


def contract() -> Picture:
    """The fields of a record and what reads them."""
    rows = (
        ('"qid": "A1"', "finds the gold item"),
        ('"retrieved_ids": ["p1#1", "p1#2"]', "recall@k, mrr, citation_scope"),
        ('"answer_json": {"claim": "…",', "answer_precision, refusal_rate"),
        ('  "citations": ["p1#2"]}', "citation_hit_rate, coverage, compliance"),
        ('"contexts": ["…", "…"]', "groundedness, gold by text"),
        ('"error": "TimeoutError"', "error_rate"),
        ('"latency_ms": {"total": 840}', "answered_within, gates on latency"),
        ('"ts": 1764000000', "which row, which window"),
        ('"session": "c-81"', "which requests count as one"),
        ('"build", "index_hash"', "which release is judged"),
        ('"sampling": {…}', "how much the record weighs"),
    )
    p = Picture("Fields of a record, and the metrics or decisions that read each of them", 58 + 34 * len(rows), "")
    p.text(30, 34, "field of the record", "bold")
    p.text(390, 34, "what reads it", "bold")
    for place, (field, reader) in enumerate(rows):
        y = 50 + 34 * place
        p.rect(20, y, 300, 26, "box", 4)
        p.text(30, y + 18, field, "mono")
        p.arrow((320, y + 13), (380, y + 13))
        p.text(390, y + 18, reader)
    return p


def gold() -> Picture:
    """Three ways to know what is right, which are never added up."""
    p = Picture("Probes, matches and labels: three ways to know what is right, each counted on its own", 350, "")
    ways = (
        ("probe", ["ragmon asks", "a gold question", "all day long"], "the file says"),
        ("match", ["a user asks what is", "in the gold set", "by chance"], "the file says"),
        ("label", ["a user asks anything,", "a person judges", "the answer later"], "the person says"),
    )
    for place, (source, lines, knows) in enumerate(ways):
        x = 20 + 232 * place
        p.box(x, 30, 216, [f"source {source}", *lines], "hot")
        p.arrow((x + 108, 130), (x + 108, 168))
        p.box(x, 170, 216, ["What is right?", knows])
        p.arrow((x + 108, 230), (x + 108, 268))
        p.rect(x, 270, 216, 36, "inner")
        p.text(x + 108, 293, f'{{source="{source}"}}', "mono", "middle")
    p.text(360, 332, "Three series. Nothing adds them up.", "bold", "middle")
    return p


def _counted() -> tuple[list[tuple[str, Facts]], Counter[Facts]]:
    """The facts of three requests of the example on the page, and how often each occurred."""
    item = GoldItem("A1", "Does X support null keys?", answerable=True, claim_substrings=["rejects null keys"])
    item = GoldItem(
        item.qid, item.question, answerable=True, claim_substrings=item.claim_substrings, citations=["p1#2"]
    )
    answers = (
        ("right, cites p1#2", "X rejects null keys.", ["p1#2"], 5),
        ("right, cites p9#9", "X rejects null keys.", ["p9#9"], 2),
        ("refuses", "not in context", [], 1),
    )
    told, counts = [], Counter[Facts]()
    for words, claim, citations, times in answers:
        record = Record(qid="A1", retrieved_ids=["p1#1", "p1#2"], answer_json=Answer(claim=claim, citations=citations))
        key = Facts._make(FactReader().read(record, item))
        told.append((words, key))
        counts[key] += times
    return told, counts


def facts() -> Picture:
    """Requests as tuples, tuples as counts, counts as metrics."""
    told, counts = _counted()
    metrics = build()
    names = ("answer_precision", "citation_hit_rate", "over_refusal_rate", "mrr")
    p = Picture(
        "Eight requests become three different tuples of facts; four metrics are read off their counts",
        382,
        "Tuples: ragmon.metrics.facts.FactReader. Values: score of each metric, weighted by the counts.",
    )
    p.text(20, 34, "8 requests", "bold")
    p.text(235, 34, "their facts: flags, gold, found, ranks", "bold")
    p.text(620, 34, "count", "bold")
    for place, (words, key) in enumerate(told):
        y = 48 + 48 * place
        p.rect(20, y, 170, 36, "box")
        p.text(30, y + 24, words, "small")
        p.arrow((190, y + 18), (230, y + 18))
        p.rect(232, y, 350, 36, "hot")
        p.text(242, y + 24, f"({key.flags}, {key.wanted}, {key.retrieved}, {key.ranks}, (), (), ())", "mono")
        p.text(640, y + 25, f"× {counts[key]}", "bold", "middle")
    p.arrow((360, 192), (360, 222))
    p.text(375, 212, "add up score × count, divide by count", "small")
    for place, name in enumerate(names):
        scores = [(metrics[name].score(key), n) for key, n in counts.items()]
        known = [(score, n) for score, n in scores if score is not None]
        total, n = sum(score * n for score, n in known), sum(n for _, n in known)
        x, y = 20 + 345 * (place % 2), 232 + 70 * (place // 2)
        p.rect(x, y, 335, 56, "box")
        p.text(x + 14, y + 24, name, "bold")
        p.text(x + 14, y + 45, f"{total:g} of {n} requests in its denominator", "small")
        p.text(x + 320, y + 34, percent(total / n), "bold", "end")
    return p


def windows() -> Picture:
    """Rows on the time line, three windows, and a record that comes late."""
    p = Picture(
        "Rows of ten seconds and of five minutes on the time line, and the three windows over them",
        310,
        "Lengths: BUCKET_SECONDS, FOLDED_SECONDS and FRESH of ragmon.core.constants. The scale of time is not linear.",
    )
    now, hour, old, begin = 650, 360, 330, 40
    p.text(begin, 34, f"older: rows of {FOLDED_SECONDS // 60} minutes", "bold")
    p.text(hour, 34, f"last {FRESH // 60} minutes: rows of {BUCKET_SECONDS} seconds", "bold")
    x = float(begin)
    while x < old - 1:
        p.rect(x, 50, 27, 44, "box", 2)
        x += 29
    x = float(old)
    while x < now - 1:
        p.rect(x, 50, 6, 44, "hot", 1)
        x += 8
    p.path([(now, 42), (now, 268)], "limit")
    p.text(now + 8, 78, "now", "bold")
    for place, (name, start) in enumerate((("5m", 602), ("1h", hour), ("24h", 140))):
        y = 130 + 36 * place
        p.path([(start, y - 8), (start, y + 8)])
        p.path([(start, y), (now, y)], "curve")
        p.path([(now, y - 8), (now, y + 8)])
        p.text(start - 10, y + 5, f"window {name}", "", "end")
    p.arrow((now, 254), (482, 254), (482, 98))
    p.text(430, 290, "a record that comes now, and whose call ended 40 minutes ago", "small", "middle")
    return p


Verdict = tuple[str, int, int]


def verdicts() -> Picture:
    """Intervals against a gate of 80 %."""
    rows: tuple[Verdict, ...] = (
        ("26 of 30", 26, 30),
        (f"121 of {needed_to_decide(26 / 30, 0.80)}", 121, needed_to_decide(26 / 30, 0.80) or 0),
        ("60 of 100", 60, 100),
        ("78 of 100", 78, 100),
    )
    p = Picture(
        "Four shares with their 95 % intervals against a gate of at least 80 %, and the verdict of each",
        312,
        "Intervals: stats.intervals.wilson(k, n). The second n: stats.intervals.needed_to_decide(26 / 30, 0.80).",
    )

    def at(share: float) -> float:
        return 190 + (share - 0.4) / 0.6 * 370

    p.text(at(0.80), 32, "gate: at least 80 %", "bold", "middle")
    p.path([(at(0.80), 42), (at(0.80), 262)], "limit")
    for tick in (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0):
        p.path([(at(tick), 262), (at(tick), 270)], "line")
        p.text(at(tick), 290, f"{100 * tick:.0f} %", "small", "middle")
    p.path([(at(0.4), 262), (at(1.0), 262)], "line")
    for place, (name, right, n) in enumerate(rows):
        y = 72 + 52 * place
        lower, upper = wilson(right, n)
        verdict = "pass" if lower >= 0.80 else "fail" if upper < 0.80 else "insufficient"
        look = {"pass": "good", "fail": "bad", "insufficient": "open"}[verdict]
        p.text(20, y, name)
        p.path([(at(lower), y), (at(upper), y)], f"{look}-line")
        p.dot(at(right / n), y, look)
        p.text(20, y + 20, f"{percent(lower)} to {percent(upper)}", "small")
        p.text(590, y + 6, verdict, f"bold {look}")
    return p


SEED: Final = 7
BEGIN: Final = 120
"""The minute of the fault in the picture of an alarm."""


def _page_threshold() -> tuple[float, int]:
    """The threshold of a page for one configured pipeline with the default gates, and how many page alarms it has."""
    rules = [rule for rule in plan(preset_gates("default"), build(), AlarmBudget(divisor=2)) if rule.severity == "page"]
    return rules[0].threshold, len(rules)


def _wealth(threshold: float) -> Iterator[tuple[int, float]]:
    """The wealth of an alarm on a gate of .80, minute by minute, until it fires."""
    draw = random.Random(SEED)  # noqa: S311 - a simulation
    detector = Detector()
    for minute in range(600):
        truth = 0.90 if minute < BEGIN else 0.70
        right = sum(draw.random() < truth for _ in range(3))
        mean = detector.update(Observations(right, 3 - right), 0.80)
        yield minute, mean
        if mean >= threshold:
            return


def alarms() -> Picture:
    """The wealth of an alarm before and after a fault."""
    threshold, pages = _page_threshold()
    points = list(_wealth(threshold))
    fired = points[-1][0]
    p = Picture(
        "The wealth of one alarm, minute by minute: low while answers are right, up to its threshold after a fault",
        360,
        f"Simulated with seed {SEED}: 3 answers a minute, gate .80, right .90, from minute {BEGIN} on .70. Wealth: "
        "ragmon.alarms.detector.Detector. Threshold: ragmon.alarms.plan.plan, one configured pipeline, default gates.",
    )

    def at(minute: float, wealth: float) -> tuple[float, float]:
        return 90 + minute / 320 * 600, 290 - max(0.0, math.log10(max(wealth, 1e-9)) + 1) / 7.6 * 225

    for exponent in range(0, 7, 2):
        x, y = at(0, 10**exponent)
        p.path([(x, y), (690, y)], "thin")
        p.text(x - 8, y + 5, f"{10**exponent:,}", "small", "end")
    for minute in range(0, 301, 60):
        x, _ = at(minute, 1)
        p.text(x, 312, f"{minute}", "small", "middle")
    p.text(390, 340, "minutes", "small", "middle")
    p.text(20, 60, "wealth", "small")
    p.path([at(0, threshold), at(320, threshold)], "limit")
    p.text(96, at(0, threshold)[1] - 18, f"threshold {threshold:,.0f}: {pages} page alarms × 43,200 minutes × 2 parts")
    p.path([at(BEGIN, 0.1), at(BEGIN, 40_000)], "line")
    p.text(at(BEGIN, 1)[0] - 8, at(BEGIN, 12_000)[1], "the fault begins", "", "end")
    p.path([at(minute, wealth) for minute, wealth in points], "curve")
    x, y = at(*points[-1])
    p.dot(x, y, "bad")
    p.text(x + 12, y + 34, "page after", "bold bad")
    p.text(x + 12, y + 56, f"{fired - BEGIN} min", "bold bad")
    if evidence(points[-1][1], threshold) < 1:
        raise AssertionError("the alarm of the picture does not fire")
    return p


CALLS: Final = {"error": 200, "refusal": 1_000, "slow": 300, "rest": 8_500}
KEEP: Final = {"error": 1.0, "refusal": 0.2, "slow": 1.0, "rest": 0.0}


def sampling() -> Picture:
    """Calls by stratum, kept calls by stratum, and a share with and without weights."""
    audit = SamplingDecision(audit=False, p_audit=0.05)
    kept = {name: CALLS[name] * audit.p(KEEP[name]) for name in STRATA}
    calls, records = sum(CALLS.values()), sum(kept.values())
    p = Picture(
        "Ten thousand calls by stratum, the records that are kept of them, and the share of errors in both",
        372,
        "Expected records: calls × SamplingDecision(p_audit=.05).p(keep) of ragmon.capture.call, default keep.",
    )
    looks = dict(zip(STRATA, "abcd", strict=True))
    for y, title, counts, whole in (
        (56, f"{calls:,} calls, all counted (the totals)", CALLS, calls),
        (172, f"{records:,.0f} records, kept of them (expected)", kept, records),
    ):
        p.text(20, y - 14, title, "bold")
        x = 20.0
        for name in STRATA:
            width = 680 * counts[name] / whole
            p.rect(x, y, width, 44, looks[name], 0)
            x += width
    p.arrow((640, 102), (640, 170))
    p.text(624, 126, "5 % of all; of the others every error and slow call, and a fifth of the refusals", "small", "end")
    for place, name in enumerate(STRATA):
        x = 20 + 172 * place
        p.rect(x, 238, 16, 16, looks[name], 2)
        p.text(x + 24, 251, name, "bold")
        p.text(x + 24, 271, f"{kept[name]:,.0f} of {CALLS[name]:,}", "small")
    naive, weighted = kept["error"] / records, CALLS["error"] / calls
    p.text(20, 316, f"Share of errors among the records: {percent(naive)}.")
    p.text(20, 344, f"Weighed by the totals: {percent(weighted)}, which is the truth.", "bold")
    return p


def privacy() -> Picture:
    """What stays in the application, and what leaves it."""
    p = Picture("What stays in the process of your application by default, and what leaves it", 356, "")
    p.rect(20, 20, 330, 312, "area", 10)
    p.text(36, 48, "your application", "bold")
    stays = ("the question", "the answer", "the texts of documents")
    for place, name in enumerate(stays):
        p.rect(40, 66 + 44 * place, 290, 34, "box")
        p.text(54, 88 + 44 * place, name)
    p.arrow((185, 192), (185, 222))
    p.text(198, 213, "read once, here", "small")
    p.rect(40, 224, 290, 92, "hot")
    for place, line in enumerate(("decisions: refused? grounded? …", "lengths, times, ids, scores", "no text")):
        p.text(54, 250 + 25 * place, line, "bold" if place == 2 else "")
    p.arrow((330, 270), (428, 270))
    p.rect(370, 20, 330, 312, "area", 10)
    p.text(386, 48, "outside: server, file, /metrics", "bold")
    p.rect(428, 152, 262, 164, "inner")
    for place, line in enumerate(
        (
            '"facts": {"answered": true,',
            '  "refused": false,',
            '  "grounded": true,',
            '  "claim_chars": 20},',
            '"retrieved_ids": ["p1#2"],',
            '"latency_ms": {"total": 840}',
        )
    ):
        p.text(440, 176 + 24 * place, line, "mono")
    p.text(386, 84, '[capture] content = "none"', "mono")
    p.text(386, 112, "none is the default; hash, redacted", "small")
    p.text(386, 132, "and full let more out", "small")
    return p


def tools() -> Picture:
    """Three questions, three tools."""
    p = Picture("Three questions and the tool for each: a window, a release verdict, an alarm", 300, "")
    now = 640
    rows = (
        ("What is it now?", "window: interval", 470),
        ("Is this release good?", "e-process since the build", 330),
        ("Wake somebody?", "alarm: e-detector, for ever", 210),
    )
    p.path([(now, 30), (now, 262)], "limit")
    p.text(now, 284, "now", "bold", "middle")
    for place, (question, tool, begin) in enumerate(rows):
        y = 72 + 72 * place
        p.text(20, y - 18, question, "bold")
        p.path([(begin, y), (now, y)], "curve")
        p.path([(begin, y - 7), (begin, y + 7)], "line")
        p.text(begin, y - 18, tool, "small")
        looks = [now] if not place else range(begin + 20, now + 1, 30 if place == 1 else 10)
        for x in looks:
            p.dot(x, y, "a", 4 if place else 7)
        p.text(20, y + 5, ("one look", "as many looks as you like", "a look every minute")[place], "small")
    return p


def detection() -> Picture:
    """How long an alarm takes, by the size of the fall."""
    threshold, _ = _page_threshold()
    p = Picture(
        "Minutes until an alarm on a gate of 80 % fires, by how far the share of right answers fell, at two rates",
        360,
        "stats.prediction.labels_to_detect(p, .80, threshold, per_step=rate) / rate; threshold as in alarms.svg.",
    )

    def at(share: float, minutes: float) -> tuple[float, float]:
        return 90 + (0.78 - share) / 0.28 * 480, 300 - math.log10(minutes) / 4 * 250

    for minutes, name in ((1, "1 min"), (10, "10 min"), (60, "1 h"), (1_440, "1 day"), (10_080, "7 days")):
        x, y = at(0.78, minutes)
        p.path([(x, y), (580, y)], "thin")
        p.text(x - 8, y + 5, name, "small", "end")
    for share in (0.75, 0.70, 0.65, 0.60, 0.55, 0.50):
        p.text(at(share, 1)[0], 322, f"{100 * share:.0f} %", "small", "middle")
    p.text(330, 346, "share of right answers after the fall; the gate asks for 80 %", "small", "middle")
    for rate, look in ((1, "curve"), (10, "line")):
        shares = [0.78 - 0.005 * step for step in range(57)]
        curve = [
            at(share, max(1.0, (labels_to_detect(share, 0.80, threshold, per_step=rate) or math.inf) / rate))
            for share in shares
        ]
        p.path(curve, look)
        p.text(588, curve[-1][1] + 5, f"{rate} a minute", "bold")
        at_seventy = (labels_to_detect(0.70, 0.80, threshold, per_step=rate) or math.inf) / rate
        p.dot(*at(0.70, at_seventy), "a", 6)
        x, y = at(0.70, at_seventy)
        p.text(x + 10, y - 10, f"{at_seventy / 60:.1f} h" if at_seventy > 90 else f"{at_seventy:.0f} min", "bold")
    return p


PICTURES: Final[dict[str, Callable[[], Picture]]] = {
    "alarms": alarms,
    "detection": detection,
    "facts": facts,
    "gold": gold,
    "index": ideas,
    "privacy": privacy,
    "sampling": sampling,
    "statistics": tools,
    "trace-contract": contract,
    "verdicts": verdicts,
    "windows": windows,
}


def drawn() -> dict[Path, str]:
    """The pictures, by the file they belong in."""
    return {HERE / f"{name}.svg": draw().svg() for name, draw in PICTURES.items()}


if __name__ == "__main__":
    for path, svg in drawn().items():
        path.write_text(svg, encoding="utf-8")
    sys.stdout.write(f"{len(PICTURES)} pictures\n")
