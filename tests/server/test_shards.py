"""Several servers that count, and one that adds up: it says what one server that got everything says."""

from __future__ import annotations

import json
import re
import socket
from base64 import b64decode
from contextlib import ExitStack, contextmanager
from itertools import groupby
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen
from zlib import crc32

import pytest
from msgspec.structs import replace

from ragmon.config.load import load
from ragmon.core.record import Label
from ragmon.server.journal import erase
from ragmon.server.server import Server
from ragmon.stream.chunk import Chunk
from tests.support.alarming import NOON, SEVERAL, mixed, shown, write_config
from tests.support.serving import (
    PORTS,
    QUICK,
    Running,
    Time,
    asked,
    digest,
    free_port,
    get,
    journalled,
    look,
    post,
    process,
    replayed,
    send_body,
    values,
    whole,
)
from tests.support.waiting import wait_for

TOKEN = "the-token-of-all-of-them"


def configured(folder, *lines, ports=PORTS):
    """A configuration with gold, ports, and more lines of `[serve]`; returns its path."""
    folder.mkdir(exist_ok=True)
    path = write_config(folder, SEVERAL)
    path.write_text("\n".join([SEVERAL, ports, *lines, ""]), encoding="utf-8")
    return path


def with_fixed_admin():
    """The ports of a server that is found at the same place when it begins again."""
    return PORTS.replace('admin = "127.0.0.1:0"', f'admin = "127.0.0.1:{free_port()}"')


@contextmanager
def running(folder, time, *lines, ports=PORTS):
    """A server whose clock a test sets."""
    settings = load(configured(folder, *lines, ports=ports), environ={})
    with Server(settings, assembly_limits=QUICK, clock=time.clock()) as server:
        yield Running(server)


def of(*shards):
    """The line that names servers to add up."""
    return f"of = {json.dumps([shard.admin for shard in shards])}"


def traffic(seed=3, minutes=50):
    """Records by minute; each has a trace of its own."""
    records = list(mixed(seed, minutes))
    for number, record in enumerate(records):
        record.v, record.trace_id = 1, f"{number + 1:032x}"
    return [list(group) for _, group in groupby(records, key=lambda record: record.ts // 60)]


def send(time, minutes, shards, *others):
    """Send each minute's records when they are, a part to each shard and all to the others; 2 % are sent twice."""
    for number, records in enumerate(minutes):
        time.now = 60.0 * (NOON + number) + 5
        repeated = [*records, *records[::50]]
        for target in others:
            send_body(target, whole(repeated))
        for place, shard in enumerate(shards):
            send_body(shard, whole([r for r in repeated if crc32(r.trace_id.encode()) % len(shards) == place]))
        time.now += 25


def edges(running):
    """The edges of a server, as lines."""
    with running.server.writer.lock:
        return shown(running.server.writer.server_state.engine.transitions)


def watermark(running):
    """Until when alarms are judged."""
    with running.server.writer.lock:
        return running.server.writer.server_state.adder.watermark(0.0)


def caught_up(time, head):
    """Wait until the head has added everything up to a time."""
    time.now = (time.now // 60 + 3) * 60
    wait_for(lambda: watermark(head) >= time.now)
    look(head)


@pytest.fixture(scope="module")
def added(tmp_path_factory):
    """Two servers, the head of both, and one that got everything; what all of them say after an hour."""
    folder, time, minutes = tmp_path_factory.mktemp("shards"), Time(60.0 * NOON), traffic()
    with ExitStack() as stack:
        shards = [stack.enter_context(running(folder / name, time)) for name in ("a", "b")]
        alone = stack.enter_context(running(folder / "alone", time))
        head = stack.enter_context(running(folder / "head", time, of(*shards)))
        send(time, minutes, shards, alone)
        answers = [record for records in minutes[20:30] for record in records if record.source == "live"][:40]
        for place, answer in enumerate(answers):
            label = {"trace_id": answer.trace_id, "rater": "ada", "correct": place % 3 > 0}
            shard = shards[crc32(answer.trace_id.encode()) % 2]
            for target in (alone, shard):
                assert post(f"{target.otlp}/v1/labels", [label])[0] == 200
        caught_up(time, head)
        look(alone)
        yield folder, time, shards, alone, head


def test_counts_alarms_and_books_are_those_of_one_server(added):
    _, _, _, alone, head = added
    assert len(edges(alone)) >= 6
    assert edges(head) == edges(alone)
    assert digest(head) == digest(alone)
    one, sum_of_two = alone.books(), head.books()
    for name in ("received", "scored", "duplicate", "dropped", "ignored", "residual"):
        assert sum_of_two[name] == one[name], name
    assert one["duplicate"] > 50


def test_labels_are_joined_and_counted_once(added):
    _, _, _, alone, head = added
    for found in (alone, head):
        assert found.metrics()['ragmon_labels_total{result="joined"}'] == 40


def test_gates_and_series_are_those_of_one_server(added):
    """All but the few that say how a server itself does."""
    _, _, _, alone, head = added
    own = ("ragmon_journal", "ragmon_stream", "ragmon_series", "ragmon_build_info", "ragmon_requests")
    one, both = ({k: v for k, v in found.metrics().items() if not k.startswith(own)} for found in (alone, head))
    assert both == pytest.approx(one, rel=1e-9)  # sums of floats in another order


def test_the_head_says_how_far_it_is(added):
    _, time, shards, _, head = added
    found = head.metrics()
    assert found["ragmon_stream_watermark_timestamp_seconds"] >= time.now
    assert {f'ragmon_stream_partition_behind_seconds{{partition="{shard.admin}"}}' for shard in shards} <= found.keys()
    assert found["ragmon_stream_configs"] == 1
    assert found["ragmon_stream_lost_messages_total"] == 0


def test_its_journal_replays_to_the_same_digest(added):
    folder, _, _, _, head = added
    assert replayed(folder / "head") == digest(head)


def test_a_second_head_that_begins_later_decides_alike(added):
    """So rules may look at both, and page once."""
    folder, time, shards, _, head = added
    with running(folder / "second", time, of(*shards)) as second:
        wait_for(lambda: watermark(second) >= time.now)
        look(second)
        assert edges(second) == edges(head)
        assert digest(second) == digest(head)


def test_the_head_takes_no_records_itself_and_says_where_to_send_them(added):
    _, _, _, _, head = added
    status, text = post(f"{head.otlp}/v1/labels", [{"trace_id": "1" * 32, "rater": "ada", "correct": True}])
    assert status == 421
    assert "this server adds up what others count: send it to one of them" in text


def test_an_alarm_is_acknowledged_at_the_head(added):
    _, _, _, _, head = added
    firing = next(alarm for alarm in head.status()["alarms"] if alarm["firing"])
    ack = {"pipeline": firing["pipeline"], "gate": firing["alert"], "reason": "seen", "by": "ada"}
    assert post(f"{head.otlp}/v1/ack", ack) == (200, '{"fired": true}')


# --- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_whoever_is_killed_in_between_nothing_is_lost_or_counted_twice(tmp_path):
    """Real processes: shards and head are killed with -9 again and again while records come."""
    names = ("alone", "a", "b")
    for name in names:
        configured(tmp_path / name, ports=with_fixed_admin())
    with ExitStack() as stack:
        run = {name: stack.enter_context(process(tmp_path / name)) for name in names}
        configured(tmp_path / "head", of(run["a"], run["b"]))
        run["head"] = stack.enter_context(process(tmp_path / "head"))
        number = 0
        for turn in range(12):
            victim = ("head", "a", "b")[turn % 3]
            records = [asked(number + place, session=f"s{number + place}") for place in range(150)]
            number += len(records)
            send_body(run["alone"], whole(records))
            for place, name in enumerate(("a", "b")):
                send_body(run[name], whole([r for r in records if crc32(r.trace_id.encode()) % 2 == place]))
            run[victim].kill()
            run[victim] = stack.enter_context(process(tmp_path / victim))
        books = wait_for(run["head"].books, lambda found: found["received"] == number)
        assert (books["scored"], books["residual"]) == (number, 0)
        chunks = values(get(f"{run['head'].admin}/metrics")[1])
        assert chunks["ragmon_stream_lost_messages_total"] == 0
        for name in ("alone", "head"):
            assert run[name].stop() == 0
    assert replayed(tmp_path / "head") == replayed(tmp_path / "alone")


def test_a_shard_that_is_away_is_named_and_holds_up_alarms_alone(tmp_path):
    time = Time(60.0 * NOON)
    with running(tmp_path / "a", time) as shard, running(tmp_path / "head", time, of(shard)) as head:
        send(time, traffic(3, 2), [shard])
        caught_up(time, head)
        shard.server.admin.stop(0.0)
        status = wait_for(head.status, lambda found: "gives no chunks" in json.dumps(found["wrong"]))
        assert f"{shard.admin} gives no chunks" in json.dumps(status["wrong"])
        assert get(f"{head.admin}/readyz")[0] == 200


def test_what_is_forgotten_on_a_server_is_forgotten_at_the_head(tmp_path):
    """The head has no text, and the label that it has goes when the server has written its next row."""
    time = Time(60.0 * NOON)
    with running(tmp_path / "a", time) as shard, running(tmp_path / "head", time, of(shard)) as head:
        minutes = traffic(3, 3)
        answer = next(record for record in minutes[0] if record.source == "live")
        send(time, minutes[:1], [shard])
        label = {"trace_id": answer.trace_id, "rater": "ada", "correct": True}
        assert post(f"{shard.otlp}/v1/labels", [label])[0] == 200
        caught_up(time, head)
        assert [label.trace_id for label in journalled(tmp_path / "head", Label)] == [answer.trace_id]
        assert b'"q":' not in b"".join(path.read_bytes() for path in (tmp_path / "head" / "state").iterdir())
        assert erase(tmp_path / "a" / "state", trace=answer.trace_id).records == 1
        send_body(shard, whole(minutes[1]))
        caught_up(time, head)
        wait_for(lambda: journalled(tmp_path / "head", Label) == [])
        send_body(shard, whole(minutes[2]))
        caught_up(time, head)
        with head.server.writer.lock:
            assert answer.trace_id not in head.server.writer.server_state.engine.labels.book.answers
        assert digest(head) == digest(shard)


def test_another_configuration_keeps_what_the_head_adds_up(tmp_path):
    """`[serve] of` takes effect at the next start: a file that lacks it for a moment counts nothing twice."""
    time = Time(60.0 * NOON)
    with running(tmp_path / "a", time) as shard, running(tmp_path / "head", time, of(shard)) as head:
        send(time, traffic(3, 2), [shard])
        caught_up(time, head)
        scored = head.books()["scored"]
        for lines in ([], [of(shard)]):
            configured(tmp_path / "head", *lines)
            assert head.server.reloading.reload()
            caught_up(time, head)
        assert head.books()["scored"] == scored > 0


def test_chunks_that_are_refused_are_told_and_not_asked_for_without_end(tmp_path, monkeypatch):
    """A server that was upgraded before its head."""
    monkeypatch.setattr("ragmon.stream.chunk.CHUNK_VERSION", 0)
    time = Time(60.0 * NOON)
    with running(tmp_path / "a", time) as shard, running(tmp_path / "head", time, of(shard)) as head:
        send(time, traffic(3, 2), [shard])
        time.now += 60
        status = wait_for(head.status, lambda found: "a chunk of version 1" in json.dumps(found["wrong"]))
        assert status["journal"]["row"] < 5


def test_journals_that_take_turns_at_one_address_are_counted_once_and_named(tmp_path):
    """Two servers behind a load balancer, or a folder that is exchanged and given back."""
    time, ports, sent = Time(60.0 * NOON), with_fixed_admin(), 0
    address = re.search(r'admin = "(.*)"', ports)[1]
    with running(tmp_path / "head", time, f'of = ["http://{address}"]') as head:
        for name, records in zip("ababa", traffic(3, 5), strict=True):
            time.now += 60
            with running(tmp_path / name, time, ports=ports) as shard:
                send_body(shard, whole([replace(record, ts=time.now) for record in records]))
                sent += len(records)
                time.now += 25
                books = head.wait_for(lambda found, sent=sent: found["received"] >= sent)
                assert (books["received"], books["scored"], books["residual"]) == (sent, sent, 0)
        assert head.metrics()['ragmon_stream_chunks_total{result="returned"}'] == 3
        assert f"http://{address}: journals take turns at this address" in json.dumps(head.status()["wrong"])


def test_without_a_token_chunks_are_for_a_port_that_no_other_machine_reaches(tmp_path):
    """A peer on this machine may be a proxy that passes on what others ask."""
    elsewhere = PORTS.replace('admin = "127.0.0.1:0"', 'admin = "0.0.0.0:0"')
    with running(tmp_path / "a", Time(), ports=elsewhere) as shard:
        port = shard.admin.rpartition(":")[2]
        status, text = get(f"http://127.0.0.1:{port}/api/chunks?part=x")
        assert status == 403
        assert "chunks are for this machine alone, at a port that no other one can reach" in text
    with running(tmp_path / "b", Time()) as shard:
        assert get(f"{shard.admin}/api/chunks?part=x")[0] == 200
        request = Request(f"{shard.admin}/api/chunks?part=x", headers={"Host": socket.gethostname()})
        with pytest.raises(HTTPError, match="403"):
            urlopen(request)


def test_two_heads_that_ask_for_the_same_row_are_both_told_the_time(tmp_path):
    """Also where one of them was told of a later time before, in a chunk without rows."""
    time = Time(60.0 * NOON)
    with running(tmp_path / "a", time) as shard:
        send(time, traffic(minutes=1), [shard])

        def told(place=None):
            """The chunks from a place on, and the place after them."""
            query = urlencode({"part": "a", **(place or {})})
            chunks = [b64decode(one) for one in json.loads(get(f"{shard.admin}/api/chunks?{query}")[1])["chunks"]]
            last = Chunk.load(chunks[-1])
            after = {"log": last.log, "base": last.upto, "low": last.low, "until": repr(last.until)}
            return chunks, after

        time.now += 60
        _, both = told()
        time.now += 60
        first, _ = told(both)
        assert told(both)[0] == first
        assert Chunk.load(first[-1]).until == time.now // 10 * 10


def test_without_the_token_nobody_gets_chunks(tmp_path):
    (tmp_path / "token").write_text(TOKEN)
    line = f'token_file = "{tmp_path}/token"'
    with running(tmp_path / "a", Time(), line) as shard:
        status, text = get(f"{shard.admin}/api/chunks?part=x")
        assert status == 401
        assert "the token is missing" in text


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("", "the parameter part is missing"),
        ("part=x&base=0", "base is '0'"),
        ("part=x&until=-1", "until is '-1'"),
        ("part=x&from=3", "there is no parameter 'from'"),
    ],
)
def test_a_wrong_parameter_is_named(tmp_path, query, message):
    with running(tmp_path / "a", Time()) as shard:
        status, text = get(f"{shard.admin}/api/chunks?{query}")
        assert (status, message in text) == (400, True), text


def test_the_head_has_no_chunks(added):
    status, text = get(f"{added[4].admin}/api/chunks?part=x")
    assert status == 404
    assert "ask a server that producers send to" in text
