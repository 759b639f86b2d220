//! Volumes of a Pod: folders below that of the Pod, with the files of ConfigMaps, Secrets and tokens in them.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Component, Path, PathBuf},
};

use k8s_openapi::api::core::v1::{Container, DownwardAPIVolumeFile, KeyToPath, Pod, Volume};

use crate::{
    config_error::ConfigError,
    env,
    objects::{Data, Objects},
};

/// Permissions of files that name none.
const MODE: i32 = 0o644;

/// File of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileProjection {
    pub(crate) bytes: Vec<u8>,
    /// Permissions.
    pub(crate) mode: u32,
    /// True if the operator rendered the object that it comes from.
    pub(crate) is_rendered: bool,
}

/// Files of a volume by their relative path.
pub(crate) type Files = BTreeMap<String, FileProjection>;

/// Folders of the volumes of a Pod.
#[derive(Debug, Clone)]
pub(crate) struct Folders {
    /// Folder of the Pod.
    pub(crate) pod: PathBuf,
    /// Folder of claims, which outlive a Pod.
    pub(crate) claims: PathBuf,
}

impl Folders {
    /// Returns the folder of a volume.
    fn of(&self, pod: &Pod, volume: &Volume) -> PathBuf {
        if let Some(host) = &volume.host_path {
            return host.path.clone().into();
        }
        match &volume.persistent_volume_claim {
            Some(claim) => {
                self.claims.join(pod.metadata.namespace.as_deref().unwrap_or_default()).join(&claim.claim_name)
            }
            None => self.pod.join("volumes").join(&volume.name),
        }
    }
}

/// Returns the files of a volume; none if it is a folder for the program.
///
/// # Errors
/// [`ConfigError`]: what is missing, a path that leads out, a kind of volume that is not made here.
pub(crate) fn files(
    pod: &Pod,
    volume: &Volume,
    objects: &Objects,
    mut token: impl FnMut(&str) -> Result<String, ConfigError>,
) -> Result<Option<Files>, ConfigError> {
    let mut files = Files::new();
    let mut add = |path: &str, bytes: Vec<u8>, mode: Option<i32>, is_rendered: bool| {
        if !is_inside(path) {
            return Err(ConfigError::Path(path.to_owned(), volume.name.clone()));
        }
        let mode = u32::try_from(mode.unwrap_or(MODE)).unwrap_or_default() & 0o777;
        files.insert(path.to_owned(), FileProjection { bytes, mode, is_rendered });
        Ok(())
    };
    let mut object = |is_secret: bool, name: &str, optional: Option<bool>, items: &Option<Vec<KeyToPath>>, mode| {
        let (kind, data) =
            if is_secret { (env::SECRET, objects.secret(name)) } else { (env::CONFIG_MAP, objects.config_map(name)) };
        let optional = optional == Some(true);
        let Some(data) = data else {
            let missing = ConfigError::Missing { kind, name: name.to_owned() };
            return if optional { Ok(()) } else { Err(missing) };
        };
        let is_rendered = objects.rendered.contains(&(is_secret, name.to_owned()));
        for (key, path, own) in selected(data, items) {
            match data.get(key) {
                Some(bytes) => add(path, bytes.clone(), own.or(mode), is_rendered)?,
                None if optional => {}
                None => {
                    let kind = if is_secret { "Secret" } else { "ConfigMap" };
                    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
                    return Err(ConfigError::Key { key: key.to_owned(), kind, namespace, name: name.to_owned() });
                }
            }
        }
        Ok(())
    };
    if let Some(map) = &volume.config_map {
        object(false, &map.name, map.optional, &map.items, map.default_mode)?;
    } else if let Some(secret) = &volume.secret {
        let name = secret.secret_name.as_deref().unwrap_or_default();
        object(true, name, secret.optional, &secret.items, secret.default_mode)?;
    } else if let Some(downward) = &volume.downward_api {
        for item in downward.items.iter().flatten() {
            add(&item.path, field(pod, item)?, item.mode.or(downward.default_mode), false)?;
        }
    } else if let Some(projected) = &volume.projected {
        let mode = projected.default_mode;
        for source in projected.sources.iter().flatten() {
            if let Some(map) = &source.config_map {
                object(false, &map.name, map.optional, &map.items, mode)?;
            }
            if let Some(secret) = &source.secret {
                object(true, &secret.name, secret.optional, &secret.items, mode)?;
            }
        }
        for source in projected.sources.iter().flatten() {
            for item in source.downward_api.iter().flat_map(|downward| downward.items.iter().flatten()) {
                add(&item.path, field(pod, item)?, item.mode.or(mode), false)?;
            }
            if let Some(wanted) = &source.service_account_token {
                add(&wanted.path, token(&wanted.path)?.into_bytes(), Some(0o600), false)?;
            }
        }
    } else if volume.empty_dir.is_some() || volume.host_path.is_some() || volume.persistent_volume_claim.is_some() {
        return Ok(None);
    } else {
        return Err(ConfigError::Volume(volume.name.clone()));
    }
    Ok(Some(files))
}

/// Returns key, path and mode of the files that are made of an object: those of the items, or of every key.
fn selected<'a>(data: &'a Data, items: &'a Option<Vec<KeyToPath>>) -> Vec<(&'a str, &'a str, Option<i32>)> {
    match items {
        Some(items) => items.iter().map(|item| (item.key.as_str(), item.path.as_str(), item.mode)).collect(),
        None => data.keys().map(|key| (key.as_str(), key.as_str(), None)).collect(),
    }
}

fn field(pod: &Pod, item: &DownwardAPIVolumeFile) -> Result<Vec<u8>, ConfigError> {
    match &item.field_ref {
        Some(selector) => env::field(pod, selector).map(String::into_bytes),
        None => Ok(Vec::new()),
    }
}

/// Reports whether a relative path stays in its folder.
fn is_inside(path: &str) -> bool {
    !path.is_empty() && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}

/// Makes the folder of a volume and writes its files, each by a rename, so that no reader sees half of one. Files of before that are
/// not among them are removed.
///
/// # Errors
/// [`ConfigError::Write`].
pub(crate) fn write(folders: &Folders, pod: &Pod, volume: &Volume, files: Option<&Files>) -> Result<(), ConfigError> {
    let folder = folders.of(pod, volume);
    let failed = |error: io::Error| ConfigError::Write { path: folder.display().to_string(), error: error.to_string() };
    fs::create_dir_all(&folder).map_err(failed)?;
    let Some(files) = files else { return Ok(()) };
    for (path, file) in files {
        let at = folder.join(path);
        let is_same = fs::read(&at).is_ok_and(|bytes| bytes == file.bytes);
        if !is_same {
            write_file(&at, file).map_err(failed)?;
        }
    }
    remove_others(&folder, &folder, files).map_err(failed)
}

fn write_file(at: &Path, file: &FileProjection) -> io::Result<()> {
    let folder = at.parent().unwrap_or(at);
    fs::create_dir_all(folder)?;
    let mut name = std::ffi::OsString::from("..");
    name.push(at.file_name().unwrap_or_default());
    let new = folder.join(name);
    let mut private = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    private.write_all(&file.bytes)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(file.mode))?;
    fs::rename(&new, at)
}

/// Removes the files below a folder that are not wanted.
fn remove_others(root: &Path, folder: &Path, files: &Files) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        // The type of the entry itself: a link that a program made may lead to the user's own files, and is removed as a file.
        if entry.file_type()?.is_dir() {
            remove_others(root, &path, files)?;
        } else if let Ok(relative) = path.strip_prefix(root)
            && !relative.to_str().is_some_and(|relative| files.contains_key(relative))
        {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Folders of this machine that stand for the mount paths of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Mounts(Vec<(String, PathBuf)>);

impl Mounts {
    /// Returns the mounts of a container, and makes the folders that they name in a volume.
    ///
    /// # Errors
    /// [`ConfigError`]: a path that leads out of its volume, or a folder that cannot be made.
    pub(crate) fn of(folders: &Folders, pod: &Pod, container: &Container) -> Result<Self, ConfigError> {
        let volumes: Vec<&Volume> = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).collect();
        let mut mounts = Vec::new();
        for mount in container.volume_mounts.iter().flatten() {
            let Some(volume) = volumes.iter().find(|volume| volume.name == mount.name) else { continue };
            let mut at = folders.of(pod, volume);
            if let Some(below) = mount.sub_path.as_deref().filter(|below| !below.is_empty()) {
                if !is_inside(below) {
                    return Err(ConfigError::Path(below.to_owned(), volume.name.clone()));
                }
                at.push(below);
                if !at.exists() {
                    let failed = |error: io::Error| ConfigError::Write {
                        path: at.display().to_string(),
                        error: error.to_string(),
                    };
                    fs::create_dir_all(&at).map_err(failed)?;
                }
            }
            let path = mount.mount_path.trim_end_matches('/');
            mounts.push((path.to_owned(), at));
        }
        // A mount within another one is found first.
        mounts.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        Ok(Self(mounts))
    }

    /// Returns a text that begins with a mount path with the folder in its place; any other text as it is.
    pub(crate) fn place(&self, text: &str) -> String {
        let found = self.0.iter().find_map(|(path, at)| {
            let rest = text.strip_prefix(path.as_str()).filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
            (!path.is_empty()).then(|| format!("{}{rest}", at.display()))
        });
        found.unwrap_or_else(|| text.to_owned())
    }
}

#[cfg(test)]
mod tests;
