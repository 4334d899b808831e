// OpenAI's SDK and a search of one's own, each under the functions that tracers offer to wrap them.
import OpenAI from "openai";
import { INSTRUCTIONS, KEY, SERVICE, numbered, openaiUrl, provider, run, search, tracer } from "./timetable.mjs";

// What wraps the search and the request (which gets the question and its session), the client, and how spans are sent.
async function openinference() {
  const { OpenAIInstrumentation } = await import("@arizeai/openinference-instrumentation-openai");
  const { getRetrieverAttributes, setSession, withSpan } = await import("@arizeai/openinference-core");
  const { context } = await import("@opentelemetry/api");
  const traced = await provider();
  const instrumentation = new OpenAIInstrumentation();
  instrumentation.setTracerProvider(traced);
  instrumentation.manuallyInstrument(OpenAI);
  const processOutput = (found) =>
    getRetrieverAttributes({ documents: found.map(({ id, text, score }) => ({ id, content: text, score })) });
  const whole = (call) => {
    const traced = withSpan((question) => call(question), { name: "answer", kind: "CHAIN" });
    return (question, sessionId) =>
      context.with(setSession(context.active(), { sessionId }), () => traced(question));
  };
  return {
    whole,
    retriever: (call) => withSpan(call, { name: "retrieve", kind: "RETRIEVER", processOutput }),
    flush: () => traced.forceFlush(),
  };
}

async function traceloop() {
  const sdk = await import("@traceloop/node-server-sdk");
  const baseUrl = process.env.OTEL_EXPORTER_OTLP_ENDPOINT;
  sdk.initialize({ appName: SERVICE, apiKey: KEY, baseUrl, disableBatch: true, silenceInitializationMessage: true, instrumentModules: { openAI: OpenAI } });
  return {
    whole: (call) => (question, session_id) =>
      sdk.withWorkflow({ name: "timetable", associationProperties: { session_id } }, call, question),
    retriever: (call) => (query) => sdk.withTask({ name: "retrieve" }, call, query),
    flush: () => sdk.forceFlush(),
  };
}

async function langfuse() {
  const { LangfuseSpanProcessor } = await import("@langfuse/otel");
  const { observeOpenAI } = await import("@langfuse/openai");
  const { observe, propagateAttributes } = await import("@langfuse/tracing");
  const { NodeTracerProvider } = await import("@opentelemetry/sdk-trace-node");
  const { resourceFromAttributes } = await import("@opentelemetry/resources");
  const baseUrl = process.env.OTEL_EXPORTER_OTLP_ENDPOINT;
  const processor = new LangfuseSpanProcessor({ publicKey: KEY, secretKey: KEY, baseUrl });
  const resource = resourceFromAttributes({ "service.name": SERVICE });
  new NodeTracerProvider({ resource, spanProcessors: [processor] }).register();
  return {
    whole: (call) => {
      const observed = observe((question) => call(question), { name: "answer" });
      return (question, sessionId) => propagateAttributes({ sessionId }, () => observed(question));
    },
    retriever: (call) => observe(call, { name: "retrieve", asType: "retriever" }),
    wrapped: observeOpenAI,
    flush: () => processor.forceFlush(),
  };
}

const { whole, retriever, wrapped = (client) => client, flush } = await { openinference, traceloop, langfuse }[tracer]();
const client = wrapped(new OpenAI({ baseURL: openaiUrl, apiKey: KEY, maxRetries: 0 }));
const retrieve = retriever(async (query) => await search(query));

async function request(question) {
  const content = `Answer from the context.\n\n${numbered(await retrieve(question))}\n\nQuestion: ${question}`;
  return { model: "fake", messages: [{ role: "system", content: INSTRUCTIONS }, { role: "user", content }] };
}

async function ask(question) {
  return (await client.chat.completions.create(await request(question))).choices[0].message.content;
}

async function stream(question) {
  let text = "";
  const chunks = await client.chat.completions.create({ ...(await request(question)), stream: true });
  for await (const chunk of chunks) text += chunk.choices[0]?.delta.content ?? "";
  return text;
}

await run({ ask: whole(ask), stream: whole(stream) }, flush);
