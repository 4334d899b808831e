"""Record the spans of agents in real frameworks: `python -m tests.support.record_agents pydantic_ai strands`.

For each framework: an environment of its own under a temporary folder, its newest packages, and an agent of
`tests.support.agents` that answers two questions against a model on loopback. Its spans come over OTLP. What the
agent really did stands beside them in `tests/data/agents/NAME.jsonl.gz`: a line with the versions of the packages, then
a line a question with the question, the documents the tool returned, the answer, and the export requests.
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

from tests.support.agent_model import model
from tests.support.agents import MARK
from tests.support.otlp_receiver import receiving
from tests.support.otlp_requests import as_json

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "data" / "agents"
COMMON = ("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http")
PACKAGES = {
    "pydantic_ai": ("pydantic-ai-slim",),
    "mcp": ("mcp", "fastmcp-slim[server]", "pydantic-ai-slim[mcp]"),
    "openai_agents": ("openai-agents", "openinference-instrumentation-openai-agents"),
    "smolagents": ("smolagents", "openinference-instrumentation-smolagents", "openai"),
    "agno": ("agno", "openinference-instrumentation-agno", "openai"),
    "strands": ("strands-agents[openai]>=1.60",),
    "crewai": ("crewai", "openinference-instrumentation-crewai"),
    "traceloop": ("traceloop-sdk", "openai", "httpx"),
    "dspy": ("dspy", "openinference-instrumentation-dspy"),
    "google_genai": ("google-genai", "openinference-instrumentation-google-genai"),
    "langgraph": ("langgraph", "langchain", "langchain-openai", "openinference-instrumentation-langchain"),
    "llama_index": ("llama-index-core", "llama-index-llms-openai-like", "openinference-instrumentation-llama-index"),
}
QUIET = {
    "AGNO_TELEMETRY": "false",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "LANGSMITH_TRACING": "false",
    "TRACELOOP_TELEMETRY": "false",
    "OPENAI_API_KEY": "unused",
}


def environment(name, folder):
    """The interpreter of a framework's environment, and the versions of its packages."""
    home = folder / name
    python = home / "bin" / "python"
    if not python.exists():
        venv.create(home, with_pip=True)
    pip = (python, "-m", "pip") if shutil.which("uv") is None else ("uv", "pip")
    place = () if shutil.which("uv") is None else ("--python", python)
    subprocess.run([*pip, "install", "--quiet", *place, *COMMON, *PACKAGES[name]], check=True)
    listed = subprocess.run([*pip, "list", *place, "--format", "json"], check=True, capture_output=True)
    versions = {package["name"].lower(): package["version"] for package in json.loads(listed.stdout)}
    return python, {package: versions[package] for package in map(_plain_name, PACKAGES[name])}


def _plain_name(requirement):
    return re.match(r"[\w-]+", requirement)[0]


def record(name, folder):
    """Write the recording of one framework; gives its lines."""
    python, packages = environment(name, folder)
    lines = [{"framework": name, "packages": packages}]
    with model() as url, receiving() as receiver:
        settings = {"MODEL_URL": url, "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint, **QUIET}
        command = [python, "-m", "tests.support.agents", name]
        with subprocess.Popen(
            command, cwd=ROOT, env=os.environ | settings, stdout=subprocess.PIPE, text=True
        ) as running:
            taken = 0
            for line in running.stdout:
                if line.startswith(MARK):
                    requests = [json.loads(as_json(request.message)) for request in receiver.of("/v1/traces")]
                    lines.append({**json.loads(line.removeprefix(MARK)), "requests": requests[taken:]})
                    taken = len(requests)
                else:
                    sys.stderr.write(line)
        if running.returncode:
            raise SystemExit(f"{name}: the agent ended with {running.returncode}")
    FOLDER.mkdir(exist_ok=True)
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    (FOLDER / f"{name}.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=PACKAGES, metavar="NAME", help=", ".join(PACKAGES))
    parser.add_argument("--environments", type=Path, default=Path(tempfile.gettempdir()) / "agents-venvs")
    asked = parser.parse_args()
    for name in asked.names:
        lines = record(name, asked.environments)
        sizes = [sum(len(json.dumps(request)) for request in line["requests"]) for line in lines[1:]]
        sys.stdout.write(f"{name} {lines[0]['packages']}, bytes of spans: {sizes}\n")


if __name__ == "__main__":
    main()
