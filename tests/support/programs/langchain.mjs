// LangChain in JavaScript: `lcel`, the chain of the tutorials; `graph`, LangGraph's tutorial; `agent`, `createAgent` with
// a tool with an artifact.
import { Document } from "@langchain/core/documents";
import { StringOutputParser } from "@langchain/core/output_parsers";
import { ChatPromptTemplate } from "@langchain/core/prompts";
import { BaseRetriever } from "@langchain/core/retrievers";
import { RunnablePassthrough, RunnableSequence } from "@langchain/core/runnables";
import { tool } from "@langchain/core/tools";
import { Annotation, START, StateGraph } from "@langchain/langgraph";
import { ChatOpenAI } from "@langchain/openai";
import { createAgent } from "langchain";
import { z } from "zod";
import { INSTRUCTIONS, KEY, given, numbered, openaiUrl, run, search } from "./timetable.mjs";
import { flush, inSession } from "./langchain_tracers.mjs";

const model = new ChatOpenAI({ model: "fake", apiKey: KEY, configuration: { baseURL: openaiUrl }, maxRetries: 0 });
const documents = (found) =>
  found.map(({ id, text, score }) => new Document({ id, pageContent: text, metadata: { relevance_score: score } }));

class Timetable extends BaseRetriever {
  lc_namespace = ["ferries"];

  async _getRelevantDocuments(query) {
    return documents(await search(query));
  }
}

const prompt = ChatPromptTemplate.fromMessages([
  ["system", INSTRUCTIONS],
  ["user", "Answer from the context.\n\n{context}\n\nQuestion: {question}"],
]);
const joined = (retrieved) => numbered(retrieved.map(({ pageContent }) => ({ text: pageContent })));

function lcel() {
  const inputs = { context: new Timetable().pipe(joined), question: new RunnablePassthrough() };
  const chain = RunnableSequence.from([inputs, prompt, model, new StringOutputParser()]);
  return {
    ask: (question, config) => chain.invoke(question, config),
    stream: async (question, config) => {
      let text = "";
      for await (const part of await chain.stream(question, config)) text += part;
      return text;
    },
  };
}

function graph() {
  const built = new StateGraph(Annotation.Root({ question: Annotation, context: Annotation, answer: Annotation }))
    .addNode("retrieve", async ({ question }) => ({ context: documents(await search(question)) }))
    .addNode("generate", async ({ question, context }) => {
      const filled = await prompt.invoke({ question, context: joined(context) });
      return { answer: (await model.invoke(filled)).content };
    })
    .addEdge(START, "retrieve")
    .addEdge("retrieve", "generate")
    .compile();
  return {
    ask: async (question, config) => (await built.invoke({ question }, config)).answer,
    stream: async (question, config) => {
      let last;
      for await (const state of await built.stream({ question }, { ...config, streamMode: "values" })) last = state;
      return last.answer;
    },
  };
}

function agent() {
  const retrieve = tool(
    async ({ query }) => {
      const found = await search(query);
      return [numbered(found), documents(found)];
    },
    {
      name: "retrieve",
      description: "Search the timetable of the ferries.",
      schema: z.object({ query: z.string() }),
      responseFormat: "content_and_artifact",
    },
  );
  const built = createAgent({ model, tools: [retrieve], systemPrompt: INSTRUCTIONS });
  const messages = (question) => ({ messages: [{ role: "user", content: question }] });
  return {
    ask: async (question, config) => (await built.invoke(messages(question), config)).messages.at(-1).content,
    stream: async (question, config) => {
      let last;
      for await (const state of await built.stream(messages(question), { ...config, streamMode: "values" })) last = state;
      return last.messages.at(-1).content;
    },
  };
}

const program = { lcel, graph, agent }[given[0]]();
await run({ ask: inSession(program.ask), stream: inSession(program.stream) }, flush);
