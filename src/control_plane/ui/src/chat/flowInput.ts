/** What a flow takes, read from the frontmatter of its prompt: https://google.github.io/dotprompt/reference/frontmatter/ */

import { parse } from "yaml";

import type { Schema } from "../tools/schema.ts";

const FRONTMATTER = /^---[ \t]*\r?\n([\s\S]*?)\r?\n---[ \t]*(?:\r?\n|$)/;
const SCALARS = new Set(["boolean", "integer", "null", "number", "string"]);

/** The prompt of a flow that answers: its text, or the name of the Prompt that has it. */
export type PromptSource = { content: string } | { prompt: string } | null;

/** Returns the first prompt of a flow's spec, which is the one that answers. */
export function promptOf(spec: unknown): PromptSource {
  const prompts = isObject(spec) && Array.isArray(spec.prompts) ? (spec.prompts as unknown[]) : [];
  const first = prompts[0];
  if (!isObject(first)) return null;
  if (isObject(first.prompt) && typeof first.prompt.content === "string") return { content: first.prompt.content };
  if (isObject(first.promptRef) && typeof first.promptRef.name === "string") return { prompt: first.promptRef.name };
  return null;
}

/** Returns the JSON Schema of the prompt's variables, with their defaults; null if it has none, or one that is not understood here. */
export function inputSchema(content: string): Schema | null {
  const frontmatter = FRONTMATTER.exec(content)?.[1];
  if (frontmatter === undefined) return null;
  let read: unknown;
  try {
    read = parse(frontmatter, { maxAliasCount: 20 });
  } catch {
    return null;
  }
  const input = isObject(read) && isObject(read.input) ? read.input : {};
  const schema = isObject(input.schema) ? jsonSchema(input.schema) : null;
  if (!schema || !isObject(schema.properties)) return null;
  const defaults = isObject(input.default) ? input.default : {};
  const properties = Object.entries(schema.properties).map(([name, property]) => [name, isObject(property) && Object.hasOwn(defaults, name) ? { ...property, default: defaults[name] } : property]);
  const required = Array.isArray(schema.required) ? schema.required.filter((name) => !Object.hasOwn(defaults, String(name))) : [];
  return { ...schema, properties: Object.fromEntries(properties) as Schema, required };
}

/** Converts Picoschema; a schema that is JSON Schema already stays as it is. Null: it is not understood. */
function jsonSchema(schema: Schema): Schema | null {
  if (typeof schema.type === "string" && (SCALARS.has(schema.type) || ["any", "object", "array"].includes(schema.type))) return schema;
  if (isObject(schema.properties)) return { ...schema, type: "object" };
  const properties: [string, Schema][] = [];
  const required: string[] = [];
  for (const [key, value] of Object.entries(schema)) {
    if (key === "(*)") return null;
    const [, name = "", optional, kind] = /^([^(?]+)(\?)?(?:\((.*)\))?$/s.exec(key) ?? [];
    const property = kind === undefined ? typed(value) : ofKind(kind, value);
    if (!name || !property) return null;
    if (!optional) required.push(name);
    properties.push([name, property]);
  }
  return { type: "object", properties: Object.fromEntries(properties), required };
}

/** Converts `type, description`, or properties. */
function typed(value: unknown): Schema | null {
  if (isObject(value)) return jsonSchema(value);
  if (typeof value !== "string") return null;
  const [type, description] = split(value);
  if (type !== "any" && !SCALARS.has(type)) return null;
  return { ...(type !== "any" && { type }), ...(description && { description }) };
}

/** Converts the value of a property whose name is followed by `(kind, description)`. */
function ofKind(text: string, value: unknown): Schema | null {
  const [kind, description] = split(text);
  const about = description ? { description } : {};
  if (kind === "enum") return Array.isArray(value) ? { enum: value, ...about } : null;
  const inner = typed(value);
  if (!inner) return null;
  if (kind === "array") return { type: "array", items: inner, ...about };
  return kind === "object" ? { ...inner, ...about } : null;
}

function split(text: string): [string, string | null] {
  const at = text.indexOf(",");
  return at < 0 ? [text.trim(), null] : [text.slice(0, at).trim(), text.slice(at + 1).trim()];
}

/** Returns variables for an example, of a prompt without a schema: the names that its template shows. */
export function exampleOf(content: string | null): string {
  const template = (content ?? "").replace(FRONTMATTER, "");
  const names = [...template.matchAll(/\{\{\{?\s*([\p{L}_][\p{L}\p{N}_]*)\s*\}?\}\}/gu)].map((match) => match[1] ?? "");
  const variables = [...new Set(names)].filter((name) => name !== "else" && name !== "this");
  return variables.length ? `{${variables.map((name) => `"${name}": "…"`).join(", ")}}` : '{"name": "Ada"}';
}

function isObject(value: unknown): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
