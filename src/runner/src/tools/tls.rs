//! Verification of a tool server's certificate, if not by the system's certificate authorities alone.

use std::fmt;

use mcp::Trust;
use serde::Deserialize;

use super::{
    error::ToolError,
    headers::{ToolVariables, expand},
};

/// TLS settings of a tool. The text comes from a Secret, so it is never printed.
#[derive(Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tls {
    /// Accepts any certificate.
    #[serde(default)]
    insecure_skip_verify: bool,
    /// Certificates (PEM) of authorities that are trusted in addition to the system's, with `$NAME` for a variable.
    #[serde(default)]
    ca: String,
    /// Trusts those authorities alone.
    #[serde(default)]
    only_ca: bool,
}

impl Tls {
    /// Returns the trust settings for the client.
    ///
    /// # Errors
    /// A variable that is not set.
    pub(super) fn trust(&self, environment: &ToolVariables<'_>) -> Result<Trust, ToolError> {
        if self.insecure_skip_verify {
            return Ok(Trust::Unverified);
        }
        if self.ca.is_empty() {
            return Ok(Trust::System);
        }
        let pem = expand(&self.ca, |name| environment.get(name))
            .map_err(|problem| ToolError::Failed(format!("the server's authorities are in {problem}")))?;
        Ok(if self.only_ca { Trust::Only(pem.into_bytes()) } else { Trust::Additional(pem.into_bytes()) })
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
        assert_eq!(trust(json!({"ca": "$CA", "onlyCa": true})), Ok(Trust::Only(b"certificates".to_vec())));
        let problem = "the server's authorities are in the environment variable SURELY_NOT_SET, which is not set";
        assert_eq!(trust(json!({"ca": "$SURELY_NOT_SET"})), Err(problem.to_owned()));
    }
}
