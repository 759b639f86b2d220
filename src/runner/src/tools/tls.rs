//! Verification of a tool server's certificate, if not by the system's certificate authorities alone.

use std::fmt;

use mcp::Trust;
use serde::Deserialize;

use super::{
    error::ToolError,
    headers::{ToolVariables, expand},
};

/// TLS settings of a tool. The text comes from a Secret, so it is never printed.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Tls {
    /// Accepts any certificate.
    #[serde(default)]
    insecure_skip_verify: bool,
    /// Certificates (PEM) of authorities that are trusted in addition to the system's, with `$NAME` for a variable.
    #[serde(default)]
    ca: String,
    /// Trusts the system's authorities besides those.
    #[serde(rename = "systemCAs", default = "yes")]
    system_cas: bool,
}

fn yes() -> bool {
    true
}

impl Default for Tls {
    fn default() -> Self {
        Self { insecure_skip_verify: false, ca: String::new(), system_cas: true }
    }
}

impl Tls {
    /// Returns the trust settings for the client of a tool.
    ///
    /// # Errors
    /// A variable that is not set.
    pub(super) fn trust(&self, environment: &ToolVariables<'_>) -> Result<Trust, ToolError> {
        self.trust_by(|name| environment.get(name)).map_err(ToolError::Failed)
    }

    /// Returns the trust settings for the client; `lookup` returns the value of a variable, or why there is none.
    ///
    /// # Errors
    /// A variable that is not set.
    pub(crate) fn trust_by(&self, lookup: impl Fn(&str) -> Result<String, String>) -> Result<Trust, String> {
        if self.insecure_skip_verify {
            return Ok(Trust::Unverified);
        }
        if self.ca.is_empty() && self.system_cas {
            return Ok(Trust::System);
        }
        let pem = expand(&self.ca, lookup)
            .map_err(|problem| format!("the server's authorities are in {problem}"))?
            .into_bytes();
        Ok(if self.system_cas { Trust::Additional(pem) } else { Trust::Only(pem) })
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("insecure_skip_verify", &self.insecure_skip_verify).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn trust(tls: Value) -> Result<Trust, String> {
        let tls: Tls = serde_json::from_value(tls).unwrap();
        let environment = |name: &str| (name == "CA").then(|| "certificates".to_owned());
        tls.trust(&ToolVariables::new("TOOL_T_".into(), [], &environment)).map_err(|error| error.to_string())
    }

    #[test]
    fn authorities_are_those_of_the_variable() {
        assert_eq!(trust(json!({})), Ok(Trust::System));
        assert_eq!(trust(json!({"insecureSkipVerify": true})), Ok(Trust::Unverified));
        assert_eq!(trust(json!({"ca": "$CA"})), Ok(Trust::Additional(b"certificates".to_vec())));
        assert_eq!(trust(json!({"ca": "$CA", "systemCAs": false})), Ok(Trust::Only(b"certificates".to_vec())));
        let problem = "the server's authorities are in the environment variable SURELY_NOT_SET, which is not set";
        assert_eq!(trust(json!({"ca": "$SURELY_NOT_SET"})), Err(problem.to_owned()));
    }
}
