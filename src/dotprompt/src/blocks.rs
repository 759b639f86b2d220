//! Checks that the tags of a Handlebars template end, and its blocks. It refuses only what every reader of Handlebars refuses;
//! anything else is for the runtime to decide. The readers are handlebars.js and the `handlebars` crate; where they differ, the
//! template passes if one of the two would accept it.

use super::error::PromptError;

/// Block that has begun.
struct OpenBlock<'t> {
    name: &'t str,
    /// Offset of its tag in the template.
    at: usize,
}

/// Reader of Handlebars.
#[derive(Clone, Copy, PartialEq)]
enum Reader {
    /// handlebars.js: `{{^name}}` inside of a block is a block of its own.
    HandlebarsJs,
    /// The `handlebars` crate: there it is an `else`.
    Crate,
}

impl Reader {
    /// Reports whether the reader takes `c` for white space.
    fn is_blank(self, c: char) -> bool {
        match self {
            Self::HandlebarsJs => c == '\u{feff}' || (c.is_whitespace() && c != '\u{85}'),
            Self::Crate => matches!(c, ' ' | '\t' | '\r' | '\n'),
        }
    }
}

/// Checks a template, which begins after so many lines of its text.
///
/// # Errors
/// A tag or block that does not end, an end of a block that has not begun, or an `else` outside of blocks, with its line in the
/// text.
pub(super) fn check_blocks(template: &str, lines_before: usize) -> Result<(), PromptError> {
    let judged = check_blocks_for(template, lines_before, Reader::HandlebarsJs);
    judged.or_else(|error| check_blocks_for(template, lines_before, Reader::Crate).map_err(|_| error))
}

fn check_blocks_for(template: &str, lines_before: usize, reader: Reader) -> Result<(), PromptError> {
    // Lines are counted only for an error: counting them for each tag would take quadratic time.
    let line_at = |at: usize| lines_before + 1 + template[..at].matches('\n').count();
    let blank = |c: char| reader.is_blank(c);
    let mut open: Vec<OpenBlock<'_>> = Vec::new();
    let mut at = 0;
    while let Some(found) = template[at..].find("{{").map(|found| at + found) {
        let (before, rest) = (&template[..found], &template[found..]);
        // `\{{` is text, `\\{{` is a backslash before a tag.
        if before.ends_with('\\') && !before.ends_with("\\\\") {
            if rest.starts_with("{{{{") {
                // By the reader, a tag begins after two of the braces or after all four: the rest is not checked.
                return Ok(());
            }
            at = found + 2;
            continue;
        }
        let bad = |problem: String| Err(PromptError::at(line_at(found), problem));
        let unclosed = || bad("the tag that begins here does not end: close it with `}}`".to_owned());
        if let Some(raw) = rest.strip_prefix("{{{{") {
            match end_of_raw(raw, reader) {
                Some(length) => at = template.len() - raw.len() + length,
                None => return bad("the raw block that begins here does not end".to_owned()),
            }
            continue;
        }
        let inner = rest[2..].trim_start_matches(|c: char| c == '~' || blank(c));
        if let Some(comment) = inner.strip_prefix('!') {
            let Some(length) = end_of_comment(comment, reader) else { return unclosed() };
            at = template.len() - comment.len() + length;
            continue;
        }
        let Some((length, tag)) = end_of_tag(inner, reader) else { return unclosed() };
        at = template.len() - inner.len() + length;
        let tag = tag.trim_end_matches('~').trim_matches(blank);
        let (begins, ends) = (tag.strip_prefix('#'), tag.strip_prefix('/'));
        let inverse = inverse(tag, reader).filter(|_| reader == Reader::HandlebarsJs || open.is_empty());
        if let Some(tag) = begins.or(inverse) {
            let tag = tag.trim_start_matches(['>', '*']).trim_start_matches(blank);
            open.push(OpenBlock { name: tag.split(blank).next().unwrap_or_default(), at: found });
        } else if let Some(name) = ends.map(|name| name.trim_matches(blank)) {
            match open.pop() {
                None => return bad(format!("`{{{{/{name}}}}}` ends a block that has not begun")),
                Some(block) if is_plain(block.name) && is_plain(name) && block.name != name => {
                    let (begun, line) = (block.name, line_at(block.at));
                    return bad(format!("`{{{{/{name}}}}}` ends the block `{{{{#{begun}}}}}` of line {line}"));
                }
                Some(_) => {}
            }
        } else if open.is_empty() && is_else(tag, reader) {
            return bad(format!("`{{{{{tag}}}}}` stands in no block"));
        }
    }
    match open.pop() {
        None => Ok(()),
        Some(OpenBlock { name, at }) => {
            let problem = format!("the block `{{{{#{name}}}}}` does not end: close it with `{{{{/{name}}}}}`");
            Err(PromptError::at(line_at(at), problem))
        }
    }
}

/// Reports whether a tag divides a block: `else`, `else if …` or `^`. The word after `else` is a helper's name; anything else
/// makes it an expression like any other to handlebars: `else if.a`, `else (a)`, `else a =b`.
fn is_else(tag: &str, reader: Reader) -> bool {
    let blank = |c: char| reader.is_blank(c);
    let of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '$' | ':') || !c.is_ascii();
    let parts = |rest: &str| {
        let words = rest.trim_start_matches(blank);
        let (name, after) = words.split_at(words.find(blank).unwrap_or(words.len()));
        let is_name = name.chars().all(of_name) && !after.trim_start_matches(blank).starts_with('=');
        rest.is_empty() || rest.starts_with(blank) && is_name
    };
    tag == "^" || tag.strip_prefix("else").is_some_and(parts)
}

/// Returns the name that `{{^name}}` inverts; `{{^}}` is an `else`.
fn inverse(tag: &str, reader: Reader) -> Option<&str> {
    tag.strip_prefix('^').filter(|name| name.contains(|c| !reader.is_blank(c)))
}

/// Returns the end of a raw block, given the text after its first braces. It holds no tags: its end is searched for as it is
/// written, else in any form.
fn end_of_raw(raw: &str, reader: Reader) -> Option<usize> {
    let blank = |c: char| reader.is_blank(c);
    let name = raw.trim_start_matches(blank).split(|c: char| blank(c) || c == '}').next().unwrap_or_default();
    let end = format!("{{{{{{{{/{name}}}}}}}}}");
    if let Some(found) = raw.find(&end) {
        return Some(found + end.len());
    }
    raw.match_indices("{{{{").find_map(|(at, braces)| {
        let tag = &raw[at + braces.len()..];
        let slash = tag.trim_start_matches(|c: char| c == '~' || blank(c)).starts_with('/');
        slash.then(|| Some(at + braces.len() + tag.find("}}}}")? + "}}}}".len())).flatten()
    })
}

/// Returns the end of a comment, given the text after its `!`. A comment that begins with dashes ends with them where it can, so
/// that it may hold braces. In `{{!--}}` the same dashes do both for handlebars.js; the crate looks for others first, knows no
/// tilde, and takes white space before them.
fn end_of_comment(comment: &str, reader: Reader) -> Option<usize> {
    let end = |end: &str, from: usize| Some(from + comment.get(from..)?.find(end)? + end.len());
    let spaces = comment.len() - comment.trim_start_matches([' ', '\t', '\r', '\n']).len();
    let dashed = match reader {
        Reader::HandlebarsJs if comment.starts_with("--") => {
            ["--}}", "--~}}"].into_iter().filter_map(|dashes| end(dashes, 0)).min()
        }
        Reader::Crate if comment[spaces..].starts_with("--") => end("--}}", spaces + 2),
        _ => None,
    };
    dashed.or_else(|| end("}}", 0))
}

/// Returns the end of a tag, closing braces included, and its content; braces in quotes or brackets do not end it.
fn end_of_tag(inner: &str, reader: Reader) -> Option<(usize, &str)> {
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in inner.char_indices() {
        match quote {
            Some(_) if escaped || c == '\\' => escaped = !escaped,
            Some(end) if c == end => quote = None,
            Some(_) => {}
            None if let Some(length) = closing_length(inner, at, reader) => return Some((at + length, &inner[..at])),
            None if matches!(c, '"' | '\'') => quote = Some(c),
            None if c == '[' => quote = Some(']'),
            None => {}
        }
    }
    // A quote that does not end is an apostrophe for some readers.
    inner.match_indices('}').find_map(|(at, _)| Some((at + closing_length(inner, at, reader)?, &inner[..at])))
}

/// Returns the length of the closing braces, if they stand there: `}}`, or `}}}` of `{{{`, with white space and `~` between the
/// braces.
fn closing_length(inner: &str, at: usize, reader: Reader) -> Option<usize> {
    let rest = &inner[at..];
    if !inner.starts_with('{') {
        return rest.starts_with("}}").then_some(2);
    }
    let after = rest.strip_prefix('}')?.trim_start_matches(|c: char| c == '~' || reader.is_blank(c));
    after.starts_with("}}").then(|| rest.len() - after.len() + 2)
}

/// Reports whether a name has one spelling and ends at the same place for every reader: in the crate an `@` begins an argument.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '$'))
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
            "{{#if x}}\n{{~/if~}} {{ ~#if x}}{{/if}}",
            "{{~{a}~}} {{{a} }} {{{~a~}}} {{#if {\"a\": {}}}}{{/if}}",
            "{{#if a}}x{{^b c}}y{{/if}}",
            "{{#if a}}{{^b}}x{{/b}}{{/if}} {{!-- note }}",
            "{{{{~raw}}}} {{#if}} {{{{ /raw }}}} {{a \"\\\"}}{{#if}}\"}} {{[a}}{{#if}}]}}",
            "{{!--~}}{{{{{{--}}",
            "{{!\n---\n~}}{{{--}}",
            "{{!--~}}{{#if a}}b{{/if}}",
            "{{!--}}{{#if a}}--}}{{/if}}",
            "{{!--}} {{!----}} {{!}} {{elsewhere}} {{{else}}} \\{{else}}",
            "{{~else if.a--}} {{else (a b)}} {{else a=b}} {{else a = b}}",
            "{{\u{85}/a}} {{\u{a0}else}} {{\u{a0}#if a}}x{{\u{a0}/if\u{a0}}} {{#if a}}x{{/if}}",
            "{{#if@first}}x{{/if}} {{#@index}}x{{/@index}}",
        ] {
            assert_eq!(check_blocks(template, 0), Ok(()), "{template}");
        }
    }

    #[test]
    fn what_no_reader_takes_is_refused_with_its_line() {
        for (template, expected) in [
            ("a\n{{#if x}} b\n", "line 5: the block `{{#if}}` does not end: close it with `{{/if}}`"),
            ("{{#if x}}{{#each y}}{{/if}}", "line 4: `{{/if}}` ends the block `{{#each}}` of line 4"),
            ("a\n\n{{/if}}", "line 6: `{{/if}}` ends a block that has not begun"),
            ("{{name", "line 4: the tag that begins here does not end: close it with `}}`"),
            ("{{name}", "line 4: the tag that begins here does not end: close it with `}}`"),
            ("{{! x }", "line 4: the tag that begins here does not end: close it with `}}`"),
            ("{{{name}} x", "line 4: the tag that begins here does not end: close it with `}}`"),
            ("{{{{raw}}}} x", "line 4: the raw block that begins here does not end"),
            ("a\n{{else}}", "line 5: `{{else}}` stands in no block"),
            ("{{#if x}}a{{/if}}{{^}}b", "line 4: `{{^}}` stands in no block"),
            ("{{~ else if x ~}}b", "line 4: `{{else if x}}` stands in no block"),
        ] {
            assert_eq!(check_blocks(template, 3).unwrap_err().to_string(), expected, "{template}");
        }
    }

    #[test]
    fn a_long_template_is_judged_in_time_that_grows_with_its_length() {
        let begin = std::time::Instant::now();
        let blocks = "{{#if x}}\n".repeat(50_000) + &"{{/if}}".repeat(50_000);
        assert_eq!(check_blocks(&blocks, 0), Ok(()));
        assert_eq!(check_blocks(&"{{a}}\n".repeat(150_000), 0), Ok(()));
        assert!(begin.elapsed().as_secs() < 5, "{:?}", begin.elapsed());
    }
}
