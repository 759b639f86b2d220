//! Runs the scripts of `make up` with stand-ins of the programs that they call: clusters of kind, k3d and minikube, refusals,
//! versions of Kubernetes, and jobs that run side by side.
#![allow(clippy::unwrap_used, clippy::panic)]

mod stand_ins;
mod versions;

use std::{fs, os::unix::fs::symlink, path::Path};

use stand_ins::{ROOT, SOON, StandIns, end_of, script, wait_for};
use tokio::{process::Command, time::timeout};

const TOOLS: [&str; 5] = ["kind", "k3d", "minikube", "docker", "kubectl"];

/// Returns the calls of a tool that list clusters, create one, get its kubeconfig, load images by name, and delete it.
fn calls_expected(tool: &str, name: &str, images: &[String; 3]) -> [Vec<String>; 5] {
    let all = images.join(" ");
    let one = |line: String| vec![line];
    match tool {
        "kind" => [
            one("kind get clusters".into()),
            one(format!("kind create cluster --name {name} --wait 120s")),
            one(format!("kind get kubeconfig --name {name}")),
            one(format!("kind load docker-image {all} --name {name}")),
            one(format!("kind delete cluster --name {name}")),
        ],
        "k3d" => [
            one("k3d cluster list --no-headers".into()),
            one(format!("k3d cluster create {name} --kubeconfig-update-default=false --wait")),
            vec![format!("k3d cluster start {name}"), format!("k3d kubeconfig get {name}")],
            one(format!("k3d image import {all} --cluster {name}")),
            one(format!("k3d cluster delete {name}")),
        ],
        _ => [
            one("minikube profile list --light --output json".into()),
            one(format!("minikube start --profile {name}")),
            one(format!("minikube start --profile {name}")),
            images.iter().map(|image| format!("minikube image load {image} --profile {name}")).collect(),
            one(format!("minikube delete --profile {name}")),
        ],
    }
}

#[tokio::test]
async fn a_cluster_of_a_tool_is_created_filled_and_deleted() {
    for (tool, name, cluster) in
        [("kind", "recif", "kind"), ("k3d", "mine", "k3d:mine"), ("minikube", "recif", "minikube")]
    {
        let stand_ins = StandIns::of(&format!("created-{tool}"), &[&TOOLS[..], &["curl"]].concat());
        let (status, said, errors) = end_of(stand_ins.command("hack/up").env("RECIF_CLUSTER", cluster)).await;
        assert_eq!(status, 0, "{errors}");
        assert!(
            said.contains("echo: I am a stand-in") && said.contains(&format!("RECIF_CLUSTER={cluster} ")),
            "{said}"
        );

        let docker: Vec<String> =
            stand_ins.noted("calls").lines().filter(|it| it.starts_with("docker ")).map(str::to_owned).collect();
        let version = docker.last().unwrap().rsplit(':').next().unwrap();
        let images = ["operator", "runner", "proxy"].map(|image| format!("recif.local/{image}:{version}"));
        for image in ["operator", "runner", "proxy"] {
            let build = format!(
                "docker build --build-arg PROFILE=release --target {image} --tag recif.local/{image}:dev {ROOT}"
            );
            assert!(docker.contains(&build), "{docker:?}");
            assert!(
                docker.contains(&format!("docker tag recif.local/{image}:dev recif.local/{image}:{version}")),
                "{docker:?}"
            );
        }
        let opened = docker.iter().position(|call| call == "docker create recif.local/operator:dev").unwrap();
        assert_eq!(docker[opened + 2], "docker rm a-container", "{docker:?}");
        let [list, create, connect, load, delete] = calls_expected(tool, name, &images);
        assert_eq!(stand_ins.calls_of(&[tool]), [list, create, connect, load].concat());
        let kubeconfig = stand_ins.noted(&format!("state/recif/{tool}-{name}/kubeconfig"));
        assert_eq!(kubeconfig, format!("the kubeconfig of {tool}\n"));
        let applied = stand_ins.noted("applied");
        assert!(images.iter().all(|image| applied.contains(image)) && !applied.contains(":dev"), "{applied}");

        let lines = r#"eval "$("$HACK/cluster" env)"; command -v recif; recif"#;
        let (status, found, errors) = end_of(script(&stand_ins, lines).env("RECIF_CLUSTER", cluster)).await;
        let program = stand_ins.dir.join(format!("state/recif/{tool}-{name}/bin/recif"));
        assert_eq!((status, found), (0, format!("{}\nrecif of the image\n", program.display())), "{errors}");

        let mut down = stand_ins.command("hack/cluster");
        let (status, _, errors) = end_of(down.arg("stop").env("RECIF_CLUSTER", cluster)).await;
        assert_eq!((status, stand_ins.calls_of(&[tool])), (0, delete), "{errors}");
        assert!(!program.exists());
    }
}

#[tokio::test]
async fn a_cluster_of_a_tool_that_was_there_before_is_not_deleted() {
    for tool in ["kind", "k3d", "minikube"] {
        let stand_ins = StandIns::of(&format!("found-{tool}"), &[&TOOLS[..], &["curl"]].concat());
        fs::write(stand_ins.dir.join("clusters"), "another\nmine\n").unwrap();
        let cluster = format!("{tool}:mine");
        let (status, _, errors) = end_of(stand_ins.command("hack/up").env("RECIF_CLUSTER", &cluster)).await;
        assert_eq!(status, 0, "{errors}");
        let calls = stand_ins.calls_of(&[tool]);
        assert!(!calls.iter().any(|call| call.contains("create")), "{calls:?}");

        let mut down = stand_ins.command("hack/cluster");
        let (status, _, errors) = end_of(down.arg("stop").env("RECIF_CLUSTER", &cluster)).await;
        assert_eq!((status, stand_ins.calls_of(&[tool])), (1, vec![]), "{errors}");
        assert!(errors.contains(&format!("make up did not create cluster mine: delete it with {tool}")), "{errors}");
    }
}

#[tokio::test]
async fn an_existing_cluster_gets_all_images_from_one_registry() {
    let stand_ins = StandIns::of("existing", &["kubectl", "curl"]);
    let mut up = stand_ins.command("hack/up");
    up.env("RECIF_CLUSTER", "existing")
        .env("KUBECONFIG", "/any")
        .env("RECIF_IMAGES", "registry.example/us")
        .env("RECIF_VERSION", "1.2");
    let target = stand_ins.dir.join("target");
    up.env("CARGO_TARGET_DIR", &target).env_remove("RECIF_PROFILE");
    let (status, said, errors) = end_of(&mut up).await;
    assert_eq!(status, 0, "{errors}");
    let hint = "# recif, if it is not on your PATH yet: docs/install.md";
    assert!(said.contains(hint), "{said}");
    let applied = stand_ins.noted("applied");
    assert!(!applied.contains("recif.local/"), "{applied}");
    let documents = applied.split("\n---\n").next().unwrap();
    let deployment: serde_yaml::Value = serde_yaml::from_str(documents).unwrap();
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "registry.example/us/operator:1.2");
    let value = |name: &str| {
        let variable = container["env"].as_sequence().unwrap().iter().find(|it| it["name"] == name).unwrap();
        variable["value"].as_str().unwrap().to_owned()
    };
    assert_eq!(value("RECIF_RUNNER_IMAGE"), "registry.example/us/runner:1.2");
    assert_eq!(value("RECIF_AGENT_IMAGE"), "registry.example/us/runner:1.2");
    assert_eq!(value("RECIF_PROXY_IMAGE"), "registry.example/us/proxy:1.2");

    fs::create_dir_all(target.join("release")).unwrap();
    symlink("/bin/true", target.join("release/recif")).unwrap();
    let (status, said, errors) = end_of(&mut up).await;
    assert!(status == 0 && !said.contains(hint), "{said}{errors}");
}

#[tokio::test]
async fn what_is_missing_is_said_before_anything_is_done() {
    let stand_ins = StandIns::of("refused", &["df", "id", "apt-get"]);
    let cache = stand_ins.dir.join("cache/recif");
    let no_root = "make up: a cluster of its own needs Debian and root. With kind: RECIF_CLUSTER=kind make up. Into a \
                   cluster you have: helm install, see README\n";
    let no_disk = format!("make up: the build needs 8 GB below {}, and 3 GB are free\n", cache.display());
    let no_images = "RECIF_CLUSTER=existing needs images that its nodes can pull: RECIF_IMAGES=<registry>/<owner> \
                     RECIF_VERSION=<tag>\n";
    for (variables, text) in [
        (&[("USER_ID", "1000")][..], no_root),
        (&[], &no_disk),
        (&[("RECIF_CLUSTER", "existing"), ("RECIF_IMAGES", "a/b")], no_images),
        (&[("RECIF_CLUSTER", "existing"), ("RECIF_VERSION", "1.2")], no_images),
    ] {
        let (status, _, errors) = end_of(stand_ins.command("hack/up").envs(variables.iter().copied())).await;
        assert_eq!((status, errors.as_str()), (1, text));
    }
    assert!(!cache.exists());
}

#[tokio::test]
async fn a_machine_without_apt_get_is_told_what_works_there() {
    let mut stand_ins = StandIns::of("no-apt-get", &["id"]);
    for program in ["bash", "basename", "dirname", "getent", "cut", "sed", "awk", "sha256sum", "cat", "rm"] {
        let found = std::env::split_paths(&stand_ins.path).map(|dir| dir.join(program)).find(|it| it.exists()).unwrap();
        symlink(found, stand_ins.dir.join("bin").join(program)).unwrap();
    }
    symlink("/usr/bin/env", stand_ins.dir.join("bin/env")).unwrap();
    stand_ins.path = stand_ins.dir.join("bin").display().to_string();
    let (status, _, errors) = end_of(&mut stand_ins.command("hack/up")).await;
    assert_eq!(status, 1, "{errors}");
    assert!(errors.starts_with("make up: a cluster of its own needs Debian and root."), "{errors}");
}

#[tokio::test]
async fn the_cluster_starts_while_the_programs_are_compiled() {
    let stand_ins = StandIns::of("own", &["id", "df", "apt-get", "curl"]);
    let hack = stand_ins.dir.join("checkout/hack");
    fs::create_dir_all(&hack).unwrap();
    for file in ["up", "versions", "path", "cluster.d", "kubernetes"] {
        symlink(Path::new(ROOT).join("hack").join(file), hack.join(file)).unwrap();
    }
    for program in ["cluster", "images", "kubectl"] {
        symlink(Path::new(ROOT).join("tests/stand_ins/program"), hack.join(program)).unwrap();
    }
    symlink(Path::new(ROOT).join("Cargo.toml"), hack.join("../Cargo.toml")).unwrap();
    let mut up = stand_ins.command(hack.join("up"));
    up.env("FREE_KILOBYTES", "9000000").env_remove("CARGO_TARGET_DIR");
    let (status, said, errors) = end_of(&mut up).await;
    assert_eq!(status, 0, "{errors}");
    assert!(said.contains("echo: I am a stand-in"), "{said}");
    let versions = fs::read_to_string(hack.join("versions")).unwrap();
    let kubernetes = versions.lines().find_map(|line| line.strip_prefix("KUBERNETES_VERSION=")).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let first = format!("make up: cluster 'dev' (Kubernetes {kubernetes}), Récif {version}. First time here: about ");
    assert!(errors.starts_with(&first), "{errors}");
    assert!(errors.contains("   3s  cluster works\n") && errors.contains("   3s  images works\n"), "{errors}");
    let ready = errors.lines().last().unwrap();
    assert!(
        ready.contains("s  ready: packages ")
            && ready.contains("; cluster parts ")
            && ready.contains(" s beside recif "),
        "{ready}"
    );

    let calls = stand_ins.calls_of(&["cluster", "images"]);
    assert_eq!(calls[0], "cluster packages");
    let mut jobs = calls[1..4].to_vec();
    jobs.sort();
    assert_eq!(jobs, ["cluster start", "images --only base", "images --only compile"]);
    assert_eq!(calls[4], "images --only pack");
    assert!(stand_ins.noted("applied").contains("recif.local/operator:1\n"));
}

/// Two jobs of which each ends only after the other has begun.
const MEET: &str = r#"
    trap end_jobs EXIT
    meet() { say "$1 began"; touch "$RECORDS/$1"; wait_for 5 "" test -e "$RECORDS/$2"; [ ! -e /proc/self/fd/9 ]; }
    exec 9>"$RECORDS/lock"
    job one one meet one two
    job two two meet two one
    await_jobs
    cat "$CACHE/times"
"#;

#[tokio::test]
async fn jobs_run_side_by_side_and_without_the_lock() {
    let stand_ins = StandIns::of("side-by-side", &[]);
    let (status, times, errors) =
        end_of(&mut script(&stand_ins, &format!("memory_bytes() {{ echo 8000000000; }}\n{MEET}"))).await;
    assert_eq!(status, 0, "{errors}");
    assert!(errors.contains("  one began\n") && errors.contains("  two began\n"), "{errors}");
    assert!(times.contains("one ") && times.contains("two "), "{times}");
}

#[tokio::test]
async fn with_little_memory_one_job_waits_for_the_other() {
    let stand_ins = StandIns::of("one-by-one", &[]);
    let (status, _, errors) =
        end_of(&mut script(&stand_ins, &format!("memory_bytes() {{ echo 7999999999; }}\n{MEET}"))).await;
    assert_eq!(status, 1, "{errors}");
    assert!(errors.contains("less than 8 GB of memory: one job after the other"), "{errors}");
    assert!(errors.contains("one began") && !errors.contains("two began"), "{errors}");
}

/// A job with a child of its own that would run for minutes, and notes its process id.
const ENDLESS: &str = r#"
    trap end_jobs EXIT
    memory_bytes() { echo 8000000000; }
    endless() { sleep 600 & echo $! >"$RECORDS/child.new"; mv "$RECORDS/child.new" "$RECORDS/child"; wait; }
    job endless endless endless
"#;

/// Waits until the child of the endless job is gone; a zombie that its new parent has not read is gone too.
async fn wait_until_child_is_gone(stand_ins: &StandIns) {
    let stat = format!("/proc/{}/stat", stand_ins.noted("child").trim());
    wait_for("the child runs on", || !fs::read_to_string(&stat).is_ok_and(|text| !text.contains(") Z "))).await;
}

#[tokio::test]
async fn a_job_that_fails_ends_the_others_and_shows_its_log() {
    let stand_ins = StandIns::of("failed", &[]);
    let failing = r#"
        failing() { wait_for 5 "" test -e "$RECORDS/child"; echo "no such thing"; exit 7; }
        job failing failing failing
        await_jobs
    "#;
    let (status, _, errors) = end_of(&mut script(&stand_ins, &format!("{ENDLESS}{failing}"))).await;
    assert_eq!(status, 1, "{errors}");
    let log = stand_ins.dir.join("cache/recif/failed.log");
    let text =
        format!("no such thing\nhack/script: failing failed: its log is above, and as a whole in {}\n", log.display());
    assert!(errors.ends_with(&text), "{errors}");
    wait_until_child_is_gone(&stand_ins).await;
}

#[tokio::test]
async fn a_signal_ends_all_jobs() {
    for signal in ["-INT", "-TERM", "-HUP"] {
        let stand_ins = StandIns::of(&format!("signal{signal}"), &[]);
        let mut running = script(&stand_ins, &format!("{ENDLESS}await_jobs")).spawn().unwrap();
        wait_for("the job does not start", || stand_ins.dir.join("child").exists()).await;
        let pid = running.id().unwrap().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().await.unwrap().success());
        let status = timeout(SOON, running.wait()).await.unwrap().unwrap();
        assert!(!status.success(), "{signal}");
        wait_until_child_is_gone(&stand_ins).await;
    }
}

#[tokio::test]
async fn a_signal_ends_what_a_job_runs_with_the_cpu_time_that_others_leave() {
    let stand_ins = StandIns::of("idle", &[]);
    let idle = format!(
        r#"
        trap end_jobs EXIT
        memory_bytes() {{ echo 8000000000; }}
        job idle idle {ROOT}/hack/idle bash -c 'sleep 600 & nice >"$RECORDS/nice"; echo $! >"$RECORDS/child.new"; mv "$RECORDS/child.new" "$RECORDS/child"; wait'
        await_jobs
    "#
    );
    let mut running = script(&stand_ins, &idle).spawn().unwrap();
    wait_for("the job does not start", || stand_ins.dir.join("child").exists()).await;
    assert_eq!(stand_ins.noted("nice"), "19\n");
    let pid = running.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
    assert!(!timeout(SOON, running.wait()).await.unwrap().unwrap().success());
    wait_until_child_is_gone(&stand_ins).await;
}

#[tokio::test]
async fn progress_tells_what_is_compiled_of_how_much_and_what_is_left() {
    let stand_ins = StandIns::of("progress", &[]);
    let lines = r#"
        JOBS_DIR=$RECORDS/jobs
        mkdir -p "$JOBS_DIR" "$CACHE"
        JOBS=("cluster parts" recif)
        JOB_PID=(["cluster parts"]=$$) JOB_KEY=(["cluster parts"]=parts) JOB_BEGAN=(["cluster parts"]=$((SECONDS - 100)))
        { echo "go: downloading k8s.io/api v0"; echo k8s.io/api/core/v1; echo k8s.io/klog/v2; } >"$(parts_dir).log"
        echo "parts 400" >"$CACHE/times"
        progress_text
        echo "parts 50" >"$CACHE/times"
        progress_text
        JOB_PID=([recif]=$$) JOB_KEY=([recif]=recif) JOB_BEGAN=([recif]=$SECONDS)
        printf 'crates: 347\n   Compiling serde v1.0.0\n   Compiling bytes v1.0.0\n' >"$JOBS_DIR/recif.log"
        nproc() { echo 2; }
        progress_text
    "#;
    let (status, said, errors) = end_of(&mut script(&stand_ins, lines)).await;
    assert_eq!(status, 0, "{errors}");
    let packages = fs::read_to_string(Path::new(ROOT).join("hack/kubernetes/default/packages")).unwrap();
    let packages = packages.trim();
    let [before, late, first] = said.lines().collect::<Vec<_>>()[..] else { panic!("{said}") };
    assert_eq!(before, format!("cluster parts 2/{packages} | about 5 min left"));
    assert_eq!(late, format!("cluster parts 2/{packages}"));
    assert_eq!(first, "recif 2/347 | about 8 min left");
}
