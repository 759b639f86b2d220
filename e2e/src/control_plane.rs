//! A control plane that runs as a process of the test, and the database that it writes to.

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
    kinds::{AGENT, FLOW, FLOW_SET, MCP_SERVER},
    namespace::Namespace,
    object::Read as _,
    watch::poll,
};

/// The kinds that have rows of their own.
const STORED: [crate::kinds::Kind; 4] = [AGENT, FLOW, FLOW_SET, MCP_SERVER];
/// How long the copy may take to be what there is.
const CAUGHT_UP: Duration = Duration::from_secs(30);

/// A control plane that shows one namespace. It ends with this.
pub(crate) struct ControlPlane {
    process: Child,
    admin: SocketAddr,
}

impl ControlPlane {
    /// Starts one with this database, and waits until it is ready.
    pub(crate) async fn start(ns: &Namespace, database: &str) -> Result<Self> {
        // Free now; nobody else on this machine takes ports of loopback on purpose.
        let admin = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let mut command = ns.env.recif_command();
        let admin_bind = admin.to_string();
        command.args(["control-plane", "--bind=127.0.0.1:0", "--admin-bind", &admin_bind, "--namespaces", &ns.name]);
        command.arg("--log=error").env("RECIF_AUTH", "none").env("DATABASE_URL", database).kill_on_drop(true);
        let process = command.spawn().context("start the control plane")?;
        let started = Self { process, admin };
        let ready =
            async || Ok(started.get("/readyz").await.is_ok_and(|answer| answer.contains(" 200 ")).then_some(()));
        poll(Duration::from_secs(30), "the control plane ready", ready).await?;
        Ok(started)
    }

    /// Ends it as a crash would.
    pub(crate) async fn kill(mut self) -> Result<()> {
        self.process.kill().await.context("kill the control plane")
    }

    /// The whole answer to a GET on its admin address.
    pub(crate) async fn get(&self, path: &str) -> Result<String> {
        let mut stream = TcpStream::connect(self.admin).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }
}

/// What is stored of one namespace.
pub(crate) struct Copy<'a> {
    pool: AnyPool,
    ns: &'a Namespace,
}

/// By kind and name: uid, version, spec and status.
type Rows = BTreeMap<String, Value>;

impl<'a> Copy<'a> {
    /// In this database.
    pub(crate) fn new(ns: &'a Namespace, database: &str) -> Result<Self> {
        sqlx::any::install_default_drivers();
        let pool =
            AnyPoolOptions::new().max_connections(1).connect_lazy(database).context("read the database's URL")?;
        Ok(Self { pool, ns })
    }

    async fn rows(&self) -> Result<Rows> {
        let query = "SELECT kind, name, uid, resource_version, spec, status FROM workloads WHERE namespace = $1";
        let rows = sqlx::query(query).bind(self.ns.name.as_str()).fetch_all(&self.pool).await?;
        let text = |row: &sqlx::any::AnyRow, column: &str| row.try_get::<String, _>(column);
        let row = |row: &sqlx::any::AnyRow| -> Result<(String, Value)> {
            let version: i64 = row.try_get("resource_version")?;
            let (spec, status): (Value, Value) =
                (serde_json::from_str(&text(row, "spec")?)?, serde_json::from_str(&text(row, "status")?)?);
            let name = format!("{}/{}", text(row, "kind")?, text(row, "name")?);
            Ok((name, json!([text(row, "uid")?, version, spec, status])))
        };
        rows.iter().map(row).collect()
    }

    async fn listed(&self) -> Result<Rows> {
        let mut rows = Rows::new();
        for kind in STORED {
            for object in self.ns.list(kind).await? {
                let name = format!("{}/{}", kind.kind, object.metadata.name.as_deref().unwrap_or_default());
                let status = object.data.get("status").cloned().unwrap_or_else(|| json!({}));
                rows.insert(name, json!([object.id(), object.revision(), object.at("/spec"), status]));
            }
        }
        Ok(rows)
    }

    /// Waits until what is stored is exactly what a list shows. The list has to be the same before and after.
    pub(crate) async fn is_the_list(&self) -> Result<()> {
        let equal = async || {
            let listed = self.listed().await?;
            // The database may be away.
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

    /// The numbers of the steps that are stored of an object, in their order.
    pub(crate) async fn steps(&self, uid: &str) -> Result<Vec<i64>> {
        let query = sqlx::query("SELECT seq FROM transitions WHERE uid = $1 ORDER BY seq").bind(uid.to_owned());
        query.fetch_all(&self.pool).await?.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }
}
