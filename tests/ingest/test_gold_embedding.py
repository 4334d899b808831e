"""Questions are matched by meaning where the text is, with a threshold the gold set itself has proven."""

from __future__ import annotations

import inspect
import os
import random
import string
import sys
from zlib import crc32

import numpy as np
import pytest

import ragmon as api
from ragmon.capture.call import install_runtime
from ragmon.config.load import load
from ragmon.core.errors import RagmonError
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Record, TextFacts, encode
from ragmon.gates import coverage
from ragmon.ingest.gold import GoldSet, Nearest, load_gold
from ragmon.monitor.embedded import Monitor
from ragmon.monitor.exporting import Embeddings, nearest_of
from ragmon.monitor.install import Installation
from ragmon.scoring.scorer import ScorerFactory
from tests.support.command_line import lines, ragmon
from tests.support.serving import accounted, serving

DIMENSIONS = 2048
FRAMES = (
    "What is the {0} of {1} in {2}?",
    "Tell me the {0} of {1} in {2}, please",
    "I would like to know the {0} that {1} has in {2}",
    "{2}: which {0} does {1} have?",
)


def embed(texts):
    """Hashed character trigrams of each word: real vectors, of no model."""
    found = np.zeros((len(texts), DIMENSIONS))
    for row, text in enumerate(texts):
        for word in f" {text.lower()} ".split():
            for start in range(max(1, len(word) - 2)):
                found[row, crc32(word[start : start + 3].encode()) % DIMENSIONS] += 1.0
    return found


def words(draw):
    return ["".join(draw.choice(string.ascii_lowercase) for _ in range(12)) for _ in range(3)]


def gold_of(n, seed=1, paraphrases=2):
    """Items about three rare words each, in two other wordings; and those words."""
    draw = random.Random(seed)
    about = [words(draw) for _ in range(n)]
    items = []
    for k, told in enumerate(about):
        first, *others = (frame.format(*told) for frame in FRAMES[: 1 + paraphrases])
        items.append(GoldItem(f"a{k}", first, answerable=False, paraphrases=others))
    return GoldSet("gold", tuple(items)), about


def alike(n):
    """Items that are all the same to an embedder that looks at the first word."""
    items = (GoldItem(f"a{k}", f"why {k}", answerable=False, paraphrases=[f"how {k}", f"oh {k}"]) for k in range(n))
    return GoldSet("gold", tuple(items))


@pytest.fixture(scope="module")
def world():
    """A set large enough to prove a threshold, and what finds its items."""
    gold, about = gold_of(300)
    return Nearest(gold, embed), about


# --- the threshold ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_threshold_is_the_smallest_whose_precision_is_proven(world):
    """Against every pair, compared one by one."""
    nearest, _ = world
    found = nearest.calibration
    texts = [(item, text) for item in nearest.gold for text in (item.question, *item.paraphrases)]
    units = embed([text for _, text in texts])
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    near = units @ units.T
    owner = np.array([int(item.qid[1:]) for item, _ in texts])
    same, others = [], []
    for row, (item, text) in enumerate(texts):
        for other in range(len(nearest.gold.items)):
            mine = (owner == other) & (np.arange(len(texts)) != row)
            if other != owner[row]:
                others.append(near[row, mine].max())
            elif text != item.question:
                same.append(near[row, mine].max())
    assert (found.pairs, found.others) == (len(same), len(others)) == (600, 900 * 299)
    same, others = np.array(same), np.array(others)

    def lower(level):
        right, wrong, z = (same >= level).sum(), (others >= level).sum(), 1.959963984540054
        n = right + wrong
        if n == 0:
            return 0.0
        p = right / n
        return (p + z * z / (2 * n) - z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))) / (1 + z * z / n)

    assert found.threshold == min(level for level in np.linspace(0, 1, 1001) if lower(level) >= 0.99)
    assert found.kept == (same >= found.threshold).mean() > 0.9


@pytest.mark.slow
def test_on_wordings_it_never_saw_matches_are_right(world):
    """Over three sets: held-out wordings of gold items, and as many questions about anything else."""
    right = total = 0
    others = [gold_of(300, seed) for seed in (2, 3)]
    for seed, (nearest, about) in enumerate([world, *((Nearest(gold, embed), about) for gold, about in others)]):
        draw = random.Random(seed + 1000)
        asked = [(f"a{k}", FRAMES[3].format(*told)) for k, told in enumerate(about)]
        asked += [(None, FRAMES[draw.randrange(4)].format(*words(draw))) for _ in about]
        found = [(qid, item.qid) for qid, text in asked if (item := nearest.find(text)) is not None]
        assert len(found) > 200
        right += sum(qid == got for qid, got in found)
        total += len(found)
    assert right >= 0.99 * total


def test_the_same_set_gives_the_same_threshold_and_the_same_items(world):
    nearest, about = world
    again = Nearest(gold_of(300)[0], embed)
    assert again.calibration == nearest.calibration
    for told in about[:50]:
        one, other = again.find(FRAMES[3].format(*told)), nearest.find(FRAMES[3].format(*told))
        assert (one and one.qid) == (other and other.qid)


@pytest.mark.parametrize(
    ("gold", "reason"),
    [
        (gold_of(20)[0], "40 paraphrases: "),
        (gold_of(300, paraphrases=0)[0], "0 paraphrases: "),
        (GoldSet("gold", ()), "0 paraphrases: "),
        (alike(300), "no similarity tells paraphrases from other items' questions with 99 % precision"),
    ],
    ids=["few", "none", "empty", "alike"],
)
def test_where_nothing_is_proven_nothing_is_matched_and_it_is_said_why(gold, reason):
    nearest = Nearest(gold, lambda texts: embed([text.split()[0] for text in texts]))
    assert nearest.calibration.threshold is None
    assert nearest.calibration.reason.startswith(reason)
    assert nearest.find("why 1") is None


@pytest.mark.parametrize("vectors", [[[1.0]], [[float("nan")]] * 900, [1.0] * 900, [["a"]] * 900])
def test_what_is_no_vector_is_refused(vectors):
    with pytest.raises(ValueError, match=r"embed made|could not convert"):
        Nearest(gold_of(300)[0], lambda _: vectors)


# --- where it runs ----------------------------------------------------------------------------------------------------

CONFIG = "[gold.gold]\npath = 'gold.jsonl'\nembed = '{}:embed'\n[sampling]\nrate = 1.0\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A gold file, and an embedder the configuration can name."""
    gold, about = gold_of(300)
    rows = [
        {"qid": i.qid, "question": i.question, "answerable": False, "paraphrases": list(i.paraphrases)} for i in gold
    ]
    lines(tmp_path / "gold.jsonl", rows)
    (tmp_path / "ragmon.toml").write_text(CONFIG.format(__name__))
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    return tmp_path, about


def beside(path):
    """An environment in which modules of a folder can be imported."""
    return {"PYTHONPATH": os.pathsep.join([str(path), os.environ.get("PYTHONPATH", "")])}


def test_only_what_matches_in_no_other_way_is_embedded(folder):
    path, about = folder
    settings = load(path / "ragmon.toml", environ={})
    sets = load_gold(settings.gold)
    (nearest,) = nearest_of(settings, sets)
    match = Embeddings(sets, [nearest])
    other = FRAMES[3].format(*about[7])
    changed = TextFacts(redacted=["q"])
    for record, expected in (
        (Record(source="live", q=other), ("a7", "embedding")),
        (Record(q=other), ("a7", "embedding")),
        (Record(source="live", q=other, qid="a2"), ("a2", None)),
        (Record(source="live", q=FRAMES[1].format(*about[7])), (None, None)),
        (Record(source="live", q="Where is the harbour?"), (None, None)),
        (Record(source="live", q=other, facts=changed), (None, None)),
        (Record(source="probe", q=other), (None, None)),
        (Record(source="live"), (None, None)),
    ):
        found = match(record)
        assert (found.qid, found.matched) == expected


@pytest.mark.slow
def test_a_trace_file_is_matched_by_meaning_in_replay(folder):
    path, about = folder
    asked = [FRAMES[3].format(*told) for told in about[:30]] + [FRAMES[1].format(*told) for told in about[30:40]]
    records = [Record(v=1, source="live", q=text, trace_id=f"{k:032x}") for k, text in enumerate([*asked, "Where?"])]
    (path / "traces.jsonl").write_bytes(b"".join(map(encode, records)))
    (path / "vectors.py").write_text(EMBEDDER)
    (path / "ragmon.toml").write_text(CONFIG.format("vectors"))
    done = ragmon("replay", "traces.jsonl", "--jobs", "2", cwd=path, env=beside(path))
    assert done.code == 0, done.err
    found = done.json["matches"]["default"]
    assert (found["paraphrase"], sum(found.values())) == (10, 41)
    assert found["embedding"] >= 25
    assert "one process reads the traces" in done.err


EMBEDDER = f"from zlib import crc32\nimport numpy as np\nDIMENSIONS = {DIMENSIONS}\n"
EMBEDDER += inspect.getsource(embed)


@pytest.mark.slow
@pytest.mark.parametrize("content", ["none", "full"])
def test_the_application_matches_and_the_server_counts_what_it_was_told(folder, tmp_path_factory, content):
    """The server has the text or not; it embeds nothing: its configuration names no embedder."""
    path, about = folder
    there = tmp_path_factory.mktemp("server")
    (there / "gold.jsonl").write_text((path / "gold.jsonl").read_text())
    with serving(there, "[gold.gold]\npath = 'gold.jsonl'\n") as running:
        (path / "ragmon.toml").write_text(
            CONFIG.format(__name__) + f"[capture]\ncontent = '{content}'\n[export]\nendpoint = '{running.otlp}'\n"
        )
        installed = Installation(load(path / "ragmon.toml", environ={}))
        before = installed.start()
        try:
            for told in about[:20]:
                api.trace(lambda question: {"answer": "not in context", "citations": []})(FRAMES[3].format(*told))
            assert installed.flush()
        finally:
            installed.shutdown()
            install_runtime(before)
        accounted(running)
        (ways,) = running.status()["gold"]["ways"].values()
        assert ways["embedding"] >= 15
        assert sum(ways.values()) == 20


def test_an_embedder_that_fails_costs_no_record_and_no_start(folder, monkeypatch, caplog):
    path, about = folder
    settings = load(path / "ragmon.toml", environ={})
    sets = load_gold(settings.gold)
    match = Embeddings(sets, nearest_of(settings, sets))
    monkeypatch.setattr(match._nearest[0], "_embed", lambda _: 1 / 0)
    record = Record(source="live", q=FRAMES[3].format(*about[0]))
    assert match(record) is record
    assert "embed failed" in caplog.text
    monkeypatch.setattr(sys.modules[__name__], "embed", lambda _: 1 / 0)
    assert not Embeddings(sets, nearest_of(settings, sets))


def test_an_embedder_that_is_not_there_is_refused_at_the_start(folder):
    path, _ = folder
    (path / "ragmon.toml").write_text(CONFIG.format("nowhere_at_all"))
    settings = load(path / "ragmon.toml", environ={})
    with pytest.raises(RagmonError, match=r"gold\.gold\.embed: nowhere_at_all:embed is not there"):
        Installation(settings)


def test_a_scorer_and_a_monitor_never_embed(folder, monkeypatch):
    """What scores a record has no embedder, whatever the configuration says."""
    path, about = folder
    monkeypatch.setattr(sys.modules[__name__], "embed", lambda _: 1 / 0)
    settings = load(path / "ragmon.toml", environ={})
    scorer = ScorerFactory(settings, load_gold(settings.gold))()
    assert scorer.observe(Record(source="live", q=FRAMES[3].format(*about[0])))
    assert coverage.match_counts(scorer.snapshot()) == {"default": {"none": 1}}
    Monitor(settings).submit(Record(source="live", q=FRAMES[3].format(*about[0])))


@pytest.mark.slow
def test_doctor_tells_the_threshold_or_why_there_is_none(folder):
    path, _ = folder
    (path / "vectors.py").write_text(EMBEDDER)
    (path / "ragmon.toml").write_text(CONFIG.format("vectors"))
    environment = beside(path)
    said = ragmon("doctor", cwd=path, env=environment)
    assert "embed gold" in said.out
    assert "of 600 paraphrases reach" in said.out
    text = (path / "gold.jsonl").read_text().splitlines()[:10]
    (path / "gold.jsonl").write_text("\n".join(text))
    said = ragmon("doctor", cwd=path, env=environment)
    assert "off: 20 paraphrases: " in said.out
