/** Form for a tool's arguments; submitting calls the tool through the gateway, as the user. */

import { type FormEvent, type ReactElement, useEffect, useId, useMemo, useRef, useState } from "react";

import { ApiError } from "../api/client.ts";
import type { ServerTool } from "../api/types.ts";
import { duration } from "../object/timeline.ts";
import { Icon } from "../shell/icons.tsx";
import { CopyButton, SubmitOrStop } from "../shell/parts.tsx";
import { Notice } from "../shell/states.tsx";
import { callTool, type Content, RpcError, type ToolResult } from "./mcp.ts";
import { collect, entryOf, type Field, fieldsOf, initial, type Values } from "./schema.ts";

type Outcome = { result: ToolResult; tookMs: number } | { error: string; hint: string | null; tookMs: number } | null;

export function ToolForm({ tool, callPath }: { tool: ServerTool; callPath: string }): ReactElement {
  const fields = useMemo(() => fieldsOf(tool.inputSchema), [tool.inputSchema]);
  const [values, setValues] = useState<Values>(() => initial(fields ?? []));
  const [asJson, setAsJson] = useState(fields === null);
  const [json, setJson] = useState("{}");
  const [errors, setErrors] = useState<Record<string, string>>({});
  const [outcome, setOutcome] = useState<Outcome>(null);
  const [running, setRunning] = useState<AbortController | null>(null);
  const id = useId();
  const form = useRef<HTMLFormElement>(null);
  const inFlight = useRef<AbortController | null>(null);
  useEffect(() => () => inFlight.current?.abort(), []);

  const submit = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    const read = asJson ? parsed(json) : collect(fields ?? [], values);
    setErrors(read.errors);
    const wrong = Object.keys(read.errors)[0];
    if (wrong !== undefined) {
      form.current?.querySelector<HTMLElement>(`[data-field="${CSS.escape(wrong)}"]`)?.focus();
      return;
    }
    const stop = new AbortController();
    inFlight.current = stop;
    setRunning(stop);
    const began = performance.now();
    const took = (): number => performance.now() - began;
    try {
      setOutcome({ result: await callTool(callPath, tool.name, read.args, stop.signal), tookMs: took() });
    } catch (error) {
      if (stop.signal.aborted) setOutcome({ error: "Stopped.", hint: null, tookMs: took() });
      else setOutcome({ ...explained(error), tookMs: took() });
    }
    setRunning(null);
  };

  const toggle = (): void => {
    if (!asJson) setJson(JSON.stringify(collect(fields ?? [], values).args, null, 2));
    setErrors({});
    setAsJson(!asJson);
  };

  return (
    <div className="stack">
      <form ref={form} className="tool-form" onSubmit={(event) => void submit(event)} noValidate>
        {asJson ? (
          <div className="field">
            <label htmlFor={`${id}-json`}>Arguments, as JSON</label>
            <textarea
              id={`${id}-json`}
              className="input mono"
              rows={6}
              spellCheck={false}
              value={json}
              onChange={(event) => setJson(event.target.value)}
              data-field=""
              aria-invalid={"" in errors}
              aria-describedby={`${id}-json-error`}
            />
            <span id={`${id}-json-error`} className="field-error">
              {errors[""]}
            </span>
          </div>
        ) : fields?.length ? (
          fields.map((field) => <FieldView key={field.id} field={field} prefix={id} values={values} errors={errors} change={(key, value) => setValues((before) => ({ ...before, [key]: value }))} />)
        ) : (
          <p className="muted">It takes no arguments.</p>
        )}
        <div className="row wrap">
          <SubmitOrStop label={`Call ${tool.name.length > 24 ? "the tool" : tool.name}`} icon="play" stop={running && (() => running.abort())} />
          {fields !== null && fields.length > 0 && (
            <button type="button" className="button quiet" onClick={toggle}>
              {asJson ? "Back to the form" : "Edit as JSON"}
            </button>
          )}
          {running && <span className="muted">Running …</span>}
        </div>
      </form>
      <div aria-live="polite">{outcome && <OutcomeView outcome={outcome} />}</div>
    </div>
  );
}

function parsed(json: string): { args: Record<string, unknown>; errors: Record<string, string> } {
  try {
    const args: unknown = JSON.parse(json || "{}");
    if (typeof args === "object" && args !== null && !Array.isArray(args)) return { args: args as Record<string, unknown>, errors: {} };
    return { args: {}, errors: { "": "Arguments are an object, in braces." } };
  } catch (error) {
    return { args: {}, errors: { "": error instanceof Error ? error.message : String(error) } };
  }
}

function explained(error: unknown): { error: string; hint: string | null } {
  const message = error instanceof Error ? error.message : String(error);
  if (error instanceof RpcError) return { error: message, hint: `The server refused the call (code ${error.code}).` };
  if (!(error instanceof ApiError)) return { error: message, hint: null };
  const hint: Record<number, string> = {
    401: "The gateway does not accept your token.",
    403: "You need the right to create mcpservers/invoke in its namespace: the ClusterRole recif-invoker gives it.",
    404: "The gateway knows no such server, or its session ended.",
    503: "The server has no Pod that could answer.",
    504: "The server did not answer in time.",
  };
  return { error: message, hint: hint[error.status] ?? null };
}

function OutcomeView({ outcome }: { outcome: NonNullable<Outcome> }): ReactElement {
  if ("error" in outcome) {
    return (
      <Notice tone="bad">
        <p>{outcome.error}</p>
        {outcome.hint && <p className="small muted">{outcome.hint}</p>}
      </Notice>
    );
  }
  const { result, tookMs } = outcome;
  const content = result.content ?? [];
  const whole = content.map((part) => part.text ?? JSON.stringify(part)).join("\n");
  return (
    <div className="outcome" data-testid="result">
      <div className="row">
        <span className={`phase grow tone-${result.isError ? "bad" : "good"}`}>
          <Icon name={result.isError ? "warn" : "check"} />
          {result.isError ? "The tool reports an error" : "Answered"}
          <span className="muted nums"> in {duration(tookMs)}</span>
        </span>
        <CopyButton text={() => whole} />
      </div>
      {content.map((part, index) => (
        <Part key={index} part={part} />
      ))}
      {!content.length && result.structuredContent === undefined && <p className="muted">An empty answer.</p>}
      {result.structuredContent !== undefined && (
        <details open={!content.length}>
          <summary>Structured content</summary>
          <pre className="code" tabIndex={0}>
            {JSON.stringify(result.structuredContent, null, 2)}
          </pre>
        </details>
      )}
    </div>
  );
}

function Part({ part }: { part: Content }): ReactElement {
  if (part.type === "text") {
    return (
      <pre className="code wrapped" tabIndex={0}>
        {part.text}
      </pre>
    );
  }
  if (part.type === "image" || part.type === "audio") return <p className="muted">{`${part.type === "image" ? "An image" : "Audio"} of type ${part.mimeType ?? "unknown"}, ${part.data?.length ?? 0} characters of base64.`}</p>;
  return (
    <pre className="code" tabIndex={0}>
      {JSON.stringify(part, null, 2)}
    </pre>
  );
}

interface FieldProps {
  field: Field;
  prefix: string;
  values: Values;
  errors: Record<string, string>;
  change: (id: string, value: string) => void;
}

/** Field of a form, or a group of them. */
export function FieldView(props: FieldProps): ReactElement {
  const { field, prefix, values, errors } = props;
  if (field.type === "group") {
    return (
      <fieldset className="group">
        <legend>{field.label}</legend>
        {field.description && <p className="small muted">{field.description}</p>}
        {field.fields.map((inner) => (
          <FieldView key={inner.id} {...props} field={inner} />
        ))}
      </fieldset>
    );
  }
  const id = `${prefix}-${field.id}`;
  const error = entryOf(errors, field.id);
  return (
    <div className="field">
      <label htmlFor={id}>
        {field.label}
        {field.required ? <span className="muted"> required</span> : null}
      </label>
      <Input {...props} value={entryOf(values, field.id) ?? ""} id={id} />
      {(field.description || field.type === "list" || field.type === "json") && (
        <span id={`${id}-help`} className="small muted">
          {[field.description, field.type === "list" ? "One per line." : field.type === "json" ? "As JSON." : null].filter(Boolean).join(" ")}
        </span>
      )}
      {error && (
        <span id={`${id}-error`} className="field-error" role="alert">
          {field.label} {error}
        </span>
      )}
    </div>
  );
}

function Input({ field, value, errors, change, id }: FieldProps & { value: string; id: string }): ReactElement {
  const shared = {
    id,
    "data-field": field.id,
    "aria-invalid": Object.hasOwn(errors, field.id),
    "aria-required": field.required,
    "aria-describedby": `${id}-help ${id}-error`,
    value,
    onChange: (event: { target: { value: string } }) => change(field.id, event.target.value),
  };
  switch (field.type) {
    case "choice":
      return (
        <select className="input" {...shared}>
          <option value="">–</option>
          {field.choices.map((choice) => (
            <option key={choice.value} value={choice.value}>
              {choice.label}
            </option>
          ))}
        </select>
      );
    case "boolean":
      return (
        <select className="input" {...shared}>
          <option value="">–</option>
          <option value="true">yes</option>
          <option value="false">no</option>
        </select>
      );
    case "longtext":
    case "list":
      return <textarea className="input" rows={field.type === "list" ? 3 : 5} {...shared} />;
    case "json":
      return <textarea className="input mono" rows={3} spellCheck={false} placeholder={"{}"} {...shared} />;
    default:
      return <input className="input" type="text" inputMode={field.type === "text" ? "text" : "decimal"} autoComplete="off" placeholder={example(field)} {...shared} />;
  }
}

function example(field: Field): string | undefined {
  const { examples } = field.schema;
  return Array.isArray(examples) && examples.length ? `for example ${String(examples[0])}` : undefined;
}
