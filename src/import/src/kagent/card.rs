//! The A2A card of an agent, and the names of its skills.

use serde_json::{Value, json};

use crate::{fields::Fields, names, subject::Subject};

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
        let id = id.map_or_else(|| names::label(name, 63, false), str::to_owned);
        let mut ours = json!({ "id": id, "name": name });
        if let Some(description) = skill.text("description") {
            ours["description"] = description.into();
        }
        for key in ["tags", "examples", "inputModes", "outputModes"] {
            let texts: Vec<_> = skill.texts(key).into_iter().filter(|text| !text.is_empty()).take(32).collect();
            if !texts.is_empty() {
                ours[key] = texts.into();
            }
        }
        if skills.iter().any(|known| known["id"] == ours["id"]) {
            subject.notes.skip(skill.own_path(), "has the id of a skill before it");
        } else if skills.len() == 32 {
            subject.notes.loss(skill.own_path(), "a card has at most 32 skills");
        } else {
            skills.push(ours);
        }
    }
    (!skills.is_empty()).then(|| json!({ "skills": skills }))
}
