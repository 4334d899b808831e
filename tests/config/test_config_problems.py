"""Every mistake in ragmon.toml is named with its line and with what would be right; all of them at once."""

from __future__ import annotations

import pytest

from ragmon.config.load import check, load
from ragmon.config.settings import ConfigDocument, GateTable, table_at
from ragmon.config.units import Table
from ragmon.core.errors import ConfigError, nearest


@pytest.fixture
def problems(tmp_path):
    """What `check` says of a text."""

    def _problems(text: str, **environ: str):
        path = tmp_path / "ragmon.toml"
        path.write_text(text, encoding="utf-8")
        return check(path, environ=environ)

    return _problems


CASES = {
    "an unknown key": ("[sampling]\nrat = 0.1\n", 2, "sampling.rat", "is not a known key", "did you mean rate?"),
    "an unknown table": ("\n[smapling]\n", 2, "smapling", "is not a known key", "did you mean sampling?"),
    "an unknown key of an inline table": (
        "[sampling]\nkeep = { eror = 1.0 }\n",
        2,
        "sampling.keep.eror",
        "is not a known key",
        "did you mean error?",
    ),
    "a mistyped reserved word": (
        '[gates]\npresett = "wfgy-eval"\n',
        2,
        "gates.presett",
        "is not a known key",
        "did you mean preset?",
    ),
    "a rate above 1": ("sampling.rate = 1.5\n", 1, "sampling.rate", "from 0 to 1", "0.05 is 5 %"),
    "a rate that is text": ('sampling.rate = "0.1"\n', 1, "sampling.rate", "from 0 to 1", "without quotes"),
    "a rate that is a boolean": ("sampling.rate = true\n", 1, "sampling.rate", "from 0 to 1", "number"),
    "a rate that is not a number": ("sampling.rate = nan\n", 1, "sampling.rate", "from 0 to 1", "number"),
    "a switch that is a number": ("sampling.detail = 1\n", 1, "sampling.detail", "true or false", "without quotes"),
    "a mistyped choice": (
        '[capture]\ncontent = "redact"\n',
        2,
        "capture.content",
        'must be "none", "hash", "redacted" or "full"',
        "did you mean redacted?",
    ),
    "a bad duration": ('sampling.slow_above = "5 parsecs"\n', 1, "sampling.slow_above", "duration", '"500ms"'),
    "a duration without unit": ("sampling.slow_above = 5\n", 1, "sampling.slow_above", "duration", '"500ms"'),
    "a duration of nothing": ('sampling.slow_above = "0s"\n', 1, "sampling.slow_above", "duration", "unit"),
    "a host with a port": ('serve.hosts = ["ragmon:9464"]\n', 1, "serve.hosts[0]", "host name", '"ragmon.example"'),
    "a bad size": ('serve.max_size = "5 apples"\n', 1, "serve.max_size", "size", '"5GiB"'),
    "a bad address": ('serve.otlp = "4318"\n', 1, "serve.otlp", "host and a port", '"127.0.0.1:4318"'),
    "a port out of range": ('serve.otlp = "a:70000"\n', 1, "serve.otlp", "host and a port", "127.0.0.1"),
    "an address that is no web address": ('export.endpoint = "ragmon:4318"\n', 1, "export.endpoint", "http", "http://"),
    "two sinks": (
        '[export]\nendpoint = "http://x"\njsonl = "t.jsonl"\n',
        1,
        "export",
        "has both endpoint and jsonl",
        "keep one",
    ),
    "half a certificate": ('serve.tls = { cert = "c.pem" }\n', 1, "serve.tls", '"off"', "key ="),
    "a cut of zero": ("[metrics]\nk = [1, 0]\n", 2, "metrics.k[1]", "at least 1", "whole number"),
    "a cut that is a boolean": ("[metrics]\nk = [true]\n", 2, "metrics.k[0]", "whole number", "without"),
    "a cut twice": ("[metrics]\nk = [5, 5]\n", 2, "metrics.k", "names 5 twice", "once"),
    "a list that is none": ("[metrics]\nk = 5\n", 2, "metrics.k", "must be a list", "brackets"),
    "a table that is none": ("sampling = 5\n", 1, "sampling", "must be a table", "[table]"),
    "gates that are no table": ("gates = 5\n", 1, "gates", "must be a table", "[table]"),
    "a window off the grid": ('windows = ["7s"]\n', 1, "windows[0]", "multiple of 10 seconds", "rows"),
    "a long window off the grid": ('windows = ["61m"]\n', 1, "windows[0]", "multiple of 300 seconds", "rows"),
    "one window twice": ('windows = ["60m", "1h"]\n', 1, "windows", "names '1h' twice", "once"),
    "no window": ("windows = []\n", 1, "windows", "must not be empty", "at least one"),
    "a broken pattern": (
        '[refusal]\npatterns = [\n  "fine",\n  "(",\n]\n',
        4,
        "refusal.patterns[1]",
        "regular expression",
        "re syntax",
    ),
    "a word instead of patterns": ('refusal.patterns = "none"\n', 1, "refusal.patterns", '"default" or a list', "list"),
    "patterns that are no list": ("refusal.patterns = 1\n", 1, "refusal.patterns", "must be a list", "brackets"),
    "the word default among patterns": (
        '[refusal]\npatterns = ["default", "beyond my book"]\n',
        2,
        "refusal.patterns[0]",
        "is not a pattern",
        "the shipped wordings count beside the list",
    ),
    "the shipped wordings in their own place": (
        '[refusal]\nreplace = true\npatterns = "default"\n',
        3,
        "refusal.patterns",
        "replace = true",
        "a list",
    ),
    "a pattern with capital letters": (
        'refusal.patterns = ["Goes beyond my (?P<Hut>HUT) book"]\n',
        1,
        "refusal.patterns[0]",
        "capital letters",
        "goes beyond my (?P<Hut>hut) book",
    ),
    "a pattern with a letter that folding changes": (
        'refusal.patterns = ["ich weiß nicht"]\n',
        1,
        "refusal.patterns[0]",
        "no folded answer has",
        "ich weiss nicht",
    ),
    "no refusal token": ("refusal.tokens = []\n", 1, "refusal.tokens", "must not be empty", "at least one"),
    "a judge whose name names no metric": (
        '[judges.Big-One]\nurl = "http://x"\nmodel = "m"\n',
        1,
        "judges.Big-One",
        "judge's name",
        "lower-case",
    ),
    "a judge that is asked nobody says what": (
        '[judges.tone]\nurl = "http://x"\nmodel = "m"\n',
        1,
        "judges.tone",
        "what the model is asked",
        'kind = "contextual_precision" or "faithfulness"',
    ),
    "a judge without a model": ('[judges.faithfulness]\nurl = "http://x"\n', 1, "judges.faithfulness", "model", "name"),
    "a model without an address": ('[judges.faithfulness]\nmodel = "m"\n', 1, "judges.faithfulness", "model", "url ="),
    "a link without the trace": ('links.trace = "https://x"\n', 1, "links.trace", "trace id", "{trace_id}"),
    "a word for both answers": (
        '[labels]\nvalues = { true = ["x"], false = ["X"] }\n',
        2,
        "labels.values",
        "both true and false",
        "either true or false",
    ),
    "two baselines": (
        '[alarms]\nbaseline = { learn = "1h", file = "b.json" }\n',
        2,
        "alarms.baseline",
        "either learn or file",
        "{ learn",
    ),
    "a budget of nothing": ("[alarms]\nlooks_per_day = 0\n", 2, "alarms.looks_per_day", "above 0", "1.0"),
    "the server inside a pipeline": (
        "[pipelines.a.serve]\n",
        1,
        "pipelines.a.serve",
        "is not a known key",
        "top of the file",
    ),
    "an unknown key inside a pipeline": (
        "[pipelines.a.sampling]\nrat = 1\n",
        2,
        "pipelines.a.sampling.rat",
        "is not a known key",
        "did you mean rate?",
    ),
    "pipelines that are no table": ("pipelines = 1\n", 1, "pipelines", "must be a table", "[pipelines.support]"),
    "a pipeline that is not a table": ("[pipelines]\na = 1\n", 2, "pipelines.a", "must be a table", "[pipeline]"),
    "a pipeline with a slash": ('[pipelines."a/b"]\n', 1, 'pipelines."a/b"', "not usable as a name", "slash"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_named_with_its_line_and_a_hint(problems, case):
    text, line, key, message, hint = CASES[case]
    (problem,) = problems(text)
    assert (problem.line, problem.key) == (line, key)
    assert message in problem.message
    assert hint in problem.hint
    assert str(problem).startswith(f"{problem.path}:{line}: {key} ")


SYNTAX = {
    "a key set twice": ("[sampling]\nrate = 1\nslow_above = 's'\nrate = 2\n", 4, "sampling.rate is set twice", "keep"),
    "a table defined twice": ("[serve]\n[export]\n[serve]\n", 3, "serve is set twice, first on line 1", "keep one"),
    "text without quotes": ("[sampling]\nslow_above = 8s\n", 2, "not TOML", "ragmon.toml is TOML"),
    "a word without quotes": ("[capture]\ncontent = none\n", 2, "invalid value", "in quotes"),
    "a key with an at sign": ("[gates]\nrecall@5 = {}\n", 2, "after a key", '"recall@5" is quoted'),
    "a path of Windows": ('[gold.g]\npath = "C:\\data\\gold.jsonl"\n', 2, "not TOML", "in 'single quotes'"),
    "one that looks like a code": ('[gold.g]\npath = "C:\\Users\\gold.jsonl"\n', 2, "not TOML", "in 'single quotes'"),
    "a list that never ends": ("x = 1\nwindows = [\n'5m',\n", 3, "not TOML", ""),
}


@pytest.mark.parametrize("case", SYNTAX)
def test_text_that_is_not_toml_is_named_with_its_line(problems, case):
    text, line, message, hint = SYNTAX[case]
    (problem,) = problems(text)
    assert problem.line == line
    assert message in str(problem)
    assert hint in problem.hint


def test_nesting_without_end_is_refused(problems):
    assert "nested too deeply" in str(problems("x = " + "[" * 100_000)[0])


def test_all_problems_are_reported_together_in_the_order_of_their_lines(problems):
    found = problems('[sampling]\nrate = 2\nparnt = "x"\n[metrics]\nk = [0]\n[gates.x]\nat_least = 0.5\n')
    assert [problem.line for problem in found] == [2, 3, 5, 6]


def test_a_mistake_that_holds_for_several_pipelines_is_reported_once(problems):
    assert len(problems("sampling.rate = 2\n[pipelines.a]\n[pipelines.b]\n")) == 1


def test_load_raises_the_first_and_says_how_many_there_are(tmp_path):
    path = tmp_path / "ragmon.toml"
    path.write_text("[sampling]\nrate = 2\nrat = 1\nrt = 1\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(path, environ={})
    assert str(caught.value).startswith(
        f"{path}:2: sampling.rate must be a number from 0 to 1 (the first of 3 problems)"
    )
    assert str(caught.value).endswith(": 2")
    assert caught.value.hint


def test_a_wrong_variable_is_named_instead_of_a_file(problems):
    (problem,) = problems("sampling.rate = 0.5\n", RAGMON_SAMPLE="lots")
    assert str(problem) == "environment RAGMON_SAMPLE: sampling.rate must be a number from 0 to 1: 'lots'"


def test_a_switch_that_is_neither_on_nor_off_is_named(problems):
    (problem,) = problems("", RAGMON_DISABLED="maybe")
    assert "RAGMON_DISABLED must be 1 or 0: 'maybe'" in str(problem)


@pytest.mark.parametrize(
    "text",
    [
        "[serve]\ntoken_file = ['hunter2']\n",
        "[probe.p]\ntarget = 'a:b'\nheaders = { Authorization = ['hunter2'] }\n",
        "[serve]\ntoken_file = hunter2\n",
        "[export]\nendpoint = 'ftp://me:hunter2@otel.example'\n",
        "[export]\nendpoint = 'http://me:hunter2@otel.example\n",
    ],
)
def test_a_secret_is_not_repeated_in_a_problem(problems, text):
    found = problems(text)
    assert found
    assert not any("hunter2" in f"{problem} {problem.hint}" for problem in found)


def every_table(model=ConfigDocument):
    """The models of all tables of a configuration."""
    yield model
    for key in model.model_fields:
        for path in ((key,), (key, "a-name")):
            inner = table_at(path, model)
            if inner is not None and inner is not model:
                yield from every_table(inner)


def mistyped(key):
    """The key without one of its letters, with one doubled, and with one too many."""
    for at in range(len(key)):
        yield from (key[:at] + key[at + 1 :], key[:at] + key[at] + key[at:], f"{key[:at]}x{key[at:]}")


def test_a_key_with_a_letter_missing_or_too_many_is_recognised():
    tables = {*every_table(), GateTable}
    assert {"SamplingTable", "CaptureTable", "GateTable", "ProbeTable"} <= {table.__name__ for table in tables}
    assert all(issubclass(table, Table) for table in tables)
    lost = [
        (table.__name__, wrong)
        for table in tables
        for key in table.model_fields
        for wrong in mistyped(key)
        if wrong
        and wrong not in table.model_fields
        and key not in nearest(wrong, table.model_fields).strip("?").split()
    ]
    assert lost == []
