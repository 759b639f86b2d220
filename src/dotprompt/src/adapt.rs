//! Rewrites a template that the `handlebars` crate has parsed so that it means what it means to the reference.
//!
//! The crate prints lists, objects and numbers in its own way, fails on `list.length`, and takes `@a.b` for `@a`. So every value
//! goes through our helpers: `{{a.b}}` becomes `{{=print (=resolve a "b")}}`. The rewrite also reports the errors that the crate
//! would find only when rendering, or never.

use std::collections::BTreeSet;

use handlebars::template::{
    BlockParam, DecoratorTemplate, HelperTemplate, Parameter, Subexpression, Template, TemplateElement,
};
use serde_json::Value;

use super::arguments::{arguments, check, value};
use super::helpers::{self, HelperPosition, PRINT, SECTION};
use super::messages::with_marks;
use super::template_position::{TemplatePosition, TemplateSyntaxError};
use super::variables::{Variable, collect_variables};

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
            collect_variables(block.params.iter().chain(block.hash.values()), place.scopes, &mut definition.variables);
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
        collect_variables(partial.params.iter().chain(partial.hash.values()), place.scopes, &mut definition.variables);
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
        collect_variables(call.params.iter().chain(call.hash.values()), place.scopes, &mut definition.variables);
    }
    arguments(call.params.iter_mut().chain(call.hash.values_mut()), place.deeper()?)
}
