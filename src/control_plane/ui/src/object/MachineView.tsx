/** State machine of a kind as a diagram, with the object's phase highlighted and the possible next moves as text. */

import { type ReactElement, useMemo } from "react";

import { toneOf } from "../api/kinds.ts";
import { ANYWHERE, type Machine } from "../api/types.ts";
import { ToneSign } from "../shell/icons.tsx";
import { Card, Phase } from "../shell/parts.tsx";
import { BOX, diagram, isDrawn } from "./machineLayout.ts";

export function MachineView({ machine, phase, visited }: { machine: Machine; phase: string | null; visited: Set<string> }): ReactElement {
  const drawing = useMemo(() => diagram(machine), [machine]);
  const next = machine.edges.filter((edge) => edge.from === phase && isDrawn(edge, machine));
  const anywhere = machine.edges.filter((edge) => edge.from === ANYWHERE || (machine.phases.includes(edge.from) && !isDrawn(edge, machine)));
  const rules = new Map(anywhere.map((edge) => [`${edge.by} ${edge.to}`, edge]));
  return (
    <div className="stack">
      <Card title="State machine" flush>
        <ul className="machine-legend small muted" aria-label="What the diagram says">
          <li>
            <span className="machine-line lit" /> moves that are possible now
          </li>
          <li>
            <span className="machine-line visited" /> moves that it has made
          </li>
          <li>
            <span className="machine-line" /> other moves
          </li>
        </ul>
        <div className="machine" tabIndex={0} role="group" aria-label="Diagram, scrollable">
          <svg
            viewBox={`0 0 ${drawing.width} ${drawing.height}`}
            width={drawing.width}
            role="img"
            aria-label={`The phases ${machine.phases.join(", ")}. The object is in ${phase ?? "none yet"}.`}
          >
            <defs>
              {["plain", "visited", "lit"].map((name) => (
                <marker key={name} id={`head-${name}`} className={`head ${name}`} viewBox="0 0 8 8" refX="5.5" refY="4" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto">
                  <path d="M0 0.5L7 4L0 7.5Z" />
                </marker>
              ))}
            </defs>
            {[...drawing.arrows]
              .sort((a, b) => Number(a.from === phase) - Number(b.from === phase))
              .map((arrow) => {
                const look = arrow.from === phase ? "lit" : visited.has(`${arrow.from} ${arrow.to}`) ? "visited" : "plain";
                return (
                  <path
                    key={`${arrow.from} ${arrow.to}`}
                    d={arrow.path}
                    className={`arrow ${look}`}
                    markerEnd={`url(#head-${look})`}
                  >
                    <title>{`${arrow.from} → ${arrow.to}\n${arrow.why.join("\n")}`}</title>
                  </path>
                );
              })}
            {drawing.boxes.map((box) => {
              const tone = toneOf(box.phase);
              return (
                <g key={box.phase} transform={`translate(${box.x} ${box.y})`} className={`box tone-${tone}${box.phase === phase ? " lit" : ""}`} data-lit={box.phase === phase || undefined}>
                  <rect width={BOX.width} height={BOX.height} rx="8" />
                  <g transform="translate(9 12)">
                    <ToneSign tone={tone} />
                  </g>
                  <text x="31" y="25">
                    {box.phase}
                  </text>
                </g>
              );
            })}
          </svg>
        </div>
      </Card>
      <div className="overview">
        <Card title={phase ? `From ${phase} it may go to` : "It begins with"} flush>
          <Edges edges={phase ? next : machine.edges.filter((edge) => edge.from === "")} />
        </Card>
        <Card title="From several phases" flush>
          <Edges edges={[...rules.values()]} />
        </Card>
      </div>
    </div>
  );
}

function Edges({ edges }: { edges: readonly { to: string; by: string; why: string }[] }): ReactElement {
  if (!edges.length) return <p className="body muted">Nowhere.</p>;
  return (
    <ul className="lines">
      {edges.map((edge, index) => (
        <li key={index} className="edge">
          <Phase phase={edge.to} />
          <span className="grow">{edge.why}</span>
          <code className="muted">{edge.by}</code>
        </li>
      ))}
    </ul>
  );
}
