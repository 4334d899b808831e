// Vercel's AI SDK 5, 6 and 7: `tool`, a tool that retrieves; `streamed`, the same where every answer is a stream;
// `prompt`, a retrieval before the call, whose documents are in the prompt.
import { createOpenAI } from "@ai-sdk/openai";
import * as sdk from "ai";
import { z } from "zod";
import { INSTRUCTIONS, KEY, given, numbered, openaiUrl, provider, run, search, tracer } from "./timetable.mjs";

const [kind] = given;
const openinference = tracer === "openinference" && (await import("@arizeai/openinference-vercel"));
const traced = await provider(
  openinference && ((exporter) => new openinference.OpenInferenceBatchSpanProcessor({ exporter })),
);
const model = createOpenAI({ baseURL: openaiUrl, apiKey: KEY }).chat("fake");
const inputSchema = z.object({ query: z.string() });
const description = "Search the timetable of the ferries.";
const tools = { search: sdk.tool({ description, inputSchema, execute: ({ query }) => search(query) }) };

if (tracer === "otel") {
  const { OpenTelemetry } = await import("@ai-sdk/otel");
  sdk.registerTelemetry(new OpenTelemetry({ runtimeContext: true }));
}

function telemetry(sessionId) {
  const metadata = { sessionId, userId: "user-1" };
  if (tracer !== "otel") return { system: INSTRUCTIONS, experimental_telemetry: { isEnabled: true, metadata } };
  const includeRuntimeContext = { sessionId: true, userId: true };
  return { instructions: INSTRUCTIONS, telemetry: { includeRuntimeContext }, runtimeContext: metadata };
}

async function request(question, session) {
  const common = { model, maxRetries: 0, ...telemetry(session) };
  const stopWhen = (sdk.isStepCount ?? sdk.stepCountIs)(3);
  if (kind !== "prompt") return { ...common, prompt: question, tools, stopWhen };
  const context = numbered(await search(question));
  return { ...common, prompt: `Answer from the context.\n\n${context}\n\nQuestion: ${question}` };
}

const ask = async (question, session) => (await sdk.generateText(await request(question, session))).text;

async function stream(question, session) {
  let failure;
  const onError = ({ error }) => (failure = error);
  const result = sdk.streamText({ ...(await request(question, session)), onError });
  let text = "";
  for await (const part of result.textStream) text += part;
  if (failure) throw failure;
  return text;
}

await run({ ask: kind === "streamed" ? stream : ask, stream }, () => traced.forceFlush());
