//! Lets the linker keep equal functions once (1 MB of the operator's image), only where Rust's own linker, which can do that, is
//! the default. What is published also gets its relocations packed (RELR: 0.8 MB that stay in the operator's memory, 0.1 MB in the
//! sidecar's), which needs glibc 2.36: that of the operator's base image, and that of the builder for the sidecar, which is linked
//! statically. What is built elsewhere has to run there.

use std::{env, path::Path};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    let own_linker = env::var("CARGO_ENCODED_RUSTFLAGS").is_ok_and(|flags| flags.is_empty());
    if is("PROFILE", "release") && is("TARGET", "x86_64-unknown-linux-gnu") && own_linker {
        let published = env::var_os("OUT_DIR").is_some_and(|out| Path::new(&out).iter().any(|part| part == "dist"));
        for program in ["recif", "recif-proxy"] {
            println!("cargo::rustc-link-arg-bin={program}=-Wl,--icf=all");
            if published {
                println!("cargo::rustc-link-arg-bin={program}=-Wl,-z,pack-relative-relocs");
            }
        }
    }
}
