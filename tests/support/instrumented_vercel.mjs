// The AI SDK of Vercel with its own telemetry: a retrieval as a tool, and an answer as text, streamed or not.
import { SESSION, provider, require, run } from "./vercel_requests.mjs";

const sdk = require("ai");
const { MockLanguageModelV3 } = require("ai/test");

await run(sdk, MockLanguageModelV3, ["ai", "@opentelemetry/sdk-trace-node"], {
  system: "Answer from the documents alone.",
  stopWhen: sdk.stepCountIs(3),
  experimental_telemetry: {
    isEnabled: true,
    functionId: "support",
    metadata: { sessionId: SESSION, userId: "user-1" },
    tracer: provider.getTracer("ai"),
  },
});
