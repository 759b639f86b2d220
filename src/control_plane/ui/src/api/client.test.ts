import { afterEach, expect, it, vi } from "vitest";

import { request, setToken } from "./client.ts";

afterEach(() => {
  setToken(null);
  vi.unstubAllGlobals();
});

it.each([
  ["/gateway/v1/agents/a/b/chat", "X-Recif-Authorization", "error"],
  ["/gateway", "X-Recif-Authorization", "error"],
  ["/api/v1/fleet", "Authorization", "follow"],
  ["/gatewayish", "Authorization", "follow"],
])("a request of %s carries the token in %s, and redirects: %s", async (path, field, redirect) => {
  const sent: [string, RequestInit][] = [];
  vi.stubGlobal("fetch", async (to: string, init: RequestInit) => {
    sent.push([to, init]);
    return new Response("{}");
  });
  setToken("t");
  await request(path, { headers: { Accept: "x" } });
  expect(sent).toEqual([[path, { headers: { Accept: "x", [field]: "Bearer t" }, redirect, cache: "no-cache" }]]);
});
