"""`ragmon compare` end to end: one release against another; the exit code is the verdict."""

from __future__ import annotations

import pytest

from ragmon.core.record import encode
from tests.cli.test_cli_why import serving as answering
from tests.support.command_line import gold, lines, ragmon, traces
from tests.support.serving import accounted, asked, send_body, serving, whole

CONFIG = "[gates]\nanswer_precision.at_least = 0.8\nunder_refusal_rate.at_most = 0.05\n"
ANSWERABLE, UNANSWERABLE = 400, 320


def run(build, wrong=(), **fields):
    return list(traces(ANSWERABLE, UNANSWERABLE, wrong=wrong, build=build, **fields))


def first(letter, n):
    return {f"{letter}{i}" for i in range(n)}


@pytest.fixture
def compare(tmp_path):
    """`ragmon compare --by build` of builds a and b on two gates."""
    config = tmp_path / "ragmon.toml"
    config.write_text(CONFIG)
    items = lines(tmp_path / "gold.jsonl", gold(ANSWERABLE, UNANSWERABLE))

    def go(records, *options, by="build", names=("a", "b")):
        files = lines(tmp_path / "traces.jsonl", records), "--gold", items, "--config", config
        return ragmon("compare", *files, "--by", by, "--baseline", names[0], "--candidate", names[1], *options)

    return go


def rows(done):
    """The line of each gate, by its name."""
    return {line.split()[0]: line for line in done.out.splitlines() if line.startswith("default/")}


class TestExitCode:
    @pytest.mark.slow
    def test_0_the_drop_is_proven_to_be_less_than_allowed(self, compare):
        done = compare(run("a") + run("b"))
        assert (done.code, done.err) == (0, "")
        assert done.out.endswith("\nverdict: not worse\n")

    def test_1_a_drop_is_proven(self, compare):
        done = compare(run("a") + run("b", first("u", 30)))
        assert (done.code, done.err) == (1, "")
        assert done.out.endswith("\nverdict: worse\n")
        assert "  worse " in rows(done)["default/under_refusal_rate"]

    @pytest.mark.slow
    def test_2_neither_is(self, compare):
        done = compare(run("a", first("u", 12)) + run("b", first("a", 3) | first("u", 14)))
        assert (done.code, done.err) == (2, "")
        assert done.out.endswith("\nverdict: undecided\n")

    @pytest.mark.slow
    def test_a_gate_that_is_worse_outweighs_one_that_is_undecided(self, compare):
        undecided = run("a", first("u", 12))
        assert compare(undecided + run("b", first("u", 14))).code == 2
        assert compare(undecided + run("b", first("u", 14) | first("a", 60))).code == 1

    @pytest.mark.slow
    def test_2_a_run_has_not_come_to_all_of_the_set(self, compare):
        """What can be answered comes first."""
        done = compare(run("a") + run("b", first("u", 320))[:400])
        assert (done.code, done.err) == (2, "")
        assert rows(done)["default/answer_precision"].endswith("b: 320 of 720 gold items have no trace yet")

    @pytest.mark.slow
    def test_max_drop_allows_what_is_proven_to_be_less(self, compare):
        worse = run("a") + run("b", first("u", 30))
        assert compare(worse, "--max-drop", "0.25").code == 0


class TestOutput:
    @pytest.mark.slow
    def test_a_line_a_gate_says_what_was_compared_and_why(self, compare):
        done = compare(run("a", first("u", 2)) + run("b", first("a", 3) | {"u1"} | {f"u{i}" for i in range(20, 50)}))
        title, head, *_ = done.out.splitlines()
        assert title == "build b against a"
        assert head.split("  ")[0] == "gate"
        precision, refusal = ([cell for cell in row.split("  ") if cell] for row in rows(done).values())
        assert precision[:4] == [
            "default/answer_precision",
            "99.5 % of 402",
            "92.1 % of 431",
            "401: 3 flipped, 3 for the worse",
        ]
        assert [cell.strip() for cell in refusal] == [
            "default/under_refusal_rate",
            "0.6 % of 320",
            "9.7 % of 320",
            "320: 31 flipped, 30 for the worse",
            "worse",
            "9.1 points worse; a drop is proven",
        ]

    @pytest.mark.slow
    def test_the_errors_are_told(self, compare):
        done = compare(run("a") + run("b"))
        assert (
            "note: a false `worse` has a probability of at most 2.5 % over all 2 gates; a false `not worse`, of a drop "
            "of 2 points, one of at most 2.5 % per gate; both hold however often you look"
        ) in done.out.splitlines()

    @pytest.mark.slow
    def test_json_is_for_programs(self, compare):
        found = compare(run("a") + run("b", first("u", 30)), "--format", "json").json
        precision, refusal = found.pop("gates")
        assert found == {
            "verdict": "fail",
            "by": "build",
            "baseline": "a",
            "candidate": "b",
            "max_drop": 0.02,
            "alpha": 0.05,
        }
        assert [flip["qid"] for flip in refusal.pop("flips")] == sorted(first("u", 30))
        assert refusal == {
            "pipeline": "default",
            "gate": "under_refusal_rate",
            "metric": "under_refusal_rate",
            "source": "replay",
            "gold": "gold",
            "direction": "at_most",
            "baseline": {"value": 0.0, "n": 320},
            "candidate": {"value": 0.09375, "n": 320},
            "drop": 0.09375,
            "items": 320,
            "verdict": "fail",
            "reason": "a drop is proven",
        }
        assert (precision["verdict"], precision["flips"], precision["drop"]) == (
            "fail",
            [],
            pytest.approx(30 / 430, abs=1e-6),
        )

    @pytest.mark.slow
    def test_markdown_is_for_a_step_summary(self, compare):
        done = compare(run("a|") + run("b", first("u", 30)), "--format", "md", names=("a|", "b"))
        assert done.code == 1
        assert done.out.splitlines()[0] == "# ❌ worse: build b against a\\|"
        assert sum(line.startswith("| default/") for line in done.out.splitlines()) == 2

    @pytest.mark.slow
    def test_output_goes_to_a_file_and_the_verdict_to_the_exit_code(self, compare, tmp_path):
        path = tmp_path / "verdict.txt"
        done = compare(run("a") + run("b"), "--output", path)
        assert (done.code, done.out, done.err) == (0, "", "")
        assert path.read_text(encoding="utf-8").endswith("\nverdict: not worse\n")


@pytest.fixture
def users(tmp_path):
    """`ragmon compare --by index_hash` of i1 and i2 on user traffic; of i2 every tenth session has no citations."""
    config = tmp_path / "ragmon.toml"
    config.write_text("[metrics]\ncitations_required = true\n[gates]\ncompliance.at_least = 0.98\n")

    def go(sessions, each, *options, named=True):
        records = []
        for number in range(sessions):
            for index in ("i1", "i2"):
                cited = None if index == "i2" and number % 10 == 9 else ["d1"]
                name = {"session": f"{index}-{number}"} if named else {}
                answer = {"claim": "that is right", "citations": cited}
                records += [{"source": "live", "index_hash": index, "answer_json": answer, **name}] * each
        names = "--by", "index_hash", "--baseline", "i1", "--candidate", "i2"
        return ragmon("compare", lines(tmp_path / "t.jsonl", records), "--config", config, *names, *options)

    return go


@pytest.mark.slow
def test_user_traffic_is_two_samples_of_sessions(users):
    """40 of 400 requests would prove a drop; 4 of 40 sessions do not."""
    done = users(40, 10)
    assert (done.code, done.err) == (2, "")
    assert rows(done)["default/compliance"].split("  ")[1:4] == ["100.0 % of 40", "90.0 % of 40", "–"]
    note = "note: where no items are paired, a cluster of requests counts as one observation ([metrics] cluster)"
    assert note in done.out.splitlines()
    assert users(400, 1).code == 1


@pytest.mark.slow
def test_notes_of_json_go_to_stderr(users):
    done = users(40, 10, "--format", "json", named=False)
    assert (done.code, done.json["gates"][0]["candidate"]) == (1, {"value": 0.9, "n": 400})
    nameless = [line for line in done.err.splitlines() if "have nothing that [metrics] cluster names" in line]
    assert [line.split()[1:5] for line in nameless] == [["400", "requests", "of", name] for name in ("i1", "i2")]


@pytest.mark.slow
def test_gates_without_gold_are_named(tmp_path):
    names = "--by", "build", "--baseline", "a", "--candidate", "b"
    done = ragmon("compare", lines(tmp_path / "t.jsonl", [*traces(build="a"), *traces(build="b")]), *names)
    assert done.code == 2
    assert done.err.startswith("note: no gold set, and 4 gates need one: answer_precision, ")


@pytest.mark.slow
def test_gates_that_are_not_compared_are_named(tmp_path):
    config = tmp_path / "ragmon.toml"
    config.write_text("[gates]\npreset = 'wfgy-live'\n")
    names = "--by", "build", "--baseline", "a", "--candidate", "b"
    file = lines(tmp_path / "t.jsonl", [*traces(build="a"), *traces(build="b")])
    done = ragmon("compare", file, "--config", config, *names)
    assert "note: not compared: latency_p95, index_hash" in done.out.splitlines()
    config.write_text("[gates]\none_index = { kind = 'distinct', at_most = 1 }\n")
    assert ragmon("compare", file, "--config", config, *names).error[0] == "no gate has a metric to compare"


class TestRefusals:
    @pytest.mark.slow
    @pytest.mark.parametrize("names", [("release-7", "release-9"), ("release-9", "release-7")])
    def test_a_release_nobody_has_seen(self, compare, names):
        done = compare(run("release-7"), names=names)
        assert done.error == ("unknown build: 'release-9'", "did you mean release-7?")

    @pytest.mark.slow
    def test_an_index_nobody_has_seen(self, compare):
        done = compare(run("a", index_hash="f00"), by="index_hash", names=("f00", "f01"))
        assert done.error == ("unknown index hash: 'f01'", "did you mean f00?")

    @pytest.mark.slow
    def test_a_release_against_itself(self, compare):
        done = compare(run("a"), names=("a", "a"))
        assert done.error == ("--baseline and --candidate are the same: 'a'", "ragmon compare --help")

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "option", [["--max-drop", "1"], ["--by", "colour"], ["--pipeline", "other"], ["--jobs", "2"]]
    )
    def test_options_that_cannot_be(self, compare, option):
        assert compare(run("a") + run("b"), *option).code == 3

    @pytest.mark.slow
    def test_a_drop_that_is_no_number_is_refused_before_anything_is_scored(self, compare):
        """A line that is no trace would be named first."""
        done = compare([{"broken": 1}], "--max-drop", "nan")
        assert done.error == (
            "Invalid value for '--max-drop': nan is not a number. 0.02 is 2 points",
            "ragmon compare --help",
        )

    @pytest.mark.slow
    def test_an_index_where_no_record_carries_one(self, compare):
        done = compare(run("a"), by="index_hash", names=("f00", "f01"))
        assert done.error == ("unknown index hash: 'f00'", "no record carries an index hash")

    @pytest.mark.slow
    def test_a_release_that_is_not_named(self, tmp_path):
        done = ragmon("compare", lines(tmp_path / "t.jsonl", traces()), "--by", "build", "--baseline", "a")
        assert done.error[0] == "Missing option '--candidate'."


GATED = "[pipelines.support]\n[gold.gold]\npath = 'gold.jsonl'\n[gates]\npreset = 'wfgy-eval'\n"
GATED += "[gates.latency]\nkind = 'quantile_ratio'\nat_most = 1.3\n"


def answered(number, item, build, *, wrong):
    """The answer of a release to a gold question."""
    right = "not in context" if not item["answerable"] else "that is right"
    record = asked(number, source="probe", build=build, claim="something else" if wrong else right)
    record.qid, cited = item["qid"], item.get("gold_citations", [])
    record.answer_json.citations, record.retrieved_ids = cited, [*cited, "d999"]
    return record


@pytest.fixture(scope="module")
def monitor(tmp_path_factory):
    """A server that two releases sent their answers to, and a trace file of the same."""
    folder = tmp_path_factory.mktemp("monitor")
    items = list(gold(ANSWERABLE, UNANSWERABLE))
    lines(folder / "gold.jsonl", items)
    worse = {"a": first("u", 2), "b": first("u", 40) | first("a", 5), "c": first("u", 3)}
    sent = [
        answered(1000 * place + number, item, build, wrong=item["qid"] in worse[build])
        for place, build in enumerate(worse)
        for number, item in enumerate(items)
    ]
    users = [asked(10_000 + n, build="ab"[n % 2], session=f"s{n // 4}" if n % 3 else None) for n in range(200)]
    (folder / "traces.jsonl").write_bytes(b"".join(map(encode, [*sent, *users])))
    with serving(folder, GATED) as running:
        for batch in (sent, users):
            send_body(running, whole(batch))
        accounted(running)
        yield running, folder


@pytest.fixture
def both(monitor):
    """The same comparison of the file and of the monitor."""

    def go(*options):
        running, folder = monitor
        named = "--baseline", "a", "--by", "build", *options
        of_file = ragmon("compare", "traces.jsonl", *named, cwd=folder)
        return of_file, ragmon("compare", *named, "--url", running.admin, cwd=folder)

    return go


class TestOfAMonitor:
    @pytest.mark.slow
    @pytest.mark.parametrize("form", ["text", "md", "json", "html"])
    @pytest.mark.parametrize(("candidate", "code"), [("b", 1), ("c", 2)])
    def test_it_prints_what_a_comparison_of_the_same_traces_prints(self, both, form, candidate, code):
        of_file, of_monitor = both("--candidate", candidate, "--format", form)
        assert of_file.code == code
        assert of_file == of_monitor

    @pytest.mark.slow
    @pytest.mark.parametrize(("drop", "code"), [("0.3", 0), ("0.00001", 1)])
    def test_max_drop_is_the_askers(self, both, drop, code):
        of_file, of_monitor = both("--candidate", "b", "--max-drop", drop)
        assert of_file.code == code
        assert of_file == of_monitor
        assert f"a drop of {100 * float(drop):g} points" in of_monitor.out

    @pytest.mark.slow
    def test_0_not_worse(self, tmp_path):
        requests = [asked(n, build="ab"[n % 2], session=f"s{n}") for n in range(800)]
        with serving(tmp_path, "[pipelines.support]\n[gates]\ncompliance.at_least = 0.9\n") as running:
            send_body(running, whole(requests))
            accounted(running)
            named = "--by", "build", "--baseline", "a", "--candidate", "b", "--pipeline", "support", "--max-drop", "0.1"
            done = ragmon("compare", *named, "--url", running.admin, "--output", tmp_path / "verdict.txt")
        assert (done.code, done.out, done.err) == (0, "", "")
        assert (tmp_path / "verdict.txt").read_text(encoding="utf-8").endswith("\nverdict: not worse\n")

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("options", "error", "hint"),
        [
            (["--candidate", "z"], "unknown build: 'z'", "one of: a, b, c"),
            (["--candidate", "b", "--pipeline", "suport"], "unknown pipeline: 'suport'", "did you mean support?"),
            (["--candidate", "b", "--gold", "gold.jsonl"], "--gold does not go with --url", "--help"),
            (["--candidate", "b", "traces.jsonl"], "--url asks a monitor and TRACES are read", "--help"),
        ],
    )
    def test_what_it_does_not_know_is_refused(self, monitor, options, error, hint):
        running, folder = monitor
        done = ragmon("compare", "--by", "build", "--baseline", "a", *options, "--url", running.admin, cwd=folder)
        assert done.error[0].startswith(error)
        assert done.error[1].endswith(hint)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("answer", "error"),
        [
            (b"{}", "this is no comparison of releases: Object missing required field `verdict`"),
            (b"[]", "answered 200"),
            (b'{"by":"build","baseline":"a","candidate":"b","max_drop":0.02,"gates":[{}]}', "this is no comparison"),
        ],
    )
    def test_what_answers_and_is_no_monitor_is_refused(self, answer, error):
        with answering(lambda *_: (200, answer)) as (address, questions):
            named = "--by", "build", "--baseline", "a", "--candidate", "b", "--url", f"http://{address}"
            assert error in ragmon("compare", *named).error[0]
        told = {"pipeline": "default", "by": "build", "baseline": "a", "candidate": "b", "max_drop": "0.02"}
        assert [(path, parameters) for path, parameters, _ in questions] == [("/api/compare", told)]

    @pytest.mark.slow
    def test_without_a_monitor_it_says_where_it_asked(self):
        named = "--by", "build", "--baseline", "a", "--candidate", "b", "--url", "http://127.0.0.1:9"
        assert ragmon("compare", *named).error[0].startswith("no answer from 127.0.0.1:9 (")

    @pytest.mark.slow
    def test_there_must_be_something_to_compare(self):
        done = ragmon("compare", "--by", "build", "--baseline", "a", "--candidate", "b")
        assert done.error == ("Missing argument 'TRACES...', or a monitor: --url URL", "ragmon compare --help")


def test_a_missing_by_names_its_choices_on_one_line():
    done = ragmon("compare", "traces.jsonl", "--baseline", "a", "--candidate", "b")
    assert (done.code, done.error) == (
        3,
        ("Missing option '--by'. Choose from: build, index_hash", "ragmon compare --help"),
    )
