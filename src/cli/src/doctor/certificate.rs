//! Reads when a certificate ends: the one field of X.509 that is judged.

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Returns `notAfter` of the first certificate of a PEM file ([RFC 5280, section
/// 4.1](https://www.rfc-editor.org/rfc/rfc5280#section-4.1)).
pub(super) fn not_after(pem: &[u8]) -> Option<Timestamp> {
    let certificate = CertificateDer::from_pem_slice(pem).ok()?;
    let mut whole = certificate.as_ref();
    let mut certificate = element(&mut whole, SEQUENCE)?;
    let mut fields = element(&mut certificate, SEQUENCE)?;
    if fields.first() == Some(&VERSION) {
        next(&mut fields)?;
    }
    // Serial number, signature algorithm, issuer.
    for _ in 0..3 {
        next(&mut fields)?;
    }
    let mut validity = element(&mut fields, SEQUENCE)?;
    next(&mut validity)?;
    let (tag, end) = next(&mut validity)?;
    time(tag, std::str::from_utf8(end).ok()?)
}

fn time(tag: u8, text: &str) -> Option<Timestamp> {
    let digits = text.strip_suffix('Z')?;
    let whole = match tag {
        // Two digits of the year: from 1950 to 2049.
        UTC_TIME => format!("{}{digits}", if digits.get(..2)? < "50" { "20" } else { "19" }),
        GENERALIZED_TIME => digits.to_owned(),
        _ => return None,
    };
    let time = DateTime::strptime("%Y%m%d%H%M%S", whole).ok()?;
    time.to_zoned(TimeZone::UTC).ok().map(|time| time.timestamp())
}

fn element<'d>(der: &mut &'d [u8], wanted: u8) -> Option<&'d [u8]> {
    next(der).filter(|(tag, _)| *tag == wanted).map(|(_, content)| content)
}

/// Takes the next element: its tag and its content.
fn next<'d>(der: &mut &'d [u8]) -> Option<(u8, &'d [u8])> {
    let (tag, rest) = der.split_first()?;
    let (first, mut rest) = rest.split_first()?;
    let mut length = usize::from(*first);
    if length >= 0x80 {
        let (bytes, after) = rest.split_at_checked(length - 0x80)?;
        length = bytes.iter().try_fold(0_usize, |sum, byte| sum.checked_mul(256)?.checked_add(usize::from(*byte)))?;
        rest = after;
    }
    let (content, after) = rest.split_at_checked(length)?;
    *der = after;
    Some((*tag, content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_certificate_is_read() {
        let pem = include_bytes!("../../../../tests/testing/certs/one.crt");
        assert_eq!(not_after(pem).unwrap().to_string(), CERT_END);
        assert_eq!(not_after(b"no certificate"), None);
        assert_eq!(not_after(b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"), None);
    }

    #[test]
    fn both_forms_of_a_time_are_read() {
        assert_eq!(time(UTC_TIME, "491231235959Z").unwrap().to_string(), "2049-12-31T23:59:59Z");
        assert_eq!(time(UTC_TIME, "500101000000Z").unwrap().to_string(), "1950-01-01T00:00:00Z");
        assert_eq!(time(GENERALIZED_TIME, "20510101000000Z").unwrap().to_string(), "2051-01-01T00:00:00Z");
        assert_eq!(time(UTC_TIME, "soon"), None);
    }

    const CERT_END: &str = "2126-10-28T17:49:49Z";
}
