use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, symlink},
    sync::atomic::{AtomicUsize, Ordering},
};

use serde_json::{Value, json};

use super::*;

/// Folder of a project in which `recif dev` runs while the lock is kept.
struct Project {
    root: PathBuf,
    lock: Option<File>,
}

impl Project {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("recif-dev-{}-{number}", std::process::id()));
        fs::create_dir_all(root.join(FOLDER)).unwrap();
        // The folder for temporary files may be a symbolic link, as on macOS.
        let mut project = Self { root: root.canonicalize().unwrap(), lock: None };
        project.mode(0o700);
        project.hold(&kubeconfig());
        project.lock();
        project
    }

    fn folder(&self) -> PathBuf {
        self.root.join(FOLDER)
    }

    fn mode(&self, mode: u32) {
        fs::set_permissions(self.folder(), Permissions::from_mode(mode)).unwrap();
    }

    fn hold(&self, kubeconfig: &Value) {
        fs::write(self.folder().join("kubeconfig"), kubeconfig.to_string()).unwrap();
    }

    /// Takes the lock as `recif dev` does.
    fn lock(&mut self) {
        let lock = File::create(self.folder().join("lock")).unwrap();
        lock.try_lock().unwrap();
        self.lock = Some(lock);
    }

    /// Reports whether a command would use it.
    fn read(&self) -> bool {
        find(&self.root)
            .is_ok_and(|found| found.is_some_and(|(cluster, _)| cluster.folder.as_ref() == Some(&self.root)))
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn kubeconfig() -> Value {
    let addresses = json!({ "gateway": "http://127.0.0.1:8083", "controlPlane": "http://127.0.0.1:8780" });
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "recif-dev",
        "contexts": [{ "name": "recif-dev", "context": { "cluster": "recif-dev", "user": "you", "namespace": "default" } }],
        "clusters": [{ "name": "recif-dev", "cluster": {
            "server": "https://127.0.0.1:44321",
            "certificate-authority-data": "Y2E=",
            "extensions": [{ "name": "recif.dev/dev", "extension": addresses }],
        } }],
        "users": [{ "name": "you", "user": { "token": "secret" } }],
    })
}

/// Returns the kubeconfig with another value at a place.
fn changed(pointer: &str, value: Value) -> Value {
    let mut kubeconfig = kubeconfig();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    kubeconfig.pointer_mut(parent).unwrap()[field] = value;
    kubeconfig
}

#[test]
fn one_that_runs_here_or_above_is_found() {
    let project = Project::new();
    let deep = project.root.join("agents/shop");
    fs::create_dir_all(&deep).unwrap();
    for start in [&project.root, &deep, &project.folder()] {
        let (cluster, _) = find(start).unwrap().unwrap();
        assert_eq!(cluster.folder.as_ref(), Some(&project.root));
        assert_eq!(cluster.gateway.as_str(), "http://127.0.0.1:8083/");
        assert_eq!(cluster.control_plane.as_str(), "http://127.0.0.1:8780/");
    }
    // The nearest one counts, and one that does not run is passed over.
    let inner = Project { root: deep, lock: None };
    fs::create_dir(inner.folder()).unwrap();
    inner.mode(0o700);
    inner.hold(&kubeconfig());
    fs::write(inner.folder().join("lock"), "").unwrap();
    assert!(!inner.read());
    assert_eq!(find(&inner.root).unwrap().unwrap().0.folder.as_ref(), Some(&project.root));
    let lock = File::open(inner.folder().join("lock")).unwrap();
    lock.try_lock().unwrap();
    assert!(inner.read());
}

#[test]
fn one_that_starts_is_waited_for_and_no_other_cluster_is_used() {
    let mut project = Project::new();
    let deep = project.root.join("agents");
    fs::create_dir(&deep).unwrap();
    let no_extension = changed("/clusters/0/cluster/extensions", json!([]));
    for text in [None, Some(String::new()), Some(no_extension.to_string())] {
        let file = project.folder().join("kubeconfig");
        match &text {
            Some(text) => fs::write(&file, text).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
        for start in [&project.root, &deep] {
            let error = find(start).unwrap_err();
            assert!(error.is_unreachable());
            let words = format!("recif dev in {} is starting or ending: try again", project.root.display());
            assert!(error.to_string().starts_with(&words), "{error}");
        }
    }
    drop(project.lock.take());
    assert!(find(&deep).unwrap().is_none(), "it has ended");
}

#[test]
fn without_a_process_that_holds_the_lock_there_is_none() {
    let mut project = Project::new();
    assert!(project.read());
    drop(project.lock.take());
    assert!(!project.read(), "it has ended");
    // Another command that looks at the same moment is not `recif dev`.
    let looks = File::open(project.folder().join("lock")).unwrap();
    looks.try_lock_shared().unwrap();
    assert!(!project.read());
    drop(looks);
    fs::remove_file(project.folder().join("lock")).unwrap();
    assert!(!project.read());
    project.lock();
    assert!(project.read());
}

#[test]
fn a_folder_that_others_could_have_made_is_not_used() {
    let project = Project::new();
    for mode in [0o755, 0o750, 0o701, 0o777, 0o500] {
        project.mode(mode);
        assert!(!project.read(), "{mode:o}");
    }
    // Folders below one with this bit have it too.
    project.mode(0o2700);
    assert!(project.read());
    let user = geteuid().as_raw();
    assert!(runs_in(&project.folder(), user) && !runs_in(&project.folder(), user + 1), "it is another user's");
    assert!(!runs_in(&project.root.join("missing"), user));
}

#[test]
fn links_are_not_followed() {
    let project = Project::new();
    // A repository may bring a link to the folder of a process that runs elsewhere.
    let repository = Project::new();
    fs::remove_dir_all(repository.folder()).unwrap();
    symlink(project.folder(), repository.folder()).unwrap();
    assert!(!repository.read());
    assert!(find(&repository.root).unwrap().is_none());

    for file in ["lock", "kubeconfig"] {
        let repository = Project::new();
        fs::remove_file(repository.folder().join(file)).unwrap();
        symlink(project.folder().join(file), repository.folder().join(file)).unwrap();
        assert!(!repository.read(), "{file} is a symbolic link");
        fs::remove_file(repository.folder().join(file)).unwrap();
        fs::hard_link(project.folder().join(file), repository.folder().join(file)).unwrap();
        assert!(!repository.read() && !project.read(), "{file} is a hard link");
        fs::remove_file(repository.folder().join(file)).unwrap();
        fs::create_dir(repository.folder().join(file)).unwrap();
        assert!(!repository.read(), "{file} is a folder");
    }
    assert!(project.read());
}

#[test]
fn a_kubeconfig_that_could_do_harm_is_not_used() {
    let project = Project::new();
    let (cluster, user) = ("/clusters/0/cluster", "/users/0/user");
    for (pointer, value) in [
        (format!("{user}/exec"), json!({ "apiVersion": "client.authentication.k8s.io/v1", "command": "touch" })),
        (format!("{user}/auth-provider"), json!({ "name": "gcp", "config": { "cmd-path": "touch" } })),
        (format!("{user}/tokenFile"), json!("/etc/passwd")),
        (format!("{user}/client-certificate"), json!("/etc/passwd")),
        (format!("{user}/client-key"), json!("/etc/passwd")),
        (format!("{user}/as"), json!("system:admin")),
        (format!("{user}/token"), Value::Null),
        (format!("{cluster}/proxy-url"), json!("http://evil.example:3128")),
        (format!("{cluster}/insecure-skip-tls-verify"), json!(true)),
        (format!("{cluster}/certificate-authority"), json!("/etc/passwd")),
        (format!("{cluster}/certificate-authority-data"), Value::Null),
        (format!("{cluster}/tls-server-name"), json!("evil.example")),
        (format!("{cluster}/server"), json!("http://127.0.0.1:44321")),
        (format!("{cluster}/server"), json!("https://evil.example")),
        (format!("{cluster}/server"), json!("https://10.0.0.1:6443")),
        (format!("{cluster}/server"), json!("https://0.0.0.0:44321")),
        (format!("{cluster}/server"), json!("https://localhost:44321")),
        (format!("{cluster}/server"), json!("https://127.0.0.1.evil.example")),
        (format!("{cluster}/server"), json!("https://127.0.0.1:1@evil.example")),
        (format!("{cluster}/server"), Value::Null),
        ("/clusters/0/cluster".to_owned(), Value::Null),
        ("/users/0/user".to_owned(), Value::Null),
    ] {
        project.hold(&changed(&pointer, value.clone()));
        assert!(!project.read(), "{pointer}: {value}");
        // What no context uses at this moment counts as well.
        let mut second = kubeconfig();
        let list = if pointer.starts_with("/users") { "users" } else { "clusters" };
        let other = changed(&pointer, value.clone())[list][0].clone();
        second[list].as_array_mut().unwrap().push(other);
        second[list][1]["name"] = json!("second");
        project.hold(&second);
        assert!(!project.read(), "{pointer}: {value}");
    }
    for text in ["", "a: [", "- a", "\u{0}"] {
        fs::write(project.folder().join("kubeconfig"), text).unwrap();
        assert!(find(&project.root).is_err(), "{text:?}");
    }
    project.hold(&changed("/clusters/0/cluster/server", json!("https://[::1]:44321")));
    assert!(project.read());
}

#[test]
fn the_addresses_of_the_parts_are_of_this_machine() {
    let of = |kubeconfig: Value, context| {
        let kubeconfig: Kubeconfig = serde_json::from_value(kubeconfig).unwrap();
        DevCluster::of(&kubeconfig, context)
    };
    assert!(of(kubeconfig(), None).is_some() && of(kubeconfig(), Some("recif-dev")).is_some());
    assert_eq!(of(kubeconfig(), Some("production")), None);
    assert_eq!(of(changed("/current-context", json!("production")), None), None);
    let extension = "/clusters/0/cluster/extensions/0";
    assert_eq!(of(changed(&format!("{extension}/name"), json!("minikube")), None), None);
    for part in ["gateway", "controlPlane"] {
        let pointer = format!("{extension}/extension/{part}");
        for address in [
            json!("https://127.0.0.1:8080"),
            json!("http://localhost:8080"),
            json!("http://evil.example"),
            json!("http://user:key@127.0.0.1:8080"),
            json!(8080),
            Value::Null,
        ] {
            assert_eq!(of(changed(&pointer, address.clone()), None), None, "{part}: {address}");
        }
        assert!(of(changed(&pointer, json!("http://[::1]:8080")), None).is_some(), "{part}");
    }
}
