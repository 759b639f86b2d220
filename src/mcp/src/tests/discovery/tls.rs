//! Discoveries at servers behind TLS.

use testing::certificates::{certificate, serve_tls};

use super::*;

#[tokio::test]
async fn a_certificate_is_accepted_by_its_authority_or_unchecked_and_else_refused() {
    let plain = newer(Arc::default(), Arc::default()).await;
    let plain = plain.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
    let url = format!("https://localhost:{}/mcp", serve_tls(plain).await);
    let reach = reach(DENIED_RANGES);
    for (trust, taken) in [
        (Trust::System, false),
        (Trust::Additional(certificate("two")), false),
        (Trust::Additional(certificate("one")), true),
        (Trust::Only(certificate("two")), false),
        (Trust::Only(certificate("one")), true),
        (Trust::Unverified, true),
    ] {
        let asked = ask_by(reach.client(&trust).unwrap(), &question(&url)).await;
        assert_eq!(asked.is_ok(), taken, "{trust:?}: {asked:?}");
        if let Err(failed) = asked {
            assert_eq!(failed.reason, "ServerUnreachable");
            assert!(failed.message.contains("certificate"), "{failed:?}");
        }
    }
}

#[tokio::test]
async fn certificates_that_are_none_are_told() {
    for trust in [Trust::Additional(b"not a certificate".to_vec()), Trust::Only(Vec::new())] {
        let error = reach(&[]).client(&trust).unwrap_err();
        assert!(error.to_string().contains("certificate"), "{error}");
    }
}
