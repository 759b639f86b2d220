//! Lists the built web UI for `src/control_plane/ui.rs`, each file with its compressed forms.
//!
//! Without a build of it (`make ui`) the list is empty, and the program says so where the UI would be.

use std::env;
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Where `hack/ui` puts it, below the package.
const DIST: &str = "src/control_plane/ui/dist";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={DIST}");
    let dist = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join(DIST);
    let mut files = Vec::new();
    if dist.join("index.html").is_file() {
        collect(&dist, &mut files)?;
    }
    files.sort();
    let mut table = String::from("&[\n");
    for file in &files {
        let name = file.strip_prefix(&dist)?.to_str().ok_or("a file of the web UI has a name that is no text")?;
        let compressed = |extension: &str| -> Result<String, Box<dyn Error>> {
            let path = format!("{}.{extension}", file.display());
            Ok(if Path::new(&path).is_file() { format!("Some(include_bytes!({path:?}))") } else { "None".into() })
        };
        writeln!(
            table,
            "    Asset {{ path: {name:?}, plain: include_bytes!({file:?}), brotli: {}, gzip: {} }},",
            compressed("br")?,
            compressed("gz")?
        )?;
    }
    table.push(']');
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("ui_assets.rs"), table)?;
    Ok(())
}

/// The files below `folder` that are served under their own names.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if !path.extension().is_some_and(|extension| extension == "br" || extension == "gz")
            && !path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
        {
            files.push(path);
        }
    }
    Ok(())
}
