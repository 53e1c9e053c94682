//! Conversion of events to packets. A packet is returned once it has left or was dropped.

use std::collections::BTreeMap;

use serde::Serialize;
use srd_guest::protocol::{
    TraceArrived, TraceEvent, TraceHop, TraceJudged, TraceLimit, TraceRecord, TraceRefusal,
};

/// A packet and its path through the card.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Packet {
    /// Time of arrival, in nanoseconds since 1970.
    pub(super) unix_ns: u64,
    /// The packet.
    #[serde(flatten)]
    pub(super) arrived: TraceArrived,
    /// Decisions of groups, lists and routes.
    pub(super) judged: Option<TraceJudged>,
    /// Limits that delayed the packet.
    pub(super) waited_for: Vec<TraceLimit>,
    /// Other reasons for a delay.
    pub(super) held: Vec<String>,
    /// Outcome of the packet.
    pub(super) end: End,
    /// Time from its first event to its last, in nanoseconds.
    pub(super) took_ns: u64,
}

/// Outcome of a packet.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum End {
    /// The packet left to this hop.
    Gone(TraceHop),
    /// The packet was dropped.
    Refused(TraceRefusal),
    /// A limit dropped the packet.
    OverLimit(TraceLimit),
    /// The packet still waits.
    Waits,
}

/// Packets without an outcome so far.
#[derive(Debug, Default)]
pub(super) struct Packets {
    open: BTreeMap<u32, Packet>,
}

impl Packets {
    /// Records an event. Returns its packet if this was the last event.
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

    /// Returns packets whose outcome was not recorded.
    pub(super) fn rest(self) -> impl Iterator<Item = Packet> {
        self.open.into_values()
    }
}
