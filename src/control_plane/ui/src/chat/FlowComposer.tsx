/** What a flow is asked with: the choice of a flow in a set, and a form for the variables of its prompt, or JSON. */

import "../tools/tools.css";

import { useQuery } from "@tanstack/react-query";
import { type Dispatch, type FormEvent, type ReactElement, type SetStateAction, useId, useMemo, useRef, useState } from "react";

import { pluralOf } from "../api/kinds.ts";
import { objectQuery } from "../api/queries.ts";
import { SubmitOrStop } from "../shell/parts.tsx";
import { collect, type Field, fieldsOf, initial, type Values } from "../tools/schema.ts";
import { FieldView } from "../tools/ToolForm.tsx";
import { Composer } from "./Composer.tsx";
import type { Conversation } from "./conversation.ts";
import { exampleOf, inputSchema, promptOf } from "./flowInput.ts";
import type { Target } from "./talk.ts";

interface Props {
  conversation: Conversation;
  target: Target;
  text: string;
  setText: (text: string) => void;
  flow: string | null;
  setFlow: (flow: string) => void;
  /** Input of each form, which outlives it while JSON is written. */
  inputs: Record<string, Values>;
  setInputs: Dispatch<SetStateAction<Record<string, Values>>>;
}

export function FlowComposer(props: Props): ReactElement {
  const { conversation, target, text, setText, setFlow, inputs, setInputs } = props;
  const isSet = target.kind === "FlowSet";
  const object = useQuery(objectQuery({ plural: pluralOf(target.kind), namespace: target.namespace, name: target.name }));
  const listed = isSet ? object.data?.spec.flows : null;
  const specs = Array.isArray(listed) ? (listed as { name?: unknown }[]) : [];
  const flows = specs.map((one) => String(one.name ?? ""));
  const flow = isSet ? (props.flow ?? flows[0] ?? null) : null;
  const source = promptOf(isSet ? specs.find((one) => one.name === flow) : object.data?.spec);
  const referred = source && "prompt" in source ? source.prompt : null;
  const prompt = useQuery({ ...objectQuery({ plural: "prompts", namespace: target.namespace, name: referred ?? "" }), enabled: referred !== null });
  const read = prompt.data?.spec.content;
  const content = source && "content" in source ? source.content : referred !== null && typeof read === "string" ? read : null;
  const fields = useMemo(() => {
    const schema = content === null ? null : inputSchema(content);
    return schema && fieldsOf(schema);
  }, [content]);
  const [asJson, setAsJson] = useState(false);
  const hasForm = fields !== null && fields.length > 0;
  // Another flow, or another prompt of it, has another form.
  const form = `${flow} ${content}`;
  return (
    <>
      {(flows.length > 0 || hasForm) && (
        <div className="row wrap">
          {flows.length > 0 && (
            <label className="row">
              <span className="muted">Flow</span>
              <select className="input" value={flow ?? ""} onChange={(event) => setFlow(event.target.value)}>
                {flows.map((name) => (
                  <option key={name}>{name}</option>
                ))}
              </select>
            </label>
          )}
          {hasForm && (
            <button type="button" className="button quiet" onClick={() => setAsJson(!asJson)}>
              {asJson ? "Back to the form" : "Write JSON"}
            </button>
          )}
        </div>
      )}
      {hasForm && !asJson ? (
        <VariablesForm
          key={form}
          fields={fields}
          values={inputs[form] ?? initial(fields)}
          change={(key, value) => setInputs((before) => ({ ...before, [form]: { ...(before[form] ?? initial(fields)), [key]: value } }))}
          conversation={conversation}
          flow={flow}
        />
      ) : (
        <Composer
          conversation={conversation}
          text={text}
          setText={setText}
          label="Variables, as JSON"
          placeholder={exampleOf(content)}
          body={(said) => JSON.parse(said) as object}
          flow={flow}
          mono
          check={problemOf}
        />
      )}
    </>
  );
}

interface FormProps {
  fields: readonly Field[];
  values: Values;
  change: (id: string, value: string) => void;
  conversation: Conversation;
  flow: string | null;
}

function VariablesForm({ fields, values, change, conversation, flow }: FormProps): ReactElement {
  const [errors, setErrors] = useState<Record<string, string>>({});
  const form = useRef<HTMLFormElement>(null);
  const id = useId();
  const busy = conversation.busy;
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (busy) return;
    const { args, errors: found } = collect(fields, values);
    setErrors(found);
    const wrong = Object.keys(found)[0];
    if (wrong !== undefined) form.current?.querySelector<HTMLElement>(`[data-field="${CSS.escape(wrong)}"]`)?.focus();
    else void conversation.send(JSON.stringify(args), flow, args);
  };
  return (
    <form ref={form} className="tool-form variables" onSubmit={submit} noValidate aria-label="Variables">
      {fields.map((field) => (
        <FieldView key={field.id} field={field} prefix={id} values={values} errors={errors} change={change} />
      ))}
      <div className="row">
        <SubmitOrStop label="Send" icon="send" stop={busy ? () => conversation.stop() : null} />
      </div>
    </form>
  );
}

function problemOf(text: string): string | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? null : "Variables are an object, in braces.";
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
