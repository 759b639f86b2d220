// Talks to an agent or a flow with OpenAI's official client. Usage: openai_client.cjs URL, of the model `peer`.
const assert = require("node:assert/strict");
const { OpenAI, BadRequestError, NotFoundError, APIError } = require("openai");

// No second tries: an error is to be seen as it is.
const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: "unused", maxRetries: 0 });

const ask = (text, more) => ({ model: "peer", messages: [{ role: "user", content: text }], ...more });

async function main() {
  const models = [];
  for await (const model of client.models.list()) models.push(model.id);
  assert.deepEqual(models, ["peer"]);
  assert.equal((await client.models.retrieve("peer")).object, "model");

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

  const fails = (request) => client.chat.completions.create(request).then(() => assert.fail("no error"), (error) => error);
  const missing = await fails(ask("hi", { model: "gpt" }));
  assert.ok(missing instanceof NotFoundError && missing.code === "model_not_found", missing);
  const empty = await fails({ model: "peer", messages: [] });
  assert.ok(empty instanceof BadRequestError && empty.param === "messages", empty);
  const large = await fails(ask("x".repeat(1 << 20)));
  assert.ok(large instanceof APIError && large.status === 413, large);
}

main().then(() => console.log("done"));
