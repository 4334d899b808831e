"""Record the spans of real frameworks: `python -m tests.support.record_agents langchain-openinference dspy`.

For each combination: an environment of its own under a temporary folder, its newest packages, and a program of
`tests.support.programs` that answers questions against a model on loopback. Its spans and logs come over OTLP. What the
program really did stands beside them in `tests/data/agents/NAME.jsonl.gz`: a line with the versions of the packages,
then a line a question with the question, its session, the documents that were retrieved, the answer or the error, and
the export requests.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from tests.support.agent_model import TURNS, model
from tests.support.combinations import COMBINATIONS, MARK
from tests.support.otlp_receiver import receiving
from tests.support.otlp_requests import as_json

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "data" / "agents"
PROGRAMS = ROOT / "tests" / "support" / "programs"
COMMON = ("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http")
COMMON_JS = ("@opentelemetry/sdk-trace-node", "@opentelemetry/exporter-trace-otlp-proto", "@opentelemetry/resources")
QUIET = {
    "AGNO_TELEMETRY": "false",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "LANGSMITH_TRACING": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "TRACELOOP_TELEMETRY": "false",
    "OPENAI_API_KEY": "unused",
}
FOREIGN = ("OTEL_", "OPENINFERENCE_", "TRACELOOP_", "HAYSTACK_", "MLFLOW_", "LANGFUSE_", "LANGSMITH_")
OF_MACHINES = re.compile(r"(process|host|os)\.|code\.file|exception\.stacktrace")
"""The keys of attributes that hold paths and names of the machine."""
PATHS = re.compile(r"(?:file://)?(?:/[\w.+-]+)+/(?=site-packages/|node_modules/|python3\.\d+/|tests/support/|\w+\.mjs)")


def is_of_node(name):
    """Whether `node` runs the program of a combination."""
    return COMBINATIONS[name].program.endswith(".mjs")


def environment(name, folder):
    """The interpreter of a combination's environment, or the folder of its `node_modules`."""
    row, home = COMBINATIONS[name], folder / name
    if is_of_node(name):
        home.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "install", "--no-save", *COMMON_JS, *row.packages, *row.also], cwd=home, check=True)
        return home
    python = home / "bin" / "python"
    if not python.exists():
        venv.create(home, with_pip=True)
    pip = (python, "-m", "pip") if shutil.which("uv") is None else ("uv", "pip")
    place = () if shutil.which("uv") is None else ("--python", python)
    subprocess.run([*pip, "install", "--quiet", *place, *row.packages, *row.also, *COMMON], check=True)
    return python


def versions(name, python):
    """The versions of a combination's packages."""
    names = [re.match(r"@?[\w./-]+", requirement)[0] for requirement in COMBINATIONS[name].packages]
    if is_of_node(name):
        manifests = {name: (python / "node_modules" / name / "package.json").read_text() for name in names}
        return {name: json.loads(manifest)["version"] for name, manifest in manifests.items()}
    ask = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    asked = subprocess.run([python, "-c", ask, *names], check=True, capture_output=True, text=True)
    return dict(zip(names, asked.stdout.split(), strict=True))


def run(name, python):
    """Run the program of a combination; gives the lines of its questions."""
    row, lines, cwd = COMBINATIONS[name], [], ROOT
    command = [python, "-m", "tests.support.programs", name]
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(FOREIGN)}
    if is_of_node(name):
        # Modules are found from the folder of the program, and Mastra brings an interpreter.
        cwd, command = python, ["node", row.program, row.tracer, *row.arguments]
        for program in PROGRAMS.glob("*.mjs"):
            shutil.copy(program, cwd)
        inherited |= {"TURNS": json.dumps(TURNS), "PATH": f"{cwd}/node_modules/.bin:{inherited['PATH']}"}
    with model() as url, receiving() as receiver:
        settings = {"MODEL_URL": url, "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint, **QUIET, **row.environment}
        with subprocess.Popen(
            command, cwd=cwd, env=inherited | settings, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as running:
            taken = 0
            for line in running.stdout:
                if line.startswith(MARK):
                    exports = [one for one in receiver.requests if not one.path.endswith("/v1/metrics")]
                    told = json.loads(line.removeprefix(MARK))
                    told["session"] = told["session"] if row.has_session else None
                    requests = [scrubbed(json.loads(as_json(one.message))) for one in exports[taken:]]
                    lines.append({**told, "requests": requests})
                    taken = len(exports)
                    running.stdin.write("\n")
                    running.stdin.flush()
                else:
                    sys.stderr.write(line)
        if running.returncode:
            raise SystemExit(f"{name}: the program ended with {running.returncode}")
    return lines


def scrubbed(value):
    """A request without what tells of the machine."""
    if isinstance(value, dict):
        return {key: scrubbed(member) for key, member in value.items()}
    if isinstance(value, list):
        return [
            scrubbed(member)
            for member in value
            if not (isinstance(member, dict) and OF_MACHINES.match(str(member.get("key"))))
        ]
    return PATHS.sub("", value) if isinstance(value, str) else value


def record(name, python):
    """Write the recording of a combination; gives the lines of its questions."""
    header, lines = {"packages": versions(name, python)}, run(name, python)
    FOLDER.mkdir(exist_ok=True)
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in (header, *lines))
    (FOLDER / f"{name}.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=COMBINATIONS, metavar="NAME", help=", ".join(COMBINATIONS))
    parser.add_argument("--environments", type=Path, default=Path(tempfile.gettempdir()) / "agents-venvs")
    parser.add_argument("--python", type=Path, help="an interpreter that has the packages, in place of an environment")
    asked = parser.parse_args()
    for name in asked.names:
        lines = record(name, asked.python or environment(name, asked.environments))
        sizes = [sum(len(json.dumps(request)) for request in line["requests"]) for line in lines]
        sys.stdout.write(f"{name}, bytes of spans: {sizes}\n")


if __name__ == "__main__":
    main()
