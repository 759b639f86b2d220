/**
 * Row of the fleet's table.
 *
 * While the table scrolls, two or three rows are mounted and unmounted in each frame. So a row has as few elements as possible,
 * and content for the pointer only is created on hover.
 */

import { memo, type ReactElement } from "react";

import { CALLS_WAIT } from "../api/kinds.ts";
import type { Summary } from "../api/types.ts";
import { Ago, fullTime, ObjectLink, Phase } from "../shell/parts.tsx";
import { shortWhy } from "./filter.ts";
import { keyOf } from "./merge.ts";

/** Describes what the object is by the kind's own printer columns, without those that are on the object's page only. */
export function details({ columns }: Pick<Summary, "columns">): string {
  const { Available, Endpoint, Transport, Protocol, ReadyFlows, Total, Tools, Category, Description, Approvals, ...others } = columns;
  return [
    ReadyFlows && `${ReadyFlows} of ${Total} flows`,
    Tools && `${Tools} ${Tools === "1" ? "tool" : "tools"}`,
    ...Object.values(others),
    // The default of the schema.
    Category !== "general" && Category,
    Approvals === CALLS_WAIT && "calls wait for a person",
    Description,
  ]
    .filter(Boolean)
    .join(" · ");
}

/** Returns the whole row as a tooltip, because the row itself may have no room. */
export function hint(object: Summary): string {
  const { namespace, name, phase, since, createdAt, replicas, why } = object;
  return [
    `${namespace}/${name}`,
    phase && since && `${phase} since ${fullTime(since)}`,
    `Made at ${fullTime(createdAt)}`,
    replicas && `${replicas.ready} of ${replicas.desired} Pods ready`,
    details(object),
    why,
  ]
    .filter(Boolean)
    .join("\n");
}

/** Memoized: it depends on nothing but its object and place. */
export const Row = memo(function Row(props: { object: Summary; index: number; start: number; size: number }): ReactElement {
  const { object, index, start, size } = props;
  const { kind, namespace, phase, ready, replicas, since, createdAt, why } = object;
  return (
    <div role="row" aria-rowindex={index + 2} data-index={index} data-key={keyOf(object)} className="cells table-row" style={{ top: start, height: size }}>
      <div role="cell" className="cell-name truncate">
        <ObjectLink {...object} className="row-name" />
      </div>
      <div role="cell" className="cell-phase">
        <Phase phase={phase} ready={ready} />
      </div>
      <div role="cell" className="cell-kind">
        {kind}
      </div>
      <div role="cell" className="cell-namespace truncate">
        {namespace}
      </div>
      <div role="cell" className={replicas ? "cell-pods nums" : "cell-pods muted"}>
        {replicas ? `${replicas.ready}/${replicas.desired}` : "–"}
      </div>
      <div role="cell" className="cell-details muted truncate">
        {details(object)}
      </div>
      <div role="cell" className="cell-since">
        <Ago at={since} />
      </div>
      <div role="cell" className="cell-age">
        <Ago at={createdAt} />
      </div>
      {why && (
        <div role="cell" className="cell-why truncate">
          {shortWhy(object)}
        </div>
      )}
    </div>
  );
});
