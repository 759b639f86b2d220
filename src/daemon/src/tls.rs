//! TLS towards clients, for gateway and control plane.
//!
//! The certificate is that of a mounted Secret, and is read again when it changes. Open connections keep the
//! certificate with which they began.

use std::{
    fmt, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustls::{
    ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use sha2::{Digest as _, Sha256};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// Interval between checks of the files. The kubelet updates a changed Secret within about a minute.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Longest time for a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// ALPN name of HTTP/2.
pub const H2: &[u8] = b"h2";
/// ALPN name of HTTP/1.1.
pub const HTTP1: &[u8] = b"http/1.1";

/// Options about TLS.
#[derive(Debug, Clone, clap::Args)]
pub struct TlsArgs {
    /// Certificate chain in PEM form: serves TLS too. It is read again when it changes
    #[arg(long, env = "RECIF_TLS_CERT", requires = "tls_key", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Its private key in PEM form
    #[arg(long, env = "RECIF_TLS_KEY", requires = "tls_cert", value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Address that clients talk TLS to
    #[arg(long, env = "RECIF_TLS_LISTEN", default_value = "0.0.0.0:8443", value_name = "ADDRESS")]
    tls_listen: SocketAddr,
}

impl TlsArgs {
    /// Returns the address that serves TLS, with its certificate and key; `None` if TLS is not served.
    pub fn read(&self) -> Option<(SocketAddr, &Path, &Path)> {
        Some((self.tls_listen, self.tls_cert.as_deref()?, self.tls_key.as_deref()?))
    }
}

/// The certificate and key cannot be used. The error never holds the key.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("read {path}: {source}; give --tls-cert and --tls-key PEM files that this process may read")]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A file has no such content.
    #[error("{path} holds no {what} in PEM form")]
    Pem {
        /// The file.
        path: PathBuf,
        /// Content that it should have.
        what: &'static str,
    },
    /// Certificate and key do not match, or are of an unsupported type.
    #[error("{cert} and {key} cannot be used together: {source}")]
    Unusable {
        /// The file with the certificate.
        cert: PathBuf,
        /// The file with the key.
        key: PathBuf,
        /// Cause.
        source: rustls::Error,
    },
}

/// TLS for connections of clients.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
    current: Arc<CurrentCertificate>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

/// Certificate for new connections, replaced when the files change.
#[derive(Debug)]
struct CurrentCertificate {
    cert: PathBuf,
    key: PathBuf,
    provider: Arc<CryptoProvider>,
    certified: Mutex<Arc<CertifiedKey>>,
}

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.certified.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

impl Tls {
    /// Loads the certificate chain and its key. `protocols` are offered to clients by ALPN, the preferred one first.
    ///
    /// # Errors
    /// Certificate or key cannot be used.
    pub fn load(cert: &Path, key: &Path, protocols: &[&[u8]]) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let certified = PemFiles::read(cert, key)?.certified(cert, key, &provider)?;
        let unfit = |source| TlsError::Unusable { cert: cert.into(), key: key.into(), source };
        let builder = ServerConfig::builder_with_provider(provider.clone());
        let builder = builder.with_safe_default_protocol_versions().map_err(unfit)?;
        let certified = Mutex::new(Arc::new(certified));
        let current = Arc::new(CurrentCertificate { cert: cert.into(), key: key.into(), provider, certified });
        let mut config = builder.with_no_client_auth().with_cert_resolver(current.clone());
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), current })
    }

    /// Performs the TLS handshake with a client.
    ///
    /// # Errors
    /// The client supports no common TLS parameters, or takes too long.
    pub async fn accept(&self, io: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        timeout(HANDSHAKE_TIMEOUT, self.acceptor.accept(io)).await?
    }

    /// Watches the files for changes and never returns. A certificate that cannot be used is logged, and the last good
    /// one stays.
    pub async fn watch_files(self) {
        let CurrentCertificate { cert, key, provider, certified } = &*self.current;
        let mut known = PemFiles::read(cert, key).map(|files| files.digest()).ok();
        let mut looks = tokio::time::interval(POLL_INTERVAL);
        loop {
            looks.tick().await;
            let files = match PemFiles::read(cert, key) {
                Ok(files) => files,
                Err(error) => {
                    if known.take().is_some() {
                        tracing::error!(%error, "the certificate cannot be read: the last one stays");
                    }
                    continue;
                }
            };
            let digest = Some(files.digest());
            if known == digest {
                continue;
            }
            known = digest;
            match files.certified(cert, key, provider) {
                Ok(fresh) => {
                    *certified.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(fresh);
                    tracing::info!(cert = %cert.display(), "new connections get a new certificate");
                }
                Err(error) => tracing::error!(%error, "the new certificate cannot be used: the last one stays"),
            }
        }
    }
}

/// Reports whether a client chose HTTP/2.
pub fn negotiated_h2(io: &TlsStream<TcpStream>) -> bool {
    io.get_ref().1.alpn_protocol() == Some(H2)
}

/// Content of the files.
struct PemFiles {
    cert: Vec<u8>,
    key: Vec<u8>,
}

impl PemFiles {
    fn read(cert: &Path, key: &Path) -> Result<Self, TlsError> {
        let read = |path: &Path| std::fs::read(path).map_err(|source| TlsError::Read { path: path.into(), source });
        Ok(Self { cert: read(cert)?, key: read(key)? })
    }

    fn digest(&self) -> [u8; 32] {
        Sha256::new().chain_update(&self.cert).chain_update(b"\0").chain_update(&self.key).finalize().into()
    }

    fn certified(&self, cert: &Path, key: &Path, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
        let no = |path: &Path, what| TlsError::Pem { path: path.into(), what };
        let chain = CertificateDer::pem_slice_iter(&self.cert).collect::<Result<Vec<_>, _>>().unwrap_or_default();
        if chain.is_empty() {
            return Err(no(cert, "certificate"));
        }
        let secret = PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| no(key, "private key"))?;
        CertifiedKey::from_der(chain, secret, provider).map_err(|source| TlsError::Unusable {
            cert: cert.into(),
            key: key.into(),
            source,
        })
    }
}
