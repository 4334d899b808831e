"""What may leave the process: no text by default, and what the text said all the same."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ragmon
from ragmon.capture.redact import Redaction
from ragmon.capture.trace import probe
from ragmon.core import errors
from ragmon.core.errors import RagmonError
from ragmon.core.gold_item import GoldItem
from ragmon.core.process import keyed_hash
from ragmon.core.record import Answer, encode
from ragmon.core.text import normalise_question
from ragmon.ingest.files import ReadSummary, read_files
from ragmon.ingest.gold import GoldIndex, GoldSet
from ragmon.metrics import Metric, base, build
from ragmon.metrics.builtin import Groundedness
from ragmon.monitor import replay
from ragmon.monitor.install import Installation
from ragmon.scoring.scorer import Scorer
from ragmon.testing import Collected, make_gold, make_record
from tests.support.capturing import pipeline
from tests.support.random_records import worlds

GOLD = '{"qid": "q1", "question": "Where is it?", "answerable": true, "gold_claim_substr": ["harbour"]}\n'
SECRET = ("Where is it?", "At the harbour", "a passage on the harbour")


@pytest.fixture
def logged(configured, tmp_path):
    """The lines of the trace log under a configuration; in it users and a probe ask two pipelines."""

    def run(text, claim="At the harbour"):
        (tmp_path / "gold.jsonl").write_text(GOLD)
        installed = Installation(configured(text + '\n[export]\njsonl = "trace.jsonl"'), Collected(), keep_all=True)
        installed.start()
        for name in ("support", "public"):
            ask = ragmon.trace(name=name)(answering(claim))
            ask(SECRET[0])
            with probe("q1"):
                ask(SECRET[0])
        assert installed.shutdown()
        assert installed.counters().dropped == {}
        found = map(json.loads, (tmp_path / "trace.jsonl").read_text().splitlines())
        return [line for line in found if line.get("kind") != "totals"]

    return run


def answering(claim):
    def answer(question):
        assert question
        return {"answer": claim, "citations": ["d1"], "documents": [{"id": "d1", "text": SECRET[2], "score": 0.5}]}

    return answer


def shows(line):
    """Whether a line shows its text, all of it."""
    shown = {text in json.dumps(line) for text in SECRET}
    assert len(shown) == 1, "all or nothing"
    return shown.pop()


def test_by_default_no_text_of_users_leaves_and_that_of_probes_does(logged):
    lines = logged("")
    assert [(line["source"], shows(line)) for line in lines] == [("live", False), ("probe", True)] * 2
    assert lines[0]["retrieved_ids"] == lines[0]["answer_json"]["citations"] == ["d1"]
    assert lines[0]["scores"] == [0.5]
    decided = {"answered": True, "refused": False, "refusal_like": False, "grounded": True}
    sizes = {"question_chars": 12, "claim_chars": 14, "contexts": 1, "context_chars": 24}
    assert lines[0]["facts"] == decided | sizes


def test_every_pipeline_has_a_say_of_its_own(logged):
    """A common "full" must not let text of a pipeline out that keeps its own back, nor the other way round."""
    lines = logged('[capture]\ncontent = "full"\n[pipelines.support.capture]\ncontent = "none"\nprobe_content = "none"')
    assert [(line["pipeline"], shows(line)) for line in lines] == [
        ("support", False),
        ("support", False),
        ("public", True),
        ("public", True),
    ]


@pytest.mark.parametrize("where", ['[gold.gold]\npath = "gold.jsonl"', '[capture]\ngold = "gold.jsonl"'])
def test_with_the_gold_at_hand_the_log_says_what_the_claim_contained(logged, where):
    """The question does not travel, so the record names the gold item instead."""
    live = logged(where + ("" if "capture" in where else "\n[capture]") + '\nprobe_content = "none"')[0]
    assert not shows(live)
    assert live["qid"] == "q1"
    assert live["facts"]["contains_claim"] is True
    assert live["facts"]["gold_version"]


def test_another_gold_version_is_told_apart_in_a_replay(logged, tmp_path):
    """What the claim contained was decided against other phrases."""
    logged('[capture]\ngold = "gold.jsonl"\nprobe_content = "none"')
    report = replay.replay(read_files([str(tmp_path / "trace.jsonl")], ReadSummary()), make_gold(("q1", True)))
    precision = report.metric("answer_precision", source="probe", pipeline="public")
    assert (precision.n, precision.unassessed) == (0, {"gold_version": 1})


def test_an_answer_is_grounded_by_the_threshold_of_its_pipeline(logged):
    """Half of the claim's words occur in the passage."""
    config = '[capture]\nprobe_content = "none"\n[pipelines.support.metrics]\ngrounded_threshold = 0.9'
    lines = logged(config, claim="harbour lighthouse")
    assert [(line["pipeline"], line["facts"]["grounded"]) for line in lines[::2]] == [
        ("support", False),
        ("public", True),
    ]
    assert {line["measures"]["groundedness"] for line in lines} == {0.5}


@pytest.fixture
def length():
    """A metric that reads text, registered for one test."""

    @ragmon.register
    class Brevity(Metric):
        """Mean share of a hundred characters that answers leave free."""

        name = "brevity"

        def measure(self, record, item):
            claim = record.answer_json.claim if record.answer_json is not None else None
            return None if claim is None else max(0.0, 1 - len(claim) / 100)

    yield
    del base._families["brevity"]


@pytest.mark.usefixtures("length")
def test_a_metric_that_reads_text_is_measured_before_the_text_is_dropped(logged, tmp_path):
    lines = logged('[capture]\nprobe_content = "none"')
    assert {line["measures"]["brevity"] for line in lines} == {0.86}
    report = replay.replay(read_files([str(tmp_path / "trace.jsonl")], ReadSummary()))
    assert report.metric("brevity", source="live").value == 0.86


def test_an_error_is_named_and_not_quoted(configured, tmp_path):
    settings = configured('[export]\njsonl = "trace.jsonl"')
    installed = Installation(settings, Collected(), keep_all=True)
    installed.start()
    with pytest.raises(LookupError):
        ragmon.trace(pipeline)("raise")
    assert installed.shutdown()
    text = (tmp_path / "trace.jsonl").read_text()
    assert [line["error"] for line in map(json.loads, text.splitlines()) if "error" in line] == ["BrokenError"]
    assert '"raise"' not in text


# --- one record -------------------------------------------------------------------------------------------------------

KEY = b"sixteen bytes or more"
ADA = "ada@example.org"
POLICIES = [{"content": "none"}, {"content": "none", "key": KEY}, {"content": "hash", "key": KEY}]
POLICIES += [{"content": "redacted"}, {"content": "redacted", "key": KEY}]


def asked(claim="At the harbour", **fields):
    """A user's request, text and all."""
    fields = {"q": SECRET[0], "contexts": [SECRET[2]], "source": "live"} | fields
    return make_record(None, claim=claim, retrieved=["d1"], **fields)


def facts(record, **policy):
    return Redaction(**policy)(record).facts


def line(record):
    """The line a log would hold."""
    return encode(record).decode()


def texts_in(value):
    """Every text in a JSON value, names of fields included."""
    if isinstance(value, dict):
        return [*value, *(text for held in value.values() for text in texts_in(held))]
    if isinstance(value, list):
        return [text for held in value for text in texts_in(held)]
    return [value] if isinstance(value, str) else []


def test_lengths_travel_where_text_does_not():
    told = facts(asked(contexts=["four", "fünf"]))
    assert (told.question_chars, told.claim_chars, told.contexts, told.context_chars) == (12, 14, 2, 8)
    nothing = facts(make_record(claim=None))
    assert (nothing.question_chars, nothing.claim_chars, nothing.contexts) == (None, None, None)


def test_a_question_is_told_again_by_its_hash_however_it_is_written():
    """The hash is of the wording gold questions are matched by, so that a monitor with the key can match it."""
    first, again = (facts(asked(q=q), key=KEY).question_hash for q in ("Where is it?", "  where IS it"))
    assert first == again == keyed_hash(KEY, normalise_question("Where is it?"))
    assert facts(asked(q="Where was it?"), key=KEY).question_hash != first
    assert facts(asked(), key=KEY[::-1]).question_hash != first


def test_without_a_key_there_is_no_hash():
    told = facts(asked())
    assert (told.question_hash, told.claim_hash, told.context_hashes) == (None, None, None)


def test_hash_tells_equal_claims_and_contexts_and_none_does_not():
    one = facts(asked(contexts=["a", "b", "a"]), content="hash", key=KEY)
    assert one.claim_hash == facts(asked(), content="hash", key=KEY).claim_hash
    assert one.claim_hash != facts(asked("At sea"), content="hash", key=KEY).claim_hash
    assert one.context_hashes[0] == one.context_hashes[2] != one.context_hashes[1]
    assert facts(asked(), key=KEY).claim_hash is facts(asked(), key=KEY).context_hashes is None


@pytest.mark.parametrize("policy", [{"content": "hash"}, {"probe_content": "hash"}, {"key": b""}, {"key": b"short"}])
def test_hashes_need_a_key_nobody_can_guess(policy):
    with pytest.raises(RagmonError) as refused:
        Redaction(**policy)
    assert "capture.hash_key_file" in refused.value.hint
    assert "short'" not in str(refused.value)


def test_the_key_is_not_shown():
    assert "sixteen" not in repr(Redaction(key=KEY))


def test_redacted_text_travels_with_placeholders():
    record = asked(f"Ask {ADA}", q=f"Who is {ADA}?", contexts=[f"{ADA} is it.", "Nobody."], error=f"no {ADA}")
    record.tags = {"lang": "de", "user": ADA}
    shown = Redaction("redacted")(record)
    assert (shown.q, shown.answer_json.claim) == ("Who is [email]?", "Ask [email]")
    assert shown.contexts == ["[email] is it.", "Nobody."]
    assert (shown.error, shown.tags) == ("no [email]", {"lang": "de", "user": "[email]"})
    assert shown.facts.redacted == ["q", "claim", "contexts"]


def test_a_record_without_personal_data_is_left_as_it_is():
    """Its text is all a monitor needs."""
    record = asked(tags={"lang": "de"}, session="s1")
    assert Redaction("redacted")(record) == record


def test_facts_beside_a_changed_text_are_those_of_the_text_as_it_was():
    record = asked("Call 030 1234567", q="Where is it?", contexts=["Call 030 1234567 at the harbour"])
    gold = make_gold(GoldItem("q1", "Where is it?", answerable=True, claim_substrings=["030 1234567"]))
    shown = Redaction("redacted", gold=GoldIndex(gold), measured=(Groundedness(),))(record)
    assert shown.answer_json.claim == "Call [phone]"
    assert shown.facts.contains_claim
    assert shown.measures == {"groundedness": 1.0}
    assert shown.facts.claim_chars == 16


@pytest.mark.parametrize("content", ["none", "hash"])
def test_ids_and_session_are_the_applications_and_travel_as_they_are(content):
    """A session called after a user calls for `redacted`."""
    shown = Redaction(content, key=KEY)(make_record(ADA, session=ADA, retrieved=[ADA], citations=[ADA]))
    assert (shown.qid, shown.session, shown.retrieved_ids, shown.answer_json.citations) == (ADA, ADA, [ADA], [ADA])


def test_a_session_called_after_a_user_gets_an_alias_where_there_is_a_key():
    """Conversations stay apart; without a key they cannot."""
    with_key, without = Redaction("redacted", key=KEY), Redaction("redacted")
    first, second = (with_key(asked(session=f"{name}@example.org")).session for name in ("ada", "bob"))
    assert first != second
    assert first == with_key(asked(session=ADA)).session
    assert "@" not in first + second
    assert without(asked(session=ADA)).session == "[email]"
    assert with_key(asked(session="s1")).session == "s1"


@pytest.mark.parametrize("content", ["none", "hash", "redacted"])
def test_a_user_is_personal_data_under_every_policy_but_full(content):
    """Spans bring the user without being asked; an opaque id is left as it is."""
    policy = Redaction(content, key=KEY)
    hidden = policy(asked(user=ADA)).user
    assert ADA not in hidden
    assert hidden == policy(asked(user=ADA)).user != policy(asked(user="bob@example.org")).user
    assert policy(asked(user="u-17")).user == "u-17"
    assert Redaction("full")(asked(user=ADA)).user == ADA


@pytest.mark.parametrize("policy", POLICIES)
def test_a_citation_of_what_was_not_retrieved_is_text(policy):
    """The model wrote it. What was retrieved, considered or is gold is an id, whatever it looks like."""
    gold = GoldItem("q1", "Where is it?", answerable=True, citations=["gold@example.org"])
    record = make_record("q1", citations=[ADA, "d@example.org", "c@example.org", "gold@example.org", "d9", ""])
    record.retrieved_ids, record.candidate_ids = ["d@example.org"], ["c@example.org"]
    shown = Redaction(**policy, gold=GoldIndex(make_gold(gold)))(record).answer_json.citations
    assert shown == ["[email]", "d@example.org", "c@example.org", "gold@example.org", "d9", ""]


def test_own_redactors_see_what_the_patterns_left():
    def names(text):
        assert ADA not in text
        return text.replace("Lovelace", "[name]")

    shown = Redaction("redacted", redactors=[names])(asked(f"Lovelace is {ADA}", tags={"by": "Lovelace"}))
    assert shown.answer_json.claim == "[name] is [email]"
    assert shown.tags == {"by": "[name]"}
    assert shown.facts.redacted == ["claim"]


# --- a redactor fails -------------------------------------------------------------------------------------------------


class Panic(BaseException):
    """What an extension module written in Rust raises."""


def failing(error):
    def redactor(text):
        if "Lovelace" in text:
            raise error(text)
        return text

    return redactor


def returning(value):
    return lambda text: value if "Lovelace" in text else text


BROKEN = [failing(KeyError), failing(Panic), failing(SystemExit), returning(None), returning(7), returning(b"bytes")]


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    """Every test hears its own warnings."""
    monkeypatch.setattr(errors, "_said", set())


@pytest.mark.parametrize("redactor", BROKEN)
@pytest.mark.parametrize("where", ["q", "claim", "contexts", "session", "user", "qid", "tags", "error", "citations"])
def test_where_a_redactor_fails_the_record_goes_without_text_and_is_counted(redactor, where, caplog):
    record = asked(session="s1", tags={"lang": "de"}, error=None)
    name = "Ms Lovelace"
    if where == "claim":
        record.answer_json.claim = name
    elif where == "citations":
        record.answer_json.citations = ["d1", name]
    else:
        setattr(record, where, {"contexts": [name], "tags": {"by": name}}.get(where, name))
    policy = Redaction("redacted", redactors=[redactor])
    shown = policy(record)
    assert not [text for text in texts_in(json.loads(line(shown))) if "Lovelace" in text or text in SECRET]
    assert (shown.q, shown.contexts, shown.answer_json.claim, shown.qid, shown.session) == (None,) * 5
    assert shown.retrieved_ids == ["d1"]
    assert shown.facts.claim_chars
    assert bool(shown.error) == (where == "error")
    assert len(shown.answer_json.citations) == (2 if where == "citations" else 1)
    assert policy.failed == 1
    policy(record)
    assert policy.failed == 2
    assert len(caplog.messages) == 1
    assert "Lovelace" not in caplog.text
    assert policy(asked()).q == SECRET[0], "the next record is none the worse"


@pytest.mark.parametrize("content", ["none", "hash"])
def test_a_redactor_that_fails_on_a_tag_takes_the_tags_along(content):
    policy = Redaction(content, key=KEY, redactors=[failing(ValueError)])
    shown = policy(asked(tags={"by": "Lovelace"}, session="s1"))
    assert (shown.tags, shown.session, policy.failed) == ({}, None, 1)


def test_the_warning_names_the_redactor_that_returned_no_text(caplog):
    def forgetful(text):
        str(text)

    Redaction("redacted", redactors=[forgetful])(asked(pipeline="support"))
    assert "support" in caplog.text
    assert "forgetful returned NoneType instead of str" in caplog.text


@pytest.mark.parametrize("text", ["half of a pair: \ud83d", type("Markup", (str,), {})("text")])
def test_what_a_redactor_returns_can_be_written(text):
    shown = Redaction("redacted", redactors=[lambda _: text])(asked())
    assert json.loads(line(shown))["q"].startswith(("half", "text"))


# --- laws -------------------------------------------------------------------------------------------------------------


@st.composite
def ibans(draw):
    country, size = draw(st.sampled_from([("DE", 18), ("GB", 18), ("NL", 14), ("ES", 20)]))
    inner = draw(st.text("0123456789", min_size=size, max_size=size))
    check = 98 - int("".join(str(int(char, 36)) for char in f"{inner}{country}00")) % 97
    compact = f"{country}{check:02}{inner}"
    return draw(st.sampled_from([compact, " ".join(compact[at : at + 4] for at in range(0, len(compact), 4))]))


@st.composite
def cards(draw):
    digits = draw(st.sampled_from("456")) + draw(st.text("0123456789", min_size=14, max_size=14))
    digits = "51" + digits[2:] if digits[0] == "5" else digits
    total = sum(sum(divmod(int(digit) * (2 - at % 2), 10)) for at, digit in enumerate(digits))
    whole = digits + str(-total % 10)
    return draw(st.sampled_from([whole, "-".join(whole[at : at + 4] for at in range(0, 16, 4))]))


def digits_in(form):
    return st.text("23456789", min_size=form.count("N"), max_size=form.count("N")).map(
        lambda digits: form.replace("N", "{}").format(*digits)
    )


FORMS = ["+49 30 NNNNNNN", "+44 20 NNNN NNNN", "(NNN) NNN-NNNN", "NNN-NNN-NNNN", "0171 NNNNNNN", "079NNNNNNNN"]
personal = st.one_of(
    st.from_regex(r"[a-z0-9][a-z0-9._+-]{0,20}@([a-z0-9]{1,9}\.){1,2}(com|de|museum)", fullmatch=True),
    ibans(),
    cards(),
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).map(str).filter(lambda address: address != "::"),
    st.sampled_from(FORMS).flatmap(digits_in),
    st.from_regex(r"(sk-proj-|ghp_|glpat-|hf_)[a-z]{3}[0-9][A-Za-z0-9]{30,40}", fullmatch=True),
    st.binary(min_size=30, max_size=90).map(
        lambda key: f"-----BEGIN PRIVATE KEY-----\n{base64.b64encode(key).decode()}\n-----END PRIVATE KEY-----"
    ),
)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@given(secret=personal)
def test_no_personal_data_survives_in_any_field(policy, secret):
    """Ids alone stay as they are, and under `redacted` those of request and session do not."""
    text = f"Write to {secret} about it."
    record = asked(text, q=text, contexts=["a passage", text], error=text, tags={"by": text, "id": secret})
    record.answer_json.citations = ["d1", secret, text]
    if policy["content"] == "redacted":
        record.qid, record.session = secret, text
    assert not [found for found in texts_in(json.loads(line(Redaction(**policy)(record)))) if secret in found]


def with_personal_data(world):
    """The same world with an address in every text, which is what the gold asks for and redaction takes out."""
    gold, records = world
    gold = GoldSet("gold", tuple(replace(item, claim_substrings=[ADA]) for item in gold))
    return gold, [_with_personal_data(record) for record in records]


def _with_personal_data(record):
    answer = record.answer_json
    if answer is not None and answer.claim:
        answer = Answer(f"{answer.claim} {ADA}", answer.citations)
    contexts = None if record.contexts is None else [f"{text} {ADA}" for text in record.contexts]
    return msgspec.structs.replace(record, answer_json=answer, contexts=contexts)


def figures(gold, records):
    """The metrics of some records, by series."""
    scorer = Scorer(gold)
    for record in records:
        scorer.observe(record)
    return {
        (series.pipeline, series.source, series.gold, name): (stat.n, stat.sum, stat.squares, stat.unassessed)
        for series in scorer.snapshot().series
        for name, stat in series.metrics.items()
        if stat.n or stat.unassessed
    }


def without_gold_by_text(world):
    """Which needs the contexts themselves."""
    gold, records = world
    return GoldSet("gold", tuple(item for item in gold if item.contexts is None)), records


of_ids = worlds(most=8).map(without_gold_by_text)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=40)
@given(world=of_ids | of_ids.map(with_personal_data))
def test_every_metric_has_the_value_it_has_on_the_text(policy, world):
    """Where the application has the gold."""
    gold, records = world
    measured = tuple(metric for metric in build().values() if metric.measured)
    policy = Redaction(**policy, probe_content=policy["content"], gold=GoldIndex(gold), measured=measured)
    assert figures(gold, map(policy, records)) == figures(gold, records)


def test_text_that_was_changed_is_not_judged_where_only_the_monitor_has_the_gold():
    """Whether the claim had the number can no longer be seen, which is not the same as that it had not."""
    gold = make_gold(GoldItem("q1", "What is it?", answerable=True, claim_substrings=["030 1234567"], citations=["d1"]))
    number, other = make_record("q1", claim="It is 030 1234567"), make_record("q1", claim="It is 42")
    told = figures(gold, map(Redaction("redacted"), (number, other)))
    assert told["default", "replay", "gold", "claim_containment"] == (1, 0, 0, {"no_text": 1})
    assert told["default", "replay", "gold", "citation_hit_rate"][0] == 2


def test_contexts_that_were_changed_are_not_compared_with_gold_texts():
    gold = make_gold(GoldItem("q1", "What is it?", answerable=True, contexts=[f"Ask {ADA}"]))
    told = figures(gold, [Redaction("redacted")(make_record("q1", contexts=[f"Ask {ADA}"]))])
    assert told["default", "replay", "gold", "recall"] == (0, 0, 0, {"no_text": 1})


def test_a_question_that_was_changed_matches_no_gold_question():
    gold = make_gold(GoldItem("q1", "Who is email", answerable=True, citations=["d1"]))
    told = figures(gold, [Redaction("redacted")(make_record(q=f"Who is {ADA}?"))])
    assert not [series for series in told if series[2]]
