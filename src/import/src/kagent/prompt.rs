//! The system prompt of an agent: a text, a reference, or a template whose parts are put together now.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::prompt_template::{Variables, render};
use crate::{env::set, fields::Fields, input::place, subject::Subject};

/// Longest system prompt in a spec, in characters.
pub(super) const MOST: usize = 131_072;

/// Sets the system prompt.
pub(super) fn take(
    subject: &Subject<'_>,
    fields: &Fields<'_>,
    ours: &mut Map<String, Value>,
    variables: &Variables<'_>,
) {
    let message = fields.text("systemMessage");
    let from = fields.part("systemMessageFrom");
    let source = Source::read(subject, &from);
    let template = fields.part("promptTemplate");
    let sources = data_sources(subject, &template);
    let is_template = fields.has("promptTemplate");
    drop(template);
    match (message, source) {
        (Some(message), source) => {
            if source.is_some() {
                subject.notes.skip(from.own_path(), "systemMessage goes first");
            }
            let text = match is_template {
                true => resolved(subject, &fields.path("systemMessage"), message, None, &sources, variables),
                false => message.to_owned(),
            };
            set_text(subject, &fields.path("systemMessage"), ours, text);
        }
        (None, Some(source)) => {
            let text = if is_template { source.text(subject, from.own_path()) } else { None };
            match text {
                Some(text) => {
                    let name = Some(source.name);
                    let text = resolved(subject, from.own_path(), text, name, &sources, variables);
                    set_text(subject, from.own_path(), ours, text);
                }
                None => {
                    // Of a template, the ConfigMap that is not in the input was reported with what stays in it.
                    if !is_template || source.kind == "Secret" {
                        subject.needs(from.own_path(), source.kind, source.name);
                    }
                    ours.insert("systemPromptFrom".to_owned(), source.reference());
                }
            }
        }
        (None, None) => {}
    }
}

fn set_text(subject: &Subject<'_>, field: &str, ours: &mut Map<String, Value>, text: String) {
    if text.chars().count() > MOST {
        subject.notes.loss(field, format!("is longer than {MOST} characters, and left out; put it into a Prompt"));
    } else {
        set(ours, "systemPrompt", Some(text));
    }
}

/// Key of a ConfigMap or Secret with the system prompt.
struct Source<'f> {
    kind: &'static str,
    name: &'f str,
    key: &'f str,
}

impl<'f> Source<'f> {
    fn read(subject: &Subject<'_>, from: &Fields<'f>) -> Option<Self> {
        if from.is_empty() {
            return None;
        }
        let kind = match from.text("type") {
            Some("Secret") => Some("Secret"),
            Some("ConfigMap") => Some("ConfigMap"),
            _ => None,
        };
        let found = kind.zip(from.text("name")).zip(from.text("key"));
        if found.is_none() {
            subject.notes.skip(from.own_path(), "names no key of a Secret or ConfigMap");
        }
        found.map(|((kind, name), key)| Self { kind, name, key })
    }

    /// Returns the text, if it is in the input and no Secret; reports why a template stays in it.
    fn text<'s>(&self, subject: &Subject<'s>, field: &str) -> Option<&'s str> {
        if self.kind == "Secret" {
            subject.notes.loss(field, "{{…}} stays in the text: it is in a Secret");
            return None;
        }
        let text = subject.world.config_text(subject.namespace(), self.name, self.key);
        if text.is_none() {
            let place = place(subject.namespace(), self.name);
            subject.notes.loss(
                field,
                format!("{{{{…}}}} stays in the text: ConfigMap {place} with key {} is not in the input", self.key),
            );
        }
        text
    }

    fn reference(&self) -> Value {
        let field = if self.kind == "Secret" { "secretKeyRef" } else { "configMapKeyRef" };
        json!({ field: { "name": self.name, "key": self.key } })
    }
}

/// Returns the ConfigMaps of a template, by the name that it includes them by.
fn data_sources<'f>(subject: &Subject<'_>, template: &Fields<'f>) -> BTreeMap<&'f str, &'f str> {
    let mut sources = BTreeMap::new();
    for source in template.parts("dataSources") {
        let (kind, name, alias) = (source.text("kind"), source.text("name"), source.text("alias"));
        source.text("apiGroup");
        match name.filter(|_| kind.is_none_or(|kind| kind == "ConfigMap")) {
            Some(name) => {
                sources.insert(alias.unwrap_or(name), name);
            }
            None => subject.notes.skip(source.own_path(), "names no ConfigMap"),
        }
    }
    sources
}

/// Renders a template and reports what that means; `own` is the ConfigMap with the template itself.
fn resolved(
    subject: &Subject<'_>,
    field: &str,
    template: &str,
    own: Option<&str>,
    sources: &BTreeMap<&str, &str>,
    variables: &Variables<'_>,
) -> String {
    let namespace = subject.namespace();
    let mut used: BTreeSet<&str> = own.into_iter().collect();
    let rendered = render(template, variables, &mut |path| {
        let (source, key) = path.split_once('/').unwrap_or((path, ""));
        let name = *sources.get(source).ok_or_else(|| format!("no data source is named {source:?}"))?;
        let place = place(namespace, name);
        let text = subject.world.config_text(namespace, name, key);
        let text = text.ok_or_else(|| match subject.world.core("ConfigMap", namespace, name) {
            Some(_) => format!("ConfigMap {place} has no key {key:?}"),
            None => format!("ConfigMap {place} is not in the input"),
        })?;
        used.insert(name);
        Ok(text.to_owned())
    });
    for (action, why) in &rendered.left {
        subject.notes.loss(field, format!("{action} stays in the text: {why}"));
    }
    for name in &used {
        let place = place(namespace, name);
        subject.notes.change(field, format!("is fixed text now; edits of ConfigMap {place} no longer reach it"));
    }
    if used.is_empty() && rendered.text != template {
        subject.notes.change(field, "is fixed text now");
    }
    rendered.text
}
