//! Metrics that every process has: its version, and what it takes of the machine, read from
//! [`/proc`](https://man7.org/linux/man-pages/man5/proc.5.html) at each scrape.
//!
//! Names and meanings are those that
//! [Prometheus](https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics) asks of client libraries, so
//! that dashboards for any process show these too.

use std::{fmt, fs, io};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, NoLabelSet},
    metrics::{MetricType, info::Info},
    registry::Registry,
};
use rustix::param::{clock_ticks_per_second, page_size};

/// Adds the metrics of this process; `process` is its name, such as `gateway`.
pub fn register(registry: &mut Registry, process: &'static str) {
    let build = Info::new([("process", process), ("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("recif_build", "Name and version of the process", build);
    // The sidecar shows the runner's metrics beside its own.
    let labelled = registry.sub_registry_with_label(("process".into(), process.into()));
    labelled.register_collector(Box::new(ProcessCollector));
}

#[derive(Debug)]
struct ProcessCollector;

/// Resources of this process, as `/proc` counts them.
struct ProcessUsage {
    /// User and system time, in seconds.
    cpu: f64,
    /// Resident memory, in bytes.
    resident: u64,
    /// Start, in seconds since 1970.
    start: f64,
    open_files: u64,
}

impl ProcessUsage {
    fn read() -> io::Result<Self> {
        let (stat, boot) = (fs::read_to_string("/proc/self/stat")?, fs::read_to_string("/proc/stat")?);
        // The name of the program comes first, in parentheses, and may hold spaces.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let field = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or_default();
        let seconds = |ticks: u64| ticks as f64 / clock_ticks_per_second() as f64;
        let boot = boot.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse::<f64>().ok());
        Ok(Self {
            cpu: seconds(field(11) + field(12)),
            resident: field(21) * page_size() as u64,
            start: boot.unwrap_or_default() + seconds(field(19)),
            // Without the one by which the folder is read.
            open_files: (fs::read_dir("/proc/self/fd")?.count() as u64).saturating_sub(1),
        })
    }
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        // Elsewhere than on Linux there is nothing to say.
        let Ok(usage) = ProcessUsage::read() else { return Ok(()) };
        let help = "User and system CPU time spent.";
        encoder
            .encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, u64>(&usage.cpu, None)?;
        let mut gauge = |name: &str, help: &str, value: f64| {
            encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
        };
        gauge("process_resident_memory_bytes", "Resident memory.", usage.resident as f64)?;
        gauge("process_start_time_seconds", "Start of the process, since 1970.", usage.start)?;
        gauge("process_open_fds", "Open file descriptors.", usage.open_files as f64)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn a_process_tells_its_version_and_what_it_takes() {
        let mut registry = Registry::default();
        register(&mut registry, "gateway");
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let build = format!("recif_build_info{{process=\"gateway\",version=\"{}\"}} 1\n", env!("CARGO_PKG_VERSION"));
        assert!(text.contains(&build), "{text}");
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix("{process=\"gateway\"} "));
            line.unwrap_or_else(|| panic!("no {name}: {text}")).parse().unwrap()
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        let age = now - value("process_start_time_seconds");
        assert!((-2.0..3600.0).contains(&age), "{age} s old");
        assert!(value("process_resident_memory_bytes") > 1e6 && value("process_resident_memory_bytes") < 1e10);
        assert!(value("process_cpu_seconds_total") < 3600.0);
        assert!((3.0..1000.0).contains(&value("process_open_fds")));
    }
}
