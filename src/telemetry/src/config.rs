//! Configuration from the standard environment, as [OpenTelemetry
//! names](https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/) its variables.
//!
//! An empty variable is as good as none. No value is shown that may hold a credential.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use url::Url;

use crate::sampler::Sampler;

/// Path that is added to the address of a collector.
const TRACES_PATH: &str = "v1/traces";
/// Largest queue, batch and delay.
const MAX_QUEUE: usize = 65_536;
/// Longest time for a request, in milliseconds.
const MAX_TIMEOUT: u64 = 600_000;

/// Variable that is refused, and what it may be instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TelemetryError {
    /// Value that may hold a credential.
    #[error("{name} is refused: give {instead}")]
    Refused {
        /// Variable.
        name: &'static str,
        /// Accepted values.
        instead: &'static str,
    },
    /// gRPC.
    #[error("{name}: grpc is not spoken: use the collector's HTTP port, usually 4318")]
    Grpc {
        /// Variable.
        name: &'static str,
    },
    /// Other value.
    #[error("{name}={value:?} is refused: give {instead}")]
    Value {
        /// Variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// Accepted values.
        instead: &'static str,
    },
    /// Certificates that cannot be used.
    #[error("{name}: {problem}")]
    Certificate {
        /// Variable.
        name: &'static str,
        /// Reason why not.
        problem: String,
    },
}

/// Encoding of exported spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportProtocol {
    /// Protocol buffers.
    Protobuf,
    /// JSON.
    Json,
}

/// Configuration of traces.
#[derive(Debug, Clone, PartialEq)]
pub struct TelemetryConfig {
    /// URL that spans are sent to; `None`: nothing is recorded.
    pub endpoint: Option<Url>,
    /// Encoding.
    pub protocol: ExportProtocol,
    /// Headers of each request; sensitive.
    pub headers: HeaderMap,
    /// File with certificate authorities, in PEM, that are trusted besides the system's.
    /// Named by the variable that it comes from.
    pub certificate: Option<(&'static str, PathBuf)>,
    /// File with the token that each request shows; it is read each time, because it is renewed.
    pub token_file: Option<PathBuf>,
    /// Time for one request.
    pub timeout: Duration,
    /// Set for bodies in gzip.
    pub has_compression: bool,
    /// Choice of the traces that are recorded.
    pub sampler: Sampler,
    /// Set if spans may hold content: messages, and what tools get and return.
    pub captures_content: bool,
    /// Spans that wait at most.
    pub max_queue: usize,
    /// Spans of one request at most.
    pub max_batch: usize,
    /// Longest wait before a request.
    pub delay: Duration,
    /// Name of the service, if set.
    pub service_name: Option<String>,
    /// Further attributes of the process.
    pub resource: Vec<(String, String)>,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            endpoint: None,
            protocol: ExportProtocol::Protobuf,
            headers: HeaderMap::new(),
            certificate: None,
            token_file: None,
            timeout: Duration::from_secs(10),
            has_compression: true,
            sampler: Sampler::default(),
            captures_content: false,
            max_queue: 2048,
            max_batch: 512,
            delay: Duration::from_secs(1),
            service_name: None,
            resource: Vec::new(),
        }
    }
}

impl TelemetryConfig {
    /// Reads the configuration through `lookup`. With `OTEL_SDK_DISABLED=true`, or without a collector, nothing else is read.
    ///
    /// # Errors
    /// The first variable that is refused.
    pub fn read(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Self, TelemetryError> {
        let variables = EnvVariables(lookup);
        let default = Self::default();
        if variables.flag("OTEL_SDK_DISABLED")? {
            return Ok(default);
        }
        let Some(endpoint) = variables.endpoint()? else { return Ok(default) };
        let millis = |duration: Duration| usize::try_from(duration.as_millis()).unwrap_or(MAX_QUEUE);
        let max_queue = variables.size("OTEL_BSP_MAX_QUEUE_SIZE", default.max_queue)?;
        let delay = variables.size("OTEL_BSP_SCHEDULE_DELAY", millis(default.delay))?;
        Ok(Self {
            endpoint: Some(endpoint),
            protocol: variables.protocol()?,
            headers: variables.headers()?,
            certificate: variables.either(CERTIFICATE).map(|(name, path)| (name, path.into())),
            token_file: variables.get(TOKEN_FILE).map(PathBuf::from),
            timeout: variables.timeout()?.unwrap_or(default.timeout),
            has_compression: variables.has_compression()?,
            sampler: variables.sampler()?,
            captures_content: variables.flag(CAPTURE_CONTENT)?,
            max_queue,
            max_batch: variables.batch(default.max_batch, max_queue)?,
            delay: Duration::from_millis(u64::try_from(delay).unwrap_or_default()),
            service_name: variables.get("OTEL_SERVICE_NAME"),
            resource: variables.resource()?,
        })
    }

    /// Returns the attributes of the process: those of the environment, of which `own` ones go before.
    pub fn resource_of(&self, own: &[(&'static str, String)]) -> Vec<(String, String)> {
        // Of a name that is there twice the last value counts: the operator's own stand behind those that it hands on.
        let mut others: BTreeMap<&str, &str> = BTreeMap::new();
        others.extend(self.resource.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        for (name, _) in own {
            others.remove(name);
        }
        let own = own.iter().map(|(name, value)| (*name, value.as_str()));
        own.chain(others).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }
}

/// Names of a variable: for traces alone, which goes first, and for all signals.
type VariablePair = [&'static str; 2];

const PROTOCOL: VariablePair = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
const HEADERS: VariablePair = ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
/// Names of the file with certificates.
const CERTIFICATE: VariablePair = ["OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"];
const TIMEOUT: VariablePair = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];
const COMPRESSION: VariablePair = ["OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"];
/// Name of the file with the token, which is none of the standard's.
const TOKEN_FILE: &str = "RECIF_OTLP_TOKEN_FILE";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const SAMPLER_ARG: &str = "OTEL_TRACES_SAMPLER_ARG";
const BATCH: &str = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE";
const RESOURCE: &str = "OTEL_RESOURCE_ATTRIBUTES";
const CAPTURE_CONTENT: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";

const A_URL: &str = "a URL such as http://collector:4318";
const PAIRS: &str = "name=value, separated by commas";
const A_SIZE: &str = "a number from 1 to 65536";

/// Variables of the environment.
struct EnvVariables<'a>(&'a dyn Fn(&str) -> Option<String>);

impl EnvVariables<'_> {
    fn get(&self, name: &str) -> Option<String> {
        (self.0)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// Returns the first of the two that is set, and its value.
    fn either(&self, names: VariablePair) -> Option<(&'static str, String)> {
        names.into_iter().find_map(|name| self.get(name).map(|value| (name, value)))
    }

    fn flag(&self, name: &'static str) -> Result<bool, TelemetryError> {
        match self.get(name) {
            None => Ok(false),
            Some(value) if value.eq_ignore_ascii_case("true") => Ok(true),
            Some(value) if value.eq_ignore_ascii_case("false") => Ok(false),
            Some(value) => Err(TelemetryError::Value { name, value, instead: "true or false" }),
        }
    }

    fn size(&self, name: &'static str, default: usize) -> Result<usize, TelemetryError> {
        let Some(value) = self.get(name) else { return Ok(default) };
        match value.parse() {
            Ok(size @ 1..=MAX_QUEUE) => Ok(size),
            _ => Err(TelemetryError::Value { name, value, instead: A_SIZE }),
        }
    }

    fn batch(&self, default: usize, max_queue: usize) -> Result<usize, TelemetryError> {
        let batch = self.size(BATCH, default.min(max_queue))?;
        if batch > max_queue {
            let instead = "at most OTEL_BSP_MAX_QUEUE_SIZE";
            return Err(TelemetryError::Value { name: BATCH, value: batch.to_string(), instead });
        }
        Ok(batch)
    }

    fn endpoint(&self) -> Result<Option<Url>, TelemetryError> {
        if let Some(text) = self.get(TRACES_ENDPOINT) {
            return parse_url(TRACES_ENDPOINT, &text).map(Some);
        }
        let Some(text) = self.get(ENDPOINT) else { return Ok(None) };
        let mut url = parse_url(ENDPOINT, &text)?;
        let path = format!("{}/{TRACES_PATH}", url.path().trim_end_matches('/'));
        url.set_path(&path);
        Ok(Some(url))
    }

    fn protocol(&self) -> Result<ExportProtocol, TelemetryError> {
        match self.either(PROTOCOL) {
            None => Ok(ExportProtocol::Protobuf),
            Some((name, value)) => match value.as_str() {
                "http/protobuf" => Ok(ExportProtocol::Protobuf),
                "http/json" => Ok(ExportProtocol::Json),
                "grpc" => Err(TelemetryError::Grpc { name }),
                _ => Err(TelemetryError::Value { name, value, instead: "http/protobuf or http/json" }),
            },
        }
    }

    fn headers(&self) -> Result<HeaderMap, TelemetryError> {
        let Some((name, text)) = self.either(HEADERS) else { return Ok(HeaderMap::new()) };
        let refused = || TelemetryError::Refused { name, instead: PAIRS };
        let mut headers = HeaderMap::new();
        for (header, value) in parse_pairs(&text).ok_or_else(refused)? {
            let header = HeaderName::from_str(&header).map_err(|_| refused())?;
            let mut value = HeaderValue::from_str(&value).map_err(|_| refused())?;
            value.set_sensitive(true);
            headers.append(header, value);
        }
        Ok(headers)
    }

    fn timeout(&self) -> Result<Option<Duration>, TelemetryError> {
        let Some((name, value)) = self.either(TIMEOUT) else { return Ok(None) };
        match value.parse() {
            Ok(millis @ 1..=MAX_TIMEOUT) => Ok(Some(Duration::from_millis(millis))),
            _ => Err(TelemetryError::Value { name, value, instead: "milliseconds, from 1 to 600000" }),
        }
    }

    fn has_compression(&self) -> Result<bool, TelemetryError> {
        match self.either(COMPRESSION) {
            None => Ok(true),
            Some((_, value)) if value == "gzip" => Ok(true),
            Some((_, value)) if value == "none" => Ok(false),
            Some((name, value)) => Err(TelemetryError::Value { name, value, instead: "gzip or none" }),
        }
    }

    fn sampler(&self) -> Result<Sampler, TelemetryError> {
        let ratio = match self.get(SAMPLER_ARG) {
            None => 1.0,
            Some(value) => match value.parse::<f64>() {
                Ok(ratio) if (0.0..=1.0).contains(&ratio) => ratio,
                _ => {
                    return Err(TelemetryError::Value {
                        name: SAMPLER_ARG,
                        value,
                        instead: "a number from 0 to 1, such as 0.25",
                    });
                }
            },
        };
        let Some(value) = self.get(SAMPLER) else { return Ok(Sampler::default()) };
        Sampler::named(&value, ratio).ok_or(TelemetryError::Value { name: SAMPLER, value, instead: Sampler::NAMES })
    }

    fn resource(&self) -> Result<Vec<(String, String)>, TelemetryError> {
        let Some(text) = self.get(RESOURCE) else { return Ok(Vec::new()) };
        parse_pairs(&text).ok_or(TelemetryError::Refused { name: RESOURCE, instead: PAIRS })
    }
}

fn parse_url(name: &'static str, text: &str) -> Result<Url, TelemetryError> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let url = url.filter(|url| url.username().is_empty() && url.password().is_none());
    // A key in a query would reach every Pod, and statuses.
    let url = url.filter(|url| url.query().is_none() && url.fragment().is_none());
    url.ok_or(TelemetryError::Refused { name, instead: A_URL })
}

/// Parses `name=value,…` with percent-encoded values.
fn parse_pairs(text: &str) -> Option<Vec<(String, String)>> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=')?;
            let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
            let name = name.trim();
            (!name.is_empty()).then(|| (name.to_owned(), value.into_owned()))
        })
        .collect()
}
