//! Where a request carries the gateway's credential, and how its user is told to the workload.

use std::fmt::Write as _;

use cluster::access::bearer;
use http1::RequestHead;

/// The field that only the gateway reads; where it is, `Authorization` is the workload's.
const GATEWAY_FIELD: &str = "x-recif-authorization";
/// The field that is the gateway's unless the other one is there.
const AUTHORIZATION: &str = "authorization";

/// What a request brings to prove who sent it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Credential<'a> {
    /// Neither field.
    None,
    /// A field that is no single bearer token.
    Unusable,
    /// A bearer token.
    Token(&'a str),
}

/// The credential in a head, and whether `Authorization` is the gateway's.
pub(super) fn find<'a>(head: &'a RequestHead<'a>) -> (Credential<'a>, bool) {
    let own = one(head, GATEWAY_FIELD);
    if own != Credential::None { (own, false) } else { (one(head, AUTHORIZATION), true) }
}

fn one<'a>(head: &'a RequestHead<'a>, name: &'a str) -> Credential<'a> {
    let mut values = head.fields.values(head.bytes, name);
    match (values.next(), values.next()) {
        (None, _) => Credential::None,
        (Some(value), None) => bearer(value).map_or(Credential::Unusable, Credential::Token),
        // Two say two things; neither is to be believed.
        _ => Credential::Unusable,
    }
}

/// A user's name as the value of a field: whatever is not visible ASCII, and `%`, is percent-encoded, so that no two names
/// look the same and none ends the line.
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
