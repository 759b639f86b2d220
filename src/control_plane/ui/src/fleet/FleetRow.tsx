/**
 * A row of the fleet's table.
 *
 * Two or three of them come and go in each frame while the table scrolls: a row has as few elements as it can, and whatever
 * only a pointer shows is made when one comes.
 */

import { memo, type ReactElement } from "react";

import type { Summary } from "../api/types.ts";
import { Ago, fullTime, ObjectLink, Phase } from "../shell/parts.tsx";
import { shortWhy } from "./filter.ts";
import { keyOf } from "./merge.ts";

/** Of these the table has columns of its own. */
const TOLD = new Set(["phase", "age", "replicas", "ready", "available", "reason", "status", "endpoint"]);

/** What the kind's own columns say, in a few words. */
export function details(object: Summary): string {
  return Object.entries(object.columns)
    .filter(([name, value]) => value && !TOLD.has(name.toLowerCase()))
    .map(([name, value]) => `${name} ${value}`)
    .join(" · ");
}

/** All of a row, for who points at it: the row itself may have no room. */
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

/** What it shows depends on nothing but its object and place. */
export const Row = memo(function Row(props: { object: Summary; index: number; start: number; size: number }): ReactElement {
  const { object, index, start, size } = props;
  const { kind, namespace, phase, replicas, since, createdAt, why } = object;
  return (
    <div role="row" aria-rowindex={index + 2} data-index={index} data-key={keyOf(object)} className="cells table-row" style={{ top: start, height: size }}>
      <div role="cell" className="cell-name truncate">
        <ObjectLink {...object} className="row-name" />
      </div>
      <div role="cell" className="cell-phase">
        <Phase phase={phase} />
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
