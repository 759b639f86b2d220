//! Embeds the files of the built web UI, each with its compressed forms, for `src/ui.rs`.
//!
//! Without a build of the UI (`make ui`) the table of files is empty, and the program answers below `/ui` with a text that says
//! so.
//!
//! Several checkouts may share one target folder, in which cargo takes their packages for the same one. So the files are copied
//! into `OUT_DIR`, and no path of a checkout is compiled in.

use std::env;
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Output folder of `hack/ui`, relative to the package.
const DIST: &str = "ui/dist";

fn main() -> Result<(), Box<dyn Error>> {
    let dist = variable("CARGO_MANIFEST_DIR")?.join(DIST);
    let out = variable("OUT_DIR")?;
    // An absolute path. In another checkout cargo does not find it, and so runs this script again.
    println!("cargo::rerun-if-changed={}", dist.display());
    let mut files = Vec::new();
    if dist.join("index.html").is_file() {
        collect(&dist, &mut files)?;
    }
    files.sort();
    let copies = out.join("ui");
    match fs::remove_dir_all(&copies) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => fs::create_dir(&copies)?,
    }
    let mut table = String::from("&[\n");
    for (number, file) in files.iter().enumerate() {
        let name = file.strip_prefix(&dist)?.to_str().ok_or("a file of the web UI has a name that is no text")?;
        let copy = |from: &Path, form: &str| -> io::Result<String> {
            let copied = format!("{number}.{form}");
            fs::copy(from, copies.join(&copied))?;
            Ok(format!("include_bytes!(concat!(env!(\"OUT_DIR\"), \"/ui/{copied}\"))"))
        };
        let compressed = |form: &str| -> io::Result<String> {
            let path = PathBuf::from(format!("{}.{form}", file.display()));
            Ok(if path.is_file() { format!("Some({})", copy(&path, form)?) } else { "None".into() })
        };
        let (brotli, gzip) = (compressed("br")?, compressed("gz")?);
        let plain = if gzip == "None" { format!("Some({})", copy(file, "plain")?) } else { "None".into() };
        writeln!(table, "    Asset {{ path: {name:?}, plain: {plain}, brotli: {brotli}, gzip: {gzip} }},")?;
    }
    table.push(']');
    fs::write(out.join("ui_assets.rs"), table)?;
    Ok(())
}

/// Reads a path from an environment variable that cargo sets at run time; `env!` would give the path of the checkout in which
/// this script was compiled.
fn variable(name: &str) -> Result<PathBuf, Box<dyn Error>> {
    Ok(PathBuf::from(env::var_os(name).ok_or_else(|| format!("{name} is not set: this is run by cargo"))?))
}

/// Collects the files below `folder` that are served under their own names: all but compressed copies and hidden files.
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
