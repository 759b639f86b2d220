//! Servers behind TLS.

use std::path::Path;

use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::*;

/// A certificate of `localhost`; `one` is the one that [`secured`] shows. None is signed by an authority of the system.
pub(crate) fn certificate(name: &str) -> Vec<u8> {
    std::fs::read(file(&format!("{name}.crt"))).unwrap()
}

fn file(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/gateway/tests/certs").join(name)
}

/// Puts TLS before a server at this address; the port at which `localhost` has it.
pub(crate) async fn secured(plain: String) -> u16 {
    let certificate = CertificateDer::from_pem_file(file("one.crt")).unwrap();
    let key = PrivateKeyDer::from_pem_file(file("one.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((io, _)) = listener.accept().await {
            let (acceptor, plain) = (acceptor.clone(), plain.clone());
            tokio::spawn(async move {
                let mut client = acceptor.accept(io).await.ok()?;
                let mut server = TcpStream::connect(plain).await.ok()?;
                copy_bidirectional(&mut client, &mut server).await.ok()
            });
        }
    });
    port
}

#[tokio::test]
async fn a_certificate_is_taken_by_its_authority_or_because_nobody_looks_and_else_refused() {
    let plain = newer(Arc::default(), Arc::default()).await;
    let plain = plain.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
    let url = format!("https://localhost:{}/mcp", secured(plain).await);
    let reach = reach(DENIED);
    for (trust, taken) in [
        (Trust::System, false),
        (Trust::Also(certificate("two")), false),
        (Trust::Also(certificate("one")), true),
        (Trust::Anyone, true),
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
    let error = reach(&[]).client(&Trust::Also(b"not a certificate".to_vec())).unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
}
