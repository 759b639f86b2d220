//! Provides certificates of `localhost` (`one` and `two`), and a TLS proxy for a server without TLS.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;

/// Returns a certificate of `localhost` as PEM; `one` is that of [`serve_tls`]. None is signed by an authority that the
/// system trusts.
pub fn certificate(name: &str) -> Vec<u8> {
    std::fs::read(file(&format!("{name}.crt"))).unwrap()
}

/// Returns the path of a file: `one.crt`, `one.key`, `two.crt` or `two.key`.
pub fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("certs").join(name)
}

/// Starts a TLS proxy for the server at this address; returns its port on `localhost`.
pub async fn serve_tls(plain: String) -> u16 {
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
