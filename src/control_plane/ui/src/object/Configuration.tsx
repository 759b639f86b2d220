/** What is written for the Pods of an object: a table of keys and texts per ConfigMap or Secret. */

import { useQuery } from "@tanstack/react-query";
import type { ReactElement } from "react";

import { type Name, renderedQuery } from "../api/queries.ts";
import type { RenderedFile } from "../api/types.ts";
import { Card, CopyButton } from "../shell/parts.tsx";
import { Failure, Loading, State } from "../shell/states.tsx";

export function Configuration({ name, workload }: { name: Name; workload: boolean }): ReactElement {
  const rendered = useQuery(renderedQuery(name));
  if (rendered.error) return <Failure error={rendered.error} what="the configuration" retry={() => void rendered.refetch()} />;
  if (!rendered.data) return <Loading />;
  if (!rendered.data.files.length) {
    return (
      <State icon="empty" title="No configuration">
        {workload ? "Nothing is written for it yet: that happens in the phase Rendering." : "Objects of this kind have no configuration of their own: it is written for the objects that refer to them."}
      </State>
    );
  }
  return (
    <div className="stack">
      <p className="muted small">What is written for its Pods to read. Values that come from Secrets are masked.</p>
      <Files files={rendered.data.files} />
    </div>
  );
}

export function Files({ files }: { files: readonly RenderedFile[] }): ReactElement {
  const objects = [...new Set(files.map((file) => file.object))];
  return (
    <>
      {objects.map((object) => (
        <Card key={object} title={object} flush>
          {/* The roles are explicit, as rows that a phone shows as grids lose those of their elements. */}
          <table role="table" className="files" aria-label={object}>
            <tbody role="rowgroup">
              {files
                .filter((file) => file.object === object)
                .map((file) => (
                  <tr role="row" key={file.name}>
                    <th role="rowheader" scope="row" className="mono">
                      {file.name}
                    </th>
                    <td role="cell">
                      <Text text={pretty(file.text)} />
                    </td>
                    <td role="cell">
                      <CopyButton text={() => file.text} />
                    </td>
                  </tr>
                ))}
            </tbody>
          </table>
        </Card>
      ))}
    </>
  );
}

function Text({ text }: { text: string }): ReactElement {
  if (!text.trimEnd().includes("\n")) return <code>{text}</code>;
  return (
    <pre className="code" tabIndex={0}>
      {text}
    </pre>
  );
}

function pretty(text: string): string {
  if (!/^\s*[[{]/.test(text)) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
