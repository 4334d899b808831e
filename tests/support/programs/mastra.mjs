// An agent of Mastra with a tool that returns objects, and Mastra's own exporter to OpenTelemetry.
import { createOpenAI } from "@ai-sdk/openai";
import { Mastra } from "@mastra/core";
import { Agent } from "@mastra/core/agent";
import { createTool } from "@mastra/core/tools";
import { Observability } from "@mastra/observability";
import { OtelExporter } from "@mastra/otel-exporter";
import { z } from "zod";
import { INSTRUCTIONS, KEY, SERVICE, openaiUrl, run, search } from "./timetable.mjs";

const endpoint = `${process.env.OTEL_EXPORTER_OTLP_ENDPOINT}/v1/traces`;
const exporter = new OtelExporter({ provider: { custom: { endpoint, protocol: "http/protobuf" } } });
const retrieve = createTool({
  id: "search",
  description: "Search the timetable of the ferries.",
  inputSchema: z.object({ query: z.string() }),
  execute: async (input) => ({ results: await search(input.query ?? input.context.query) }),
});
const clerk = new Agent({
  id: "clerk",
  name: "clerk",
  instructions: INSTRUCTIONS,
  model: createOpenAI({ baseURL: openaiUrl, apiKey: KEY }).chat("fake"),
  tools: { search: retrieve },
  maxRetries: 0,
});
const observability = new Observability({ configs: { otel: { serviceName: SERVICE, exporters: [exporter] } } });
const agent = new Mastra({ agents: { clerk }, observability, logger: false }).getAgent("clerk");
const options = (sessionId) => ({ tracingOptions: { metadata: { sessionId, userId: "user-1" } } });

async function ask(question, session) {
  const result = await agent.generate(question, options(session));
  if (result.error) throw result.error;
  return result.text;
}

async function stream(question, session) {
  let text = "";
  for await (const part of (await agent.stream(question, options(session))).textStream) text += part;
  return text;
}

await run({ ask, stream }, () => exporter.flush());
