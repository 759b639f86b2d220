//! Diagnoses one container of a Pod that is not ready: as a stable class for a status, and in the kubelet's words for `why`.
//!
//! A class holds only what the user wrote. The kubelet's text changes with every attempt, and in a status each change would be a
//! step of the state machine.

use std::fmt::Write as _;

/// Words of the message on an image whose name has no slash: no node has it, and by default none pulls it.
pub const NOT_ON_NODE: &str = "is not on the node";

/// Words of the message on an image that no node has and whose policy keeps the kubelet from pulling it.
pub const NEVER_PULLED: &str = "is not on the node, and imagePullPolicy Never forbids to pull it";

/// Words of the message on an image with no program to run in its place: on a developer's machine, where containers are
/// programs.
pub const NEEDS_CONTAINER: &str = "needs a container, which is not run here";

/// Words of the message on a program that is missing: on a developer's machine, where containers are programs.
pub const NO_PROGRAM: &str = "cannot be made: program \"";

/// Reasons for which a container waits because the node does not get its image.
pub const IMAGE_PULL_REASONS: [&str; 6] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
    "ImageInspectError",
    "RegistryUnavailable",
];

/// Class of the reason why a Pod does not become ready.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodProblem {
    /// The image does not exist or cannot be pulled.
    ImagePull {
        /// The image as in the Pod template.
        image: String,
    },
    /// The image is not on the node, and its policy is `Never`.
    ImageNeverPull {
        /// The image as in the Pod template.
        image: String,
    },
    /// The image is all that is known of the container, where no containers are run.
    NeedsContainer {
        /// The image as in the Pod template.
        image: String,
    },
    /// A container ends again and again.
    CrashLoop {
        /// Name of the container.
        container: String,
        /// Its last exit code.
        exit_code: i32,
    },
    /// A container cannot be created from its configuration, usually because an object that it names is missing.
    CreateContainerConfigError {
        /// The missing object, such as `secret "keys"`.
        object: String,
    },
    /// No node fits the Pod.
    Unschedulable,
}

impl PodProblem {
    /// Returns the image that the node does not get.
    pub fn missing_image(&self) -> Option<&str> {
        match self {
            Self::ImagePull { image } | Self::ImageNeverPull { image } => Some(image),
            _ => None,
        }
    }
}

/// Status of a container, as far as it is diagnosed.
#[derive(Debug, Clone, Copy, Default)]
pub struct ContainerView<'a> {
    /// Name of the container.
    pub name: &'a str,
    /// True if it is ready.
    pub ready: bool,
    /// True if it runs.
    pub running: bool,
    /// Number of restarts.
    pub restart_count: i32,
    /// Reason and message of the kubelet, while it waits.
    pub waiting: Option<(Option<&'a str>, Option<&'a str>)>,
    /// Exit code, reason and message, if it has ended.
    pub terminated: Option<(i32, Option<&'a str>, Option<&'a str>)>,
    /// Exit code of the instance before this one.
    pub last_exit_code: Option<i32>,
}

impl ContainerView<'_> {
    /// Returns the class of its problem; `image` returns its image.
    pub fn problem(&self, image: impl FnOnce() -> String) -> Option<PodProblem> {
        let (reason, message) = self.waiting.unwrap_or_default();
        let exit_code = self.terminated.map(|(code, ..)| code).or(self.last_exit_code);
        let crash_loop =
            || PodProblem::CrashLoop { container: self.name.to_owned(), exit_code: exit_code.unwrap_or_default() };
        match reason.unwrap_or_default() {
            "ErrImageNeverPull" if message.is_some_and(|message| message.contains(NEEDS_CONTAINER)) => {
                Some(PodProblem::NeedsContainer { image: image() })
            }
            "ErrImageNeverPull" => Some(PodProblem::ImageNeverPull { image: image() }),
            reason if IMAGE_PULL_REASONS.contains(&reason) => Some(PodProblem::ImagePull { image: image() }),
            "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => {
                let object = missing_object(message.unwrap_or_default());
                let object = object.unwrap_or_else(|| format!("container \"{}\"", self.name));
                Some(PodProblem::CreateContainerConfigError { object })
            }
            "CrashLoopBackOff" => Some(crash_loop()),
            // Between two attempts the container runs or has just ended, which is no change while it goes on like this.
            _ if !self.ready && self.restart_count >= 2 && exit_code.is_some_and(|code| code != 0) => {
                Some(crash_loop())
            }
            _ => None,
        }
    }

    /// Returns its problem in the kubelet's words.
    pub(crate) fn describe(&self) -> Option<String> {
        let mut restarts = String::new();
        if let (times @ 1.., Some(code)) = (self.restart_count, self.last_exit_code) {
            let times = if times == 1 { "once".to_owned() } else { format!("{times} times") };
            let _ = write!(restarts, " (restarted {times}, last exit code {code})");
        }
        if let Some((reason, message)) = self.waiting {
            let reason = reason.unwrap_or("waiting");
            let starting = matches!(reason, "ContainerCreating" | "PodInitializing") && message.is_none();
            return (!starting).then(|| reason_and_message(reason, message) + &restarts);
        }
        if let Some((code, reason, message)) = self.terminated.filter(|(code, ..)| *code != 0) {
            return Some(format!("{}, exit code {code}", reason_and_message(reason.unwrap_or("Error"), message)));
        }
        (self.running && !self.ready).then(|| format!("running, but its readiness probe does not pass{restarts}"))
    }
}

/// Returns `reason: message`, or the reason alone.
pub(crate) fn reason_and_message(reason: &str, message: Option<&str>) -> String {
    match message.map(str::trim) {
        None | Some("") => reason.to_owned(),
        Some(message) => format!("{reason}: {message}"),
    }
}

/// Returns the object that a kubelet's message reports as missing: `secret "keys"` of `secret "keys" not found`, or `key "a" in Secret
/// "keys"` of `couldn't find key a in Secret ns/keys`.
fn missing_object(message: &str) -> Option<String> {
    if let Some(object) = message.strip_suffix(" not found") {
        return Some(object.to_owned());
    }
    let (key, place) = message.strip_prefix("couldn't find key ")?.split_once(" in ")?;
    let (kind, path) = place.split_once(' ')?;
    let name = path.rsplit('/').next()?;
    Some(format!("key \"{key}\" in {kind} \"{name}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_of_a_missing_image_names_the_image() {
        for reason in IMAGE_PULL_REASONS {
            let view = ContainerView { name: "agent", waiting: Some((Some(reason), None)), ..ContainerView::default() };
            let problem = view.problem(|| "x:1".to_owned()).unwrap();
            assert_eq!(problem.missing_image(), Some("x:1"), "{reason}");
        }
    }
}
