import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { Live, pauseBefore } from "./live.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

it("waits longer after each failure, but never very long", () => {
  expect(pauseBefore(0, 0.5)).toBe(250);
  expect(pauseBefore(3, 0.5)).toBe(2000);
  expect(pauseBefore(50, 1)).toBe(10_000);
});

it("asks less and less often for a connection that is dropped as soon as it stands", async () => {
  let asked = 0;
  vi.stubGlobal("fetch", async () => {
    asked++;
    return new Response(new ReadableStream({ start: (stream) => stream.close() }));
  });
  const live = new Live();
  live.start();
  await vi.advanceTimersByTimeAsync(60_000);
  live.stop();
  expect(asked).toBeGreaterThan(5);
  expect(asked).toBeLessThan(25);
});

it("tells that it stands again before anything else", async () => {
  const bodies = [": hello\n\n", "event: change\nid: e-1\ndata: {}\n\n"];
  vi.stubGlobal("fetch", async () => new Response(bodies.shift() ?? ""));
  const heard: string[] = [];
  const live = new Live();
  live.listen({ connected: () => heard.push("connected"), reset: () => heard.push("reset"), change: () => heard.push("change") });
  live.start();
  await vi.advanceTimersByTimeAsync(2000);
  live.stop();
  expect(heard.slice(0, 5)).toEqual(["connected", "reset", "connected", "reset", "change"]);
});

it("goes on where a quiet stream began", async () => {
  const ids: (string | undefined)[] = [];
  vi.stubGlobal("fetch", async (_path: string, init: { headers: Record<string, string> }) => {
    ids.push(init.headers["Last-Event-ID"]);
    return new Response("id: e-7\n\n:\n\n");
  });
  const reset = vi.fn();
  const live = new Live();
  live.listen({ reset });
  live.start();
  await vi.advanceTimersByTimeAsync(2000);
  live.stop();
  expect(ids.slice(0, 2)).toEqual([undefined, "e-7"]);
  expect(reset).toHaveBeenCalledTimes(1);
});
