/**
 * Measures the web UI in Chromium, with many agents: from the API server's answer to a write to the change in the page, frame
 * times while the table scrolls, and what the first view weighs. A missed goal is exit code 1.
 */

import { spawn } from "node:child_process";
import { parseArgs } from "node:util";

import { type Browser, chromium, type Page } from "playwright-core";

import { Api, placeOf } from "./agents.ts";
import { quantile, traced } from "./trace.ts";

const URL_ = "http://127.0.0.1:8780";
const ADMIN = "127.0.0.1:8781";
/** The row that changes: it is the first one, whatever its phase. */
const WATCHED = 0;

interface Row {
  what: string;
  goal: string;
  measured: string;
  ok: boolean;
}

const { values } = parseArgs({
  options: { agents: { type: "string", default: "10000" }, changes: { type: "string", default: "200" }, storm: { type: "string", default: "50" }, seconds: { type: "string", default: "10" } },
});
const settings = { agents: Number(values.agents), changes: Number(values.changes), storm: Number(values.storm), seconds: Number(values.seconds) };

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const ms = (value: number): string => `${value.toFixed(value < 10 ? 1 : 0)} ms`;
const table = (page: Page): ReturnType<Page["locator"]> => page.locator(".table-row").first();

async function controlPlane(): Promise<() => void> {
  const args = ["control-plane", "--auth", "none", "--bind", new URL(URL_).host, "--admin-bind", ADMIN, "--data-dir", process.env.TMPDIR ?? "/tmp"];
  const child = spawn(process.env.RECIF_PROGRAM ?? "recif", args, { stdio: "ignore" });
  const deadline = Date.now() + 120_000;
  while (!(await fetch(`http://${ADMIN}/readyz`).catch(() => null))?.ok) {
    if (child.exitCode !== null || Date.now() > deadline) throw new Error("the control plane does not become ready");
    await sleep(200);
  }
  return () => void child.kill("SIGTERM");
}

/** What the first view weighs in KB as it is sent, and when its first rows are there. */
async function firstView(browser: Browser): Promise<{ bytes: number; rowsMs: number }> {
  const page = await (await browser.newContext({ locale: "en-US" })).newPage();
  const session = await page.context().newCDPSession(page);
  await session.send("Network.enable");
  const urls = new Map<string, string>();
  let bytes = 0;
  session.on("Network.responseReceived", ({ requestId, response }) => urls.set(requestId, response.url));
  session.on("Network.loadingFinished", ({ requestId, encodedDataLength }) => {
    if (urls.get(requestId)?.includes("/ui/")) bytes += encodedDataLength;
  });
  await page.goto(`${URL_}/ui/`);
  await table(page).waitFor();
  const rowsMs = await page.evaluate(() => performance.now());
  await page.waitForLoadState("load");
  await page.context().close();
  return { bytes, rowsMs };
}

/** A page that shows all agents and is live. */
async function wholeFleet(browser: Browser): Promise<Page> {
  const page = await (await browser.newContext({ locale: "en-US", viewport: { width: 1280, height: 860 } })).newPage();
  await page.goto(`${URL_}/ui/`);
  const all = settings.agents.toLocaleString("en-US");
  await page.getByTestId("total").filter({ hasText: new RegExp(`^${all} objects$`) }).waitFor({ timeout: 120_000 });
  await page.locator('[data-live="live"]').first().waitFor();
  return page;
}

/** Milliseconds from the answer to a write to the change in the document, for each of several writes. */
async function changes(page: Page, api: Api): Promise<number[]> {
  const { namespace, name } = placeOf(WATCHED);
  const took: number[] = [];
  for (let step = 0; step < settings.changes; step++) {
    const phase = step % 2 ? "Running" : "Deploying";
    await page.evaluate(
      ([key, wanted]) => {
        const place = globalThis as unknown as { shown: Promise<number> };
        place.shown = new Promise((resolve, reject) => {
          setTimeout(reject, 30_000, new Error(`the page does not show ${key} ${wanted}`));
          const look = (): void => {
            if (document.querySelector(`[data-key="${key}"] .cell-phase`)?.textContent !== wanted) return;
            observer.disconnect();
            resolve(Date.now());
          };
          const observer = new MutationObserver(look);
          observer.observe(document.body, { subtree: true, childList: true, characterData: true });
        });
      },
      [`Agent/${namespace}/${name}`, phase] as const,
    );
    await api.move(WATCHED, phase, 10 + step);
    const written = Date.now();
    const shown = await page.evaluate(() => (globalThis as unknown as { shown: Promise<number> }).shown);
    took.push(Math.max(0, shown - written));
    // Not in step with anything that repeats.
    await sleep(120 + Math.random() * 200);
  }
  return took;
}

/** Others change all the while `work` runs; they stay in their phase, and so below the row that is watched. */
async function inStorm<T>(api: Api, work: () => Promise<T>): Promise<T> {
  let going = true;
  const storm = (async () => {
    for (let step = 0; going; step++) {
      const number = 1 + Math.floor(Math.random() * (settings.agents - 1));
      await Promise.all([api.move(number, "Running", 10 + step), sleep(1000 / settings.storm)]);
    }
  })();
  try {
    return await work();
  } finally {
    going = false;
    await storm;
  }
}

/** Scrolls the table by a tenth of a screen per frame, through thousands of rows. */
async function scroll(page: Page, [begin, end]: readonly [string, string]): Promise<{ blank: number }> {
  return await page.evaluate(
    async ({ begin, end, seconds }) => {
      const place = document.querySelector(".table");
      if (!place) throw new Error("there is no table");
      const frame = (): Promise<number> => new Promise((resolve) => requestAnimationFrame(resolve));
      const { top, height } = place.getBoundingClientRect();
      const middle = top + height / 2;
      let blank = 0;
      performance.mark(begin);
      for (let at = await frame(), last = at + seconds * 1000; at < last; at = await frame()) {
        // Before the scrolling, so that nothing is laid out twice for it.
        if (!document.elementFromPoint(400, middle)?.closest(".table-row")) blank++;
        place.scrollTop += 97;
      }
      performance.mark(end);
      return { blank };
    },
    { begin, end, seconds: settings.seconds },
  );
}

async function measure(browser: Browser, api: Api): Promise<Row[]> {
  const { bytes, rowsMs } = await firstView(browser);
  const page = await wholeFleet(browser);
  const quiet = await changes(page, api);
  const stormy = await inStorm(api, () => changes(page, api));
  let blank = 0;
  const { between, tasks } = await traced(browser, page, async (marks) => void ({ blank } = await scroll(page, marks)));
  const rate = (1000 * between.length) / between.reduce((sum, one) => sum + one, 0);
  const late = between.filter((one) => one > 25).length;
  const times = (took: readonly number[]): string => `p50 ${ms(quantile(took, 0.5))}, p99 ${ms(quantile(took, 0.99))}, longest ${ms(Math.max(...took))}`;
  return [
    { what: "a write answered → changed in the page", goal: "≤ 200 ms", measured: times(quiet), ok: quantile(quiet, 0.99) <= 200 },
    { what: `the same while ${settings.storm} others change a second`, goal: "≤ 200 ms", measured: times(stormy), ok: quantile(stormy, 0.99) <= 200 },
    {
      what: `${settings.agents} rows scroll, frames drawn`,
      goal: "60 / s",
      measured: `${rate.toFixed(1)} / s: p50 ${ms(quantile(between, 0.5))}, p99 ${ms(quantile(between, 0.99))}; ${late} of ${between.length} late`,
      ok: rate >= 59,
    },
    { what: "the same, CPU of the main thread", goal: "–", measured: `${ms(tasks.reduce((sum, one) => sum + one, 0) / between.length)} per frame, longest task ${ms(Math.max(...tasks))}`, ok: true },
    { what: "the same, frames without rows", goal: "0", measured: String(blank), ok: blank === 0 },
    { what: "first view, compressed", goal: "≤ 200 kB", measured: `${(bytes / 1000).toFixed(0)} kB`, ok: bytes <= 200_000 },
    { what: "first rows, from the page's beginning", goal: "< 1 s", measured: ms(rowsMs), ok: rowsMs < 1000 },
  ];
}

const api = new Api();
console.error(`making ${settings.agents} agents`);
await api.make(settings.agents);
const stop = await controlPlane();
const browser = await chromium.launch({ executablePath: process.env.RECIF_CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });
const rows = await measure(browser, api).finally(async () => {
  await browser.close();
  stop();
});
console.log("| what | goal | measured | ok |\n|---|---|---|---|");
for (const { what, goal, measured, ok } of rows) console.log(`| ${what} | ${goal} | ${measured} | ${ok ? "yes" : "NO"} |`);
process.exit(rows.every((row) => row.ok) ? 0 : 1);
