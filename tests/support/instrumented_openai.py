"""OpenAI's SDK under OpenInference or OpenLLMetry: one call without retrieval, of a model on loopback."""

from __future__ import annotations

import sys

from openai import OpenAI

from tests.support import fixed_model
from tests.support.instrumented import ANSWER, QUESTION, provider, report


def instrument(convention):
    if convention == "openinference":
        from openinference.instrumentation.openai import OpenAIInstrumentor  # noqa: PLC0415
    else:
        from opentelemetry.instrumentation.openai import OpenAIInstrumentor  # noqa: PLC0415
    OpenAIInstrumentor().instrument(tracer_provider=provider)


def main():
    instrument(sys.argv[1])
    client = OpenAI(api_key="none", base_url=fixed_model.serve(ANSWER))
    messages = [{"role": "system", "content": "Answer briefly."}, {"role": "user", "content": QUESTION}]
    answer = client.chat.completions.create(model=fixed_model.MODEL, messages=messages)
    report("invoke", None, answer.choices[0].message.content)


if __name__ == "__main__":
    main()
