// What the programs in JavaScript share: the search, OpenTelemetry's SDK, and the questions, which are asked in order.
import { once } from "node:events";

const { MODEL_URL, TURNS } = process.env;
export const SERVICE = "ferries";
export const KEY = "unused";
export const INSTRUCTIONS = "Answer from the timetable.";
export const openaiUrl = `${MODEL_URL}/v1`;
export const [tracer, ...given] = process.argv.slice(2);

const found = [];

export async function search(query) {
  const asked = { method: "POST", body: JSON.stringify({ query }) };
  const documents = await (await fetch(`${MODEL_URL}/search`, asked)).json();
  found.push(documents);
  return documents;
}

export const numbered = (documents) => documents.map(({ text }, rank) => `[${rank + 1}] ${text}`).join("\n");

// OpenTelemetry's SDK with its exporter over OTLP; instrumentations may bring the processor before it.
export async function provider(processed) {
  const { NodeTracerProvider, BatchSpanProcessor } = await import("@opentelemetry/sdk-trace-node");
  const { OTLPTraceExporter } = await import("@opentelemetry/exporter-trace-otlp-proto");
  const { resourceFromAttributes } = await import("@opentelemetry/resources");
  const exporter = new OTLPTraceExporter();
  const made = new NodeTracerProvider({
    resource: resourceFromAttributes({ "service.name": SERVICE }),
    spanProcessors: [processed ? processed(exporter) : new BatchSpanProcessor(exporter)],
  });
  made.register();
  return made;
}

// Ask every question and print what the program really returned. `ask` and `stream` take a question and its session.
export async function run({ ask, stream }, flush) {
  const failing = JSON.parse(TURNS).at(-1)[0];
  for (const [q, of, isStream] of JSON.parse(TURNS)) {
    const call = isStream ? stream : ask;
    if (!call) continue;
    found.length = 0;
    const told = { q, stream: isStream, session: of, answer: null, error: null };
    try {
      told.answer = await call(q, of);
    } catch (error) {
      if (q !== failing) throw error;
      told.error = error.constructor.name;
    }
    await flush();
    console.log("RECORDED " + JSON.stringify({ ...told, found }));
    await once(process.stdin, "data"); // until what came is kept
  }
  process.exit(0); // threads of telemetry that cannot reach anybody are not waited for
}
