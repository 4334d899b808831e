"""`ragmon doctor`: the chain is really tried, what is wrong is named, and what alarms can find is said beforehand."""

from __future__ import annotations

import json
import re
import socket

from command_line import ragmon

GOLD = '{"qid":"A1","question":"Does X support null keys?","answerable":false}\n'


def lines(done):
    return {line.split()[0]: line for line in done.out.splitlines() if line}


def test_without_a_configuration_the_defaults_are_tried(tmp_path):
    done = ragmon("doctor", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    found = lines(done)
    assert found["config"] == "config    ok    no ragmon.toml, the defaults hold"
    assert "none: only label-free metrics are counted" in found["gold"]
    assert "learned from traffic" in found["baseline"]
    assert re.fullmatch(r"chain +ok +a call was captured, scored and is one of \d+ lines of /metrics", found["chain"])


def test_it_says_how_long_each_gate_takes_to_raise_an_alarm(tmp_path):
    """By rate; a gate that is asked to find what lies next to it says never."""
    toml = '[gates.precision]\nmetric = "answer_precision"\nat_least = 0.8\npage_below = 0.7\n'
    (tmp_path / "ragmon.toml").write_text(f"{toml}[gates.mrr]\nat_least = 0.8\npage_below = 0.7999\n")
    done = ragmon("doctor", cwd=tmp_path)
    assert done.code == 0
    assert lines(done)["gate"].split() == ["gate", "holds", "goes", "to", "1/min", "10/min", "100/min"]
    gate, sign, bar, level, *times = lines(done)["precision"].split(maxsplit=4)
    assert (gate, sign, bar, level) == ("precision", ">=", "0.8", "0.7")
    assert re.fullmatch(r"\d\.\d h +\d+ min +\d min", times[0])
    assert lines(done)["mrr"].split()[-3:] == ["never"] * 3
    (row,) = (line for line in ragmon("doctor", "--rate", "1", cwd=tmp_path).out.splitlines() if "precision" in line)
    assert row.split()[-2:] == times[0].split()[:2]


def test_a_broken_configuration_is_named_line_by_line(tmp_path):
    (tmp_path / "ragmon.toml").write_text("[sampling]\nrate = 7\n")
    done = ragmon("doctor", cwd=tmp_path)
    assert done.code == 1
    assert "ragmon.toml:2" in done.out


def test_broken_gold_and_a_changed_baseline_are_named_and_the_rest_is_still_tried(tmp_path):
    (tmp_path / "gold.jsonl").write_text('{"qid": 1}\n')
    frozen = {"kind": "ragmon-baseline", "v": 1, "version": "00000000", "pipelines": {}}
    (tmp_path / "baseline.json").write_text(json.dumps(frozen))
    toml = '[gold.support]\npath = "gold.jsonl"\n[alarms]\nbaseline = { file = "baseline.json" }\n'
    (tmp_path / "ragmon.toml").write_text(toml)
    done = ragmon("doctor", cwd=tmp_path)
    assert done.code == 1
    found = lines(done)
    assert re.match(r"gold +bad +.*gold.jsonl:1", found["gold"])
    assert re.match(r"baseline +bad +.*the baseline was changed after it was frozen: '00000000'", found["baseline"])
    assert "hint: write it with `ragmon baseline freeze" in done.out


def test_a_server_that_does_not_answer_is_named(tmp_path):
    """The port is free, and stays so for the moment it takes to ask; nothing is sent to one that answers."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / "ragmon.toml").write_text(f'[export]\nendpoint = "http://127.0.0.1:{port}"\n')
        done = ragmon("doctor", cwd=tmp_path)
        assert (done.code, lines(done)["server"]) == (0, f"server    ok    127.0.0.1:{port} answers")
        connection, _ = taken.accept()
        with connection:
            assert connection.recv(100) == b""
    done = ragmon("doctor", cwd=tmp_path)
    assert done.code == 1
    assert f"nobody answers on 127.0.0.1:{port}" in lines(done)["server"]


def test_gold_is_counted(tmp_path):
    (tmp_path / "gold.jsonl").write_text(GOLD)
    (tmp_path / "ragmon.toml").write_text('[gold.support]\npath = "gold.jsonl"\n')
    done = ragmon("doctor", cwd=tmp_path)
    assert re.match(r"gold +ok +support [0-9a-f]{8} with 1 items", lines(done)["gold"])
