"""Reading what a model replied: as asked, or not at all. Nothing is guessed and nothing filled up."""

from __future__ import annotations

import json
from typing import Any, Final

from ragmon.core.constants import JUDGE_ERROR
from ragmon.judges.results import NO, YES, Finding, NoJudgementError

MOST_CLAIMS: Final = 64
"""An answer that makes more claims is not judged claim by claim."""
_FENCE: Final = "```"


def completion(body: bytes) -> str:
    """The text of a chat completion.

    Raises:
        NoJudgementError: It is none, was cut short, or is a refusal.
    """
    reply = _json(body, "its server's answer")
    try:
        choice = reply["choices"][0]
        content, ended = choice["message"]["content"], choice.get("finish_reason")
    except (KeyError, IndexError, TypeError, AttributeError):
        raise _wrong("its server's answer is no chat completion") from None
    if ended in ("length", "content_filter"):
        raise _wrong(f"the reply was cut short ({ended})")
    if not isinstance(content, str):
        raise _wrong("the reply holds no text")
    return content


def findings(reply: str, count: int, *, reasons: bool) -> tuple[Finding, ...]:
    """The verdicts of a reply; a verdict is a yes if it is the word, whatever its case and the space around it.

    Args:
        reply: What the model said.
        count: How many verdicts were asked for.
        reasons: Keep their reasons.

    Raises:
        NoJudgementError: It is no JSON of the form asked for, or holds another number of verdicts.

    >>> findings('{"verdicts": [{"verdict": " Yes "}, {"verdict": "no"}]}', 2, reasons=False)
    (Finding(verdict='yes'), Finding(verdict='no'))
    """
    listed = _listed(reply, "verdicts")
    if len(listed) != count:
        raise _wrong(f"the reply holds {len(listed)} verdicts, and {count} were asked for")
    return tuple(_finding(entry, number, reasons=reasons) for number, entry in enumerate(listed, start=1))


def claims(reply: str) -> tuple[str, ...]:
    """The claims a reply lists.

    Raises:
        NoJudgementError: It lists none that can be read, or too many.
    """
    listed = _listed(reply, "claims")
    if not all(isinstance(claim, str) and claim.strip() for claim in listed):
        raise _wrong("the reply lists a claim that is no text")
    if len(listed) > MOST_CLAIMS:
        raise _wrong(f"the reply lists {len(listed)} claims, and {MOST_CLAIMS} are the most")
    return tuple(listed)


def _finding(entry: Any, number: int, *, reasons: bool) -> Finding:
    word = entry.get("verdict") if isinstance(entry, dict) else None
    if not isinstance(word, str):
        raise _wrong(f"verdict {number} of the reply is no word")
    if entry.get("number", number) != number:
        raise _wrong(f"verdict {number} of the reply has another number")
    reason = entry.get("reason") if reasons else None
    is_yes = word.strip().lower() == YES
    return Finding(YES if is_yes else NO, reason if isinstance(reason, str) else None)


def _listed(reply: str, key: str) -> list[Any]:
    found = _json(_unfenced(reply), "the reply")
    listed = found.get(key) if isinstance(found, dict) else None
    if not isinstance(listed, list):
        raise _wrong(f"the reply has no list of {key}")
    return listed


def _unfenced(reply: str) -> str:
    """What stands on the lines between the fences, where the whole reply is one fenced block; else the reply."""
    text = reply.strip()
    if not (text.startswith(_FENCE) and text.endswith(_FENCE)):
        return reply
    block = text[len(_FENCE) : -len(_FENCE)].removeprefix("json")
    begin = len(block) - len(block.lstrip())
    end = len(block.rstrip())
    first, last = block.rfind("\n", 0, begin), block.rfind("\n", end)
    return reply if first < 0 or last < 0 else block[first + 1 : last]


def _json(text: str | bytes, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise _wrong(f"{what} is no JSON") from None


def _wrong(why: str) -> NoJudgementError:
    return NoJudgementError(JUDGE_ERROR, why)
