"""What the command line says when something is wrong, where it says it, and what survives: exit codes above all."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from ragmon.cli.main import COMMANDS
from tests.support.command_line import COMMAND, SMALL, environment, gold, lines, on_terminal, ragmon, start, traces
from tests.support.trace_files import good
from tests.support.waiting import TIMEOUT, wait_for

TRACES, GOLD = str(SMALL / "traces.jsonl"), str(SMALL / "gold.jsonl")
FULL = Path("/dev/full")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    """Some files to be wrong about, in the working directory."""
    monkeypatch.chdir(tmp_path)
    lines(tmp_path / "t.jsonl", traces())
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "broken.jsonl").write_text('{"qid": "a", "question": "?", "answerable": "yes"}\n')
    (tmp_path / "metric.toml").write_text("[gates.quality]\nmetric = 'answer_precison'\nat_least = 0.8\n")
    (tmp_path / "broken.toml").write_text("\n[gates\n")
    (tmp_path / "folder").mkdir()


class TestMistakes:
    """Exit code 3, one line that says what is wrong, one that says what would be right, and nothing on stdout."""

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("arguments", "message", "hint"),
        [
            ("gat t.jsonl", "unknown command: 'gat'", "did you mean gate?"),
            ("gold lnt t.jsonl", "unknown command: 'lnt'", "did you mean lint?"),
            ("xyzzy", "unknown command: 'xyzzy'", f"one of: {', '.join(sorted(COMMANDS))}"),
            ("gate t.jsonl --gld g", "No such option '--gld'", "ragmon gate --help"),
            ("gate", "Missing argument 'TRACES...'", "ragmon gate --help"),
            ("gate t.jsonl --max-drop 3", "3.0 is not in the range 0<=x<=1", "ragmon gate --help"),
            ("replay t.jsonl --format pdf", "'pdf' is not one of 'text', 'json', 'md', 'html'", "ragmon replay --help"),
            ("replay t.jsonl --questions some", "'some' is neither a number nor `all`", "ragmon replay --help"),
            ("replay t.jsonl --compat seed-9", "'seed-9' is not one of 'seed-000'", "ragmon replay --help"),
            ("replay t.jsonl -o none/x.json", "there is no folder none", "ragmon replay --help"),
            ("replay t.jsonl -o folder", "folder is a folder, not a file", "ragmon replay --help"),
            ("demo --for 0", "0.0 is not in the range x>=1", "ragmon demo --help"),
            ("demo --incident flood", "'flood' is not one of 'index_drift'", "ragmon demo --help"),
        ],
    )
    def test_of_usage(self, arguments, message, hint):
        said, advice = ragmon(*arguments.split()).error
        assert message in said
        assert advice == hint

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ("gate absent.jsonl", "absent.jsonl: cannot be read (No such file or directory)"),
            ("gate folder", "folder: this is a directory"),
            ("gate t.jsonl --gold absent.jsonl", "absent.jsonl: no such file"),
            ("gate t.jsonl --gold empty.jsonl", "empty.jsonl: holds no item"),
            ("gate t.jsonl --gold broken.jsonl", "broken.jsonl:1: "),
            ("gate t.jsonl --config absent.toml", "absent.toml: there is no such file"),
            ("gate t.jsonl --config broken.toml", "broken.toml:2: not TOML: "),
            (
                "gate t.jsonl --config metric.toml",
                "metric.toml:2: gates.quality.metric is not the name of a metric: 'answer_pr",
            ),
            ("gate t.jsonl --baseline absent.json", "absent.json: the baseline cannot be read"),
            ("replay t.jsonl --config metric.toml", "metric.toml:2: "),
        ],
    )
    def test_of_input(self, arguments, message):
        said, hint = ragmon(*arguments.split()).error
        assert said.startswith(message)
        assert hint

    def test_a_metric_that_does_not_exist_is_answered_with_the_nearest(self):
        assert ragmon("gate", "t.jsonl", "--config", "metric.toml").error[1].startswith("did you mean answer_precision")

    def test_control_characters_of_a_name_do_not_reach_the_terminal(self):
        said, _ = ragmon("gate", "\x1b[31mred.jsonl").error
        assert "\x1b" not in said
        assert "\\x1b[31mred.jsonl" in said


class TestOutput:
    @pytest.mark.slow
    @pytest.mark.skipif(not FULL.exists(), reason="there is no device that is always full")
    @pytest.mark.parametrize("arguments", ["replay t.jsonl", "gold stats " + GOLD, "--help"])
    def test_a_full_disk_is_an_error_and_no_verdict(self, arguments):
        with FULL.open("w") as full:
            done = ragmon(*arguments.split(), stdout=full)
        assert done.code == 3
        assert done.err.startswith("error: standard output: ")
        assert "No space left on device" in done.err
        assert "Traceback" not in done.err

    @pytest.mark.slow
    @pytest.mark.parametrize("arguments", ["--help", "gate --help", "config show", f"gold stats {GOLD}"])
    def test_a_reader_that_leaves_is_no_failure(self, arguments):
        with start(*arguments.split()) as process:
            process.stdout.close()
            assert process.stderr.read() == ""
        assert process.returncode == 0

    @pytest.mark.slow
    @pytest.mark.parametrize(("wrong", "code"), [((), 0), ([f"a{n}" for n in range(40)], 1)])
    def test_a_closed_stdout_leaves_the_verdict(self, tmp_path, wrong, code):
        files = lines(tmp_path / "run.jsonl", traces(wrong=wrong)), "--gold", lines(tmp_path / "g.jsonl", gold())
        command = ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, "gate", *files]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
        assert (done.returncode, done.stderr) == (code, "")

    @pytest.mark.slow
    def test_output_is_plain_utf_8_whatever_the_locale_and_the_terminal(self):
        usual = ragmon("gate", TRACES, "--gold", GOLD)
        assert "67.0 – 83.5 %" in usual.out
        assert "\x1b" not in usual.out
        poor = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "NO_COLOR": "1", "TERM": "dumb"}
        assert ragmon("gate", TRACES, "--gold", GOLD, env=poor) == usual

    @pytest.mark.slow
    def test_progress_of_a_long_read_is_drawn_on_stderr_where_somebody_watches(self, tmp_path):
        long = tmp_path / "long.jsonl"
        with long.open("wb") as file:
            file.write((tmp_path / "t.jsonl").read_bytes())
            file.seek(70 << 20)  # a hole: one line too long to be a record
            file.write(b"\n")
        done = on_terminal("stderr", "replay", long)
        assert (done.code, done.json["records"]["scored"]) == (0, 60)
        assert "scoring" in done.err
        quiet = ragmon("replay", long)
        assert (quiet.out, "scoring" in quiet.err) == (done.out, False)

    @pytest.mark.slow
    def test_data_goes_to_stdout_and_everything_else_to_stderr(self, tmp_path):
        (tmp_path / "odd.jsonl").write_text("nonsense\n" + (tmp_path / "t.jsonl").read_text())
        clean, odd = ragmon("gate", "t.jsonl"), ragmon("gate", "odd.jsonl")
        rejected, *rest = odd.err.splitlines(keepends=True)
        assert rejected.startswith("rejected: odd.jsonl:1: malformed_json")
        assert "".join(rest) == clean.err
        assert "verdict:" in odd.out
        assert "malformed_json" not in odd.out


class TestCrash:
    PLUGIN = '''
import ragmon

@ragmon.register
class Buggy(ragmon.Metric):
    """Share of nothing."""
    name = "buggy"
    better = "higher"
    needs_gold = False

    def score(self, facts):
        raise ZeroDivisionError("the plugin's own fault")
'''

    @pytest.mark.slow
    def test_a_crash_does_not_look_like_a_failed_gate(self, tmp_path):
        """Python's own exit code for a traceback is 1, which means that a gate has failed."""
        (tmp_path / "buggy_plugin.py").write_text(self.PLUGIN)
        (tmp_path / "ragmon.toml").write_text("plugins = ['buggy_plugin']\n")
        done = ragmon("gate", "t.jsonl")
        assert (done.code, done.out) == (3, "")
        assert "the plugin's own fault" in done.err
        assert "error: ragmon crashed" in done.err


class TestInterrupt:
    @pytest.mark.slow
    @pytest.mark.parametrize("jobs", [1, 2])
    def test_ctrl_c_ends_with_130_and_no_word(self, tmp_path, jobs):
        """Also while other processes do the work; none of them stays behind."""
        pipes = [tmp_path / f"pipe{n}" for n in range(jobs)]
        for pipe in pipes:
            os.mkfifo(pipe)
        with start("replay", *pipes, "--jobs", jobs, start_new_session=True, stdin=subprocess.DEVNULL) as process:
            writers = [pipe.open("w") for pipe in pipes]  # opens when ragmon reads it
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=TIMEOUT)
            for writer in writers:
                writer.close()
        assert (process.returncode, out, err.strip()) == (130, "", "")
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)

    @pytest.mark.slow
    def test_ctrl_c_does_not_wait_for_the_end_of_a_file(self, tmp_path):
        """The processes that read the files end with the command."""
        path = tmp_path / "traces.jsonl"
        path.write_bytes(b"".join(good(n) for n in range(100_000)))
        with start("replay", *[path] * 200, "--jobs", 2, start_new_session=True, stdin=subprocess.DEVNULL) as process:
            wait_for(lambda: len(list(Path(f"/proc/{process.pid}/task").iterdir())) > 1)
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=TIMEOUT)
        assert "Traceback" not in err, err
        assert (process.returncode, out) == (130, "")
