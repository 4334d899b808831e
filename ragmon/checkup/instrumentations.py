"""Which other instrumentations are installed, and what is lost of their spans with this environment.

Sources: opentelemetry-util-genai, `utils.py` (content); openinference-instrumentation, `config.py` (what is hidden);
OpenLLMetry's `opentelemetry.instrumentation.*.utils` (content); opentelemetry-sdk, `sdk.trace.SpanLimits` (limits) and
`sdk.trace.sampling` (samplers).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Final

from ragmon.checkup.limits import limits
from ragmon.checkup.samplers import samplers
from ragmon.config.settings import Settings
from ragmon.core.errors import shorten

GENAI: Final = "OpenTelemetry GenAI"
OPENINFERENCE: Final = "OpenInference"
OPENLLMETRY: Final = "OpenLLMetry"
CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
OPT_IN: Final = "OTEL_SEMCONV_STABILITY_OPT_IN"
EXPERIMENTAL: Final = "gen_ai_latest_experimental"
TRACE_CONTENT: Final = "TRACELOOP_TRACE_CONTENT"
HIDDEN: Final[Mapping[str, str]] = {
    "OPENINFERENCE_HIDE_INPUTS": "questions",
    "OPENINFERENCE_HIDE_OUTPUTS": "answers, texts of documents, and ids that stand in the output alone, as LangChain's",
    "OPENINFERENCE_HIDE_INPUT_MESSAGES": "questions that stand in messages alone",
    "OPENINFERENCE_HIDE_OUTPUT_MESSAGES": "answers that stand in messages alone",
    "OPENINFERENCE_HIDE_INPUT_TEXT": "questions that stand in messages alone",
    "OPENINFERENCE_HIDE_OUTPUT_TEXT": "answers that stand in messages alone",
    "OPENINFERENCE_HIDE_PROMPTS": "questions that stand in prompts alone",
    "OPENINFERENCE_HIDE_CHOICES": "answers that stand in completions alone",
    "OPENINFERENCE_HIDE_RETRIEVAL_DOCUMENTS": "texts of documents, and ids where they stand in metadata alone",
}
"""What each switch hides; base64 images and embeddings are read by no metric."""
_ON_SPANS: Final = ("SPAN_ONLY", "SPAN_AND_EVENT")


@dataclass(frozen=True)
class Found:
    """An instrumentation, or something that holds for all of them.

    Attributes:
        name: Whose it is.
        packages: What is installed.
        lost: What does not arrive, and why.
        told: What is worth knowing and loses nothing for certain.
        hint: What would be right, where something is lost.
    """

    name: str
    packages: tuple[str, ...] = ()
    lost: str = ""
    told: str = ""
    hint: str = ""


def instrumentations(
    settings: Settings,
    environ: Mapping[str, str] | None = None,
    installed: Iterable[metadata.Distribution] | None = None,
) -> list[Found]:
    """What is installed beside this ragmon, in this environment; empty where there is nothing.

    Args:
        settings: The configuration.
        environ: The environment; None takes the process's own.
        installed: The packages; None: those that can be imported.
    """
    environ = os.environ if environ is None else environ
    packages = _sorted(metadata.distributions() if installed is None else installed)
    switches = {GENAI: _genai, OPENINFERENCE: _openinference, OPENLLMETRY: _openllmetry}
    found = [switches[name](tuple(sorted(packages[name])), environ) for name in switches if packages[name]]
    if not found:
        return []
    flat = bool(packages[OPENINFERENCE])
    others = (
        ("attribute limits", *limits(settings, environ, flattened=flat)),
        ("sampler", *samplers(settings, environ)),
    )
    return found + [Found(name, lost=lost, told=told, hint=hint) for name, lost, told, hint in others if lost or told]


def _sorted(installed: Iterable[metadata.Distribution]) -> dict[str, set[str]]:
    """The instrumentations by the library they are made with: their names alone do not tell them apart."""
    found: dict[str, set[str]] = {GENAI: set(), OPENINFERENCE: set(), OPENLLMETRY: set()}
    for package in installed:
        name = (package.metadata["Name"] or "").lower().replace("_", "-")
        needs = " ".join(package.requires or ()).lower().replace("_", "-")
        if name.startswith("openinference-instrumentation-"):
            found[OPENINFERENCE].add(name)
        elif "instrumentation" in name and "opentelemetry-util-genai" in needs:
            found[GENAI].add(name)
        elif "instrumentation" in name and "opentelemetry-semantic-conventions-ai" in needs:
            found[OPENLLMETRY].add(name)
    return found


def _genai(packages: tuple[str, ...], environ: Mapping[str, str]) -> Found:
    mode = environ.get(CAPTURE, "").strip()
    hint = f"{CAPTURE}=SPAN_ONLY {OPT_IN}={EXPERIMENTAL}"
    if mode.upper() not in _ON_SPANS:
        how = f"{CAPTURE}={shorten(mode)} captures nothing on spans" if mode else f"{CAPTURE} is not set"
        return Found(GENAI, packages, f"{how}: no question, ids or answer arrive: unscorable", hint=hint)
    if EXPERIMENTAL not in (word.strip() for word in environ.get(OPT_IN, "").split(",")):
        told = f"{OPT_IN} lacks {EXPERIMENTAL}: versions that ask for it send no question, ids or answer"
        return Found(GENAI, packages, told, hint=hint)
    return Found(GENAI, packages)


def _openinference(packages: tuple[str, ...], environ: Mapping[str, str]) -> Found:
    on = [switch for switch in HIDDEN if environ.get(switch, "").lower() == "true"]
    lost = "; ".join(f"{switch}=true hides {HIDDEN[switch]}" for switch in on)
    return Found(OPENINFERENCE, packages, lost, hint=f"unset {' '.join(on)}" if on else "")


def _openllmetry(packages: tuple[str, ...], environ: Mapping[str, str]) -> Found:
    content = environ.get(TRACE_CONTENT, "")
    if not content or content.lower() == "true":
        return Found(OPENLLMETRY, packages)
    lost = f"{TRACE_CONTENT}={shorten(content)}: no question, ids or answer arrive: unscorable"
    return Found(OPENLLMETRY, packages, lost, hint=f"{TRACE_CONTENT}=true, or unset it")
