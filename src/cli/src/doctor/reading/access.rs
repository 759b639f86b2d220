//! Reviews of rights: those of our accounts, by the rules of config/, and those of the user.

use crds::{GROUP, KINDS, Role};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};

use super::{
    api::{ApiReader, Read, Unread, unread},
    parts::{Account, Part},
    views::{Installed, Scope},
};
use crate::roles::{Permission, RoleManifest, roles};

/// Reviews that are asked for at the same time.
const AT_ONCE: usize = 8;
/// Path of reviews of others, and of the caller.
const OF_OTHERS: (&str, &str) = ("create subjectaccessreviews", "/apis/authorization.k8s.io/v1/subjectaccessreviews");
const OF_SELF: (&str, &str) =
    ("create selfsubjectaccessreviews", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");

/// Manifests with the rules of our accounts.
const RULES: &[(&str, &[&str])] = &[
    (
        "recif-operator",
        &[
            include_str!("../../../../../config/rbac/operator.yaml"),
            include_str!("../../../../../config/rbac/leases.yaml"),
            include_str!("../../../../../config/rbac/gateways.yaml"),
            include_str!("../../../../../config/rbac/identity.yaml"),
        ],
    ),
    ("recif-gateway", &[include_str!("../../../../../config/gateway/rights.yaml")]),
    ("recif-control-plane", &[include_str!("../../../../../config/control-plane/rights.yaml")]),
];

/// Rights that none of our accounts needs: an account that has them may do anything.
const EXCESS: &[(&str, &str, &str)] = &[
    ("*", "*", "*"),
    ("create", "", "pods"),
    ("create", "", "pods/exec"),
    ("create", "", "serviceaccounts/token"),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
    ("escalate", "rbac.authorization.k8s.io", "clusterroles"),
    ("impersonate", "", "users"),
    ("delete", "", "namespaces"),
];

/// Resources that an install creates.
const INSTALLS: &[(&str, &str)] = &[
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
    ("", "namespaces"),
];

/// The same, in the namespace of the system.
const INSTALLS_THERE: &[(&str, &str)] = &[
    ("apps", "deployments"),
    ("", "services"),
    ("", "serviceaccounts"),
    ("rbac.authorization.k8s.io", "roles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
    ("networking.k8s.io", "networkpolicies"),
    ("policy", "poddisruptionbudgets"),
];

/// Place for which a right is bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::doctor) enum BoundIn {
    /// The cluster, or the namespaces of `--namespaces`.
    Workspaces,
    /// The cluster, whatever the namespaces are.
    Cluster,
    /// A namespace.
    Namespace(String),
}

/// One right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::doctor) struct Right {
    verb: String,
    group: String,
    resource: String,
    name: String,
    bound: BoundIn,
}

/// Right that an account, or the user, was denied or has besides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::doctor) struct Denied {
    /// Name of the account.
    pub account: String,
    /// The right, such as `patch agents.agents.recif.dev/status in team-a`.
    pub right: String,
}

/// Reviews of our accounts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::doctor) struct AccountReviews {
    /// Number of rights that were asked for.
    pub asked: usize,
    /// Rights that are missing.
    pub missing: Vec<Denied>,
    /// Rights that no rule of ours gives.
    pub excess: Vec<Denied>,
}

/// Reviews of the user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::doctor) struct YourReviews {
    /// Rights that are missing.
    pub missing: Vec<String>,
    /// True if these are the rights of an install.
    pub to_install: bool,
}

/// Returns the rights of an account by our manifests; `system` is the namespace of its Roles.
pub(in crate::doctor) fn account_rules(account: &str, system: &str) -> Vec<Right> {
    let files = RULES.iter().filter(|(name, _)| *name == account).flat_map(|(_, files)| *files);
    let roles = files.flat_map(|file| roles(file).unwrap_or_default());
    roles.flat_map(|role| role_rights(role, account, system)).collect()
}

fn role_rights(role: RoleManifest, account: &str, system: &str) -> impl Iterator<Item = Right> + use<> {
    let bound = match role.is_namespaced {
        true => BoundIn::Namespace(system.to_owned()),
        // The other ClusterRoles are bound in the cluster also where the parts work in some namespaces.
        false if role.name == account => BoundIn::Workspaces,
        false => BoundIn::Cluster,
    };
    role.permissions.into_iter().map(move |Permission { verb, group, resource, name }| Right {
        verb,
        group,
        resource,
        name,
        bound: bound.clone(),
    })
}

impl Right {
    fn new(verb: &str, group: &str, resource: &str, bound: BoundIn) -> Self {
        let [verb, group, resource] = [verb, group, resource].map(str::to_owned);
        Self { verb, group, resource, name: String::new(), bound }
    }

    /// Returns the namespaces for which the right is reviewed; `None` means all.
    fn places(&self, namespaces: &[String]) -> Vec<Option<String>> {
        match &self.bound {
            BoundIn::Namespace(namespace) => vec![Some(namespace.clone())],
            // RoleBindings do not give it.
            BoundIn::Workspaces if self.resource == "namespaces" && !namespaces.is_empty() => Vec::new(),
            BoundIn::Workspaces if !namespaces.is_empty() => namespaces.iter().cloned().map(Some).collect(),
            BoundIn::Workspaces | BoundIn::Cluster => vec![None],
        }
    }

    fn attributes(&self, namespace: Option<&str>) -> Value {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        json!({ "namespace": namespace.unwrap_or_default(), "verb": self.verb, "group": self.group,
            "resource": resource, "subresource": subresource, "name": self.name })
    }

    fn text(&self, namespace: Option<&str>) -> String {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        let subresource = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
        let name = if self.name.is_empty() { String::new() } else { format!(" {}", self.name) };
        let place = namespace.map_or_else(|| "in all namespaces".to_owned(), |name| format!("in {name}"));
        format!("{} {resource}{group}{subresource}{name} {place}", self.verb)
    }
}

/// Reviews the rights of our accounts.
pub(super) async fn accounts(
    api: &ApiReader<'_>,
    system: &str,
    parts: [Option<&Part>; 3],
    installed: Installed,
) -> Read<AccountReviews> {
    if installed == Installed::No {
        return Err(Unread::NotInstalled);
    }
    let mut reviews = AccountReviews::default();
    for ((account, _), part) in RULES.iter().zip(parts) {
        // A part that is not there has no namespaces, and its row tells that it is not there.
        let Some(part) = part else { continue };
        let Account { name, namespaces } = part.account();
        let user = json!({ "user": format!("system:serviceaccount:{system}:{name}"), "groups":
            ["system:serviceaccounts", format!("system:serviceaccounts:{system}"), "system:authenticated"] });
        let needed = account_rules(account, system);
        let places = needed.iter().flat_map(|right| right.places(&namespaces).into_iter().map(move |at| (right, at)));
        let places: Vec<_> = places.collect();
        let excess: Vec<_> =
            EXCESS.iter().map(|(verb, group, resource)| Right::new(verb, group, resource, BoundIn::Cluster)).collect();
        let asked = places.into_iter().map(|(right, at)| (right, at, true));
        let asked: Vec<_> = asked.chain(excess.iter().map(|right| (right, None, false))).collect();
        reviews.asked += asked.len();
        let denied = |right: &Right, at: Option<&str>| Denied { account: name.clone(), right: right.text(at) };
        for (right, at, needed) in review(api, OF_OTHERS, &user, asked).await? {
            let (allowed, at) = (at.1, at.0.as_deref());
            match (needed, allowed) {
                (true, false) => reviews.missing.push(denied(right, at)),
                (false, true) => reviews.excess.push(denied(right, at)),
                _ => {}
            }
        }
    }
    Ok(reviews)
}

/// Reviewed right: where, and whether it is allowed; true if it is needed.
type Reviewed<'r> = (&'r Right, (Option<String>, bool), bool);

async fn review<'r>(
    api: &ApiReader<'_>,
    (doing, path): (&str, &str),
    user: &Value,
    asked: Vec<(&'r Right, Option<String>, bool)>,
) -> Read<Vec<Reviewed<'r>>> {
    let one = async |(right, at, needed): (&'r Right, Option<String>, bool)| {
        let mut spec = user.clone();
        spec["resourceAttributes"] = right.attributes(at.as_deref());
        let kind = if user.is_null() { "SelfSubjectAccessReview" } else { "SubjectAccessReview" };
        let body = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec });
        let answer = api.ask(doing, path, &body).await.map_err(|error| unread(doing, &error))?;
        let allowed = answer.pointer("/status/allowed") == Some(&true.into());
        Ok::<_, Unread>((right, (at, allowed), needed))
    };
    let mut reviews = Vec::new();
    for asked in asked {
        reviews.push(one(asked));
    }
    api.within(stream::iter(reviews).buffered(AT_ONCE).try_collect()).await
}

/// Reviews the rights of the user: to install, or to use what is installed.
pub(super) async fn yours(api: &ApiReader<'_>, scope: &Scope, installed: Installed) -> Read<YourReviews> {
    let to_install = installed == Installed::No;
    let rights = if to_install { install_rights(&scope.system) } else { user_rights(scope) };
    let place = |right: &Right| match &right.bound {
        BoundIn::Namespace(namespace) => Some(namespace.clone()),
        BoundIn::Workspaces | BoundIn::Cluster => None,
    };
    let asked: Vec<_> = rights.iter().map(|right| (right, place(right), true)).collect();
    let reviewed = review(api, OF_SELF, &Value::Null, asked).await?;
    let missing = reviewed.into_iter().filter(|(_, (_, allowed), _)| !allowed);
    Ok(YourReviews { missing: missing.map(|(right, (at, _), _)| right.text(at.as_deref())).collect(), to_install })
}

fn install_rights(system: &str) -> Vec<Right> {
    let there = BoundIn::Namespace(system.to_owned());
    let cluster = INSTALLS.iter().map(|(group, plural)| Right::new("create", group, plural, BoundIn::Cluster));
    cluster
        .chain(INSTALLS_THERE.iter().map(|(group, plural)| Right::new("create", group, plural, there.clone())))
        .collect()
}

fn user_rights(scope: &Scope) -> Vec<Right> {
    let here = || BoundIn::Namespace(scope.namespace.clone());
    let there = || BoundIn::Namespace(scope.system.clone());
    let mut rights = Vec::new();
    for kind in KINDS {
        let verbs = ["get", "list", "watch", "create", "update", "patch", "delete"];
        rights.extend(verbs.map(|verb| Right::new(verb, GROUP, kind.plural, here())));
        if kind.role == Role::Workload {
            rights.push(Right::new("create", GROUP, &format!("{}/invoke", kind.plural), here()));
        }
    }
    // The Role recif-visitor.
    for name in ["recif-gateway", "recif-control-plane"] {
        rights.push(Right { name: name.to_owned(), ..Right::new("get", "", "services", there()) });
    }
    for (verb, resource) in
        [("get", "pods"), ("list", "pods"), ("get", "pods/portforward"), ("create", "pods/portforward")]
    {
        rights.push(Right::new(verb, "", resource, there()));
    }
    rights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_manifest_of_an_account_can_be_read() {
        for (account, files) in RULES {
            for file in *files {
                assert!(!roles(file).unwrap().is_empty(), "{account}");
            }
        }
    }

    #[test]
    fn every_account_has_its_rules() {
        let texts = |account| -> Vec<String> {
            account_rules(account, "sys")
                .iter()
                .flat_map(|right| right.places(&[]).into_iter().map(|at| right.text(at.as_deref())))
                .collect()
        };
        let operator = texts("recif-operator");
        for right in [
            "patch agents.agents.recif.dev/status in all namespaces",
            "get secrets recif-identity in sys",
            "update leases.coordination.k8s.io in sys",
            "delete deployments.apps in all namespaces",
        ] {
            assert!(operator.iter().any(|one| one == right), "{right}: {operator:?}");
        }
        let gateway = texts("recif-gateway");
        assert!(gateway.contains(&"create tokenreviews.authentication.k8s.io in all namespaces".into()), "{gateway:?}");
        assert!(!texts("recif-control-plane").is_empty());
    }

    #[test]
    fn parts_of_some_namespaces_need_their_rights_there() {
        let rules = account_rules("recif-gateway", "sys");
        let places = |resource: &str| {
            let right = rules.iter().find(|right| right.resource == resource).unwrap();
            right.places(&["a".to_owned(), "b".to_owned()])
        };
        assert_eq!(places("agents"), [Some("a".into()), Some("b".into())]);
        assert_eq!(places("tokenreviews"), [None]);
        assert_eq!(places("secrets"), [Some("sys".into())]);
    }
}
