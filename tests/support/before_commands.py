"""What the command line says: configurations shown and checked, every help, wrong usages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from tests.support.many_commands import Run, run_all

GOLD = [
    {
        "qid": "a1",
        "question": "When does the ferry leave?",
        "answerable": True,
        "gold_claim_substr": ["at six"],
        "gold_citations": ["ferry#1"],
    },
    {"qid": "u1", "question": "Who painted the ferry?", "answerable": False},
]
TRACE = {
    "v": 1,
    "trace_id": "0af7651916cd43dd8448eb211c80319c",
    "ts": 1764000000.0,
    "qid": "a1",
    "q": "When does the ferry leave?",
    "retrieved_ids": ["ferry#1", "ferry#2"],
    "answer_json": {"claim": "It leaves at six.", "citations": ["ferry#1"]},
}
FILES = {
    "gold.jsonl": "".join(json.dumps(item) + "\n" for item in GOLD),
    "empty.jsonl": "",
    "junk.jsonl": "{broken\n",
    "wrong.jsonl": '{"qid": 7}\n',
    "traces.jsonl": json.dumps(TRACE) + "\n",
    "junk.bin": "\0\1\2",
    "labels.csv": "trace_id,correct,rater\n0af7651916cd43dd8448eb211c80319c,yes,r1\n",
    "token": "a token of more than sixteen bytes\n",
    "key": "a key of far more than sixteen bytes\n",
    "report.json": "{}",
}

SHOWN = {
    "empty": "",
    "one pipeline": '[pipeline]\nname = "ferry-chat"\n',
    "sampling": (
        '[sampling]\nrate = 0.2\nslow_above = "3s"\ndetail = true\nlatency = "kept"\nparent = "respect"\n'
        "keep = { error = 0.5, refusal = 0.1 }\n"
    ),
    "sampling without strata": "[sampling]\nrate = 1\n[sampling.keep]\n",
    "capture": (
        '[capture]\ncontent = "redacted"\nprobe_content = "hash"\nid_from = "metadata.key"\nretrievers = ["look*"]\n'
        'merge = "rrf"\ngold = "gold.jsonl"\nredactors = ["names:mask"]\nhash_key_file = "key"\n'
    ),
    "refusal": '[refusal]\ntokens = ["no answer"]\nwindow = 60\nmatcher_counts = false\n',
    "refusal patterns": '[refusal]\npatterns = ["i must not say", "ask somebody else"]\n',
    "gold": (
        '[gold.main]\npath = "gold.jsonl"\npipeline = "support"\nuse = ["probe"]\ntags = { lang = "de" }\n'
        'match = "contains"\n[gold.second]\npath = ["gold.jsonl", "traces.jsonl"]\n[pipelines.support]\n'
    ),
    **{
        f"preset {name}": f'[gates]\npreset = "{name}"\n'
        for name in ("default", "wfgy-eval", "wfgy-live", "wfgy-example-08")
    },
    "gates": (
        '[gates]\nverdict = "point"\non_insufficient = "fail"\n'
        '[gates.first-five]\nmetric = "recall@5"\nat_least = 0.9\nwindow = "24h"\nmin_samples = 5\n'
        'page_below = 0.5\nestimand = "questions_like_these"\nsource = "probe"\n'
        '[gates.error_rate]\nat_most = 0.02\nseverity = "ticket"\nslice = { lang = "de" }\n'
        '[gates.index_hash]\nkind = "distinct"\nat_most = 1.0\n'
        '[gates.latency]\nkind = "quantile_ratio"\nat_most = 2.0\n[slices]\nlang = ["de", "en"]\n'
    ),
    "windows": 'windows = ["10m", "6h", "7d"]\n[gates.error_rate]\nat_most = 0.1\nwindow = "6h"\n',
    "metrics": (
        '[metrics]\nk = [1, 20]\nanswered_within = "2s"\ngrounded_threshold = 0.4\ncluster = ["session"]\n'
        "citations_required = true\n"
    ),
    "alarms": '[alarms]\nfalse_pages_per_30d = 0.5\nlooks_per_day = 2\n[alarms.baseline]\nlearn = "1h"\n',
    "probes": (
        '[gold.main]\npath = "gold.jsonl"\n[probe.live]\ntarget = "http://127.0.0.1:8000/ask?token=hidden"\n'
        'every = "30m"\nmax_per_day = 100\nconcurrency = 1\ntimeout = "5s"\nburst = 0\n'
        'headers = { Authorization = "Bearer hidden" }\nbody = \'{"q": "{question}"}\'\nanswer = { claim = "text" }\n'
    ),
    "judges": (
        '[judges.faithfulness]\nurl = "http://user:hidden@127.0.0.1:9000/v1"\nmodel = "m"\napi_key_file = "key"\n'
        'sample = 0.1\nmax_per_day = 10\nthreshold = 0.7\ninclude_reason = false\nstrict = true\nversion = "2"\n'
        'timeout = "10s"\nconcurrency = 1\n[labels]\nproxy = "judge_faithfulness"\n'
    ),
    "labels": ('[labels.column]\ntrace_id = "id"\ncorrect = "ok"\n[labels.values]\ntrue = ["ja"]\nfalse = ["nein"]\n'),
    "links": (
        '[links]\ntrace = "https://u:hidden@traces.example/{trace_id}"\nstatus = "https://status.example"\n'
        'runbook = "https://wiki.example/{alert}"\ndashboard = "https://grafana.example"\n'
    ),
    "export": (
        '[export]\nendpoint = "http://127.0.0.1:4318"\nscores = "http://127.0.0.1:6006/v1/traces"\nscore_spans = true\n'
    ),
    "trace log": '[export]\njsonl = "t.jsonl"\nrotate_size = "10MiB"\nrotate_every = "1d"\nfsync = "second"\n',
    "serve": (
        '[serve]\notlp = "0.0.0.0:5318"\ngrpc = "[::1]:5317"\nadmin = "127.0.0.1:9999"\nhosts = ["ragmon.example"]\n'
        'token_file = "token"\ntls = "upstream"\nstate_dir = "s"\nretention = "2d"\nmax_size = "1GiB"\n'
        "max_series = 500\n"
    ),
    "serve a stream": (
        '[serve]\nfrom = "stream"\n[stream]\nbrokers = "127.0.0.1:9092"\nspans = "s"\nencoding = "records"\n'
        'chunks = "c"\ngroup = "g"\npartitioner = "murmur2_random"\nperiod = "20s"\nmemory = "5m"\nsamples = 0\n'
        'patience = "1m"\nkafka = { "sasl.username" = "u", "sasl.password_file" = "key" }\n'
    ),
    "serve the sum of servers": '[serve]\nof = ["http://127.0.0.1:9001", "http://127.0.0.1:9002"]\n',
    "pipelines": (
        '[sampling]\nrate = 0.5\n[capture]\ncontent = "full"\n[gates]\npreset = "default"\n'
        '[pipelines.support.sampling]\nrate = 1.0\n[pipelines.support.capture]\ncontent = "none"\n'
        "[pipelines.harbour.gates.error_rate]\nat_most = 0.5\n[pipelines.harbour.metrics]\nk = [2]\n"
    ),
    "extends another": 'extend = "base.toml"\n[sampling]\nrate = 0.9\n',
}
"""Files that `config show` shows."""
BASE = '[sampling]\nrate = 0.1\nslow_above = "1s"\n[capture]\ncontent = "hash"\nhash_key_file = "key"\n'
ENVIRONMENTS = {
    "sample": {"RAGMON_SAMPLE": "0.75"},
    "content": {"RAGMON_CONTENT": "full"},
    "endpoint": {"RAGMON_ENDPOINT": "http://127.0.0.1:5000"},
    "state and token": {"RAGMON_STATE_DIR": "elsewhere", "RAGMON_TOKEN_FILE": "token"},
    "build and service": {"RAGMON_BUILD": "b1", "OTEL_SERVICE_NAME": "chat"},
    "resource": {"OTEL_RESOURCE_ATTRIBUTES": "service.version=b2,service.name=s2"},
    "disabled": {"RAGMON_DISABLED": "1"},
    "wrong sample": {"RAGMON_SAMPLE": "2"},
    "wrong content": {"RAGMON_CONTENT": "some"},
    "wrong endpoint": {"RAGMON_ENDPOINT": "nowhere"},
    "wrong disabled": {"RAGMON_DISABLED": "maybe"},
    "absent file": {"RAGMON_CONFIG": "absent.toml"},
}

CHECKED = [
    "[sampling\nrate = 1\n",
    "rate = \n",
    "a = 1\na = 2\n",
    "\ufeff[sampling]\nrate = 2\n",
    "[sampling]\nrate = 1.5\n",
    '[sampling]\nrate = "all"\n',
    "[sampling]\nrate = nan\n",
    "[sampling]\nrte = 0.5\n",
    "[samplng]\nrate = 0.5\n",
    '[sampling]\nslow_above = "eight"\n',
    "[sampling]\nslow_above = 8\n",
    '[sampling]\nlatency = "some"\n',
    '[sampling]\nparent = "obey"\n',
    "[sampling]\ndetail = 1\n",
    "[sampling.keep]\nerror = -0.1\n",
    "[sampling.keep]\nerrors = 1.0\n",
    '[capture]\ncontent = "some"\n',
    '[capture]\ncontent = "hash"\n',
    '[capture]\nid_from = "a..b"\n',
    '[capture]\nretrievers = "search"\n',
    '[capture]\nmerge = "best"\n',
    '[capture]\ngold = "absent.jsonl"\n',
    '[capture]\nredactors = ["no module"]\n',
    '[capture]\nredactors = ["absent_module:mask"]\n',
    '[capture]\nhash_key_file = "absent"\n',
    '[refusal]\npatterns = ["(unclosed"]\n',
    '[refusal]\npatterns = "defaults"\n',
    "[refusal]\nwindow = 0\n",
    "[refusal]\ntokens = [7]\n",
    '[gold.main]\nuse = ["probe"]\n',
    '[gold.main]\npath = "absent.jsonl"\n',
    '[gold.main]\npath = "wrong.jsonl"\n',
    '[gold.main]\npath = "gold.jsonl"\nuse = ["live"]\n',
    '[gold.main]\npath = "gold.jsonl"\nmatch = "nearly"\n',
    '[gold.main]\npath = "gold.jsonl"\npipeline = "absent"\n',
    '[gold.main]\npath = "gold.jsonl"\nfrozen = "absent.json"\n',
    '[gold."a b"]\npath = "gold.jsonl"\n',
    '[gates]\npreset = "defualt"\n',
    '[gates]\nverdict = "mean"\n',
    '[gates]\non_insufficient = "ignore"\n',
    "[gates.answer_precison]\nat_least = 0.8\n",
    "[gates.answer_precision]\nat_least = 0.8\nat_most = 0.9\n",
    "[gates.answer_precision]\nat_least = 80\n",
    "[gates.answer_precision]\n",
    '[gates.answer_precision]\nat_least = 0.8\nwindow = "2h"\n',
    '[gates.answer_precision]\nat_least = 0.8\nsource = "users"\n',
    '[gates.answer_precision]\nat_least = 0.8\ngold = "absent"\n',
    '[gates.answer_precision]\nat_least = 0.8\nslice = { lang = "fr" }\n',
    '[gates.answer_precision]\nat_least = 0.8\nseverity = "loud"\n',
    "[gates.answer_precision]\nat_least = 0.8\npage_below = 0.9\n",
    "[gates.answer_precision]\nat_least = 0.8\nmin_samples = 0\n",
    '[gates.answer_precision]\nat_least = 0.8\nkind = "mean"\n',
    '[gates.deep]\nmetric = "recall@7"\nat_least = 0.5\n',
    'windows = ["5x"]\n',
    'windows = ["7s"]\n',
    "windows = []\n",
    "[metrics]\nk = [0]\n",
    "[metrics]\nk = [5000]\n",
    '[metrics]\ncluster = ["user"]\n',
    '[metrics]\nanswered_within = "-1s"\n',
    "[alarms]\nfalse_pages_per_30d = 0\n",
    '[alarms.baseline]\nfile = "absent.json"\n',
    '[alarms.baseline]\nlearn = "1h"\nfile = "report.json"\n',
    '[probe.live]\nevery = "1h"\n',
    '[probe.live]\ntarget = "ftp://host/ask"\n[gold.main]\npath = "gold.jsonl"\n',
    '[probe.live]\ntarget = "http://127.0.0.1:1/ask"\n',
    '[probe.live]\ntarget = "http://127.0.0.1:1/ask"\nbody = "no place"\n[gold.main]\npath = "gold.jsonl"\n',
    '[probe.live]\ntarget = "http://127.0.0.1:1/ask"\nheaders = { "a b" = "c" }\n[gold.main]\npath = "gold.jsonl"\n',
    '[judges.mine]\nurl = "http://127.0.0.1:1/v1"\n',
    '[judges.faithfulness]\nurl = "http://127.0.0.1:1/v1"\nmodel = "m"\napi_key_file = "absent"\n',
    '[judges.faithfulness]\nurl = "http://127.0.0.1:1/v1"\nmodel = "m"\nsample = 2\n',
    '[judges.faithfulness]\nkind = "truth"\n',
    '[labels]\nproxy = "judge_absent"\n',
    "[labels.column]\ncorrect = 7\n",
    '[labels.values]\ntrue = ["yes"]\nfalse = ["Yes"]\n',
    '[links]\ntrace = "https://traces.example/"\n',
    '[links]\nstatus = "status.example"\n',
    '[export]\nendpoint = "127.0.0.1:4318"\n',
    '[export]\nendpoint = "http://127.0.0.1:4318"\njsonl = "t.jsonl"\n',
    '[export]\njsonl = "absent/folder/t.jsonl"\n',
    '[export]\njsonl = "t.jsonl"\nrotate_size = "10 elephants"\n',
    '[export]\njsonl = "t.jsonl"\nfsync = "always"\n',
    "[pipeline]\nname = 7\n",
    '[pipeline]\nname = "a/b"\n',
    '[pipeline]\nname = "a"\n[pipelines.b]\n',
    "[pipelines.a.serve]\nadmin = 9464\n",
    "[pipelines.a.sampling]\nrate = 7\n",
    "[serve]\nadmin = 70000\n",
    '[serve]\nadmin = "nowhere:port"\n',
    "[serve]\notlp = 4318\ngrpc = 4318\n",
    '[serve]\ntoken_file = "absent"\n',
    '[serve]\ntls = "on"\n',
    '[serve]\ntls = { cert = "absent.pem", key = "absent.key" }\n',
    '[serve]\nretention = "1m"\n',
    '[serve]\nmax_size = "1KiB"\n',
    "[serve]\nmax_series = 0\n",
    '[serve]\nof = ["127.0.0.1:9464"]\n',
    '[serve]\nfrom = "stream"\n',
    '[serve]\nfrom = "files"\n',
    '[stream]\nencoding = "avro"\n',
    '[stream]\nperiod = "7s"\n',
    "[stream]\nsamples = 5000\n",
    '[stream]\nbrokers = "nowhere"\n',
    '[stream]\nkafka = { "sasl.password" = 7 }\n',
    '[slices]\nlang = "de"\n',
    'plugins = ["absent_plugin"]\n',
    'plugins = "names"\n',
    'extend = "absent.toml"\n',
    'extend = "itself.toml"\n',
]
"""Files with one fault each, or one line that looks like a fault, for `config check`."""

USAGES = [
    "",
    "replya traces.jsonl",
    "--verson",
    "config",
    "config chek",
    "config check extra",
    "config check -c absent.toml",
    "config check -c .",
    "config check -c junk.bin",
    "config show --format yaml",
    "config show -c",
    "replay",
    "replay absent.jsonl",
    "replay .",
    "replay empty.jsonl",
    "replay junk.jsonl",
    "replay junk.bin",
    "replay traces.jsonl --gold absent.jsonl",
    "replay traces.jsonl --gold wrong.jsonl",
    "replay traces.jsonl --gold empty.jsonl",
    "replay traces.jsonl --format pdf",
    "replay traces.jsonl --jobs 0",
    "replay traces.jsonl --jobs many",
    "replay traces.jsonl --questions none",
    "replay traces.jsonl --duplicates both",
    "replay traces.jsonl --windows --format md",
    "replay traces.jsonl -o absent/folder/report.json",
    "replay traces.jsonl --journal absent",
    "replay --journal absent",
    "replay --journal .",
    "replay traces.jsonl --compat seed-009",
    "replay traces.jsonl --compat seed-002 --windows",
    "replay traces.jsonl --k 5",
    "replay traces.jsonl --max-drop 0.1",
    "replay traces.jsonl --baseline absent.json",
    "replay traces.jsonl --baseline report.json",
    "replay traces.jsonl --labels absent.csv",
    "replay - -",
    "gate",
    "gate traces.jsonl",
    "gate traces.jsonl --gold gold.jsonl",
    "gate traces.jsonl --gold gold.jsonl --policy absent",
    "gate traces.jsonl --gold gold.jsonl --max-drop 2",
    "gate junk.jsonl --gold gold.jsonl",
    "gold",
    "gold lint",
    "gold lint absent.jsonl",
    "gold lint wrong.jsonl",
    "gold lint gold.jsonl",
    "gold stats gold.jsonl",
    "gold diff gold.jsonl",
    "gold diff gold.jsonl gold.jsonl",
    "gold freeze",
    "gold freeze gold.jsonl",
    "gold from-table",
    "gold from-table labels.csv",
    "baseline",
    "baseline freeze",
    "baseline freeze absent.jsonl",
    "compare",
    "compare traces.jsonl",
    "compare --baseline b1 --candidate b2 absent.jsonl",
    "compare --by colour traces.jsonl",
    "doctor --url nowhere",
    "doctor --url http://127.0.0.1:9",
    "doctor --nothing",
    "forget",
    "forget --trace abc",
    "forget --state-dir absent --trace 0af7651916cd43dd8448eb211c80319c",
    "generate",
    "generate rules -c absent.toml",
    "generate poems",
    "generate rules --format docker",
    "label",
    "label import",
    "label import absent.csv",
    "label import labels.csv --url http://127.0.0.1:9",
    "label export",
    "probe",
    "probe absent",
    "schema",
    "schema poem",
    "schema trace --format yaml",
    "serve extra",
    "serve --no-such-option",
    "serve -c absent.toml",
    "serve --admin 70000",
    "show",
    "show abc",
    "show 0af76519 absent.jsonl",
    "show 0af76519 traces.jsonl --url http://127.0.0.1:9",
    "show ffffffff traces.jsonl",
    "show 0af76519 --url http://127.0.0.1:9",
    "show 0af76519 --state-dir absent",
    "top --url nowhere",
    "top --url http://127.0.0.1:9 --once",
    "verify",
    "verify absent",
    "verify --state-dir absent",
    "verify --url http://127.0.0.1:9",
    "view",
    "view absent",
    "why",
    "why answer_precision",
    "why answer_precision --url http://127.0.0.1:9",
    "ack",
    "ack answer_precision",
    "ack answer_precision --reason because --url http://127.0.0.1:9",
    "work",
    "work --partitions x",
]
"""Command lines that are wrong, or right by a hair."""


def configurations(folder: Path, every: int = 1) -> dict[str, Any]:
    """`commands/configurations`: what `config show` and `config check` say of whole and of broken files.

    Args:
        folder: An empty folder.
        every: 1 for all of them, 8 for every eighth.
    """
    _write(folder, {**FILES, "base.toml": BASE, "itself.toml": 'extend = "itself.toml"\n'})
    shown = {name: f"shown{number}.toml" for number, name in enumerate(SHOWN)}
    broken = {text: f"broken{number}.toml" for number, text in enumerate(CHECKED)}
    _write(folder, {path: SHOWN[name] for name, path in shown.items()} | {path: text for text, path in broken.items()})
    kinds = {
        "shown": {name: Run(["config", "show", "-c", path, "--format", "json"]) for name, path in shown.items()},
        "shown as text": {name: Run(["config", "show", "-c", shown[name]]) for name in ("empty", "gates", "probes")},
        "environment": {
            name: Run(["config", "show", "--format", "json"], env=values) for name, values in ENVIRONMENTS.items()
        },
        "broken": {text: Run(["config", "check", "-c", path]) for text, path in broken.items()},
        "checked": {name: Run(["config", "check", "-c", path]) for name, path in shown.items()},
    }
    return {"commands/configurations": _said(folder, _some(kinds, every))}


def usages(folder: Path, every: int = 1) -> dict[str, Any]:
    """`commands/usages`: exit code and words of wrong usages.

    Args:
        folder: An empty folder.
        every: As for `configurations`.
    """
    _write(folder, FILES)
    kinds = {"usages": {line: Run(line.split()) for line in USAGES}}
    return {"commands/usages": _said(folder, _some(kinds, every))}


def helps(folder: Path) -> dict[str, Any]:
    """`commands/helps`: the help of every command, found from the help of the one above.

    Args:
        folder: An empty folder.
    """
    helps, level = {}, [""]
    while level:
        said = _said(folder, {"": {line: Run([*line.split(), "--help"]) for line in level}})[""]
        helps |= said
        level = [f"{line} {name}".strip() for line, told in said.items() for name in _commands(told["out"])]
    return {"commands/helps": helps}


def _commands(lines: Sequence[str]) -> Iterator[str]:
    if "Commands:" in lines:
        for line in lines[lines.index("Commands:") + 1 :]:
            if found := re.match(r"  (\S+)", line):
                yield found[1]


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def _some(kinds: dict[str, dict[str, Run]], every: int) -> dict[str, dict[str, Run]]:
    return {kind: dict(islice(runs.items(), 0, None, every)) for kind, runs in kinds.items()}


def _said(folder: Path, kinds: dict[str, dict[str, Run]]) -> dict[str, Any]:
    """What all runs of all kinds left behind: JSON where the output is, lines else."""
    runs = [run for of_kind in kinds.values() for run in of_kind.values()]
    answers = iter(run_all(folder, runs))
    return {kind: {name: _leaves(next(answers)) for name in of_kind} for kind, of_kind in kinds.items()}


def _leaves(answer: dict[str, Any]) -> dict[str, Any]:
    out, err = answer["out"], answer["err"].splitlines()
    return {"code": answer["code"], "out": json.loads(out) if out.startswith("{") else out.splitlines(), "err": err}


SUBJECTS: dict[str, Callable[[Path, Path], dict[str, Any]]] = {
    "configurations": configurations,
    "usages": usages,
    "helps": helps,
}
