//! Templates of kagent's system prompts: the part of Go's text/template that its documentation shows.
//!
//! Actions are `{{include "source/key"}}`, `{{.AgentName}}` and the other variables, `{{range …}} … {{end}}` over a list, and
//! comments; `{{-` and `-}}` remove white space. Any other action stays in the text.

use std::collections::BTreeMap;

use super::template_nodes::{TemplateNode, end_of_block, included, nodes, opens_block, written};

/// Values of the variables of a template.
#[derive(Debug, Default)]
pub(super) struct Variables<'v> {
    pub(super) texts: BTreeMap<&'static str, &'v str>,
    pub(super) lists: BTreeMap<&'static str, Vec<String>>,
}

/// Result of a template.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Rendered {
    pub(super) text: String,
    /// Actions that stay in the text, each with the reason.
    pub(super) left: Vec<(String, String)>,
}

/// Renders a template. `include` returns the text of `source/key`, or why there is none.
pub(super) fn render(
    template: &str,
    variables: &Variables<'_>,
    include: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Rendered {
    let nodes = nodes(template);
    let mut renderer = Renderer { variables, include, out: Rendered::default(), steps: 0, full: false };
    renderer.block(&nodes, &[], 0);
    renderer.out
}

/// Largest text that is put together, in bytes: a system prompt of the most characters, of four bytes each.
const MAX_BYTES: usize = 4 * super::prompt::MOST;
/// Most nodes that are gone over, because a loop may add no text.
const MOST_STEPS: usize = 1 << 18;
/// Most loops within each other.
const MOST_LOOPS: usize = 16;
/// Reason for which an action stays in the text.
const TOO_LONG: &str = "the text is too long with it";

struct Renderer<'r, 'v> {
    variables: &'r Variables<'v>,
    include: &'r mut dyn FnMut(&str) -> Result<String, String>,
    out: Rendered,
    steps: usize,
    /// Set once a limit was exceeded: nothing more is put together.
    full: bool,
}

impl Renderer<'_, '_> {
    /// Reports whether a limit was exceeded.
    fn is_full(&mut self) -> bool {
        self.full |= self.out.text.len() > MAX_BYTES || self.steps > MOST_STEPS;
        self.full
    }

    /// Renders nodes; `scope` holds `.` and the variables of the loops around them, which are `depth`.
    fn block(&mut self, nodes: &[TemplateNode], scope: &[(String, String)], depth: usize) {
        let mut at = 0;
        while let Some(node) = nodes.get(at) {
            at += 1;
            self.steps += 1;
            // The loop around it is kept as it is.
            if depth > 0 && self.is_full() {
                return;
            }
            let action = match node {
                TemplateNode::Text(text) => {
                    self.out.text += text;
                    continue;
                }
                TemplateNode::Action(action) => action,
            };
            if self.is_full() {
                self.keep(action, TOO_LONG);
                continue;
            }
            let Some(head) = action.strip_prefix("range ") else {
                self.action(action, scope, opens_block(action));
                continue;
            };
            let rest = nodes.get(at..).unwrap_or_default();
            let (body, end) = match end_of_block(rest) {
                Some(end) => (rest.get(..end).unwrap_or_default(), end + 1),
                None => (rest, rest.len()),
            };
            match self.range(head) {
                Some((names, items)) if depth < MOST_LOOPS && end_of_block(rest).is_some() => {
                    let (text, left) = (self.out.text.len(), self.out.left.len());
                    for (index, item) in items.iter().enumerate() {
                        if self.is_full() {
                            break;
                        }
                        let mut inner = scope.to_vec();
                        inner.push((".".to_owned(), item.clone()));
                        match names.as_slice() {
                            [value] => inner.push((value.clone(), item.clone())),
                            [number, value] => {
                                inner.push((number.clone(), index.to_string()));
                                inner.push((value.clone(), item.clone()));
                            }
                            _ => {}
                        }
                        self.block(body, &inner, depth + 1);
                    }
                    if self.is_full() {
                        self.out.text.truncate(text);
                        self.out.left.truncate(left);
                        self.keep_block(action, rest.get(..end).unwrap_or_default(), TOO_LONG);
                    }
                }
                found => {
                    let why = match found {
                        Some(_) if depth >= MOST_LOOPS => "too many loops are around it",
                        _ => "only a list of the agent can be gone over",
                    };
                    self.keep_block(action, rest.get(..end).unwrap_or_default(), why);
                }
            }
            at += end;
        }
    }

    /// Keeps a loop as it is, with what is in it.
    fn keep_block(&mut self, action: &str, nodes: &[TemplateNode], why: &str) {
        self.keep(action, why);
        for node in nodes {
            match node {
                TemplateNode::Text(text) => self.out.text += text,
                TemplateNode::Action(action) => self.out.text += &written(action),
            }
        }
    }

    /// Returns the variables and the items of a loop.
    fn range(&self, head: &str) -> Option<(Vec<String>, Vec<String>)> {
        let (names, list) = match head.split_once(":=") {
            Some((names, list)) => (names.split(',').map(|name| name.trim().to_owned()).collect(), list),
            None => (Vec::new(), head),
        };
        let items = self.variables.lists.get(list.trim().strip_prefix('.')?)?;
        Some((names, items.clone()))
    }

    fn action(&mut self, action: &str, scope: &[(String, String)], is_block: bool) {
        if action.starts_with("/*") && action.ends_with("*/") {
            return;
        }
        if let Some((_, value)) = scope.iter().rev().find(|(name, _)| name == action) {
            self.out.text += value;
            return;
        }
        if let Some(name) = action.strip_prefix('.') {
            if let Some(text) = self.variables.texts.get(name) {
                self.out.text += text;
                return;
            }
            if let Some(list) = self.variables.lists.get(name) {
                // As Go prints a list.
                self.out.text += &format!("[{}]", list.join(" "));
                return;
            }
            return self.keep(action, "kagent has no such variable");
        }
        match included(action) {
            Some(path) => match (self.include)(path) {
                Ok(text) => self.out.text += &text,
                Err(why) => self.keep(action, &why),
            },
            None if is_block || action == "end" => self.keep(action, "conditions are not known here"),
            None => self.keep(action, "the action is not known here"),
        }
    }

    fn keep(&mut self, action: &str, why: &str) {
        self.out.text += &written(action);
        // The end of a block says nothing that its begin did not, and one line on the length is enough.
        let is_reported = why == TOO_LONG && self.out.left.last().is_some_and(|(_, last)| last == TOO_LONG);
        if action != "end" && !is_reported {
            self.out.left.push((written(action), why.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(template: &str) -> Rendered {
        let variables = Variables {
            texts: [("AgentName", "shop")].into(),
            lists: [("ToolNames", vec!["find".to_owned(), "buy".to_owned()])].into(),
        };
        render(template, &variables, &mut |path| match path {
            "rules/short" => Ok("Be brief.".to_owned()),
            other => Err(format!("no {other}")),
        })
    }

    #[test]
    fn what_is_known_is_replaced() {
        for (template, expected) in [
            ("You are {{.AgentName}}.", "You are shop."),
            ("{{include \"rules/short\"}} Go.", "Be brief. Go."),
            ("{{ include `rules/short` }}", "Be brief."),
            ("Use{{range .ToolNames}} {{.}}{{end}}.", "Use find buy."),
            ("{{range $i, $t := .ToolNames}}{{$i}}={{$t}};{{end}}", "0=find;1=buy;"),
            ("{{range $t := .ToolNames}}{{$t}},{{end}}", "find,buy,"),
            ("a \n {{- .AgentName -}} \n b", "ashopb"),
            ("{{/* a note */}}x", "x"),
            ("{{.ToolNames}}", "[find buy]"),
            ("no action { } }}", "no action { } }}"),
            ("open {{ end", "open {{ end"),
            ("{{range .ToolNames}}{{range .ToolNames}}{{.}}{{end}}|{{end}}", "findbuy|findbuy|"),
        ] {
            let rendered = rendered(template);
            assert_eq!(rendered, Rendered { text: expected.to_owned(), left: Vec::new() }, "{template}");
        }
    }

    #[test]
    fn what_is_not_known_stays_and_is_reported() {
        for (template, left) in [
            ("{{include \"rules/long\"}}", "{{include \"rules/long\"}}"),
            ("{{if .AgentName}}x{{end}}", "{{if .AgentName}}"),
            ("{{.Weather}}", "{{.Weather}}"),
            ("{{range .Weather}}{{.}}{{end}}", "{{range .Weather}}"),
            ("{{range .ToolNames}}x", "{{range .ToolNames}}"),
            ("{{printf \"x\"}}", "{{printf \"x\"}}"),
        ] {
            let rendered = rendered(template);
            assert_eq!(rendered.text, template, "{template}");
            let actions: Vec<_> = rendered.left.iter().map(|(action, _)| action.as_str()).collect();
            assert_eq!(actions, [left], "{template}");
        }
    }

    #[test]
    fn loops_in_loops_stop_at_a_limit_and_stay_as_they_are() {
        let long = "x".repeat(100_000);
        for (depth, body) in [(16, "{{.}}"), (16, ""), (2, long.as_str())] {
            let template = format!("a{}{body}{}z", "{{range .ToolNames}}".repeat(depth), "{{end}}".repeat(depth));
            let names: Vec<String> = (0..10).map(|number| format!("tool{number}")).collect();
            let variables = Variables { texts: BTreeMap::new(), lists: [("ToolNames", names)].into() };
            let rendered = render(&template, &variables, &mut |_| Err(String::new()));
            assert_eq!(rendered.text, template, "{depth}");
            assert_eq!(rendered.left, [("{{range .ToolNames}}".to_owned(), TOO_LONG.to_owned())], "{depth}");
        }
        let deep = format!("{}{{{{.}}}}{}", "{{range .One}}".repeat(20), "{{end}}".repeat(20));
        let variables = Variables { texts: BTreeMap::new(), lists: [("One", vec!["x".to_owned()])].into() };
        let rendered = render(&deep, &variables, &mut |_| Err(String::new()));
        let expected = format!("{}{{{{.}}}}{}", "{{range .One}}".repeat(4), "{{end}}".repeat(4));
        assert_eq!(rendered.text, expected, "16 loops are gone over");
        assert_eq!(rendered.left, [("{{range .One}}".to_owned(), "too many loops are around it".to_owned())]);
    }
}
