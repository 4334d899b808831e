"""An agent that retrieves by calling a tool: a loop over OpenAI's chat API under OpenInference."""

import json
import sys

import model_server
import ragmon
from handbook import search
from openai import OpenAI
from openinference.instrumentation.openai import OpenAIInstrumentor
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

PARAMETERS = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
TOOLS = [{"type": "function", "function": {"name": "search_handbook", "parameters": PARAMETERS}}]
FUNCTIONS = {"search_handbook": lambda query: [{"id": hit["id"], "text": hit["text"]} for hit in search(query)]}

client = OpenAI(api_key="unused", base_url=model_server.start())


def run(question):
    messages = [
        {"role": "system", "content": "You answer questions about the ferries. Search the handbook first."},
        {"role": "user", "content": question},
    ]
    with trace.get_tracer("agent").start_as_current_span("agent"):
        while True:
            reply = client.chat.completions.create(model="local", messages=messages, tools=TOOLS).choices[0].message
            if not reply.tool_calls:
                return reply.content
            messages.append(reply.model_dump(exclude_none=True))
            for call in reply.tool_calls:
                found = FUNCTIONS[call.function.name](**json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(found)})


if __name__ == "__main__":
    provider = TracerProvider()
    trace.set_tracer_provider(provider)
    OpenAIInstrumentor().instrument(tracer_provider=provider)
    ragmon.install(provider=provider)
    for line in sys.stdin:
        print(run(line.strip()), flush=True)
