//! The other gateways: who they are, and what each of them has read of the own admissions.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

use super::{report::LimitReport, window::PeerView};

/// Other gateways, by the addresses of their admin ports.
///
/// Invariant: the atomics are what [`PeerTable::refresh`] computes of the records.
#[derive(Debug)]
pub(super) struct PeerTable {
    /// Instance of this gateway.
    own: u64,
    records: Mutex<HashMap<SocketAddr, PeerRecord>>,
    others: AtomicU32,
    read: AtomicU64,
    read_at: AtomicU64,
}

/// One of the listed gateways, which may be this one.
#[derive(Debug, Default)]
struct PeerRecord {
    /// Its instance; 0 until it was read.
    instance: u64,
    /// Set while nothing listens at its address, so that it admits nothing.
    is_absent: bool,
    /// Version of its counts that this gateway has read.
    known: u64,
    /// Version of the own counts that it has read, and the time of that version.
    read: u64,
    read_at: u64,
    /// Version of the own counts that it was sent last, and the time.
    sent: (u64, u64),
}

impl PeerRecord {
    /// Notes an exchange. An acknowledgement counts only if what the other gateway had admitted until then is known, too: two
    /// gateways that do not know of each other must not both take the rest of a limit.
    fn note(&mut self, own: u64, report: &LimitReport) {
        if report.after > self.known {
            return;
        }
        self.known = self.known.max(report.version);
        if report.to == own && !report.more {
            self.read = self.read.max(report.read);
            if self.read >= self.sent.0 {
                self.read_at = self.read_at.max(self.sent.1);
            }
        }
    }
}

impl PeerTable {
    /// Creates a table without others.
    pub(super) fn new(own: u64) -> Self {
        let alone = (AtomicU32::new(0), AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX));
        Self { own, records: Mutex::default(), others: alone.0, read: alone.1, read_at: alone.2 }
    }

    /// Returns what is known of the others.
    pub(super) fn view(&self) -> PeerView {
        PeerView {
            others: self.others.load(Relaxed),
            read: self.read.load(Relaxed),
            read_at: self.read_at.load(Relaxed),
        }
    }

    /// Sets the addresses of all gateways.
    pub(super) fn list(&self, addresses: &[SocketAddr]) {
        let mut records = self.records();
        records.retain(|address, _| addresses.contains(address));
        for address in addresses {
            records.entry(*address).or_default();
        }
        self.refresh(&records);
    }

    /// Reports whether this gateway itself answered at the address.
    pub(super) fn is_own(&self, address: SocketAddr) -> bool {
        self.records().get(&address).is_some_and(|record| record.instance == self.own)
    }

    /// Notes that nothing listens at the address.
    pub(super) fn set_absent(&self, address: SocketAddr) {
        let mut records = self.records();
        if let Some(record) = records.get_mut(&address) {
            *record = PeerRecord { is_absent: true, ..PeerRecord::default() };
        }
        self.refresh(&records);
    }

    /// Returns the head of a report for the gateway at this address.
    pub(super) fn greeting(&self, address: SocketAddr) -> LimitReport {
        let records = self.records();
        let (to, read, after) =
            records.get(&address).map_or((0, 0, 0), |record| (record.instance, record.known, record.read));
        LimitReport { from: self.own, to, read, after, ..LimitReport::default() }
    }

    /// Notes that the gateway at the address was sent this version at this time.
    pub(super) fn note_sent(&self, address: SocketAddr, version: u64, up: u64) {
        if let Some(record) = self.records().get_mut(&address) {
            record.sent = (version, up);
        }
    }

    /// Notes the answer of the gateway at the address.
    pub(super) fn note_answer(&self, address: SocketAddr, answer: &LimitReport) {
        let mut records = self.records();
        let Some(record) = records.get_mut(&address) else { return };
        if record.instance != answer.from {
            let sent = record.sent;
            *record = PeerRecord { instance: answer.from, sent, ..PeerRecord::default() };
        }
        record.is_absent = false;
        record.note(self.own, answer);
        self.refresh(&records);
    }

    /// Notes the report of a gateway that asks. Returns the head of the answer, and whether the gateway was known.
    pub(super) fn note_question(&self, question: &LimitReport) -> (LimitReport, bool) {
        let mut records = self.records();
        let record = records.values_mut().find(|record| record.instance == question.from);
        let read = record.map(|record| {
            record.note(self.own, question);
            record.known
        });
        self.refresh(&records);
        let after = if question.to == self.own { question.read } else { 0 };
        let (from, to) = (self.own, question.from);
        let head = LimitReport { from, to, read: read.unwrap_or_default(), after, ..LimitReport::default() };
        (head, read.is_some())
    }

    fn refresh(&self, records: &HashMap<SocketAddr, PeerRecord>) {
        let own = self.own;
        let others = || records.values().filter(move |record| !record.is_absent && record.instance != own);
        self.others.store(u32::try_from(others().count()).unwrap_or(u32::MAX), Relaxed);
        self.read.store(others().map(|record| record.read).min().unwrap_or(u64::MAX), Relaxed);
        self.read_at.store(others().map(|record| record.read_at).min().unwrap_or(u64::MAX), Relaxed);
    }

    fn records(&self) -> MutexGuard<'_, HashMap<SocketAddr, PeerRecord>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
