"""Small inputs full of the cases the documents disagree about: gold items, traces, and the other documents' shapes.

Values are JSON values. `raw=True` adds what only the compat modes must swallow: `answerable` that is no boolean, two
gold items with one qid, and now and then a value that crashes the published script.
"""

from __future__ import annotations

from hypothesis import strategies as st

from tests.support.oracle.draw import ABSENT, drawn, without_absent

IDS = ("p1#1", "p1#2", "p2#1", "normans#1", "a,b", "文書§1", 700, "700")
QIDS = ("q1", "q2", "Ärzte", "a|b", "<b>q</b>", 0, 12)
SUBSTRINGS = (
    "rejects null keys",
    "ITV",
    "12",
    "Röntgen",
    "only domain example.com",
    "Straße",
    "C++",
    "ｎｕｌｌ",
    "cafe\u0301",
    "北京",
    "東京タワー",
    "กรุงเทพ",
    "Москва",
    "",
)
GOLD_CLAIMS = (
    "X rejects null keys.",
    "Röntgen, who found X-rays",
    "ITV",
    "X is a constrained mapping.",
    "北京是中国的首都",
    "",
)
TEXTS = (
    "The cat sat.",
    "a cat sat!",
    "C++ rejects null keys",
    "Röntgen discovered X-rays in 1895.",
    "Apple is founded before Google.",
    "北京 is the capital",
    "Apple is founded before Google. The cat sat.",
    "X, of ITV, rejects 12 null domains: nothing known of Röntgen or Straße",
    "The A!!",
)
REFUSALS = ("not in context", "  NOT IN CONTEXT ", "not in context.", "Ｎot in context", "Not in  context")
NO_CLAIMS = ("", "   ", None, ABSENT)
AROUND = ("", " ", "x", "The ", "5", "-", "是", ". ", "\u0301")
RAW_ANSWERABLE = (True, False, ABSENT, None, "false", "true", 0, 1)
SECTIONS = ("p1#", "p2#", "nowhere")
STOP = frozenset({"the", "is", "of", "in"})

# --- the page-1.1 shapes: gold items and traces -----------------------------------------------------------------------


def gold_item(draw, qid, *, raw):
    """One gold item."""
    return without_absent(
        qid=qid,
        question=f"What about {qid}?",
        answerable=draw.one(RAW_ANSWERABLE) if raw else draw.one((True, True, False)),
        gold_claim_substr=draw.or_missing(lambda: draw.some(SUBSTRINGS, 3)),
        gold_claim=draw.one((ABSENT, ABSENT, ABSENT, None, *GOLD_CLAIMS)),
        gold_citations=draw.or_missing(lambda: draw.some(IDS, 3), weight=2),
        gold_contexts=draw.or_missing(lambda: draw.some(TEXTS, 3), weight=3),
        gold_sections=draw.mostly(lambda: ABSENT, lambda: draw.some(SECTIONS, 2)),
    )


def gold_items(draw, *, raw=False):
    """Up to six gold items; qids differ unless `raw`."""
    qids = draw.some(QIDS, 6, 0) if raw else draw.distinct(QIDS, 6)
    return [gold_item(draw, qid, raw=raw) for qid in qids]


def claim(draw, item):
    """A refusal or near refusal, nothing, or a sentence around one of the item's own phrases."""

    def sentence():
        own = [*(item.get("gold_claim_substr") or []), item.get("gold_claim") or "nothing known"]
        phrase = draw.one((draw.one(own), draw.one(own).upper(), draw.one(SUBSTRINGS)))
        return draw.one(AROUND) + phrase + draw.one(AROUND)

    refusal = lambda: draw.one(REFUSALS)  # noqa: E731 - drawn twice as often as the others
    return draw.mostly(sentence, refusal, refusal, lambda: draw.one(TEXTS), lambda: draw.one(NO_CLAIMS))


def answer(draw, item, retrieved):
    """`answer_json` that cites gold, retrieved or foreign ids, or breaks the contract."""
    gold = item.get("gold_citations") or []
    right = [one for one in gold if one in (retrieved or [])] or [*gold, IDS[0]]
    near = lambda: draw.some([*gold, *(retrieved or []), IDS[0]], 3)  # noqa: E731 - drawn twice as often
    citations = draw.mostly(
        lambda: draw.some(right, 2),
        near,
        near,
        lambda: draw.or_missing(lambda: draw.some(IDS, 3)),
        lambda: str(right[0]),
    )
    return without_absent(claim=claim(draw, item), citations=citations)


def trace(draw, number, gold):
    """The trace of one gold item, now and then of none."""
    item = draw.one(gold) if gold and draw.number(6) else {}
    known = [*(item.get("gold_citations") or []), *IDS]
    retrieved = draw.or_missing(lambda: draw.some(known, 8))
    return without_absent(
        trace_id=f"{number:032x}",
        ts=1763683200.0 + number,
        qid=item["qid"] if item else draw.one(("unknown", ABSENT)),
        q=item.get("question", "Something else?"),
        retrieved_ids=retrieved,
        candidate_ids=draw.or_missing(lambda: draw.some(known, 8), weight=1),
        contexts=draw.or_missing(lambda: draw.some([*(item.get("gold_contexts") or []), *TEXTS], 5)),
        answer_json=draw.mostly(
            lambda: answer(draw, item, None if retrieved is ABSENT else retrieved),
            lambda: draw.one((ABSENT, None, {})),
            weight=9,
        ),
        error=draw.mostly(lambda: ABSENT, lambda: draw.one((None, "timeout", "")), weight=4),
        latency_ms=draw.one((ABSENT, 120, 5000.0, {"total": 80.5, "retrieve": 30}, {"total": 1000}, {"retrieve": 5})),
        verdicts=draw.one((ABSENT, ABSENT, None, [draw.number(1) for _ in range(draw.number(5))])),
    )


def pair(draw, *, raw=False):
    """A gold set and up to eight traces: repeated qids, unknown qids, items without a trace."""
    gold = gold_items(draw, raw=raw)
    traces = [trace(draw, number, gold) for number in range(draw.number(8))]
    return (spoiled(draw, gold), spoiled(draw, traces)) if raw else (gold, traces)


CRASHING = ({"qid": ["q1"]}, {"gold_claim_substr": [5]}, {"gold_citations": [[]]}, {"gold_citations": 5})
UNREADABLE = ({"answer_json": ["claim"]}, {"retrieved_ids": 5}, {"retrieved_ids": [{}]}, {"answer_json": {"claim": 5}})


def spoiled(draw, records):
    """The records; one time in twenty one of them carries a field no script expects."""
    if records and draw.number(19) == 19:
        number = draw.number(len(records) - 1)
        records[number] = records[number] | draw.one((*CRASHING, *UNREADABLE))
    return records


def pairs(*, raw=False):
    """A gold set and traces for it."""
    return drawn(lambda draw: pair(draw, raw=raw), 540)


def gates():
    """Values of the page-1.1 `--gates` option; with some of them the script crashes."""
    default = "precision=0.80,chr=0.75,under=0.05,over=0.10"
    lenient = "precision=0,chr=0.0,under=1,over=1"
    readable = (default, default + ",recall=0.9", lenient, "precision=0.5,chr=0.5,under=0.5,over=0.5")
    crashing = ("precision=0.80", "", "precision=high,chr=0,under=1,over=1", "precision=0=1", "chr=0,under=1,over=1")
    return st.sampled_from((*readable * 5, *crashing))
