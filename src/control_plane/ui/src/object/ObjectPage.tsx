import "./object.css";

import { useQuery } from "@tanstack/react-query";
import { Link, useParams, useSearch } from "@tanstack/react-router";
import { lazy, type ReactElement, type ReactNode, Suspense, useSyncExternalStore } from "react";

import { isDegraded, kindOf, kindOfPlural } from "../api/kinds.ts";
import { childrenQuery, eventsQuery, machineQuery, type Name, objectQuery, traceQuery, whyQuery } from "../api/queries.ts";
import type { KubeEvent, KubeObject, Summary, Trace } from "../api/types.ts";
import { type Tab, TABS } from "./tabs.ts";
import { fleet } from "../fleet/store.ts";
import { Icon } from "../shell/icons.tsx";
import { Ago, Card, CopyButton, kindLabel, ObjectLink, Phase, useTitle } from "../shell/parts.tsx";
import { Failure, Loading, Notice, sentence, State } from "../shell/states.tsx";
import { Children } from "./Children.tsx";
import { Conditions } from "./Conditions.tsx";
import { Configuration } from "./Configuration.tsx";
import { MachineView } from "./MachineView.tsx";
import { ownerOf } from "./owner.ts";
import { References } from "./References.tsx";
import { Timeline } from "./Timeline.tsx";

const Yaml = lazy(() => import("./Yaml.tsx"));
const LoadChart = lazy(() => import("./LoadChart.tsx"));

const LABELS: Record<Tab, string> = { overview: "Overview", machine: "State machine", config: "Configuration", events: "Events", yaml: "YAML" };

export function ObjectPage(): ReactElement {
  const name = useParams({ from: "/objects/$plural/$namespace/$name" });
  const { tab = "overview" } = useSearch({ from: "/objects/$plural/$namespace/$name" });
  const kind = kindOfPlural(name.plural);
  useTitle(`${name.name} · ${kind?.kind ?? name.plural}`);
  useSyncExternalStore(fleet.watch, fleet.view);
  const summary = kind && fleet.find(kind.kind, name.namespace, name.name);
  const object = useQuery({ ...objectQuery(name), enabled: Boolean(kind) });

  if (!kind) {
    return (
      <div className="page">
        <State icon="empty" title="No such kind" action={<Link to="/" className="button">Back to fleet</Link>}>
          Récif knows no “{name.plural}”.
        </State>
      </div>
    );
  }
  const phase = summary ? summary.phase : (object.data?.status?.phase ?? null);
  const ready = summary?.ready ?? object.data?.status?.conditions?.find((condition) => condition.type === "Ready")?.status;
  const gone = object.error && "status" in object.error && object.error.status === 404;
  return (
    <div className="page">
      <nav aria-label="Where you are" className="crumbs small">
        <Link to="/">Fleet</Link>
        <span aria-hidden="true">/</span>
        <Link to="/" search={{ kind: [kind.kind] }}>
          {kindLabel(kind.kind)}
        </Link>
        <span aria-hidden="true">/</span>
        <Link to="/" search={{ namespace: name.namespace }}>
          {name.namespace}
        </Link>
      </nav>
      <div className="page-head">
        <h1>{name.name}</h1>
        {!gone && (summary || object.data) && <Phase phase={phase} ready={ready} pill />}
        <span className="grow" />
        {(!gone || object.data) && <Actions kind={kind.kind} {...name} />}
      </div>
      {object.error && !object.data ? (
        gone ? (
          <Gone name={name} message={object.error.message} />
        ) : (
          <Failure error={object.error} retry={() => void object.refetch()} what={`this ${kind.kind}`} namespace={name.namespace} />
        )
      ) : !object.data ? (
        <Loading lines={8} />
      ) : (
        <>
          {gone && <Notice tone="warn">This object was deleted. What you see is how it was last.</Notice>}
          {kind.kind === "Agent" && typeof object.data.spec.description === "string" && <p className="description">{object.data.spec.description}</p>}
          <Facts summary={summary} metadata={object.data.metadata} observed={object.data.status?.observedGeneration} />
          <nav aria-label="Views" className="tabs">
            {TABS.map((one) => (
              <Link
                key={one}
                from="/objects/$plural/$namespace/$name"
                search={{ tab: one === "overview" ? undefined : one }}
                activeOptions={{ explicitUndefined: true }}
                replace
                className="tab"
              >
                {LABELS[one]}
              </Link>
            ))}
          </nav>
          {tab === "overview" && <Overview name={name} kind={kind.kind} workload={kind.workload} phase={phase} ready={ready} status={object.data.status} />}
          {tab === "machine" && <MachineTab kind={kind.kind} phase={phase} name={name} />}
          {tab === "config" && <Configuration name={name} workload={kind.workload} />}
          {tab === "events" && <Events name={name} kind={kind.kind} />}
          {tab === "yaml" && (
            <Suspense fallback={<Loading />}>
              <Yaml object={object.data} />
            </Suspense>
          )}
        </>
      )}
    </div>
  );
}

/** Shows a deleted object: it still has its history. */
function Gone({ name, message }: { name: Name; message: string }): ReactElement {
  const trace = useQuery(traceQuery(name));
  const known = trace.data && trace.data.entries.length > 0;
  return (
    <>
      <State icon="empty" title={known ? "No longer here" : "Not found"} action={<Link to="/" className="button">Back to fleet</Link>}>
        {sentence(message)}
      </State>
      {known && (
        <Card title="What happened to it">
          <Timeline trace={trace.data} ended />
        </Card>
      )}
    </>
  );
}

function Actions({ kind, namespace, name }: Name & { kind: string }): ReactElement {
  const talks = kind === "Agent" || kind === "Flow" || kind === "FlowSet";
  const serves = kind === "MCPServer" || kind === "RemoteMCPServer";
  return (
    <div className="row wrap">
      <Link to="/graph" search={{ focus: `${kind}/${namespace}/${name}` }} className="button">
        <Icon name="graph" />
        Graph
      </Link>
      {talks && (
        <Link to="/chat" search={{ with: `${kind}/${namespace}/${name}` }} className="button primary">
          <Icon name="chat" />
          Chat
        </Link>
      )}
      {serves && (
        <Link to="/tools" search={{ server: `${kind}/${namespace}/${name}` }} className="button primary">
          <Icon name="tools" />
          Tools
        </Link>
      )}
    </div>
  );
}

function Facts({ summary, metadata, observed }: { summary: Summary | undefined; metadata: KubeObject["metadata"]; observed: unknown }): ReactElement | null {
  if (!summary) return null;
  const { generation } = metadata;
  const owner = ownerOf(metadata);
  const facts: [string, ReactNode][] = [
    ["In this phase", <Ago key="since" at={summary.since} />],
    ["Age", <Ago key="age" at={summary.createdAt} />],
  ];
  if (owner) {
    const named = owner.ours && kindOf(owner.kind) ? <ObjectLink kind={owner.kind} namespace={summary.namespace} name={owner.name} /> : owner.name;
    facts.push(["Made by", <span key="owner">{owner.kind} {named}</span>]);
  }
  if (summary.replicas) facts.push(["Pods ready", `${summary.replicas.ready} of ${summary.replicas.desired}`]);
  facts.push(["Generation", observed === undefined || observed === generation ? String(generation ?? "–") : `${generation}, last seen ${String(observed)}`]);
  for (const [name, value] of Object.entries(summary.columns)) {
    if (value && name !== "Available" && name !== "Description" && name !== "Approvals") facts.push([name, value]);
  }
  return (
    <dl className="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd className="nums">{value}</dd>
        </div>
      ))}
    </dl>
  );
}

interface OverviewProps {
  name: Name;
  kind: string;
  workload: boolean;
  phase: string | null;
  ready: string | undefined;
  status: KubeObject["status"];
}

function Overview({ name, kind, workload, phase, ready, status }: OverviewProps): ReactElement {
  const trace = useQuery(traceQuery(name));
  return (
    <div className="overview">
      <div className="stack">
        <Why name={name} phase={phase} ready={ready} workload={workload} />
        <Card title="Phases">
          {trace.data ? <Timeline trace={trace.data} /> : trace.error ? <Failure error={trace.error} what="the history" retry={() => void trace.refetch()} /> : <Loading />}
        </Card>
        {workload && (
          <Card title="Pods and requests in flight" aside={<span className="small muted">since you opened this page</span>}>
            <Suspense fallback={<Loading lines={3} />}>
              <LoadChart name={name} />
            </Suspense>
          </Card>
        )}
      </div>
      <div className="stack">
        <Card title="Conditions" flush>
          <Conditions conditions={status?.conditions ?? []} />
        </Card>
        <Card title="Children" flush>
          <Children name={name} />
        </Card>
        <References name={name} kind={kind} />
      </div>
    </div>
  );
}

/** Shows one sentence: the reason why the object is not as its spec asks, and a remedy. */
export function Why({ name, phase, ready, workload }: Omit<OverviewProps, "status" | "kind">): ReactElement | null {
  const why = useQuery(whyQuery(name));
  if (!why.data) return why.error && <Notice tone="warn">The reason for this phase is not available: {why.error.message}</Notice>;
  const { sentence, waitingFor, children } = why.data;
  const bad = phase === "Failed" || phase === "Error";
  const told = children.filter((child) => child.message && !waitingFor.some((line) => line.includes(child.name)));
  const settled = phase === "Running" || phase === "Available" || phase === "Terminated";
  const partly = settled && (waitingFor.length > 0 || isDegraded(phase, ready));
  return (
    <Notice tone={bad ? "bad" : partly ? "warn" : settled ? "good" : "busy"} icon={bad || partly ? "warn" : settled ? "check" : "clock"}>
      <p data-testid="why">{sentence}</p>
      {(waitingFor.length > 0 || told.length > 0) && (
        <ul className="bullets small">
          {waitingFor.map((what) => (
            <li key={what}>{what}</li>
          ))}
          {told.map((child) => (
            <li key={`${child.kind}/${child.name}`}>{`${child.kind} ${child.name}: ${child.message}`}</li>
          ))}
        </ul>
      )}
      {workload && <LogHint name={name} failing={!settled || partly} />}
    </Notice>
  );
}

/** What a container wrote is in no status, and the control plane reads no logs: the command line does, by the user's own rights. */
function LogHint({ name, failing }: { name: Name; failing: boolean }): ReactElement | null {
  const children = useQuery(childrenQuery(name));
  if (!children.data?.items.some((child) => child.kind === "Pod")) return null;
  const command = (verb: string): string => `recif ${verb} ${name.plural}/${name.name} -n ${name.namespace}`;
  return (
    <>
      {failing && <Command what="The last error of its container:" text={command("why")} />}
      <Command what="The logs of its Pods:" text={command("logs")} />
    </>
  );
}

function Command({ what, text }: { what: string; text: string }): ReactElement {
  return (
    <div className="row wrap small log-hint">
      <span className="muted">{what}</span>
      <code>{text}</code>
      <CopyButton text={() => text} />
    </div>
  );
}

function MachineTab({ kind, phase, name }: { kind: string; phase: string | null; name: Name }): ReactElement {
  const machine = useQuery(machineQuery(kind));
  const trace = useQuery(traceQuery(name));
  if (machine.error) return <Failure error={machine.error} what="the state machine" retry={() => void machine.refetch()} />;
  return machine.data ? <MachineView machine={machine.data} phase={phase} visited={visited(trace.data)} /> : <Loading />;
}

function visited(trace: Trace | undefined): Set<string> {
  return new Set(trace?.entries.map((entry) => `${entry.from} ${entry.to}`));
}

function Events({ name, kind }: { name: Name; kind: string }): ReactElement {
  const events = useQuery({ ...eventsQuery(name), refetchInterval: 10_000 });
  if (events.error) return <Failure error={events.error} what="the events" retry={() => void events.refetch()} />;
  if (!events.data) return <Loading />;
  if (!events.data.items.length) {
    return (
      <State icon="empty" title="No events">
        Kubernetes keeps events for about an hour. What happened before is in the phases of the overview.
      </State>
    );
  }
  const items = [...events.data.items].sort((a, b) => (b.lastAt ?? "").localeCompare(a.lastAt ?? ""));
  return (
    <Card title="Events" flush>
      <ul className="lines">
        {items.map((event, index) => (
          <EventLine key={index} event={event} own={`${kind}/${name.name}`} />
        ))}
      </ul>
    </Card>
  );
}

function EventLine({ event, own }: { event: KubeEvent; own: string }): ReactElement {
  const warning = event.type === "Warning";
  return (
    <li className="event">
      <span className={`phase tone-${warning ? "warn" : "idle"}`}>
        <Icon name={warning ? "warn" : "check"} />
        {event.reason}
      </span>
      <EventText event={event} own={own} />
      <span className="muted">
        <Ago at={event.lastAt} />
      </span>
    </li>
  );
}

/** Message of an Event, with the object that it is about, unless that is `own`, the object of the page. */
export function EventText({ event, own }: { event: KubeEvent; own: string }): ReactElement {
  return (
    <span className="grow">
      {event.object !== own && <span className="muted">{`${event.object.replace("/", " ")}: `}</span>}
      {event.message}
      {event.count > 1 && <span className="muted"> ×{event.count}</span>}
    </span>
  );
}
