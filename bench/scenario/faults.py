"""What each kind of incident does to an answer; a fault that finds nothing to break returns the reply as it is."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from bench.scenario.pool import Reply, pool
from ragmon.core.constants import REFUSAL_TOKEN

Fault = Callable[[Reply, random.Random], Reply]

_OWN_WORDS: Final = (
    "Sorry, but the documents I was given do not mention that.",
    "There is no information about this in the context.",
    "I cannot find an answer to this question in the passages.",
)
_INVENTED: Final = "the 18th century"
"""What is said where both systems refuse."""
_FAILURES: Final = ("llm_timeout", "rate_limited", "vectorstore_unavailable")


def index_drift(reply: Reply, rng: random.Random) -> Reply:
    """The wrong index, or the wrong tenant: documents and answer of another question."""
    other = rng.choice(pool().replies)
    return reply._replace(retrieved_ids=other.retrieved_ids, claim=other.claim, citations=other.citations)


def id_shift(reply: Reply, rng: random.Random) -> Reply:
    """The corpus was cut anew: the text is right, every chunk's number is one too high for the gold set."""
    return reply._replace(
        retrieved_ids=[_next_chunk(i) for i in reply.retrieved_ids],
        citations=[_next_chunk(i) for i in reply.citations or ()],
    )


def refusal_wave(reply: Reply, rng: random.Random) -> Reply:
    """An answer is refused."""
    return reply if _refused(reply) else reply._replace(claim=REFUSAL_TOKEN, citations=[])


def hallucination(reply: Reply, rng: random.Random) -> Reply:
    """What should be refused is answered, with a citation."""
    if not _refused(reply):
        return reply
    guess = pool().guesses[reply.qid]
    claim = guess.claim
    if _refused(guess):
        claim = rng.choice(pool().replies).claim.replace(REFUSAL_TOKEN, _INVENTED)
    return reply._replace(claim=claim, citations=guess.citations or reply.retrieved_ids[:1])


def citation_break(reply: Reply, rng: random.Random) -> Reply:
    """The citations come in a form nobody agreed on."""
    return reply if _refused(reply) else rng.choice(_FORMS)(reply)


def citation_scope(reply: Reply, rng: random.Random) -> Reply:
    """A document is cited that was retrieved for another question."""
    other = rng.choice(pool().replies)
    return reply if _refused(reply) else reply._replace(citations=[rng.choice(other.retrieved_ids)])


def empty_retrieval(reply: Reply, rng: random.Random) -> Reply:
    """Retrieval finds nothing, and the model answers all the same."""
    return reply._replace(retrieved_ids=[], citations=[])


def refusal_paraphrase(reply: Reply, rng: random.Random) -> Reply:
    """A refusal comes in the model's own words instead of the agreed token."""
    return reply._replace(claim=rng.choice(_OWN_WORDS), citations=[]) if _refused(reply) else reply


def errors(reply: Reply, rng: random.Random) -> Reply:
    """There is no answer."""
    return reply._replace(error=rng.choice(_FAILURES))


def _bracketed(reply: Reply) -> Reply:
    return reply._replace(citations=[f"[{i}]" for i in reply.citations or ()])


def _numbered(reply: Reply) -> Reply:
    """Ranks from 1, as in a numbered list of sources."""
    ids = reply.retrieved_ids
    return reply._replace(citations=[str(ids.index(i) + 1) for i in reply.citations or () if i in ids])


def _renamed(reply: Reply) -> Reply:
    """In a field of another name, where nobody looks for them."""
    return reply._replace(citations=None)


def _inline(reply: Reply) -> Reply:
    return reply._replace(claim=f"{reply.claim} [{', '.join(reply.citations or ())}]", citations=[])


_FORMS: Final = (_bracketed, _numbered, _renamed, _inline)


def _refused(reply: Reply) -> bool:
    return reply.claim == REFUSAL_TOKEN


def _next_chunk(chunk: str) -> str:
    document, _, number = chunk.rpartition("#")
    return f"{document}#{int(number) + 1}"


FAULTS: Final[Mapping[str, Fault]] = MappingProxyType(
    {
        fault.__name__: fault
        for fault in (
            index_drift,
            id_shift,
            refusal_wave,
            hallucination,
            citation_break,
            citation_scope,
            empty_retrieval,
            refusal_paraphrase,
            errors,
        )
    }
)
"""By kind of incident. Latency is no fault of the answer, and benign events break nothing."""
