import { useQuery } from "@tanstack/react-query";
import type { ReactElement } from "react";

import { kindOf } from "../api/kinds.ts";
import { childrenQuery, type Name } from "../api/queries.ts";
import { ObjectLink } from "../shell/parts.tsx";
import { Failure, Loading } from "../shell/states.tsx";

/** Returns the tone of a child's state: "2/3 ready" of a Deployment, a phase of a Pod or of an object of ours, Applied, Missing. */
function toneOfState(state: string): "good" | "busy" | "bad" | "idle" {
  const pods = /^(\d+)\/(\d+) /.exec(state);
  if (pods) return pods[1] === pods[2] ? "good" : "busy";
  if (["Ready", "Running", "Available", "Applied", "Succeeded"].includes(state)) return "good";
  if (["Missing", "Failed", "Error"].includes(state)) return "bad";
  return state === "" ? "idle" : "busy";
}

export function Children({ name }: { name: Name }): ReactElement {
  const children = useQuery({ ...childrenQuery(name), refetchInterval: 5000 });
  if (children.error && !children.data) return <Failure error={children.error} what="its children" retry={() => void children.refetch()} />;
  if (!children.data) return <div className="body"><Loading lines={3} /></div>;
  if (!children.data.items.length) return <p className="body muted">Nothing was made for it.</p>;
  return (
    <ul className="lines">
      {children.data.items.map((child) => {
        const tone = toneOfState(child.state);
        return (
          <li key={`${child.kind}/${child.name}`} className="child">
            <span className="muted small child-kind">{child.kind}</span>
            <div className="grow">
              {kindOf(child.kind) ? <ObjectLink kind={child.kind} namespace={name.namespace} name={child.name} /> : <span>{child.name}</span>}
              {child.message && <p className="small muted">{child.message}</p>}
            </div>
            <span className={`phase small tone-${tone}`}>{child.state}</span>
          </li>
        );
      })}
    </ul>
  );
}
