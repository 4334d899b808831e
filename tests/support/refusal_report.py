"""How well refusals in plain words are found; `python -m tests.support.refusal_report [DATA]` prints it.

DATA is the folder of the larger data sets; without it only the lists of tests/data/refusals are measured.

What is a refusal. An answer that gives nothing of what was asked: it says that the speaker does not know, that its
sources do not say, that it cannot or may not answer, or it asks back. Naming what the sources hold instead, a hint
where to ask and an offer of help do not make it an answer. The label follows from the text alone, because the matcher
sees no question. So these are answers:

* A fact in a negative form: "You cannot return an opened item", "No information is shared with third parties".
* A fact after an apology, a disclaimer or a gap: "Unfortunately, the museum is closed", "As an AI language model, I do
  not have live data. However, as of 2021 ...", "The contract does not specify a term, but the law says two years". Who
  asked has something in hand, right or wrong; what it is worth is for the metrics of answers.
* What nobody knows: "The exact date is unknown; it was built between 1210 and 1230". "Not revealed" and "does not
  exist" speak of the world; "not mentioned" and "not specified" of a text, and refuse.
* Words of others, conditions, and words that are quoted: "The witness said that he did not know".

And these are refusals: "The context does not give the price. However, it mentions three tariffs", "I'd need to know
which country you mean", "I cannot give legal advice, please ask a lawyer".

The lists. `handmade.jsonl`: 500 answers in ten languages, half of them refusals, written before the patterns; every
third (the number of its id can be divided by 3) was not looked at while the patterns were tuned. `later.jsonl`: 444
more in four rounds, each written when the patterns passed all before, and measured before anything was changed for it.
`hedged.jsonl`: 177 answers that hedge first ("The documents do not state this explicitly, but ...") and give what was
asked, in ten languages, and 45 English refusals that hedge and give nothing; the patterns were tuned on the first 162
and 30, the others were measured first.
`qaeval_chatgpt.json`: which of ChatGPT's 4,958 answers in qaeval refuse, by reading the 374 that hold a negation, an
apology or a request in their first 300 characters; all others count as answers.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ragmon.core.constants import REFUSAL_TOKEN
from ragmon.core.refusals import RefusalRule
from ragmon.core.text import fold

LISTS = Path(__file__).parents[1] / "data" / "refusals"
HELD_OUT = 3
"""Every answer of `handmade.jsonl` whose number can be divided by this was held out."""
SYSTEMS = (
    "qaeval/traces/chatgpt",
    "qaeval/traces/fid",
    "squad2/traces/bert",
    "squad2/traces/nlnet",
    "squad2/traces/extractive",
    "lfrqa/lfrqa_citations",
)
"""Real answers. Those of squad2 refuse by the token alone; those of fid and lfrqa never refuse."""


class LabelledAnswer(NamedTuple):
    """An answer and whether it is a refusal; `held_out` says that no pattern was tuned on it."""

    id: str
    language: str
    refusal: bool
    answer: str
    held_out: bool


@dataclass
class Confusion:
    """Counts of labels against what the rule says, and the answers it gets wrong."""

    found: int = 0
    missed: int = 0
    false: int = 0
    answers: int = 0

    def add(self, *, refusal: bool, says: bool) -> None:
        """Count one answer."""
        self.found += refusal and says
        self.missed += refusal and not says
        self.false += says and not refusal
        self.answers += not refusal

    @property
    def precision(self) -> float | None:
        """The share of refusals among what is called one; None where nothing is."""
        return self.found / (self.found + self.false) if self.found + self.false else None

    @property
    def recall(self) -> float | None:
        """The share of refusals that are found; None where there are none."""
        return self.found / (self.found + self.missed) if self.found + self.missed else None


def read_list(name: str) -> list[LabelledAnswer]:
    """A list of tests/data/refusals."""
    rows = [json.loads(line) for line in (LISTS / name).read_text("utf-8").splitlines()]
    held_out = name == "handmade.jsonl"
    return [LabelledAnswer(**row, held_out=held_out and int(row["id"][-2:]) % HELD_OUT == 0) for row in rows]


def read_system(shared: Path, system: str) -> Iterator[LabelledAnswer]:
    """The answers of a published system, those that are empty left out."""
    refusals = set(json.loads((LISTS / "qaeval_chatgpt.json").read_text("utf-8"))["refusals"])
    with gzip.open(shared / f"{system}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            answer = row["answer"] if "answer" in row else (row["answer_json"] or {}).get("claim") or ""
            if answer.strip():
                is_token = fold(answer.strip()) == REFUSAL_TOKEN
                refusal = is_token or (system.endswith("chatgpt") and row["qid"] in refusals)
                yield LabelledAnswer(row["qid"], "en", refusal, answer, held_out=False)


def is_refusal(rule: RefusalRule, answer: str) -> bool:
    """What the rule says of an answer, token or not."""
    return rule.kind(answer) is not None


def measure(answers: Iterable[LabelledAnswer], rule: RefusalRule | None = None) -> Confusion:
    """The counts over some answers."""
    rule, counts = rule or RefusalRule(), Confusion()
    for answer in answers:
        counts.add(refusal=answer.refusal, says=is_refusal(rule, answer.answer))
    return counts


def line(name: str, counts: Confusion) -> str:
    """One row of the report."""
    share = ["   -  " if value is None else f"{value:6.3f}" for value in (counts.precision, counts.recall)]
    return f"{name:34} {share[0]}  {share[1]}  {counts.found:6} {counts.missed:6} {counts.false:6} {counts.answers:7}"


def report(shared: Path | None) -> Iterator[str]:
    """The rows of the report."""
    handmade, later, hedged = (read_list(f"{name}.jsonl") for name in ("handmade", "later", "hedged"))
    yield f"{'':34} precis  recall   found missed  false answers"
    for language in dict.fromkeys(answer.language for answer in handmade):
        yield line(language, measure(answer for answer in (*handmade, *later) if answer.language == language))
    yield line("handmade", measure(handmade))
    yield line("handmade, held-out third", measure(answer for answer in handmade if answer.held_out))
    yield line("later", measure(later))
    yield line("hedged", measure(hedged))
    for system in SYSTEMS if shared is not None else ():
        yield line(system, measure(read_system(shared, system)))


if __name__ == "__main__":
    sys.stdout.write("\n".join([*report(Path(sys.argv[1]) if sys.argv[1:] else None), ""]))
