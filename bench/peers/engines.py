"""Replay beside query engines that count the five metrics of the short script, each on one core.

`python -m bench.peers.engines`: chdb, duckdb and polars, where they are installed; `make peers` installs them apart.
Ragmon computes all its metrics, rows of ten seconds, intervals and gates meanwhile. Each engine is a process of its
own; its figures are the best of its rounds, CPU seconds of all its threads, without the import.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from time import process_time
from typing import Any, Final

from bench import naive
from bench.data import gold_set, write_traces
from bench.replay import SMALL, replay

ROUNDS: Final = 3
Metrics = dict[str, float]

_TOTALS: Final = """
    sum(right_) / sum(shipped), sum(hit) / sum(shipped), sum(under) / sum(unanswerable),
    sum(over_) / sum(answerable_), sum(recalled) / sum(answerable_)
"""
_CHDB: Final = """
SELECT {totals} FROM (
    SELECT lower(trim(answer_json.claim)) AS claim, answer_json.citations AS cited, claim != '{token}' AS shipped,
        answerable AND shipped AND hasAll(retrieved_ids, cited) AND hasAny(cited, wanted) AS hit,
        hit AND arrayExists(phrase -> position(claim, phrase) > 0, phrases) AS right_,
        answerable AS answerable_, NOT answerable AS unanswerable, NOT answerable AND shipped AS under,
        answerable AND NOT shipped AS over_, answerable AND hasAll(arraySlice(retrieved_ids, 1, 5), wanted) AS recalled
    FROM file('{traces}', JSONEachRow,
        'qid String, retrieved_ids Array(String), answer_json Tuple(claim String, citations Array(String))') AS t
    INNER JOIN file('{gold}', JSONEachRow,
        'qid String, answerable Bool, wanted Array(String), phrases Array(String)') AS g USING qid
) SETTINGS max_threads = 1, input_format_parallel_parsing = 0
"""
_DUCKDB: Final = """
WITH joined AS (
    SELECT lower(trim(answer_json.claim)) AS claim, answer_json.citations AS cited, *
    FROM read_json('{traces}', format = 'newline_delimited', columns = {{qid: 'VARCHAR', retrieved_ids: 'VARCHAR[]',
        answer_json: 'STRUCT(claim VARCHAR, citations VARCHAR[])'}}) AS t
    JOIN read_json('{gold}', format = 'newline_delimited', columns = {{qid: 'VARCHAR', answerable: 'BOOLEAN',
        wanted: 'VARCHAR[]', phrases: 'VARCHAR[]'}}) AS g USING (qid)
), facts AS (
    SELECT *, claim != '{token}' AS is_shipped,
        answerable AND is_shipped AND list_has_all(retrieved_ids, cited) AND list_has_any(cited, wanted) AS is_hit
    FROM joined
), flags AS (
    SELECT is_shipped::INT AS shipped, is_hit::INT AS hit,
        (is_hit AND len(list_filter(phrases, lambda phrase: contains(claim, phrase))) > 0)::INT AS right_,
        answerable::INT AS answerable_, (NOT answerable)::INT AS unanswerable,
        (NOT answerable AND is_shipped)::INT AS under, (answerable AND NOT is_shipped)::INT AS over_,
        (answerable AND list_has_all(retrieved_ids[1:5], wanted))::INT AS recalled
    FROM facts
)
SELECT {totals} FROM flags
"""


def write_gold(path: Path) -> None:
    """The gold of the metrics as a file that every engine reads."""
    with path.open("w") as file:
        for item in gold_set():
            phrases = [phrase.lower() for phrase in item.claim_substrings or () if len(phrase) >= 5]
            row = {"qid": item.qid, "answerable": item.answerable, "wanted": item.citations or [], "phrases": phrases}
            file.write(json.dumps(row) + "\n")


def _named(values: Any) -> Metrics:
    names = ("precision", "citation_hit_rate", "under_refusal", "over_refusal", "full_recall")
    return dict(zip(names, map(float, values), strict=True))


def chdb(traces: str, gold: str) -> Metrics:
    """ClickHouse in the process."""
    query = _CHDB.format(totals=_TOTALS, token=naive.TOKEN, traces=traces, gold=gold)
    return _named(str(import_module("chdb").query(query, "CSV")).split(","))


def duckdb(traces: str, gold: str) -> Metrics:
    """DuckDB."""
    connection = import_module("duckdb").connect(config={"threads": 1})
    query = _DUCKDB.format(totals=_TOTALS, token=naive.TOKEN, traces=traces, gold=gold)
    return _named(connection.execute(query).fetchone())


def polars(traces: str, gold: str) -> Metrics:
    """Polars, lazily; `POLARS_MAX_THREADS` is set by who starts this process."""
    pl = import_module("polars")
    texts = pl.List(pl.String)
    answer = pl.Struct({"claim": pl.String, "citations": texts})
    trace_schema = {"qid": pl.String, "retrieved_ids": texts, "answer_json": answer}
    gold_schema = {"qid": pl.String, "answerable": pl.Boolean, "wanted": texts, "phrases": texts}
    answers = pl.col("answer_json").struct
    ids, wanted, answerable = pl.col("retrieved_ids"), pl.col("wanted"), pl.col("answerable")
    cited, claim = answers.field("citations"), answers.field("claim").str.strip_chars().str.to_lowercase()
    shipped = claim != naive.TOKEN
    in_ids = cited.list.set_difference(ids).list.len() == 0
    hit = answerable & shipped & in_ids & (cited.list.set_intersection(wanted).list.len() > 0)
    phrase = pl.col("phrases").list.first()  # the gold of this benchmark has one at most
    right = (hit & claim.str.contains(phrase, literal=True)).fill_null(value=False)
    recalled = answerable & (wanted.list.set_difference(ids.list.head(5)).list.len() == 0)
    totals = (
        right.sum() / shipped.sum(),
        hit.sum() / shipped.sum(),
        (~answerable & shipped).sum() / (~answerable).sum(),
        (answerable & ~shipped).sum() / answerable.sum(),
        recalled.sum() / answerable.sum(),
    )
    joined = pl.scan_ndjson(traces, schema=trace_schema).join(pl.scan_ndjson(gold, schema=gold_schema), on="qid")
    return _named(joined.select(*(total.alias(str(place)) for place, total in enumerate(totals))).collect().row(0))


def ragmon(traces: str, _gold: str) -> Metrics:
    """Replay up to the report, with everything it computes."""
    replay(traces)
    return {}


ENGINES: Final[dict[str, Callable[[str, str], Metrics]]] = {
    "ragmon": ragmon,
    "chdb": chdb,
    "duckdb": duckdb,
    "polars": polars,
}


def measure(name: str, traces: str, gold: str) -> None:
    """Print the best CPU seconds of an engine in this process, and what it found."""
    found, best = ENGINES[name](traces, gold), float("inf")
    for _ in range(ROUNDS):
        started = process_time()
        ENGINES[name](traces, gold)
        best = min(best, process_time() - started)
    print(json.dumps([best, found]))


def run(name: str, traces: str, gold: str) -> tuple[float, Metrics] | str:
    """Measure an engine in a process of its own; returns why where it cannot be."""
    code = f"from bench.peers.engines import measure; measure({name!r}, {traces!r}, {gold!r})"
    command = ["env", "POLARS_MAX_THREADS=1", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return done.stderr.strip().splitlines()[-1]
    seconds, found = json.loads(done.stdout)
    return seconds, found


def main() -> None:
    """Print each engine's CPU seconds and ragmon's ratio to it; metrics that differ are named."""
    with tempfile.TemporaryDirectory() as folder:
        traces, gold = f"{folder}/traces.jsonl", f"{folder}/gold.jsonl"
        write_traces(Path(traces), SMALL, gold_set())
        write_gold(Path(gold))
        with Path(traces).open("rb") as file:
            expected = naive.score(file, gold_set())
        own = float("nan")
        for name in ENGINES:
            result = run(name, traces, gold)
            if isinstance(result, str):
                print(f"{name:8} not measured: {result}", flush=True)
                continue
            seconds, found = result
            own = seconds if name == "ragmon" else own
            wrong = [metric for metric, value in found.items() if abs(value - expected[metric]) > 1e-9]
            ratio = (
                f"ragmon at {seconds / own:.2f} times its rate" if name != "ragmon" else "all metrics, rows and gates"
            )
            print(f"{name:8} {seconds:.2f} CPU seconds: {ratio}{f'; differs in {wrong}' if wrong else ''}", flush=True)


if __name__ == "__main__":
    main()
