//! Rewrites a template that the `handlebars` crate has parsed so that it means what it means to the reference.
//!
//! The crate prints lists, objects and numbers in its own way, fails on `list.length`, and takes `@a.b` for `@a`. So every value
//! goes through our helpers: `{{a.b}}` becomes `{{=print (=resolve a "b")}}`. The rewrite also reports the errors that the crate
//! would find only when rendering, or never.

use std::collections::BTreeSet;

use handlebars::Path;
use handlebars::template::{
    BlockParam, DecoratorTemplate, HelperTemplate, Parameter, Subexpression, Template, TemplateElement,
};
use serde_json::Value;

use super::error::PromptError;
use super::helpers::{self, HelperPosition, PRINT, RESOLVE, SECTION};
use super::messages::with_marks;

/// Deepest nesting of blocks or parentheses.
const DEPTH: usize = 64;

/// Error in a template.
#[derive(Debug)]
pub(super) struct TemplateSyntaxError {
    /// Line, from 1, if it is known.
    pub(super) line: Option<usize>,
    pub(super) message: String,
}

impl From<PromptError> for TemplateSyntaxError {
    fn from(PromptError { line, message }: PromptError) -> Self {
        Self { line, message }
    }
}

/// Template, partial, or partial that is defined inside one of them.
#[derive(Debug)]
pub(super) struct TemplateDefinition {
    /// Name of the partial.
    pub(super) name: String,
    /// Name of the text that it is in: its own, or the one in which it is defined.
    pub(super) within: String,
    /// Number of its elements.
    pub(super) size: usize,
    /// Uses of partials in it.
    pub(super) uses: Vec<PartialUse>,
    /// Variables of its outermost context that it uses: prints, enters or hands to a partial.
    pub(super) variables: BTreeSet<Variable>,
}

/// Variable of the outermost context.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Variable {
    /// All of them: `this`, `@root`.
    All,
    /// The variable of this name.
    Named(String),
}

impl Variable {
    /// Returns the variable that `path` begins with, inside that many scopes. `None`: it is found in one of those scopes, or
    /// above them all.
    fn of(path: &str, scopes: usize) -> Option<Self> {
        let (first, _) = split_path(path);
        let (rest, from_root) = match first.strip_prefix('@') {
            Some(rest) => (rest.strip_prefix("root")?, true),
            None => (first, false),
        };
        let parts: Vec<_> = rest.split(['/', '.']).filter(|part| !part.is_empty()).collect();
        let ups = rest.matches("..").count();
        let name = parts.last().filter(|last| **last != "this" && !rest.ends_with(".."));
        (from_root || ups == scopes)
            .then(|| name.map_or(Self::All, |name| Self::Named(name.trim_matches(['[', ']']).to_owned())))
    }
}

/// Use of a partial.
#[derive(Debug)]
pub(super) struct PartialUse {
    /// Name of the partial; `None` if the input decides it.
    pub(super) name: Option<String>,
    pub(super) line: usize,
    /// Number of blocks around it.
    pub(super) depth: usize,
    /// `true` if it has a block that is printed when there is no such partial.
    pub(super) has_fallback: bool,
    /// `true` if the partial sees the outermost context.
    pub(super) is_outermost: bool,
}

/// Rewrites `template`, which `source` was parsed into, and returns the definitions in it: its own first.
///
/// # Errors
/// The first error in the template.
pub(super) fn adapt(
    name: &str,
    source: &str,
    template: &mut Template,
) -> Result<Vec<TemplateDefinition>, TemplateSyntaxError> {
    let mut adapter = Adapter { within: name, lines: source.split('\n').collect(), inner: Vec::new() };
    let mut definition = adapter.definition(name);
    adapter.template(template, &mut definition, TemplatePosition { line: 1, depth: 0, scopes: 0 })?;
    adapter.inner.insert(0, definition);
    Ok(adapter.inner)
}

struct Adapter<'s> {
    within: &'s str,
    lines: Vec<&'s str>,
    inner: Vec<TemplateDefinition>,
}

#[derive(Clone, Copy)]
struct TemplatePosition {
    line: usize,
    /// Number of blocks or parentheses around it.
    depth: usize,
    /// Number of those blocks that have a context of their own.
    scopes: usize,
}

impl TemplatePosition {
    fn error<T>(self, message: impl Into<String>) -> Result<T, TemplateSyntaxError> {
        Err(TemplateSyntaxError { line: Some(self.line), message: message.into() })
    }

    fn deeper(self) -> Result<Self, TemplateSyntaxError> {
        if self.depth < DEPTH {
            return Ok(Self { depth: self.depth + 1, ..self });
        }
        self.error(format!("nested deeper than {DEPTH}"))
    }
}

impl Adapter<'_> {
    fn definition(&self, name: &str) -> TemplateDefinition {
        TemplateDefinition {
            name: name.to_owned(),
            within: self.within.to_owned(),
            size: 0,
            uses: Vec::new(),
            variables: BTreeSet::new(),
        }
    }

    fn template(
        &mut self,
        template: &mut Template,
        definition: &mut TemplateDefinition,
        place: TemplatePosition,
    ) -> Result<(), TemplateSyntaxError> {
        for (at, element) in template.elements.iter_mut().enumerate() {
            let (line, column) = template.mapping.get(at).map_or((place.line, 1), |mapping| (mapping.0, mapping.1));
            let place = TemplatePosition { line, ..place };
            definition.size += 1;
            match element {
                TemplateElement::RawString(text) => *text = with_marks(text),
                TemplateElement::Comment(_) => {}
                TemplateElement::Expression(call) | TemplateElement::HtmlExpression(call) => {
                    adapt_expression(call, definition, place)?;
                }
                TemplateElement::HelperBlock(block) => self.block(block, definition, place)?,
                TemplateElement::PartialExpression(partial) | TemplateElement::PartialBlock(partial) => {
                    // The crate indents every partial that white space precedes; the reference only one that is alone in its
                    // line.
                    if !self.is_alone(line, column) {
                        partial.indent = None;
                    }
                    self.partial(partial, definition, place)?;
                }
                TemplateElement::DecoratorBlock(inline) => self.inline(inline, place)?,
                _ => {
                    return place.error("decorators are not supported, but for `{{#*inline \"name\"}}`");
                }
            }
        }
        Ok(())
    }

    /// Reports whether the tag that begins there is alone in its line. Both count from 1, columns in characters.
    fn is_alone(&self, line: usize, column: usize) -> bool {
        let mut characters = self.lines.get(line - 1).copied().unwrap_or_default().chars();
        let before = characters.by_ref().take(column - 1).all(char::is_whitespace);
        let after = characters.as_str().split_once("}}").map_or("", |(_, after)| after);
        before && after.trim().is_empty()
    }

    fn block(
        &mut self,
        block: &mut HelperTemplate,
        definition: &mut TemplateDefinition,
        place: TemplatePosition,
    ) -> Result<(), TemplateSyntaxError> {
        let inner = place.deeper()?;
        let name = block.name.as_name().unwrap_or_default().to_owned();
        if !helpers::is_known(&name) && block.params.is_empty() && block.hash.is_empty() {
            block.params = vec![value(&name, place)?];
            block.name = Parameter::Name(SECTION.to_owned());
        } else {
            check(block, HelperPosition::Block, place)?;
        }
        // `if` and the like only test a value: it is not printed, so it does not count as used.
        if matches!(block.name.as_name(), Some("each" | "with" | SECTION)) {
            collect_variables(block.params.iter().chain(block.hash.values()), place, &mut definition.variables);
        }
        arguments(block.params.iter_mut().chain(block.hash.values_mut()), place)?;
        let name = block.name.as_name().unwrap_or_default();
        let scopes = place.scopes + usize::from(matches!(name, "each" | "with" | SECTION));
        let inner = TemplatePosition { scopes, ..inner };
        if let Some(BlockParam::Pair((_, Parameter::Name(second)))) = &block.block_param
            && name == "with"
        {
            return place.error(format!("`with` gives one name, not a second (`{second}`)"));
        }
        let template = block.template.as_mut().map_or(Ok(()), |it| self.template(it, definition, inner));
        let otherwise = TemplatePosition { scopes: place.scopes, ..inner };
        template.and(block.inverse.as_mut().map_or(Ok(()), |it| self.template(it, definition, otherwise)))
    }

    fn partial(
        &mut self,
        partial: &mut DecoratorTemplate,
        definition: &mut TemplateDefinition,
        place: TemplatePosition,
    ) -> Result<(), TemplateSyntaxError> {
        let inner = place.deeper()?;
        if partial.params.len() > 1 {
            return place.error("a partial takes at most one context");
        }
        // The crate makes the quotes of `{{> 'name'}}` a part of the name.
        let name = partial.name.as_name().map(|name| name.trim_matches('\'').to_owned());
        if let Some(name) = &name {
            partial.name = Parameter::Name(name.clone());
        }
        let has_fallback = partial.template.is_some();
        collect_variables(partial.params.iter().chain(partial.hash.values()), place, &mut definition.variables);
        let is_outermost = place.scopes == 0 && partial.params.is_empty();
        definition.uses.push(PartialUse { name, line: place.line, depth: place.depth, has_fallback, is_outermost });
        if partial.name.as_name().is_none() {
            arguments([&mut partial.name], inner)?;
        }
        arguments(partial.params.iter_mut().chain(partial.hash.values_mut()), inner)?;
        partial.template.as_mut().map_or(Ok(()), |template| self.template(template, definition, inner))
    }

    fn inline(&mut self, inline: &mut DecoratorTemplate, place: TemplatePosition) -> Result<(), TemplateSyntaxError> {
        let inner = place.deeper()?;
        let ("inline", [Parameter::Literal(Value::String(name))], Some(template)) =
            (inline.name.as_name().unwrap_or_default(), inline.params.as_slice(), inline.template.as_mut())
        else {
            return place.error("expected `{{#*inline \"name\"}}`");
        };
        let mut definition = self.definition(name);
        self.template(template, &mut definition, inner)?;
        self.inner.push(definition);
        Ok(())
    }
}

/// Rewrites `{{…}}`: a call of a helper, or a value to print.
fn adapt_expression(
    call: &mut HelperTemplate,
    definition: &mut TemplateDefinition,
    place: TemplatePosition,
) -> Result<(), TemplateSyntaxError> {
    let bare = call.params.is_empty() && call.hash.is_empty();
    let is_helper = call.name.as_name().is_some_and(helpers::is_known);
    if is_helper || !bare {
        check(call, HelperPosition::Print, place)?;
    }
    let name = call.name.as_name() == Some("lookup");
    if name || (bare && !is_helper) {
        let target = std::mem::replace(&mut call.name, Parameter::Name(PRINT.to_owned()));
        let (params, hash) = (std::mem::take(&mut call.params), std::mem::take(&mut call.hash));
        call.params =
            vec![if name { Parameter::Subexpression(Subexpression::new(target, params, hash)) } else { target }];
    }
    if call.name.as_name() != Some("log") {
        collect_variables(call.params.iter().chain(call.hash.values()), place, &mut definition.variables);
    }
    arguments(call.params.iter_mut().chain(call.hash.values_mut()), place.deeper()?)
}

/// Adds the variables of the outermost context that `parameters` name, as they were written.
fn collect_variables<'p>(
    parameters: impl IntoIterator<Item = &'p Parameter>,
    place: TemplatePosition,
    found: &mut BTreeSet<Variable>,
) {
    for parameter in parameters {
        match parameter {
            Parameter::Subexpression(inner) => {
                if let TemplateElement::Expression(call) = inner.element.as_ref() {
                    collect_variables(call.params.iter().chain(call.hash.values()), place, found);
                }
            }
            Parameter::Path(_) => {
                found.extend(parameter.as_name().and_then(|path| Variable::of(path, place.scopes)));
            }
            _ => {}
        }
    }
}

fn check(call: &HelperTemplate, how: HelperPosition, place: TemplatePosition) -> Result<(), TemplateSyntaxError> {
    let name = call.name.as_name().unwrap_or("(…)");
    let checked = helpers::check(name, how, call.params.len(), call.hash.contains_key("url"));
    checked.or_else(|problem| place.error(problem))
}

fn arguments<'p>(
    parameters: impl IntoIterator<Item = &'p mut Parameter>,
    place: TemplatePosition,
) -> Result<(), TemplateSyntaxError> {
    for parameter in parameters {
        match parameter {
            Parameter::Name(_) | Parameter::Literal(_) => {}
            Parameter::Path(_) => {
                let path = parameter.as_name().unwrap_or_default();
                *parameter = value(path, place)?;
            }
            Parameter::Subexpression(inner) => match inner.element.as_mut() {
                TemplateElement::Expression(call) if call.name.as_name() != Some(RESOLVE) => {
                    check(call, HelperPosition::Argument, place)?;
                    arguments(call.params.iter_mut().chain(call.hash.values_mut()), place.deeper()?)?;
                }
                _ => {}
            },
            _ => return place.error("an argument must be a value, a path or a helper in parentheses"),
        }
    }
    Ok(())
}

/// Returns the expression for the value at `path`: its first key is looked up in the scopes, the others in the value found.
fn value(path: &str, place: TemplatePosition) -> Result<Parameter, TemplateSyntaxError> {
    let (first, keys) = split_path(path);
    if first.matches("../").count() + usize::from(first.ends_with("..")) > place.scopes && !path.starts_with('@') {
        // Above the outermost context nothing is found; the crate would stay in that context.
        let nowhere = vec![Parameter::Literal(Value::Null), Parameter::Literal(Value::from(""))];
        let resolve = Parameter::Name(RESOLVE.to_owned());
        return Ok(Parameter::Subexpression(Subexpression::new(resolve, nowhere, Default::default())));
    }
    let first = match Path::parse(first) {
        Ok(first) => Parameter::Path(first),
        Err(_) => return place.error(format!("`{path}` is not a path")),
    };
    if keys.is_empty() {
        return Ok(first);
    }
    let keys = keys.into_iter().map(|key| Parameter::Literal(key.into()));
    let parameters = std::iter::once(first).chain(keys).collect();
    Ok(Parameter::Subexpression(Subexpression::new(
        Parameter::Name(RESOLVE.to_owned()),
        parameters,
        Default::default(),
    )))
}

/// Splits `a.b/[c d]` into `a`, `b` and `c d`. The start of a path (`this`, `../`, `@root`) stays with the first key.
fn split_path(path: &str) -> (&str, Vec<&str>) {
    let mut parts = Vec::new();
    let mut start = usize::from(path.starts_with('@'));
    while start < path.len() {
        let rest = &path[start..];
        let length = if rest.starts_with('[') {
            rest.find(']').map_or(rest.len(), |end| end + 1)
        } else if rest.starts_with("..") {
            2
        } else {
            rest.find(['.', '/']).unwrap_or(rest.len())
        };
        parts.push((start, start + length));
        start += length + 1;
    }
    let begins = |part: &str| matches!(part, "" | "." | ".." | "this") || (part == "root" && path.starts_with('@'));
    let first = parts.iter().position(|(from, to)| !begins(&path[*from..*to]));
    let Some(first) = first else { return (path, Vec::new()) };
    let keys = parts[first + 1..].iter().map(|(from, to)| {
        let key = &path[*from..*to];
        key.strip_prefix('[').map_or(key, |key| key.strip_suffix(']').unwrap_or(key))
    });
    (&path[..parts[first].1], keys.collect())
}
