"""OpenAI's SDK under OpenInference and nothing else: the search is the author's own and in no span."""

import sys

import model_server
import ragmon
from handbook import search
from openai import OpenAI
from openinference.instrumentation.openai import OpenAIInstrumentor
from opentelemetry.sdk.trace import TracerProvider

provider = TracerProvider()
OpenAIInstrumentor().instrument(tracer_provider=provider)
ragmon.install(provider=provider)
client = OpenAI(api_key="unused", base_url=model_server.start())


def answer(question):
    context = "\n".join(f"[{number}] {doc['text']}" for number, doc in enumerate(search(question), 1))
    messages = [
        {"role": "system", "content": f"Answer from this context, and mark the source as [1].\n{context}"},
        {"role": "user", "content": question},
    ]
    return client.chat.completions.create(model="local", messages=messages).choices[0].message.content


if __name__ == "__main__":
    for line in sys.stdin:
        print(answer(line.strip()), flush=True)
