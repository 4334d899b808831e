// Version 7 of Vercel's AI SDK with its package for OpenTelemetry: a retrieval as a tool, and an answer as text, streamed or not.
//
// Prints lines as tests/support/instrumented.py does. `RAGMON_NODE_MODULES` names the folder of the packages.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const folder = process.env.RAGMON_NODE_MODULES;
const require = createRequire(pathToFileURL(join(folder, "_")));
const load = (file) => import(pathToFileURL(join(folder, file)));
const { generateText, streamText, isStepCount, tool, simulateReadableStream, registerTelemetry } = await load("ai/dist/index.js");
const { OpenTelemetry } = await load("@ai-sdk/otel/dist/index.js");
const { MockLanguageModelV4 } = await load("ai/dist/test/index.js");
const { z } = require("zod");
const { InMemorySpanExporter, NodeTracerProvider, SimpleSpanProcessor } = require("@opentelemetry/sdk-trace-node");

const QUESTION = "Who ruled Normandy?";
const CLAIM = "Rollo did";
const CITATIONS = ["n#2", "n#0"];
const ANSWER = JSON.stringify({ claim: CLAIM, citations: CITATIONS });
const TEXTS = { "n#0": "Rollo ruled Normandy first", "n#2": "Who was William the Bastard", "n#1": "Rouen is in Normandy" };
const SESSION = "conversation-7";
const usage = {
  inputTokens: { total: 5, noCache: 5, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 5, text: 5, reasoning: 0 },
};
const finish = (unified) => ({ finishReason: { unified, raw: unified }, usage });
const called = { type: "tool-call", toolCallId: "call-1", toolName: "retrieve", input: JSON.stringify({ query: QUESTION }) };

function model(answer) {
  const steps = [[called], [{ type: "text", text: answer }]];
  let step = 0;
  return new MockLanguageModelV4({
    modelId: "fixed-1",
    doGenerate: async () => ({
      content: steps[step], ...finish(step++ === 0 ? "tool-calls" : "stop"), warnings: [],
    }),
    doStream: async () => {
      const first = step++ === 0;
      const said = first
        ? [called]
        : [{ type: "text-start", id: "1" }, ...[...answer].map((delta) => ({ type: "text-delta", id: "1", delta })),
           { type: "text-end", id: "1" }];
      const chunks = [{ type: "stream-start", warnings: [] }, ...said, { type: "finish", ...finish(first ? "tool-calls" : "stop") }];
      return { stream: simulateReadableStream({ chunks, initialDelayInMs: null, chunkDelayInMs: null }) };
    },
  });
}

const exporter = new InMemorySpanExporter();
const provider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
provider.register();
registerTelemetry(new OpenTelemetry({ runtimeContext: true }));
const nanoseconds = ([seconds, rest]) => seconds * 1e9 + rest;

function exported(span) {
  return {
    trace_id: span.spanContext().traceId,
    span_id: span.spanContext().spanId,
    parent_id: span.parentSpanContext?.spanId ?? null,
    name: span.name,
    start_ns: nanoseconds(span.startTime),
    end_ns: nanoseconds(span.endTime),
    attributes: span.attributes,
    events: span.events.map((event) => [event.name, event.attributes ?? {}]),
    failed: span.status.code === 2,
    dropped: span.droppedAttributesCount,
    dropped_events: span.droppedEventsCount,
    scope: span.instrumentationScope.name,
    sampled: true,
    links: [],
  };
}

const versions = Object.fromEntries(
  ["ai", "@ai-sdk/otel"].map((name) => [
    name, JSON.parse(readFileSync(join(folder, name, "package.json"))).version,
  ]),
);

function request(answer) {
  return {
    model: model(answer),
    instructions: "Answer from the documents alone.",
    prompt: QUESTION,
    stopWhen: isStepCount(3),
    tools: {
      retrieve: tool({
        description: "documents for a query",
        inputSchema: z.object({ query: z.string() }),
        execute: async () => Object.entries(TEXTS).map(([id, text], rank) => ({ id, text, score: 3 - rank })),
      }),
    },
    telemetry: { functionId: "support", includeRuntimeContext: { sessionId: true, userId: true } },
    runtimeContext: { sessionId: SESSION, userId: "user-1" },
  };
}

async function run(name, ask) {
  exporter.reset();
  const answer = await ask();
  await provider.forceFlush();
  const returned = {
    question: QUESTION, ids: Object.keys(TEXTS), contexts: Object.values(TEXTS), answer,
    claim: CLAIM, citations: CITATIONS, session: SESSION,
  };
  console.log(JSON.stringify({ case: name, ...returned, versions, spans: exporter.getFinishedSpans().map(exported) }));
}

await run("invoke", async () => (await generateText(request(ANSWER))).text);
await run("stream", async () => {
  let text = "";
  for await (const part of streamText(request(ANSWER)).textStream) text += part;
  return text;
});
