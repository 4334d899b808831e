"""Labels at a server: joined to answers that came before or after them, each counted once, and none lost."""

from __future__ import annotations

import pytest

from ragmon.core.record import Label, decode_entry
from ragmon.ingest.receiver import Encoding
from ragmon.server.erasure import erase
from ragmon.server.pending import decode_labels, decode_traces
from ragmon.server.store import JournalReader
from tests.support.manual_writer import ManualWriter
from tests.support.otlp_requests import export
from tests.support.serving import (
    accounted,
    asked,
    digest,
    foreign,
    journalled,
    post,
    process,
    replayed,
    send_body,
    serving,
    whole,
)
from tests.support.waiting import wait_for

PRECISION = 'rag_answer_correct{gold="",pipeline="support",source="label",window="1h"}'
PROTOBUF = Encoding.PROTOBUF
RECALL = 'rag_recall{gold="labels",k="3",pipeline="support",source="label",window="1h"}'


def trace(number):
    return f"{number + 1:032x}"


def label(number, **said):
    return {"trace_id": trace(number), "rater": "ada", "ts": 100.0, **({"correct": True} | said)}


def send_labels(running, labels):
    status, told = post(f"{running.otlp}/v1/labels", labels)
    assert status == 200, told
    return told


def labels(running, n):
    """What became of labels, once all of them are accounted for."""
    return wait_for(lambda: running.status()["labels"], lambda found: sum(found.values()) == n)


def test_labels_on_answers_that_came_before_are_joined_and_shown(tmp_path):
    with serving(tmp_path) as running:
        send_body(running, whole([asked(n) for n in range(40)]))
        send_labels(running, [label(n, correct=n % 4 != 0) for n in range(40)])
        assert labels(running, 40) == {"joined": 40, "waiting": 0}
        shown = running.metrics()
        assert shown[PRECISION] == 0.75
        assert shown['ragmon_labels_total{result="joined"}'] == 40


def test_labels_that_come_before_their_traces_wait_for_them(tmp_path):
    with serving(tmp_path) as running:
        send_labels(running, [label(n) for n in range(10)])
        assert labels(running, 10) == {"waiting": 10}
        assert running.metrics()["ragmon_labels_waiting"] == 10
        send_body(running, whole([asked(n) for n in range(9)]))
        running.settled(9)
        assert labels(running, 10) == {"joined": 9, "waiting": 1}
        assert running.metrics()[PRECISION] == 1.0


def test_a_label_and_its_answer_in_one_row_of_the_journal_find_each_other(tmp_path):
    with ManualWriter(tmp_path) as writer:
        writer.take(
            decode_labels([label(n) for n in range(6)]), decode_traces(whole([asked(n) for n in range(5)]), PROTOBUF)
        )
        book = writer.server_state.engine.labels.store
        assert (book.results, book.pending) == ({"joined": 5}, 1)


def test_labels_join_although_the_answer_is_of_a_generation_of_rows_long_ago(tmp_path):
    """Each row has its own blob of ids; the newest answer of a trace is the one that is meant."""
    with ManualWriter(tmp_path) as writer:
        for _ in range(3):
            writer.time.now += 3600.0
            numbers = range(5) if writer.server_state.seq else range(20)
            writer.take(decode_traces(whole([asked(n, ts=writer.time.now) for n in numbers]), PROTOBUF))
        writer.take(decode_labels([label(n) for n in range(20)]))
        writer.again()
        assert writer.server_state.engine.labels.store.results == {"joined": 20}
        assert writer.agrees()


@pytest.mark.slow
def test_a_label_finds_the_answer_of_a_framework_that_was_assembled_from_its_spans(tmp_path):
    with serving(tmp_path, '[pipeline]\nname = "support"\n') as running:
        send_body(running, export(foreign(7)).SerializeToString())
        running.settled(1)
        send_labels(running, [{**label(7), "trace_id": f"{7 + (1 << 64):032X}"}])
        assert labels(running, 1) == {"joined": 1, "waiting": 0}


def test_user_traffic_does_not_move_by_a_label(tmp_path):
    """A labelled answer counted as a request when it came."""
    with serving(tmp_path) as running:
        send_body(running, whole([asked(n) for n in range(40)]))
        before = accounted(running)
        told = {name: value for name, value in running.metrics().items() if 'source="live"' in name}
        send_labels(running, [label(n, relevant_ids=["d1"]) for n in range(40)])
        labels(running, 40)
        assert accounted(running) == before
        shown = running.metrics()
        assert {name: shown[name] for name in told} == told


def test_documents_that_people_call_relevant_are_gold_for_retrieval(tmp_path):
    """Retrieved are d1, d2 and d3."""
    with serving(tmp_path, "[gates.recall]\nmetric = 'recall@3'\nsource = 'label'\nat_least = 0.5\n") as running:
        send_body(running, whole([asked(n) for n in range(4)]))
        said = [["d1", "d3"], ["d2", "d9"], ["d8"], []]
        send_labels(running, [label(n, correct=None, relevant_ids=ids) for n, ids in enumerate(said)])
        labels(running, 4)
        shown = running.metrics()
        assert shown[RECALL] == (1.0 + 0.5 + 0.0) / 3
        assert shown['rag_under_refusal_rate{gold="labels",pipeline="support",source="label",window="1h"}'] == 1.0
        assert PRECISION not in shown
        assert shown['ragmon_gate_samples{gate="recall",pipeline="support"}'] == 3


def test_second_labels_are_told_apart_and_the_first_word_counts(tmp_path):
    with serving(tmp_path) as running:
        send_body(running, whole([asked(0)]))
        running.settled(1)
        send_labels(running, [label(0)])
        send_labels(running, [label(0), label(0, correct=False, ts=200.0), label(0, correct=True, ts=150.0)])
        send_labels(running, [label(0, rater="bob", correct=True, ts=300.0)])
        found = labels(running, 5)
        assert found == {"joined": 1, "duplicate": 1, "changed": 1, "late": 1, "conflict": 1, "waiting": 0}
        assert running.metrics()[PRECISION] == 1.0


def test_probes_are_not_labelled_and_what_is_no_label_is_named(tmp_path):
    with serving(tmp_path) as running:
        send_body(running, whole([asked(0, source="probe")]))
        running.settled(1)
        told = send_labels(running, [label(0), {"trace_id": trace(1)}, label(1, correct=7)])
        assert '"accepted": 1, "rejected": 2' in told
        assert labels(running, 3) == {"probe": 1, "rejected": 2, "waiting": 0}


@pytest.mark.slow
def test_live_and_replay_agree_on_labels_also_after_a_kill(tmp_path):
    with serving(tmp_path):
        pass  # writes the configuration
    with process(tmp_path) as running:
        send_body(running, whole([asked(n) for n in range(30)]))
        send_labels(running, [label(n, correct=n % 2 == 0) for n in range(40)])
        labels(running, 40)
        running.kill()
    with serving(tmp_path) as running:
        send_body(running, whole([asked(n) for n in range(30, 40)]))
        running.settled(40)
        assert labels(running, 40) == {"joined": 40, "waiting": 0}
        assert running.metrics()[PRECISION] == 0.5
        assert digest(running) == replayed(tmp_path)


def test_a_producer_cannot_pass_its_own_word_for_what_people_say(tmp_path):
    """Neither as a record of the source `label`, nor as a measure of a request."""
    with serving(tmp_path) as running:
        forged = asked(0, source="label", measures={"answer_correct": 1.0})
        send_body(running, whole([forged, asked(1, measures={"answer_correct": 1.0, "groundedness": 0.5})]))
        books = running.settled(2)
        assert books["dropped"] == {"invalid_schema": 1}
        assert not [name for name in running.metrics() if name.startswith("rag_answer_correct")]
    (kept,) = journalled(tmp_path)
    assert kept.measures == {"groundedness": 0.5}


@pytest.mark.slow
@pytest.mark.parametrize("content", ["none", "full"])
def test_what_raters_wrote_is_kept_where_text_of_users_is(tmp_path, content):
    with serving(tmp_path, f'[capture]\ncontent = "{content}"\n') as running:
        send_labels(running, [label(1, comment="what a user wrote")])
        labels(running, 1)
    (kept,) = journalled(tmp_path, Label)
    assert kept.comment == ("what a user wrote" if content == "full" else None)


@pytest.mark.parametrize("n", [3, 40])
def test_few_labels_and_many_find_their_answers_in_a_row_of_many(tmp_path, n):
    """Tags and labels that hold a trace's id are not its answer."""
    with ManualWriter(tmp_path) as writer:
        records = [asked(i, tags={"trace_id": trace(i + 1)}) for i in range(60)]
        writer.take(decode_traces(whole(records), PROTOBUF))
        for _ in range(2):
            writer.take(decode_labels([label(i) for i in range(n)]))
        assert writer.server_state.engine.labels.store.results == {"joined": n, "duplicate": n}
        held = [one.answer.qid for one in journalled(tmp_path, Label)]
        assert held == [f"q{i}" for i in range(n)] * 2


def test_forgetting_a_trace_takes_its_labels_and_the_answer_in_them(tmp_path):
    with serving(tmp_path) as running:
        send_body(running, whole([asked(n, q="a question only one user asks") for n in range(3)]))
        send_labels(running, [label(n, comment="what a user wrote") for n in range(3)])
        labels(running, 3)
        done = erase(tmp_path / "state", trace=trace(1))
        assert (done.records, done.labels) == (1, 1)
        with JournalReader(tmp_path / "state") as journal:
            lines = [decode_entry(line) for row in journal.rows() for line in row.lines.splitlines()]
        assert sorted(one.trace_id for one in lines if isinstance(one, Label)) == [trace(0), trace(2)]
        assert all(one.trace_id != trace(1) for one in lines if hasattr(one, "trace_id"))
