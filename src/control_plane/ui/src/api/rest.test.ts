import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { Live } from "./live.ts";
import { GRACE_MS, restWhileHidden } from "./rest.ts";

class Page extends EventTarget {
  hidden = false;

  turn(hidden: boolean): void {
    this.hidden = hidden;
    this.dispatchEvent(new Event("visibilitychange"));
  }
}

/** Last-Event-ID of each request, and the number of open streams. */
let asked: string[];
let open: number;
let page: Page;
let live: Live;

beforeEach(() => {
  vi.useFakeTimers();
  [asked, open, page, live] = [[], 0, new Page(), new Live()];
  vi.stubGlobal("fetch", async (_path: string, init: { headers: Record<string, string>; signal: AbortSignal }) => {
    asked.push(init.headers["Last-Event-ID"] ?? "");
    open++;
    const body = new ReadableStream<Uint8Array>({
      start: (stream) => {
        stream.enqueue(new TextEncoder().encode(`id: e-${asked.length}\n\n`));
        init.signal.addEventListener("abort", () => {
          open--;
          stream.error(init.signal.reason);
        });
      },
    });
    return new Response(body);
  });
});
afterEach(() => {
  live.stop();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

it("lets the stream go when the page is hidden for a while, and goes on where it was when it is seen again", async () => {
  const resets = vi.fn();
  live.listen({ reset: resets });
  restWhileHidden(page as unknown as Document, live);
  live.start();
  await vi.advanceTimersByTimeAsync(10);
  page.turn(true);
  await vi.advanceTimersByTimeAsync(GRACE_MS + 10);
  expect([open, live.state.status]).toEqual([0, "connecting"]);
  await vi.advanceTimersByTimeAsync(3_600_000);
  expect(asked).toEqual([""]);
  page.turn(false);
  await vi.advanceTimersByTimeAsync(10);
  expect([asked, open, live.state.status]).toEqual([["", "e-1"], 1, "live"]);
  expect(resets).toHaveBeenCalledTimes(1);
});

it("keeps the stream when the page is hidden for a moment only", async () => {
  restWhileHidden(page as unknown as Document, live);
  live.start();
  for (let turn = 0; turn < 5; turn++) {
    page.turn(true);
    await vi.advanceTimersByTimeAsync(GRACE_MS - 100);
    page.turn(false);
    await vi.advanceTimersByTimeAsync(100);
  }
  expect([asked.length, open]).toEqual([1, 1]);
});

it("does not begin in a page that was not seen yet, nor after a sign-out", async () => {
  page.hidden = true;
  restWhileHidden(page as unknown as Document, live);
  live.start();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(asked).toEqual([]);
  page.turn(false);
  await vi.advanceTimersByTimeAsync(10);
  expect(asked).toEqual([""]);
  live.stop();
  page.turn(true);
  page.turn(false);
  await vi.advanceTimersByTimeAsync(60_000);
  expect([asked.length, open]).toEqual([1, 0]);
});
