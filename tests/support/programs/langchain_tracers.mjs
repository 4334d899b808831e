// The instrumentations of LangChain in JavaScript, each set up as its users do.
import * as callbacks from "@langchain/core/callbacks/manager";
import { KEY, SERVICE, provider, tracer } from "./timetable.mjs";

async function openinference() {
  const { LangChainInstrumentation } = await import("@arizeai/openinference-instrumentation-langchain");
  const traced = await provider();
  const instrumentation = new LangChainInstrumentation();
  instrumentation.setTracerProvider(traced);
  instrumentation.manuallyInstrument(callbacks);
  return {
    inSession: (call) => (question, session) => call(question, { metadata: { session_id: session } }),
    flush: () => traced.forceFlush(),
  };
}

async function langfuse() {
  const { LangfuseSpanProcessor } = await import("@langfuse/otel");
  const { CallbackHandler } = await import("@langfuse/langchain");
  const { NodeTracerProvider } = await import("@opentelemetry/sdk-trace-node");
  const { resourceFromAttributes } = await import("@opentelemetry/resources");
  const processor = new LangfuseSpanProcessor({
    publicKey: KEY,
    secretKey: KEY,
    baseUrl: process.env.OTEL_EXPORTER_OTLP_ENDPOINT,
  });
  const resource = resourceFromAttributes({ "service.name": SERVICE });
  new NodeTracerProvider({ resource, spanProcessors: [processor] }).register();
  return {
    inSession: (call) => (question, session) =>
      call(question, { callbacks: [new CallbackHandler({ sessionId: session })] }),
    flush: () => processor.forceFlush(),
  };
}

export const { inSession, flush } = await { openinference, langfuse }[tracer]();
