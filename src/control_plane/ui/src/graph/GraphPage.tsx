import "./graph.css";

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { type ReactElement, useMemo, useState } from "react";

import { isDegraded, kindOf, pluralOf } from "../api/kinds.ts";
import { graphQuery } from "../api/queries.ts";
import type { Graph, GraphEdge, GraphNode } from "../api/types.ts";
import { Icon, ToneSign } from "../shell/icons.tsx";
import { useNarrow } from "../shell/narrow.ts";
import { Card, count, ObjectLink, useTitle } from "../shell/parts.tsx";
import { Failure, Loading, Notice, State } from "../shell/states.tsx";
import { excerpt, idOf } from "./excerpt.ts";
import { GraphList } from "./GraphList.tsx";
import { around, layout, SIZES } from "./layout.ts";
import { stateOfNode } from "./nodeState.ts";

/** Limit of the nodes that are drawn; a larger picture is not readable. */
const MOST = 250;
/** Width in pixels below which a drawing would show less than two columns. */
const LIST = 600;

export function GraphPage(): ReactElement {
  useTitle("Graph");
  const { namespace, focus } = useSearch({ from: "/graph" });
  const navigate = useNavigate({ from: "/graph" });
  const graph = useQuery({ ...graphQuery(focus ? focus.split("/")[1] : namespace), placeholderData: keepPreviousData });
  return (
    <div className="page">
      <div className="page-head">
        <h1>Graph</h1>
        <span className="muted grow">Who refers to what</span>
        {focus ? (
          <Link to="/graph" search={namespace ? { namespace } : {}} className="button">
            <Icon name="close" />
            All around {focus.split("/").slice(1).join("/")}
          </Link>
        ) : (
          <Namespace value={namespace} change={(next) => void navigate({ search: next ? { namespace: next } : {}, replace: true })} graph={graph.data} />
        )}
      </div>
      {graph.error && !graph.data ? (
        <Failure error={graph.error} retry={() => void graph.refetch()} what="the graph" namespace={namespace} />
      ) : graph.data ? (
        <View graph={graph.data} focus={focus} />
      ) : (
        <Loading lines={8} />
      )}
    </div>
  );
}

function Namespace({ value, change, graph }: { value: string | undefined; change: (namespace: string | undefined) => void; graph: Graph | undefined }): ReactElement {
  // All namespaces seen so far: the graph of a chosen namespace contains no other.
  const [seen] = useState(() => new Set<string>());
  for (const node of graph?.nodes ?? []) seen.add(node.namespace);
  if (value) seen.add(value);
  return (
    <select className="input" style={{ width: "auto" }} aria-label="Namespace" value={value ?? ""} onChange={(event) => change(event.target.value || undefined)}>
      <option value="">All namespaces</option>
      {[...seen].sort().map((name) => (
        <option key={name}>{name}</option>
      ))}
    </select>
  );
}

function View({ graph, focus }: { graph: Graph; focus: string | undefined }): ReactElement {
  const shown = useMemo(() => {
    if (!focus) return graph;
    const ids = around(focus, graph.edges);
    return { nodes: graph.nodes.filter((node) => ids.has(idOf(node))), edges: graph.edges.filter((edge) => ids.has(edge.from) && ids.has(edge.to)) };
  }, [graph, focus]);
  const drawn = useMemo(() => excerpt(shown, focus, MOST), [shown, focus]);
  const narrow = useNarrow(LIST);
  const broken = shown.edges.filter((edge) => edge.broken);
  if (!shown.nodes.length) {
    return focus ? (
      <State icon="empty" title="Not in the graph">
        {focus} is not there, or you cannot see it.
      </State>
    ) : (
      <State icon="graph" title="Nothing to draw" action={<Link to="/" className="button">Back to fleet</Link>}>
        There are no objects here that could refer to one another.
      </State>
    );
  }
  return (
    <>
      {broken.length > 0 && <Broken edges={broken} />}
      {drawn !== shown && (
        <Notice tone="busy" icon="graph">
          Shown are {count(MOST)} of {count(shown.nodes.length)} objects{broken.length > 0 && ", those with broken references first"}:{" "}
          {count(shown.nodes.length - MOST)} more would be too many for one page.{!focus && " Look at one namespace, or around one object."}
        </Notice>
      )}
      {narrow ? <GraphList graph={drawn} focus={focus} /> : <Drawing graph={drawn} focus={focus} />}
      {drawn !== shown && <Parts graph={shown} />}
    </>
  );
}

function parts(id: string): { kind: string; namespace: string; name: string } {
  const [kind = "", namespace = "", ...name] = id.split("/");
  return { kind, namespace, name: name.join("/") };
}

function Broken({ edges }: { edges: readonly GraphEdge[] }): ReactElement {
  const [all, setAll] = useState(false);
  return (
    <Card title={<span className="phase tone-bad">{edges.length === 1 ? "1 broken reference" : `${count(edges.length)} broken references`}</span>} flush>
      <ul className="lines">
        {(all ? edges : edges.slice(0, 5)).map((edge) => {
          const [from, to] = [parts(edge.from), parts(edge.to)];
          return (
            <li key={`${edge.from} ${edge.to}`} className="row wrap">
              <span className="muted">{from.kind}</span>
              <ObjectLink {...from} />
              <span className="muted">in {from.namespace}</span>
              <span className="muted">refers to {to.kind}</span>
              {kindOf(to.kind) ? <ObjectLink {...to} /> : <span>{to.name}</span>}
              {to.namespace !== from.namespace && <span className="muted">in {to.namespace}</span>}
            </li>
          );
        })}
      </ul>
      {edges.length > 5 && (
        <button type="button" className="button quiet" onClick={() => setAll(!all)}>
          {all ? "Show fewer" : `Show all ${count(edges.length)}`}
        </button>
      )}
    </Card>
  );
}

/** Links to parts of a graph that is too large to draw: its largest namespaces and the objects with the most references. */
function Parts({ graph }: { graph: Graph }): ReactElement {
  const namespaces = new Map<string, number>();
  for (const node of graph.nodes) namespaces.set(node.namespace, (namespaces.get(node.namespace) ?? 0) + 1);
  const users = new Map<string, number>();
  for (const edge of graph.edges) users.set(edge.to, (users.get(edge.to) ?? 0) + 1);
  const most = [...users].sort((a, b) => b[1] - a[1]).slice(0, 12);
  return (
    <div className="tiles">
      <Card title="Namespaces" flush>
        <ul className="lines">
          {[...namespaces].sort((a, b) => b[1] - a[1]).slice(0, 12).map(([namespace, sum]) => (
            <li key={namespace}>
              <Link to="/graph" search={{ namespace }} className="grow">
                {namespace}
              </Link>
              <span className="muted nums">{count(sum)} objects</span>
            </li>
          ))}
        </ul>
      </Card>
      <Card title="Most referred to" flush>
        <ul className="lines">
          {most.map(([id, sum]) => (
            <li key={id}>
              <span className="muted small">{parts(id).kind}</span>
              <Link to="/graph" search={{ focus: id }} className="grow truncate">
                {parts(id).name}
              </Link>
              <span className="muted nums">{sum === 1 ? "1 user" : `${count(sum)} users`}</span>
            </li>
          ))}
        </ul>
      </Card>
    </div>
  );
}

const MARGIN = 12;

function Drawing({ graph, focus }: { graph: Graph; focus: string | undefined }): ReactElement {
  const placed = useMemo(() => layout(graph.nodes.map((node) => ({ id: idOf(node) })), graph.edges), [graph]);
  const [near, setNear] = useState<string | null>(null);
  const touched = useMemo(() => (near ? around(near, graph.edges) : null), [near, graph.edges]);
  // Names alone are ambiguous in a picture of several namespaces.
  const named = new Set(graph.nodes.map((node) => node.namespace)).size > 1;
  const byId = new Map(graph.nodes.map((node) => [idOf(node), node]));
  const [width, height] = [placed.width + 2 * MARGIN, placed.height + 2 * MARGIN];
  return (
    <>
      <ul className="legend small muted" aria-label="What the picture says">
        <li>From left to right: who refers, and to what</li>
        <li>
          <span className="legend-line broken" /> broken
        </li>
        <li>Point at an object to see what hangs on it, click to open it</li>
      </ul>
      <div className="graph" tabIndex={0} role="group" aria-label="Picture of the references, scrollable">
        <svg width={width} height={height} viewBox={`${-MARGIN} ${-MARGIN} ${width} ${height}`} className={touched ? "touched" : ""}>
          <title>{`${graph.nodes.length} objects and ${graph.edges.length} references between them`}</title>
          {graph.edges.map((edge) => {
            const [from, to] = [placed.nodes.get(edge.from), placed.nodes.get(edge.to)];
            if (!from || !to) return null;
            const lit = touched?.has(edge.from) && touched.has(edge.to);
            return <path key={`${edge.from} ${edge.to}`} d={curve(from, to)} className={`ref${edge.broken ? " broken" : ""}${lit ? " lit" : ""}`} />;
          })}
          {[...placed.nodes.values()].map(({ id, x, y }) => {
            const node = byId.get(id);
            return node && <Node key={id} node={node} x={x} y={y} focused={id === focus} lit={touched?.has(id) ?? false} named={named} point={setNear} />;
          })}
        </svg>
      </div>
    </>
  );
}

function curve(from: { x: number; y: number }, to: { x: number; y: number }): string {
  const [startY, endY] = [from.y + SIZES.nodeHeight / 2, to.y + SIZES.nodeHeight / 2];
  const back = to.x <= from.x;
  const [startX, endX] = [from.x + SIZES.nodeWidth, back ? to.x + SIZES.nodeWidth : to.x];
  const bend = back ? 60 : Math.max(40, (endX - startX) / 2);
  return `M${startX} ${startY} C${startX + bend} ${startY} ${back ? endX + bend : endX - bend} ${endY} ${endX} ${endY}`;
}

function Node(props: { node: GraphNode; x: number; y: number; focused: boolean; lit: boolean; named: boolean; point: (id: string | null) => void }): ReactElement {
  const { node, x, y, focused, lit, named, point } = props;
  const id = idOf(node);
  const { text, tone } = stateOfNode(node);
  const label = `${node.kind} ${node.name} in ${node.namespace}: ${text}`;
  const known = kindOf(node.kind) && !node.missing;
  const inside = (
    <>
      <ToneSign tone={tone} />
      <span className="grow">
        <span className="node-name truncate">{node.name}</span>
        <span className="node-kind truncate">
          {node.kind}
          {node.missing ? ", missing" : isDegraded(node.phase, node.ready) && ", degraded"}
          {named && ` · ${node.namespace}`}
        </span>
        <span className="visually-hidden">{`${text}, in ${node.namespace}`}</span>
      </span>
    </>
  );
  const touch = { onMouseEnter: () => point(id), onMouseLeave: () => point(null), onFocus: () => point(id), onBlur: () => point(null) };
  const className = `node tone-${tone}${node.missing ? " missing" : ""}${focused ? " focused" : ""}${lit ? " lit" : ""}`;
  return (
    <foreignObject data-node={id} x={x} y={y} width={SIZES.nodeWidth} height={SIZES.nodeHeight}>
      {known ? (
        <Link
          to="/objects/$plural/$namespace/$name"
          params={{ plural: pluralOf(node.kind), namespace: node.namespace, name: node.name }}
          className={className}
          title={label}
          {...touch}
        >
          {inside}
        </Link>
      ) : (
        <div className={className} title={label} {...touch}>
          {inside}
        </div>
      )}
    </foreignObject>
  );
}
