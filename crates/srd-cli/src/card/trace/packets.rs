//! From events to packets: each is told once it is through, or dropped.

use std::collections::BTreeMap;

use serde::Serialize;
use srd_guest::protocol::{
    TraceArrived, TraceEvent, TraceHop, TraceJudged, TraceLimit, TraceRecord, TraceRefusal,
};

/// A packet and its way.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Packet {
    /// When it came, in nanoseconds since 1970.
    pub(super) unix_ns: u64,
    /// The packet.
    #[serde(flatten)]
    pub(super) arrived: TraceArrived,
    /// What groups, lists and routes said.
    pub(super) judged: Option<TraceJudged>,
    /// The limits that held it up.
    pub(super) waited_for: Vec<TraceLimit>,
    /// Other reasons for which it was held.
    pub(super) held: Vec<String>,
    /// How it ended.
    pub(super) end: End,
    /// From its first event to its last, nanoseconds.
    pub(super) took_ns: u64,
}

/// How a packet ended.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum End {
    /// It went there.
    Gone(TraceHop),
    /// It was dropped.
    Refused(TraceRefusal),
    /// A limit dropped it.
    OverLimit(TraceLimit),
    /// It still waits.
    Waits,
}

/// Packets that have not ended.
#[derive(Debug, Default)]
pub(super) struct Packets {
    open: BTreeMap<u32, Packet>,
}

impl Packets {
    /// Takes note of an event; returns its packet if it was the last.
    pub(super) fn take(&mut self, record: TraceRecord) -> Option<Packet> {
        let TraceRecord { packet: number, unix_ns, event } = record;
        if let TraceEvent::Arrived(arrived) = event {
            let (judged, waited_for, held) = (None, Vec::new(), Vec::new());
            let (end, took_ns) = (End::Waits, 0);
            let packet = Packet { unix_ns, arrived, judged, waited_for, held, end, took_ns };
            self.open.insert(number, packet);
            return None;
        }
        let is_last = event.is_last();
        let packet = self.open.get_mut(&number)?;
        packet.took_ns = unix_ns.saturating_sub(packet.unix_ns);
        match event {
            TraceEvent::Judged(judged) => {
                if let Some(refusal) = &judged.refusal {
                    packet.end = End::Refused(refusal.clone());
                }
                packet.judged = Some(judged);
            }
            TraceEvent::Waits { limit } => packet.waited_for.extend(limit),
            TraceEvent::Held { why } => packet.held.push(why),
            TraceEvent::OverLimit { limit } => packet.end = End::OverLimit(limit),
            TraceEvent::Dropped(refusal) => packet.end = End::Refused(refusal),
            TraceEvent::Gone { to } => packet.end = End::Gone(to),
            TraceEvent::Arrived(_) => {}
        }
        if is_last { self.open.remove(&number) } else { None }
    }

    /// Packets whose end was not seen.
    pub(super) fn rest(self) -> impl Iterator<Item = Packet> {
        self.open.into_values()
    }
}
