import { describe, expect, it } from "vitest";

import { collect, type Field, fieldsOf, initial, type Schema } from "./schema.ts";

function fields(properties: Schema, more: Schema = {}): Field[] {
  return fieldsOf({ type: "object", properties, ...more }) ?? [];
}
function collected(properties: Schema, values: Record<string, string>, required: string[] = []): unknown {
  const { args, errors } = collect(fields(properties, { required }), values);
  return Object.keys(errors).length ? errors : args;
}

describe("fields", () => {
  it.each([
    [{ type: "string" }, "text"],
    [{ type: "string", maxLength: 5000 }, "longtext"],
    [{ type: "integer" }, "integer"],
    [{ type: ["number", "null"] }, "number"],
    [{ anyOf: [{ type: "boolean" }, { type: "null" }] }, "boolean"],
    [{ enum: ["a", 1] }, "choice"],
    [{ const: "x" }, "choice"],
    [{ type: "array", items: { type: "string" } }, "list"],
    [{ type: "array", items: { type: "object" } }, "json"],
    [{ type: "object", properties: { a: { type: "string" } } }, "group"],
    [{ type: "object", additionalProperties: true }, "json"],
    [{ oneOf: [{ type: "string" }, { type: "number" }] }, "json"],
    [{ type: ["string", "number"] }, "json"],
    [{ $ref: "#/$defs/place" }, "group"],
    [{ $ref: "#/$defs/loop" }, "json"],
    [{ $ref: "https://elsewhere" }, "json"],
    [{}, "json"],
    [true, "json"],
  ])("%j is shown as %s", (schema, type) => {
    const $defs = { place: { type: "object", properties: { city: { type: "string" } } }, loop: { $ref: "#/$defs/loop" } };
    expect(fields({ x: schema }, { $defs })[0]?.type).toBe(type);
  });

  it("end where a schema contains itself", () => {
    const tree: Schema = { type: "object", properties: { child: { $ref: "#" }, name: { type: "string" } } };
    const depth = (list: Field[]): number => 1 + Math.max(0, ...list.map((one) => (one.fields.length ? depth(one.fields) : 0)));
    expect(depth(fieldsOf(tree) ?? [])).toBeLessThan(10);
  });

  it("are none for no schema or no properties, and impossible for what is no plain object", () => {
    expect(fieldsOf(null)).toEqual([]);
    expect(fieldsOf({ type: "object" })).toEqual([]);
    expect(fieldsOf({ anyOf: [{}] })).toBeNull();
    expect(fieldsOf({ type: "string" })).toBeNull();
  });

  it("begin with the defaults", () => {
    const list = fields({
      unit: { enum: ["C", "F"], default: "C" },
      days: { type: "integer", default: 3 },
      tags: { type: "array", items: { type: "string" }, default: ["a", "b"] },
      place: { type: "object", properties: { city: { type: "string", default: "Paris" } } },
      fixed: { const: 7 },
    });
    expect(initial(list)).toEqual({ unit: '"C"', days: "3", tags: "a\nb", "place/city": "Paris", fixed: "7" });
  });
});

describe("arguments", () => {
  it("have the types of the schema, and nothing that was left empty", () => {
    const properties = {
      city: { type: "string" },
      days: { type: "integer" },
      metric: { type: "boolean" },
      unit: { enum: ["C", 1] },
      tags: { type: "array", items: { type: "number" } },
      place: { type: "object", properties: { lat: { type: "number" } } },
      more: {},
      empty: { type: "string" },
    };
    const values = { city: "Paris", days: "3", metric: "false", unit: "1", tags: "1\n\n2.5", "place/lat": "48.9", more: '{"a":[1]}' };
    expect(collected(properties, values)).toEqual({
      city: "Paris", days: 3, metric: false, unit: 1, tags: [1, 2.5], place: { lat: 48.9 }, more: { a: [1] },
    });
  });

  it.each([
    [{ type: "string" }, "", "is required"],
    [{ type: "integer" }, "1.5", "must be a whole number"],
    [{ type: "number", minimum: 1 }, "0", "must be at least 1"],
    [{ type: "number", exclusiveMaximum: 5 }, "5", "must be less than 5"],
    [{ type: "number" }, "x", "must be a number"],
    [{ type: "string", pattern: "^a+$" }, "b", "must match ^a+$"],
    [{ type: "string", minLength: 3 }, "é€", "needs at least 3 characters"],
    [{ type: "array", items: { type: "integer" } }, "1\nx", "has a line that must be a number: x"],
  ])("%j refuses %j: %s", (schema, value, error) => {
    expect(collected({ x: schema }, { x: value }, ["x"])).toEqual({ x: error });
  });

  it("of a required group are asked for, of another one only when something was typed", () => {
    const place = { type: "object", properties: { city: { type: "string" }, lat: { type: "number" } }, required: ["city"] };
    expect(collected({ place }, {})).toEqual({});
    expect(collected({ place }, {}, ["place"])).toEqual({ "place/city": "is required" });
    expect(collected({ place }, { "place/lat": "1" })).toEqual({ "place/city": "is required" });
  });

  it("say where JSON is broken", () => {
    expect(String(Object.values(collected({ x: {} }, { x: "{" }) as object)[0])).toContain("is not JSON");
  });
});
