"""One message from a clock that is a year ahead, on a broker: it is dropped by name, and all others are counted."""

from __future__ import annotations

import time

import pytest

from ragmon.config.load import load
from ragmon.core.constants import CLOCK_AHEAD
from ragmon.core.record import encode
from tests.support.brokers import broker
from tests.support.partitions import counted_at_once
from tests.support.serving import asked, get, process, replayed, values, whole
from tests.support.waiting import wait_for
from tests.support.workers import configured, scored, working

YEAR = 365 * 86_400.0


def honest(first, number):
    """Records of the last seconds, their numbers from one on."""
    now = time.time()
    return [asked(n, ts=now - 2 + place / 1e4) for place, n in enumerate(range(first, first + number))]


@pytest.mark.slow
@pytest.mark.parametrize(("partitions", "encoding"), [(1, "records"), (2, "otlp_proto")])
def test_one_message_a_year_ahead_among_6400_holds_up_no_other(tmp_path, partitions, encoding):
    """Also when the worker is killed with -9 after the message came."""
    body = encode if encoding == "records" else lambda record: whole([record])
    with broker(tmp_path) as mesh:
        mesh.create(partitions, "otlp_spans", "ragmon.chunks")
        for name, more in (("a", ""), ("head", 'from = "stream"\n')):
            path = configured(tmp_path / name, mesh.address, more)
            path.write_text(path.read_text().replace('encoding = "records"', f'encoding = "{encoding}"'))
        send = lambda records, ahead=0.0: mesh.send(  # noqa: E731 - the time of the message, not of the record
            "otlp_spans", [(record.ts + ahead, record.trace_id, body(record)) for record in records]
        )
        records = honest(0, 100)
        send(records)
        with working(tmp_path / "a") as first, process(tmp_path / "head") as head:
            wait_for(lambda: scored(head) == 100)
            send(honest(100, 1), YEAR)
            first.kill()
            with working(tmp_path / "a") as worker:
                records += (rest := honest(200, 6300))
                send(rest)
                sent = time.monotonic()
                wait_for(lambda: scored(head) == 6400 or time.monotonic() - sent > 90)
                books = wait_for(head.books, lambda found: found["dropped"] or time.monotonic() - sent > 90)
                assert (books["scored"], books["dropped"]) == (6400, {CLOCK_AHEAD: 1})
                assert (books["residual"], books["pending"], books["duplicate"]) == (0, 0, 0)
                assert {get(f"{of}/readyz") for of in (head.admin, worker.admin())} == {(200, "ok\n")}
                shown = values(get(f"{head.admin}/metrics")[1])
                behind = [shown[key] for key in shown if key.startswith("ragmon_stream_partition_behind_seconds")]
                assert len(behind) == partitions
                assert max(behind) < 90
                assert shown["ragmon_stream_watermark_timestamp_seconds"] < time.time() + 60
                shown = worker.shown()
                done = ("ragmon_worker_counted_total", "ragmon_worker_remembered_total")
                assert shown["ragmon_worker_read_total"] == sum(shown[name] for name in done)  # nothing waits
            assert head.stop() == 0
    once = counted_at_once(load(tmp_path / "head" / "ragmon.toml", environ={}), records)
    assert replayed(tmp_path / "head") == once.scorer.state.digest()
