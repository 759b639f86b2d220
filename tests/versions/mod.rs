//! Versions of Kubernetes: all that names them agrees with hack/versions, and the scripts take the one that is asked for.

use std::{fs, path::Path};

use crds::kubernetes::{MINIMUM_MINOR, NEWEST_SUPPORTED_MINOR, OLDEST_SUPPORTED_MINOR};

use tokio::process::Command;

use super::stand_ins::{ROOT, StandIns, end_of, script};

/// Pins, and the variable of hack/versions with their Kubernetes.
const ALL: [(&str, &str); 3] = [
    ("default", "KUBERNETES_VERSION"),
    ("oldest", "KUBERNETES_VERSION_OLDEST"),
    ("newest", "KUBERNETES_VERSION_NEWEST"),
];

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(file)).unwrap()
}

/// Returns a variable of hack/versions.
fn version(variable: &str) -> String {
    let name = format!("{variable}=");
    read("hack/versions").lines().find_map(|line| line.strip_prefix(&name)).unwrap().to_owned()
}

fn minor(version: &str) -> u32 {
    version.strip_prefix("1.").unwrap().split('.').next().unwrap().parse().unwrap()
}

#[test]
fn documents_charts_and_doctor_name_the_versions_that_are_tested() {
    let [default, oldest, newest] = ALL.map(|(_, variable)| version(variable));
    assert_eq!((minor(&oldest), minor(&newest)), (OLDEST_SUPPORTED_MINOR, NEWEST_SUPPORTED_MINOR), "doctor's range");
    let (first, default_minor, last) = (minor(&oldest), minor(&default), minor(&newest));
    for (page, texts) in [
        (
            "README.md",
            [
                format!("1.{MINIMUM_MINOR} is needed and 1.{first} to 1.{last} are supported"),
                format!("Every change is tested on 1.{default_minor}"),
                format!("runs all end-to-end tests on 1.{first} and 1.{last}"),
            ],
        ),
        (
            "docs/install.md",
            [
                format!("Kubernetes must be 1.{MINIMUM_MINOR} or newer"),
                format!("1.{first} to 1.{last} are supported: every change is tested on 1.{default_minor}"),
                format!("tests 1.{first} and 1.{last}."),
            ],
        ),
        (
            "docs/development.md",
            [
                format!("| `oldest` | {oldest} |"),
                format!("| `default`, or unset | {default} |"),
                format!("| `newest` | {newest} |"),
            ],
        ),
    ] {
        let words = read(page).split_whitespace().collect::<Vec<_>>().join(" ");
        for text in texts {
            assert!(words.contains(&text), "{page} does not say {text:?}");
        }
    }
    for chart in ["recif", "recif-crds"] {
        let chart = format!("config/helm/{chart}/Chart.yaml");
        assert!(read(&chart).contains(&format!("\nkubeVersion: \">=1.{MINIMUM_MINOR}.0-0\"\n")), "{chart}");
    }
}

#[test]
fn the_parts_of_the_cluster_are_modules_at_the_versions_that_are_said() {
    for (pins, variable) in ALL {
        let folder = format!("hack/kubernetes/{pins}");
        let module = read(&format!("{folder}/go.mod"));
        let kubernetes = version(variable);
        let mut modules = vec![("k8s.io/kubernetes", kubernetes.clone())];
        if pins == "default" {
            modules.push(("go.etcd.io/etcd/server/v3", version("ETCD_VERSION")));
            modules.push(("github.com/coredns/coredns", version("COREDNS_VERSION")));
        }
        for (path, version) in modules {
            let line = format!("{path} v{version}");
            assert!(module.lines().any(|it| it.contains(&line)), "{folder}: {line}");
            assert!(read(&format!("{folder}/go.sum")).contains(&format!("{line} h1:")), "{folder}: {line} in go.sum");
        }
        let client = format!("k8s.io/client-go => k8s.io/client-go v0.{}", kubernetes.strip_prefix("1.").unwrap());
        assert!(module.lines().any(|it| it.trim() == client), "{folder}: {client}");
        assert!(read(&format!("{folder}/packages")).trim().parse::<u32>().unwrap() > 2000, "{folder}");
    }
}

#[tokio::test]
async fn the_version_that_is_asked_for_is_built_with_the_other_parts_of_the_default() {
    // Notes where and what would be compiled.
    let building = r#"
        go() { echo "${PWD##*/}:" "$@" >>"$RECORDS/calls"; }
        build_programs
        parts_dir
    "#;
    for (pins, variable) in ALL {
        let stand_ins = StandIns::of(&format!("built-{pins}"), &[]);
        let (status, folder, errors) = end_of(script(&stand_ins, building).env("RECIF_KUBERNETES", pins)).await;
        assert_eq!(status, 0, "{errors}");
        let kubernetes = version(variable);
        assert!(folder.contains(&format!("/cluster-{kubernetes}-")), "{folder}");
        assert!(Path::new(folder.trim()).is_dir(), "{folder}");
        assert!(errors.contains(&format!("building Kubernetes {kubernetes}, etcd ")), "{errors}");

        let builds = stand_ins.noted("calls");
        let builds: Vec<&str> = builds.lines().collect();
        let first = builds.first().unwrap();
        assert!(first.starts_with(&format!("{pins}: build ")), "{builds:?}");
        assert!(first.contains(" k8s.io/kubernetes/cmd/kubelet "), "{builds:?}");
        assert!(first.contains(&format!("client-go/pkg/version.gitVersion=v{kubernetes} ")), "{builds:?}");
        let last = builds.last().unwrap();
        assert!(last.starts_with("default: build ") && last.ends_with(" ./etcd ./coredns"), "{builds:?}");
        assert_eq!(builds.len(), if pins == "default" { 1 } else { 2 }, "{builds:?}");
    }
}

#[tokio::test]
async fn an_unknown_version_is_refused() {
    let stand_ins = StandIns::of("unknown-version", &[]);
    let (status, _, errors) = end_of(stand_ins.command("hack/cluster").env("RECIF_KUBERNETES", "1.34")).await;
    assert_eq!((status, errors.as_str()), (1, UNKNOWN));
}
const UNKNOWN: &str = "hack/cluster: RECIF_KUBERNETES is '1.34': it can be default, oldest or newest\n";

#[tokio::test]
async fn a_cluster_with_a_kubernetes_of_its_own_has_no_other() {
    let stand_ins = StandIns::of("version-of-existing", &[]);
    let mut up = stand_ins.command("hack/up");
    up.env("RECIF_CLUSTER", "kind").env("RECIF_KUBERNETES", "oldest");
    let (status, _, errors) = end_of(&mut up).await;
    let text =
        "RECIF_KUBERNETES=oldest is for clusters of hack/cluster, and RECIF_CLUSTER=kind has its own Kubernetes\n";
    assert_eq!((status, errors.as_str()), (1, text));
}

#[tokio::test]
async fn a_cluster_stays_with_the_version_it_was_created_with() {
    for (noted, has, other) in [(Some("oldest"), "oldest", "default"), (None, "default", "newest")] {
        let stand_ins = StandIns::of(&format!("stays-{has}"), &["id"]);
        let state = stand_ins.dir.join("state/recif/dev");
        fs::create_dir_all(state.join("etcd")).unwrap();
        if let Some(noted) = noted {
            fs::write(state.join("kubernetes"), noted).unwrap();
        }
        let mut start = stand_ins.command("hack/cluster");
        let (status, _, errors) = end_of(start.arg("start").env("RECIF_KUBERNETES", other)).await;
        let text = format!("hack/cluster: cluster 'dev' was created with RECIF_KUBERNETES={has}: set that, ");
        assert!(status == 1 && errors.starts_with(&text), "{errors}");

        let (status, lines, errors) = end_of(stand_ins.command("hack/cluster").arg("env")).await;
        assert_eq!(status, 0, "{errors}");
        assert_eq!(lines.contains("export RECIF_KUBERNETES=oldest\n"), has == "oldest", "{lines}");
    }
}

/// Pins the modules of MODULES, with a `go` that knows PUBLISHED versions alone, says ERROR of others, and compiles packages of
/// k8s.io/api and of COMPILED.
const PINNING: &str = r#"
    PINS=$RECORDS/pins
    mkdir -p "$PINS"
    go() {
        local module
        case "$1 $2 $3" in
        "list -deps "*) printf 'k8s.io/api\n%s\n' "${COMPILED:-}" ;;
        "mod download -json")
            for module in "${@:4}"; do
                jq -n --arg path "${module%@*}" '{Path: $path}' | if [[ " $PUBLISHED " == *" $module "* ]]; then cat; else jq --arg error "$ERROR" '.Error = $error'; fi
            done
            return 1 ;;
        *) return 2 ;;
        esac
    }
    { echo "replace ("; replacements v0.33.3 $MODULES | sed 's/^/\t/'; echo ")"; } >"$PINS/go.mod"
    cat "$PINS/go.mod"
    need_none_compiled v0.33.3
"#;
const PUBLISHED: &str =
    "k8s.io/api@v0.33.2 k8s.io/api@v0.33.3 k8s.io/sample-apiserver@v0.33.0 k8s.io/sample-apiserver@v0.33.1";

fn pinning(stand_ins: &StandIns, modules: &str, error: &str, compiled: &str) -> Command {
    let mut pinning = script(stand_ins, PINNING);
    pinning.env("MODULES", modules).env("PUBLISHED", PUBLISHED).env("ERROR", error).env("COMPILED", compiled);
    pinning
}

#[tokio::test]
async fn a_staging_module_that_was_not_published_is_replaced_only_if_nothing_of_it_is_compiled() {
    let stand_ins = StandIns::of("pins", &[]);
    let modules = "k8s.io/api k8s.io/sample-apiserver";
    for missing in [
        "reading https://proxy/x.zip: 404 Not Found\n\tserver response: none",
        "invalid version: unknown revision v0.33.3",
    ] {
        let (status, module, errors) = end_of(&mut pinning(&stand_ins, modules, missing, "")).await;
        assert_eq!(status, 0, "{errors}");
        let pins = "\tk8s.io/api => k8s.io/api v0.33.3\n\tk8s.io/sample-apiserver => k8s.io/sample-apiserver v0.33.1\n";
        assert_eq!(module, format!("replace (\n{pins})\n"));
        let text = "  k8s.io/sample-apiserver was not published as v0.33.3: taking v0.33.1\n";
        assert!(errors.ends_with(text), "{errors}");
    }
    for (modules, error, compiled, text) in [
        (
            modules,
            ": 404 Not Found",
            "k8s.io/sample-apiserver",
            "k8s.io/sample-apiserver of v0.33.3 were not published, \
            and packages of them are compiled: choose another version of Kubernetes\n",
        ),
        (
            "k8s.io/never",
            ": 410 Gone",
            "",
            "k8s.io/never was never published as v0.33: choose another version of Kubernetes\n",
        ),
        (
            modules,
            "net/http: TLS handshake timeout",
            "",
            "the Go proxy does not answer: net/http: TLS handshake timeout\n",
        ),
    ] {
        let (status, _, errors) = end_of(&mut pinning(&stand_ins, modules, error, compiled)).await;
        assert!(status == 1 && errors.ends_with(text), "{errors}");
    }
}
