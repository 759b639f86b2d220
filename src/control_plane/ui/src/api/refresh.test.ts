import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { Refresher } from "./refresh.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

it("reads to the end in a storm of changes, one reading at a time, and once more after the last change", async () => {
  const ended: number[] = [];
  let [begun, atOnce, most] = [0, 0, 0];
  const refresher = new Refresher(async () => {
    begun = Date.now();
    most = Math.max(most, ++atOnce);
    await new Promise((resolve) => setTimeout(resolve, 300));
    atOnce--;
    ended.push(Date.now());
  }, () => 50);
  let last = 0;
  for (let change = 0; change < 100; change++) {
    refresher.later(["graph"]);
    last = Date.now();
    await vi.advanceTimersByTimeAsync(20);
  }
  expect(ended.length).toBeGreaterThanOrEqual(3);
  await vi.advanceTimersByTimeAsync(1000);
  expect(begun).toBeGreaterThan(last);
  expect(most).toBe(1);
  const count = ended.length;
  await vi.advanceTimersByTimeAsync(5000);
  expect(ended.length).toBe(count);
});

it("goes on after a reading that failed", async () => {
  let asked = 0;
  const refresher = new Refresher(async () => void (asked++, await Promise.reject(new Error("no"))), () => 50);
  for (let change = 0; change < 2; change++) {
    refresher.later(["graph"]);
    await vi.advanceTimersByTimeAsync(100);
  }
  expect(asked).toBe(2);
});
