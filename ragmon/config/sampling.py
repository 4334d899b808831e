"""The tables capture reads: what is kept, what of it is captured, what counts as a refusal."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, model_validator

from ragmon.config.kinds import Count, Duration, File, Many, Seconds, Share, Table, Text, function, some, wrong
from ragmon.core.constants import REFUSAL_TOKEN
from ragmon.core.refusal import DEFAULT_PATTERNS, RefusalRule

Content = Literal["none", "hash", "redacted", "full"]


class Keep(Table):
    """Rates at which calls are kept for their outcome, beside the audit share; a stratum not named is not kept."""

    error: Share = 0.0
    refusal: Share = 0.0
    slow: Share = 0.0


class Sampling(Table):
    """Which calls become records.

    Attributes:
        rate: The audit share, uniform over all calls.
        keep: Outcome strata kept as well.
        slow_above: Above which total latency a call is slow.
        detail: Whether what was recorded inside a call survives in calls kept for their outcome.
        latency: Whether `all` calls are timed, or the `kept` ones alone; keeping refusals or slow calls times all.
        parent: `respect` restricts the draw to parents the application's tracer sampled.
    """

    rate: Share = 0.05
    keep: Keep = Keep(error=1.0, refusal=0.2, slow=1.0)
    slow_above: Duration = Seconds(8)
    detail: bool = False
    latency: Literal["all", "kept"] = "all"
    parent: Literal["ignore", "respect"] = "ignore"


class Capture(Table):
    """What of a sampled call leaves the application.

    Attributes:
        content: How the text of user traffic is treated.
        probe_content: The same for gold questions, which are not user data.
        id_from: Where a document's id is; None tries the usual places.
        merge: What several retrievals of a request make, where spans of other instrumentations tell of them: the last
            list, one after the other, or their reciprocal rank fusion.
        gold: A gold file that lets claim metrics be computed in the application when no text leaves it.
        redactors: Functions of the application's own, `module:function`, that text goes through as well.
        hash_key_file: The HMAC key of question hashes.
    """

    content: Content = "none"
    probe_content: Content = "full"
    id_from: Text | None = None
    merge: Literal["concat", "last", "rrf"] = "concat"
    gold: File | None = None
    redactors: Many[Annotated[str, AfterValidator(function)]] = ()
    hash_key_file: File | None = None


def _pattern(value: str) -> str:
    try:
        # The matcher joins all patterns into one expression; each must stand inside a group.
        re.compile(f"(?:{value})")
    except re.error as error:
        message = f"is not a usable regular expression ({error})"
        raise wrong(message, "Python's re syntax; answers are case-folded first, so no (?i) is needed") from None
    return value


def _patterns(value: object) -> object:
    if isinstance(value, str):
        if value != "default":
            raise wrong('must be "default" or a list', "a list of regular expressions; [] switches the matcher off")
        return DEFAULT_PATTERNS
    return value


class Refusal(Table):
    """What counts as a refusal; `patterns = "default"` is the English list ragmon ships."""

    tokens: Annotated[Many[Text], AfterValidator(some)] = (REFUSAL_TOKEN,)
    patterns: Annotated[Many[Annotated[str, AfterValidator(_pattern)]], BeforeValidator(_patterns)] = DEFAULT_PATTERNS
    window: Count = 120
    matcher_counts: bool = False

    @model_validator(mode="after")
    def _patterns_join(self) -> Refusal:
        try:
            self.rule()
        except re.error as error:
            message = f"has patterns that do not fit together ({error})"
            raise wrong(message, "a group may be named once over all patterns, and not be referred to") from None
        return self

    def rule(self) -> RefusalRule:
        """The rule as the facts use it."""
        return RefusalRule(self.tokens, self.patterns, self.window, self.matcher_counts)
