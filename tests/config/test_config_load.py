"""A ragmon.toml becomes settings: every table, every kind of value, and the defaults."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragmon.config.load import defaults, load

EVERY_TABLE = """\
windows = ["10m", "6h"]

[pipelines.support]
[pipelines.support.sampling]
rate = 0.2

[sampling]
rate = 0.1
keep = { error = 1.0, refusal = 0.5 }
slow_above = "500ms"
detail = true
latency = "kept"
parent = "respect"
[capture]
content = "hash"
probe_content = "redacted"
id_from = "metadata.chunk_id"
retrievers = ["retrieve", "search_*"]
reasoning = ["plan"]
merge = "concat"
pipeline = "workflow"
gold = "gold.jsonl"
redactors = ["json:dumps"]
hash_key_file = "hash.key"
[errors]
ignore = ["QuotaExceeded", "app.errors.*"]
[refusal]
tokens = ["not in context", "no answer"]
patterns = ["^sorry", "cannot (say|tell)"]
replace = true
window = 80
matcher_counts = true
[citations]
base = 0
[slices]
lang = ["de", "en"]
[gold.support]
path = ["gold.jsonl", "more.jsonl"]
pipeline = "support"
use = ["probe"]
tags = { product = "x" }
match = "contains"
ids = ["casefold", "prefix"]
embed = "json:dumps"
frozen = "gold.frozen.json"
key_file = "gold.key"
[gates]
preset = "wfgy-eval"
verdict = "point"
on_insufficient = "fail"
[gates.precision-de]
metric = "answer_precision"
at_least = 0.80
source = "probe"
gold = "support"
slice = { lang = "de" }
window = "6h"
estimand = "questions_like_these"
min_samples = 50
page_below = 0.70
severity = "ticket"
[metrics]
k = [2, 4]
answered_within = "1.5s"
grounded_threshold = 0.2
citations_required = true
cluster = ["question"]
[alarms]
false_pages_per_30d = 2
looks_per_day = 0.5
baseline = { learn = "2h" }
[probe.support]
target = "https://rag.example/answer"
gold = "support"
every = "30m"
max_per_day = 10
concurrency = 1
timeout = "5s"
headers = { Authorization = "Bearer x" }
body = '{"q": "{question}"}'
answer = { claim = "result.text", retrieved = "sources" }
burst = 20
bursts_per_day = 3
[judges.faithfulness]
url = "https://judge.example/v1"
model = "small"
api_key_file = "judge.key"
kind = "faithfulness"
sample = 0.5
max_per_day = 7
threshold = 0.8
range = [1, 5]
include_reason = false
strict = true
version = "2"
timeout = "9s"
concurrency = 4
[labels]
column = { trace_id = "Trace", correct = "Correct?" }
values = { true = ["ja"], false = ["nein"] }
proxy = "judge_faithfulness"
[links]
trace = "https://traces.example/{trace_id}"
status = "https://ragmon.example"
runbook = "https://wiki.example/runbook#{alert}"
dashboard = "https://grafana.example"
[serve]
otlp = "0.0.0.0:1"
grpc = "[::1]:2"
admin = "localhost:3"
token_file = "serve.token"
tls = { cert = "c.pem", key = "k.pem" }
state_dir = "state"
retention = "14d"
max_size = "500MB"
max_series = 20_000
hosts = ["ragmon.example"]
[rules]
by = ["datacenter"]
[stream]
brokers = "kafka:9092"
spans = "spans"
encoding = "records"
metrics = "metrics"
chunks = "chunks"
group = "counting"
partitioner = "murmur2_random"
period = "30s"
memory = "5m"
samples = 4
patience = "2m"
kafka = { "sasl.password" = "hush" }
[export]
endpoint = "http://ragmon:4318"
rotate_size = "64MiB"
rotate_every = "1d"
fsync = "second"
scores = "http://phoenix:6006"
score_spans = true
protocol = "http/protobuf"
headers = { x-tenant = "docs" }
certificate = "receiver.pem"
client_certificate = "client.pem"
compression = "gzip"
timeout = "5s"
"""


@pytest.fixture
def write(tmp_path):
    """Writes ragmon.toml and returns its path."""

    def _write(text: str) -> Path:
        path = tmp_path / "ragmon.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return _write


@pytest.fixture
def full(write):
    return load(write(EVERY_TABLE), environ={})


def test_no_key_of_the_full_example_is_left_at_its_default(full):
    """Proof that the example reaches every key: the only defaults are those it cannot set beside the others."""
    left = {key for key, origin in full.origins.items() if origin == "default" and not key.startswith("pipelines.")}
    beside = {"extend", "plugins", "pipeline.name", "export.jsonl", "build", "service", "disabled", "serve.from"}
    assert {key for key in left if not key.startswith("gates.")} == beside


def test_times_and_sizes_are_seconds_and_bytes(full):
    assert full.windows == {"10m": 600, "6h": 21_600}
    assert full.unconfigured.sampling.slow_above == 0.5
    assert full.unconfigured.metrics.answered_within_ms == 1500
    assert (full.probes[0].every, full.probes[0].timeout) == (1800, 5)
    assert full.serve.retention == 14 * 86_400
    assert full.serve.max_size == 500_000_000


def test_refusals_become_the_rule_the_facts_use(full):
    rule = full.unconfigured.refusal.rule()
    assert rule.kind("no answer") == "token"
    assert rule.kind("i really cannot tell")
    assert not rule.kind("the ferry leaves at nine")
    assert (rule.window, rule.matcher_counts) == (80, True)


def test_paths_are_relative_to_the_file_they_stand_in(full, tmp_path):
    assert full.gold[0].path == (tmp_path / "gold.jsonl", tmp_path / "more.jsonl")
    assert (full.gold[0].frozen, full.gold[0].key_file) == (tmp_path / "gold.frozen.json", tmp_path / "gold.key")
    assert full.unconfigured.capture.hash_key_file == tmp_path / "hash.key"
    assert full.unconfigured.judges["faithfulness"].api_key_file == tmp_path / "judge.key"
    assert full.serve.tls.key == tmp_path / "k.pem"
    assert full.serve.state_dir == tmp_path / "state"


def test_addresses_are_hosts_and_ports(full):
    serve = full.serve
    assert (serve.grpc.host, serve.grpc.port, serve.grpc.is_loopback) == ("::1", 2, True)
    assert [str(a) for a in (serve.otlp, serve.grpc, serve.admin)] == ["0.0.0.0:1", "[::1]:2", "localhost:3"]
    assert not serve.otlp.is_loopback


def test_a_probe_goes_through_the_pipeline_of_its_gold_set(full):
    (probe,) = full.probes
    assert (probe.name, probe.pipeline, probe.gold) == ("support", "support", "support")
    assert probe.answer == {"claim": "result.text", "retrieved": "sources"}
    assert full.pipelines["support"].has_probe


def test_a_pipelines_own_key_stands_beside_the_tables_of_all(full):
    support = full.pipelines["support"]
    assert support.sampling.rate == 0.2
    assert support.sampling.detail is True
    assert full.of("unheard-of").sampling.rate == 0.1


@pytest.mark.parametrize(
    ("table", "own", "shipped"),
    [
        ("", False, True),
        ('patterns = "default"', False, True),
        ("patterns = []", False, True),
        ('patterns = ["beyond my book"]', True, True),
        ('patterns = ["beyond my book"]\nreplace = false', True, True),
        ('patterns = ["beyond my book"]\nreplace = true', True, False),
        ("patterns = []\nreplace = true", False, False),
    ],
)
def test_patterns_count_beside_the_shipped_wordings_unless_they_replace_them(write, table, own, shipped):
    rule = load(write(f"[refusal]\n{table}\n"), environ={}).unconfigured.refusal.rule()
    assert (rule.kind("that goes beyond my book.") is not None) == own
    assert (rule.kind("i don't know.") is not None) == shipped


def test_a_pipeline_replaces_what_all_others_add(write):
    text = '[refusal]\npatterns = ["beyond my book"]\n[pipelines.a.refusal]\nreplace = true\n'
    settings = load(write(text), environ={})
    assert [settings.of(name).refusal.rule().kind("i don't know.") is not None for name in ("a", "b")] == [False, True]
    assert all(settings.of(name).refusal.rule().kind("beyond my book") for name in ("a", "b"))


@pytest.mark.parametrize(
    "pattern",
    [
        r"\S\W\D\B\Aa\Z",
        "(?P<Name>no)(?P=Name)",
        "(?P<Name>no)?(?(Name)pe|t)",
        "(?i:Sorry)",
        "(?#No Answer)no",
        r"\N{LATIN SMALL LETTER A}",
        r"\u00e9",
    ],
)
def test_escapes_names_and_flags_are_no_capital_letters(write, pattern):
    load(write(f"refusal.patterns = ['{pattern}']\n"), environ={})


def test_each_pattern_has_groups_of_its_own(write):
    rule = load(write("refusal.patterns = ['(?P<a>no)(?P=a)', '(?P<a>ask)']"), environ={}).unconfigured.refusal.rule()
    assert rule.kind("nono")
    assert rule.kind("ask again")


@pytest.mark.parametrize("way", ["off", "upstream"])
def test_tls_may_be_off_or_end_before_the_server(write, way):
    assert load(write(f'serve.tls = "{way}"\n'), environ={}).serve.tls == way


def test_settings_cannot_be_changed(full):
    with pytest.raises(AttributeError):
        full.build = "x"
    with pytest.raises(ValueError, match="frozen"):
        full.unconfigured.sampling.rate = 1.0


def test_without_a_file_the_defaults_hold(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = load(environ={})
    assert settings == defaults()
    assert settings.path is None
    assert dict(settings.pipelines) == {}
    assert settings.expected_pipelines == ("default",)
    assert settings.unconfigured.sampling.rate == 0.05
    assert dict(settings.unconfigured.sampling.keep) == {"error": 1.0, "refusal": 0.2, "slow": 1.0}
    assert settings.unconfigured.refusal.rule().kind("i don't know.")
    assert settings.unconfigured.metrics.answered_within_ms is None
    assert settings.export.endpoint is None
    assert str(settings.serve.max_size) == "5GiB"
    assert set(settings.origins.values()) == {"default"}


def test_the_short_form_names_the_one_pipeline(write):
    settings = load(write('[pipeline]\nname = "shop"\n'), environ={})
    assert list(settings.pipelines) == ["shop"]
    assert settings.pipeline == "shop"
    assert {gate.pipeline for gate in settings.policy().gates} == {"shop"}


def test_pipelines_with_tables_of_their_own_replace_the_default_one(write):
    settings = load(write("[pipelines.a]\n[pipelines.b]\n"), environ={})
    assert list(settings.pipelines) == ["a", "b"]


PRESETS = """\
[gates]
preset = "wfgy-eval"
[pipelines.published]
[pipelines.counts]
refusal.matcher_counts = true
[pipelines.own]
gates.preset = "default"
"""


def test_refusals_in_plain_words_count_unless_a_published_preset_judges_the_pipeline(write):
    assert load(write(""), environ={}).unconfigured.refusal.matcher_counts
    settings = load(write(PRESETS), environ={})
    counts = {name: settings.of(name).refusal.matcher_counts for name in ("published", "counts", "own", "unheard-of")}
    assert counts == {"published": False, "counts": True, "own": True, "unheard-of": False}


@pytest.mark.parametrize("preset", ["wfgy-eval", "wfgy-example-08", "wfgy-live"])
def test_every_published_preset_keeps_the_token(write, preset):
    assert not load(write(f'gates.preset = "{preset}"\n'), environ={}).unconfigured.refusal.matcher_counts
    written = f'gates.preset = "{preset}"\nrefusal.matcher_counts = true\n'
    assert load(write(written), environ={}).unconfigured.refusal.matcher_counts


def test_the_preset_that_decides_what_a_refusal_is_is_named_as_origin(write):
    origins = load(write(PRESETS), environ={}).origins
    assert origins["refusal.matcher_counts"] == "ragmon.toml:2"
    assert origins["pipelines.counts.refusal.matcher_counts"] == "ragmon.toml:5"
    assert origins["pipelines.own.refusal.matcher_counts"] == "ragmon.toml:7"
    assert "pipelines.published.refusal.matcher_counts" not in origins
