"""A replay on Spark: the report and the alarms of `ragmon replay`, whatever is divided or killed."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from ragmon.alarms.pipelines import as_alert_line
from ragmon.config.load import load
from ragmon.core.record import Label, encode
from tests.support.alarming import mixed, write_config
from tests.support.command_line import ragmon
from tests.support.waiting import TIMEOUT

sql = pytest.importorskip("pyspark.sql")
functions = pytest.importorskip("pyspark.sql.functions")
replay = pytest.importorskip("ragmon.stream.spark").replay
ROOT = Path(__file__).parents[2]
FILES = 6


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """An hour of traffic in several files, and a configuration."""
    folder = tmp_path_factory.mktemp("archive")
    write_config(folder)
    (folder / "traces").mkdir()
    records = [msgspec.structs.replace(r, trace_id=f"{n:032x}") for n, r in enumerate(mixed(3, 60))]
    lines = [encode(record) for record in records]
    lines.insert(77, b"{ no record\n")
    size = len(lines) // FILES + 1
    for number in range(FILES):
        body = b"".join(lines[number * size : (number + 1) * size])
        (folder / "traces" / f"{number}.jsonl").write_bytes(body)
        (folder / "traces" / f"{number}.jsonl.gz").write_bytes(gzip.compress(body))
    return folder


@pytest.fixture(scope="module")
def expected(archive):
    """What the command makes of it."""
    files = sorted(map(str, (archive / "traces").glob("*.jsonl")))
    edges = archive / "edges"
    done = ragmon("replay", *files, "--config", archive / "ragmon.toml", "--alerts-out", edges, "--format", "json")
    assert done.code == 0, done.err
    return done.json, [json.loads(line) for line in edges.read_text().splitlines()]


@pytest.fixture(scope="module")
def session():
    """A session with two threads."""
    if not os.access("/usr/bin/java", os.X_OK) and "JAVA_HOME" not in os.environ:
        pytest.skip("there is no Java")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.files.maxPartitionBytes": "300k",
    }
    builder = sql.SparkSession.builder.master("local[2]").appName("ragmon")
    for name, value in options.items():
        builder = builder.config(name, value)
    running = builder.getOrCreate()
    running.sparkContext.setLogLevel("ERROR")
    yield running
    running.stop()


def same(result, expected):
    """Whether a result is what the command wrote."""
    report, edges = expected
    found = json.loads(result.report.json())
    assert found["digest"] == report["digest"]
    assert found["gates"] == report["gates"]
    assert (found["records"]["read"], found["records"]["scored"]) == (
        report["records"]["read"],
        report["records"]["scored"],
    )
    assert [as_alert_line(edge) for edge in result.edges] == edges
    assert len(edges) >= 4


@pytest.mark.slow
@pytest.mark.parametrize("form", ["jsonl", "jsonl.gz"])
def test_text_of_any_division_gives_the_digest_and_the_edges_of_the_command(session, archive, expected, form):
    lines = session.read.text(f"{archive}/traces/*.{form}")
    assert lines.rdd.getNumPartitions() > 2
    same(replay(lines, archive / "ragmon.toml"), expected)


@pytest.mark.slow
def test_parquet_gives_them_as_well(session, archive, expected):
    table = archive / "table.parquet"
    session.read.json(f"{archive}/traces/*.jsonl", mode="DROPMALFORMED").write.parquet(str(table))
    result = replay(
        session.read.parquet(str(table)).select(functions.to_json(functions.struct("*"))), load(archive / "ragmon.toml")
    )
    assert result.report.digest == expected[0]["digest"]
    assert [as_alert_line(edge) for edge in result.edges] == expected[1]


@pytest.mark.slow
def test_labels_find_their_answers_in_other_tasks(session, archive):
    labels = [Label(trace_id=f"{number:032x}", rater="ada", correct=number % 2 == 0) for number in range(0, 6000, 100)]
    result = replay(session.read.text(f"{archive}/traces/*.jsonl"), archive / "ragmon.toml", labels)
    told = archive / "labels.jsonl"
    told.write_bytes(b"".join(map(encode, labels)))
    files = sorted(map(str, (archive / "traces").glob("*.jsonl")))
    done = ragmon(
        "replay", *(f for f in files if f != str(told)), "--config", archive / "ragmon.toml", "--labels", told
    )
    told.unlink()
    assert json.loads(result.report.json())["labels"] == done.json["labels"]


@pytest.mark.slow
def test_an_executor_that_is_killed_changes_nothing(archive, expected):
    """`local-cluster[2,1,1024]`: one of two executors is killed with -9 while it counts; its tasks are tried again."""
    program = [sys.executable, str(ROOT / "tests/support/spark_cluster.py"), str(archive)]
    done = subprocess.run(
        program,
        check=False,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["killed"]
    assert found["digest"] == expected[0]["digest"]
    assert found["edges"] == expected[1]
