//! Loads over time. Arrivals and service times come from a generator with a fixed seed, so that every run is the same.

/// Load trace: the requests in flight at each second, if none had to wait.
pub(crate) struct LoadTrace {
    /// Name of the trace.
    pub(crate) name: &'static str,
    /// Length in seconds.
    pub(crate) seconds: u64,
    /// Load at a second.
    pub(crate) load: fn(f64) -> f64,
}

/// Traces of the benchmark.
pub(crate) const TRACES: &[LoadTrace] = &[
    LoadTrace { name: "step", seconds: 720, load: |at| if (60.0..420.0).contains(&at) { 40.0 } else { 2.0 } },
    LoadTrace { name: "ramp", seconds: 900, load: |at| 2.0 + 74.0 * (1.0 - (at / 300.0 - 1.0).abs()).max(0.0) },
    LoadTrace {
        name: "spike",
        seconds: 900,
        load: |at| if at % 180.0 >= 60.0 && at % 180.0 < 70.0 { 60.0 } else { 4.0 },
    },
    LoadTrace { name: "diurnal", seconds: 3600, load: |at| 36.0 - 34.0 * (at / 1800.0 * std::f64::consts::TAU).cos() },
];

/// Mean time that a request takes, in milliseconds.
pub(crate) const SERVICE_MS: u64 = 500;

/// Pseudorandom number generator (xorshift64*).
pub(crate) struct ArrivalRng(u64);

impl ArrivalRng {
    /// Creates the generator with the fixed seed.
    pub(crate) fn new() -> Self {
        Self(0x9E37_79B9_7F4A_7C15)
    }

    /// Returns a number from 0 to below 1.
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Reports whether a request arrives in this millisecond at such a load.
    pub(crate) fn arrives(&mut self, load: f64) -> bool {
        self.next() < load / SERVICE_MS as f64
    }

    /// Returns the service time of a request in milliseconds: a fifth of the mean at least, and at most the double less
    /// that.
    pub(crate) fn service_ms(&mut self) -> u64 {
        let least = SERVICE_MS / 5;
        least + (self.next() * (2 * (SERVICE_MS - least)) as f64) as u64
    }
}
