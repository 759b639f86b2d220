//! Access control of the relay: admits only the browser that was given the key, and only from the relay's own pages.
//!
//! Any program of this machine can connect to a loopback port, and any page in the browser can send requests to one.
//! Programs lack the key. Pages lack it too, because the cookie is `SameSite=Strict`. Pages on other ports of this
//! machine, to which the browser sends the cookie, are detected by `Origin` and `Sec-Fetch-Site`; foreign names that
//! resolve to this machine (DNS rebinding) by `Host`.

use http::{HeaderMap, Uri, header};
use url::form_urlencoded;

/// Query parameter that holds the key in the first request.
const PARAMETER: &str = "key";

/// Key of the relay, and the port for which it is valid.
#[derive(Debug, Clone)]
pub(super) struct OriginGuard {
    port: u16,
    key: String,
}

/// Verdict on a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OriginCheck {
    /// The request is forwarded.
    Pass,
    /// The request brought the key: it is redirected to the UI with this cookie.
    Admit {
        /// Value of `Set-Cookie`.
        cookie: String,
    },
    /// The request is refused, for this reason.
    Refuse(&'static str),
}

impl OriginGuard {
    /// Returns a guard with a key that cannot be guessed.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(super) fn new(port: u16) -> Result<Self, getrandom::Error> {
        let mut random = [0; 24];
        getrandom::fill(&mut random)?;
        Ok(Self { port, key: hex::encode(random) })
    }

    /// Returns the URL to open in a browser.
    pub(super) fn address(&self) -> String {
        format!("http://127.0.0.1:{}/?{PARAMETER}={}", self.port, self.key)
    }

    /// Checks a request.
    pub(super) fn check(&self, uri: &Uri, fields: &HeaderMap) -> OriginCheck {
        let host = only(fields, header::HOST.as_str()).unwrap_or_default();
        if !["127.0.0.1", "localhost"].iter().any(|name| host == format!("{name}:{}", self.port)) {
            return OriginCheck::Refuse("the Host header names another machine");
        }
        let origin = fields.get(header::ORIGIN).map(|origin| origin.as_bytes() == format!("http://{host}").as_bytes());
        if origin == Some(false) {
            return OriginCheck::Refuse("pages of other origins may not send requests here");
        }
        // A link in a mail, or the address bar, brings the key by itself; the cookie is valid for the UI's own pages
        // only.
        if uri.path() == "/" && self.has_key(uri) {
            return OriginCheck::Admit {
                cookie: format!("{}={}; Path=/; HttpOnly; SameSite=Strict", self.cookie(), self.key),
            };
        }
        if !self.has_cookie(fields) {
            return OriginCheck::Refuse(
                "this page belongs to the user who ran `recif ui`: open the address that it printed",
            );
        }
        match only(fields, "sec-fetch-site") {
            None | Some("same-origin" | "none") => OriginCheck::Pass,
            Some(_) => OriginCheck::Refuse("pages of other origins may not send requests here"),
        }
    }

    /// Returns the name of the cookie. Cookies are not separated by port, so the name contains it.
    fn cookie(&self) -> String {
        format!("recif-ui-{}", self.port)
    }

    fn has_key(&self, uri: &Uri) -> bool {
        let query = uri.query().unwrap_or_default();
        form_urlencoded::parse(query.as_bytes()).any(|(name, value)| name == PARAMETER && self.is_key(&value))
    }

    fn has_cookie(&self, fields: &HeaderMap) -> bool {
        let name = self.cookie();
        let pairs = fields.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs = pairs.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.any(|(found, value)| found == name && self.is_key(value))
    }

    /// Compares in constant time, so that the time does not reveal how much of the key is right.
    fn is_key(&self, value: &str) -> bool {
        let (given, wanted) = (value.as_bytes(), self.key.as_bytes());
        given.len() == wanted.len() && given.iter().zip(wanted).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    }
}

/// Returns the value of a header, or an empty text if it is there more than once.
fn only<'a>(fields: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = fields.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        (Some(_), Some(_)) => Some(""),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn check_request(gate: &OriginGuard, path: &str, fields: &[(&str, &str)]) -> OriginCheck {
        let fields = fields
            .iter()
            .map(|(name, value)| (HeaderName::try_from(*name).unwrap(), HeaderValue::try_from(*value).unwrap()));
        gate.check(&path.parse().unwrap(), &fields.collect())
    }

    fn is_refused(verdict: &OriginCheck) -> bool {
        matches!(verdict, OriginCheck::Refuse(_))
    }

    #[test]
    fn the_key_is_exchanged_for_a_cookie() {
        let gate = OriginGuard::new(7000).unwrap();
        assert_ne!(gate.key, OriginGuard::new(7000).unwrap().key);
        let host = ("host", "127.0.0.1:7000");
        let path = gate.address().split_once(":7000").unwrap().1.to_owned();
        let OriginCheck::Admit { cookie } = check_request(&gate, &path, &[host]) else { panic!("the key is right") };
        assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
        let pair = cookie.split(';').next().unwrap();
        assert_eq!(check_request(&gate, "/ui/", &[host, ("cookie", &format!("other=1; {pair}"))]), OriginCheck::Pass);
        assert_eq!(check_request(&gate, "/ui/", &[("host", "localhost:7000"), ("cookie", pair)]), OriginCheck::Pass);
    }

    #[test]
    fn other_requests_are_refused() {
        let gate = OriginGuard::new(7000).unwrap();
        let host = ("host", "127.0.0.1:7000");
        let pair = format!("recif-ui-7000={}", gate.key);
        let cookie = ("cookie", pair.as_str());
        for fields in [
            &[host][..],
            &[host, ("cookie", "recif-ui-7000=wrong")],
            &[host, ("cookie", "recif-ui-7000=")],
            &[cookie],
            &[("host", "evil.example:7000"), cookie],
            &[("host", "127.0.0.1"), cookie],
            &[host, cookie, ("origin", "http://127.0.0.1:7001")],
            &[host, cookie, ("origin", "null")],
            &[host, cookie, ("sec-fetch-site", "same-site")],
            &[host, cookie, ("sec-fetch-site", "cross-site")],
        ] {
            assert!(is_refused(&check_request(&gate, "/api/v1/me", fields)), "{fields:?}");
        }
        assert!(
            is_refused(&check_request(&gate, "/?key=", &[host]))
                && is_refused(&check_request(&gate, "/?key=0", &[host]))
        );
        let own = [host, cookie, ("origin", "http://127.0.0.1:7000"), ("sec-fetch-site", "same-origin")];
        assert_eq!(check_request(&gate, "/gateway/v1/agents/a/b/chat", &own), OriginCheck::Pass);
    }
}
