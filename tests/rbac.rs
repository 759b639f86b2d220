//! Checks that the shipped permissions are exactly those of the requests in the code: a new request without a permission
//! fails here, and so does a permission that no code uses.

#![allow(clippy::unwrap_used)]

use std::{collections::BTreeSet, fs, path::Path};

use cli::roles::roles;
use crds::Role;

/// Returns `verb resource.group` for every permission of the role; the core group and ours have no suffix.
fn rights(file: &str, name: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("config").join(file)).unwrap();
    let roles = roles(&text).unwrap().into_iter().filter(|role| role.name == name);
    let suffix = |group: &str| if ["", crds::GROUP].contains(&group) { String::new() } else { format!(".{group}") };
    roles
        .flat_map(|role| role.permissions)
        .map(|one| format!("{} {}{}", one.verb, one.resource, suffix(&one.group)))
        .collect()
}

fn table(rows: &[(&str, &str)]) -> BTreeSet<String> {
    let row = |(resource, verbs): &(&str, &str)| {
        verbs.split(' ').map(|verb| format!("{verb} {resource}")).collect::<Vec<_>>()
    };
    rows.iter().flat_map(row).collect()
}

#[test]
fn the_operator_may_do_what_it_does_and_nothing_else() {
    let mut expected = table(&[
        // The watches; a get past the informer cache; applies, which create; deletes of unwanted children, and of the
        // Deployment of a workload that is being deleted.
        ("configmaps", "get list watch create patch delete"),
        ("services", "get list watch create patch"),
        ("secrets", "get list watch create patch delete"),
        ("serviceaccounts", "get list watch create patch delete"),
        ("deployments.apps", "get list watch create patch delete"),
        ("networkpolicies.networking.k8s.io", "get list watch create patch delete"),
        ("poddisruptionbudgets.policy", "get list watch create patch delete"),
        ("pods", "list watch patch"),
        // Labels of namespaces, for servers that other namespaces may use; Tools that servers publish.
        ("namespaces", "list watch"),
        ("tools", "create patch delete"),
        ("events.events.k8s.io", "create"),
    ]);
    for kind in crds::KINDS {
        // The watches and the status; for an owner also a get to check that it still exists; for a workload its finalizer,
        // and the permission that is required to set owner references that block deletion.
        let (plural, status) = (kind.plural, format!("{}/status", kind.plural));
        let finalizers = format!("{plural}/finalizers");
        expected.extend(match kind.role {
            Role::Workload => table(&[(plural, "get list watch patch"), (&status, "patch"), (&finalizers, "update")]),
            // A server owns the ConfigMap and the Tools that are created from its tool list, and loses the annotation by which
            // its tools are accepted.
            Role::Reference if kind.owns() => table(&[(plural, "get list watch patch"), (&status, "patch")]),
            Role::Reference => table(&[(plural, "list watch"), (&status, "patch")]),
        });
    }
    assert_eq!(rights("rbac/operator.yaml", "recif-operator"), expected);
    assert_eq!(
        rights("rbac/leases.yaml", "recif-operator-leases"),
        table(&[("leases.coordination.k8s.io", "get create update")])
    );
    assert_eq!(
        rights("rbac/gateways.yaml", "recif-operator-gateways"),
        table(&[("endpointslices.discovery.k8s.io", "list watch")])
    );
    assert_eq!(rights("rbac/identity.yaml", "recif-operator-identity"), table(&[("secrets", "get list watch create")]));
}

#[test]
fn the_gateway_may_do_what_it_does_and_nothing_else() {
    let mut expected = table(&[("endpointslices.discovery.k8s.io", "get list watch")]);
    for kind in crds::KINDS.iter().filter(|kind| kind.role == Role::Workload) {
        expected.extend(table(&[(kind.plural, "get list watch"), (&format!("{}/status", kind.plural), "patch")]));
    }
    assert_eq!(rights("gateway/rights.yaml", "recif-gateway"), expected);
    // The keys, and the other gateways, which are in none of the namespaces of --namespaces.
    let own_namespace = [("secrets", "get list watch"), ("endpointslices.discovery.k8s.io", "list watch")];
    assert_eq!(rights("gateway/rights.yaml", "recif-gateway-identity"), table(&own_namespace));
    let reviews =
        [("tokenreviews.authentication.k8s.io", "create"), ("subjectaccessreviews.authorization.k8s.io", "create")];
    assert_eq!(rights("gateway/rights.yaml", "recif-gateway-reviews"), table(&reviews));
}

#[test]
fn the_control_plane_may_look_and_nothing_else() {
    let mut expected = table(&[
        ("deployments.apps", "list watch"),
        ("configmaps", "list watch"),
        ("pods", "list watch"),
        ("events.events.k8s.io", "list watch"),
    ]);
    crds::KINDS.iter().for_each(|kind| expected.extend(table(&[(kind.plural, "list watch")])));
    assert_eq!(rights("control-plane/rights.yaml", "recif-control-plane"), expected);
    let reviews =
        [("tokenreviews.authentication.k8s.io", "create"), ("subjectaccessreviews.authorization.k8s.io", "create")];
    assert_eq!(rights("control-plane/rights.yaml", "recif-control-plane-reviews"), table(&reviews));
}

/// Returns the YAML of one rule on our kinds.
fn rule(why: &str, resources: &[String], verbs: &str) -> String {
    let why = if why.is_empty() { String::new() } else { format!("  # {}\n", why.replace('\n', "\n  # ")) };
    let list: String = resources.iter().map(|resource| format!("      - {resource}\n")).collect();
    format!("{why}  - apiGroups: [{}]\n    resources:\n{list}    verbs: [{verbs}]\n", crds::GROUP)
}

/// Returns the sections with the rules that list our kinds: file, section name and text.
fn sections() -> [(&'static str, &'static str, String); 6] {
    let of = |wanted: &[Role], suffixes: &[&str]| -> Vec<String> {
        let kinds = crds::KINDS.iter().filter(|kind| wanted.contains(&kind.role));
        kinds.flat_map(|kind| suffixes.iter().map(|suffix| format!("{}{suffix}", kind.plural))).collect()
    };
    let all = [Role::Workload, Role::Reference];
    let references = |owning: bool| -> Vec<String> {
        let kinds = crds::KINDS.iter().filter(|kind| kind.role == Role::Reference && kind.owns() == owning);
        kinds.map(|kind| kind.plural.to_owned()).collect()
    };
    let operator = [
        rule(
            "The spec is the user's; get asks whether an owner is still the same before a child is written, patch is for\n\
             the finalizer, and for the annotation by which tools of a server are accepted.",
            &of(&[Role::Workload], &[""]),
            "get, list, watch, patch",
        ),
        rule("", &references(true), "get, list, watch, patch"),
        rule("", &references(false), "list, watch"),
        rule("", &of(&all, &["/status"]), "patch"),
        rule(
            "An owner reference with blockOwnerDeletion is refused without it.",
            &of(&[Role::Workload], &["/finalizers"]),
            "update",
        ),
    ];
    let mut seen = of(&[Role::Workload], &["", "/status", "/scale"]);
    seen.extend(of(&[Role::Reference], &["", "/status"]));
    let edit = [
        rule("", &of(&all, &[""]), "create, update, patch, delete, deletecollection"),
        rule("", &of(&[Role::Workload], &["/scale"]), "update, patch"),
    ];
    let gateway = [
        rule("", &of(&[Role::Workload], &[""]), "get, list, watch"),
        rule("Held to its one field by own-field.yaml.", &of(&[Role::Workload], &["/status"]), "patch"),
    ];
    [
        ("control-plane/rights.yaml", "control-plane", rule("", &of(&all, &[""]), "list, watch")),
        ("gateway/rights.yaml", "gateway", gateway.concat()),
        ("rbac/users.yaml", "invoke", rule("", &of(&[Role::Workload], &["/invoke"]), "create")),
        ("rbac/operator.yaml", "kinds", operator.concat()),
        ("rbac/users.yaml", "view", rule("", &seen, "get, list, watch")),
        ("rbac/users.yaml", "edit", edit.concat()),
    ]
}

/// `make manifests` writes them; without it they must be equal to its output.
#[test]
fn the_rules_on_our_kinds_list_every_kind() {
    for (file, section, text) in sections() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config").join(file);
        let stored = fs::read_to_string(&path).unwrap();
        let (before, rest) = stored.split_once(&format!("  # generated: {section}\n")).unwrap();
        let (_, after) = rest.split_once("  # /generated\n").unwrap();
        let wanted = format!("{before}  # generated: {section}\n{text}  # /generated\n{after}");
        if std::env::var_os("RECIF_WRITE").is_some() {
            fs::write(&path, wanted).unwrap();
        } else {
            assert!(stored == wanted, "config/{file} does not fit the kinds: run `make manifests`");
        }
    }
}

#[test]
fn the_operator_may_watch_every_kind_and_write_its_status() {
    let rights = rights("rbac/operator.yaml", "recif-operator");
    for plural in crds::KINDS.iter().map(|kind| kind.plural) {
        for right in [format!("list {plural}"), format!("watch {plural}"), format!("patch {plural}/status")] {
            assert!(rights.contains(&right), "{right}");
        }
    }
}

#[test]
fn who_may_approve_may_do_nothing_else_and_others_may_not_approve() {
    assert_eq!(rights("rbac/users.yaml", "recif-approver"), table(&[("agents/approve", "create")]));
    for other in ["recif-view", "recif-edit", "recif-invoker"] {
        assert!(!rights("rbac/users.yaml", other).contains("create agents/approve"), "{other}");
    }
}

#[test]
fn users_may_view_and_edit_every_kind() {
    let (view, edit) = (rights("rbac/users.yaml", "recif-view"), rights("rbac/users.yaml", "recif-edit"));
    for kind in crds::KINDS {
        assert!(view.contains(&format!("get {}", kind.plural)), "view {}", kind.name);
        assert!(edit.contains(&format!("create {}", kind.plural)), "edit {}", kind.name);
        assert!(!edit.contains(&format!("patch {}/status", kind.plural)), "the status of {} is ours", kind.name);
        let calls = rights("rbac/users.yaml", "recif-invoker").contains(&format!("create {}/invoke", kind.plural));
        assert_eq!(calls, kind.role == Role::Workload, "call {}", kind.name);
        let scales = edit.contains(&format!("patch {}/scale", kind.plural));
        assert_eq!(scales, kind.role == Role::Workload, "scale {}", kind.name);
    }
}
