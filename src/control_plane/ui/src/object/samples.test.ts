import { expect, it } from "vitest";

import { add, samplesOf } from "./samples.ts";

it("keeps fifteen minutes, in order, with a break where nothing was seen", () => {
  const samples = samplesOf("agents/default/a");
  add(samples, 100, 1, 2);
  add(samples, 100, 9, 9);
  add(samples, 101, 0, 2);
  add(samples, 160, 3, 2);
  expect(samplesOf("agents/default/a")).toEqual({ at: [100, 101, 102, 160], inFlight: [1, 0, null, 3], pods: [2, 2, null, 2] });
  for (let second = 161; second < 2000; second++) add(samples, second, 0, 1);
  expect(samples.at).toHaveLength(900);
  expect(samples.at.at(-1)).toBe(1999);
  expect(samples.inFlight).toHaveLength(900);
});
