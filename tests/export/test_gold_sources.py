"""The rules of a gate on gold that names no source: they read what the gate is judged on."""

from __future__ import annotations

from pathlib import Path

from ragmon.export.rules import render, rule_groups
from tests.export.test_rules import promtool

CASES = Path(__file__).with_name("gold_sources.test.yml")


def test_rules_of_a_gate_without_a_source_follow_the_verdict(real, configured, tmp_path):
    found = configured('[gold.g]\npath = "g.jsonl"\n[gates.answer_precision]\nat_least = 0.8\n')
    (tmp_path / "ragmon.rules.yml").write_text(render(rule_groups(found)), encoding="utf-8")
    (tmp_path / CASES.name).write_text(CASES.read_text(encoding="utf-8"), encoding="utf-8")
    for command in (("check", "rules", tmp_path / "ragmon.rules.yml"), ("test", "rules", tmp_path / CASES.name)):
        done = promtool(real, *command)
        assert done.returncode == 0, done.stdout + done.stderr
