"""A chat with sessions and follow-up questions: no gold, no ids, greetings and thanks between the questions."""

import json

from tests.support.strangers import Truth

LOG = "chats.jsonl"
TURNS = [
    ("Hi!", "Hello, how can I help you?"),
    ("Do you deliver on Sundays?", "We deliver from Monday to Saturday, so not on Sundays."),
    ("And on holidays?", "No, on public holidays we do not deliver either."),
    ("What did my neighbour order?", "I'm sorry, I don't have access to that information."),
    ("Thanks", "You're welcome!"),
]


def write(folder):
    """100 conversations of 5 turns, each turn with the history before it as people log it."""
    with (folder / LOG).open("w", encoding="utf-8") as log:
        for number in range(100):
            history = []
            for turn, (said, reply) in enumerate(TURNS):
                line = {"session_id": f"chat-{number}", "user_message": said, "response": reply, "history": history}
                line |= {
                    "timestamp": f"2025-11-{20 + number // 50}T{8 + turn:02d}:{number % 50:02d}:00+01:00",
                    "duration_ms": 700 + turn,
                }
                log.write(json.dumps(line) + "\n")
                history = [*history, {"role": "user", "content": said}, {"role": "assistant", "content": reply}]


TRUTH = Truth(
    read=500,
    metrics={"refusal_rate": 0.2, "error_rate": 0.0, "citation_scope": None, "groundedness": None},
    n={"refusal_rate": 500},
    passes=["error_rate"],
    undecided=["answer_precision", "citation_hit_rate", "under_refusal_rate", "over_refusal_rate", "citation_scope"],
    words=["so far, and none with a citation", "no_ids"],
    gaps=["no ids of retrieved documents in 500 of 500 records"],
)
