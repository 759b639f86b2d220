import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, describe, expect, inject, it } from "vitest";

import { ControlPlane, token, until } from "./cluster.ts";
import { isAccessible, openBrowser, openPage, rowOf, signIn } from "./page.ts";

const namespace = inject("namespace");
let browser: Browser;
let control: ControlPlane;
let page: Page;
let ada: string;

beforeAll(async () => {
  [browser, control, ada] = await Promise.all([openBrowser(), ControlPlane.start("kubernetes"), token(namespace, "ada")]);
});
afterAll(async () => {
  await Promise.all([browser?.close(), control?.stop()]);
});
beforeEach(async () => {
  page = await openPage(browser);
  return async () => await page.context().close();
});

describe("the sign-in", () => {
  it("refuses what is no token, and lets a token in", async () => {
    await signIn(page, `${control.url}/ui/`, "nonsense");
    await page.getByText("does not accept this token").waitFor();
    await isAccessible(page);
    await page.getByLabel("Token").fill(ada);
    await page.keyboard.press("Enter");
    await rowOf(page, "Agent", namespace, "echo").waitFor();
    await page.getByText(`${namespace}/ada`).waitFor();
    const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie]));
    expect(kept).not.toContain(ada);

    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByLabel("Token").waitFor();
    await page.reload();
    await page.getByLabel("Token").waitFor();
  });

  it("shows nobody more than he may see", async () => {
    await signIn(page, `${control.url}/ui/`, await token(namespace, "eve"));
    await page.getByText(/You may not see the fleet|An empty fleet/).waitFor();
    expect(await page.locator(".table-row").count()).toBe(0);
  });
});

describe("a tool", () => {
  const path = (): string => `${control.url}/ui/tools?server=MCPServer/${namespace}/desk&tool=echo`;

  it("is called by a form that its schema makes", async () => {
    await signIn(page, path(), ada);
    await page.getByLabel(/^message/).fill("hello from a browser");
    await page.getByRole("button", { name: "Call echo" }).click();
    await page.getByTestId("result").getByText("hello from a browser").waitFor();
  });

  it("is not called by who may not, and says which right is missing", async () => {
    await signIn(page, path(), await token(namespace, "bob"));
    await page.getByLabel(/^message/).fill("hello");
    await page.getByRole("button", { name: "Call echo" }).click();
    await page.getByText("mcpservers/invoke").first().waitFor();
    expect(await page.getByTestId("result").count()).toBe(0);
  });
});

describe("a chat", () => {
  const say = async (text: string): Promise<void> => {
    await page.getByLabel("Message", { exact: true }).fill(text);
    await page.keyboard.press("Enter");
  };
  const last = (): ReturnType<Page["locator"]> => page.locator(".reply").last();

  it("streams, shows tool calls and the time to the first token, and goes on", async () => {
    await signIn(page, `${control.url}/ui/chat?with=Agent/${namespace}/echo`, ada);
    await say("hello there");
    await page.locator('.reply[data-status="done"]', { hasText: "echo: hello there" }).waitFor();
    expect(await last().getByTestId("timing").innerText()).toMatch(/first token after .* all after/);
    await say('/tool calculator {"expression": "6*7"}');
    await last().locator('[data-tool="calculator"]').getByText(/answered in/).waitFor();
    await last().getByText("42", { exact: true }).waitFor();
    await isAccessible(page);
    await last().getByRole("button", { name: "Retry" }).click();
    await until("the turn to be answered again", async () => (await page.locator('.reply[data-status="done"]').count()) === 2);
  });

  it("can be stopped, and keeps what came", async () => {
    await signIn(page, `${control.url}/ui/chat?with=Agent/${namespace}/echo`, ada);
    // An answer of many events, held up on its way so that it is under way when it is stopped.
    await page.evaluate(() => {
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
    await last().getByText("word1").waitFor();
    await page.getByRole("button", { name: "Stop" }).click();
    await page.locator('.reply[data-status="stopped"]').waitFor();
    const text = await last().innerText();
    expect(text).toContain("word1");
    expect(text).not.toContain("word399");
    await page.getByRole("button", { name: "Send" }).waitFor();
  });

  it("is refused to who may not", async () => {
    await signIn(page, `${control.url}/ui/chat?with=Agent/${namespace}/echo`, await token(namespace, "bob"));
    await say("hello");
    await last().getByText(/You may not talk to it/).waitFor();
  });
});
