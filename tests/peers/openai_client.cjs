// Talks to an agent or a flow with OpenAI's official client. Usage: openai_client.cjs URL [MODEL], of the model `peer`.
const assert = require("node:assert/strict");
const { OpenAI, BadRequestError, NotFoundError, APIError } = require("openai");

// No second tries: an error is to be seen as it is.
const MODEL = process.argv[3] ?? "peer";
const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: "unused", maxRetries: 0 });

const ask = (text, more) => ({ model: MODEL, messages: [{ role: "user", content: text }], ...more });

async function main() {
  const models = [];
  for await (const model of client.models.list()) models.push(model.id);
  assert.deepEqual(models, [MODEL]);
  assert.equal((await client.models.retrieve(MODEL)).object, "model");

  const answer = await client.chat.completions.create(ask("hello there"));
  assert.equal(answer.choices[0].message.content, "echo: hello there");
  assert.equal(answer.choices[0].finish_reason, "stop");

  const pieces = [];
  for await (const chunk of await client.chat.completions.create(ask("hello there", { stream: true }))) {
    pieces.push(chunk.choices[0].delta.content ?? "");
  }
  assert.ok(pieces.length > 3);
  assert.equal(pieces.join(""), "echo: hello there");

  const runner = client.chat.completions.stream(ask("hello"));
  assert.equal(await runner.finalContent(), "echo: hello");

  const response = await client.responses.create({ model: MODEL, input: "hello there" });
  assert.equal(response.output_text, "echo: hello there");
  const kinds = [];
  for await (const event of await client.responses.create({ model: MODEL, input: "hello there", stream: true })) {
    kinds.push(event.type);
  }
  assert.deepEqual([kinds[0], kinds.at(-1)], ["response.created", "response.completed"]);
  const streamed = await client.responses.stream({ model: MODEL, input: "hello" }).finalResponse();
  assert.equal(streamed.output_text, "echo: hello");
  if (response.store) {
    const next = { model: MODEL, input: "and on", previous_response_id: streamed.id };
    assert.equal((await client.responses.create(next)).output_text, "echo: and on");
  }

  const fails = (request) => client.chat.completions.create(request).then(() => assert.fail("no error"), (error) => error);
  const missing = await fails(ask("hi", { model: "gpt" }));
  assert.ok(missing instanceof NotFoundError && missing.code === "model_not_found", missing);
  const empty = await fails({ model: MODEL, messages: [] });
  assert.ok(empty instanceof BadRequestError && empty.param === "messages", empty);
  const large = await fails(ask("x".repeat(1 << 20)));
  assert.ok(large instanceof APIError && large.status === 413, large);
}

main().then(() => console.log("done"));
