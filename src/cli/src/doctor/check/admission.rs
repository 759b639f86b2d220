//! Row 3: admission policies, which hold our accounts to their own objects and fields.

use serde::Deserialize as _;
use serde_json::Value;

use super::{
    super::{
        finding::{Finding, Issue},
        reading::{Installed, Part, Read},
    },
    absent::turn_on,
};

const CHECK: &str = "admission-policies";
const TITLE: &str = "admission policies";
const MANIFESTS: [&str; 2] = [
    include_str!("../../../../../config/rbac/own-objects.yaml"),
    include_str!("../../../../../config/gateway/own-field.yaml"),
];

/// Judges the policies in the cluster by those that are built in; `apply` brings back what is missing.
pub(super) fn check(
    policies: &Read<(Vec<Value>, Vec<Value>)>,
    installed: Installed,
    operator: &Read<Option<Part>>,
    gateway: &Read<Option<Part>>,
    apply: &str,
) -> Finding {
    let (policies, bindings) = match policies {
        Ok(read) => read,
        Err(why @ super::super::reading::Unread::NotServed(_)) => {
            return Finding::judge(
                CHECK,
                TITLE,
                "",
                vec![Issue::fail(why.to_string(), "upgrade Kubernetes to 1.30 or later")],
            );
        }
        Err(why) => return Finding::skip(CHECK, TITLE, why),
    };
    if installed == Installed::No {
        return Finding::ok(CHECK, format!("{TITLE}: the API server serves them; ours are not installed yet"));
    }
    let ours = built_in();
    let found = |list: &'_ [Value], name: &str| list.iter().find(|it| it["metadata"]["name"] == name).cloned();
    if ours.iter().all(|policy| found(policies, &policy.name).is_none()) {
        let what = "none of ours is there, so nothing but RBAC holds the operator and the gateway";
        let remedy = format!("turn them on again: {}", turn_on(apply, "admissionPolicy.enabled"));
        return Finding::judge(CHECK, TITLE, "", vec![Issue::warn(what, remedy)]);
    }
    let mut issues = Vec::new();
    for policy in &ours {
        let name = &policy.name;
        let (Some(there), Some(binding)) = (found(policies, name), found(bindings, name)) else {
            issues.push(Issue::fail(format!("{name} or its binding is missing"), apply));
            continue;
        };
        if subject(&there) != Some(policy.subject.as_str()) {
            issues.push(Issue::fail(format!("{name} holds another user than ours"), apply));
        }
        let denies = binding.pointer("/spec/validationActions").and_then(Value::as_array);
        if !denies.is_some_and(|actions| actions.iter().any(|action| action == "Deny")) {
            issues.push(Issue::warn(format!("the binding of {name} denies nothing"), apply));
        }
    }
    for (part, account) in [(operator, "recif-operator"), (gateway, "recif-gateway")] {
        if let Some(part) = part.as_ref().ok().and_then(Option::as_ref).filter(|part| part.account != account) {
            let what = format!("{account} runs as ServiceAccount {:?}, which no policy holds", part.account);
            issues.push(Issue::fail(what, format!("give it the ServiceAccount {account}")));
        }
    }
    Finding::judge(CHECK, TITLE, format!("the {} of ours hold the operator and the gateway", ours.len()), issues)
}

struct BuiltIn {
    name: String,
    subject: String,
}

/// Returns the policies of the manifests.
fn built_in() -> Vec<BuiltIn> {
    let documents = MANIFESTS.iter().flat_map(|file| serde_yaml::Deserializer::from_str(file));
    let objects = documents.filter_map(|document| Value::deserialize(document).ok());
    objects
        .filter(|object| object["kind"] == "ValidatingAdmissionPolicy")
        .filter_map(|object| {
            let subject = subject(&object)?.to_owned();
            Some(BuiltIn { name: object["metadata"]["name"].as_str()?.to_owned(), subject })
        })
        .collect()
}

/// Returns the expression by which a policy knows the user.
fn subject(policy: &Value) -> Option<&str> {
    let conditions = policy.pointer("/spec/matchConditions")?.as_array()?;
    let by = |condition: &&Value| condition["name"].as_str().is_some_and(|name| name.starts_with("by-the-"));
    conditions.iter().find(by)?["expression"].as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::{finding::Verdict, reading::Unread};

    fn cluster() -> (Vec<Value>, Vec<Value>) {
        let policy = |one: &BuiltIn| {
            json!({ "metadata": { "name": one.name }, "spec": { "matchConditions": [
                { "name": "by-the-operator", "expression": one.subject }] } })
        };
        let binding =
            |one: &BuiltIn| json!({ "metadata": { "name": one.name }, "spec": { "validationActions": ["Deny"] } });
        (built_in().iter().map(policy).collect(), built_in().iter().map(binding).collect())
    }

    fn judged(cluster: (Vec<Value>, Vec<Value>)) -> Finding {
        check(&Ok(cluster), Installed::Yes, &Ok(None), &Ok(None), "apply it")
    }

    #[test]
    fn all_of_ours_have_to_hold_our_accounts() {
        assert_eq!(built_in().len(), 4);
        assert_eq!(judged(cluster()).verdict, Verdict::Ok);
        let (mut policies, bindings) = cluster();
        policies.remove(0);
        let missing = judged((policies, bindings));
        assert_eq!(missing.verdict, Verdict::Fail, "a policy is missing");
        assert!(missing.text.ends_with(" is missing: apply it"), "{}", missing.text);
        let (policies, mut bindings) = cluster();
        bindings.remove(1);
        assert_eq!(judged((policies, bindings)).verdict, Verdict::Fail, "a binding is missing");
        let (mut policies, bindings) = cluster();
        policies[0]["spec"]["matchConditions"][0]["expression"] = json!("true");
        assert!(judged((policies, bindings)).text.contains("holds another user"));
        let (policies, mut bindings) = cluster();
        bindings[0]["spec"]["validationActions"] = json!(["Audit"]);
        assert_eq!(judged((policies, bindings)).verdict, Verdict::Warn, "it denies nothing");
        assert_eq!(judged((vec![], vec![])).verdict, Verdict::Warn, "turned off");
    }

    #[test]
    fn a_part_under_another_account_is_held_by_none() {
        let part = Part { account: "default".into(), ..Part::default() };
        let found = check(&Ok(cluster()), Installed::Yes, &Ok(Some(part)), &Ok(None), "apply it");
        assert_eq!(found.verdict, Verdict::Fail, "{}", found.text);
    }

    #[test]
    fn before_an_install_the_kind_has_to_be_served() {
        let none = Ok((Vec::new(), Vec::new()));
        assert_eq!(check(&none, Installed::No, &Ok(None), &Ok(None), "apply it").verdict, Verdict::Ok);
        for (why, verdict) in
            [(Unread::NotServed("X"), Verdict::Fail), (Unread::Forbidden("list x".into()), Verdict::Skip)]
        {
            assert_eq!(check(&Err(why), Installed::No, &Ok(None), &Ok(None), "apply it").verdict, verdict);
        }
    }
}
