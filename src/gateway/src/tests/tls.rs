//! Tests of TLS, with the certificates in `certs`, which serve no other purpose.

use std::path::PathBuf;

use daemon::tls::{H2, HTTP1, Tls, TlsError};
use http_body_util::BodyExt as _;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use testing::certificates;

use super::*;

/// Directory with a certificate and its key; dropping this removes it.
struct CertificateFiles(PathBuf);

impl CertificateFiles {
    fn new(name: &str, holding: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("recif-tls-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let files = Self(folder);
        files.hold(holding);
        files
    }

    fn hold(&self, name: &str) {
        for end in ["crt", "key"] {
            std::fs::copy(certificates::file(&format!("{name}.{end}")), self.0.join(format!("tls.{end}"))).unwrap();
        }
    }

    fn load(&self) -> Result<Tls, TlsError> {
        Tls::load(&self.0.join("tls.crt"), &self.0.join("tls.key"), &[H2, HTTP1])
    }
}

impl Drop for CertificateFiles {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Connects a client that trusts only the certificate of this name, and offers these ALPN protocols.
async fn client(address: SocketAddr, trusted: &str, protocols: &[&str]) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificates::file(&format!("{trusted}.crt"))).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let io = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    timeout(SOON, TlsConnector::from(Arc::new(config)).connect(name, io)).await?
}

/// Starts a gateway in front of this Pod that also serves TLS. Returns the TLS address too.
async fn start(pod: &TestPod, tls: Tls) -> (TestGateway, SocketAddr) {
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let secured = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = secured.local_addr().unwrap();
    tokio::spawn(tls.clone().watch_files());
    tokio::spawn(accept(secured, Some(tls), gateway.shared.clone(), SOON, 1));
    (gateway, address)
}

#[tokio::test]
async fn http1_and_http2_are_spoken_over_tls() {
    let mut pod = TestPod::start().await;
    let files = CertificateFiles::new("both", "one");
    let (_gateway, address) = start(&pod, files.load().unwrap()).await;
    for protocols in [&[][..], &["http/1.1"]] {
        let mut client = client(address, "one", protocols).await.unwrap();
        client.write_all(GET).await.unwrap();
        let (mut io, head) = pod.next().await;
        assert_eq!(field(&head, "x-forwarded-proto"), Some("https"));
        io.write_all(OK).await.unwrap();
        let mut answer = [0; 15];
        timeout(SOON, client.read_exact(&mut answer)).await.unwrap().unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200 OK");
    }
    let client = client(address, "one", &["h2", "http/1.1"]).await.unwrap();
    assert_eq!(client.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut client = h2::client(client).await;
    let answer = tokio::spawn(client.send_request(h2::get("/v1/agents/ns/a/x")));
    let (mut io, head) = pod.next().await;
    assert_eq!(field(&head, "x-forwarded-proto"), Some("https"));
    io.write_all(OK).await.unwrap();
    let answer = timeout(SOON, answer).await.unwrap().unwrap().unwrap();
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "ok");
}

#[tokio::test]
async fn a_new_certificate_is_taken_without_ending_connections() {
    let mut pod = TestPod::start().await;
    let files = CertificateFiles::new("renewed", "one");
    let (_gateway, address) = start(&pod, files.load().unwrap()).await;
    let mut old = client(address, "one", &[]).await.unwrap();
    assert!(client(address, "two", &[]).await.is_err());
    files.hold("two");
    let renewed = async {
        while client(address, "two", &[]).await.is_err() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(2 * SOON, renewed).await.unwrap();
    // An unusable certificate changes nothing.
    std::fs::copy(certificates::file("one.key"), files.0.join("tls.key")).unwrap();
    old.write_all(GET).await.unwrap();
    pod.next().await.0.write_all(OK).await.unwrap();
    let mut answer = [0; 15];
    timeout(SOON, old.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    assert!(client(address, "two", &[]).await.is_ok());
}

#[tokio::test]
async fn an_answer_that_breaks_off_ends_without_a_close() {
    let mut pod = TestPod::start().await;
    let files = CertificateFiles::new("broken", "one");
    let (_gateway, address) = start(&pod, files.load().unwrap()).await;
    let mut client = client(address, "one", &[]).await.unwrap();
    client.write_all(GET).await.unwrap();
    let (mut io, _) = pod.next().await;
    io.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nuno").await.unwrap();
    let mut begun = [0; 15];
    timeout(SOON, client.read_exact(&mut begun)).await.unwrap().unwrap();
    drop(io);
    assert!(timeout(SOON, client.read_to_end(&mut Vec::new())).await.unwrap().is_err());
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let files = CertificateFiles::new("bad", "one");
    std::fs::copy(certificates::file("two.key"), files.0.join("tls.key")).unwrap();
    let unfit = files.load().unwrap_err().to_string();
    assert!(unfit.contains("tls.crt") && unfit.contains("tls.key"), "{unfit}");
    std::fs::write(files.0.join("tls.key"), "secret").unwrap();
    let empty = files.load().unwrap_err().to_string();
    assert!(empty.ends_with("tls.key holds no private key in PEM form") && !empty.contains("secret"), "{empty}");
    std::fs::remove_file(files.0.join("tls.crt")).unwrap();
    let missing = files.load().unwrap_err().to_string();
    assert!(missing.contains("--tls-cert") && missing.contains("tls.crt"), "{missing}");
}
