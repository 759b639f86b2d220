import { describe, expect, it } from "vitest";

import { collect, fieldsOf, initial } from "../tools/schema.ts";
import { exampleOf, inputSchema, promptOf } from "./flowInput.ts";

const prompt = (schema: string, more = ""): string => `---\ninput:\n  schema:\n${schema.replace(/^/gm, "    ")}\n${more}---\nGreet {{name}}.`;

describe("the form of a flow", () => {
  it("has the variables of its prompt, with their descriptions and defaults", () => {
    const schema = inputSchema(prompt("name: string, the person to greet\ntone: string, how to sound\nlines?: integer", "  default:\n    tone: friendly\n"));
    const fields = fieldsOf(schema);
    expect(fields?.map(({ name, type, required, description }) => [name, type, required, description])).toEqual([
      ["name", "text", true, "the person to greet"],
      ["tone", "text", false, "how to sound"],
      ["lines", "integer", false, null],
    ]);
    expect(initial(fields ?? [])).toEqual({ tone: "friendly" });
    expect(collect(fields ?? [], { name: "Ada", lines: "3" })).toEqual({ args: { name: "Ada", lines: 3 }, errors: {} });
  });

  it("knows lists, choices and objects", () => {
    const fields = fieldsOf(inputSchema(prompt("tags(array, what it is about): string\nkind?(enum): [a, b]\nplace(object, where):\n  city: string")));
    expect(fields?.map(({ name, type, description }) => [name, type, description])).toEqual([
      ["tags", "list", "what it is about"],
      ["kind", "choice", null],
      ["place", "group", "where"],
    ]);
  });

  it("knows variables by names that every object has", () => {
    const fields = fieldsOf(inputSchema(prompt("constructor: string\ntoString: string\nhasOwnProperty?: string", "  default:\n    toString: x\n"))) ?? [];
    expect(fields.map(({ name, required }) => [name, required])).toEqual([["constructor", true], ["toString", false], ["hasOwnProperty", false]]);
    expect({ ...initial(fields) }).toEqual({ toString: "x" });
    expect(collect(fields, {}).errors).toEqual({ constructor: "is required" });
    expect(collect(fields, { constructor: "Ada" }).args).toEqual({ constructor: "Ada" });
  });

  it("takes JSON Schema as it is", () => {
    const schema = inputSchema(prompt("type: object\nproperties:\n  n: {type: number, minimum: 1}\nrequired: [n]"));
    expect(collect(fieldsOf(schema) ?? [], { n: "0" }).errors).toEqual({ n: "must be at least 1" });
  });

  it.each([
    ["no frontmatter", "Greet {{name}}."],
    ["no schema", "---\nmodel: x\n---\nGreet"],
    ["a frontmatter that is not YAML", "---\n[a: {\n---\nGreet"],
    ["an unknown type", prompt("name: text")],
    ["any other properties", prompt("(*): number")],
    ["a list as a schema", "---\ninput:\n  schema: [a]\n---\nGreet"],
  ])("is left to JSON with %s", (_, content) => {
    expect(inputSchema(content)).toBeNull();
  });

  it("is of the first prompt, which answers", () => {
    expect(promptOf({ prompts: [{ prompt: { name: "a", content: "x" } }, { promptRef: { name: "b" } }] })).toEqual({ content: "x" });
    expect(promptOf({ prompts: [{ promptRef: { name: "b" } }] })).toEqual({ prompt: "b" });
    for (const spec of [undefined, {}, { prompts: [] }, { prompts: [{}] }]) expect(promptOf(spec)).toBeNull();
  });

  it("shows an example with the names of the template", () => {
    expect(exampleOf("{{>manners}} Summarize: {{text}} for {{ who }}, {{text}}")).toBe('{"text": "…", "who": "…"}');
    expect(exampleOf("---\na: '{{b}}'\n---\n{{#if x}}{{else}}{{/if}}")).toBe('{"name": "Ada"}');
    expect(exampleOf(null)).toBe('{"name": "Ada"}');
  });
});
