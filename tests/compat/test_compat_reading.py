"""How every compat mode reads: leniently, as the published scripts do, and naming the place where a script crashes."""

import gzip
import io
import json
import sys

import pytest

from ragmon.compat import Options, run


@pytest.fixture
def publish(tmp_path):
    """Score inline gold items and traces with seed-000; strings stand for raw lines."""

    def score(gold, traces):
        paths = []
        for name, records in (("gold.jsonl", gold), ("trace.jsonl", traces)):
            path = tmp_path / name
            path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records), "utf-8")
            paths.append(str(path))
        return run("seed-000", paths[1:], paths[:1], Options())

    return score


def gold(qid="q1", **fields):
    return {"qid": qid, "answerable": True, "gold_claim_substr": ["null keys"], "gold_citations": ["p1"], **fields}


def trace(qid="q1", **fields):
    answer = {"claim": "X rejects null keys.", "citations": ["p1"]}
    return {"qid": qid, "retrieved_ids": ["p1"], "answer_json": answer, **fields}


class TestReading:
    def test_malformed_line_crashes_and_is_named(self, publish):
        result = publish([gold()], [trace(), "", "{not json"])
        assert (result.exit_code, result.text) == (3, "")
        assert "trace.jsonl:3: not JSON" in result.error
        assert "\nhint: " in result.error

    def test_byte_order_mark_crashes(self, publish):
        result = publish(["\ufeff" + json.dumps(gold())], [])
        assert (result.exit_code, "gold.jsonl:1" in result.error) == (3, True)

    def test_blank_lines_nan_and_repeated_keys_are_accepted(self, publish):
        line = json.dumps(trace())[:-1] + ', "qid": "q2", "score": NaN}'
        result = publish([gold("q2"), "", "  "], [line])
        assert json.loads(result.text)["precision"] == 1.0

    @pytest.mark.parametrize("line", ["[]", '{"question": "no qid"}', '{"qid": ["a"]}'])
    def test_gold_line_without_a_usable_qid_crashes(self, publish, line):
        result = publish([gold(), line], [])
        assert (result.exit_code, "gold.jsonl:2: the published scorer crashes here" in result.error) == (3, True)

    @pytest.mark.parametrize(
        ("field", "value"),
        [("answer_json", "text"), ("answer_json", {"claim": 5}), ("retrieved_ids", [["p1"]]), ("retrieved_ids", 7)],
    )
    def test_trace_field_of_the_wrong_kind_crashes_at_its_line(self, publish, field, value):
        result = publish([gold()], [trace("other"), trace(**{field: value})])
        assert (result.exit_code, "trace.jsonl:2: the published scorer crashes here" in result.error) == (3, True)

    @pytest.mark.parametrize(("field", "value"), [("gold_claim_substr", [5]), ("gold_citations", [["p1"]])])
    def test_gold_field_of_the_wrong_kind_crashes_at_its_line(self, publish, field, value):
        result = publish([gold(**{field: value})], [trace()])
        assert (result.exit_code, "gold.jsonl:1: the published scorer crashes here" in result.error) == (3, True)

    def test_error_is_one_line_and_a_hint(self, publish):
        lines = publish([gold(gold_citations=[["p1"]])], [trace()]).error.splitlines()
        assert [line.startswith("hint: ") for line in lines] == [False, True]

    def test_absent_file_crashes(self, tmp_path):
        result = run("seed-000", [], [str(tmp_path / "no.jsonl")], Options())
        assert (result.exit_code, "no.jsonl: cannot be read" in result.error) == (3, True)

    def test_text_that_is_not_utf8_crashes(self, tmp_path):
        path = tmp_path / "gold.jsonl"
        path.write_bytes(b'{"qid": "\xff"}\n')
        result = run("seed-000", [], str(path), Options())
        assert (result.exit_code, "gold.jsonl: cannot be read" in result.error) == (3, True)

    def test_several_trace_files_are_read_in_order(self, publish, tmp_path):
        publish([gold()], [trace(answer_json={"claim": "wrong"})])
        later = tmp_path / "later.jsonl"
        later.write_text(json.dumps(trace()))
        files = [str(tmp_path / "trace.jsonl"), str(later)]
        result = run("seed-000", files, str(tmp_path / "gold.jsonl"), Options())
        assert json.loads(result.text)["precision"] == 1.0


class TestPackedFiles:
    @pytest.fixture
    def plain(self, publish, tmp_path):
        return publish([gold()], [trace()]), tmp_path / "trace.jsonl", str(tmp_path / "gold.jsonl")

    def test_gzip(self, plain, tmp_path):
        expected, traces, items = plain
        packed = tmp_path / "trace.jsonl.gz"
        packed.write_bytes(gzip.compress(traces.read_bytes()))
        assert run("seed-000", [str(packed)], items, Options()) == expected

    def test_truncated_gzip_crashes(self, plain, tmp_path):
        packed = tmp_path / "trace.jsonl.gz"
        packed.write_bytes(gzip.compress(plain[1].read_bytes())[:-9])
        result = run("seed-000", [str(packed)], plain[2], Options())
        assert (result.exit_code, "cannot be read" in result.error) == (3, True)

    def test_zstandard(self, plain, tmp_path):
        zstandard = pytest.importorskip("zstandard")
        expected, traces, items = plain
        packed = tmp_path / "trace.jsonl.zst"
        packed.write_bytes(zstandard.compress(traces.read_bytes()))
        assert run("seed-000", [str(packed)], items, Options()) == expected

    def test_broken_zstandard_crashes(self, plain, tmp_path):
        pytest.importorskip("zstandard")
        packed = tmp_path / "trace.jsonl.zst"
        packed.write_bytes(b"not packed")
        result = run("seed-000", [str(packed)], plain[2], Options())
        assert (result.exit_code, "cannot be read" in result.error) == (3, True)

    def test_zstandard_without_its_package_says_what_to_install(self, plain, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "zstandard", None)
        packed = tmp_path / "trace.jsonl.zst"
        packed.touch()
        result = run("seed-000", [str(packed)], plain[2], Options())
        assert (result.exit_code, "pip install 'ragmon[zstd]'" in result.error) == (3, True)

    def test_dash_is_standard_input(self, plain, monkeypatch):
        expected, traces, items = plain
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(traces.read_bytes())))
        assert run("seed-000", ["-"], items, Options()) == expected


class TestCalling:
    def test_unknown_mode_is_refused_and_the_known_ones_are_named(self):
        result = run("seed-00", [], "gold.jsonl", Options())
        assert (result.exit_code, result.text) == (3, "")
        assert "seed-000" in result.error.partition("hint: ")[2]

    @pytest.mark.parametrize("mode", ["seed-000", "seed-002", "seed-003", "seed-004"])
    def test_gold_is_needed(self, mode):
        result = run(mode, [], None, Options())
        assert (result.exit_code, "--gold" in result.error) == (3, True)
