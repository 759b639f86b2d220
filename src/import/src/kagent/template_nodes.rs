//! The texts and actions of a template of kagent, and the blocks that they make.

/// Node of a template: a text or an action.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TemplateNode {
    Text(String),
    Action(String),
}

/// Splits a template into texts and actions; applies the marks that remove white space.
pub(super) fn nodes(template: &str) -> Vec<TemplateNode> {
    let (mut nodes, mut rest, mut trims) = (Vec::new(), template, false);
    loop {
        let found = rest.find("{{").and_then(|begin| {
            let after = rest.get(begin + 2..)?;
            Some((begin, after, after.find("}}")?))
        });
        let text = found.map_or(rest, |(begin, ..)| rest.get(..begin).unwrap_or_default());
        let text = if trims { text.trim_start() } else { text };
        let Some((_, after, end)) = found else {
            nodes.push(TemplateNode::Text(text.to_owned()));
            return nodes;
        };
        let action = after.get(..end).unwrap_or_default();
        let opens = action.strip_prefix('-').filter(|it| it.starts_with(char::is_whitespace));
        nodes.push(TemplateNode::Text(if opens.is_some() { text.trim_end() } else { text }.to_owned()));
        let action = opens.unwrap_or(action);
        let closes = action.strip_suffix('-').filter(|it| it.ends_with(char::is_whitespace));
        trims = closes.is_some();
        nodes.push(TemplateNode::Action(closes.unwrap_or(action).trim().to_owned()));
        rest = after.get(end + 2..).unwrap_or_default();
    }
}

/// Returns an action as a template has it.
pub(super) fn written(action: &str) -> String {
    format!("{{{{{action}}}}}")
}

/// Returns the path that an action includes.
pub(super) fn included(action: &str) -> Option<&str> {
    let path = action.strip_prefix("include ").map(str::trim)?;
    path.strip_prefix('"').and_then(|it| it.strip_suffix('"')).or_else(|| path.strip_prefix('`')?.strip_suffix('`'))
}

/// Reports whether an action begins a block, or another part of one.
pub(super) fn opens_block(action: &str) -> bool {
    let word = action.split_whitespace().next().unwrap_or_default();
    matches!(word, "if" | "with" | "range" | "define" | "block" | "else")
}

/// Returns the place of the `end` of a block that began before these nodes.
pub(super) fn end_of_block(nodes: &[TemplateNode]) -> Option<usize> {
    let mut depth = 0;
    for (at, node) in nodes.iter().enumerate() {
        match node {
            TemplateNode::Action(action) if action == "end" && depth == 0 => return Some(at),
            TemplateNode::Action(action) if action == "end" => depth -= 1,
            TemplateNode::Action(action) if opens_block(action) && !action.starts_with("else") => depth += 1,
            _ => {}
        }
    }
    None
}
