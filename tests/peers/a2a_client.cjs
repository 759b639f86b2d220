// Talks to an agent with the official A2A clients of 1.0 and of 0.3. Usage: a2a_client.cjs URL, of an agent with the tool
// `hang`.
const assert = require("node:assert/strict");
const current = require("@a2a-js/sdk/client");
const { Role, TaskState } = require("@a2a-js/sdk");
const { TaskNotCancelableError, TaskNotFoundError } = require("@a2a-js/sdk/errors");
const old = require("a2a-sdk-0.3/client");

const url = process.argv[2];

async function all(events) {
  const found = [];
  for await (const event of events) found.push(event);
  return found;
}

function request(text) {
  const part = { content: { $case: "text", value: text }, metadata: undefined, filename: "", mediaType: "text/plain" };
  const message = {
    messageId: "m", role: Role.ROLE_USER, parts: [part], contextId: "", taskId: "",
    metadata: undefined, extensions: [], referenceTaskIds: [],
  };
  return { tenant: "", message, configuration: undefined, metadata: undefined };
}

const textOf = (artifact) => artifact.parts.map((part) => part.content.value).join("");

async function withCurrent() {
  const client = await new current.ClientFactory().createFromUrl(url);
  const card = await client.getAgentCard();
  assert.equal(card.name, "peer");
  assert.equal(client.protocolVersion, "1.0");

  const task = await client.sendMessage(request("hello there"));
  assert.equal(task.status.state, TaskState.TASK_STATE_COMPLETED);
  assert.equal(textOf(task.artifacts[0]), "echo: hello there");

  const events = (await all(client.sendMessageStream(request("hello there")))).map((event) => event.payload);
  assert.equal(events[0].$case, "task");
  const text = events.map(({ $case, value }) => {
    if ($case === "task") return value.artifacts.map(textOf).join("");
    return $case === "artifactUpdate" ? textOf(value.artifact) : "";
  });
  assert.equal(text.join(""), "echo: hello there");
  const last = events.at(-1);
  assert.equal(last.$case, "statusUpdate");
  assert.equal(last.value.status.state, TaskState.TASK_STATE_COMPLETED);

  const shown = await client.getTask({ tenant: "", id: events[0].value.id });
  assert.equal(textOf(shown.artifacts[0]), "echo: hello there");
  await assert.rejects(client.getTask({ tenant: "", id: "nothing" }), TaskNotFoundError);
  await assert.rejects(client.cancelTask({ tenant: "", id: task.id }), TaskNotCancelableError);

  const stream = client.sendMessageStream(request("/tool hang {}"));
  const hanging = (await stream.next()).value.payload.value;
  const canceled = await client.cancelTask({ tenant: "", id: hanging.id });
  assert.equal(canceled.status.state, TaskState.TASK_STATE_CANCELED);
  const end = (await all(stream)).at(-1).payload;
  assert.equal(end.value.status.state, TaskState.TASK_STATE_CANCELED);
}

async function withOld() {
  const client = await new old.ClientFactory().createFromUrl(url);
  const params = (text) => ({
    message: { kind: "message", messageId: "m", role: "user", parts: [{ kind: "text", text }] },
  });

  const task = await client.sendMessage(params("hello there"));
  assert.equal(task.kind, "task");
  assert.equal(task.status.state, "completed");
  assert.deepEqual(task.artifacts[0].parts, [{ kind: "text", text: "echo: hello there" }]);

  const events = await all(client.sendMessageStream(params("hello there")));
  assert.equal(events[0].kind, "task");
  assert.equal(events.at(-1).kind, "status-update");
  assert.equal(events.at(-1).final, true);
  const pieces = events.flatMap((event) => event.artifacts ?? event.artifact ?? []).flatMap((artifact) => artifact.parts);
  assert.equal(pieces.map((part) => part.text).join(""), "echo: hello there");

  const shown = await client.getTask({ id: task.id });
  assert.equal(shown.status.state, "completed");
  await assert.rejects(client.getTask({ id: "nothing" }), old.TaskNotFoundError);
  await assert.rejects(client.cancelTask({ id: task.id }), old.TaskNotCancelableError);

  const hanging = await client.sendMessage({ ...params("/tool hang {}"), configuration: { blocking: false } });
  assert.equal(hanging.status.state, "working");
  assert.equal((await client.cancelTask({ id: hanging.id })).status.state, "canceled");
}

withCurrent()
  .then(withOld)
  .then(() => console.log("done"));
