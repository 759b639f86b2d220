//! Helpers of a template, and the check of their calls.
//!
//! Helpers that print return their text instead of writing it, because then the crate indents it like the text around it.

mod block;
mod value;

use block::BlockHelper;
use handlebars::Handlebars;
use value::ValueHelper;

/// Helper that prints a value; `{{value}}` is rewritten to it. No template can name it.
pub(super) const PRINT: &str = "=print";
/// Helper that looks up a path in a value, key by key; `a.b.c` is rewritten to it.
pub(super) const RESOLVE: &str = "=resolve";
/// Helper of a block without one, `{{#list}}…{{/list}}`: iterates over a list, tests a boolean or null, and enters any other
/// value.
pub(super) const SECTION: &str = "=section";

/// Position of a helper's call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HelperPosition {
    /// `{{helper}}`
    Print,
    /// `{{#helper}}…{{/helper}}`
    Block,
    /// `(helper)`, the argument of another.
    Argument,
}

/// Helpers that a template may call: name, number of arguments, allowed positions.
const HELPERS: [(&str, usize, &[HelperPosition]); 13] = [
    ("each", 1, &[HelperPosition::Block]),
    ("history", 0, &[HelperPosition::Print]),
    ("if", 1, &[HelperPosition::Block]),
    ("ifEquals", 2, &[HelperPosition::Block]),
    ("json", 1, &[HelperPosition::Print, HelperPosition::Argument]),
    ("log", 1, &[HelperPosition::Print]),
    ("lookup", 2, &[HelperPosition::Print, HelperPosition::Argument]),
    ("media", 0, &[HelperPosition::Print]),
    ("role", 1, &[HelperPosition::Print]),
    ("section", 1, &[HelperPosition::Print]),
    ("unless", 1, &[HelperPosition::Block]),
    ("unlessEquals", 2, &[HelperPosition::Block]),
    ("with", 1, &[HelperPosition::Block]),
];

/// Reports whether `name` is a helper's.
pub(super) fn is_known(name: &str) -> bool {
    HELPERS.iter().any(|(known, ..)| *known == name)
}

/// Checks a call of a helper.
///
/// # Errors
/// A helper that does not exist, that cannot stand there, or that takes other arguments.
pub(super) fn check(name: &str, how: HelperPosition, arguments: usize, has_url: bool) -> Result<(), String> {
    let Some((_, wanted, uses)) = HELPERS.iter().find(|(known, ..)| *known == name) else {
        let names = HELPERS.map(|(known, ..)| known).join(", ");
        return Err(format!("unknown helper `{name}`; the helpers are {names}"));
    };
    if !uses.contains(&how) {
        return Err(match uses.first() {
            Some(HelperPosition::Block) => format!("`{name}` is a block: write `{{{{#{name} …}}}} … {{{{/{name}}}}}`"),
            _ if how == HelperPosition::Block => format!("`{name}` is not a block: write `{{{{{name} …}}}}`"),
            _ => format!("`{name}` has no value, so it cannot be an argument"),
        });
    }
    if arguments != *wanted {
        let plural = if *wanted == 1 { "" } else { "s" };
        return Err(format!("`{name}` takes {wanted} argument{plural}, not {arguments}"));
    }
    if name == "media" && !has_url {
        return Err("`media` needs a url: write `{{media url=…}}`".into());
    }
    Ok(())
}

/// Replaces the crate's helpers, some of which the reference does not have, by ours.
pub(super) fn register(registry: &mut Handlebars<'static>) {
    for name in ["eq", "ne", "gt", "gte", "lt", "lte", "and", "or", "not", "len", "raw"] {
        registry.unregister_helper(name);
    }
    for (name, helper) in [
        (PRINT, ValueHelper::Value),
        (RESOLVE, ValueHelper::Resolve),
        ("history", ValueHelper::History),
        ("json", ValueHelper::Json),
        ("log", ValueHelper::Log),
        ("lookup", ValueHelper::Lookup),
        ("media", ValueHelper::Media),
        ("role", ValueHelper::Role),
        ("section", ValueHelper::Section),
    ] {
        registry.register_helper(name, Box::new(helper));
    }
    for (name, helper) in [
        (SECTION, BlockHelper::Section),
        ("each", BlockHelper::Each),
        ("if", BlockHelper::If(true)),
        ("unless", BlockHelper::If(false)),
        ("ifEquals", BlockHelper::Equals(true)),
        ("unlessEquals", BlockHelper::Equals(false)),
        ("with", BlockHelper::With),
    ] {
        registry.register_helper(name, Box::new(helper));
    }
}
