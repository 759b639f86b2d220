-- JSON is kept as text: one set of statements serves both databases, and PostgreSQL's jsonb takes no U+0000. Times are text of
-- one length, so they sort as times do.
CREATE TABLE workloads (
    kind TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    uid TEXT NOT NULL,
    generation BIGINT NOT NULL,
    resource_version BIGINT NOT NULL,
    phase TEXT NOT NULL,
    spec TEXT NOT NULL,
    status TEXT NOT NULL,
    observed_at TEXT NOT NULL,
    PRIMARY KEY (kind, namespace, name)
);

CREATE TABLE tool_servers (
    kind TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    uid TEXT NOT NULL,
    resource_version BIGINT NOT NULL,
    tools_digest TEXT NOT NULL,
    description TEXT NOT NULL,
    protocol TEXT NOT NULL,
    url TEXT NOT NULL,
    phase TEXT NOT NULL,
    tools_changed_at TEXT NOT NULL,
    PRIMARY KEY (kind, namespace, name)
);

CREATE TABLE tools (
    server_kind TEXT NOT NULL,
    server_namespace TEXT NOT NULL,
    server_name TEXT NOT NULL,
    name TEXT NOT NULL,
    description TEXT NOT NULL,
    input_schema TEXT NOT NULL,
    position BIGINT NOT NULL,
    PRIMARY KEY (server_kind, server_namespace, server_name, name),
    FOREIGN KEY (server_kind, server_namespace, server_name)
        REFERENCES tool_servers (kind, namespace, name) ON DELETE CASCADE
);

CREATE TABLE transitions (
    uid TEXT NOT NULL,
    seq BIGINT NOT NULL,
    kind TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    at TEXT NOT NULL,
    "from" TEXT NOT NULL,
    "to" TEXT NOT NULL,
    action TEXT NOT NULL,
    reason TEXT NOT NULL,
    took_ms BIGINT NOT NULL,
    trace_id TEXT NOT NULL,
    PRIMARY KEY (uid, seq)
);
CREATE INDEX transitions_newest ON transitions (at, uid, seq);
CREATE INDEX transitions_visible ON transitions (kind, namespace, at, uid, seq);
CREATE INDEX transitions_of_object ON transitions (kind, namespace, name, at);
