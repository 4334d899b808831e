"""The handbook of a ferry line, its search, and a model that answers from what it is given; applications share it.

The model stands in for a real one: it repeats the sentence that answers, if the prompt holds it, and says in plain
words that it does not know, if not.
"""

from __future__ import annotations

import random
import re

HARBOURS = ("Sund", "Holm", "Vik", "Nes", "Strand", "Bakke", "Dal", "Eide", "Fjell", "Lund", "Skog", "Vang")
FACTS = (
    ("When does the first ferry to {} leave?", "The first ferry to {} leaves at 06:{:02}."),
    ("What does a ticket to {} cost?", "A ticket to {} costs 1{:02} crowns."),
    ("How long does the crossing to {} take?", "The crossing to {} takes 1{:02} minutes."),
    ("Which berth does the ferry use in {}?", "In {} the ferry uses berth 1{:02}."),
)
UNKNOWN = (
    "Is there a restaurant in {}?",
    "Who is the harbour master of {}?",
    "Can I rent a bicycle in {}?",
    "How deep is the water in {}?",
    "When was the lighthouse of {} built?",
    "Is there a bank in {}?",
    "Are dogs allowed in the park of {}?",
)
REFUSALS = (
    "I don't know based on the provided context.",
    "I'm sorry, but the handbook does not say anything about that.",
    "I could not find any information about this in the documents.",
)

PASSAGES = {
    f"{harbour.lower()}#{number}": answer.format(harbour, place)
    for place, harbour in enumerate(HARBOURS, 10)
    for number, (_, answer) in enumerate(FACTS, 1)
}
ANSWERS = {
    question.format(harbour): f"{harbour.lower()}#{number}"
    for harbour in HARBOURS
    for number, (question, _) in enumerate(FACTS, 1)
}
UNANSWERABLE = [question.format(harbour) for question in UNKNOWN for harbour in HARBOURS]
VOCABULARY = sorted({word for text in PASSAGES.values() for word in re.findall(r"\w+", text.lower())})


def words(text):
    return set(re.findall(r"\w+", text.lower()))


def search(query, k=4):
    """The passages that share most words with a question, best first."""
    wanted = words(query)
    scores = {name: len(wanted & words(text)) / len(wanted) for name, text in PASSAGES.items()}
    best = sorted(PASSAGES, key=lambda name: -scores[name])[:k]
    return [{"id": name, "text": PASSAGES[name], "score": round(scores[name], 3)} for name in best]


def embed(text):
    """A text as a vector: which words of the handbook it has; harbours weigh most."""
    names = {harbour.lower() for harbour in HARBOURS}
    return [(2.0 if word in names else 1.0) * (word in words(text)) for word in VOCABULARY]


def complete(prompt):
    """What the model says to a prompt: the passages of the handbook, and a question at the end.

    Where the passages are numbered, it names the one it used, as `[1]`.
    """
    question = max([*ANSWERS, *UNANSWERABLE], key=prompt.rfind)
    passage = PASSAGES.get(ANSWERS.get(question, ""), "")
    if not passage or passage not in prompt:
        return REFUSALS[len(question) % len(REFUSALS)]
    numbered = re.search(rf"(\[\d+\]) {re.escape(passage)}", prompt)
    return f"{passage} {numbered[1]}" if numbered else passage


def day():
    """What people ask in a day: 192 questions that the handbook answers, and 84 that it does not."""
    asked = [*ANSWERS] * 4 + UNANSWERABLE
    random.Random(17).shuffle(asked)
    return asked
