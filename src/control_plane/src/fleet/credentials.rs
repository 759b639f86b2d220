//! Heuristics for credentials in names, words and texts.

/// Replacement of a credential.
pub const MASKED: &str = "••••••";

/// Words that mark a name of a variable, header or setting as that of a credential, wherever they stand in it.
pub(super) const WORDS: &[&str] = &[
    "password",
    "passwd",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "credential",
    "authorization",
    "cookie",
    "databaseurl",
    "dsn",
    "connectionstring",
    "passphrase",
];

/// Words that mark a name as that of a credential if they are its last word.
pub(super) const LAST_WORDS: &[&str] = &["pwd", "jwt", "pass", "auth", "key"];

/// Reports whether a value under this name is a credential, unless it is a number of tokens.
pub(super) fn is_credential(name: &str) -> bool {
    let plain = normalized(name);
    let joined = name.chars().filter(|c| c.is_ascii_alphanumeric()).collect::<String>();
    // The last word begins after a separator, or at a capital letter that follows a small one.
    let starts = name.char_indices().rev().find(|(at, c)| {
        let before = name[..*at].chars().next_back();
        let capital = c.is_ascii_uppercase() && before.is_some_and(|before| before.is_ascii_lowercase());
        capital || before.is_some_and(|before| !before.is_ascii_alphanumeric())
    });
    let last = starts.map_or(joined.to_ascii_lowercase(), |(at, _)| name[at..].to_ascii_lowercase());
    plain.ends_with("key") || LAST_WORDS.contains(&&*last) || WORDS.iter().any(|word| plain.contains(word))
}

pub(super) fn normalized(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

pub(super) fn is_number_of_tokens(name: &str, value: &str) -> bool {
    normalized(name).ends_with("tokens") && value.parse::<f64>().is_ok()
}

/// Reports whether a text may be the name of a flag, a variable or a header.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// Masks the passwords of all URLs in a text.
pub(super) fn mask_urls(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        masked.push_str(before);
        let end = after.find(|c: char| c.is_whitespace() || "\"'<>".contains(c)).unwrap_or(after.len());
        let (url, next) = after.split_at(end);
        masked.push_str(&without_password(url));
        rest = next;
    }
    masked.push_str(rest);
    masked
}

/// Masks possible passwords in the part of a URL after `://`: the user information, and query parameters with a credential's
/// name.
pub(super) fn without_password(url: &str) -> String {
    let authority = url.find(['/', '?', '#']).unwrap_or(url.len());
    let (authority, path) = url.split_at(authority);
    let authority = match authority.rsplit_once('@') {
        // A token may be given as the user alone.
        Some((_, host)) => format!("{MASKED}@{host}"),
        None => authority.to_owned(),
    };
    let Some((path, query)) = path.split_once('?') else { return authority + path };
    let parameter = |pair: &str| match pair.split_once('=') {
        Some((name, value)) if !value.is_empty() && is_credential(name) && !is_number_of_tokens(name, value) => {
            format!("{name}={MASKED}")
        }
        _ => pair.to_owned(),
    };
    let query = query.split('&').map(parameter).collect::<Vec<_>>().join("&");
    format!("{authority}{path}?{query}")
}
