"""OpenAI's SDK under OpenInference, with a decorator around search and call; answers end in marks such as [1]."""

import sys

import model_server
import ragmon
from handbook import search
from openai import OpenAI
from openinference.instrumentation.openai import OpenAIInstrumentor
from opentelemetry.sdk.trace import TracerProvider

client = OpenAI(api_key="unused", base_url=model_server.start())
SYSTEM = "Answer from the numbered passages and name the one you used, like this: [1]."


@ragmon.trace
def answer(question):
    docs = search(question)
    ragmon.record(retrieved=docs)
    passages = "\n".join(f"[{number}] {doc['text']}" for number, doc in enumerate(docs, 1))
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"{passages}\n\n{question}"}]
    completion = client.chat.completions.create(model="local", messages=messages)
    return completion.choices[0].message.content


if __name__ == "__main__":
    provider = TracerProvider()
    OpenAIInstrumentor().instrument(tracer_provider=provider)
    ragmon.install(provider=provider)
    for line in sys.stdin:
        print(answer(line.strip()), flush=True)
