// Version 7 of Vercel's AI SDK with its package for OpenTelemetry: a retrieval as a tool, and an answer as text, streamed or not.
import { SESSION, load, run } from "./vercel_requests.mjs";

const sdk = await load("ai/dist/index.js");
const { OpenTelemetry } = await load("@ai-sdk/otel/dist/index.js");
const { MockLanguageModelV4 } = await load("ai/dist/test/index.js");

sdk.registerTelemetry(new OpenTelemetry({ runtimeContext: true }));
await run(sdk, MockLanguageModelV4, ["ai", "@ai-sdk/otel"], {
  instructions: "Answer from the documents alone.",
  stopWhen: sdk.isStepCount(3),
  telemetry: { functionId: "support", includeRuntimeContext: { sessionId: true, userId: true } },
  runtimeContext: { sessionId: SESSION, userId: "user-1" },
});
