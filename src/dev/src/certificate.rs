//! TLS of the API server: an authority and a certificate for loopback, made anew at each start. Both keys stay in memory.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};

/// ALPN names, the preferred one first.
const PROTOCOLS: [&[u8]; 2] = [daemon::tls::H2, daemon::tls::HTTP1];

/// TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    /// No certificate can be made.
    #[error("make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// It cannot be used.
    #[error("use a certificate: {0}")]
    Use(#[from] rustls::Error),
}

/// Configuration of the server, and what its clients trust.
#[derive(Debug)]
pub(crate) struct Certificate {
    /// Configuration of the server.
    pub(crate) server: Arc<ServerConfig>,
    /// Certificate of the authority in PEM form.
    pub(crate) authority: String,
}

/// Makes an authority, and a certificate of it for this machine's loopback.
///
/// # Errors
/// The system has no random numbers.
pub(crate) fn make() -> Result<Certificate, CertificateError> {
    let mut authority = CertificateParams::new(Vec::<String>::new())?;
    authority.distinguished_name.push(DnType::CommonName, "recif dev");
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate()?;
    let trusted = authority.self_signed(&key)?.pem();
    let issuer = Issuer::new(authority, key);

    let mut server = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    server.distinguished_name.push(DnType::CommonName, "recif dev API server");
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    server.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let certificate = server.signed_by(&key, &issuer)?;

    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions()?.with_no_client_auth();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut config = builder.with_single_cert(vec![certificate.der().clone()], key)?;
    config.alpn_protocols = PROTOCOLS.iter().map(|name| name.to_vec()).collect();
    Ok(Certificate { server: Arc::new(config), authority: trusted })
}
