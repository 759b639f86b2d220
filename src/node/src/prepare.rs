//! Prepares the start of a container: objects are read, volumes written, names of Services replaced, and the program is looked up.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex as StdMutex, PoisonError},
};

use k8s_openapi::api::core::v1::{Container, Service};
use kube::{Api, api::ListParams};

use crate::{
    config_error::ConfigError,
    context::PodContext,
    env,
    names::{self, Replaced, replace_in_json},
    objects::Objects,
    pod_spec::main_container,
    process::{Launch, Lines, Process},
    programs::{Command, DEV_COMMAND, Lookup, ProgramError},
    volumes::{self, Files, Mounts},
};

/// Variables that hold JSON which the operator rendered.
const JSON_VARIABLES: &[&str] = &["CORAIL_TOOLS", "CORAIL_KNOWLEDGE_BASES"];

/// Reason why a container cannot be started: the reason and message of its state, and the sentence for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StartFailure {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) advice: String,
}

impl From<ConfigError> for StartFailure {
    fn from(error: ConfigError) -> Self {
        let message = error.to_string();
        Self { reason: "CreateContainerConfigError", advice: message.clone(), message }
    }
}

impl From<ProgramError> for StartFailure {
    fn from(error: ProgramError) -> Self {
        Self { reason: error.reason(), message: error.to_string(), advice: error.advice() }
    }
}

/// A container that can be started.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) command: Command,
    variables: BTreeMap<String, String>,
    folder: PathBuf,
    mounts: Mounts,
}

impl Prepared {
    /// Prepares a container.
    ///
    /// # Errors
    /// [`StartFailure`]: what is missing.
    pub(crate) async fn of(cx: &PodContext, container: &Container) -> Result<Self, StartFailure> {
        let client = &cx.node.client;
        let objects = Objects::of(&cx.pod, client).await?;
        // Read here, and not from a cache, which may not have a Service yet that was made before the Pod.
        let services: Api<Service> = Api::all(client.clone());
        let services = services.list(&ListParams::default()).await;
        let services = services.map_err(|error| ConfigError::Other(error.to_string()))?;
        cx.node.relays.sync(services.items.iter());
        let namer = Namer { cx, container: &container.name, found: StdMutex::default() };
        write_volumes(cx, &objects, &namer).await?;
        let mounts = Mounts::of(&cx.folders, &cx.pod, container)?;

        let mut variables = cx.node.config.environment.variables().clone();
        for (name, value) in env::variables(&cx.pod, container, &objects)? {
            let value = if JSON_VARIABLES.contains(&name.as_str()) {
                replace_in_json(&value, |text| namer.replace(&name, text))
            } else {
                namer.replace(&name, &value).unwrap_or_else(|| mounts.place(&value))
            };
            variables.insert(name, value);
        }
        let place = |word: &str| {
            let word = env::expand(word, &variables);
            let whole = |text: &str| namer.replace("an argument", text).unwrap_or_else(|| mounts.place(text));
            match (whole(&word), word.split_once('=')) {
                (same, Some((option, value))) if same == word => format!("{option}={}", whole(value)),
                (placed, _) => placed,
            }
        };
        let directory = container.working_dir.as_deref().map(|directory| mounts.place(directory));
        let folder = cx.base.join(directory.unwrap_or_default());
        if !folder.is_dir() {
            return Err(StartFailure::from(ConfigError::Missing {
                kind: "folder",
                name: folder.display().to_string(),
            }));
        }
        let annotations = cx.pod.metadata.annotations.as_ref();
        let is_main = main_container(cx.pod.spec.as_ref()) == Some(container.name.as_str());
        let dev_command = annotations.and_then(|found| found.get(DEV_COMMAND)).filter(|_| is_main);
        let lookup = Lookup {
            programs: &cx.node.config.programs,
            dev_command: dev_command.map(String::as_str),
            folder: &folder,
            variables: &variables,
        };
        let command = lookup.command(container, place)?;
        namer.tell();
        Ok(Self { command, variables, folder, mounts })
    }

    /// Starts the container's process, whose output is not read yet; none if there is nothing to run.
    ///
    /// # Errors
    /// [`StartFailure`]: the system cannot start it.
    pub(crate) fn start(&self, cx: &PodContext) -> Result<Option<Process>, StartFailure> {
        let Command::Run(program, arguments) = &self.command else { return Ok(None) };
        let launch = Launch { program, arguments, variables: &self.variables, folder: &self.folder };
        Process::start(&launch, &cx.node.leftovers).map(Some).map_err(|error| {
            let message = format!("program {} cannot be started: {error}", program.display());
            StartFailure { reason: "RunContainerError", advice: message.clone(), message }
        })
    }

    /// Runs a probe's or hook's program in the surroundings of the container.
    ///
    /// # Errors
    /// It cannot be started, or its exit code is not 0; with its last line.
    pub(crate) async fn exec(&self, cx: &PodContext, words: Vec<String>) -> Result<(), String> {
        let programs = &cx.node.config.programs;
        let lookup = Lookup { programs, dev_command: None, folder: &self.folder, variables: &self.variables };
        let words = words.iter().map(|word| self.mounts.place(word)).collect();
        let (program, arguments) = lookup.exec(words).map_err(|error| error.to_string())?;
        let last: Arc<StdMutex<String>> = Arc::default();
        let sink = last.clone();
        let lines: Lines =
            Arc::new(move |line| line.clone_into(&mut sink.lock().unwrap_or_else(PoisonError::into_inner)));
        let (variables, folder) = (&self.variables, self.folder.as_path());
        let launch = Launch { program: &program, arguments: &arguments, variables, folder };
        let mut process = Process::start(&launch, &cx.node.leftovers).map_err(|error| error.to_string())?;
        process.read(&lines);
        let exit = process.wait().await;
        let last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if exit.code == 0 { Ok(()) } else { Err(format!("exit code {}: {last}", exit.code)) }
    }
}

/// Writes the volumes of a Pod.
///
/// # Errors
/// [`ConfigError`]: what is missing.
pub(crate) async fn refresh_volumes(cx: &PodContext) -> Result<(), ConfigError> {
    let objects = Objects::of(&cx.pod, &cx.node.client).await?;
    let namer = Namer { cx, container: "", found: StdMutex::default() };
    write_volumes(cx, &objects, &namer).await
}

async fn write_volumes(cx: &PodContext, objects: &Objects, namer: &Namer<'_>) -> Result<(), ConfigError> {
    // Containers start at the same time, and each of them writes the volumes.
    let mut tokens = cx.tokens.lock().await;
    let spec = cx.pod.spec.as_ref();
    for volume in spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
        let account = spec.and_then(|spec| spec.service_account_name.as_deref()).unwrap_or("default");
        let token = |path: &str| match tokens.entry((volume.name.clone(), path.to_owned())) {
            std::collections::btree_map::Entry::Occupied(known) => Ok(known.get().clone()),
            std::collections::btree_map::Entry::Vacant(place) => {
                let made = cx.node.config.tokens.mint(&cx.source.namespace, account);
                Ok(place.insert(made.map_err(|error| ConfigError::Other(error.to_string()))?).clone())
            }
        };
        let mut files = volumes::files(&cx.pod, volume, objects, token)?;
        if let Some(files) = &mut files {
            replace_in_files(files, namer);
        }
        volumes::write(&cx.folders, &cx.pod, volume, files.as_ref())?;
    }
    Ok(())
}

/// Replaces names in the files that the operator rendered: `config.json` and `tools/*.json` of flows, `tools.json` of agents.
fn replace_in_files(files: &mut Files, namer: &Namer<'_>) {
    for (path, file) in files.iter_mut().filter(|(_, file)| file.is_rendered) {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let is_tool = folder.rsplit('/').next() == Some("tools") && name.ends_with(".json");
        if let Ok(text) = std::str::from_utf8(&file.bytes)
            && (is_tool || name == "config.json" || path == "tools.json")
        {
            file.bytes = replace_in_json(text, |value| namer.replace(path, value)).into_bytes();
        }
    }
}

/// Replaces the names of Services for one container, and remembers what it replaced.
struct Namer<'a> {
    cx: &'a PodContext,
    container: &'a str,
    found: StdMutex<Found>,
}

/// Names that were replaced, and the Services that are not there.
#[derive(Default)]
struct Found {
    replaced: Vec<String>,
    unserved: Vec<String>,
}

impl Namer<'_> {
    /// Returns a text with the address of a Service in place of its name; `place` says where the text is.
    fn replace(&self, place: &str, text: &str) -> Option<String> {
        let node = &self.cx.node;
        let address = |service: &names::ServicePort| node.relays.address(service);
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        match names::replace(text, &self.cx.source.namespace, &node.config.cluster_domain, address) {
            Replaced::No => None,
            Replaced::Yes { text, from, to } => {
                found.replaced.push(format!("{} {place}: {from} -> {to}\n", self.container));
                Some(text)
            }
            Replaced::Unserved(host) => {
                found.unserved.push(host);
                None
            }
        }
    }

    /// Writes what was replaced to the Pod's file `names`, and shows which Services are missing.
    fn tell(self) {
        let mut found = self.found.into_inner().unwrap_or_else(PoisonError::into_inner);
        found.unserved.sort_unstable();
        found.unserved.dedup();
        for host in found.unserved {
            self.cx.note(self.container, &format!("nothing serves {host}"));
        }
        let path = self.cx.folders.pod.join("names");
        let others = std::fs::read_to_string(&path).unwrap_or_default();
        let own = format!("{} ", self.container);
        let others = others.lines().filter(|line| !line.starts_with(&own)).map(|line| format!("{line}\n"));
        let text: String = others.chain(found.replaced).collect();
        // It is for people; a Pod runs without it.
        if let Err(error) = std::fs::write(&path, text) {
            tracing::warn!(%error, "{} is not written", path.display());
        }
    }
}
