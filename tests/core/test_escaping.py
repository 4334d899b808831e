"""What strangers write, wherever it is shown: it is one line, and no terminal, log or page obeys it."""

from __future__ import annotations

import json
import logging
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.config.load import defaults
from ragmon.core import constants
from ragmon.core.errors import LONGEST, InputError, UnknownNameError, printable, printable_json, shorten
from ragmon.core.record import Ack, encode
from ragmon.export.families import LONGEST as LABEL
from ragmon.export.families import label
from ragmon.export.text import escape
from ragmon.monitor.engine import Engine
from ragmon.server.pending import QueuedRequest
from ragmon.testing import make_record
from tests.support.command_line import ragmon
from tests.support.manual_writer import ManualWriter
from tests.support.serving import configuration, post, process, send_body, serving, whole
from tests.support.waiting import wait_for

STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What no sink may let through: controls, line breaks, marks of direction, half surrogate pairs."""
FORGED = "\x1b[31mRED\x1b[0m\n2026-11-22 23:59:59,000 ERROR forged line"
ANY = st.one_of(
    st.text(st.characters(codec=None, categories=None), max_size=400),
    st.lists(st.sampled_from(["\x1b[31m", "\n", "\u202e", "\u2066", "\x9b", "\ud83d", "a", " ", "\u200f"])).map(
        "".join
    ),
)
"""Any text, half surrogate pairs and all."""
NOW = 1_763_683_200.5


@given(ANY)
def test_any_text_becomes_one_line_that_steers_nothing(text):
    shown = printable(text)
    assert not STEERING.search(shown)
    assert len(shown) <= LONGEST
    assert printable(shown) == shown
    assert shown.encode().decode() == shown


@given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Cf", "Zl", "Zp", "Cn", "Co"]), max_size=LONGEST))
def test_text_of_any_script_that_steers_nothing_is_shown_as_it_is(text):
    assert printable(text) == text


@pytest.mark.parametrize("text", ["नमस्\u200dते", "می\u200cخواهم", "👩\u200d🚀"])
def test_joiners_that_scripts_and_emoji_need_are_kept(text):
    assert unicodedata.normalize("NFC", printable(text)) == unicodedata.normalize("NFC", text)


@given(ANY, ANY)
def test_labels_steer_nothing_are_short_and_keep_two_names_apart(one, other):
    assert not STEERING.search(label(one))
    assert len(label(one)) <= LABEL
    if one != other:
        assert label(one) != label(other)


@given(ANY)
def test_json_says_the_same_and_steers_nothing(text):
    shown = printable_json({"name": text, "list": [text]}, indent=2)
    assert not STEERING.search(shown.replace("\n", ""))
    assert json.loads(shown) == json.loads(json.dumps({"name": text, "list": [text]}))


@given(ANY)
def test_reports_and_errors_quote_nothing_that_steers(text):
    told = (escape(text), shorten(text), str(UnknownNameError("gate", text, ())), str(InputError("it", value=text)))
    assert not any(STEERING.search(one) for one in told)


HOSTILE = [FORGED, "\u202egnp.exe", "\x9b31m", "half \ud83d", "two\r\nlines", "x" * 60_000, "\u2066\x00\u2029"]


@pytest.mark.parametrize("text", HOSTILE)
def test_the_log_of_alarms_quotes_nothing_that_steers(text, caplog):
    caplog.set_level(logging.INFO, constants.ALARM_LOG)
    live = Engine(defaults())
    for number in range(1000):
        at = NOW + 60 * (number // 40)
        live.observe(make_record(f"q{number}", ts=at, pipeline=text, source="live", error="E"), at)
    live.advance(NOW + 3600)
    firing = next(state for state in live.alarms.states() if state.firing is not None)
    live.acknowledge(Ack(pipeline=firing.pipeline, alert=firing.alert, reason=text, by=text), NOW + 3600)
    assert any("firing" in line for line in caplog.messages)
    assert "acknowledged" in caplog.messages[-1]
    assert not any(STEERING.search(line) or len(line) > 1000 for line in caplog.messages)


def test_names_of_requests_steer_neither_metrics_nor_the_page_nor_the_status(tmp_path):
    """Every place of a record that becomes a name, with everything a stranger may write there."""
    with serving(tmp_path, '[slices]\nlang = ["de"]\n') as running:
        now = running.status()["now"]
        records = [
            make_record(
                f"q{n}",
                v=1,
                ts=now,
                trace_id=f"{n + 1:032x}",
                source="live",
                pipeline=f"{text}{n}",
                build=text[:900],
                index_hash=text[:900],
                error=text,
                tags={"lang": text, text: text},
                session=text,
            )
            for n, text in enumerate(text.replace("\ud83d", "") for text in HOSTILE)
        ]
        for record in records:
            send_body(running, whole([record]))
        wait_for(running.books, lambda books: books["scored"] == len(records))
        for path in ("/metrics", "/", "/api/status", "/api/records"):
            shown = running.get(path)[1]
            lines = shown.split("\n")
            assert not any(STEERING.search(line) for line in lines), path
            assert path == "/api/status" or max(map(len, lines)) < 200_000


def test_the_page_is_short_however_long_names_are(tmp_path):
    with serving(tmp_path) as running:
        now = running.status()["now"]
        for n in range(15):
            record = make_record(
                f"q{n}", v=1, ts=now, trace_id=f"{n + 1:032x}", source="live", pipeline=f"{n}" * 50_000
            )
            send_body(running, whole([record]))
        wait_for(running.books, lambda books: books["scored"] == 15)
        status, shown = running.get("/")
        assert status == 200
        assert len(shown) < 1 << 19
        asked = re.search(r'href="(p/[^"#]*~[^"#]*)', shown)[1]
        assert running.get(f"/{asked}")[0] == 200


@pytest.mark.slow
def test_a_reason_forges_no_line_of_the_servers_log(tmp_path):
    """Of a real server: one acknowledgement is one line, which obeys nobody; a restart does not say it again."""
    configuration(tmp_path, "[pipelines.support]\n[gates.compliance]\nat_least = 0.5\n")
    with process(tmp_path) as running:
        url = f"{running.otlp}/v1/ack"
        status, answer = post(url, {"pipeline": "support", "gate": "compliance", "reason": FORGED})
        assert status == 200, answer
        assert running.stop() == 0
        said = [line for line in running.lines if "acknowledged" in line]
        assert len(said) == 1
        assert "forged line" in said[0]
        assert not any(STEERING.search(line) for line in running.lines)
        assert not any(line.startswith("2026-11-22 23:59:59,000") for line in running.lines)


def test_an_acknowledgement_that_is_read_from_the_journal_is_not_logged_again(tmp_path, caplog):
    caplog.set_level(logging.INFO, constants.ALARM_LOG)
    with ManualWriter(tmp_path, "[pipelines.support]\n[gates.compliance]\nat_least = 0.5\n") as writer:
        at = writer.time.now
        writer.send(whole([make_record("q", v=1, ts=at, trace_id="1" * 32, source="live", pipeline="support")]))
        writer.tick(120)
        writer.take(QueuedRequest(entries=[Ack(pipeline="support", alert="compliance", reason="known")]))
        assert [line for line in caplog.messages if "acknowledged" in line] == [
            "alarm support/compliance acknowledged: known"
        ]
        caplog.clear()
        writer.again()
        assert not [line for line in caplog.messages if "acknowledged" in line]


@pytest.mark.slow
def test_a_sheet_of_answers_to_label_steers_no_terminal(tmp_path):
    log = tmp_path / "trace.jsonl"
    texts = [*HOSTILE, "=cmd()"]
    records = [
        make_record(f"q{n}", v=1, ts=NOW, trace_id=f"{n + 1:032x}", source="live", q=text, claim=text, pipeline=text)
        for n, text in enumerate(text.replace("\ud83d", "") for text in texts)
    ]
    log.write_bytes(b"".join(encode(record) for record in records))
    for form in ("csv", "jsonl"):
        done = ragmon("label", "queue", log, "--text", "--format", form)
        assert done.code == 0, done.err
        assert len(done.out.splitlines()) == len(texts) + (form == "csv")
        assert not any(STEERING.search(line) for line in done.out.replace("\r\n", "\n").split("\n"))


@pytest.mark.slow
def test_the_command_line_quotes_a_file_and_says_nothing_else(tmp_path):
    said, hint = ragmon("gate", tmp_path / "\u202e\x1b[31mred\n.jsonl").error
    assert not STEERING.search(said + hint)
    assert "\\u202e" in said
