//! Who may use the relay: the browser that was given the key, and only from the relay's own pages.
//!
//! Any program of this machine can connect to a loopback port, and any page in the browser can send requests to one. The first
//! lack the key. The second lack it too, for the cookie is `SameSite=Strict`; pages on other ports of this machine, for which a
//! browser sends it along, are told by `Origin` and `Sec-Fetch-Site`; names of others that lead here (DNS rebinding), by `Host`.

use http::{HeaderMap, Uri, header};
use url::form_urlencoded;

/// The parameter that holds the key the first time.
const PARAMETER: &str = "key";

/// What is known to those who may.
#[derive(Debug, Clone)]
pub(super) struct OriginGuard {
    port: u16,
    key: String,
}

/// What becomes of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OriginCheck {
    /// It goes on.
    Pass,
    /// It brought the key: it is led to the UI with this cookie.
    Admit {
        /// The value of `Set-Cookie`.
        cookie: String,
    },
    /// It does not go on, for this reason.
    Refuse(&'static str),
}

impl OriginGuard {
    /// With a key that nobody can guess.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub(super) fn new(port: u16) -> Result<Self, getrandom::Error> {
        let mut random = [0; 24];
        getrandom::fill(&mut random)?;
        Ok(Self { port, key: hex::encode(random) })
    }

    /// What to open in a browser.
    pub(super) fn address(&self) -> String {
        format!("http://127.0.0.1:{}/?{PARAMETER}={}", self.port, self.key)
    }

    /// Judges a request.
    pub(super) fn check(&self, uri: &Uri, fields: &HeaderMap) -> OriginCheck {
        let host = only(fields, header::HOST.as_str()).unwrap_or_default();
        if !["127.0.0.1", "localhost"].iter().any(|name| host == format!("{name}:{}", self.port)) {
            return OriginCheck::Refuse("this is asked under the name of another machine");
        }
        let origin = fields.get(header::ORIGIN).map(|origin| origin.as_bytes() == format!("http://{host}").as_bytes());
        if origin == Some(false) {
            return OriginCheck::Refuse("a page of another origin may not ask here");
        }
        // A link in a mail, or the address bar, brings the key by itself; the cookie counts for the UI's own pages only.
        if uri.path() == "/" && self.has_key(uri) {
            return OriginCheck::Admit {
                cookie: format!("{}={}; Path=/; HttpOnly; SameSite=Strict", self.cookie(), self.key),
            };
        }
        if !self.has_cookie(fields) {
            return OriginCheck::Refuse("this is for whoever typed `recif ui`: open the address that it printed");
        }
        match only(fields, "sec-fetch-site") {
            None | Some("same-origin" | "none") => OriginCheck::Pass,
            Some(_) => OriginCheck::Refuse("a page of another origin may not ask here"),
        }
    }

    /// Cookies are not told apart by port, so the name does it.
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

    /// In a time that does not say how much of it is right.
    fn is_key(&self, value: &str) -> bool {
        let (given, wanted) = (value.as_bytes(), self.key.as_bytes());
        given.len() == wanted.len() && given.iter().zip(wanted).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    }
}

/// The value of a field that is there once.
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

    fn judge(gate: &OriginGuard, path: &str, fields: &[(&str, &str)]) -> OriginCheck {
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
        let OriginCheck::Admit { cookie } = judge(&gate, &path, &[host]) else { panic!("the key is right") };
        assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
        let pair = cookie.split(';').next().unwrap();
        assert_eq!(judge(&gate, "/ui/", &[host, ("cookie", &format!("other=1; {pair}"))]), OriginCheck::Pass);
        assert_eq!(judge(&gate, "/ui/", &[("host", "localhost:7000"), ("cookie", pair)]), OriginCheck::Pass);
    }

    #[test]
    fn nobody_else_gets_in() {
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
            assert!(is_refused(&judge(&gate, "/api/v1/me", fields)), "{fields:?}");
        }
        assert!(is_refused(&judge(&gate, "/?key=", &[host])) && is_refused(&judge(&gate, "/?key=0", &[host])));
        let own = [host, cookie, ("origin", "http://127.0.0.1:7000"), ("sec-fetch-site", "same-origin")];
        assert_eq!(judge(&gate, "/gateway/v1/agents/a/b/chat", &own), OriginCheck::Pass);
    }
}
