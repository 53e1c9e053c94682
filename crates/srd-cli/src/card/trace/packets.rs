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

/// Largest number of packets whose outcome is not known yet. The card drops events if they are not
/// read in time, and without its last event a packet would stay here until the end of the trace.
const OPEN_MAX: usize = 16_384;

/// Packets whose outcome is not known yet.
#[derive(Debug, Default)]
pub(super) struct Packets {
    open: BTreeMap<u32, Packet>,
}

impl Packets {
    /// Records an event of a packet. Returns the packet if this event is the packet's last event.
    /// If [`OPEN_MAX`] packets are open when another one arrives, returns the oldest of them.
    pub(super) fn take(&mut self, record: TraceRecord) -> Option<Packet> {
        let TraceRecord { packet: number, unix_ns, event } = record;
        if let TraceEvent::Arrived(arrived) = event {
            let (judged, waited_for, held) = (None, Vec::new(), Vec::new());
            let (end, took_ns) = (End::Waits, 0);
            let packet = Packet { unix_ns, arrived, judged, waited_for, held, end, took_ns };
            // The card uses the numbers of packets again.
            if let Some(earlier) = self.open.insert(number, packet) {
                return Some(earlier);
            }
            let is_full = self.open.len() > OPEN_MAX;
            return if is_full { self.open.pop_first().map(|(_, oldest)| oldest) } else { None };
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use serde_json::Value;
    use srd_guest::protocol::TraceFlow;
    use srd_vpc_file::words::StepRecord;

    /// Collects the keys of a JSON value, and the names of its variants.
    fn collect(value: &Value, keys: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    keys.insert(key.clone());
                    if let ("kind", Value::String(kind)) = (key.as_str(), value) {
                        keys.insert(kind.clone());
                    }
                    collect(value, keys);
                }
            }
            Value::Array(values) => values.iter().for_each(|value| collect(value, keys)),
            _ => {}
        }
    }

    fn packet(end: End, next: Option<TraceHop>) -> Packet {
        let flow = TraceFlow { state: "single".into(), is_tracked: true, local_first: true };
        let arrived = TraceArrived {
            instance: "web".into(),
            device: "ens5".into(),
            is_egress: true,
            source: [10, 0, 1, 10].into(),
            destination: [10, 0, 2, 10].into(),
            protocol: "tcp".into(),
            ports: Some((5000, 80)),
            is_fragment: false,
            bytes: 60,
            packets: 1,
            flow: Some(flow.clone()),
            head: String::new(),
        };
        let step = StepRecord { at: "a list".into(), says: "rule 1".into(), passes: true };
        let judged = TraceJudged {
            by_rules: true,
            next,
            refusal: None,
            steps: vec![step],
            flow: Some(flow),
        };
        Packet {
            unix_ns: 1,
            arrived,
            judged: Some(judged),
            waited_for: Vec::new(),
            held: Vec::new(),
            end,
            took_ns: 2,
        }
    }

    /// Regression: packets whose last event was lost stayed in memory until the end of the trace.
    #[test]
    fn regression_packets_without_a_last_event_have_a_limit() {
        let mut packets = Packets::default();
        let arrives = |number: u32| {
            let event = TraceEvent::Arrived(packet(End::Waits, None).arrived);
            TraceRecord { packet: number, unix_ns: number.into(), event }
        };
        let end = u32::try_from(OPEN_MAX).unwrap();
        assert!((0..end).all(|number| packets.take(arrives(number)).is_none()));
        let oldest = packets.take(arrives(end)).unwrap();
        assert!(oldest.unix_ns == 0 && matches!(oldest.end, End::Waits), "{oldest:?}");
        // The card uses the number of a packet again.
        assert_eq!(packets.take(arrives(end)).map(|packet| packet.unix_ns), Some(end.into()));
        assert_eq!(packets.rest().count(), OPEN_MAX);
    }

    #[test]
    fn each_key_of_the_json_is_documented() {
        let name = String::new;
        let limit = TraceLimit { what: name(), counter: name() };
        let refusal = TraceRefusal { cause: name(), why: name(), remedy: name() };
        let hops = [
            TraceHop::Guest,
            TraceHop::Interface { instance: name(), device: name() },
            TraceHop::Host {
                host: name(),
                interface: name(),
                express: false,
                plainly: Some(name()),
                waits: true,
            },
            TraceHop::Gateway { gateway: name(), host: name(), waits: true },
            TraceHop::Nat { gateway: name(), interface: None },
            TraceHop::Service { service: name() },
        ];
        let mut packets = vec![
            packet(End::Refused(refusal), None),
            packet(End::OverLimit(limit.clone()), None),
            packet(End::Waits, None),
        ];
        packets[0].waited_for.push(limit);
        packets.extend(hops.into_iter().map(|hop| packet(End::Gone(hop.clone()), Some(hop))));
        let mut keys = BTreeSet::new();
        for packet in &packets {
            collect(&serde_json::to_value(packet).unwrap(), &mut keys);
        }
        let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/card.md");
        let document = std::fs::read_to_string(document).unwrap();
        let begin = document.find("| key of each line of `srd card trace --json`").unwrap();
        let tables = &document[begin..];
        let tables = &tables[..tables.find("srd card capture web").unwrap()];
        // Keys are between backticks; the same words in sentences do not count.
        let code = tables.split('`').skip(1).step_by(2);
        let is_part = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        let words: BTreeSet<&str> = code.flat_map(|code| code.split(|c| !is_part(c))).collect();
        let missing: Vec<_> = keys.iter().filter(|key| !words.contains(key.as_str())).collect();
        assert!(missing.is_empty() && keys.len() > 40, "{missing:?} of {keys:?}");
    }
}
