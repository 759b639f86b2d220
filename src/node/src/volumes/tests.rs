use serde_json::{Value, json};

use super::*;
use crate::testing::TestFolder;

fn pod(volumes: Value, mounts: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": { "name": "p", "namespace": "ns", "labels": { "app": "a" } },
        "spec": { "volumes": volumes, "containers": [{ "name": "c", "volumeMounts": mounts }] },
    }))
    .unwrap()
}

fn objects() -> Objects {
    let data = |pairs: &[(&str, &str)]| pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    let mut objects = Objects::default();
    objects.config_maps.insert("m".into(), data(&[("a", "1"), ("b", "2")]));
    objects.secrets.insert("s".into(), data(&[("k", "3")]));
    objects.rendered.insert((true, "s".into()));
    objects
}

/// Returns `PATH=TEXT MODE` of each file, with `*` for a rendered one.
fn made(volume: Value) -> Result<Vec<String>, String> {
    let mut object = json!({ "name": "v" });
    object.as_object_mut().unwrap().extend(volume.as_object().unwrap().clone());
    let pod = pod(json!([object]), json!([]));
    let volume = &pod.spec.as_ref().unwrap().volumes.as_ref().unwrap()[0];
    let files =
        files(&pod, volume, &objects(), |path| Ok(format!("token of {path}"))).map_err(|error| error.to_string())?;
    let shown = |(path, file): (String, FileProjection)| {
        let text = String::from_utf8(file.bytes).unwrap();
        format!("{path}={text} {:o}{}", file.mode, if file.is_rendered { "*" } else { "" })
    };
    Ok(files.into_iter().flatten().map(shown).collect())
}

#[test]
fn files_are_those_of_keys_or_items_with_their_modes() {
    for (volume, expected) in [
        (json!({ "configMap": { "name": "m" } }), vec!["a=1 644", "b=2 644"]),
        (
            json!({ "configMap": { "name": "m", "defaultMode": 0o400, "items": [
                { "key": "b", "path": "x/y", "mode": 0o600 }, { "key": "a", "path": "z" },
            ] } }),
            vec!["x/y=2 600", "z=1 400"],
        ),
        (json!({ "secret": { "secretName": "s" } }), vec!["k=3 644*"]),
        (json!({ "secret": { "secretName": "gone", "optional": true } }), vec![]),
        (
            json!({ "downwardAPI": { "items": [{ "path": "l", "fieldRef": { "fieldPath": "metadata.labels" } }] } }),
            vec!["l=app=\"a\" 644"],
        ),
        (
            json!({ "projected": { "sources": [
                { "configMap": { "name": "m", "items": [{ "key": "a", "path": "flows/a" }] } },
                { "secret": { "name": "s" } },
                { "serviceAccountToken": { "path": "t/token", "audience": "x" } },
            ] } }),
            vec!["flows/a=1 644", "k=3 644*", "t/token=token of t/token 600"],
        ),
        (json!({ "emptyDir": {} }), vec![]),
    ] {
        assert_eq!(made(volume.clone()).unwrap(), expected, "{volume}");
    }
}

#[test]
fn what_cannot_be_mounted_is_told() {
    for (volume, expected) in [
        (json!({ "configMap": { "name": "gone" } }), "configmap \"gone\" not found"),
        (
            json!({ "secret": { "secretName": "s", "items": [{ "key": "x", "path": "x" }] } }),
            "couldn't find key x in Secret ns/s",
        ),
        (json!({ "nfs": { "path": "/x", "server": "y" } }), "volume v is of a kind"),
        (
            json!({ "configMap": { "name": "m", "items": [{ "key": "a", "path": "../x" }] } }),
            "path \"../x\" of volume v",
        ),
        (
            json!({ "configMap": { "name": "m", "items": [{ "key": "a", "path": "/etc/x" }] } }),
            "path \"/etc/x\" of volume v",
        ),
    ] {
        let error = made(volume).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn files_are_written_changed_and_removed_and_the_programs_own_stay() {
    let folder = TestFolder::new();
    let folders = Folders { pod: folder.path().join("pods/u"), claims: folder.path().join("claims") };
    let pod = pod(
        json!([{ "name": "v", "configMap": { "name": "m" } }, { "name": "e", "emptyDir": {} }]),
        json!([{ "name": "e", "mountPath": "/tmp" }]),
    );
    let volumes = pod.spec.as_ref().unwrap().volumes.as_ref().unwrap();
    let at = |path: &str| folder.path().join("pods/u/volumes").join(path);
    let file = |text: &str| FileProjection { bytes: text.into(), mode: 0o600, is_rendered: false };
    let mut files = Files::from([("a".to_owned(), file("1")), ("x/b".to_owned(), file("2"))]);
    write(&folders, &pod, &volumes[0], Some(&files)).unwrap();
    write(&folders, &pod, &volumes[1], None).unwrap();
    fs::write(at("e/own"), "own").unwrap();
    assert_eq!(fs::read_to_string(at("v/x/b")).unwrap(), "2");
    assert_eq!(fs::metadata(at("v/a")).unwrap().permissions().mode() & 0o777, 0o600);
    // A program's link in the volume leads to the user's own files, which stay.
    fs::create_dir(folder.path().join("own")).unwrap();
    fs::write(folder.path().join("own/kept"), "kept").unwrap();
    std::os::unix::fs::symlink(folder.path().join("own"), at("v/link")).unwrap();
    files.remove("x/b");
    files.insert("a".to_owned(), file("3"));
    write(&folders, &pod, &volumes[0], Some(&files)).unwrap();
    write(&folders, &pod, &volumes[1], None).unwrap();
    assert_eq!(fs::read_to_string(at("v/a")).unwrap(), "3");
    assert!(!at("v/x/b").exists() && at("e/own").exists());
    assert!(fs::symlink_metadata(at("v/link")).is_err() && folder.path().join("own/kept").exists());
}

#[test]
fn words_that_begin_with_a_mount_path_lead_to_the_folder() {
    let folder = TestFolder::new();
    let folders = Folders { pod: folder.path().join("u"), claims: folder.path().join("claims") };
    let pod = pod(
        json!([{ "name": "tmp", "emptyDir": {} }, { "name": "c", "persistentVolumeClaim": { "claimName": "data" } },
            { "name": "h", "hostPath": { "path": "/srv/x" } }]),
        json!([{ "name": "tmp", "mountPath": "/tmp" }, { "name": "tmp", "mountPath": "/tmp/in", "subPath": "a/b" },
            { "name": "c", "mountPath": "/data/" }, { "name": "h", "mountPath": "/host" }]),
    );
    let container = &pod.spec.as_ref().unwrap().containers[0];
    let mounts = Mounts::of(&folders, &pod, container).unwrap();
    let root = folder.path().display();
    for (text, expected) in [
        ("/tmp", format!("{root}/u/volumes/tmp")),
        ("/tmp/x y", format!("{root}/u/volumes/tmp/x y")),
        ("/tmp/in/x", format!("{root}/u/volumes/tmp/a/b/x")),
        ("/data/x", format!("{root}/claims/ns/data/x")),
        ("/host", "/srv/x".to_owned()),
        ("/tmpx", "/tmpx".to_owned()),
        ("x/tmp", "x/tmp".to_owned()),
        ("", String::new()),
    ] {
        assert_eq!(mounts.place(text), expected, "{text}");
    }
    assert!(folder.path().join("u/volumes/tmp/a/b").is_dir());
}
