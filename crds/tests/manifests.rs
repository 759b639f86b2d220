//! `config/crd` holds exactly what the types say.

use std::{env, fs, path::Path};

#[test]
fn config_crd_is_what_the_types_say() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/crd");
    let manifests = crds::manifests().unwrap();
    let mut expected: Vec<String> = manifests.iter().map(|(file, _)| file.clone()).collect();
    for (file, yaml) in manifests {
        let written = fs::read_to_string(directory.join(&file)).unwrap_or_default();
        assert!(
            written == yaml,
            "config/crd/{file} is not what the types say: run `make manifests` and commit the result"
        );
    }
    expected.push("kustomization.yaml".into());
    expected.sort();
    let mut files: Vec<String> =
        fs::read_dir(&directory).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    files.sort();
    assert_eq!(files, expected, "config/crd holds something else: run `make manifests` and commit the result");
    let kustomization = fs::read_to_string(directory.join("kustomization.yaml")).unwrap();
    for file in files.iter().filter(|file| *file != "kustomization.yaml") {
        assert!(kustomization.contains(file.as_str()), "config/crd/kustomization.yaml does not list {file}");
    }
}
