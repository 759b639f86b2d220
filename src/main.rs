//! `recif`: the processes of Récif, and the commands that query its objects, in one program.
//!
//! Under the name `kubectl-recif` it is a kubectl plugin: `kubectl recif why agent/my-agent`.

mod command;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};
use command::Recif;

/// Global allocator of the process: [jemalloc](https://jemalloc.net). The operator allocates and frees many small JSON values:
/// this allocator costs a tenth less CPU time than the system's, at no more memory, and returns unused memory from a thread of
/// its own. It requires the page size of the build machine, which ARM does not guarantee; hence only x86_64.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

// Single-threaded runtime: the operator needs less than a core, and moving tasks between threads would cost a fifth of that; the
// gateway serves connections on threads of its own.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    daemon::limits::raise_open_files();
    // Fails only if a provider is installed already, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let arguments: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let program = arguments.first().map(String::as_str);
    let root = Recif::command().bin_name(cli::called_as(program));
    if let Some(code) = cli::complete(program, arguments.get(1..).unwrap_or_default(), &root).await {
        return code;
    }
    let recif = Recif::from_arg_matches(&root.get_matches()).unwrap_or_else(|error| error.exit());
    recif.run().await
}
