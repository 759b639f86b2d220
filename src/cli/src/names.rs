//! Checks names of objects.

/// Reports whether the text is a valid name: a lowercase RFC 1123 subdomain, as [Kubernetes defines
/// it](https://kubernetes.io/docs/concepts/overview/working-with-objects/names/).
pub(super) fn is_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let (first, last) = (text.as_bytes().first(), text.as_bytes().last());
    text.bytes().all(fits) && ends(first) && ends(last) && text.len() <= 253
}
