//! Combines the card's events into packets. A packet is complete once it has left the card or was
//! dropped.

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
    /// The packet as it arrived at the card.
    #[serde(flatten)]
    pub(super) arrived: TraceArrived,
    /// Decisions of security groups, network ACLs and route tables; `None` if the packet did not
    /// reach them.
    pub(super) judged: Option<TraceJudged>,
    /// Limits that delayed the packet.
    pub(super) waited_for: Vec<TraceLimit>,
    /// Reasons for delays other than limits, as text.
    pub(super) held: Vec<String>,
    /// Outcome of the packet.
    pub(super) end: End,
    /// Time from the packet's first event to its last, in nanoseconds.
    pub(super) took_ns: u64,
}

/// Outcome of a packet.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum End {
    /// The packet left to this hop.
    Gone(TraceHop),
    /// The packet was dropped by a rule or for another cause, but not by a limit.
    Refused(TraceRefusal),
    /// The packet was dropped by a limit.
    OverLimit(TraceLimit),
    /// The packet still waits in the card at the end of the trace.
    Waits,
}

/// Packets whose outcome is not known yet.
#[derive(Debug, Default)]
pub(super) struct Packets {
    open: BTreeMap<u32, Packet>,
}

impl Packets {
    /// Records an event of a packet. Returns the packet if this event is its last one.
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

    /// Returns the packets whose outcome is still unknown.
    pub(super) fn rest(self) -> impl Iterator<Item = Packet> {
        self.open.into_values()
    }
}
