//! Extraction of the gateway's credential from a request, and encoding of the user's name for the workload.

use std::fmt::Write as _;

use cluster::access::bearer;
use http1::RequestHead;

/// Header field that only the gateway reads. If it is present, `Authorization` belongs to the workload.
const GATEWAY_FIELD: &str = "x-recif-authorization";
/// Header field that belongs to the gateway unless [`GATEWAY_FIELD`] is present.
const AUTHORIZATION: &str = "authorization";

/// Credential of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Credential<'a> {
    /// Neither field is present.
    None,
    /// The field is not a single bearer token.
    Unusable,
    /// Bearer token.
    Token(&'a str),
}

/// Returns the credential of a head, and whether `Authorization` belongs to the gateway.
pub(super) fn find<'a>(head: &'a RequestHead<'a>) -> (Credential<'a>, bool) {
    let own = one(head, GATEWAY_FIELD);
    if own != Credential::None { (own, false) } else { (one(head, AUTHORIZATION), true) }
}

fn one<'a>(head: &'a RequestHead<'a>, name: &'a str) -> Credential<'a> {
    let mut values = head.fields.values(head.bytes, name);
    match (values.next(), values.next()) {
        (None, _) => Credential::None,
        (Some(value), None) => bearer(value).map_or(Credential::Unusable, Credential::Token),
        // Several values contradict each other; none is trusted.
        _ => Credential::Unusable,
    }
}

/// Encodes a user's name as a field value: bytes that are not visible ASCII, and `%`, are percent-encoded, so that no
/// two names are equal and none ends the line.
pub(super) fn field_value(name: &str) -> String {
    let mut value = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_graphic() && byte != b'%' {
            value.push(char::from(byte));
        } else {
            let _ = write!(value, "%{byte:02X}");
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use http1::Fields;

    use super::*;

    fn found(fields: &str) -> (String, bool) {
        let bytes = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let mut scratch = Fields::default();
        let head = RequestHead::read(bytes.as_bytes(), &mut scratch).unwrap();
        let (credential, hides) = find(&head);
        (format!("{credential:?}"), hides)
    }

    #[test]
    fn the_gateways_own_field_goes_before_the_common_one() {
        for (fields, credential, hides_authorization) in [
            ("", "None", true),
            ("Authorization: Bearer a.b\r\n", "Token(\"a.b\")", true),
            ("authorization: bearer   a==\r\n", "Token(\"a==\")", true),
            ("X-Recif-Authorization: Bearer x\r\n", "Token(\"x\")", false),
            ("Authorization: Basic eA==\r\nX-Recif-Authorization: Bearer x\r\n", "Token(\"x\")", false),
            ("X-Recif-Authorization: Basic eA==\r\nAuthorization: Bearer a\r\n", "Unusable", false),
            ("X-Recif-Authorization: Bearer x\r\nX-Recif-Authorization: Bearer y\r\n", "Unusable", false),
            ("Authorization: Bearer a\r\nAuthorization: Bearer a\r\n", "Unusable", true),
            ("Authorization: Basic eA==\r\n", "Unusable", true),
            ("Authorization: Bearer\r\n", "Unusable", true),
            ("Authorization: Bearer a b\r\n", "Unusable", true),
            ("Authorization: Bearer a, Bearer b\r\n", "Unusable", true),
            ("Authorization: Bearer \u{e9}\r\n", "Unusable", true),
        ] {
            assert_eq!(found(fields), (credential.to_owned(), hides_authorization), "{fields:?}");
        }
    }

    #[test]
    fn a_name_stays_one_value() {
        assert_eq!(field_value("system:serviceaccount:ns:a"), "system:serviceaccount:ns:a");
        assert_eq!(field_value("a b\r\nX: 100%"), "a%20b%0D%0AX:%20100%25");
        assert_eq!(field_value("é"), "%C3%A9");
    }
}
