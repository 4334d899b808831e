"""What people tell a running server: labels, which it keeps, and that somebody has seen an alarm."""

from __future__ import annotations

import json

import pytest
from front_desk import certificate
from guarded import authorised, beside, guarded, with_token
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving import (
    PROTOBUF,
    QUICK,
    Running,
    accounted,
    asked,
    configuration,
    get,
    journalled,
    post,
    process,
    send_body,
    serving,
    values,
    wait_for,
    whole,
)
from test_serve_admin import still

from ragmon.config.load import load
from ragmon.journal import open_readonly
from ragmon.journal.entries import Ack, Label
from ragmon.server.keeping.opening import replay
from ragmon.server.server import Server

TOKEN = "open-sesame"
GOOD = {"trace_id": "5a" * 16, "correct": True, "rater": "ann"}


def counted(running):
    """`ragmon_labels_total` by result."""
    found = values(get(f"{running.admin}/metrics")[1])
    return {name.split('"')[1]: value for name, value in found.items() if name.startswith("ragmon_labels_total")}


def give(running, labels):
    """What is answered to labels."""
    code, text = post(f"{running.otlp}/v1/labels", labels)
    return code, json.loads(text)


# --- labels -----------------------------------------------------------------------------------------------------------


def test_labels_come_one_by_one_or_many_at_once_and_are_journalled(tmp_path):
    full = {
        "trace_id": "07" * 16,
        "correct": 0.5,
        "answerable": True,
        "relevant_ids": ["d1", "d2"],
        "rater": "bob",
        "ts": 1_763_683_200.0,
        "comment": "half of it",
    }
    with serving(tmp_path) as running:
        assert give(running, GOOD) == (200, {"accepted": 1, "rejected": 0, "message": ""})
        assert give(running, [full, {**GOOD, "answerable": False}])[1]["accepted"] == 2
        assert give(running, [])[1] == {"accepted": 0, "rejected": 0, "message": ""}
        wait_for(lambda: counted(running), lambda found: found == {"waiting": 3})
        assert running.status()["labels"] == {"waiting": 3}
        assert running.books()["received"] == 0, "a label is no request"
    assert journalled(tmp_path, Label) == [Label(**GOOD), Label(**full), Label(**GOOD, answerable=False)]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"correct": True, "rater": "ann"}, "missing required field `trace_id`"),
        ({"trace_id": "5a", "correct": True}, "missing required field `rater`"),
        ({**GOOD, "rater": ""}, "a label names its trace_id and its rater"),
        ({**GOOD, "trace_id": 7}, "Expected `str`, got `int` - at `$.trace_id`"),
        ({**GOOD, "correct": "yes"}, "got `str` - at `$.correct`"),
        ({**GOOD, "correct": 1.5}, "correct is true, false or a share from 0 to 1, not 1.5"),
        ({**GOOD, "correct": None}, "a label says something: correct, answerable or relevant_ids"),
        ({**GOOD, "relevant_ids": "d1"}, "Expected `array | null`, got `str`"),
    ],
)
def test_a_bad_label_is_counted_and_named_and_the_others_are_taken(tmp_path, bad, why):
    with serving(tmp_path) as running:
        code, told = give(running, [GOOD, bad, GOOD, bad])
        assert (code, told["accepted"], told["rejected"]) == (200, 2, 2)
        assert told["message"].startswith("label 2 of 4: ")
        assert why in told["message"]
        wait_for(lambda: counted(running), lambda found: found == {"waiting": 2, "rejected": 2})
    assert journalled(tmp_path, Label) == [Label(**GOOD)] * 2


def test_labels_survive_a_stop_and_a_kill(tmp_path):
    configuration(tmp_path)
    with process(tmp_path) as running:
        give(running, [GOOD, {}])
        assert running.stop() == 0
    with process(tmp_path) as running:
        assert counted(running) == {"waiting": 1, "rejected": 1}
        assert give(running, [GOOD, GOOD])[1]["accepted"] == 2
        running.kill()
    with process(tmp_path) as running:
        assert counted(running) == {"waiting": 3, "rejected": 1}
        assert running.stop() == 0
    assert journalled(tmp_path, Label) == [Label(**GOOD)] * 3


texts = st.sampled_from(["", "a", "é", "\x00", "5a" * 16])
anything = st.one_of(st.none(), st.booleans(), st.integers(-2, 2), st.floats(-1, 2), texts, st.lists(texts, max_size=2))
labels = st.dictionaries(
    st.sampled_from(["trace_id", "rater", "correct", "answerable", "relevant_ids", "comment", "kind"]), anything
)


def is_label(told):
    """Whether an object is a label, by what the interface says of its fields."""

    def fits(name, *kinds):
        return told.get(name) is None or isinstance(told[name], kinds)

    named = all(isinstance(told.get(name), str) and told[name] for name in ("trace_id", "rater"))
    correct = fits("correct", bool, int, float) and 0 <= (told.get("correct") or 0) <= 1
    relevant = fits("relevant_ids", list)
    says = any(told.get(name) is not None for name in ("correct", "answerable", "relevant_ids"))
    return named and correct and relevant and fits("answerable", bool) and fits("comment", str) and says


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("labelled")) as running:
        yield running, {"waiting": 0, "rejected": 0}


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(given_labels=st.lists(labels, max_size=8))
def test_whatever_comes_each_label_is_counted_once(labelled, given_labels):
    running, so_far = labelled
    good = sum(map(is_label, given_labels))
    code, told = give(running, given_labels)
    assert (code, told["accepted"], told["rejected"]) == (200, good, len(given_labels) - good)
    so_far["waiting"] += good
    so_far["rejected"] += len(given_labels) - good
    wait_for(lambda: counted(running), lambda found: {"waiting": 0, "rejected": 0, **found} == so_far)


def test_labels_take_the_token(tmp_path):
    with guarded(tmp_path, TOKEN) as running:
        assert give(running, GOOD)[0] == 401
        assert authorised(f"{running.otlp}/v1/labels", GOOD, "another")[0] == 401
        assert authorised(f"{running.otlp}/v1/labels", GOOD, TOKEN)[0] == 200
        assert running.metrics()['ragmon_requests_refused_total{reason="unauthorised"}'] == 2
    assert len(journalled(tmp_path, Label)) == 1


# --- acknowledgements -------------------------------------------------------------------------------------------------

GATES = "[pipelines.support]\n[gates.errors]\nmetric = 'error_rate'\nat_most = 0.05\n"


def minutes(running, moved, n=4, *, wrong=40, token=TOKEN):
    """So many minutes of sixty requests each, most of which fail."""
    for _ in range(n):
        first = int(moved.now) * 100
        found = [asked(first + k, ts=moved.now + k, error="E" if k < wrong else None) for k in range(60)]
        moved.advance(60.0)
        assert authorised(f"{running.otlp}/v1/traces", whole(found), token, PROTOBUF)[0] == 200
    moved.advance(1.0)


def fires(running):
    return {alarm["alert"] for alarm in running.status()["alarms"]}


@pytest.fixture
def firing(tmp_path):
    """A server that takes a token and whose alarm fires, and its clock."""
    clock, moved = still()
    with guarded(tmp_path, TOKEN, GATES, clock=clock) as running:
        minutes(running, moved)
        wait_for(lambda: fires(running), lambda found: "errors" in found)
        yield running, moved


def acknowledge(running, *arguments, folder, **options):
    """`ragmon ack` with the configuration of the server."""
    config = folder / "ragmon.toml"
    return beside("ack", *arguments, "--reason", "rolled back", "--config", config, "--url", running.otlp, **options)


def test_the_command_silences_an_alarm_which_fires_again_while_the_fault_lasts(firing, tmp_path):
    running, moved = firing
    done = acknowledge(running, "support/errors", folder=tmp_path)
    assert (done.code, done.out, done.err) == (0, "support/errors: silenced, and armed again\n", "")
    assert "errors" not in fires(running)
    done = acknowledge(running, "errors", folder=tmp_path)  # the one pipeline of the configuration is meant
    assert done.out == "support/errors: was silent; it starts from nothing\n"
    minutes(running, moved)
    wait_for(lambda: fires(running), lambda found: "errors" in found)


def test_an_acknowledgement_is_journalled_and_replayed(firing, tmp_path):
    """A server that is killed comes to the same alarms: those nobody has seen, and not those somebody has."""
    running, _ = firing
    body = {"gate": "errors", "pipeline": "support", "reason": "rolled back"}
    others = fires(running) - {"errors"}
    assert authorised(f"{running.otlp}/v1/ack", body, TOKEN) == (200, '{"fired": true}')
    assert journalled(tmp_path, Ack) == [Ack(pipeline="support", alert="errors", reason="rolled back")]
    with open_readonly(tmp_path / "state") as journal:
        again = replay(load(tmp_path / "ragmon.toml", environ={}), journal)
    assert {state.alert for state in again.live.alarms.states() if state.firing is not None} >= others - {"errors"}
    edges = [(edge.alert, edge.state) for edge in again.live.edges if edge.alert == "errors"]
    assert ("errors", "resolved") in edges


def test_what_was_acknowledged_stays_so_after_a_restart(tmp_path):
    clock, moved = still()
    with guarded(tmp_path, TOKEN, GATES, clock=clock) as running:
        minutes(running, moved)
        wait_for(lambda: fires(running), lambda found: "errors" in found)
        assert acknowledge(running, "support/errors", folder=tmp_path).code == 0
        others = fires(running)
    with guarded(tmp_path, TOKEN, GATES, clock=clock) as running:
        assert fires(running) == others


@pytest.mark.parametrize(
    ("name", "error", "hint"),
    [
        ("support/eror", "unknown alarm: 'eror'", "did you mean error"),
        ("suport/errors", "unknown pipeline: 'suport'", "did you mean support?"),
    ],
)
def test_an_unknown_alarm_is_not_found(firing, tmp_path, name, error, hint):
    running, _ = firing
    found, advice = acknowledge(running, name, folder=tmp_path).error
    assert found == error
    assert advice.startswith(hint)
    pipeline, gate = name.split("/")
    body = {"gate": gate, "pipeline": pipeline, "reason": "x"}
    assert authorised(f"{running.otlp}/v1/ack", body, TOKEN)[0] == 404
    assert journalled(tmp_path, Ack) == []


def test_without_the_token_nothing_is_silenced(firing, tmp_path):
    running, _ = firing
    (tmp_path / "token").write_text("another")
    error, hint = acknowledge(running, "support/errors", folder=tmp_path).error
    assert error == "the token is missing, or is another"
    assert "token_file" in hint
    (tmp_path / "token").unlink()
    error, hint = acknowledge(running, "support/errors", folder=tmp_path).error
    assert "the token cannot be read" in error
    assert "errors" in fires(running)


def test_without_an_address_the_command_finds_the_server_of_the_configuration(firing, tmp_path):
    """The admin port only reads, and says so; the write port is the one."""
    running, _ = firing
    here = tmp_path / "elsewhere"
    here.mkdir()
    text = GATES + f'[serve]\nadmin = "{running.admin[7:]}"\notlp = "{running.otlp[7:]}"\ntoken_file = "../token"\n'
    (here / "ragmon.toml").write_text(text)
    done = beside("ack", "errors", "--reason", "x", cwd=here)
    assert (done.code, done.out) == (0, "support/errors: silenced, and armed again\n"), done.err
    done = beside("ack", "errors", "--reason", "x", "--url", running.admin, cwd=here)
    assert done.error[0] == "this port only reads"


def test_the_servers_own_certificate_is_trusted_and_a_strangers_is_not(tmp_path):
    cert, key = certificate(tmp_path)
    path = with_token(tmp_path, TOKEN, GATES)
    path.write_text(f'{path.read_text()}tls = {{ cert = "{cert.name}", key = "{key.name}" }}\n')
    clock, moved = still()
    with Server(load(path, environ={}), patience=QUICK, clock=clock) as server:
        running = Running(server)
        running.otlp = running.otlp.replace("http:", "https:")
        named = "ack", "support/errors", "--reason", "x", "--url", running.otlp
        silent = "support/errors: was silent; it starts from nothing\n"
        assert beside(*named, cwd=tmp_path).out == silent, "no record has come yet, but the gate is configured"
        error, hint = beside(*named, env={"RAGMON_TOKEN_FILE": str(tmp_path / "token")}).error
        assert error.startswith(f"nobody answers on {running.otlp[8:]} (")
        assert "SSL_CERT_FILE" in hint
        trusting = {"RAGMON_TOKEN_FILE": str(tmp_path / "token"), "SSL_CERT_FILE": str(cert)}
        assert beside(*named, env=trusting).out == silent
        assert moved.now > 0


def test_a_request_and_a_label_of_it_are_both_accounted_for(tmp_path):
    with serving(tmp_path) as running:
        send_body(running, whole([asked(n) for n in range(10)]))
        give(running, [{**GOOD, "trace_id": f"{n + 1:032x}"} for n in range(10)])
        assert accounted(running)["scored"] == 10
        assert counted(running) == {"waiting": 10}
