/** Graph for a narrow window: a list of the objects, each with what it refers to. */

import { type ReactElement, useMemo } from "react";

import { kindOf } from "../api/kinds.ts";
import type { Graph, GraphNode } from "../api/types.ts";
import { ToneSign } from "../shell/icons.tsx";
import { ObjectLink } from "../shell/parts.tsx";
import { idOf } from "./excerpt.ts";
import { stateOfNode } from "./nodeState.ts";
import { references } from "./references.ts";

export function GraphList({ graph, focus }: { graph: Graph; focus: string | undefined }): ReactElement {
  const list = useMemo(() => references(graph, focus), [graph, focus]);
  return (
    <ul className="card graph-list" aria-label="Objects, each with what it refers to">
      {list.map(({ node, uses }) => (
        <li key={idOf(node)}>
          <Entry node={node} broken={false} />
          {uses.length > 0 && (
            <ul aria-label={`What ${node.name} refers to`}>
              {uses.map((use) => (
                <li key={idOf(use.node)}>
                  <Entry {...use} />
                </li>
              ))}
            </ul>
          )}
        </li>
      ))}
    </ul>
  );
}

function Entry({ node, broken }: { node: GraphNode; broken: boolean }): ReactElement {
  const { text, tone } = stateOfNode(node);
  return (
    <div className={`row tone-${tone}`} data-node={idOf(node)}>
      <ToneSign tone={tone} />
      <span className="grow">
        {kindOf(node.kind) && !node.missing ? <ObjectLink {...node} /> : <span>{node.name}</span>}
        <span className="muted small entry-kind">
          {node.kind} · {node.namespace}
        </span>
      </span>
      <span className={`small ${broken ? "broken-reference" : "muted"}`}>{broken && !node.missing ? `broken: ${text}` : text}</span>
    </div>
  );
}
