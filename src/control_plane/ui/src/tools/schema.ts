/**
 * Form fields from a JSON Schema, and arguments from the input.
 *
 * Schemas that a form can show well become fields: texts, numbers, switches, choices, lists of those, and objects of those. Any
 * other schema becomes one field of JSON, so every schema is supported.
 */

export type Schema = Record<string, unknown>;

export type FieldType = "text" | "longtext" | "number" | "integer" | "boolean" | "choice" | "list" | "json" | "group";

export interface Field {
  /** Names from the root, joined by slashes: the key of its value. */
  id: string;
  name: string;
  label: string;
  description: string | null;
  required: boolean;
  type: FieldType;
  /** For a choice: the values as JSON, and their labels. */
  choices: { value: string; label: string }[];
  /** For a list: the field of an element. */
  item: Field | null;
  /** For a group: its fields. */
  fields: Field[];
  schema: Schema;
}

/** Input by the fields' ids; an absent one is empty. */
export type Values = Record<string, string>;

const DEPTH = 5;

/** Returns the fields for an object's properties; null if the schema is no plain object and only JSON can be entered. */
export function fieldsOf(schema: Schema | null, root: Schema | null = schema, path = "", depth = 0): Field[] | null {
  if (!schema) return [];
  const type = schema.type ?? (schema.properties ? "object" : undefined);
  if (type !== "object" && type !== undefined) return null;
  if (["oneOf", "anyOf", "allOf", "if"].some((word) => word in schema)) return null;
  const properties = (schema.properties ?? {}) as Record<string, unknown>;
  if (!Object.keys(properties).length && schema.additionalProperties && depth > 0) return null;
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  return Object.entries(properties).map(([name, value]) => fieldOf(name, value, required.has(name), root, path, depth));
}

function fieldOf(name: string, value: unknown, required: boolean, root: Schema | null, path: string, depth: number): Field {
  const schema = simplified(value, root);
  const id = path ? `${path}/${name}` : name;
  const field: Field = {
    id,
    name,
    label: typeof schema.title === "string" ? schema.title : name,
    description: typeof schema.description === "string" ? schema.description : null,
    required,
    type: "json",
    choices: [],
    item: null,
    fields: [],
    schema,
  };
  const choices = "const" in schema ? [schema.const] : schema.enum;
  if (Array.isArray(choices)) {
    return { ...field, type: "choice", choices: choices.map((one) => ({ value: JSON.stringify(one), label: text(one) })) };
  }
  switch (schema.type) {
    case "string": {
      const long = (typeof schema.maxLength === "number" && schema.maxLength > 200) || schema.contentMediaType !== undefined;
      return { ...field, type: long ? "longtext" : "text" };
    }
    case "number":
    case "integer":
    case "boolean":
      return { ...field, type: schema.type };
    case "array": {
      const item = schema.items ? fieldOf("item", schema.items, true, root, id, depth + 1) : null;
      return item && ["text", "number", "integer"].includes(item.type) ? { ...field, type: "list", item } : field;
    }
    default: {
      const fields = schema.type === "object" || schema.properties ? depth < DEPTH && fieldsOf(schema, root, id, depth + 1) : null;
      return fields && fields.length ? { ...field, type: "group", fields } : field;
    }
  }
}

/** Resolves references, and simplifies "this or null" to this. */
function simplified(value: unknown, root: Schema | null): Schema {
  let schema: Schema = isObject(value) ? value : {};
  for (let step = 0; step < 8; step++) {
    if (typeof schema.$ref === "string") {
      const { $ref, ...beside } = schema;
      const target = pointed(root, $ref as string);
      if (!target) return { ...beside, type: undefined };
      schema = { ...target, ...beside };
      continue;
    }
    const some = schema.anyOf ?? schema.oneOf;
    if (Array.isArray(some)) {
      const real = some.filter((one) => !(isObject(one) && one.type === "null"));
      if (real.length !== 1 || !isObject(real[0])) return schema;
      const { anyOf: _any, oneOf: _one, ...beside } = schema;
      schema = { ...real[0], ...beside };
      continue;
    }
    if (Array.isArray(schema.type)) {
      const real = schema.type.filter((one) => one !== "null");
      if (real.length !== 1) return { ...schema, type: undefined };
      schema = { ...schema, type: real[0] };
      continue;
    }
    return schema;
  }
  // A reference that leads to itself.
  return {};
}

function pointed(root: Schema | null, reference: string): Schema | null {
  if (!reference.startsWith("#")) return null;
  let at: unknown = root;
  for (const part of reference.slice(1).split("/").filter(Boolean)) {
    at = isObject(at) ? at[decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~")] : undefined;
  }
  return isObject(at) ? at : null;
}

/** Returns the entry of a field; names that every object has, such as `constructor`, have none by themselves. */
export function entryOf(entries: Record<string, string>, id: string): string | undefined {
  return Object.hasOwn(entries, id) ? entries[id] : undefined;
}

/** Returns the initial input: the schema's defaults. */
export function initial(fields: readonly Field[]): Values {
  const values: Values = {};
  for (const field of fields) {
    if (field.type === "group") Object.assign(values, initial(field.fields));
    else if (field.schema.default !== undefined && field.schema.default !== null) {
      values[field.id] = shown(field, field.schema.default);
    } else if (field.type === "choice" && "const" in field.schema) values[field.id] = field.choices[0]?.value ?? "";
  }
  return values;
}

function shown(field: Field, value: unknown): string {
  if (field.type === "json" || field.type === "choice") return JSON.stringify(value);
  if (field.type === "list" && Array.isArray(value)) return value.map(text).join("\n");
  return text(value);
}

export interface Collected {
  args: Record<string, unknown>;
  /** Errors by field id, each as the end of a sentence that begins with the field's name. */
  errors: Record<string, string>;
}

export function collect(fields: readonly Field[], values: Values): Collected {
  const result: Collected = { args: {}, errors: {} };
  for (const field of fields) {
    if (field.type === "group") {
      const inner = collect(field.fields, values);
      const typed = fieldIds(field).some((id) => entryOf(values, id)?.trim());
      if (typed || field.required) {
        result.args[field.name] = inner.args;
        Object.assign(result.errors, inner.errors);
      }
      continue;
    }
    const raw = entryOf(values, field.id) ?? "";
    if (raw.trim() === "" && field.type !== "longtext" && !(field.type === "text" && raw !== "")) {
      if (field.required) result.errors[field.id] = "is required";
      continue;
    }
    const read = parse(field, raw);
    if ("error" in read) result.errors[field.id] = read.error;
    else result.args[field.name] = read.value;
  }
  return result;
}

function fieldIds(field: Field): string[] {
  return field.type === "group" ? field.fields.flatMap(fieldIds) : [field.id];
}

type Read = { value: unknown } | { error: string };

function parse(field: Field, raw: string): Read {
  switch (field.type) {
    case "boolean":
      return { value: raw === "true" };
    case "number":
    case "integer":
      return number(field.schema, raw, field.type === "integer");
    case "list": {
      const values: unknown[] = [];
      for (const line of raw.split("\n").filter((one) => one.trim() !== "")) {
        const read: Read = field.item ? parse(field.item, line) : { value: line };
        if ("error" in read) return { error: `has a line that ${read.error}: ${line.trim()}` };
        values.push(read.value);
      }
      return { value: values };
    }
    case "choice":
    case "json":
      try {
        return { value: JSON.parse(raw) as unknown };
      } catch (error) {
        return { error: `is not JSON: ${error instanceof Error ? error.message : String(error)}` };
      }
    default:
      return string(field.schema, raw);
  }
}

function number(schema: Schema, raw: string, whole: boolean): Read {
  const value = Number(raw.trim());
  if (!Number.isFinite(value)) return { error: "must be a number" };
  if (whole && !Number.isInteger(value)) return { error: "must be a whole number" };
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum } = schema;
  if (typeof minimum === "number" && value < minimum) return { error: `must be at least ${minimum}` };
  if (typeof maximum === "number" && value > maximum) return { error: `must be at most ${maximum}` };
  if (typeof exclusiveMinimum === "number" && value <= exclusiveMinimum) return { error: `must be more than ${exclusiveMinimum}` };
  if (typeof exclusiveMaximum === "number" && value >= exclusiveMaximum) return { error: `must be less than ${exclusiveMaximum}` };
  return { value };
}

function string(schema: Schema, raw: string): Read {
  const length = [...raw].length;
  if (typeof schema.minLength === "number" && length < schema.minLength) return { error: `needs at least ${schema.minLength} characters` };
  if (typeof schema.maxLength === "number" && length > schema.maxLength) return { error: `may have at most ${schema.maxLength} characters` };
  if (typeof schema.pattern === "string") {
    try {
      if (!new RegExp(schema.pattern, "u").test(raw)) return { error: `must match ${schema.pattern}` };
    } catch {
      // A pattern that is invalid in JavaScript is left to the server.
    }
  }
  return { value: raw };
}

function isObject(value: unknown): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function text(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}
