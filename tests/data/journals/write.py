"""Writes the journals beside this file: with a ragmon of that time, served and killed.

    python write.py SOURCES NAME

SOURCES is a folder with the `ragmon` package of a commit (`git archive COMMIT ragmon | tar x -C SOURCES`), NAME what
the journal is called. What goes in is the same for all: records of two pipelines, some of them twice, traces of a
framework that become records, a saved state; then more records, and a trace and a half that still wait when the server
is killed.
"""

from __future__ import annotations

import json
import lzma
import os
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from tests.support.waiting import wait_for

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2]))

from ragmon.core.record import encode_entry  # noqa: E402
from tests.support.otlp_requests import export  # noqa: E402
from tests.support.serving import PROTOBUF, Process, asked, configuration, foreign, post, process, whole  # noqa: E402

RATER = {"rater": "user:1", "correct": True}


def main(sources: Path, name: str) -> None:
    """Write one journal, and beside it what was sent and what that ragmon said of it."""
    with tempfile.TemporaryDirectory() as at:
        folder = Path(at)
        configuration(folder)
        os.environ["PYTHONPATH"] = str(sources)
        records = [asked(n, pipeline="support" if n % 3 else "search") for n in range(40)]
        with process(folder) as first:
            send(
                first,
                whole(records[:30]),
                whole(records[:5]),
                *(export(foreign(n)).SerializeToString() for n in range(4)),
            )
            labels(first, records[0].trace_id, records[1].trace_id, "e" * 32)
            wait_for(first.books, lambda found: found["scored"] >= 34 and not found["pending"])
            assert first.stop() == 0
        with process(folder) as second:
            send(second, whole(records[30:]), export([*foreign(4), foreign(5)[1]]).SerializeToString())
            said = wait_for(second.books, lambda found: found["received"] >= 40 + 5 + 6)
            second.kill()
        with closing(sqlite3.connect(folder / "state" / "journal.db")) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        packed = lzma.compress((folder / "state" / "journal.db").read_bytes(), preset=9)
        (HERE / f"{name}.db.xz").write_bytes(packed)
        (HERE / f"{name}.jsonl").write_bytes(b"".join(map(encode_entry, records)))
        (HERE / f"{name}.json").write_text(json.dumps(said, indent=1) + "\n")


def send(running: Process, *bodies: bytes) -> None:
    """Hand in exports."""
    for body in bodies:
        assert post(f"{running.otlp}/v1/traces", body, PROTOBUF)[0] == 200


def labels(running: Process, *trace_ids: str) -> None:
    """Hand in a label on each trace, where that ragmon takes labels."""
    answer = post(f"{running.otlp}/v1/labels", [{"trace_id": one, **RATER} for one in trace_ids])
    assert answer[0] in (200, 404), answer


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2])
