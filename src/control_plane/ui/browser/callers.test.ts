import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";

import { apply, kubectl, object, token, until } from "./cluster.ts";
import { isAccessible, rowOf, signIn, stage } from "./page.ts";
import { MARKUP } from "./setup.ts";

const namespace = inject("namespace");
const ui = stage("kubernetes");
let ada: string;
beforeAll(async () => void (ada = await token(namespace, "ada")));

describe("the sign-in", () => {
  it("refuses what is no token, and lets a token in", async () => {
    await signIn(ui.page, `${ui.control.url}/ui/`, "nonsense");
    await ui.page.getByText("does not accept this token").waitFor();
    await isAccessible(ui.page);
    await ui.page.getByLabel("Token").fill(ada);
    await ui.page.keyboard.press("Enter");
    await rowOf(ui.page, "Agent", namespace, "echo").waitFor();
    await ui.page.getByText(`${namespace}/ada`).waitFor();
    const kept = await ui.page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie]));
    expect(kept).not.toContain(ada);

    await ui.page.getByRole("button", { name: "Sign out" }).click();
    await ui.page.getByLabel("Token").waitFor();
    await ui.page.reload();
    await ui.page.getByLabel("Token").waitFor();
  });

  it("comes back when a token is no longer accepted, and leads to where one was", async () => {
    await signIn(ui.page, `${ui.control.url}/ui/`, ada);
    const row = rowOf(ui.page, "Agent", namespace, "echo");
    await row.waitFor();
    await ui.page.route("**/api/v1/agents/**", (route) => route.fulfill({ status: 401, body: "{}" }));
    await row.getByRole("link").click();
    await ui.page.getByText("Your token is no longer accepted").waitFor();
    await ui.page.unroute("**/api/v1/agents/**");
    await ui.page.getByLabel("Token").fill(ada);
    await ui.page.keyboard.press("Enter");
    await ui.page.getByRole("heading", { level: 1, name: "echo" }).waitFor();
    await ui.page.locator("[data-seq]").first().waitFor();
  });

  it("shows no user more than they may see", async () => {
    await signIn(ui.page, `${ui.control.url}/ui/`, await token(namespace, "eve"));
    await ui.page.getByRole("heading", { name: "You cannot see the fleet" }).waitFor();
    await ui.page.getByText(`rolebinding recif-view-${namespace}-eve --clusterrole=recif-view --serviceaccount=${namespace}:eve --namespace=${namespace}`).waitFor();
    expect(await ui.page.locator(".table-row").count()).toBe(0);
    await isAccessible(ui.page);
  });
});

describe("a tool", () => {
  const path = (): string => `${ui.control.url}/ui/tools?server=MCPServer/${namespace}/desk&tool=greet`;

  it("is called by a form that its schema makes", async () => {
    await signIn(ui.page, path(), ada);
    await ui.page.getByRole("button", { name: "Call greet" }).click();
    await ui.page.getByText("Guest is required").waitFor();
    await ui.page.getByLabel(/^Guest/).fill("Ada");
    await ui.page.getByLabel("tone").selectOption({ label: "curt" });
    await ui.page.getByRole("button", { name: "Call greet" }).click();
    await ui.page.getByTestId("result").getByText("echo: Greet Ada and sound curt.").waitFor();
  });

  it("is not called by who may not, and says which right is missing", async () => {
    await signIn(ui.page, path(), await token(namespace, "bob"));
    await ui.page.getByLabel(/^Guest/).fill("Ada");
    await ui.page.getByRole("button", { name: "Call greet" }).click();
    await ui.page.getByText("mcpservers/invoke").first().waitFor();
    expect(await ui.page.getByTestId("result").count()).toBe(0);
  });

  it("of a server elsewhere is shown, and not called from here", async () => {
    await signIn(ui.page, `${ui.control.url}/ui/tools?server=RemoteMCPServer/${namespace}/far&tool=calculator`, ada);
    await ui.page.getByLabel("Schema", { exact: true }).getByText('"expression"').first().waitFor();
    await ui.page.getByText("The gateway does not route to this server").waitFor();
    expect(await ui.page.locator(".tool-form").count()).toBe(0);
  });
});

it("a Tool of its own is listed beside the servers, and shown with what it calls", async () => {
  await signIn(ui.page, `${ui.control.url}/ui/tools`, ada);
  const list = ui.page.getByRole("navigation", { name: "Servers and tools" });
  await list.getByRole("link", { name: /^desk/ }).waitFor();
  await list.getByRole("link", { name: /^calculator/ }).click();
  await ui.page.getByText("It calls a function of the runtime").waitFor();
  await ui.page.getByText("Evaluates an expression").waitFor();
});

describe("a chat", () => {
  const say = async (text: string): Promise<void> => {
    await ui.page.getByLabel("Message", { exact: true }).fill(text);
    await ui.page.keyboard.press("Enter");
  };
  const last = (): ReturnType<Page["locator"]> => ui.page.locator(".reply").last();

  it("streams, shows tool calls and the time to the first token, and goes on", async () => {
    await signIn(ui.page, `${ui.control.url}/ui/chat?with=Agent/${namespace}/echo`, ada);
    await say("hello there");
    await ui.page.locator('.reply[data-status="done"]', { hasText: "echo: hello there" }).waitFor();
    expect(await last().getByTestId("timing").innerText()).toMatch(/first token after .* all after/);
    await say(MARKUP);
    await last().getByText(`echo: ${MARKUP}`).waitFor();
    await say('/tool calculator {"expression": "6*7"}');
    await last().locator('[data-tool="calculator"]').getByText(/answered in/).waitFor();
    await last().getByText("42", { exact: true }).waitFor();
    await isAccessible(ui.page);
    await last().getByRole("button", { name: "Retry" }).click();
    await until("the turn to be answered again", async () => (await ui.page.locator('.reply[data-status="done"]').count()) === 3);
  });

  it("can be stopped, and keeps what came", async () => {
    await signIn(ui.page, `${ui.control.url}/ui/chat?with=Agent/${namespace}/echo`, ada);
    // A response of many events, delayed on its way so that it is still streaming when it is stopped.
    await ui.page.evaluate(() => {
      const real = globalThis.fetch;
      globalThis.fetch = async (input, init) => {
        const response = await real(input, init);
        if (!String(input).endsWith("/chat") || !response.body) return response;
        const slow = new TransformStream<Uint8Array, Uint8Array>({
          async transform(chunk, controller) {
            const text = new TextDecoder().decode(chunk);
            for (const event of text.split(/(?<=\n\n)/)) {
              controller.enqueue(new TextEncoder().encode(event));
              await new Promise((resolve) => setTimeout(resolve, 50));
              if (init?.signal?.aborted) throw new DOMException("stopped", "AbortError");
            }
          },
        });
        return new Response(response.body.pipeThrough(slow), { status: response.status, headers: response.headers });
      };
    });
    await say(Array.from({ length: 400 }, (_, index) => `word${index}`).join(" "));
    await ui.page.locator('.reply[data-status="streaming"]', { hasText: "word1" }).waitFor();
    await ui.page.getByRole("button", { name: "Stop" }).click();
    await ui.page.locator('.reply[data-status="stopped"]').waitFor();
    const text = await last().innerText();
    expect(text).toContain("word1");
    expect(text).not.toContain("word399");
    await ui.page.getByRole("button", { name: "Send" }).waitFor();
  });

  it("with a flow is begun by a form, which keeps its input while JSON is written", async () => {
    await signIn(ui.page, `${ui.control.url}/ui/chat?with=Flow/${namespace}/greeter`, ada);
    const form = ui.page.getByRole("form", { name: "Variables" });
    await form.getByRole("button", { name: "Send" }).click();
    await form.getByText("name is required").waitFor();
    await form.getByLabel(/^name/).fill("Ada");
    await ui.page.getByRole("button", { name: "Write JSON" }).click();
    await ui.page.getByLabel("Variables, as JSON").waitFor();
    await ui.page.getByRole("button", { name: "Back to the form" }).click();
    expect(await form.getByLabel(/^name/).inputValue()).toBe("Ada");
    await isAccessible(ui.page);
    await form.getByRole("button", { name: "Send" }).click();
    await ui.page.locator('.reply[data-status="done"]', { hasText: "echo: Greet Ada and sound friendly." }).waitFor();
  });

  it("is refused to who may not", async () => {
    await signIn(ui.page, `${ui.control.url}/ui/chat?with=Agent/${namespace}/echo`, await token(namespace, "bob"));
    await say("hello");
    await last().getByText(/You may not talk to it/).waitFor();
  });
});

describe("a chat with an agent of another protocol", () => {
  const agents = ["agent.agents.recif.dev/partner", "agent.agents.recif.dev/plain"];
  beforeAll(async () => {
    const agent = (name: string, protocol: string): object => object(namespace, "Agent", name, { name, framework: "corail", protocol });
    await apply(agent("partner", "a2a"), agent("plain", "http"));
    await kubectl("-n", namespace, "wait", "--for=condition=Ready", "--timeout=240s", ...agents);
  });
  // Other tests count the agents.
  afterAll(async () => void (await kubectl("-n", namespace, "delete", ...agents)));

  it("goes on in the context of Agent2Agent", async () => {
    const asked: string[] = [];
    ui.page.on("request", (one) => void asked.push(one.postData() ?? ""));
    await signIn(ui.page, `${ui.control.url}/ui/chat?with=Agent/${namespace}/partner`, ada);
    const message = ui.page.getByLabel("Message", { exact: true });
    await message.fill("hello there");
    await ui.page.keyboard.press("Enter");
    await ui.page.locator('.reply[data-status="done"]', { hasText: "echo: hello there" }).waitFor();
    expect(asked.some((body) => body.includes('"contextId"'))).toBe(false);
    await message.fill("again");
    await ui.page.keyboard.press("Enter");
    await ui.page.locator('.reply[data-status="done"]', { hasText: "echo: again" }).waitFor();
    expect(asked.filter((body) => body.includes('"contextId"'))).toHaveLength(1);
    await isAccessible(ui.page);
  });

  it("is not offered where it speaks plain HTTP", async () => {
    await signIn(ui.page, `${ui.control.url}/ui/chat?with=Agent/${namespace}/plain`, ada);
    await ui.page.getByText(`plain speaks plain HTTP, no chat: call it at /v1/agents/${namespace}/plain/ of the gateway.`).waitFor();
    expect(await ui.page.getByLabel("Message", { exact: true }).count()).toBe(0);
  });
});

describe("a call that a person approves", () => {
  const made = ["tool.agents.recif.dev/sum", "agent.agents.recif.dev/careful"];
  beforeAll(async () => {
    await apply(
      object(namespace, "Tool", "sum", { name: "calculator", type: "builtin", approval: { when: "Always" } }),
      object(namespace, "Agent", "careful", { name: "Careful", framework: "corail", tools: ["sum"], storage: "memory" }),
    );
    await kubectl("-n", namespace, "wait", "--for=condition=Ready", "--timeout=240s", "agent.agents.recif.dev/careful");
  });
  // Other tests count the agents.
  afterAll(async () => void (await kubectl("-n", namespace, "delete", ...made)));

  it("waits on the page Approvals until its caller decides", async () => {
    await signIn(ui.page, `${ui.control.url}/ui/chat?with=Agent/${namespace}/careful`, ada);
    await ui.page.getByLabel("Message", { exact: true }).fill('/tool calculator {"expression": "6*7"}');
    await ui.page.keyboard.press("Enter");
    await ui.page.getByRole("region", { name: "Calls that wait for you" }).waitFor();
    await ui.page.getByRole("link", { name: "Approvals", exact: true }).click();
    const task = ui.page.locator("[data-task]");
    await task.getByText('"6*7"').waitFor();
    await task.getByText(/^Asked by .*ada · .* left$/).waitFor();
    await isAccessible(ui.page);
    await task.getByRole("button", { name: "Approve", exact: true }).click();
    await ui.page.getByText("Approved. careful answered: 42").waitFor();
  });
});
