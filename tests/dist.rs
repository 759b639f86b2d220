//! Checks what a release is made by: the manifest for krew, the Dockerfile, and the workflows; and which one an upgrade is tested from.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_yaml::Value;

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Returns a new folder of a test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("dist-{name}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Writes a program that runs this line of shell.
fn program(path: &Path, line: &str) {
    fs::write(path, format!("#!/bin/sh\n{line}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn successful(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success(), "{command:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

fn dist() -> Command {
    Command::new(root().join("hack/dist"))
}

/// Packs a program and those that `recif dev` starts for these architectures, and returns the manifest for krew.
fn krew(folder: &Path, architectures: &[&str]) -> Value {
    for architecture in architectures {
        let recif = folder.join("program");
        program(&recif, &format!("echo of {architecture}"));
        for beside in ["recif-proxy", "recif-runner"] {
            program(&folder.join(beside), "true");
        }
        successful(dist().arg("archive").arg(recif).arg(architecture).arg(folder));
    }
    serde_yaml::from_str(&successful(dist().arg("krew").arg(folder))).unwrap()
}

#[test]
fn krew_finds_each_archive_by_its_digest_and_the_command_line_in_it() {
    let folder = folder("krew");
    let manifest = krew(&folder, &["amd64", "arm64"]);
    assert_eq!(manifest["apiVersion"], "krew.googlecontainertools.github.com/v1alpha2");
    assert_eq!((&manifest["kind"], &manifest["metadata"]["name"]), (&"Plugin".into(), &"recif".into()));
    let spec = &manifest["spec"];
    assert_eq!(spec["version"], format!("v{VERSION}").as_str());
    assert!(spec["homepage"].as_str().unwrap().starts_with("https://"));
    let short = spec["shortDescription"].as_str().unwrap();
    assert!(short.len() <= 50 && !short.ends_with('.'), "krew's index refuses: {short}");
    assert!(spec["description"].as_str().unwrap().contains("kubectl recif why"));
    let platforms = spec["platforms"].as_sequence().unwrap();
    assert_eq!(platforms.len(), 2);
    for (platform, architecture) in platforms.iter().zip(["amd64", "arm64"]) {
        let labels = &platform["selector"]["matchLabels"];
        assert_eq!((&labels["os"], &labels["arch"]), (&"linux".into(), &architecture.into()));
        let file = format!("recif-{VERSION}-linux-{architecture}.tar.gz");
        let uri = format!("https://github.com/recif-dev/recif/releases/download/v{VERSION}/{file}");
        assert_eq!(platform["uri"], uri.as_str());
        let digest = successful(Command::new("sha256sum").arg(folder.join(&file)));
        assert_eq!(platform["sha256"], digest.split(' ').next().unwrap());
        let unpacked = folder.join(architecture);
        fs::create_dir(&unpacked).unwrap();
        successful(Command::new("tar").arg("-xzf").arg(folder.join(&file)).arg("-C").arg(&unpacked));
        let files: Vec<_> = platform["files"].as_sequence().unwrap().iter().map(|file| &file["from"]).collect();
        assert!(files.contains(&&platform["bin"]), "the program is not among what is installed");
        for started in ["recif-proxy", "recif-runner"] {
            assert!(files.iter().any(|file| file.as_str() == Some(started)), "recif dev starts {started}: {files:?}");
        }
        assert!(files.iter().all(|file| unpacked.join(file.as_str().unwrap()).exists()), "{files:?}");
        let said = successful(&mut Command::new(unpacked.join(platform["bin"].as_str().unwrap())));
        assert_eq!(said, format!("of {architecture}\n"));
    }
}

#[test]
fn krew_gets_no_platform_that_was_left_out() {
    let manifest = krew(&folder("krew-one"), &["amd64"]);
    assert_eq!(manifest["spec"]["platforms"].as_sequence().unwrap().len(), 1);
}

#[test]
fn the_same_program_makes_the_same_archive() {
    let digests = ["same-1", "same-2"].map(|name| {
        let manifest = krew(&folder(name), &["amd64"]);
        manifest["spec"]["platforms"][0]["sha256"].clone()
    });
    assert_eq!(digests[0], digests[1]);
}

#[test]
fn what_an_architecture_needs_is_said_before_anything_is_built() {
    let folder = folder("arm64");
    program(&folder.join("rustc"), &format!("echo {}", folder.display()));
    program(&folder.join("uname"), "echo x86_64");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let output = dist().env("PATH", path).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let line = "make dist: arm64 needs 'rustup target add aarch64-unknown-linux-gnu'; --arch amd64 leaves it out\n";
    assert_eq!((output.status.code(), said.as_str()), (Some(1), line));
}

#[test]
fn programs_that_aslr_cannot_move_are_packed_nowhere() {
    let judge = |program: &Path| {
        let lines = "set -euo pipefail; HACK=$1; for file in \"$HACK\"/cluster.d/*.sh; do . \"$file\"; done; need_movable \"$2\"";
        let mut bash = Command::new("bash");
        bash.args(["-c", lines, "dist"]).arg(root().join("hack")).arg(program).output().unwrap()
    };
    for program in [env!("CARGO_BIN_EXE_recif"), env!("CARGO_BIN_EXE_recif-proxy"), env!("CARGO_BIN_EXE_recif-runner")]
    {
        let Output { status, stderr, .. } = judge(Path::new(program));
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    }
    // The header of an executable with fixed addresses.
    let mut header = [0_u8; 64];
    header[..4].copy_from_slice(b"\x7fELF");
    header[16] = 2;
    let fixed = folder("movable").join("fixed");
    fs::write(&fixed, header).unwrap();
    let Output { status, stderr, .. } = judge(&fixed);
    let said = String::from_utf8(stderr).unwrap();
    assert!(!status.success() && said.contains("fixed is not position-independent: "), "{said}");
    for script in ["hack/images", "hack/dist"] {
        assert!(read(script).contains("    need_movable "), "{script} does not judge what it packs");
    }
}

#[test]
fn images_are_of_the_version_and_no_stage_of_theirs_runs_anything() {
    let text = read("Dockerfile").replace("\\\n", "");
    assert!(text.contains(&format!("\nARG VERSION={VERSION}\n")), "ARG VERSION is not {VERSION}");
    let stages: Vec<&str> = text.split("\nFROM ").skip(1).collect();
    let mut products = 0;
    for stage in stages {
        let (from, steps) = stage.split_once('\n').unwrap();
        if from.ends_with(" AS ui") || from.ends_with(" AS compile") {
            assert!(from.starts_with("--platform=$BUILDPLATFORM "), "{from} would be emulated");
        } else if !from.ends_with(" AS binaries") {
            products += 1;
            assert!(!steps.lines().any(|line| line.starts_with("RUN")), "{from} runs a program of its platform");
            for label in
                ["title", "description", "source", "licenses", "version=\"$VERSION\"", "revision=\"$REVISION\""]
            {
                assert!(steps.contains(&format!("org.opencontainers.image.{label}")), "{from} has no label {label}");
            }
        }
    }
    assert_eq!(products, 3);
}

#[test]
fn images_have_no_api_server_of_their_own() {
    // `hack/programs --local` is for the archive of the command line.
    for (script, with_local) in [("hack/images", 0), ("hack/programs", 1), ("hack/build-proxy", 0)] {
        let text = read(script);
        let builds: Vec<_> = text.lines().filter(|line| line.contains(" --profile ")).collect();
        let others = builds.iter().filter(|line| !line.contains(" --no-default-features ")).count();
        assert!(builds.len() > with_local && others == with_local, "{script}: {builds:?}");
    }
}

#[test]
fn an_upgrade_is_tested_from_the_last_release_or_from_the_commit_that_is_named() {
    let named = read("hack/versions").lines().find_map(|line| line.strip_prefix("UPGRADE_FROM=").map(str::to_owned));
    assert!(named.is_some_and(|commit| commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit())));

    let folder = folder("upgrade");
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.current_dir(&folder).env("GIT_CONFIG_GLOBAL", "/dev/null");
        git.args(["-c", "user.name=a", "-c", "user.email=a@example.com"]).args(arguments);
        successful(&mut git).trim().to_owned()
    };
    git(&["init", "-q"]);
    let [first, second, third] = ["first", "second", "third"].map(|message| {
        git(&["commit", "-q", "--allow-empty", "-m", message]);
        git(&["rev-parse", "HEAD"])
    });
    fs::create_dir(folder.join("hack")).unwrap();
    for file in ["upgrade", "path"] {
        symlink(root().join("hack").join(file), folder.join("hack").join(file)).unwrap();
    }
    let versions = folder.join("hack/versions");
    fs::write(&versions, format!("UPGRADE_FROM={first}\n")).unwrap();
    let print =
        |arguments: &[&str]| Command::new(folder.join("hack/upgrade")).arg("--print").args(arguments).output().unwrap();
    let from = |arguments: &[&str]| String::from_utf8(print(arguments).stdout).unwrap().trim().to_owned();
    assert_eq!(from(&[]), first, "there is no release");
    git(&["tag", "v0.1.0", second.as_str()]);
    assert_eq!(from(&[]), second);
    git(&["tag", "v0.2.0"]);
    assert_eq!(from(&[]), second, "v0.2.0 is this commit");
    assert_eq!((from(&["v0.2.0"]), from(&[first.as_str()])), (third, first));

    git(&["tag", "-d", "v0.1.0"]);
    fs::write(&versions, format!("UPGRADE_FROM={}\n", "0".repeat(40))).unwrap();
    let Output { status, stderr, .. } = print(&[]);
    let said = String::from_utf8(stderr).unwrap();
    assert!(status.code() == Some(1) && said.contains("git fetch --unshallow --tags"), "{said}");
}

/// Returns the name and the text of each workflow.
fn workflows() -> Vec<(String, String)> {
    let folder = root().join(".github/workflows");
    let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let workflows: Vec<_> = names.map(|name| (name.clone(), read(folder.join(name)))).collect();
    assert_eq!(workflows.len(), 2);
    workflows
}

#[test]
fn workflows_use_actions_by_commit() {
    let mut used = 0;
    for (name, text) in workflows() {
        for line in text.lines().filter(|line| line.contains("uses:")) {
            let (_, reference) = line.split_once('@').unwrap();
            let (commit, version) = reference.split_once(" # v").unwrap_or((reference, ""));
            let is_commit = commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
            assert!(is_commit && version.split('.').count() == 3, "{name}: {line}");
            used += 1;
        }
    }
    assert!(used > 5, "{used}");
}

#[test]
fn only_jobs_that_publish_may_write() {
    for (name, text) in workflows() {
        let workflow: Value = serde_yaml::from_str(&text).unwrap();
        let default = workflow["permissions"].as_mapping().unwrap();
        assert!(default.values().all(|right| right == "read"), "{name}: {default:?}");
        for (job, is) in workflow["jobs"].as_mapping().unwrap() {
            let job = job.as_str().unwrap();
            let rights = is["permissions"].as_mapping().cloned().unwrap_or_default();
            let may_write = rights.values().any(|right| right == "write");
            let publishes = name == "release.yaml" && ["images", "publish"].contains(&job);
            assert_eq!(may_write, publishes, "{name}: {job}");
            assert!(is["timeout-minutes"].is_u64(), "{name}: {job} may run for ever");
        }
    }
}

#[test]
fn everything_that_is_published_is_signed_by_the_workflow_that_the_documents_name() {
    let release = read(".github/workflows/release.yaml");
    let pushes =
        ["buildx build", "helm push", "gh release create"].iter().filter(|push| release.contains(**push)).count();
    assert_eq!((pushes, release.matches("cosign sign").count()), (3, 3));
    let page = read("docs/install.md");
    assert!(page.contains("https://github.com/recif-dev/recif/.github/workflows/release.yaml@refs/tags/v$VERSION"));
}
