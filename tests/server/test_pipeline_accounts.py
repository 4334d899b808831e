"""What becomes of each request: counted once and as it was when it came, whatever happened to the server meanwhile."""

from __future__ import annotations

import random
from functools import partial

from ragmon.core.record import Latency
from ragmon.server import journal
from ragmon.server.journal import Keys
from ragmon.server.pending import IN_MEMORY
from ragmon.stream.assembler import AssemblyLimits, is_sampled
from tests.support.manual_writer import NO_ERRORS, ManualWriter, body, inside
from tests.support.serving import asked, foreign, journalled, whole

RARE = "[sampling]\nrate = 0.01\n"


def test_a_late_span_beside_a_new_trace_is_late_after_a_crash_as_well(tmp_path):
    """Its trace was done an hour ago; both came in one export, which waits on disk for the rest of the new one."""
    with ManualWriter(tmp_path) as manual:
        old = foreign(1, at=manual.time.now)
        manual.send(body(*old))
        manual.tick(4000)
        manual.send(body(old[1]._replace(span_id=f"{77:016x}"), *foreign(2, at=manual.time.now)))
        assert (manual.books.received, manual.books.scored, manual.books.pending) == (2, 1, 1)
        manual.again()
        assert (manual.books.received, manual.books.scored, manual.books.pending) == (2, 1, 1)
        manual.tick(100)
        assert (manual.books.received, manual.books.scored, manual.books.residual) == (2, 2, 0)
        assert manual.server_state.counts.spans == {"late": 1}


def test_a_span_that_came_after_the_rate_was_lowered_survives_a_crash(tmp_path):
    """Its trace was drawn at the rate before and waits: the question and the answer are in the record."""
    with ManualWriter(tmp_path) as manual:
        root, retrieval = foreign(1, at=manual.time.now)
        manual.send(body(retrieval))
        manual.reload(RARE)
        assert not is_sampled(bytes.fromhex(root.trace_id), manual.writer.open_traces.lowest)
        manual.send(body(root))
        manual.again()
        manual.tick(5)
    (record,) = journalled(tmp_path)
    assert (record.facts.answered, record.latency_ms.total, record.partial) == (True, 1000.0, False)


def test_a_trace_weighs_by_the_rate_at_which_it_was_drawn(tmp_path):
    """Whatever the rate was when it was complete."""
    with ManualWriter(tmp_path) as manual:
        manual.send(body(*foreign(1, at=manual.time.now)))
        manual.reload(RARE)
        manual.tick(10)
    (record,) = journalled(tmp_path)
    assert (record.sampling.p, record.sampling.p_audit) == (1.0, 1.0)


def test_a_decorated_call_that_ends_long_after_its_retrieval_counts_once(tmp_path):
    """What was traced in it had been taken for a request of its own by then, since no root of it came."""
    with ManualWriter(tmp_path) as manual:
        record = asked(1, ts=manual.time.now + 90)
        manual.send(body(*inside(record, 1, manual.time.now)))
        manual.tick(90)
        assert manual.books.scored == 1
        manual.send(whole([record]))
        assert (manual.books.received, manual.books.scored, manual.books.duplicate) == (2, 1, 1)


def test_a_trace_that_comes_again_after_more_than_a_day_counts_once(tmp_path, monkeypatch):
    """Nobody knows any more that it came already: it is older than what is taken, though a window would hold it."""
    monkeypatch.setattr(journal, "Keys", partial(Keys, fresh=4))
    with ManualWriter(tmp_path, 'windows = ["5m", "7d"]\n') as manual:
        one = body(*foreign(1, at=manual.time.now))
        manual.send(one)
        manual.tick(10)
        for n in range(20):  # new keys push the old ones into the table, where they expire
            manual.time.now += 1.3 * 3600
            manual.send(whole([asked(k, ts=manual.time.now) for k in range(4 * n, 4 * n + 4)]))
        manual.expire()
        manual.again()
        assert not manual.writer.journal.finished([bytes.fromhex(foreign(1)[0].trace_id)])
        manual.send(one)
        manual.tick(10)
        assert (manual.books.scored, manual.books.dropped, manual.books.residual) == (81, {"too_old": 1}, 0)


def test_what_failed_a_gate_just_before_a_crash_can_be_found_after_it(tmp_path):
    """A checkpoint had been written: the rows before it are not read again."""
    with ManualWriter(tmp_path, NO_ERRORS) as manual:
        manual.send(whole([asked(n, ts=manual.time.now, error="TimeoutError") for n in range(5)]))
        assert not manual.failures()
        manual.save()
        manual.again()
        manual.tick(1)
    assert len(manual.failures()) == 5


def test_what_failed_a_gate_just_before_the_configuration_was_read_again_can_be_found(tmp_path):
    with ManualWriter(tmp_path, NO_ERRORS) as manual:
        manual.send(whole([asked(n, ts=manual.time.now, error="TimeoutError") for n in range(5)]))
        manual.reload()
        manual.tick(1)
    assert len(manual.failures()) == 5


def test_the_largest_and_the_smallest_numbers_cost_no_request(tmp_path):
    """In every field that holds one, for longer than it takes alarms to have a baseline; and it can begin again."""
    rng = random.Random(1)
    numbers = [0.0, 5e-324, 1e-300, 1.0, 200.0, 1e15, 1e300, 1.7e308]
    with ManualWriter(tmp_path, NO_ERRORS) as manual:
        for minute in range(90):
            records = [
                asked(
                    20 * minute + n,
                    ts=manual.time.now,
                    latency_ms=Latency(total=rng.choice(numbers)),
                    scores=[rng.choice([*numbers, -1e308, -5e-324])] * 3,
                    measures={"groundedness": rng.choice(numbers), "answer_relevancy": -1e308},
                )
                for n in range(20)
            ]
            manual.send(whole(records))
            manual.tick(60)
        manual.save()
        manual.again()
        assert (manual.books.scored, manual.books.dropped) == (90 * 20, {})
        assert manual.agrees()


def test_what_waits_takes_memory_for_each_request_as_a_whole_and_once(tmp_path):
    """A span keeps the request it came in: of two traces in one request, the first that is done frees nothing."""
    with ManualWriter(tmp_path, assembly_limits=AssemblyLimits(idle=5.0, rootless=60.0)) as manual:
        at, room = manual.time.now, manual.writer.open_traces._room
        both = body(*foreign(1, at=at), *foreign(2, parent=f"{9:016x}", at=at))
        rest = body(foreign(3, parent=f"{9:016x}", at=at)[1])
        manual.send(both, rest)
        assert room.size == IN_MEMORY * (len(both) + len(rest))
        manual.tick(10)
        assert (manual.books.scored, manual.books.pending) == (1, 2)
        assert room.size == IN_MEMORY * (len(both) + len(rest))
        manual.tick(60)
        assert (manual.books.pending, room.size) == (0, 0)
