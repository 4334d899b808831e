"""What large requests take of a real server's memory: bounded while they come, and given back when they are done.

Memory is what Linux says of the process: `VmHWM` is the most it ever had, `VmRSS` what it has.
"""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import os
import tracemalloc
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from ragmon.core.http_server import HTTPError, RequestLimits
from ragmon.ingest.otlp import read
from ragmon.ingest.receiver import MemoryLimiter, receiver_app
from tests.support.otlp_requests import export, field
from tests.support.process_usage import cpu_seconds, peak, resident
from tests.support.serving import PROTOBUF, asked, configuration, foreign, post, process, whole
from tests.support.waiting import TIMEOUT, wait_for

MIB = 1 << 20
LARGE = 7_500_000
AT_ONCE = 16


def large(number):
    """An export of 7.5 MB: traces with a document of 30 kB each, which no two share."""
    traces, size = [], 0
    while size < LARGE:
        text = os.urandom(7500).hex() * 2
        traces += foreign(1000 * number + len(traces), content=text)
        size += len(text)
    return export(traces).SerializeToString()


def hand_in(running, body, encoding):
    """Send a body, again where that is asked for; returns whether it was taken."""
    headers = {"Content-Type": PROTOBUF, "Content-Encoding": encoding}
    data = gzip.compress(body, 1) if encoding == "gzip" else body

    def told():
        try:
            with urllib.request.urlopen(
                urllib.request.Request(f"{running.otlp}/v1/traces", data, headers), timeout=60
            ) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except (urllib.error.URLError, ConnectionError):
            return 429  # it was refused before it was sent as a whole, and hung up on

    return wait_for(told, lambda status: status != 429) == 200


@pytest.mark.slow
def test_sixteen_large_requests_at_once_plain_and_then_compressed(tmp_path):
    """They take turns; a small one waits for few of them, and the second wave leaves no more memory than the first."""
    configuration(tmp_path)
    bodies = [large(number) for number in range(AT_ONCE)]
    with process(tmp_path) as running, ThreadPoolExecutor(AT_ONCE) as threads:
        begun, left = resident(running.pid) / MIB, []
        for wave, encoding in enumerate(("identity", "gzip")):
            begun_at = cpu_seconds(running.pid)
            sent = [threads.submit(hand_in, running, body, encoding) for body in bodies]
            longest = longest_beside(running, sent, wave)
            assert longest < (cpu_seconds(running.pid) - begun_at) / 2
            assert all(future.result() for future in sent)
            wait_for(running.books, lambda found: not found["pending"])
            left.append(wait_for(lambda: resident(running.pid) / MIB, lambda found: found < begun + 80))
        assert peak(running.pid) / MIB < 400
        assert left[1] < left[0] + 30
        assert running.books()["residual"] == 0


def longest_beside(running, sent, wave):
    """Seconds of the server's time until a small request was answered, at most, while large ones are."""
    longest, small = 0.0, 0
    while not all(future.done() for future in sent):
        begun, small = cpu_seconds(running.pid), small + 1
        body = whole([asked(1_000_000 * wave + small)])
        assert post(f"{running.otlp}/v1/traces", body, PROTOBUF)[0] == 200
        longest = max(longest, cpu_seconds(running.pid) - begun)
    return longest


def test_a_span_that_waits_keeps_its_own_bytes_and_not_its_request():
    body = export([*foreign(1, content="a" * 50_000), *foreign(2)]).SerializeToString()
    waiting = read(body, json=False).external
    assert [len(one.content) // 10_000 for one in waiting] == [0, 5, 0, 0]


class TestTurns:
    """Large bodies are taken apart in turn; small ones wait for nobody."""

    def test_so_many_large_ones_at_once_and_small_ones_beside_them(self):
        async def found():
            intake, running, most = MemoryLimiter(RequestLimits(small=10, turns=2)), 0, 0

            async def one():
                nonlocal running, most
                async with intake.turn(11):
                    running += 1
                    most = max(most, running)
                    await asyncio.sleep(0)
                    async with intake.turn(10):
                        running -= 1

            await asyncio.gather(*(one() for _ in range(20)))
            return most

        assert asyncio.run(found()) == 2

    def test_whose_turn_does_not_come_is_asked_to_try_again(self):
        async def found():
            intake = MemoryLimiter(RequestLimits(small=10, turns=1, deadline=0.01))
            async with intake.turn(11):
                with pytest.raises(HTTPError) as error:
                    async with intake.turn(11):
                        pass
            async with intake.turn(11):
                return error.value

        refused = asyncio.run(found())
        assert (refused.status, refused.reason) == (429, "rate_limited")
        assert refused.retry_after

    def test_where_large_bodies_fill_the_house_small_ones_still_find_room(self):
        intake = MemoryLimiter(RequestLimits(memory=600, small=50))
        with intake.ticket() as full, intake.ticket() as other:
            full.reserve(600)
            with pytest.raises(HTTPError):
                other.reserve(51)
            other.reserve(50)
            with pytest.raises(HTTPError):
                other.reserve(1)  # now it is no small one
        assert intake.reserved == 0


@pytest.mark.slow
def test_labels_that_are_refused_leave_nothing_in_memory(tmp_path):
    """Whoever caught the refusal kept the labels it was about: eight requests took 274 MiB, for good."""
    configuration(tmp_path)
    told = [{"trace_id": f"{n:032x}", "correct": True, "rater": f"r{n}"} for n in range(80_000)]
    body = json.dumps(told).encode()
    with process(tmp_path) as running:
        post(f"{running.otlp}/v1/traces", whole([asked(1)]), PROTOBUF)
        before = resident(running.pid) / MIB
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: post(f"{running.otlp}/v1/labels", body)[0], range(8)))
        assert set(answers) <= {413, 429}
        assert 413 in answers
        wait_for(lambda: resident(running.pid) / MIB, lambda held: held <= before + 30)


@pytest.mark.slow
@pytest.mark.parametrize("part", [b"\x5a\x00", b"\x6a\x00"], ids=["events", "links"])
def test_a_request_of_empty_parts_takes_little_more_memory_than_its_body(tmp_path, part):
    """Ten million links in one span were 1.9 GiB."""
    configuration(tmp_path)
    span = field(1, b"t" * 16) + field(2, b"s" * 8) + part * (3 * MIB)
    body = field(1, field(2, field(2, span)))
    with process(tmp_path) as running:
        before = peak(running.pid) / MIB
        assert post(f"{running.otlp}/v1/traces", body, PROTOBUF)[0] == 413
        assert peak(running.pid) / MIB <= before + 60


class Refusing:
    """A consumer that takes nothing; refusals are not counted."""

    def refuse(self, reason):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("body", [b"[" + b" " * 7_000_000 + b"]x", b" " * 7_000_000 + b"["])
def test_a_refused_body_is_not_kept_while_its_response_waits_for_the_client(body):
    """The client does not read: its request was given back to the limit, so its body must not be in memory."""
    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
    scope = {"type": "http", "http_version": "1.1", "method": "POST", "path": "/v1/labels", "raw_path": b"/v1/labels"}
    scope |= {"root_path": "", "query_string": b"", "scheme": "http", "headers": headers, "state": {}}
    app, answered = receiver_app(Refusing(), token=None), asyncio.Event()
    events = [{"type": "http.request", "body": bytes(bytearray(body)), "more_body": False}]

    async def receive():
        if events:
            return events.pop()
        return await asyncio.Event().wait()

    async def send(message):
        answered.set()
        await asyncio.Event().wait()

    async def kept():
        task = asyncio.create_task(app(scope, receive, send))
        await asyncio.wait_for(answered.wait(), TIMEOUT)
        gc.collect()
        size, _ = tracemalloc.get_traced_memory()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return size

    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        assert asyncio.run(kept()) - before < len(body) // 2
    finally:
        tracemalloc.stop()
