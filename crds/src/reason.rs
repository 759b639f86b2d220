//! Reasons of conditions and failures: those of every kind, and those of our kinds. [`hint`](crate::advice::hint) has the advice
//! for them.

pub use meta::reason::*;

/// The API server does not take the spec, or it says something that cannot be.
pub const INVALID_SPEC: &str = "InvalidSpec";
/// A reference is missing or cannot be used.
pub const MISSING_DEPENDENCY: &str = "MissingDependency";
/// References form a circle.
pub const REFERENCE_CYCLE: &str = "ReferenceCycle";
/// The object works, but not with everything that it refers to.
pub const DEGRADED: &str = "Degraded";
/// An agent or flow, or what is listed of a server, has more tools than are taken.
pub const TOO_MANY_TOOLS: &str = "TooManyTools";

/// A model that stands in answers, as the first one cannot.
pub const FALLBACK_ACTIVE: &str = "FallbackActive";
/// The first model answers again.
pub const FIRST_MODEL: &str = "FirstModel";
/// The tokens of today are spent.
pub const BUDGET_SPENT: &str = "BudgetSpent";
/// A model that costPerDay counts has no price, or is not there.
pub const PRICE_MISSING: &str = "PriceMissing";
/// The prices of the models have several currencies.
pub const MIXED_CURRENCIES: &str = "MixedCurrencies";
/// The prices of the models are longer than gateways read.
pub const TOO_MANY_PRICES: &str = "TooManyPrices";
/// Tokens of today are left.
pub const WITHIN_BUDGET: &str = "WithinBudget";
/// An image that does not report what its models used has a budget of tokens or cost, which has no effect.
pub const NO_USAGE_REPORTED: &str = "NoUsageReported";
/// The web search is left out, as no search service is set.
pub const NO_SEARCH_SERVICE: &str = "NoSearchService";
/// Calls of a tool wait for a person, and no user could be asked.
pub const APPROVAL_UNSUPPORTED: &str = "ApprovalUnsupported";
/// A pattern in `approval.tools` matches no tool of the server, so that no call waits because of it.
pub const APPROVAL_UNMATCHED: &str = "ApprovalUnmatched";
/// What waits is in the memory of one Pod.
pub const IN_MEMORY: &str = "InMemory";
/// Calls of a tool wait for a person.
pub const CALLS_WAIT: &str = "CallsWait";
/// No call of a tool waits for a person any more.
pub const NOTHING_WAITS: &str = "NothingWaits";
/// An image of the user's own gets a provider of models that Récif's runner does not know.
pub const UNKNOWN_PROVIDER: &str = "UnknownProvider";

/// A setting, or each key of a Secret, has a name that nothing reads.
pub const UNKNOWN_SETTING: &str = "UnknownSetting";

/// The server cannot be connected to, or answers HTTP 5xx.
pub const SERVER_UNREACHABLE: &str = "ServerUnreachable";
/// The server did not list its tools in time.
pub const SERVER_TIMEOUT: &str = "ServerTimeout";
/// The server refuses the query.
pub const SERVER_REFUSED: &str = "ServerRefused";
/// The server answers something else than MCP, or too much.
pub const INVALID_SERVER_ANSWER: &str = "InvalidServerAnswer";
/// The URL leads to an address that may not be called.
pub const ADDRESS_DENIED: &str = "AddressDenied";
/// A header for the server cannot be read or sent.
pub const INVALID_HEADER: &str = "InvalidHeader";
/// The certificate authorities for the server cannot be read.
pub const INVALID_CERTIFICATE: &str = "InvalidCertificate";
/// Reasons of failed discoveries of a server's tools. The operator retries them by itself, without a write to the status.
pub const DISCOVERY_FAILURES: &[&str] = &[
    SERVER_UNREACHABLE,
    SERVER_TIMEOUT,
    SERVER_REFUSED,
    INVALID_SERVER_ANSWER,
    ADDRESS_DENIED,
    INVALID_HEADER,
    INVALID_CERTIFICATE,
];
/// The server of a Tool has no such tool.
pub const TOOL_NOT_FOUND: &str = "ToolNotFound";
/// The definition of a tool is another one at its server than the accepted one, or than the one that a Tool names by digest.
pub const TOOL_CHANGED: &str = "ToolChanged";
/// A tool is new at its server, and was not accepted yet.
pub const TOOL_NOT_ACCEPTED: &str = "ToolNotAccepted";
/// The definition of a tool has text that a model reads and people do not see, or is too long to be read.
pub const HIDDEN_TEXT: &str = "HiddenText";
/// Reasons why the definition of a tool waits until it is accepted, the gravest first.
pub const HELD_TOOL: &[&str] = &[HIDDEN_TEXT, TOOL_CHANGED, TOOL_NOT_ACCEPTED];
/// A Tool calls a workload that only gateways may call.
pub const IDENTITY_REQUIRED: &str = "IdentityRequired";
/// A Tool asks an Agent that speaks a protocol of its own.
pub const PLAIN_HTTP: &str = "PlainHttp";

/// An object of this name exists and belongs to something else.
pub const NAME_CONFLICT: &str = "NameConflict";
/// Another client keeps changing an object that the operator applies.
pub const CONTESTED: &str = "Contested";
/// A child is being deleted, and will be applied again after that.
pub const DELETING: &str = "Deleting";
/// The object is being deleted, and waits for its children.
pub const DRAINING: &str = "Draining";
/// Storage or knowledge bases need a database, and none is configured.
pub const MISSING_DATABASE_URL: &str = "MissingDatabaseUrl";
/// `spec.databaseUrl` cannot be parsed.
pub const INVALID_DATABASE_URL: &str = "InvalidDatabaseUrl";

/// An image cannot be pulled.
pub const IMAGE_PULL: &str = "ImagePull";
/// A container ends again and again.
pub const CRASH_LOOP: &str = "CrashLoop";
/// A container cannot be created, as a Secret, ConfigMap or key is missing.
pub const CREATE_CONTAINER_CONFIG_ERROR: &str = "CreateContainerConfigError";
/// No node takes a Pod.
pub const UNSCHEDULABLE: &str = "Unschedulable";
/// The Pods of a rollout are not ready yet.
pub const NOT_READY: &str = "NotReady";
/// A running workload has fewer available Pods than wanted.
pub const PODS_NOT_READY: &str = "PodsNotReady";
/// A running workload had no available Pod for too long.
pub const UNHEALTHY: &str = "Unhealthy";
/// The Pods were not ready before the deadline of the Deployment.
pub const PROGRESS_DEADLINE_EXCEEDED: &str = "ProgressDeadlineExceeded";
/// The Pods cannot be created, because of a quota, a LimitRange or a Pod Security level.
pub const REPLICA_FAILURE: &str = "ReplicaFailure";
