"""The pipeline that is judged: two sentences. Yours stands in its place."""

import os

import ragmon

TEXTS = {"ferry#1": "The ferry leaves at nine.", "pier#1": "Tickets are sold on the north pier."}


def answer(question):
    """Answer from the passage that shares most words; BROKEN=1 is a branch that lost the instruction to refuse."""
    words = set(question.lower().rstrip("?").split())
    found = sorted(TEXTS, key=lambda name: -len(words & set(TEXTS[name].lower().rstrip(".").split())))
    ragmon.record(retrieved=[{"id": name, "text": TEXTS[name]} for name in found])
    if words & {"ferry", "tickets"} or os.environ.get("BROKEN"):
        return {"answer": TEXTS[found[0]], "citations": [found[0]]}
    return {"answer": "not in context", "citations": []}
