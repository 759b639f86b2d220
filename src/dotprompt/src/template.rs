//! Parsed template: the `handlebars` crate with our helpers, and bounds that keep any template from ending the process.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use handlebars::template::Template as Parsed;
use handlebars::{Context, Handlebars, TemplateErrorReason};
use serde_json::Value;

use super::adapt::{TemplateDefinition, adapt};
use super::blocks;
use super::error::PromptError;
use super::helpers;
use super::messages::is_clean;
use super::template_position::TemplateSyntaxError;
use super::variables::Variable;

/// Name of the template itself among the partials; no partial can have it.
const MAIN: &str = "=main";
/// Most tags in one text: the crate's time to parse grows with their number times the text's length.
const TAGS: usize = 2_000;
/// Most `else if`s and the like in one text: each is a level of nesting to the crate.
const ELSES: usize = 200;
/// Deepest nesting of blocks, through partials.
const DEPTH: usize = 100;
/// Most elements, those of partials counted at each use.
const SIZE: usize = 100_000;
/// Most bytes printed.
const PRINTED: usize = 16 << 20;

/// Template with its partials.
#[derive(Debug)]
pub(super) struct PromptTemplate {
    registry: Handlebars<'static>,
    lines_before: usize,
    /// Variables of an input that it uses, through its partials as well.
    variables: BTreeSet<Variable>,
}

impl PromptTemplate {
    /// Parses `source`, whose blocks are checked and which begins after `lines_before` lines of its text, and all `partials`.
    ///
    /// # Errors
    /// The first error, with the line in the text, or with the partial's name.
    pub(super) fn parse(
        source: &str,
        lines_before: usize,
        partials: &BTreeMap<String, String>,
    ) -> Result<Self, PromptError> {
        let mut registry = Handlebars::new();
        registry.register_escape_fn(handlebars::no_escape);
        helpers::register(&mut registry);
        let in_main = |wrong: TemplateSyntaxError| PromptError {
            line: wrong.line.map(|line| line + lines_before),
            message: wrong.message,
        };
        let mut definitions = compile(&mut registry, MAIN, source).map_err(in_main)?;
        for (name, source) in partials {
            let judged = blocks::check_blocks(source, 0).map_err(TemplateSyntaxError::from);
            let compiled = judged.and_then(|()| compile(&mut registry, name, source));
            definitions.extend(compiled.map_err(|wrong| in_partial(name, wrong))?);
        }
        let mut graph = Graph { definitions: &definitions, known: BTreeMap::new(), path: Vec::new() };
        graph.measure(0).map_err(|wrong| match graph.path.last().map(|at| definitions[*at].within.as_str()) {
            Some(MAIN) | None => in_main(wrong),
            Some(name) => in_partial(name, wrong),
        })?;
        let variables = input_variables(&definitions);
        Ok(Self { registry, lines_before, variables })
    }

    /// Reports whether it uses the variable `name` of its input.
    pub(super) fn uses_variable(&self, name: &str) -> bool {
        self.variables.iter().any(|one| match one {
            Variable::All => true,
            Variable::Named(known) => known == name,
        })
    }

    /// Renders the template with `variables`.
    ///
    /// # Errors
    /// The reason why it cannot be rendered, with the line if it is known.
    pub(super) fn render(&self, variables: Value) -> Result<String, String> {
        let mut printed = Bounded(Vec::new());
        let context = Context::from(variables);
        self.registry.render_with_context_to_write(MAIN, &context, &mut printed).map_err(|error| {
            let line = error.line_no.filter(|_| error.template_name.as_deref() == Some(MAIN));
            let line = line.map(|line| format!("line {}: ", line + self.lines_before)).unwrap_or_default();
            format!("{line}{}", error.reason())
        })?;
        String::from_utf8(printed.0).map_err(|error| error.to_string())
    }
}

/// Collects the variables that the main template uses, and the partials that see its context.
fn input_variables(definitions: &[TemplateDefinition]) -> BTreeSet<Variable> {
    let (mut seen, mut unread) = (BTreeSet::from([0]), vec![0]);
    let mut found = BTreeSet::new();
    while let Some(at) = unread.pop() {
        let Some(definition) = definitions.get(at) else { continue };
        found.extend(definition.variables.iter().cloned());
        for used in definition.uses.iter().filter(|used| used.is_outermost) {
            for (target, other) in definitions.iter().enumerate() {
                if used.name.as_deref().is_none_or(|name| name == other.name) && seen.insert(target) {
                    unread.push(target);
                }
            }
        }
    }
    found
}

fn in_partial(name: &str, wrong: TemplateSyntaxError) -> PromptError {
    let line = wrong.line.map(|line| format!(", line {line}")).unwrap_or_default();
    PromptError { line: None, message: format!("partial `{name}`{line}: {}", wrong.message) }
}

fn compile(
    registry: &mut Handlebars<'static>,
    name: &str,
    source: &str,
) -> Result<Vec<TemplateDefinition>, TemplateSyntaxError> {
    if !is_clean(source) {
        let line = source.split('\0').next().map(|before| before.matches('\n').count() + 1);
        return Err(TemplateSyntaxError { line, message: "the template has a NUL character".into() });
    }
    let too_many = |most: usize, what: &str| TemplateSyntaxError {
        line: None,
        message: format!("the template has more than {most} {what}"),
    };
    if source.matches("{{").count() > TAGS {
        return Err(too_many(TAGS, "tags"));
    }
    if source.match_indices("{{").filter(|(at, _)| is_else(&source[at + 2..])).count() > ELSES {
        return Err(too_many(ELSES, "`else`s"));
    }
    let mut template = Parsed::compile(source).map_err(|error| {
        let line = error.pos().map(|(line, _)| line);
        match error.reason() {
            // The parser's reason lists what may follow, by the names of its own grammar rules.
            TemplateErrorReason::InvalidSyntax(reason) => {
                TemplateSyntaxError { line, message: format!("this is not Handlebars: {reason}") }
            }
            other => TemplateSyntaxError { line, message: other.to_string() },
        }
    })?;
    let definitions = adapt(name, source, &mut template)?;
    template.name = Some(name.to_owned());
    registry.register_template(name, template);
    Ok(definitions)
}

fn is_else(tag: &str) -> bool {
    let tag = tag.strip_prefix('~').unwrap_or(tag).trim_start();
    tag.starts_with("else") || tag.starts_with('^')
}

/// Graph of the uses of partials. A cycle is refused, for nothing would stop the rendering. Invariant: no definition is both in
/// `known` and in `path`.
struct Graph<'d> {
    definitions: &'d [TemplateDefinition],
    /// Depth and size of the definitions that are measured.
    known: BTreeMap<usize, (usize, usize)>,
    /// Definitions being measured, from the outermost to the current one.
    path: Vec<usize>,
}

impl Graph<'_> {
    /// Returns the nesting depth and the number of elements of a definition, through its partials, by a depth-first search.
    fn measure(&mut self, at: usize) -> Result<(usize, usize), TemplateSyntaxError> {
        if let Some(known) = self.known.get(&at) {
            return Ok(*known);
        }
        self.path.push(at);
        let definition = &self.definitions[at];
        let (mut depth, mut size) = (0, definition.size);
        for used in &definition.uses {
            let wrong = |message: String| TemplateSyntaxError { line: Some(used.line), message };
            let same_name = |name: &str| used.name.as_deref().is_none_or(|used| used == name) && name != MAIN;
            let targets: Vec<_> =
                (0..self.definitions.len()).filter(|at| same_name(&self.definitions[*at].name)).collect();
            let name = used.name.as_deref().unwrap_or("(…)");
            if targets.is_empty() && used.name.is_some() && name != "@partial-block" && !used.has_fallback {
                return Err(wrong(format!("unknown partial `{name}`")));
            }
            for target in targets {
                if self.path.contains(&target) {
                    return Err(wrong(format!("partial `{name}` uses itself")));
                }
                let inner = self.measure(target)?;
                depth = depth.max(used.depth + 1 + inner.0);
                size += inner.1;
                if depth > DEPTH || size > SIZE {
                    return Err(wrong(format!("partial `{name}` makes the template too large or too deep")));
                }
            }
        }
        self.path.pop();
        self.known.insert(at, (depth, size));
        Ok((depth, size))
    }
}

/// Printed output, up to [`PRINTED`] bytes.
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > PRINTED {
            return Err(io::Error::other(format!("the template prints more than {PRINTED} bytes")));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
