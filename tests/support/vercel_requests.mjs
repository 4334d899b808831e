// What the scripts of Vercel's AI SDK share: the question, the documents, a model with fixed answers, and the printed lines.
//
// Lines are as tests/support/instrumented.py prints them. `RAGMON_NODE_MODULES` names the folder of the packages.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const folder = process.env.RAGMON_NODE_MODULES;
export const require = createRequire(pathToFileURL(join(folder, "_")));
export const load = (file) => import(pathToFileURL(join(folder, file)));
const { z } = require("zod");
const { InMemorySpanExporter, NodeTracerProvider, SimpleSpanProcessor } = require("@opentelemetry/sdk-trace-node");

const QUESTION = "Who ruled Normandy?";
const CLAIM = "Rollo did";
const CITATIONS = ["n#2", "n#0"];
const ANSWER = JSON.stringify({ claim: CLAIM, citations: CITATIONS });
const TEXTS = { "n#0": "Rollo ruled Normandy first", "n#2": "Who was William the Bastard", "n#1": "Rouen is in Normandy" };
export const SESSION = "conversation-7";
const usage = {
  inputTokens: { total: 5, noCache: 5, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 5, text: 5, reasoning: 0 },
};
const finish = (unified) => ({ finishReason: { unified, raw: unified }, usage });
const called = { type: "tool-call", toolCallId: "call-1", toolName: "retrieve", input: JSON.stringify({ query: QUESTION }) };

function fixedModel(Model, simulateReadableStream, answer) {
  const steps = [[called], [{ type: "text", text: answer }]];
  let step = 0;
  return new Model({
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
export const provider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
provider.register();
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

function retrieval(tool) {
  return tool({
    description: "documents for a query",
    inputSchema: z.object({ query: z.string() }),
    execute: async () => Object.entries(TEXTS).map(([id, text], rank) => ({ id, text, score: 3 - rank })),
  });
}

async function print(name, versions, ask) {
  exporter.reset();
  const answer = await ask();
  await provider.forceFlush();
  const returned = {
    question: QUESTION, ids: Object.keys(TEXTS), contexts: Object.values(TEXTS), answer,
    claim: CLAIM, citations: CITATIONS, session: SESSION,
  };
  console.log(JSON.stringify({ case: name, ...returned, versions, spans: exporter.getFinishedSpans().map(exported) }));
}

// Ask once for a whole answer and once for a stream. `sdk` is the module `ai`, `Model` its class of models for tests,
// `options` what this version calls its instructions, its bound of steps and its telemetry.
export async function run(sdk, Model, packages, options) {
  const versions = Object.fromEntries(
    packages.map((name) => [name, JSON.parse(readFileSync(join(folder, name, "package.json"))).version]),
  );
  const request = () => ({
    model: fixedModel(Model, sdk.simulateReadableStream, ANSWER),
    prompt: QUESTION,
    tools: { retrieve: retrieval(sdk.tool) },
    ...options,
  });
  await print("invoke", versions, async () => (await sdk.generateText(request())).text);
  await print("stream", versions, async () => {
    let text = "";
    for await (const part of sdk.streamText(request()).textStream) text += part;
    return text;
  });
}
