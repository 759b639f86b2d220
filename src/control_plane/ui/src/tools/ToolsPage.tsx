import "./tools.css";

import { useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { type ReactElement, useMemo, useState } from "react";

import { serverToolsQuery, toolServersQuery } from "../api/queries.ts";
import type { ServerTool, ToolServer } from "../api/types.ts";
import { Icon } from "../shell/icons.tsx";
import { count, CopyButton, ObjectLink, Phase, useTitle } from "../shell/parts.tsx";
import { Failure, Loading, Notice, State } from "../shell/states.tsx";
import { ToolForm } from "./ToolForm.tsx";

const idOf = (server: { kind: string; namespace: string; name: string }): string => `${server.kind}/${server.namespace}/${server.name}`;

export function ToolsPage(): ReactElement {
  useTitle("Tools");
  const { server: chosen, tool } = useSearch({ from: "/tools" });
  const servers = useQuery(toolServersQuery());
  const items = useMemo(() => [...(servers.data?.items ?? [])].sort((a, b) => idOf(a).localeCompare(idOf(b))), [servers.data]);
  const server = items.find((one) => idOf(one) === chosen);
  if (servers.error && !servers.data) {
    return (
      <div className="page">
        <h1>Tool servers</h1>
        <Failure error={servers.error} retry={() => void servers.refetch()} what="the tool servers" />
      </div>
    );
  }
  return (
    <div className="page">
      <div className="page-head">
        <h1>Tool servers</h1>
        {servers.data && <span className="muted">{`${count(items.length)} MCP ${items.length === 1 ? "server" : "servers"}`}</span>}
      </div>
      {!servers.data ? (
        <Loading />
      ) : !items.length ? (
        <State icon="tools" title="No tool servers">
          An MCPServer runs one in the cluster, a RemoteMCPServer names one elsewhere. Their tools show up here, to be read and tried.
        </State>
      ) : (
        <div className={`tools${chosen ? " chosen" : ""}`}>
          <ServerList items={items} chosen={chosen} />
          <div className="grow">
            {server ? (
              <Server key={idOf(server)} server={server} chosen={tool} />
            ) : chosen ? (
              <State icon="empty" title="Not found">
                There is no server {chosen}, or you cannot see it.
              </State>
            ) : (
              <State icon="tools" title="Choose a server">
                Its tools are shown with their schemas, and can be called from here.
              </State>
            )}
          </div>
        </div>
      )}
    </div>
  );
}

function ServerList({ items, chosen }: { items: readonly ToolServer[]; chosen: string | undefined }): ReactElement {
  return (
    <nav aria-label="Servers" className="card servers">
      <ul>
        {items.map((server) => (
          <li key={idOf(server)}>
            <Link to="/tools" search={{ server: idOf(server) }} className="choice server" aria-current={idOf(server) === chosen || undefined} activeProps={{}}>
              <span className="row">
                <strong className="grow truncate" title={server.name}>
                  {server.name}
                </strong>
                <span className="muted small nums">{server.toolCount === null ? "" : server.toolCount === 1 ? "1 tool" : `${count(server.toolCount)} tools`}</span>
              </span>
              <span className="row small">
                <span className="muted grow truncate">
                  {server.namespace} · {server.kind === "MCPServer" ? "in the cluster" : "remote"}
                </span>
                <Phase phase={server.phase} />
              </span>
            </Link>
          </li>
        ))}
      </ul>
    </nav>
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
      <div className="server-head">
        <Link to="/tools" className="button quiet back">
          <Icon name="right" />
          All servers
        </Link>
        <h2 className="truncate">
          <ObjectLink {...server} />
        </h2>
        <span className="muted small truncate grow">{[server.protocol, server.url].filter(Boolean).join(" · ")}</span>
        {all.length > 8 && <input className="input" type="search" placeholder="Search tools" aria-label="Search tools" value={text} onChange={(event) => setText(event.target.value)} />}
      </div>
      {server.why && <Notice tone={server.phase === "Error" || server.phase === "Failed" ? "bad" : "busy"}>{server.why}</Notice>}
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
