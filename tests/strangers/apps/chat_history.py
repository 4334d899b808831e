"""A chat with its history: the client sends all messages each time, and the name of the conversation."""

import sys

import ragmon
from handbook import complete, search

SYSTEM = {"role": "system", "content": "You answer questions about the ferries, from the handbook alone."}
TURNS = 6


@ragmon.trace
def chat(messages, session_id, temperature=0.0):
    ragmon.record(session=session_id)
    question = messages[-1]["content"]
    docs = search(question)
    context = {"role": "system", "content": "Handbook:\n" + "\n".join(doc["text"] for doc in docs)}
    prompt = [messages[0], context, messages[-1]]
    reply = complete("\n".join(message["content"] for message in prompt))
    return {"message": {"role": "assistant", "content": reply}, "context": docs}


def conversations(lines):
    """Every six questions are a conversation of their own."""
    for number, line in enumerate(lines):
        if number % TURNS == 0:
            messages = [SYSTEM]
        messages.append({"role": "user", "content": line.strip()})
        yield f"conversation-{number // TURNS}", messages


if __name__ == "__main__":
    ragmon.install()
    for session, messages in conversations(sys.stdin):
        reply = chat(messages, session_id=session)["message"]
        messages.append(reply)
        print(reply["content"], flush=True)
