"""Files: what extends what, what cannot be read, and what else is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ragmon.config.load import check, load
from ragmon.core.errors import ConfigError


@pytest.fixture
def write(tmp_path):
    """Writes ragmon.toml, and other files by their stem, into one folder; returns the path of ragmon.toml."""

    def _write(text: str, **others: str) -> Path:
        for stem, content in {"ragmon": text, **others}.items():
            (tmp_path / f"{stem}.toml").write_text(content, encoding="utf-8")
        return tmp_path / "ragmon.toml"

    return _write


class TestExtend:
    def test_tables_are_merged_and_the_extending_file_wins(self, write):
        base = '[sampling]\nrate = 0.5\nslow_above = "3s"\n[gates.mrr]\nat_least = 0.5\nmin_samples = 99\n'
        path = write('extend = "base.toml"\n[sampling]\nrate = 0.1\n[gates.mrr]\nat_least = 0.6\n', base=base)
        settings = load(path, environ={})
        assert (settings.unconfigured.sampling.rate, settings.unconfigured.sampling.slow_above) == (0.1, 3)
        (gate,) = settings.policy().gates
        assert (gate.threshold, gate.min_samples) == (0.6, 99)
        assert settings.origins["sampling.rate"] == "ragmon.toml:3"
        assert settings.origins["sampling.slow_above"] == "base.toml:3"

    def test_a_value_that_is_a_table_is_replaced_not_merged(self, write):
        """`keep = {}` switches off what the extended file keeps."""
        path = write('extend = "base.toml"\nsampling.keep = {}\n', base="[sampling]\nkeep = { error = 0.5 }\n")
        assert set(dict(load(path, environ={}).unconfigured.sampling.keep).values()) == {0.0}

    def test_extending_reaches_over_several_files_and_folders(self, write, tmp_path):
        (tmp_path / "common").mkdir()
        (tmp_path / "common" / "far.toml").write_text('[gold.g]\npath = "gold.jsonl"\n', encoding="utf-8")
        path = write('extend = "base.toml"\n', base='extend = "common/far.toml"\n')
        settings = load(path, environ={})
        assert settings.gold[0].path == (tmp_path / "common" / "gold.jsonl",)
        assert settings.origins["gold.g.path"] == "common/far.toml:2"

    def test_a_circle_is_refused_where_it_closes(self, write):
        path = write('extend = "base.toml"\n', base='\nextend = "ragmon.toml"\n')
        (problem,) = check(path, environ={})
        assert (Path(problem.path).name, problem.line) == ("base.toml", 2)
        assert "ragmon.toml -> base.toml -> ragmon.toml" in problem.message

    def test_a_missing_file_is_a_problem_of_the_line_that_names_it(self, write):
        (problem,) = check(write('\nextend = "gone.toml"\n'), environ={})
        assert (problem.line, problem.key) == (2, "extend")
        assert "gone.toml" in problem.message

    def test_a_name_the_system_refuses_is_a_problem_too(self, write):
        (problem,) = check(write('extend = "a\\u0000b"\n'), environ={})
        assert (problem.line, problem.key) == (1, "extend")

    def test_a_problem_in_an_extended_file_is_reported_there(self, write):
        path = write('extend = "base.toml"\n[sampling]\nrat = 1\n', base="\n\nsampling.rate = 2\n")
        assert [(Path(p.path).name, p.line) for p in check(path, environ={})] == [("ragmon.toml", 3), ("base.toml", 3)]


class TestFilesNobodyCanRead:
    def test_a_missing_file(self, tmp_path):
        with pytest.raises(ConfigError, match=r"gone\.toml: there is no such file") as caught:
            load(tmp_path / "gone.toml", environ={})
        assert "--config" in caught.value.hint

    def test_a_missing_file_the_environment_names(self, tmp_path):
        with pytest.raises(ConfigError, match="there is no such file"):
            load(environ={"RAGMON_CONFIG": str(tmp_path / "gone.toml")})

    def test_a_directory(self, tmp_path):
        with pytest.raises(ConfigError, match="is a directory") as caught:
            check(tmp_path, environ={})
        assert "ragmon.toml" in caught.value.hint

    def test_text_that_is_not_utf_8(self, tmp_path):
        path = tmp_path / "ragmon.toml"
        path.write_bytes(b"# fine\n# caf\xe9\n")
        with pytest.raises(ConfigError, match=r"ragmon\.toml:2: is not UTF-8") as caught:
            load(path, environ={})
        assert "UTF-8" in caught.value.hint

    def test_a_file_over_a_mebibyte(self, tmp_path):
        path = tmp_path / "ragmon.toml"
        path.write_bytes(b"#" * (2**20 + 1))
        with pytest.raises(ConfigError, match="larger than 1 MiB"):
            load(path, environ={})

    def test_a_path_the_system_refuses(self, tmp_path):
        (tmp_path / "loop.toml").symlink_to("loop.toml")
        for path in ("ragmon\0.toml", tmp_path / "loop.toml"):
            with pytest.raises(ConfigError, match="cannot be read") as caught:
                load(path, environ={})
            assert "readable" in caught.value.hint

    def test_a_byte_order_mark_does_no_harm(self, tmp_path):
        path = tmp_path / "ragmon.toml"
        path.write_bytes(b"\xef\xbb\xbfsampling.rate = 0.5\n")
        assert load(path, environ={}).unconfigured.sampling.rate == 0.5


ANNOUNCED = {
    "METADATA": "Metadata-Version: 2.1\nName: acme-rag\nVersion: 1.0\n",
    "entry_points.txt": "[ragmon.metrics]\nacme = {}\n",
}


class TestPlugins:
    PLUGIN = (
        "from ragmon.metrics import Metric, register\n"
        "@register\n"
        "class Polite(Metric):\n"
        '    """Share of polite answers."""\n'
        '    name = "polite_rate"\n'
        "    def score(self, facts):\n"
        "        return 1.0\n"
    )
    CONFIG = 'plugins = ["acme_rag_metrics"]\n[gates.polite_rate]\nat_least = 0.9\n'

    def run(self, folder, code):
        """In a process of its own: metrics stay registered for ever."""
        script = f"from ragmon.config.load import check, load\n{code}"
        done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def test_a_gate_may_use_a_metric_a_plugin_registers(self, tmp_path):
        (tmp_path / "acme_rag_metrics.py").write_text(self.PLUGIN)
        (tmp_path / "ragmon.toml").write_text(self.CONFIG)
        shown = self.run(tmp_path, "s = load(environ={}); print(s.policy().gates[0].metric, *s.build_metrics())")
        assert shown.startswith("polite_rate ")
        assert shown.count("polite_rate") == 2

    def test_a_plugin_that_cannot_be_imported_is_a_problem_of_its_line(self, write):
        problems = check(write('\nplugins = [\n  "acme_is_not_installed",\n]\n'), environ={})
        assert [(p.line, p.key) for p in problems] == [(3, "plugins[0]")]
        assert "ModuleNotFoundError" in problems[0].hint

    def test_capture_needs_no_plugins(self, write):
        """Gates on metrics only the server knows are left out; nothing is imported."""
        assert load(write(self.CONFIG), environ={}, plugins=False).policy().gates == ()

    def install(self, folder, target):
        """A distribution that announces metrics, as pip would leave it."""
        (folder / "acme_rag_metrics.py").write_text(self.PLUGIN)
        info = folder / "acme_rag-1.0.dist-info"
        info.mkdir()
        for name, text in ANNOUNCED.items():
            (info / name).write_text(text.format(target))

    def test_an_installed_distribution_brings_its_metrics_without_being_named(self, tmp_path):
        self.install(tmp_path, "acme_rag_metrics")
        (tmp_path / "ragmon.toml").write_text("[gates.polite_rate]\nat_least = 0.9\n")
        assert self.run(tmp_path, "print(load(environ={}).policy().gates[0].metric)") == "polite_rate"

    def test_an_installed_distribution_that_is_broken_is_named(self, tmp_path):
        self.install(tmp_path, "acme_is_gone")
        shown = self.run(tmp_path, "print(*(f'{p} {p.hint}' for p in check(environ={})))")
        assert "cannot load the installed acme" in shown
        assert "ModuleNotFoundError" in shown
