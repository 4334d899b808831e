"""The matrix in docs/integrations/instrumentations.md, made from recordings of real packages.

A row is a combination of `tests.support.combinations`, recorded by `tests.support.record_agents`. Whether a recording
can be read is decided anew each time, so that the matrix follows the mapper. `python -m
tests.support.instrumentation_table` writes the page anew.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from ragmon.core.refusals import RefusalRule
from ragmon.ingest.spans.span import SpanOptions
from tests.support import recorded_agents
from tests.support.combinations import COMBINATIONS
from tests.support.recorded_agents import AskedQuestion

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "integrations" / "instrumentations.md"
BEGIN, END = "<!-- table: python -m tests.support.instrumentation_table -->\n", "<!-- end of the table -->\n"
COLUMNS: Final = ("question", "answer", "ids", "citations", "refusal", "error", "session", "stream")
STREAMED: Final = ("question", "answer", "ids", "citations")
"""The columns that a streamed request is judged by."""
YES: Final = "yes"
ABSENT: Final = "–"
"""The spans do not carry it."""
UNREAD: Final = "no"
"""The spans carry it, and it is not read."""
_FAILURES: Final = ('"STATUS_CODE_ERROR"', '"ERROR"', "exception.type")
_REFUSES: Final = RefusalRule().kind


def verdicts(asked: AskedQuestion, options: SpanOptions) -> dict[str, str]:
    """What ragmon reads of one request in each column: `YES`, `ABSENT`, `UNREAD`, or "" where the program has none."""
    records = asked.records(options)
    record = records[0] if len(records) == 1 else None
    answer = None if record is None else record.answer_json
    claim = None if answer is None or answer.claim is None else answer.claim.strip()
    traces = _written(asked)
    of_records = {found.trace_id for found in records}
    if of_records:  # what stands in another trace is not known to be of the same request
        traces = {trace: traces[trace] for trace in of_records if len(of_records) == 1}
    failed = any(mark in written for written in traces.values() for mark in _FAILURES)

    def cell(read: Any, returned: Any, texts: Iterable[str | None]) -> str:
        if returned is None:
            return ""
        return YES if read == returned and record is not None else _carried(texts, traces.values())

    answered = asked.answer is not None
    return {
        "question": cell(record and record.q, asked.q, [asked.q]),
        "answer": cell(claim, asked.answer, [asked.answer]),
        "ids": cell(record and record.retrieved_ids, asked.ids or None, asked.ids),
        "citations": cell(answer and answer.citations, asked.citations, [asked.answer, *asked.ids]),
        "refusal": cell(bool(claim and _REFUSES(claim)), asked.refuses if answered else None, [asked.answer]),
        "error": cell(bool(record and record.error), asked.error is not None, [] if failed else [None]),
        "session": cell(record and record.session, asked.session, [asked.session]),
    }


def _written(asked: AskedQuestion) -> dict[str, str]:
    """What stands in the spans and log records of each trace."""
    found = defaultdict(list)
    for request in asked.requests:
        for process in (*request.get("resourceSpans", ()), *request.get("resourceLogs", ())):
            for scope in (*process.get("scopeSpans", ()), *process.get("scopeLogs", ())):
                for item in (*scope.get("spans", ()), *scope.get("logRecords", ())):
                    found[item.get("traceId", "")].append(item)
    return {trace: json.dumps(items, ensure_ascii=False) for trace, items in found.items()}


def _carried(texts: Iterable[str | None], traces: Iterable[str]) -> str:
    # JSON in a text in JSON has one backslash more before each quotation mark and newline.
    wanted = ["" if text is None else json.dumps(text, ensure_ascii=False)[1:-1] for text in texts]
    return UNREAD if all(wanted) and any(all(text in written for text in wanted) for written in traces) else ABSENT


def cells(questions: Sequence[AskedQuestion], options: SpanOptions) -> dict[str, str]:
    """The row of a recording, by column: the worst of its requests.

    The request that is streamed counts in its own column alone, for what is read of requests that are not.
    """
    told = [(asked.stream, verdicts(asked, options)) for asked in questions]
    row = {column: _worst(of[column] for streamed, of in told if not streamed) for column in COLUMNS[:-1]}
    row["error"] = row["error"] if any(asked.error for asked in questions) else ""
    row["refusal"] = row["refusal"] if any(asked.refuses for asked in questions) else ""
    read = [column for column in STREAMED if row[column] == YES] or ["answer"]
    return row | {"stream": _worst(of[column] for streamed, of in told if streamed for column in read)}


def _worst(found: Iterable[str]) -> str:
    return max(found, key=("", YES, ABSENT, UNREAD).index, default="")


def options_of(name: str) -> SpanOptions:
    """The options of spans that a row's setting stands for."""
    return SpanOptions(**COMBINATIONS[name].options)


def table() -> str:
    """The matrix, in Markdown."""
    columns = ("framework, instrumentation", "versions", *COLUMNS, "setting")
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for name, row in COMBINATIONS.items():
        versions = ", ".join(map(" ".join, recorded_agents.versions(name).items()))
        found = cells(recorded_agents.questions(name), options_of(name))
        lines.append(f"| {' | '.join((row.title, versions, *found.values(), row.setting))} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """The page with the matrix as it would be written."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
