//! The Pods whose logs are followed: which are being read, and up to which line.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

/// Pods whose logs are followed.
#[derive(Debug, Default)]
pub(super) struct FollowedPods {
    /// State by Pod name: whether its log is being read, and the time of its last line.
    pods: BTreeMap<String, (bool, Option<Timestamp>)>,
    /// Number of Pods that were ever followed: from the second one on each line names its Pod, even if the others are gone.
    begun: usize,
}

impl FollowedPods {
    /// Returns the Pods whose logs are to be opened, and from which time; Pods that are gone are removed.
    pub(super) fn begin<'a>(&mut self, pods: &'a [Pod]) -> Vec<(&'a Pod, Option<Timestamp>)> {
        let named = |name: &str| pods.iter().any(|pod| pod.metadata.name.as_deref() == Some(name));
        self.pods.retain(|name, (reading, _)| *reading || named(name));
        let mut begun = Vec::new();
        for pod in pods {
            let known = self.pods.entry(pod.metadata.name.clone().unwrap_or_default()).or_insert_with(|| {
                self.begun += 1;
                (false, None)
            });
            if !std::mem::replace(&mut known.0, true) {
                begun.push((pod, known.1));
            }
        }
        begun
    }

    /// Returns a line as it is printed; `None` if it was printed before.
    pub(super) fn line(&mut self, pod: &str, at: Option<Timestamp>, line: &str) -> Option<String> {
        let several = self.begun > 1;
        let (_, last) = self.pods.entry(pod.to_owned()).or_default();
        if at.is_some() && at <= *last {
            return None;
        }
        *last = at.or(*last);
        Some(if several { format!("{pod}  {line}\n") } else { format!("{line}\n") })
    }

    /// Records that a Pod's log has ended for now.
    pub(super) fn end(&mut self, pod: &str) {
        if let Some((reading, _)) = self.pods.get_mut(pod) {
            *reading = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str) -> Pod {
        serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap()
    }

    fn at(second: i64) -> Option<Timestamp> {
        Timestamp::from_second(second).ok()
    }

    #[test]
    fn a_log_that_ended_is_opened_again_behind_its_last_line() {
        let pods = [pod("a-1")];
        let mut followed = FollowedPods::default();
        assert_eq!(followed.begin(&pods).len(), 1);
        assert!(followed.begin(&pods).is_empty(), "it is being read");
        assert_eq!(followed.line("a-1", at(7), "one").as_deref(), Some("one\n"));
        followed.end("a-1");
        assert_eq!(followed.begin(&pods)[0].1, at(7));
        assert_eq!(followed.line("a-1", at(7), "one"), None, "the whole second is read again");
        assert_eq!(followed.line("a-1", at(8), "two").as_deref(), Some("two\n"));
    }

    #[test]
    fn of_several_pods_each_line_names_its_own() {
        let mut followed = FollowedPods::default();
        assert_eq!(followed.begin(&[pod("a-1"), pod("a-2")]).len(), 2);
        assert_eq!(followed.line("a-2", at(1), "x").as_deref(), Some("a-2  x\n"));
        followed.end("a-1");
        assert!(followed.begin(&[pod("a-2")]).is_empty());
        assert_eq!(followed.line("a-2", at(2), "y").as_deref(), Some("a-2  y\n"), "the other one is gone");
    }

    #[test]
    fn the_lines_of_a_rollout_name_their_pods_although_the_old_one_is_gone() {
        let mut followed = FollowedPods::default();
        followed.begin(&[pod("a-1")]);
        assert_eq!(followed.line("a-1", at(1), "x").as_deref(), Some("x\n"));
        followed.end("a-1");
        assert_eq!(followed.begin(&[pod("a-2")]).len(), 1);
        assert_eq!(followed.line("a-2", at(2), "y").as_deref(), Some("a-2  y\n"));
    }
}
