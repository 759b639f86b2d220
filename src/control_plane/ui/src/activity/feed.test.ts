import { expect, it } from "vitest";

import type { Transition } from "../api/types.ts";
import { grouped, merged, newer, troubleOf, wanted } from "./feed.ts";

const one = (uid: string, seq: number, second: number, more: Partial<Transition> = {}): Transition => ({
  kind: "Agent", namespace: "default", name: uid, uid, seq, at: new Date(second * 1000).toISOString(),
  from: "Pending", to: "Resolving", action: "accept", reason: "", tookMs: 0, traceId: "", ...more,
});
const names = (list: readonly Transition[]): string => list.map((item) => `${item.uid}${item.seq}`).join(" ");

it("puts the newest first, however they come, and each once", () => {
  const list = merged([one("a", 2, 20), one("a", 1, 10)], [one("b", 1, 15), one("a", 2, 20), one("b", 1, 15), one("b", 2, 15)]);
  expect(names(list)).toBe("a2 b2 b1 a1");
  expect(merged(list, [one("a", 1, 10)])).toBe(list);
  expect(names(merged(list, [one("c", 1, 30)], 2))).toBe("c1 a2");
});

it("counts what came since it was paused, also when that is more than is kept", () => {
  const shown = [one("a", 2, 20), one("a", 1, 10)];
  expect(newer(merged(shown, [one("b", 1, 30), one("b", 2, 40)]), shown)).toBe(2);
  expect(newer(merged(shown, [one("b", 1, 30), one("b", 2, 40)], 2), shown)).toBe(2);
  expect(newer([one("b", 1, 30)], [])).toBe(1);
});

it("finds by kind and by words of what is shown", () => {
  const list = [one("shop", 1, 1, { reason: 'tool "Cart" not found' }), one("cart", 1, 1, { kind: "Tool", to: "Error" })];
  expect(names(list.filter(wanted(undefined, "cart")))).toBe("shop1 cart1");
  expect(names(list.filter(wanted(["Tool"], undefined)))).toBe("cart1");
  expect(names(list.filter(wanted(undefined, "default/ca error")))).toBe("cart1");
});

it("hides a wait that says nothing, and shows one with its reason", () => {
  const wait = (name: string, reason: string): Transition => one(name, 1, 1, { from: "Running", to: "Running", reason });
  expect(names([wait("quiet", ""), wait("told", "a Pod is not ready"), one("moved", 1, 1)].filter(wanted(undefined, undefined)))).toBe("told1 moved1");
});

it("groups what an object repeats, also where others moved meanwhile, until it does something else", () => {
  const wait = (seq: number, more: Partial<Transition> = {}): Transition => one("a", seq, seq, { from: "Failed", to: "Failed", reason: "no quota", ...more });
  const list = merged([], [wait(1), wait(2), one("b", 1, 2), wait(3), wait(4, { to: "Resolving" }), wait(5), wait(6, { reason: "no node" }), wait(7, { reason: "no node" })]);
  const told = grouped(list).map(({ newest, oldest, times }) => `${newest.uid}${newest.seq}-${oldest.seq}×${times}`);
  expect(told).toEqual(["a7-6×2", "a5-5×1", "a4-4×1", "a3-1×3", "b1-1×1"]);
});

it.each([
  [{ behindSeconds: 900, problem: "the database refuses writes" }, "History is 15 min behind: the database refuses writes."],
  [{ behindSeconds: 0, problem: "the database does not answer" }, "History cannot be written: the database does not answer."],
  [{ behindSeconds: 3, problem: null }, null],
  [undefined, null],
])("of %j it says %s", (history, text) => {
  expect(troubleOf(history)).toBe(text);
});
