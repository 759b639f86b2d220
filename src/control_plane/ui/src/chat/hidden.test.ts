import { expect, it } from "vitest";

import { escapeHidden } from "./hidden.ts";

it("shows each character by its number that people would not see", () => {
  expect(escapeHidden("pay\u202eeruza\u200b\u{e0041}\u001b[2J\u009b")).toBe("pay\\u{202e}eruza\\u{200b}\\u{e0041}\\u{1b}[2J\\u{9b}");
  expect(escapeHidden("{\n\t\"town\": \"Orléans\"\n}")).toBe("{\n\t\"town\": \"Orléans\"\n}");
});
