import { useQuery } from "@tanstack/react-query";
import type { ReactElement } from "react";

import { kindOf } from "../api/kinds.ts";
import { type Name, referencesQuery } from "../api/queries.ts";
import type { GraphNode } from "../api/types.ts";
import { knownStateOfNode } from "../graph/nodeState.ts";
import { Card, ObjectLink } from "../shell/parts.tsx";
import { Failure, Loading } from "../shell/states.tsx";
import { neighbours } from "./neighbours.ts";

/** Cards of the objects that this one refers to, and of those that refer to it. */
export function References({ name, kind }: { name: Name; kind: string }): ReactElement {
  const graph = useQuery({ ...referencesQuery(name), refetchInterval: 15_000 });
  if (!graph.data) {
    return (
      <Card title="Used by" flush>
        {graph.error ? <Failure error={graph.error} what="its references" retry={() => void graph.refetch()} /> : <div className="body"><Loading lines={2} /></div>}
      </Card>
    );
  }
  const { uses, usedBy } = neighbours(graph.data, `${kind}/${name.namespace}/${name.name}`);
  return (
    <>
      {uses.length > 0 && (
        <Card title="Uses" flush>
          <Nodes nodes={uses} namespace={name.namespace} />
        </Card>
      )}
      <Card title="Used by" flush>
        {usedBy.length > 0 ? <Nodes nodes={usedBy} namespace={name.namespace} /> : <p className="body muted">No object that you may see refers to it.</p>}
      </Card>
    </>
  );
}

function Nodes({ nodes, namespace }: { nodes: GraphNode[]; namespace: string }): ReactElement {
  return (
    <ul className="lines">
      {nodes.map((node) => {
        const state = knownStateOfNode(node);
        return (
          <li key={`${node.kind}/${node.namespace}/${node.name}`} className="child">
            <span className="muted small child-kind">{node.kind}</span>
            <div className="grow">
              {kindOf(node.kind) && !node.missing ? <ObjectLink kind={node.kind} namespace={node.namespace} name={node.name} /> : <span>{node.name}</span>}
              {node.namespace !== namespace && <p className="small muted">{`in ${node.namespace}`}</p>}
            </div>
            {state && <span className={`phase small tone-${state.tone}`}>{state.text}</span>}
          </li>
        );
      })}
    </ul>
  );
}
