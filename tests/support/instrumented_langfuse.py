"""Langfuse's own SDK: a pipeline of observations, one a retriever, one a generation."""

from __future__ import annotations

from langfuse import Langfuse, propagate_attributes

from tests.support.instrumented import ANSWER, QUESTION, provider, report

DOCUMENTS = [
    {"id": f"n#{n}", "content": text, "metadata": {"page": n}, "score": 3.0 - n}
    for n, text in enumerate(["Rollo ruled Normandy first", "Rouen is in Normandy"])
]
SESSION = "conversation-7"
langfuse = Langfuse(
    public_key="pk-lf-none", secret_key="sk-lf-none", base_url="http://127.0.0.1:9", tracer_provider=provider
)


def ask(question):
    with (
        langfuse.start_as_current_observation(name="support", as_type="chain", input={"question": question}) as whole,
        propagate_attributes(session_id=SESSION, user_id="user-1"),
    ):
        with langfuse.start_as_current_observation(name="search", as_type="retriever", input=question) as search:
            search.update(output=DOCUMENTS)
        messages = [{"role": "system", "content": str(DOCUMENTS)}, {"role": "user", "content": question}]
        with langfuse.start_as_current_observation(
            name="answer", as_type="generation", model="fixed-1", input=messages
        ) as call:
            call.update(output=ANSWER)
        whole.update(output=ANSWER)
    return ANSWER


def main():
    answer = ask(QUESTION)
    ids, contexts = ([document[name] for document in DOCUMENTS] for name in ("id", "content"))
    report("invoke", ids, answer, contexts=contexts, session=SESSION)


if __name__ == "__main__":
    main()
