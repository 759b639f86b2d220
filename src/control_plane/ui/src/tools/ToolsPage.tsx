import "./tools.css";

import { useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { type ReactElement, useMemo, useState, useSyncExternalStore } from "react";

import { serverToolsQuery, toolServersQuery } from "../api/queries.ts";
import type { ServerTool, Summary, ToolServer } from "../api/types.ts";
import { fleet } from "../fleet/store.ts";
import { Icon } from "../shell/icons.tsx";
import { count, CopyButton, Phase, useTitle } from "../shell/parts.tsx";
import { Failure, Loading, Notice, State } from "../shell/states.tsx";
import { Head } from "./Head.tsx";
import { readingOf } from "./reading.ts";
import { ToolDetail } from "./ToolDetail.tsx";
import { ToolForm } from "./ToolForm.tsx";

/** Limit of the Tools in the list, which is not virtualized as the fleet's is. */
const MOST = 200;

interface ObjectName {
  kind: string;
  namespace: string;
  name: string;
}

const idOf = ({ kind, namespace, name }: ObjectName): string => `${kind}/${namespace}/${name}`;

export function ToolsPage(): ReactElement {
  useTitle("Tools");
  // Of a Tool the address has its id in the place of a server's.
  const { server: chosen, tool } = useSearch({ from: "/tools" });
  const { data, error, refetch } = useQuery(toolServersQuery());
  const view = useSyncExternalStore(fleet.watch, fleet.view);
  const servers = useMemo(() => byId(data?.items ?? []), [data]);
  const tools = useMemo(() => byId(view.rows.filter((row) => row.kind === "Tool")), [view.rows]);
  const server = servers.find((one) => idOf(one) === chosen);
  const object = tools.find((one) => idOf(one) === chosen);
  const { isRead, problems } = readingOf({ data, error }, view);
  const isEmpty = servers.length + tools.length === 0;
  const retry = (): void => {
    void refetch();
    void fleet.read();
  };
  return (
    <div className="page">
      <div className="page-head">
        <h1>Tools</h1>
        {isRead && <span className="muted">{`${counted(servers.length, "MCP server")}, ${counted(tools.length, "tool")}`}</span>}
      </div>
      {isEmpty && problems[0] ? (
        <Failure error={problems[0].error} retry={retry} what="the tools" />
      ) : (
        problems.map(({ what, error }) => (
          <Notice key={what} tone="warn">
            The {what} cannot be shown: {error.message}
          </Notice>
        ))
      )}
      {!isEmpty ? (
        <div className={`tools${chosen ? " chosen" : ""}`}>
          <Choices servers={servers} tools={tools} chosen={chosen} />
          <div className="grow">
            {server ? (
              <Server key={idOf(server)} server={server} chosen={tool} />
            ) : object ? (
              <ToolDetail key={idOf(object)} tool={object} />
            ) : chosen && isRead ? (
              <State icon="empty" title="Not found" action={<Link to="/tools" className="button">All tools</Link>}>
                There is no {chosen}, or you cannot see it.
              </State>
            ) : chosen && problems.length > 0 ? (
              <State icon="warn" title="Cannot be shown" action={<Link to="/tools" className="button">All tools</Link>}>
                {chosen} is not among what could be read.
              </State>
            ) : chosen ? (
              <Loading />
            ) : (
              <State icon="tools" title="Choose a server or a tool">
                The tools of a server are shown with their schemas, and can be called from here.
              </State>
            )}
          </div>
        </div>
      ) : isRead ? (
        <State icon="tools" title="No tools">
          An MCPServer runs a server in the cluster, a RemoteMCPServer names one elsewhere, and a Tool is one that agents call by name.
        </State>
      ) : (
        problems.length === 0 && <Loading />
      )}
    </div>
  );
}

function byId<T extends ObjectName>(items: readonly T[]): T[] {
  return [...items].sort((a, b) => idOf(a).localeCompare(idOf(b)));
}

function counted(sum: number, what: string): string {
  return `${count(sum)} ${what}${sum === 1 ? "" : "s"}`;
}

function Choices({ servers, tools, chosen }: { servers: readonly ToolServer[]; tools: readonly Summary[]; chosen: string | undefined }): ReactElement {
  return (
    <nav aria-label="Servers and tools" className="card servers">
      {servers.length > 0 && (
        <section>
          <h2 className="small">MCP servers</h2>
          <ul>
            {servers.map((server) => (
              <Choice key={idOf(server)} object={server} chosen={chosen} aside={server.toolCount === null ? "" : counted(server.toolCount, "tool")} place={server.kind === "MCPServer" ? "in the cluster" : "remote"} />
            ))}
          </ul>
        </section>
      )}
      {tools.length > 0 && (
        <section>
          <h2 className="small">Tools</h2>
          <ul>
            {tools.slice(0, MOST).map((tool) => (
              <Choice key={idOf(tool)} object={tool} chosen={chosen} aside={tool.columns.Type ?? ""} place={tool.columns.Category === "general" ? "" : (tool.columns.Category ?? "")} />
            ))}
          </ul>
          {tools.length > MOST && (
            <Link to="/" search={{ kind: ["Tool"] }} className="button quiet">
              All {counted(tools.length, "tool")}, in the fleet
            </Link>
          )}
        </section>
      )}
    </nav>
  );
}

function Choice(props: { object: Summary | ToolServer; chosen: string | undefined; aside: string; place: string }): ReactElement {
  const { object, chosen, aside, place } = props;
  return (
    <li>
      <Link to="/tools" search={{ server: idOf(object) }} className="choice server" aria-current={idOf(object) === chosen || undefined} activeProps={{}}>
        <span className="row">
          <strong className="grow truncate" title={object.name}>
            {object.name}
          </strong>
          <span className="muted small nums">{aside}</span>
        </span>
        <span className="row small">
          <span className="muted grow truncate">{[object.namespace, place].filter(Boolean).join(" · ")}</span>
          <Phase phase={object.phase} ready={object.ready} />
        </span>
      </Link>
    </li>
  );
}

function Server({ server, chosen }: { server: ToolServer; chosen: string | undefined }): ReactElement {
  const tools = useQuery(serverToolsQuery(server.kind, server.namespace, server.name));
  const [text, setText] = useState("");
  const all = tools.data?.items ?? [];
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = all.filter((tool) => words.every((word) => `${tool.name}\n${tool.description ?? ""}`.toLowerCase().includes(word)));
  return (
    <div className="stack">
      <Head object={server}>
        <span className="muted small truncate grow">{[server.protocol, server.url].filter(Boolean).join(" · ")}</span>
        {all.length > 8 && <input className="input" type="search" placeholder="Search tools" aria-label="Search tools" value={text} onChange={(event) => setText(event.target.value)} />}
      </Head>
      {tools.error ? (
        <Failure error={tools.error} retry={() => void tools.refetch()} what="the tools of this server" />
      ) : !tools.data ? (
        <Loading />
      ) : !all.length ? (
        <State icon="empty" title="No tools">
          This server has listed no tools{server.phase === "Available" || server.phase === "Running" ? "." : " yet."}
        </State>
      ) : !shown.length ? (
        <State icon="search" title="Nothing matches">
          None of {count(all.length)} tools has “{text}” in its name or description.
        </State>
      ) : (
        <ul className="stack tight">
          {shown.map((tool) => (
            <li key={tool.name}>
              <Tool server={server} tool={tool} callPath={tools.data.callPath} open={tool.name === chosen} />
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

function Tool({ server, tool, callPath, open }: { server: ToolServer; tool: ServerTool; callPath: string | null; open: boolean }): ReactElement {
  // Rendered only for open tools, of which there are few among a thousand.
  const schema = open ? JSON.stringify(tool.inputSchema ?? {}, null, 2) : "";
  return (
    <section className="card tool" aria-label={tool.name}>
      <Link to="/tools" search={{ server: idOf(server), ...(!open && { tool: tool.name }) }} replace resetScroll={false} className="choice tool-head" aria-expanded={open} activeProps={{}}>
        <span className={`turn${open ? " open" : ""}`}>
          <Icon name="right" />
        </span>
        <span className="grow">
          <code className="tool-name">{tool.name}</code>
          {tool.description && <span className={`muted tool-description${open ? "" : " truncate"}`}>{tool.description}</span>}
        </span>
      </Link>
      {open && (
        <div className="tool-body">
          <div className="grow">
            <h3>Call it</h3>
            {callPath === null ? (
              <Notice tone="idle" icon="link">
                The gateway does not route to this server, so it cannot be called from here. Agents and flows call it themselves.
              </Notice>
            ) : (
              <ToolForm tool={tool} callPath={callPath} />
            )}
          </div>
          <div className="grow">
            <div className="row">
              <h3 className="grow">Schema</h3>
              <CopyButton text={() => schema} />
            </div>
            <pre className="code" tabIndex={0} aria-label="Schema">
              {schema}
            </pre>
          </div>
        </div>
      )}
    </section>
  );
}
