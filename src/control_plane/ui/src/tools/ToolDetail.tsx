/** An object of kind Tool: what it calls, with what, and who uses it. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactElement } from "react";

import { objectQuery } from "../api/queries.ts";
import type { Summary } from "../api/types.ts";
import { Icon } from "../shell/icons.tsx";
import { CopyButton, ObjectLink } from "../shell/parts.tsx";
import { Failure, Loading, Notice } from "../shell/states.tsx";
import { Head } from "./Head.tsx";
import { inputOf, type Target, targetOf } from "./target.ts";

export function ToolDetail({ tool }: { tool: Summary }): ReactElement {
  const { namespace, name } = tool;
  const object = useQuery(objectQuery({ plural: "tools", namespace, name }));
  return (
    <div className="stack">
      <Head object={tool}>
        <span className="grow" />
        <Link to="/graph" search={{ focus: `Tool/${namespace}/${name}` }} className="button">
          <Icon name="graph" />
          Who uses it
        </Link>
      </Head>
      {object.error && !object.data ? (
        <Failure error={object.error} retry={() => void object.refetch()} what="this tool" namespace={namespace} />
      ) : object.data ? (
        <Spec spec={object.data.spec} namespace={namespace} />
      ) : (
        <Loading lines={4} />
      )}
    </div>
  );
}

function Spec({ spec, namespace }: { spec: Record<string, unknown>; namespace: string }): ReactElement {
  const target = targetOf(spec, namespace);
  const input = inputOf(spec);
  const schema = JSON.stringify(input, null, 2);
  return (
    <section className="card tool" aria-label={String(spec.name)}>
      <div className="tool-body">
        <div className="stack grow">
          <div>
            <code className="tool-name">{String(spec.name)}</code>
            {typeof spec.description === "string" && <span className="muted tool-description">{spec.description}</span>}
          </div>
          {target && (
            <p>
              It calls <TargetView target={target} />
            </p>
          )}
          <Notice tone="idle" icon="link">
            It cannot be called from here: agents and flows call it, and their chats show each call.
          </Notice>
        </div>
        {input !== undefined && (
          <div className="grow">
            <div className="row">
              <h3 className="grow">{Array.isArray(input) ? "Parameters" : "Schema"}</h3>
              <CopyButton text={() => schema} />
            </div>
            <pre className="code" tabIndex={0} aria-label="Schema">
              {schema}
            </pre>
          </div>
        )}
      </div>
    </section>
  );
}

function TargetView({ target }: { target: Target }): ReactElement {
  if ("text" in target) return <code>{target.text}</code>;
  if (target.kind !== "MCPServer" && target.kind !== "RemoteMCPServer") {
    return (
      <>
        {target.kind} <ObjectLink {...target} />
      </>
    );
  }
  return (
    <>
      {target.kind} <Link to="/tools" search={{ server: `${target.kind}/${target.namespace}/${target.name}` }}>{target.name}</Link>
    </>
  );
}
