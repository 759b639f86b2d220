// Runs the flows of a FlowSet with Genkit: POST /<flow> takes a JSON object, and answers text or a stream of events.

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { genkit } from "genkit";

// `recif dev` has the files elsewhere.
const place = (path) => path.replace(/^\/genkit/, process.env.RECIF_CONTRACT_ROOT ?? "/genkit");
const read = (path) => JSON.parse(readFileSync(place(path), "utf8"));

// Stands for a model, and says its words one by one.
async function speak(request, { sendChunk, context }) {
  const asked = request.messages.at(-1).content.map((part) => part.text).join("");
  let reply = `${context.flow} heard: ${asked}`;
  if (asked === "who am I") reply = `You are ${context.user ?? "unknown"}.`;
  if (asked === "which trace") reply = `The trace is ${context.traceparent?.split("-")[1] ?? "unknown"}.`;
  for (const [number, word] of reply.split(" ").entries()) {
    await sleep(50);
    sendChunk({ content: [{ text: number ? ` ${word}` : word }] });
  }
  return { message: { role: "model", content: [{ text: reply }] }, finishReason: "stop" };
}

// Returns a flow as a function of its input. What cannot be run is an error at the start, and not of a request.
function load({ name, entrypoint, dir }) {
  const { defaultModel, plugin } = read(`${dir}/config.json`);
  if (plugin.type !== "stub") throw new Error(`flow ${name}: there are models of type stub, and not ${plugin.type}`);
  const ai = genkit({ promptDir: place(`${dir}/prompts`) });
  const model = ai.defineModel({ apiVersion: "v2", name: `stub/${defaultModel.model}` }, speak);
  return (input, context) => ai.prompt(entrypoint).stream(input, { model, context: { flow: name, ...context } });
}

const flows = new Map(read("/genkit/manifest.json").flows.map((entry) => [`/${entry.name}`, load(entry)]));

async function answer(request, response) {
  if (["/healthz", "/readyz"].includes(request.url)) return response.end();
  const flow = flows.get(request.url);
  if (!flow) return refuse(response, 404, `there is no flow ${request.url}: there are ${[...flows.keys()]}`);
  if (request.method !== "POST") return refuse(response, 405, "POST the input of the flow");
  let input;
  try {
    input = JSON.parse((await text(request)) || "{}");
  } catch (error) {
    return refuse(response, 400, `the body is not JSON: ${error.message}`);
  }
  const { "x-recif-user": user, traceparent, accept } = request.headers;
  const reply = flow(input, { user, traceparent });
  if (!accept?.includes("text/event-stream")) {
    const whole = await reply.response;
    return response.setHeader("content-type", "text/plain; charset=utf-8").end(whole.text);
  }
  response.setHeader("content-type", "text/event-stream");
  for await (const chunk of reply.stream) response.write(`data: ${JSON.stringify({ token: chunk.text })}\n\n`);
  response.end("event: done\ndata: {}\n\n");
}

function refuse(response, status, error) {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify({ error }));
}

const server = createServer((request, response) =>
  answer(request, response).catch((error) =>
    response.headersSent
      ? response.end(`event: error\ndata: ${JSON.stringify({ error: error.message })}\n\n`)
      : refuse(response, 500, error.message),
  ),
);
server.listen(Number(process.env.PORT ?? 8080));
// It takes no new requests, and ends with the last open one. Genkit's own handler would end it at once.
process.removeAllListeners("SIGTERM").on("SIGTERM", () => server.close(() => process.exit(0)));
