//! Checks the URLs in which the arguments of models are expanded.

use std::collections::BTreeMap;

use serde_json::Value;
use url::{Position, Url};

#[path = "../../../src/runner/src/tools/template.rs"]
mod template;

use template::UrlTemplate;

/// Checks that an argument changes neither scheme, user, host and port nor the number of parts of path, query and fragment.
/// The byte `0xff` separates the endpoint and the argument.
pub fn tool_url(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == 0xff).map(str::from_utf8);
    let (Some(Ok(endpoint)), Some(Ok(argument))) = (parts.next(), parts.next()) else { return };
    let Ok(template) = UrlTemplate::parse(endpoint) else { return };
    let (Ok(plain), Ok(url)) = (fill(&template, "x"), fill(&template, argument)) else { return };
    assert_eq!(url[..Position::BeforePath], plain[..Position::BeforePath], "{endpoint:?} {argument:?}");
    assert_eq!(shape(&url), shape(&plain), "{endpoint:?} {argument:?}: {url}");
}

fn fill(template: &UrlTemplate, argument: &str) -> Result<Url, String> {
    let mut arguments: BTreeMap<_, _> = template.names().map(|name| (name.to_owned(), argument.into())).collect();
    arguments.insert("a name that is in no endpoint".into(), Value::Null);
    let url = template.fill(&mut arguments)?;
    assert_eq!(arguments.len(), 1, "{arguments:?}");
    Ok(url)
}

/// Counts the parts of path, query and fragment.
fn shape(url: &Url) -> (Option<usize>, Option<usize>, Option<usize>) {
    let pieces = |text: &str| text.split(['&', '=', '+', ';', '?', '#', '/']).count();
    (url.path_segments().map(Iterator::count), url.query().map(pieces), url.fragment().map(pieces))
}
