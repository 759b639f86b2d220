/** Frame times, from what Chromium traces of itself. */

import type { Browser, Page } from "playwright-core";

interface TraceEvent {
  name: string;
  ph: string;
  pid: number;
  tid: number;
  /** Microseconds. */
  ts: number;
  /** Microseconds of CPU. */
  tdur?: number;
  args?: { name?: string };
}

export interface Frames {
  /** Milliseconds between two frames that were drawn. */
  between: number[];
  /** Milliseconds of CPU that each task of the page's main thread took. */
  tasks: number[];
}

const CATEGORIES = ["__metadata", "devtools.timeline", "disabled-by-default-devtools.timeline", "devtools.timeline.frame", "disabled-by-default-devtools.timeline.frame"];
/** Begins and ends what is looked at, in the trace itself. */
const MARKS = ["bench-begin", "bench-end"] as const;

/** The frames that are drawn while `work` runs. It is told what to call first and last, in the page. */
export async function traced(browser: Browser, page: Page, work: (marks: typeof MARKS) => Promise<void>): Promise<Frames> {
  await browser.startTracing(page, { categories: [...CATEGORIES, "blink.user_timing"] });
  await work(MARKS);
  const { traceEvents } = JSON.parse((await browser.stopTracing()).toString()) as { traceEvents: TraceEvent[] };
  const mark = (name: string): TraceEvent => {
    const found = traceEvents.find((event) => event.name === name);
    if (!found) throw new Error(`the trace has no ${name}`);
    return found;
  };
  const [begin, end] = [mark(MARKS[0]), mark(MARKS[1])];
  const within = (event: TraceEvent): boolean => event.pid === begin.pid && event.ts >= begin.ts && event.ts <= end.ts;
  const drawn = traceEvents.filter((event) => event.name === "DrawFrame" && within(event)).map((event) => event.ts).sort((a, b) => a - b);
  if (drawn.length < 2) throw new Error("the trace has no frames");
  const tasks = traceEvents.filter((event) => event.name === "RunTask" && event.tid === begin.tid && within(event));
  return {
    between: drawn.slice(1).map((at, index) => (at - (drawn[index] ?? at)) / 1000),
    tasks: tasks.map((event) => (event.tdur ?? 0) / 1000),
  };
}

export function quantile(values: readonly number[], part: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? NaN;
}
