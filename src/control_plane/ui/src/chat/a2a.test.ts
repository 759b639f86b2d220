import { describe, expect, it } from "vitest";

import { A2aError, type AgentInterface, A2aTurn, cancelBody, interfaceOf, messageBody, taskBody } from "./a2a.ts";

const BASE = "/gateway/v1/agents/ns/x";
const chosen = (card: object, base = ""): AgentInterface => interfaceOf(JSON.stringify(card), base);
const listed = (protocolBinding: string, protocolVersion: string, url: string): object => ({ url, protocolBinding, protocolVersion });

describe("a card", () => {
  const old = { name: "a", url: "http://localhost:8000/a2a", protocolVersion: "0.3.0" };
  it.each([
    [{ supportedInterfaces: [listed("JSONRPC", "1.0", "http://localhost:8000")] }, "1.0", "/"],
    [{ supportedInterfaces: [listed("jsonrpc", "1.0.2", "http://a/x?key=secret#y")] }, "1.0", "/x"],
    [{ supportedInterfaces: [listed("GRPC", "1.0", "http://a/g"), listed("JSONRPC", "0.3", "http://a/o"), listed("JSONRPC", "1.0", "http://a/n")] }, "1.0", "/n"],
    [{ supportedInterfaces: [listed("JSONRPC", "1.0", "//evil.example/rpc")] }, "1.0", "/rpc"],
    [{ supportedInterfaces: [listed("JSONRPC", "0.3", "http://a/../../b/%2e%2e/c")] }, "0.3", "/c"],
    [old, "0.3", "/a2a"],
    [{ ...old, supportedInterfaces: [listed("JSONRPC", "1.0", "http://localhost:8000/v1")] }, "1.0", "/v1"],
    [{ ...old, preferredTransport: "GRPC", additionalInterfaces: [{ transport: "JSONRPC", url: "https://elsewhere/rpc" }] }, "0.3", "/rpc"],
  ])("names an interface, of whose URL only the path counts: %j", (card, version, path) => {
    expect(chosen(card)).toEqual({ version, path, streams: false });
  });

  it.each([
    ["http://localhost:8000/", `${BASE}/`],
    ["http://localhost:8000/rpc", `${BASE}/rpc`],
    ["https://gw.example/v1/agents/ns/x/rpc", `${BASE}/rpc`],
    [`https://ui.example${BASE}/rpc`, `${BASE}/rpc`],
    ["https://gw.example/v1/agents/ns/x2/rpc", `${BASE}/v1/agents/ns/x2/rpc`],
  ])("has its path below the agent's: %s", (url, path) => {
    expect(chosen({ url, capabilities: { streaming: true } }, BASE)).toEqual({ version: "0.3", path, streams: true });
  });

  it("that is none, or offers nothing, is no agent's", () => {
    for (const body of ["", "<html>", "[]", "7", "null", '{"detail":"Not Found"}', '{"supportedInterfaces":{}}']) {
      expect(() => interfaceOf(body, ""), body).toThrow(new A2aError("It has no agent card: is it an A2A agent?"));
    }
    expect(() => chosen({ supportedInterfaces: [listed("GRPC", "1.0", "http://a"), listed("JSONRPC", "2.0", "http://a")] })).toThrow("it offers GRPC 1.0, JSONRPC 2.0.");
  });
});

it("a request has the names of its version", () => {
  const agent = (version: "1.0" | "0.3", streams: boolean): AgentInterface => ({ version, path: "/", streams });
  const rpc = (method: string, params: object): object => ({ jsonrpc: "2.0", id: 1, method, params });
  const message = { messageId: "m", role: "ROLE_USER", parts: [{ text: "hi" }] };
  expect(messageBody(agent("1.0", false), "m", "hi", null, null)).toEqual(rpc("SendMessage", { message }));
  expect(messageBody(agent("1.0", true), "m", "hi", "c", "t")).toEqual(rpc("SendStreamingMessage", { message: { ...message, contextId: "c", taskId: "t" } }));
  const old = { kind: "message", messageId: "m", role: "user", parts: [{ kind: "text", text: "hi" }] };
  expect(messageBody(agent("0.3", true), "m", "hi", null, null)).toEqual(rpc("message/stream", { message: old }));
  expect(messageBody(agent("0.3", false), "m", "hi", null, null)).toEqual(rpc("message/send", { message: old, configuration: { blocking: true } }));
  expect([taskBody(agent("1.0", true), "t"), cancelBody(agent("0.3", true), "t")]).toEqual([rpc("GetTask", { id: "t", historyLength: 0 }), rpc("tasks/cancel", { id: "t" })]);
});

const says = (text: string): object => ({ parts: [{ text }] });
const status = (state: string, said = ""): object => ({ statusUpdate: { taskId: "t", contextId: "c", status: { state, ...(said && { message: says(said) }) } } });
const artifact = (artifactId: string, text: string, append = false): object => ({ artifactUpdate: { taskId: "t", contextId: "c", append, artifact: { artifactId, parts: [{ text }] } } });

/** Returns the pieces that the results of a stream add to an answer. */
function pieces(turn: A2aTurn, results: object[]): string[] {
  return results.map((result) => turn.read(JSON.stringify({ jsonrpc: "2.0", id: 1, result })));
}

describe("an answer", () => {
  it.each([
    [[{ task: { id: "t", status: { state: "TASK_STATE_SUBMITTED" } } }, artifact("a", "one"), artifact("a", " two", true), status("TASK_STATE_COMPLETED")], ["", "one", " two", ""]],
    [[artifact("a", "one"), artifact("a", "one two"), artifact("a", "one two")], ["one", " two", ""]],
    [[artifact("a", "one"), artifact("b", "two")], ["one", "\ntwo"]],
    [[status("TASK_STATE_WORKING", "thinking"), status("TASK_STATE_COMPLETED", "42")], ["", "42"]],
    [[artifact("a", "one"), status("TASK_STATE_INPUT_REQUIRED", "two?")], ["one", "\ntwo?"]],
    [[{ message: says("hi") }], ["hi"]],
    [[{ kind: "message", contextId: "c", parts: [{ kind: "text", text: "hi" }, { kind: "data", data: { n: 1 } }] }], ['hi{"n":1}']],
  ])("is made of pieces: %j", (results, expected) => {
    expect(pieces(new A2aTurn(), results)).toEqual(expected);
  });

  it("of a stream that is cut goes on with the task", () => {
    const turn = new A2aTurn();
    pieces(turn, [{ kind: "task", id: "t", contextId: "c", status: { state: "submitted" } }, { kind: "artifact-update", taskId: "t", append: true, artifact: { artifactId: "a", parts: [{ text: "one" }] } }]);
    expect([turn.isWorking, turn.task, turn.context]).toEqual([true, "t", "c"]);
    const whole = { id: "t", status: { state: "completed" }, artifacts: [{ artifactId: "a", parts: [{ text: "one" }, { text: " two" }] }] };
    expect([pieces(turn, [whole]), turn.isWorking, turn.failure]).toEqual([[" two"], false, null]);
  });

  it.each([
    ["failed", "no seat", "The agent failed: no seat"],
    ["TASK_STATE_REJECTED", "", "The agent rejected the task."],
    ["cancelled", "", "The agent cancelled the task."],
    ["auth-required", "", "The agent requires credentials."],
  ])("can be none: %s", (state, said, failure) => {
    const turn = new A2aTurn();
    pieces(turn, [status(state, said)]);
    expect([turn.isWorking, turn.failure]).toEqual([false, failure]);
  });

  it("that is no answer says so", () => {
    const turn = new A2aTurn();
    expect(() => turn.read("")).toThrow("it has neither a result nor an error");
    expect(() => turn.read('{"result":{"kind":"poem"}}')).toThrow("its result is neither a task nor a message");
    expect(() => turn.read('{"error":{"code":-32601,"message":"no such method"}}')).toThrow("no such method (error -32601)");
    expect(turn.isWorking).toBe(true);
  });
});
