import { expect, it } from "vitest";

import { ownerOf } from "./owner.ts";

it("finds the controller among the owners of an object", () => {
  const plain = { apiVersion: "v1", kind: "ConfigMap", name: "notes" };
  const controller = { apiVersion: "agents.recif.dev/v1", kind: "MCPServer", name: "desk", controller: true };
  expect(ownerOf({ ownerReferences: [plain, controller] })).toEqual({ kind: "MCPServer", name: "desk", ours: true });
  expect(ownerOf({ ownerReferences: [plain, { ...controller, controller: false }] })).toBeUndefined();
  expect(ownerOf({ generation: 1 })).toBeUndefined();
});

it("knows an owner of the same kind in another API", () => {
  const ownerReferences = [{ apiVersion: "kagent.dev/v1alpha2", kind: "Agent", name: "desk", controller: true }];
  expect(ownerOf({ ownerReferences })).toEqual({ kind: "Agent", name: "desk", ours: false });
});
