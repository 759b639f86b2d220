//! Whether the tags of a Handlebars template end, and its blocks: what no reader of Handlebars takes, and nothing else. What one
//! reader refuses and another takes is for the runtime to say.

use super::BadTemplate;

/// A block that has begun.
struct Block<'t> {
    name: &'t str,
    line: usize,
}

/// Judges a template, which begins after so many lines of its text.
///
/// # Errors
/// A tag or block that does not end, or an end of a block that has not begun, with its line in the text.
pub(super) fn judge(template: &str, lines_before: usize) -> Result<(), BadTemplate> {
    let line_at = |at: usize| lines_before + 1 + template[..at].matches('\n').count();
    let mut open: Vec<Block<'_>> = Vec::new();
    let mut at = 0;
    while let Some(found) = template[at..].find("{{").map(|found| at + found) {
        let before = &template[..found];
        // `\{{` is text, `\\{{` is a backslash before a tag.
        if before.ends_with('\\') && !before.ends_with("\\\\") {
            at = found + 2;
            continue;
        }
        let line = line_at(found);
        let bad = |problem: String| Err(BadTemplate { line, problem });
        let unclosed = || bad("the tag that begins here does not end: close it with `}}`".to_owned());
        let rest = &template[found..];
        if let Some(raw) = rest.strip_prefix("{{{{") {
            // A raw block holds no tags: its end is looked for as it is written.
            let name = raw.trim_start().split(|c: char| c.is_whitespace() || c == '}').next().unwrap_or_default();
            let end = format!("{{{{{{{{/{name}}}}}}}}}");
            match rest.find(&end) {
                Some(length) if !name.is_empty() => at = found + length + end.len(),
                _ => return bad("the raw block that begins here does not end".to_owned()),
            }
            continue;
        }
        let inner = rest[2..].trim_start_matches('~');
        if let Some(comment) = inner.strip_prefix('!') {
            let end = if comment.starts_with("--") { "--" } else { "" };
            let body = &comment[end.len()..];
            let ends = [format!("{end}}}}}"), format!("{end}~}}}}")];
            let Some(length) = ends.iter().filter_map(|end| Some(body.find(end)? + end.len())).min() else {
                return unclosed();
            };
            at = template.len() - body.len() + length;
            continue;
        }
        let close = if inner.starts_with('{') { "}}}" } else { "}}" };
        let Some(length) = end_of_tag(inner, close) else { return unclosed() };
        at = template.len() - inner.len() + length;
        let tag = inner[..length - close.len()].trim_end_matches('~').trim();
        let (begins, ends) = (tag.strip_prefix('#').or_else(|| inverse(tag)), tag.strip_prefix('/'));
        if let Some(tag) = begins {
            let tag = tag.trim_start_matches(['>', '*']).trim_start();
            open.push(Block { name: tag.split_whitespace().next().unwrap_or_default(), line });
        } else if let Some(name) = ends.map(str::trim) {
            match open.pop() {
                None => return bad(format!("`{{{{/{name}}}}}` ends a block that has not begun")),
                Some(block) if is_plain(block.name) && is_plain(name) && block.name != name => {
                    let Block { name: begun, line } = block;
                    return bad(format!("`{{{{/{name}}}}}` ends the block `{{{{#{begun}}}}}` of line {line}"));
                }
                Some(_) => {}
            }
        }
    }
    match open.pop() {
        None => Ok(()),
        Some(Block { name, line }) => {
            let problem = format!("the block `{{{{#{name}}}}}` does not end: close it with `{{{{/{name}}}}}`");
            Err(BadTemplate { line, problem })
        }
    }
}

/// What is inverted by a block `{{^name}}`; `{{^}}` is an `else`.
fn inverse(tag: &str) -> Option<&str> {
    tag.strip_prefix('^').filter(|name| !name.trim().is_empty())
}

/// Where a tag has ended, its end included; what stands in quotes ends nothing.
fn end_of_tag(inner: &str, close: &str) -> Option<usize> {
    let mut quote = None;
    for (at, c) in inner.char_indices() {
        match quote {
            Some(begun) if c == begun => quote = None,
            Some(_) => {}
            None if inner[at..].starts_with(close) => return Some(at + close.len()),
            None if matches!(c, '"' | '\'') => quote = Some(c),
            None => {}
        }
    }
    // A quote that does not end is an apostrophe for some readers.
    inner.find(close).map(|at| at + close.len())
}

/// Whether a name is written in one way only.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '@' | '$'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_any_reader_takes_is_taken() {
        for template in [
            "",
            "say { and } and }} and {",
            "Hello {{name}}, {{{html}}} {{~ a ~}}",
            "{{#if x}}a{{else if y}}b{{^}}c{{/if}}",
            "{{#each list as |item|}}{{item}}{{/each}}",
            "{{^name}}none{{/name}} {{.}} {{#a.b}}x{{/a.b}}",
            "{{#> layout}}x{{/layout}} {{#*inline \"p\"}}x{{/inline}} {{> p}}",
            "{{!-- a }} {{#if}} --}} {{! it's }} {{~!-- x --~}}",
            "{{helper \"}}\" '{{#if}}'}} {{#[a b]}}x{{/[a b]}}",
            "\\{{#if}} \\\\{{name}}",
            "{{{{raw}}}} {{#if}} {{{{/raw}}}}",
            "{{#if x}}\n{{~/if~}}",
        ] {
            assert_eq!(judge(template, 0), Ok(()), "{template}");
        }
    }

    #[test]
    fn what_does_not_end_is_told_with_its_line() {
        for (template, expected) in [
            ("a\n{{#if x}} b\n", "line 5: the block `{{#if}}` does not end: close it with `{{/if}}`"),
            ("{{#if x}}{{#each y}}{{/if}}", "line 4: `{{/if}}` ends the block `{{#each}}` of line 4"),
            ("a\n\n{{/if}}", "line 6: `{{/if}}` ends a block that has not begun"),
            ("{{name", "line 4: the tag that begins here does not end: close it with `}}`"),
            ("{{name}", "line 4: the tag that begins here does not end: close it with `}}`"),
            ("{{!-- x }}", "line 4: the tag that begins here does not end: close it with `}}`"),
            ("{{{{raw}}}} x", "line 4: the raw block that begins here does not end"),
        ] {
            assert_eq!(judge(template, 3).unwrap_err().to_string(), expected, "{template}");
        }
    }
}
