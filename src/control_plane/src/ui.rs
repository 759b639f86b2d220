//! Serves the web UI, which is embedded in the program.
//!
//! Files are embedded in the form in which they are sent: compressed by the build, and plain only if the build has no gzip form
//! of them. Files below `assets/` have a digest in their names, so a browser loads them once and caches them for good. A path
//! that names no file is a route of the UI, and gets its page. Nothing may be loaded from other origins, and scripts only from
//! the elements of the page that carry its nonce (CSP level 3, section 8.2): workloads serve content on this origin, too, below
//! `/gateway`. So the page is rendered for each request.

use std::io::Read as _;

use axum::{body::Body, response::Response};
use bytes::Bytes;
use daemon::ids::random_hex;
use flate2::read::GzDecoder;
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use sha2::{Digest, Sha256};

/// Embedded file, in the forms in which it can be sent.
struct Asset {
    path: &'static str,
    /// `None`: the decompressed `gzip`.
    plain: Option<&'static [u8]>,
    brotli: Option<&'static [u8]>,
    gzip: Option<&'static [u8]>,
}

/// Files of the built UI; empty if the program was compiled without it.
static ASSETS: &[Asset] = include!(concat!(env!("OUT_DIR"), "/ui_assets.rs"));

const INDEX: &str = "index.html";
/// Value of `Cache-Control` for files with a digest in their names.
const IMMUTABLE: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");
const POLICY: &str =
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'";
/// Starts of the tags by which the page loads scripts; the nonce is inserted behind them.
const SCRIPT_TAGS: [&str; 2] = ["<script ", "<link rel=\"modulepreload\" "];

/// Redirects from the root to the UI.
pub(super) async fn redirect() -> Response {
    let mut response = text(StatusCode::FOUND, "The web UI is at /ui/.\n");
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static("/ui/"));
    response
}

/// Responds to GET and HEAD of `/ui` and everything below it.
pub(super) async fn serve(uri: Uri, headers: HeaderMap) -> Response {
    respond(ASSETS, uri.path(), &headers)
}

fn respond(assets: &'static [Asset], path: &str, headers: &HeaderMap) -> Response {
    let name = path.strip_prefix("/ui").unwrap_or(path).trim_start_matches('/');
    let find = |name: &str| assets.iter().find(|asset| asset.path == name);
    let Some(page) = find(INDEX) else {
        return text(
            StatusCode::NOT_FOUND,
            "This program was built without its web UI: run `make ui`, and build it again.\n",
        );
    };
    match find(name) {
        Some(asset) if asset.path != INDEX => file(asset, headers),
        // A page that is older than the program loads files that no longer exist. It must not get the page in place of a
        // script.
        _ if name.starts_with("assets/") => text(StatusCode::NOT_FOUND, "File not found: reload the page.\n"),
        _ => index_page(page),
    }
}

/// Renders the page with a nonce for its scripts. The scripts that they import are trusted with them (`strict-dynamic`);
/// `'self'` is for browsers that do not know `strict-dynamic`, and is ignored by all others.
fn index_page(page: &'static Asset) -> Response {
    let Ok(nonce) = random_hex::<16>() else {
        return text(StatusCode::SERVICE_UNAVAILABLE, "The system has no random numbers.\n");
    };
    let plain = page.plain.map_or_else(|| decompressed(page.gzip), Bytes::from_static);
    let marked = SCRIPT_TAGS.iter().fold(String::from_utf8_lossy(&plain).into_owned(), |html, tag| {
        html.replace(tag, &format!("{tag}nonce=\"{nonce}\" "))
    });
    let mut response = Response::new(Body::from(marked));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type(INDEX)));
    response.headers_mut().insert(header::CACHE_CONTROL, NO_CACHE);
    let policy = format!("{POLICY}; script-src 'nonce-{nonce}' 'strict-dynamic' 'self'");
    with_security_headers(response, &policy)
}

fn file(asset: &'static Asset, headers: &HeaderMap) -> Response {
    let (bytes, encoding) = match (asset.brotli, asset.gzip) {
        (Some(bytes), _) if accepts(headers, "br") => (Bytes::from_static(bytes), Some("br")),
        (_, Some(bytes)) if accepts(headers, "gzip") => (Bytes::from_static(bytes), Some("gzip")),
        (_, packed) => (asset.plain.map_or_else(|| decompressed(packed), Bytes::from_static), None),
    };
    let forever = asset.path.starts_with("assets/");
    let tag = etag(&bytes);
    let mut response = Response::new(Body::empty());
    let known = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    if known.flat_map(|value| value.split(',')).any(|known| known.trim().trim_start_matches("W/") == tag) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    } else {
        *response.body_mut() = Body::from(bytes);
    }
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type(asset.path)));
    fields.insert(header::CACHE_CONTROL, if forever { IMMUTABLE } else { NO_CACHE });
    fields.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if let Ok(tag) = HeaderValue::try_from(tag) {
        fields.insert(header::ETAG, tag);
    }
    if let Some(encoding) = encoding {
        fields.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
    }
    with_security_headers(response, POLICY)
}

/// Decompresses an embedded file.
fn decompressed(gzip: Option<&[u8]>) -> Bytes {
    let mut plain = Vec::new();
    // The build wrote the bytes, and reading memory does not fail.
    let _ = GzDecoder::new(gzip.unwrap_or_default()).read_to_end(&mut plain);
    plain.into()
}

fn text(status: StatusCode, text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response.headers_mut().insert(header::CACHE_CONTROL, NO_CACHE);
    with_security_headers(response, POLICY)
}

fn with_security_headers(mut response: Response, policy: &str) -> Response {
    let fields = response.headers_mut();
    if let Ok(policy) = HeaderValue::try_from(policy) {
        fields.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    fields.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    fields.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// Returns the entity tag of these bytes. Each encoding has its own, as RFC 9110, section 8.8.3.3, requires.
fn etag(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    format!("\"{}\"", hex::encode(&digest[..12]))
}

/// Reports whether a client lists the coding without the weight 0, which forbids it (RFC 9110, section 12.5.3).
fn accepts(headers: &HeaderMap, coding: &str) -> bool {
    let listed = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    listed.flat_map(|value| value.split(',')).any(|one| {
        let mut parts = one.split(';').map(str::trim);
        let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(coding));
        let refused = parts.any(|part| {
            let weight = part.strip_prefix("q=").or_else(|| part.strip_prefix("Q="));
            weight.and_then(|weight| weight.parse::<f32>().ok()) == Some(0.0)
        });
        named && !refused
    })
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("json") => "application/json",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    static BUILT: &[Asset] = &[
        Asset { path: "assets/index-abc.js", plain: None, brotli: Some(b"br"), gzip: Some(PACKED) },
        Asset { path: INDEX, plain: Some(b"<html><script src=\"/ui/assets/index-abc.js\">"), brotli: None, gzip: None },
    ];

    /// The text `plain`, compressed by `gzip -n`.
    const PACKED: &[u8] = b"\x1f\x8b\x08\0\0\0\0\0\0\x03+\xc8I\xcc\xcc\x03\0\xcfb \x19\x05\0\0\0";

    fn headers(pairs: &[(header::HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap())).collect()
    }

    fn field(response: &Response, name: header::HeaderName) -> &str {
        response.headers().get(name).map_or("", |value| value.to_str().unwrap())
    }

    async fn body(response: Response) -> Vec<u8> {
        response.into_body().collect().await.unwrap().to_bytes().to_vec()
    }

    #[tokio::test]
    async fn files_with_a_digest_are_kept_for_ever_and_the_page_is_asked_for_again() {
        let script = respond(BUILT, "/ui/assets/index-abc.js", &HeaderMap::new());
        assert!(field(&script, header::CACHE_CONTROL).contains("immutable"));
        assert_eq!(field(&script, header::CONTENT_TYPE), "text/javascript; charset=utf-8");
        for path in ["/ui", "/ui/", "/ui/index.html", "/ui/objects/agents/default/a.b"] {
            let page = respond(BUILT, path, &HeaderMap::new());
            assert_eq!(field(&page, header::CACHE_CONTROL), "no-cache", "{path}");
            let policy = field(&page, header::CONTENT_SECURITY_POLICY).to_owned();
            let nonce = policy.split_once("; script-src 'nonce-").unwrap().1.split_once('\'').unwrap().0;
            assert!(policy.starts_with("default-src 'self'") && nonce.len() == 32, "{path}: {policy}");
            assert!(policy.ends_with(" 'strict-dynamic' 'self'"), "{path}: {policy}");
            let expected = format!("<html><script nonce=\"{nonce}\" src=\"/ui/assets/index-abc.js\">");
            assert_eq!(String::from_utf8(body(page).await).unwrap(), expected, "{path}");
            assert_ne!(
                field(&respond(BUILT, path, &HeaderMap::new()), header::CONTENT_SECURITY_POLICY),
                policy,
                "{path}"
            );
        }
    }

    #[tokio::test]
    async fn the_best_encoding_that_a_client_takes_is_sent() {
        for (accept, encoding, bytes) in [
            ("gzip, deflate, br", "br", &b"br"[..]),
            ("gzip;q=1, br;q=0", "gzip", PACKED),
            ("br;q=0.0", "", b"plain"),
            ("identity", "", b"plain"),
        ] {
            let sent = respond(BUILT, "/ui/assets/index-abc.js", &headers(&[(header::ACCEPT_ENCODING, accept)]));
            assert_eq!(field(&sent, header::CONTENT_ENCODING), encoding, "{accept}");
            assert_eq!(body(sent).await, bytes, "{accept}");
        }
    }

    #[tokio::test]
    async fn a_file_that_a_client_has_is_not_sent_again() {
        let path = "/ui/assets/index-abc.js";
        let tag = field(&respond(BUILT, path, &HeaderMap::new()), header::ETAG).to_owned();
        let again = respond(BUILT, path, &headers(&[(header::IF_NONE_MATCH, &format!("\"x\", W/{tag}"))]));
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        assert_eq!(body(again).await, b"");
        let other = respond(BUILT, path, &headers(&[(header::IF_NONE_MATCH, "\"x\"")]));
        assert_eq!(other.status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn a_file_of_another_build_is_not_the_page() {
        assert_eq!(respond(BUILT, "/ui/assets/index-old.js", &HeaderMap::new()).status(), StatusCode::NOT_FOUND);
    }

    #[test]
    fn the_built_page_loads_scripts_only_by_what_gets_a_nonce() {
        let Some(page) = ASSETS.iter().find(|asset| asset.path == INDEX) else { return };
        let plain = page.plain.map_or_else(|| decompressed(page.gzip), Bytes::from_static);
        let html = String::from_utf8_lossy(&plain).into_owned();
        let marked: usize = SCRIPT_TAGS.iter().map(|tag| html.matches(tag).count()).sum();
        assert_eq!(html.matches("<script").count() + html.matches("modulepreload").count(), marked, "{html}");
    }

    #[tokio::test]
    async fn without_a_ui_it_says_what_to_run() {
        let answer = respond(&[], "/ui/", &HeaderMap::new());
        assert_eq!(answer.status(), StatusCode::NOT_FOUND);
        assert!(String::from_utf8(body(answer).await).unwrap().contains("make ui"));
    }
}
