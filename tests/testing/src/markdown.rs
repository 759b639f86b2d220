//! Parses what tests need of the project's Markdown: fences, headings and links.
//!
//! A fence for a shell says in its info string what tests do with it: `sh run` is run, `sh setup` brings about what the tests have
//! already, and `sh no-run="why"` is only parsed.

/// Fenced block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// Text after the backticks, such as `sh run`.
    pub info: String,
    /// Line of the opening backticks, from 1.
    pub line: usize,
    /// Content, with a line break at its end.
    pub text: String,
}

impl Fence {
    /// Returns how a shell block is treated; `None` for other languages.
    ///
    /// # Errors
    /// An info string that is none of the three forms.
    pub fn shell(&self) -> Option<Result<Shell, String>> {
        let (language, how) = self.info.split_once(' ').unwrap_or((&self.info, ""));
        if !["sh", "bash", "shell"].contains(&language) {
            return None;
        }
        let reason = how.strip_prefix("no-run=\"").and_then(|rest| rest.strip_suffix('"'));
        Some(match (language, how, reason) {
            ("sh", "run", _) => Ok(Shell::Run),
            ("sh", "setup", _) => Ok(Shell::Setup),
            ("sh", _, Some(reason)) if !reason.is_empty() => Ok(Shell::NoRun),
            _ => Err(format!("`{}`: write `sh run`, `sh setup` or `sh no-run=\"why\"`", self.info)),
        })
    }

    /// Returns a shell block cut at its expectations: commands, and the text that their output must have, if any.
    ///
    /// An expectation is `# → text` behind a command, or on a line of its own.
    pub fn steps(&self) -> Vec<(String, Option<&str>)> {
        let mut steps = Vec::new();
        let mut commands = String::new();
        for line in self.text.lines() {
            let (command, expected) = match line.split_once("# → ") {
                Some((command, expected)) => (command.trim_end(), Some(expected.trim())),
                None => (line, None),
            };
            commands += command;
            commands.push('\n');
            if expected.is_some() {
                steps.push((std::mem::take(&mut commands), expected));
            }
        }
        if !commands.trim().is_empty() {
            steps.push((commands, None));
        }
        steps
    }
}

/// Treatment of a shell block by tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shell {
    /// It is run, in the order of the page.
    Run,
    /// It brings about what the tests have already.
    Setup,
    /// It is parsed.
    NoRun,
}

/// Returns the fences of a page, also those that are indented.
pub fn fences(page: &str) -> Vec<Fence> {
    let mut found = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(info) = line.trim_start().strip_prefix("```") else { continue };
        let content = lines.by_ref().map(|(_, line)| line).take_while(|line| line.trim() != "```");
        let text = content.map(|line| format!("{line}\n")).collect();
        found.push(Fence { info: info.trim().into(), line: number + 1, text });
    }
    found
}

/// Returns the page without its fences.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    page.lines().filter(move |line| {
        let is_border = line.trim_start().starts_with("```");
        inside ^= is_border;
        !inside && !is_border
    })
}

/// Returns the anchors of a page's headings, as GitHub makes them.
pub fn anchors(page: &str) -> Vec<String> {
    let headings = prose(page).filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let mut found: Vec<String> = Vec::new();
    for heading in headings {
        let kept = heading.chars().filter(|char| char.is_alphanumeric() || [' ', '-', '_'].contains(char));
        let anchor: String =
            kept.flat_map(char::to_lowercase).map(|char| if char == ' ' { '-' } else { char }).collect();
        // A heading that was there before gets a number.
        let free = |number: &usize| !found.contains(&numbered(&anchor, *number));
        let number = (0..).find(free).unwrap_or_default();
        found.push(numbered(&anchor, number));
    }
    found
}

fn numbered(anchor: &str, number: usize) -> String {
    if number == 0 { anchor.into() } else { format!("{anchor}-{number}") }
}

/// Returns the targets of the links and images of a page, without those in code.
pub fn links(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(page) {
        let text: String = line.split('`').step_by(2).collect::<Vec<_>>().join("");
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        found.extend(targets.map(|(target, _)| target.to_owned()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_are_found_with_their_line_and_cut_at_expectations() {
        let page = "a\n```sh run\none   # → 1\ntwo\n# → 2\nthree\n```\n  ```yaml\n  a: 1\n  ```\n";
        let found = fences(page);
        assert_eq!(
            found.iter().map(|it| (it.info.as_str(), it.line)).collect::<Vec<_>>(),
            [("sh run", 2), ("yaml", 8)]
        );
        let expected = [("one\n".into(), Some("1")), ("two\n\n".into(), Some("2")), ("three\n".into(), None)];
        assert_eq!(found[0].steps(), expected);
    }

    #[test]
    fn a_shell_fence_says_what_is_done_with_it() {
        let shell = |info: &str| Fence { info: info.into(), line: 1, text: String::new() }.shell();
        assert_eq!(shell("sh run"), Some(Ok(Shell::Run)));
        assert_eq!(shell("sh setup"), Some(Ok(Shell::Setup)));
        assert_eq!(shell("sh no-run=\"needs a key\""), Some(Ok(Shell::NoRun)));
        for wrong in ["sh", "bash", "bash run", "sh no-run", "sh no-run=\"\"", "shell"] {
            assert!(shell(wrong).unwrap().is_err(), "{wrong}");
        }
        assert_eq!(shell("console"), None);
        assert_eq!(shell(""), None);
    }

    #[test]
    fn anchors_are_those_of_github() {
        let page = "# Récif's `why`, in short\n## A\n```\n# no heading\n```\n## A\n### --tls-cert\n";
        assert_eq!(anchors(page), ["récifs-why-in-short", "a", "a-1", "--tls-cert"]);
    }

    #[test]
    fn links_in_code_are_none() {
        let page = "[a](b.md#c) `[x](y)` ![i](p.webp)\n```\n[n](o)\n```\n";
        assert_eq!(links(page), ["b.md#c", "p.webp"]);
    }
}
