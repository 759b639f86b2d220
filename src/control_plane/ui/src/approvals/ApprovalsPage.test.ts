import { createElement } from "react";
import { renderToStaticMarkup } from "react-dom/server";
import { expect, it } from "vitest";

import { TaskView } from "./ApprovalsPage.tsx";
import type { WaitingTask } from "./approvals.ts";

const NOW = Date.parse("2026-01-01T00:00:00Z");

function shown(task: Partial<WaitingTask>, user: string | null = "ada"): string {
  const whole: WaitingTask = { task: "0a", by: "Caller", user: "ada", expires: "2026-01-01T00:05:00Z", decided: false, calls: [{ id: "1", name: "pay", args: '{\n  "euros": 5\n}' }], ...task };
  return renderToStaticMarkup(createElement(TaskView, { task: whole, user, now: NOW, send: () => Promise.resolve() }));
}

it("shows the tool, its arguments, who asked, and the time that is left", () => {
  const text = shown({});
  expect(text).toContain("Asked by ada · 5 min left");
  expect(text).toContain("<code>pay</code>");
  expect(text).toContain("&quot;euros&quot;: 5");
  expect(text).toMatch(/<button[^>]*>Approve<\/button>/);
  expect(text).toMatch(/<button[^>]*>Reject<\/button>/);
});

it("decides on several calls at once", () => {
  const calls = ["1", "2"].map((id) => ({ id, name: "pay", args: "{}" }));
  const text = shown({ calls });
  expect(text).toContain(">Approve all<");
  expect(text).toContain(">Reject all<");
});

it("shows characters that people do not see by their numbers", () => {
  const text = shown({ calls: [{ id: "1", name: "p\u200bay", args: '{"to": "\u202eada"}' }] });
  expect(text).toContain("p\\u{200b}ay");
  expect(text).toContain("\\u{202e}ada");
});

it("says that a decided one goes on", () => {
  expect(shown({ decided: true, user: null }, null)).toMatch(/>decided, and goes on: send the same decision again if it does not</);
});

it("lets no user decide who asked where an approver has to, and names the one who asked to the approver", () => {
  const own = shown({ by: "Approver" });
  expect(own).toContain("Another user with the right to approve decides.");
  expect(own).not.toContain("<button");
  const decided = shown({ by: "Approver", decided: true });
  expect(decided).toMatch(/<button[^>]*>Go on<\/button>/);
  expect(decided).not.toMatch(/Approve<|Reject</);
  const others = shown({ by: "Approver" }, "bob");
  expect(others).toContain("Asked by ada");
  expect(others).toMatch(/<button[^>]*>Approve<\/button>/);
});
