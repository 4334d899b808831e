"""The same gold and traces, judged by ragmon's own definitions and by a published scorer."""

from __future__ import annotations

import json

from ragmon.compat import Options, run
from ragmon.core.policy import Policy
from ragmon.ingest.gold import GoldIndex, GoldSet
from ragmon.metrics.facts import FactReader
from ragmon.monitor.replay import run_files
from ragmon.scoring.scorer import ReductionRules, Scorer


class SideBySide:
    """Files in a folder, and what both make of them; strings stand for raw lines.

    Args:
        folder: Where the files are written.
    """

    def __init__(self, folder):
        self.folder = folder

    def lines(self, name, records):
        path = self.folder / name
        text = "".join((record if isinstance(record, str) else json.dumps(record)) + "\n" for record in records)
        path.write_text(text, encoding="utf-8")
        return str(path)

    def gold(self, records, match="exact"):
        """Ragmon's reading of a gold file."""
        return GoldSet.load(self.lines("gold.jsonl", records), "gold", match=match)

    def own(self, gold, traces, *, match="exact", policy=None, duplicates="all"):
        """Ragmon's report, where answers must carry a list of citations; `gold` is a list of records or a gold set."""
        index = GoldIndex(gold if isinstance(gold, GoldSet) else self.gold(gold, match))
        rules = ReductionRules(FactReader(citations_required=True))
        paths = [self.lines("trace.jsonl", traces)]
        done = run_files(paths, lambda: Scorer(index, rules=rules), duplicates=duplicates)
        return done.report(policy or Policy())

    def published(self, mode, gold, traces, **options):
        """Exit code and output of the published scorer; JSON is parsed."""
        path = gold if isinstance(gold, str) else self.lines("gold.jsonl", gold)
        result = run(mode, [self.lines("trace.jsonl", traces)], path, Options(**options))
        text = result.text
        return result.exit_code, json.loads(text) if text.startswith("{") and text.count("\n{") == 0 else text

    def eval_page(self, gold, traces, **options):
        """The JSON report of seed 000."""
        code, report = self.published("seed-000", gold, traces, **options)
        assert code == 0
        return report


def values(report, *names):
    """The values of metrics; None where there is no data."""
    found = [report.metric(name).value for name in names]
    return found[0] if len(found) == 1 else found


def reasons(report, name):
    """Why a metric could not be assessed."""
    return dict(report.metric(name).unassessed)


def gold(qid="q1", **fields):
    """An answerable item with one phrase and one document."""
    return {"qid": qid, "answerable": True, "gold_claim_substr": ["null keys"], "gold_citations": ["p1"], **fields}


def unanswerable(qid="u1"):
    return gold(qid, answerable=False, gold_claim_substr=[], gold_citations=[])


def trace(qid="q1", claim="X rejects null keys.", citations=("p1",), retrieved=("p1", "p2"), **fields):
    """A right answer to that item."""
    cited = list(citations) if isinstance(citations, tuple | list) else citations
    return {
        "qid": qid,
        "retrieved_ids": list(retrieved),
        "answer_json": {"claim": claim, "citations": cited},
        **fields,
    }


def refusal(qid="q1"):
    return trace(qid, "not in context", ())
