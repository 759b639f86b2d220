import { createElement } from "react";
import { renderToStaticMarkup } from "react-dom/server";
import { expect, it } from "vitest";

import { isNearEnd, List } from "./ActivityPage.tsx";

it("lets the user look further back, as long as there is more", () => {
  const shown = (more: (() => void) | null, loading = false): string => renderToStaticMarkup(createElement(List, { list: [], more, loading }));
  expect(shown(() => undefined)).toMatch(/<button(?! disabled)[^>]*>Look further back/);
  expect(shown(() => undefined, true)).toMatch(/<button[^>]* disabled=""[^>]*>Look further back/);
  expect(shown(null)).not.toContain("button");
});

it("loads ahead of the end of the list, and not at its beginning", () => {
  const at = (scrollTop: number): boolean => isNearEnd({ scrollTop, clientHeight: 800, scrollHeight: 12_800 });
  expect([0, 6000, 11_000, 12_000].map(at)).toEqual([false, false, true, true]);
});
