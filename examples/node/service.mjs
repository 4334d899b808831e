// A RAG service in Node under OpenTelemetry's own SDK. ragmon reads its spans; nothing of ragmon is installed here.
import { setTimeout as sleep } from "node:timers/promises";
import { trace } from "@opentelemetry/api";
import { NodeSDK } from "@opentelemetry/sdk-node";

const PIERS = ["north", "south", "east", "old"];
const TEXTS = new Map(
  Array.from({ length: 100 }, (_, number) => [`ferry#${number}`, `Ferry ${number} leaves from the ${PIERS[number % 4]} pier.`]),
);

// OTEL_SERVICE_NAME and OTEL_EXPORTER_OTLP_ENDPOINT say who sends, and where to.
const sdk = new NodeSDK();
sdk.start();
const tracer = trace.getTracer("ferry-node");

// Run a function in a span of OpenInference's kind.
function spanned(name, kind, work) {
  return tracer.startActiveSpan(name, async (span) => {
    span.setAttribute("openinference.span.kind", kind);
    try {
      return await work(span);
    } finally {
      span.end();
    }
  });
}

// The passages for a question. BROKEN=1 is the day on which the vector database lost its index and scans everything.
function search(question) {
  return spanned("search", "RETRIEVER", async (span) => {
    if (process.env.BROKEN) await sleep(3000);
    const id = `ferry#${question.match(/\d+/)[0]}`;
    span.setAttribute("retrieval.documents.0.document.id", id);
    span.setAttribute("retrieval.documents.0.document.content", TEXTS.get(id));
    return [{ id, text: TEXTS.get(id) }];
  });
}

// Answer a question; a stand-in for the model repeats the passage.
function answer(question) {
  return spanned("answer", "CHAIN", async (span) => {
    span.setAttribute("input.value", question);
    const [document] = await search(question);
    span.setAttribute("ragmon.answer.claim", document.text);
    span.setAttribute("ragmon.answer.citations", [document.id]);
    return document.text;
  });
}

const questions = Array.from({ length: 100 }, (_, number) => `Where does ferry ${number} leave?`);
await Promise.all(questions.map(answer));
await sdk.shutdown();
