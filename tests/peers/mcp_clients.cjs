// The official TypeScript client against an MCP server at the URL given, in both eras: `node mcp_clients.cjs SERVER URL`,
// where SERVER says what the server is. Ends with `done`.
const assert = require("node:assert");
const { Client, StreamableHTTPClientTransport } = require("@modelcontextprotocol/client");

const [server, url] = process.argv.slice(2);

const checks = {
  async everything(client) {
    const { tools } = await client.listTools();
    assert(tools.length > 5 && tools.some((tool) => tool.name === "echo"));
    const call = (name, args, options) => client.callTool({ name, arguments: args }, options);
    const all = await Promise.all([...Array(20).keys()].map((n) => call("echo", { message: `m${n}` })));
    all.forEach((result, n) => assert.strictEqual(result.content[0].text, `Echo: m${n}`));
    const seen = [];
    const onprogress = (progress) => seen.push(progress.progress);
    await call("trigger-long-running-operation", { duration: 1, steps: 4 }, { onprogress });
    assert.deepStrictEqual(seen, [1, 2, 3, 4]);
    const { resources } = await client.listResources();
    assert((await client.readResource({ uri: resources[0].uri })).contents.length > 0);
    assert((await client.listPrompts()).prompts.length > 0);
    await assert.rejects(client.readResource({ uri: "no://such" }));
    const abort = new AbortController();
    const long = call("trigger-long-running-operation", { duration: 60, steps: 2 }, { signal: abort.signal });
    setTimeout(() => abort.abort(), 200);
    await assert.rejects(long);
    assert.strictEqual((await call("echo", { message: "after" })).content[0].text, "Echo: after");
    // The server asks its client.
    const sampled = await call("trigger-sampling-request", { prompt: "how", maxTokens: 5 });
    assert(JSON.stringify(sampled).includes("sampled!"), JSON.stringify(sampled));
  },
  async filesystem(client) {
    const root = (await client.callTool({ name: "list_allowed_directories", arguments: {} })).content[0].text.split("\n")[1];
    const path = `${root}/a ${process.pid}.txt`;
    await client.callTool({ name: "write_file", arguments: { path, content: "é\n".repeat(100000) } });
    const read = await client.callTool({ name: "read_text_file", arguments: { path } });
    assert.strictEqual(read.content[0].text, "é\n".repeat(100000));
    const outside = await client.callTool({ name: "read_text_file", arguments: { path: "/etc/passwd" } });
    assert(outside.isError);
  },
  async memory(client) {
    const entities = [{ name: `e${process.pid}`, entityType: "t", observations: ["o"] }];
    await client.callTool({ name: "create_entities", arguments: { entities } });
    const graph = await client.callTool({ name: "read_graph", arguments: {} });
    assert(graph.content[0].text.includes(entities[0].name));
  },
  async time(client) {
    const result = await client.callTool({ name: "convert_time", arguments: { source_timezone: "UTC", time: "12:00", target_timezone: "Asia/Tokyo" } });
    assert(result.content[0].text.includes("T21:00:00+09:00"), JSON.stringify(result));
  },
  async fetch(client) {
    const { tools } = await client.listTools();
    assert.deepStrictEqual(tools.map((tool) => tool.name), ["fetch"]);
    const result = await client.callTool({ name: "fetch", arguments: { url: "http://127.0.0.1:1/" } }).catch((error) => error);
    assert(result instanceof Error || result.isError);
  },
};

async function check(mode) {
  const capabilities = { sampling: {}, roots: { listChanged: true } };
  const client = new Client({ name: "test", version: "1" }, { capabilities, versionNegotiation: { mode } });
  client.setRequestHandler("sampling/createMessage", async () => ({
    role: "assistant", model: "m", content: { type: "text", text: "sampled!" },
  }));
  client.setRequestHandler("roots/list", async () => ({ roots: [] }));
  const transport = new StreamableHTTPClientTransport(new URL(url));
  await client.connect(transport);
  await checks[server](client);
  const era = client.getProtocolEra();
  if (transport.sessionId) await transport.terminateSession();
  await client.close();
  return era;
}

(async () => {
  for (const mode of ["legacy", "auto"]) console.log(mode, await check(mode));
  console.log("done");
})().catch((error) => { console.error(error); process.exit(1); });
