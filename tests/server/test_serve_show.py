"""`ragmon show` on what a real server journalled: one request, as far as it was captured and the asker may see it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from ragmon.config.load import load
from ragmon.core.record import encode
from ragmon.monitor.capture_settings import Redactions
from ragmon.monitor.embedded import Monitor
from tests.support.command_line import ragmon
from tests.support.serving import accounted, asked, configuration, get, process, send_body, serving, whole
from tests.support.waiting import TIMEOUT, wait_for

PIPELINE = """
[pipelines.support]
[gold.handbook]
path = "gold.jsonl"
[links]
trace = "https://traces.example/{trace_id}"
"""
ITEM = {"question": "When does the ferry leave?", "answerable": True, "gold_claim_substr": ["at nine"]}
TEXTS = ("When does the ferry leave?", "It leaves at ten", "The bus leaves at ten", "at nine", "ada@example.com")
"""What must be shown to nobody who may not see it: words of the request, of gold, and of who asked."""
QUESTION, ANSWER = "When does the ferry leave?", "It leaves at ten, write to ada@example.com."


def request(number=0, **fields):
    told = {
        "q": QUESTION,
        "claim": ANSWER,
        "retrieved": ["bus#4", "bus#5"],
        "citations": ["bus#4", "x#9"],
        "contexts": ["The bus leaves at ten.", "Red \x1b[31mbuses."],
        "scores": [0.9, 0.81],
        "user": "ada@example.com",
        "session": "s1",
        "build": "1.4.2",
    }
    return asked(number, **{**told, **fields})


def gold(folder):
    (folder / "gold.jsonl").write_text(json.dumps({"qid": "q1", "gold_citations": ["ferry#1"], **ITEM}) + "\n")


def content(kind, folder=None):
    key = f'hash_key_file = "{folder}/key"\n' if kind == "hash" else ""
    return f'[capture]\ncontent = "{kind}"\n{key}{PIPELINE}'


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """A server that keeps content and has a token, with one request."""
    folder = tmp_path_factory.mktemp("full")
    gold(folder)
    path = configuration(folder, content("full"))
    (folder / "token").write_text("s3cret-of-16-bytes\n")
    path.write_text(path.read_text() + f'token_file = "{folder}/token"\n')
    with process(folder) as running:
        post(running, whole([request(0), request(1)]))
        wait_for(running.books, lambda found: found["scored"] == 2)
        yield folder, running


def post(running, body):
    headers = {"Content-Type": "application/x-protobuf", "Authorization": "Bearer s3cret-of-16-bytes"}
    call = urllib.request.Request(f"{running.otlp}/v1/traces", body, headers)
    with urllib.request.urlopen(call, timeout=TIMEOUT) as answer:
        assert answer.status == 200


TRACE = f"{1:032x}"


def test_it_shows_what_was_asked_retrieved_and_answered_and_why_it_fails(full):
    folder, running = full
    done = ragmon("show", TRACE, "--url", running.admin, "--config", folder / "ragmon.toml")
    assert (done.code, done.err) == (0, "")
    lines = [line.strip() for line in done.out.splitlines()]
    assert f"question  {QUESTION}" in lines
    assert f"answer    {ANSWER}" in lines
    assert "cites     bus#4, x#9" in lines
    assert "1  bus#4  0.9   cited" in lines
    assert "The bus leaves at ten." in lines
    assert r"Red \x1b[31mbuses." in lines
    assert f"https://traces.example/{TRACE}" in lines
    assert any(line.startswith("gold      q1 of handbook ") and line.endswith("found by question") for line in lines)
    assert "a right answer contains: 'at nine'" in lines
    assert (
        "fails     answer_precision 0 (gate answer_precision): no gold phrase is in the answer; it cites bus#4, x#9; "
        "none of it is in gold (gold: ferry#1); it cites x#9, which was not retrieved" in lines
    )
    assert any("hit_rate@5" in line and "none of the 2 retrieved documents is in gold" in line for line in lines)


def failing(running):
    """The scores of the requests that fail a gate, which the journal lists with the commit after they are scored."""
    records = json.loads(get(f"{running.admin}/api/records?pipeline=support")[1])["records"]
    return {record["trace_id"]: record["scores"] for record in records}


def test_server_journal_and_file_say_the_same(full, tmp_path):
    """One source of truth: whoever scores the request, live or later, gives the same scores and reasons."""
    folder, running = full
    config = ("--config", folder / "ragmon.toml", "--format", "json")
    over_http = ragmon("show", TRACE, "--url", running.admin, *config).json
    on_disk = ragmon("show", TRACE, "--state-dir", folder / "state", *config).json
    assert over_http == on_disk
    (shown,) = on_disk["requests"]
    scores = wait_for(lambda: failing(running).get(TRACE), bool)
    assert {each["metric"]: each["score"] for each in shown["metrics"] if each["gates"]} == scores
    (tmp_path / "traces.jsonl").write_bytes(encode(request(0)))
    (offline,) = ragmon("show", TRACE, tmp_path / "traces.jsonl", *config).json["requests"]
    assert offline["metrics"] == shown["metrics"]
    assert offline["documents"] == shown["documents"]


def test_without_the_token_ids_and_reasons_are_shown_and_no_word_of_anybody(full):
    _, running = full
    code, text = get(f"{running.admin}/api/traces/{TRACE}")
    assert code == 200
    assert not [word for word in TEXTS if word in text]
    (shown,) = json.loads(text)["requests"]
    assert shown["question"]["note"].startswith("not shown: the admin port shows content only with the token")
    assert [document["id"] for document in shown["documents"]] == ["bus#4", "bus#5"]
    assert (shown["session"], shown["user"], shown["tags"]) == (None, None, None)
    assert {each["metric"]: each["score"] for each in shown["metrics"]}["hit_rate"] == 0.0


def test_another_token_is_refused(full):
    _, running = full
    call = urllib.request.Request(f"{running.admin}/api/traces/{TRACE}", headers={"Authorization": "Bearer other"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(call, timeout=TIMEOUT)
    with refused.value as answer:
        assert (answer.code, "token" in json.loads(answer.read())["error"]) == (401, True)


def test_a_beginning_is_enough_where_one_trace_has_it_and_what_is_not_there_says_what_is_kept(full):
    folder, running = full
    where = ("--url", running.admin, "--config", folder / "ragmon.toml")
    assert ragmon("show", TRACE[:31], *where).error[0] == f"several traces begin with '{TRACE[:31]}'"
    error, hint = ragmon("show", "ab" * 16, *where).error
    assert error == f"there is no record of trace '{'ab' * 16}'"
    assert "retention 7 days" in hint
    assert "[sampling] rate" in hint
    assert hint.endswith(f"https://traces.example/{'ab' * 16}")
    assert ragmon("show", "abc", *where).error == (
        "'abc' is not a trace id",
        "32 hex digits, or the first 8 and more of them",
    )
    assert get(f"{running.admin}/api/traces/{TRACE}?x=1")[0] == 400
    assert get(f"{running.admin}/api/traces/")[0] == 404
    assert get(f"{running.admin}/api/traces")[0] == 404


def test_a_unique_beginning_is_found(tmp_path):
    gold(tmp_path)
    with serving(tmp_path, content("full")) as running:
        send_body(running, whole([request(0, trace_id="ab" * 16), request(0, trace_id="cd" * 16)]))
        accounted(running)
        done = ragmon("show", "abababab", "--state-dir", tmp_path / "state", "--config", tmp_path / "ragmon.toml")
        assert done.out.startswith(f"trace     {'ab' * 16}  ")
        shown = json.loads(running.get("/api/traces/ABABABAB")[1])["requests"]
        assert [each["trace_id"] for each in shown] == ["ab" * 16]


def test_a_server_without_a_token_shows_content_to_nobody_over_http(tmp_path):
    gold(tmp_path)
    with serving(tmp_path, content("full")) as running:
        send_body(running, whole([request(0)]))
        accounted(running)
        code, text = running.get(f"/api/traces/{TRACE}")
        assert code == 200
        assert not [word for word in TEXTS if word in text]
        assert "--state-dir" in json.loads(text)["requests"][0]["withheld"]
        done = ragmon("show", TRACE, "--config", tmp_path / "ragmon.toml", cwd=tmp_path)
        assert f"question  {QUESTION}" in done.out, "on its own machine the journal is read"


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "kept"), [("none", False), ("hash", False), ("redacted", True)])
def test_what_was_not_captured_names_the_setting_and_what_was_redacted_says_so(tmp_path, kind, kept):
    """As the application sends it under this setting: the facts that were decided there give the same reasons."""
    gold(tmp_path)
    (tmp_path / "key").write_bytes(b"k" * 32)
    with serving(tmp_path, content(kind, tmp_path)) as running:
        redact = Redactions(load(tmp_path / "ragmon.toml", environ={}))
        send_body(running, whole([redact(request(0))]))
        accounted(running)
    done = ragmon("show", TRACE, "--state-dir", tmp_path / "state", "--config", tmp_path / "ragmon.toml")
    assert (done.code, done.err) == (0, "")
    assert "write to ada@example.com" not in done.out
    if kept:
        assert f"question  {QUESTION}" in done.out
        assert "(redacted before it was kept)" in done.out
    else:
        assert QUESTION not in done.out.partition("\ngold ")[0]
        assert f'not captured: `[capture] content = "{kind}"`; "redacted" or "full" keeps it' in done.out
    assert "\nretrieved 2 documents\n" in done.out
    assert "citation_scope 0 (gate citation_scope): it cites x#9, which was not retrieved" in done.out
    if kind != "none":  # the question is known, or its hash
        assert "answer_precision 0 (gate answer_precision): no gold phrase is in the answer; it cites" in done.out


def test_an_embedded_monitor_says_where_to_look(tmp_path):
    (tmp_path / "ragmon.toml").write_text('[serve]\nadmin = "127.0.0.1:0"\n')
    with Monitor(load(tmp_path / "ragmon.toml", environ={})) as monitor:
        error, hint = ragmon("show", TRACE, "--url", monitor.address).error
    assert error == "an embedded monitor has no journal"
    assert hint.startswith("`ragmon show TRACE FILE` reads the trace log")
