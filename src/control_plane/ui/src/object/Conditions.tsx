import type { ReactElement } from "react";

import type { Condition } from "../api/types.ts";
import { ToneSign } from "../shell/icons.tsx";
import { Ago } from "../shell/parts.tsx";

/** Time of the conditions that the schema gives a new object by default; it is no real one. */
const UNDATED = "1970-01-01T00:00:00Z";

/** Conditions for which False is good. */
const NEGATIVE = new Set(["Stalled", "Reconciling"]);

function toneOf({ type, status }: Condition): "good" | "bad" | "busy" | "idle" {
  if (status === "Unknown") return "idle";
  if (!NEGATIVE.has(type)) return status === "True" ? "good" : "bad";
  if (status === "False") return "good";
  return type === "Stalled" ? "bad" : "busy";
}

export function Conditions({ conditions }: { conditions: readonly Condition[] }): ReactElement {
  if (!conditions.length) return <p className="body muted">None yet.</p>;
  return (
    <ul className="lines">
      {conditions.map((condition, index) => {
        const tone = toneOf(condition);
        // Several conditions often have the same message.
        const isFirst = conditions.findIndex((other) => other.message === condition.message) === index;
        return (
          <li key={condition.type} className="condition">
            <span className={`phase tone-${tone}`}>
              <ToneSign tone={tone} />
            </span>
            <div className="grow">
              <div className="row wrap condition-head">
                <strong>{condition.type}</strong>
                <span className="small muted">
                  {condition.status}
                  {condition.reason && ` · ${condition.reason}`}
                </span>
              </div>
              {condition.message && isFirst && <p className="small muted">{condition.message}</p>}
            </div>
            <span className="small muted">
              <Ago at={condition.lastTransitionTime === UNDATED ? null : condition.lastTransitionTime} />
            </span>
          </li>
        );
      })}
    </ul>
  );
}
