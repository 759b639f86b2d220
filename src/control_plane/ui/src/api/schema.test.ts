import { readFileSync } from "node:fs";

import openapiTS, { astToString, COMMENT_HEADER } from "openapi-typescript";
import { expect, it } from "vitest";

const at = (path: string): string => readFileSync(new URL(path, import.meta.url), "utf8");

it("has the types of openapi.json: `make generate` writes them", async () => {
  const nodes = await openapiTS(at("../../openapi.json"));
  expect(at("schema.d.ts")).toBe(`${COMMENT_HEADER}${astToString(nodes)}`);
});
