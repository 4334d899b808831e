"""The judge of `ragmon replay --compat seed-001 --judge-url`: contextual precision, one case at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Final

from ragmon.capture.judges.endpoint import Endpoint, read_key
from ragmon.capture.judges.prompts import Case, contextual_precision
from ragmon.capture.judges.results import NoJudgementError, Opinion
from ragmon.config.types import url as parse_url
from ragmon.core.constants import TIMEOUT
from ragmon.core.errors import RagmonError, shorten

PATIENCE: Final = 120.0
"""Seconds for one case, retries included."""


def seed_judge(
    judge_url: str, model: str, judge_key_file: str | None = None, *, no_reason: bool = False
) -> Callable[[str, str, Sequence[str]], Mapping[str, Any]]:
    """Asks a model which contexts help to arrive at the expected output.

    Args:
        judge_url: The address of an OpenAI-compatible API.
        model: The model's name there.
        judge_key_file: Holds its key.
        no_reason: Ask for no reasons.

    Raises:
        RagmonError: It is no address, the key cannot be read, or httpx is not installed.
    """
    try:
        address = parse_url(judge_url)
    except ValueError:
        hint = "such as https://judge.example/v1"
        raise RagmonError(f"--judge-url is no address: {shorten(judge_url)}", hint=hint) from None
    key = None if judge_key_file is None else read_key(Path(judge_key_file), "check --judge-key-file")
    endpoint = Endpoint(address, model, key=key)

    def ask(question: str, expected: str, contexts: Sequence[str]) -> Mapping[str, Any]:
        began = monotonic()
        try:
            case = Case(question, tuple(contexts), expected=expected)
            opinion = asyncio.run(_opinion(endpoint, case, reasons=not no_reason))
        except NoJudgementError as failure:
            return {
                "error": {failure.result: str(failure)} if failure.status is None else {"api_error": failure.status}
            }
        except TimeoutError:
            return {"error": {TIMEOUT: f"no verdicts within {PATIENCE:g} seconds"}}
        verdicts = [{"verdict": found.verdict, "reason": found.reason} for found in opinion.findings]
        return {"verdicts": verdicts, "reason": opinion.reason, "latency_ms": round(1000 * (monotonic() - began))}

    return ask


async def _opinion(endpoint: Endpoint, case: Case, *, reasons: bool) -> Opinion:
    async with asyncio.timeout(PATIENCE), endpoint.session(monotonic() + PATIENCE) as session:
        return await contextual_precision(session, case, reasons=reasons)
