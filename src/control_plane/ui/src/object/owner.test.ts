import { expect, it } from "vitest";

import { ownerOf } from "./owner.ts";

it("finds the controller among the owners of an object", () => {
  const plain = { kind: "ConfigMap", name: "notes" };
  const controller = { kind: "MCPServer", name: "desk", controller: true };
  expect(ownerOf({ ownerReferences: [plain, controller] })).toBe(controller);
  expect(ownerOf({ ownerReferences: [plain, { ...controller, controller: false }] })).toBeUndefined();
  expect(ownerOf({ generation: 1 })).toBeUndefined();
});
