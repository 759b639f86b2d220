//! Runs a control plane as a child process of the test, and reads the database that it writes to.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sqlx::{AnyPool, Row as _, any::AnyPoolOptions};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    process::Child,
};

use crate::{
    kinds::{AGENT, CONFIG_MAP, FLOW, FLOW_SET, KubeKind, MCP_SERVER, REMOTE_MCP_SERVER},
    namespace::Namespace,
    object::ObjectExt as _,
    watch::poll,
};

/// Kinds with rows in `workloads`, and kinds with rows in `tool_servers` with the suffix of the ConfigMaps of their tools.
const STORED: [KubeKind; 4] = [AGENT, FLOW, FLOW_SET, MCP_SERVER];
const SERVERS: [(KubeKind, &str); 2] = [(MCP_SERVER, "mcp-server-tools"), (REMOTE_MCP_SERVER, "mcp-tools")];
/// Longest wait until the database is equal to the cluster.
const CAUGHT_UP: Duration = Duration::from_secs(30);

/// Control plane process for one namespace. It ends when it is dropped.
pub(crate) struct ControlPlane {
    process: Child,
    api: SocketAddr,
    admin: SocketAddr,
}

impl ControlPlane {
    /// Starts a control plane with this database and waits until it is ready.
    pub(crate) async fn start(ns: &Namespace, database: &str) -> Result<Self> {
        // The ports are free at this moment; no other process of the machine takes ports of loopback on purpose.
        let free = [TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?, TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?];
        let [api, admin] = free.each_ref().map(TcpListener::local_addr);
        let (api, admin) = (api?, admin?);
        drop(free);
        let mut command = ns.env.recif_command();
        command.args(["control-plane", "--bind", &api.to_string(), "--admin-bind", &admin.to_string()]);
        command.args(["--namespaces", &ns.name]);
        command.arg("--log=error").env("RECIF_AUTH", "none").env("DATABASE_URL", database).kill_on_drop(true);
        let process = command.spawn().context("start the control plane")?;
        let started = Self { process, api, admin };
        let ready =
            async || Ok(started.get("/readyz").await.is_ok_and(|answer| answer.contains(" 200 ")).then_some(()));
        poll(Duration::from_secs(30), "the control plane ready", ready).await?;
        Ok(started)
    }

    /// Kills the process by SIGKILL, as a crash would.
    pub(crate) async fn kill(mut self) -> Result<()> {
        self.process.kill().await.context("kill the control plane")
    }

    /// Sends a GET to its admin address and returns the whole response.
    pub(crate) async fn get(&self, path: &str) -> Result<String> {
        get(self.admin, path).await
    }

    /// Returns the value of a metric without labels.
    pub(crate) async fn metric(&self, name: &str) -> Result<f64> {
        let answer = self.get("/metrics").await?;
        let value = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.with_context(|| format!("there is no {name}"))?.trim().parse().context("read a metric")
    }

    /// Sends a GET to its API and returns the status code and the body.
    pub(crate) async fn query_api(&self, path: &str) -> Result<(u16, Value)> {
        let answer = get(self.api, path).await?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
        let status = head.split(' ').nth(1).context("no status")?.parse()?;
        Ok((status, serde_json::from_str(body).with_context(|| format!("{path}: {answer}"))?))
    }
}

/// Sends a GET and returns the whole response.
async fn get(address: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    // HTTP/1.0: the response is not chunked.
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Database rows of one namespace.
pub(crate) struct DatabaseMirror<'a> {
    pool: AnyPool,
    ns: &'a Namespace,
}

/// Rows by kind and name: of a workload uid, version, spec and status; of a server uid, version, phase and digest; of the
/// tools of a server all their columns.
type StoredRows = BTreeMap<String, Value>;

impl<'a> DatabaseMirror<'a> {
    /// Connects to this database on first use.
    pub(crate) fn new(ns: &'a Namespace, database: &str) -> Result<Self> {
        sqlx::any::install_default_drivers();
        let pool =
            AnyPoolOptions::new().max_connections(1).connect_lazy(database).context("read the database's URL")?;
        Ok(Self { pool, ns })
    }

    /// Returns the stored rows.
    pub(crate) async fn rows(&self) -> Result<StoredRows> {
        let query = "SELECT kind, name, uid, resource_version, spec, status FROM workloads WHERE namespace = $1";
        let rows = sqlx::query(query).bind(self.ns.name.as_str()).fetch_all(&self.pool).await?;
        let text = |row: &sqlx::any::AnyRow, column: &str| row.try_get::<String, _>(column);
        let row = |row: &sqlx::any::AnyRow| -> Result<(String, Value)> {
            let version: i64 = row.try_get("resource_version")?;
            let name = format!("{}/{}", text(row, "kind")?, text(row, "name")?);
            Ok((name, json!([text(row, "uid")?, version, text(row, "spec")?, text(row, "status")?])))
        };
        let mut all: StoredRows = rows.iter().map(row).collect::<Result<_>>()?;
        let query =
            "SELECT kind, name, uid, resource_version, phase, tools_digest FROM tool_servers WHERE namespace = $1";
        for row in sqlx::query(query).bind(self.ns.name.as_str()).fetch_all(&self.pool).await? {
            let version: i64 = row.try_get("resource_version")?;
            let name = format!("server {}/{}", text(&row, "kind")?, text(&row, "name")?);
            all.insert(name, json!([text(&row, "uid")?, version, text(&row, "phase")?, text(&row, "tools_digest")?]));
        }
        let query = "SELECT server_kind, server_name, name, description, input_schema FROM tools \
                     WHERE server_namespace = $1 ORDER BY server_kind, server_name, position";
        for row in sqlx::query(query).bind(self.ns.name.as_str()).fetch_all(&self.pool).await? {
            let name = format!("tools {}/{}", text(&row, "server_kind")?, text(&row, "server_name")?);
            let tool = json!([text(&row, "name")?, text(&row, "description")?, text(&row, "input_schema")?]);
            let tools = all.entry(name).or_insert_with(|| json!([]));
            tools.as_array_mut().context("no list of tools")?.push(tool);
        }
        Ok(all)
    }

    async fn listed(&self) -> Result<StoredRows> {
        let mut rows = StoredRows::new();
        for kind in STORED {
            for object in self.ns.list(kind).await? {
                let name = format!("{}/{}", kind.kind, object.metadata.name.as_deref().unwrap_or_default());
                let text = |field: &str| object.data.get(field).map_or_else(|| "{}".to_owned(), Value::to_string);
                rows.insert(name, json!([object.id(), object.revision(), text("spec"), text("status")]));
            }
        }
        for (kind, suffix) in SERVERS {
            for server in self.ns.list(kind).await? {
                let server_name = server.metadata.name.as_deref().unwrap_or_default();
                let name = format!("{}/{server_name}", kind.kind);
                let row = json!([server.id(), server.revision(), server.phase(), server.text("/status/toolsDigest")]);
                rows.insert(format!("server {name}"), row);
                let kept = self.ns.find(CONFIG_MAP, &format!("{server_name}.{suffix}")).await?;
                let text = kept.as_ref().map_or("[]", |kept| kept.text("/data/tools.json"));
                let tools: Vec<Value> = serde_json::from_str(text).context("read the definitions of tools")?;
                let tool = |tool: &Value| {
                    json!([
                        tool["name"],
                        tool["description"].as_str().unwrap_or_default(),
                        tool["inputSchema"].to_string()
                    ])
                };
                if !tools.is_empty() {
                    rows.insert(format!("tools {name}"), tools.iter().map(tool).collect());
                }
            }
        }
        Ok(rows)
    }

    /// Waits until the stored rows are equal to a list from the API server.
    pub(crate) async fn await_equal_to_list(&self) -> Result<()> {
        let equal = async || {
            let listed = self.listed().await?;
            // The database may be unavailable.
            let rows = self.rows().await.unwrap_or_default();
            Ok((rows == listed && !listed.is_empty()).then_some(()))
        };
        let result = poll(CAUGHT_UP, "the rows are those of a list", equal).await;
        if result.is_err() {
            let (listed, rows) = (self.listed().await?, self.rows().await?);
            ensure!(rows == listed, "stored: {rows:#?}\nlisted: {listed:#?}");
        }
        result
    }

    /// Checks that the transitions up to the last one of the stored status are stored too: status and transitions are
    /// written in one transaction.
    pub(crate) async fn check_transitions_stored(&self) -> Result<()> {
        for (name, row) in self.rows().await? {
            let status: Value = serde_json::from_str(row[3].as_str().unwrap_or_default()).unwrap_or_default();
            let last = status["history"].as_array().and_then(|steps| steps.last()?["seq"].as_i64()).unwrap_or_default();
            let steps = self.transition_numbers(row[0].as_str().unwrap_or_default()).await?;
            ensure!(
                steps.last().copied().unwrap_or_default() >= last,
                "{name} tells of step {last}, stored: {steps:?}"
            );
        }
        Ok(())
    }

    /// Counts the distinct descriptions of the stored tools; a test server gives all its tools the same one, so more than
    /// one means an incomplete update.
    pub(crate) async fn descriptions(&self) -> Result<i64> {
        let query = "SELECT count(DISTINCT description) FROM tools WHERE server_namespace = $1";
        Ok(sqlx::query(query).bind(self.ns.name.as_str()).fetch_one(&self.pool).await?.try_get(0)?)
    }

    /// Returns the numbers of the stored transitions of an object, in ascending order.
    pub(crate) async fn transition_numbers(&self, uid: &str) -> Result<Vec<i64>> {
        let query = sqlx::query("SELECT seq FROM transitions WHERE uid = $1 ORDER BY seq").bind(uid.to_owned());
        query.fetch_all(&self.pool).await?.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }
}
