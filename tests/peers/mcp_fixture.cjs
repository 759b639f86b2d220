// A server with what the protocol's conformance suite asks for, by the official SDK: over standard input and output, or with
// the argument `http` by the SDK's own Streamable HTTP on loopback, at a free port which the first line says.
const http = require("node:http");
const crypto = require("node:crypto");
const { Server } = require("@modelcontextprotocol/sdk/server/index.js");
const { StdioServerTransport } = require("@modelcontextprotocol/sdk/server/stdio.js");
const { StreamableHTTPServerTransport } = require("@modelcontextprotocol/sdk/server/streamableHttp.js");
const types = require("@modelcontextprotocol/sdk/types.js");

const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
const SOUND = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=";
const text = (text) => ({ type: "text", text });
const content = (...content) => ({ content });
const pause = () => new Promise((done) => setTimeout(done, 50));
const embedded = (uri) => ({ type: "resource", resource: { uri, mimeType: "text/plain", text: "This is an embedded resource content." } });
const object = (properties = {}, rest = {}) => ({ type: "object", properties, ...rest });

const elicit = async (extra, requestedSchema, message = "say") => {
  const params = { message, requestedSchema };
  const answer = await extra.sendRequest({ method: "elicitation/create", params }, types.ElicitResultSchema);
  return content(text(`Elicitation completed: action=${answer.action}, content=${JSON.stringify(answer.content ?? {})}`));
};

const titled = [["value1", "First Option"], ["value2", "Second Option"], ["value3", "Third Option"]];
const options = titled.map(([value, title]) => ({ const: value, title }));
const plain = ["option1", "option2", "option3"];

const tools = {
  test_simple_text: [object(), () => content(text("This is a simple text response for testing."))],
  test_image_content: [object(), () => content({ type: "image", data: PIXEL, mimeType: "image/png" })],
  test_audio_content: [object(), () => content({ type: "audio", data: SOUND, mimeType: "audio/wav" })],
  test_embedded_resource: [object(), () => content(embedded("test://embedded-resource"))],
  test_multiple_content_types: [object(), () => content(
    text("Multiple content types test:"),
    { type: "image", data: PIXEL, mimeType: "image/png" },
    { type: "resource", resource: { uri: "test://mixed-content-resource", mimeType: "application/json", text: '{"test":"data","value":123}' } },
  )],
  test_tool_with_logging: [object(), async (args, extra) => {
    for (const data of ["Tool execution started", "Tool processing data", "Tool execution completed"]) {
      await extra.sendNotification({ method: "notifications/message", params: { level: "info", data } });
      await pause();
    }
    return content(text("logged"));
  }],
  test_error_handling: [object(), () => ({ ...content(text("This tool intentionally returns an error for testing")), isError: true })],
  test_tool_with_progress: [object(), async (args, extra) => {
    const progressToken = extra._meta?.progressToken ?? 0;
    for (const progress of [0, 50, 100]) {
      await extra.sendNotification({ method: "notifications/progress", params: { progressToken, progress, total: 100 } });
      await pause();
    }
    return content(text(String(progressToken)));
  }],
  test_sampling: [object({ prompt: { type: "string" } }, { required: ["prompt"] }), async ({ prompt }, extra) => {
    const params = { messages: [{ role: "user", content: text(prompt) }], maxTokens: 100 };
    const answer = await extra.sendRequest({ method: "sampling/createMessage", params }, types.CreateMessageResultSchema);
    return content(text(`LLM response: ${answer.content.text}`));
  }],
  test_elicitation: [object({ message: { type: "string" } }, { required: ["message"] }), ({ message }, extra) =>
    elicit(extra, object({ username: { type: "string" }, email: { type: "string" } }, { required: ["username", "email"] }), message)],
  test_elicitation_sep1034_defaults: [object(), (args, extra) => elicit(extra, object({
    name: { type: "string", default: "John Doe" },
    age: { type: "integer", default: 30 },
    score: { type: "number", default: 95.5 },
    status: { type: "string", enum: ["active", "inactive", "pending"], default: "active" },
    verified: { type: "boolean", default: true },
  }))],
  test_elicitation_sep1330_enums: [object(), (args, extra) => elicit(extra, object({
    untitledSingle: { type: "string", enum: plain },
    titledSingle: { type: "string", oneOf: options },
    legacyEnum: { type: "string", enum: ["opt1", "opt2", "opt3"], enumNames: ["Option One", "Option Two", "Option Three"] },
    untitledMulti: { type: "array", items: { type: "string", enum: plain } },
    titledMulti: { type: "array", items: { anyOf: options } },
  }))],
  json_schema_2020_12_tool: [{
    $schema: "https://json-schema.org/draft/2020-12/schema",
    type: "object",
    $defs: { address: object({ street: { type: "string" }, city: { type: "string" } }) },
    properties: { name: { type: "string" }, address: { $ref: "#/$defs/address" } },
    additionalProperties: false,
  }, () => content(text("ok"))],
};

const resources = {
  "test://static-text": { mimeType: "text/plain", text: "This is the content of the static text resource." },
  "test://static-binary": { mimeType: "image/png", blob: PIXEL },
  "test://watched-resource": { mimeType: "text/plain", text: "Watched resource content" },
};

const message = (...contents) => ({ messages: contents.map((content) => ({ role: "user", content })) });
const prompts = {
  test_simple_prompt: [[], () => message(text("This is a simple prompt for testing."))],
  test_prompt_with_arguments: [["arg1", "arg2"], ({ arg1, arg2 }) => message(text(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`))],
  test_prompt_with_embedded_resource: [["resourceUri"], ({ resourceUri }) => message(embedded(resourceUri), text("Please process the embedded resource above."))],
  test_prompt_with_image: [[], () => message({ type: "image", data: PIXEL, mimeType: "image/png" }, text("Please analyze the image above."))],
};

function server() {
  const capabilities = { tools: {}, resources: { subscribe: true }, prompts: {}, logging: {}, completions: {} };
  const server = new Server({ name: "fixture", version: "1" }, { capabilities });
  const on = (schema, handler) => server.setRequestHandler(schema, handler);
  on(types.ListToolsRequestSchema, () => ({
    tools: Object.entries(tools).map(([name, [inputSchema]]) => ({ name, description: name, inputSchema })),
  }));
  on(types.CallToolRequestSchema, ({ params }, extra) => tools[params.name][1](params.arguments ?? {}, extra));
  on(types.ListResourcesRequestSchema, () => ({
    resources: Object.entries(resources).map(([uri, { mimeType }]) => ({ uri, name: uri, description: uri, mimeType })),
  }));
  on(types.ListResourceTemplatesRequestSchema, () => ({
    resourceTemplates: [{ uriTemplate: "test://template/{id}/data", name: "template", mimeType: "application/json" }],
  }));
  on(types.ReadResourceRequestSchema, ({ params: { uri } }) => {
    const id = /^test:\/\/template\/(.*)\/data$/.exec(uri)?.[1];
    const found = id ? { mimeType: "application/json", text: JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` }) } : resources[uri];
    return { contents: [{ uri, ...found }] };
  });
  on(types.SubscribeRequestSchema, () => ({}));
  on(types.UnsubscribeRequestSchema, () => ({}));
  on(types.ListPromptsRequestSchema, () => ({
    prompts: Object.entries(prompts).map(([name, [args]]) => ({ name, description: name, arguments: args.map((name) => ({ name, required: true })) })),
  }));
  on(types.GetPromptRequestSchema, ({ params }) => prompts[params.name][1](params.arguments ?? {}));
  on(types.SetLevelRequestSchema, () => ({}));
  on(types.CompleteRequestSchema, () => ({ completion: { values: ["paris", "park", "party"], total: 3, hasMore: false } }));
  return server;
}

async function overHttp() {
  const sessions = new Map();
  const listener = http.createServer(async (request, response) => {
    const id = request.headers["mcp-session-id"];
    let transport = sessions.get(id);
    if (!transport && id) return response.writeHead(404).end();
    if (!transport) {
      const sessionIdGenerator = () => crypto.randomUUID();
      transport = new StreamableHTTPServerTransport({ sessionIdGenerator, onsessioninitialized: (id) => sessions.set(id, transport) });
      await server().connect(transport);
    }
    await transport.handleRequest(request, response);
  });
  listener.listen(0, "127.0.0.1", () => process.stdout.write(`${listener.address().port}\n`));
}

if (process.argv[2] === "http") overHttp();
else server().connect(new StdioServerTransport());
