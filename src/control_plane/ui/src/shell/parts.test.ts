import { expect, it } from "vitest";

import { localTime } from "./parts.tsx";

it("tells a time of today to the second, and of another day with its date", () => {
  const at = "2026-03-04T12:05:07Z";
  const month = new Intl.DateTimeFormat(undefined, { month: "short" }).format(new Date(at));
  const today = localTime(at, Date.parse("2026-03-04T12:05:30Z"));
  expect(today).toMatch(/05\D07/);
  expect(today).not.toContain(month);
  const later = localTime(at, Date.parse("2026-03-06T12:05:30Z"));
  expect(later).toContain(month);
  expect(later).not.toMatch(/05\D07/);
});

it("tells no time where there is none", () => {
  expect(localTime("soon", 0)).toBe("");
});
