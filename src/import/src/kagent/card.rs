//! The A2A card of an agent, and the names of its skills.

use serde_json::{Value, json};

use crate::{fields::Fields, names, subject::Subject};

/// Most skills of a card, and most entries of each list of a skill.
const MOST: usize = 32;

/// Returns the name of a skill that is an image or a folder of git, as kagent's templates know it.
pub(super) fn skill_names(skills: &Value) -> Vec<String> {
    let last = |text: &str| text.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned();
    let images = skills["refs"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let images = images.map(|image| last(image).split(['@', ':']).next().unwrap_or_default().to_owned());
    let folders = skills["gitRefs"].as_array().into_iter().flatten().filter_map(|git| {
        let name = git["name"].as_str().map(str::to_owned);
        name.or_else(|| Some(last(git["url"].as_str()?).trim_end_matches(".git").to_owned()))
    });
    images.chain(folders).filter(|name| !name.is_empty()).collect()
}

/// Returns the card of `a2aConfig`.
pub(super) fn card(subject: &Subject<'_>, fields: &Fields<'_>) -> Option<Value> {
    let config = fields.part("a2aConfig");
    let mut skills: Vec<Value> = Vec::new();
    for skill in config.parts("skills") {
        let (id, name) = (skill.text("id"), skill.text("name"));
        let Some(name) = name.or(id) else {
            subject.notes.skip(skill.own_path(), "has no name");
            skill.ignore();
            continue;
        };
        let id = id.map_or_else(|| names::label(name, 63, false), |id| cut(subject, &skill.path("id"), id, 128));
        let mut ours = json!({ "id": id, "name": cut(subject, &skill.path("name"), name, 256) });
        if let Some(description) = skill.text("description") {
            ours["description"] = cut(subject, &skill.path("description"), description, 4096).into();
        }
        for (key, longest) in [("tags", 128), ("examples", 4096), ("inputModes", 128), ("outputModes", 128)] {
            let path = skill.path(key);
            let texts = skill.texts(key).into_iter().filter(|text| !text.is_empty());
            let mut texts: Vec<&str> = texts.collect();
            if texts.len() > MOST {
                subject.notes.loss(&path, format!("at most {MOST} entries; the others are left out"));
                texts.truncate(MOST);
            }
            let texts: Vec<_> = texts.into_iter().map(|text| cut(subject, &path, text, longest)).collect();
            if !texts.is_empty() {
                ours[key] = texts.into();
            }
        }
        if skills.iter().any(|known| known["id"] == ours["id"]) {
            subject.notes.skip(skill.own_path(), "has the id of a skill before it");
        } else if skills.len() == MOST {
            subject.notes.loss(skill.own_path(), format!("a card has at most {MOST} skills"));
        } else {
            skills.push(ours);
        }
    }
    (!skills.is_empty()).then(|| json!({ "skills": skills }))
}

/// Returns a text of at most `most` characters; reports if it is cut.
pub(super) fn cut(subject: &Subject<'_>, field: &str, text: &str, most: usize) -> String {
    let cut: String = text.chars().take(most).collect();
    if cut.len() < text.len() {
        subject.notes.loss(field, format!("is cut after {most} characters"));
    }
    cut
}
