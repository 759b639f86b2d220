//! Finds the kubeconfig of a `recif dev` that runs in a folder or above it.
//!
//! A kubeconfig may name any server and even run programs, and a repository may bring files of any name. So one is used only
//! where a process of the same user runs at this moment: the folder is private to the user, its files are no links, and the
//! lock is held, which a repository cannot bring. Beyond that it may lead to this machine alone, by a token.

use std::{
    fs::{File, Metadata, TryLockError},
    io::Read as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use kube::config::{AuthInfo, Cluster, Kubeconfig};
use rustix::process::geteuid;
use url::{Host, Url};

use super::ReadError;

/// Folder that `recif dev` makes where it runs.
const FOLDER: &str = ".recif";
/// Extension of a kubeconfig's cluster with the addresses of the parts.
const EXTENSION: &str = "recif.dev/dev";
/// Largest kubeconfig that is read, in bytes.
const MAX_KUBECONFIG: u64 = 1 << 20;

/// Cluster of a `recif dev`, whose parts are reached at addresses of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DevCluster {
    /// URL of the gateway.
    pub gateway: Url,
    /// URL of the control plane.
    pub control_plane: Url,
    /// Folder in which it was found; `None`: the user named the kubeconfig.
    pub folder: Option<PathBuf>,
}

impl DevCluster {
    /// Returns the cluster of a context (`None`: the current one), if its extension says that it is that of a `recif dev`.
    pub(super) fn of(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<Self> {
        let name = context.or(kubeconfig.current_context.as_deref())?;
        let context = kubeconfig.contexts.iter().find(|named| named.name == name)?.context.as_ref()?;
        let cluster = kubeconfig.clusters.iter().find(|named| named.name == context.cluster)?.cluster.as_ref()?;
        let extension = cluster.extensions.iter().flatten().find(|named| named.name == EXTENSION)?;
        let address = |part: &str| {
            let url = Url::parse(extension.extension.get(part)?.as_str()?).ok()?;
            leads_here(&url, "http").then_some(url)
        };
        Some(Self { gateway: address("gateway")?, control_plane: address("controlPlane")?, folder: None })
    }
}

/// Returns the `recif dev` that runs in this folder, or else in the nearest one above it, and its kubeconfig.
///
/// # Errors
/// [`ReadError::Starting`]: it runs, and has no usable kubeconfig. The user means no other cluster then.
pub(super) fn find(start: &Path) -> Result<Option<(DevCluster, Kubeconfig)>, ReadError> {
    let user = geteuid().as_raw();
    let Some(folder) = start.ancestors().find(|folder| runs_in(&folder.join(FOLDER), user)) else { return Ok(None) };
    let kubeconfig = read(&folder.join(FOLDER), user);
    let found = kubeconfig.and_then(|kubeconfig| Some((DevCluster::of(&kubeconfig, None)?, kubeconfig)));
    let (cluster, kubeconfig) = found.ok_or_else(|| ReadError::Starting(folder.to_owned()))?;
    Ok(Some((DevCluster { folder: Some(folder.to_owned()), ..cluster }, kubeconfig)))
}

/// Reports whether a process of this user runs in `folder`.
fn runs_in(folder: &Path, user: u32) -> bool {
    // Not followed: a symbolic link may lead to another folder in which a process runs.
    let is_private = folder
        .symlink_metadata()
        .is_ok_and(|found| found.is_dir() && found.uid() == user && found.mode() & 0o777 == 0o700);
    is_private && open(&folder.join("lock"), user).is_some_and(|lock| is_locked(&lock))
}

/// Reads the kubeconfig in the folder of a process that runs, if it can do no harm.
fn read(folder: &Path, user: u32) -> Option<Kubeconfig> {
    let mut text = String::new();
    open(&folder.join("kubeconfig"), user)?.take(MAX_KUBECONFIG).read_to_string(&mut text).ok()?;
    Kubeconfig::from_yaml(&text).ok().filter(is_harmless)
}

/// Opens a file of this user that is neither a link nor has another name. It stays so, because the folder is private.
fn open(path: &Path, user: u32) -> Option<File> {
    let is_own = |found: &Metadata| found.is_file() && found.uid() == user && found.nlink() == 1;
    let found = path.symlink_metadata().ok().filter(is_own)?;
    let file = File::open(path).ok()?;
    let opened = file.metadata().ok()?;
    ((found.dev(), found.ino()) == (opened.dev(), opened.ino())).then_some(file)
}

/// Reports whether a process holds the lock. It is tried as a shared one, so that two commands at a time do not take each
/// other for that process.
fn is_locked(lock: &File) -> bool {
    matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// Reports whether a kubeconfig names only API servers of this machine, and only tokens and certificates that it holds itself:
/// no program, no proxy and no other file.
fn is_harmless(kubeconfig: &Kubeconfig) -> bool {
    let is_here = |cluster: &Cluster| {
        let server = cluster.server.as_deref().and_then(|server| Url::parse(server).ok());
        server.is_some_and(|server| leads_here(&server, "https"))
            && cluster.certificate_authority_data.is_some()
            && cluster.certificate_authority.is_none()
            && cluster.insecure_skip_tls_verify != Some(true)
            && cluster.proxy_url.is_none()
            && cluster.tls_server_name.is_none()
    };
    let has_token = |user: &AuthInfo| {
        let files = [&user.token_file, &user.client_certificate, &user.client_key];
        user.token.is_some()
            && user.exec.is_none()
            && user.auth_provider.is_none()
            && user.impersonate.is_none()
            && files.iter().all(|file| file.is_none())
    };
    kubeconfig.clusters.iter().all(|named| named.cluster.as_ref().is_some_and(is_here))
        && kubeconfig.auth_infos.iter().all(|named| named.auth_info.as_ref().is_some_and(has_token))
}

/// Reports whether a URL of this scheme has a loopback address as its host. Names do not count: they can resolve to any address.
fn leads_here(url: &Url, scheme: &str) -> bool {
    let is_loopback = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.to_canonical().is_loopback(),
        _ => false,
    };
    let is_plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
    is_loopback && is_plain && url.scheme() == scheme
}

#[cfg(test)]
mod tests;
