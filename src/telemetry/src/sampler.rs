//! Decision whether a trace is recorded.

use crate::context::TraceContext;

/// Sampler of the standard: which traces are recorded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    /// Set if the decision of a request's sender is kept.
    is_parent_based: bool,
    /// Decision on other traces.
    root: RootSampling,
}

/// Decision on a trace that begins here.
#[derive(Debug, Clone, Copy, PartialEq)]
enum RootSampling {
    Always,
    Never,
    /// This part of the traces, by their ids: another process with the same ratio decides alike.
    Ratio(f64),
}

impl Default for Sampler {
    fn default() -> Self {
        Self { is_parent_based: true, root: RootSampling::Always }
    }
}

impl Sampler {
    /// Names of all samplers.
    pub(crate) const NAMES: &str = "always_on, always_off, traceidratio, parentbased_always_on, parentbased_always_off or \
                                    parentbased_traceidratio";

    /// Returns the sampler of this name; `ratio` is for those by ratio.
    pub(crate) fn named(name: &str, ratio: f64) -> Option<Self> {
        let (is_parent_based, root) = match name.strip_prefix("parentbased_") {
            Some(root) => (true, root),
            None => (false, name),
        };
        let root = match root {
            "always_on" => RootSampling::Always,
            "always_off" => RootSampling::Never,
            "traceidratio" => RootSampling::Ratio(ratio),
            _ => return None,
        };
        Some(Self { is_parent_based, root })
    }

    /// Reports whether spans of the trace are recorded; `parent` is the sender of the request.
    pub fn samples(&self, parent: Option<&TraceContext>, trace_id: &[u8; 16]) -> bool {
        match (parent, self.root) {
            (Some(parent), _) if self.is_parent_based => parent.is_sampled,
            (_, RootSampling::Always) => true,
            (_, RootSampling::Never) => false,
            (_, RootSampling::Ratio(ratio)) => fraction(trace_id) < ratio,
        }
    }
}

/// Returns a number from 0 up to 1 that the id of a trace stands for: its last 32 of the 56 bits that are random.
fn fraction(trace_id: &[u8; 16]) -> f64 {
    let [.., a, b, c, d] = *trace_id;
    f64::from(u32::from_be_bytes([a, b, c, d])) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(name: &str, ratio: f64, parent: Option<bool>) -> bool {
        let parent = parent.map(TraceContext::root);
        let mut id = [1; 16];
        // Half of all ids are lower.
        id[12..].copy_from_slice(&[0x80, 0, 0, 0]);
        Sampler::named(name, ratio).unwrap().samples(parent.as_ref(), &id)
    }

    #[test]
    fn each_name_decides_as_the_standard_says() {
        for (name, ratio, without, with_sampled, with_unsampled) in [
            ("always_on", 0.0, true, true, true),
            ("always_off", 1.0, false, false, false),
            ("traceidratio", 0.6, true, true, true),
            ("traceidratio", 0.5, false, false, false),
            ("parentbased_always_on", 0.0, true, true, false),
            ("parentbased_always_off", 0.0, false, true, false),
            ("parentbased_traceidratio", 0.6, true, true, false),
            ("parentbased_traceidratio", 0.5, false, true, false),
        ] {
            let found = [None, Some(true), Some(false)].map(|parent| sampled(name, ratio, parent));
            assert_eq!(found, [without, with_sampled, with_unsampled], "{name} {ratio}");
        }
        assert_eq!(Sampler::named("xray", 1.0), None);
        assert_eq!(Sampler::named("parentbased_always_on", 1.0), Some(Sampler::default()));
    }

    #[test]
    fn a_ratio_of_one_records_all() {
        assert!(Sampler::named("traceidratio", 1.0).unwrap().samples(None, &[0xff; 16]));
        assert!(!Sampler::named("traceidratio", 0.0).unwrap().samples(None, &[0; 16]));
    }
}
