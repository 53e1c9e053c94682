//! Traffic of an interface, and its needs on an instance: plain figures.

use serde::Serialize;
use srd_watch::Flow;
use srd_watch::other::SkipCounts;
use srd_watch::timeline::Timeline;

use crate::analysis::connections::ConnectionsSeen;
use crate::analysis::ladder::Backlog;
use crate::analysis::rates::Rates;
use crate::analysis::tunnels::TunnelSeen;

/// A figure for each direction.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Directed {
    /// Figure of received packets.
    pub r#in: f64,
    /// Figure of sent packets.
    pub out: f64,
}

/// A flow with its traffic.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FlowShare {
    /// The flow as the network sees it.
    pub flow: Flow,
    /// Share of all bytes of both directions.
    pub share: f64,
    /// Bytes from the IP header on.
    pub bytes: u64,
    /// Number of packets.
    pub packets: u64,
    /// Largest number of bits in a second, if it is known.
    pub second_bps_max: Option<u64>,
}

/// Limits that an instance must have, so that no allowance is exceeded.
#[derive(Clone, Debug, Serialize)]
pub struct Needs {
    /// Required headroom below limits: 0.2 for a fifth.
    pub headroom: f64,
    /// Bandwidth at which no packet waits, in bits per second.
    pub bandwidth_bps: Directed,
    /// Mean rate, in bits per second.
    pub mean_bps: Directed,
    /// Bandwidth to public addresses at which no packet waits, in bits per second.
    pub gateway_bps: Directed,
    /// Limit of packets per second of both directions at which no packet waits.
    pub packets_per_second: f64,
    /// Tracked connections, as in [`ConnectionsSeen::entries`].
    pub entries: [u64; 3],
    /// The flow with the most bits in a second, and this number of bits.
    pub fastest: Option<(Flow, u64)>,
    /// Packets that the ceiling of one flow would hold up: outside of a placement group, inside,
    /// with ENA Express; each without and with headroom.
    pub flow_over: [[u64; 2]; 3],
    /// Backlog that credits have to cover.
    #[serde(skip)]
    pub(crate) backlog: [Backlog; 2],
}

/// Captured traffic of an interface.
#[derive(Clone, Debug, Serialize)]
pub struct TrafficSummary {
    /// Name of the interface or file.
    pub name: String,
    /// The interface's name in the system, if it is known.
    #[serde(skip)]
    pub interface: Option<String>,
    /// Captured time, in nanoseconds.
    pub seen_ns: u64,
    /// Packets of both directions; a super-packet counts as the packets that it stands for.
    pub packets: u64,
    /// Bytes from the IP header on.
    pub bytes: Directed,
    /// Frames without IP, and packets that were not read.
    pub others: u64,
    /// [`Self::others`] by kind.
    #[serde(skip)]
    pub named_others: SkipCounts,
    /// Packets that arrived but were not captured.
    pub lost: u64,
    /// Number of times that the clock was set back.
    pub clock_set_back: u64,
    /// Bytes of the largest single packet, from the IP header on; for a super-packet, the largest
    /// segment.
    pub largest_bytes: u32,
    /// Received bits per second.
    pub rates_in: [Rates; 3],
    /// Sent bits per second.
    pub rates_out: [Rates; 3],
    /// Packets per second of both directions.
    pub rates_packets: [Rates; 3],
    /// Approximate number of flows, as the network sees them.
    pub flow_count: f64,
    /// Effective number of flows: the number of equal flows with the same spread of bytes.
    pub flows_effective: f64,
    /// Number of flows that were dropped to limit memory.
    pub flows_forgotten: u64,
    /// The largest flows.
    pub flows: Vec<FlowShare>,
    /// Tunnels, identified by their ends.
    pub tunnels: Vec<TunnelSeen>,
    /// Packets of tunnels beyond the limit of the table.
    pub tunnels_others: u64,
    /// Figures of connections.
    pub connections: ConnectionsSeen,
    /// Packets to link-local services beyond the limit of an interface.
    pub link_local_over: u64,
    /// Fragments beyond the limit of an interface.
    pub fragments_over: u64,
    /// Needs of the traffic.
    pub needs: Needs,
    /// Bytes over time: received, sent.
    #[serde(skip)]
    pub lines: [Timeline; 2],
}

impl TrafficSummary {
    /// Returns the peak in bits per second over periods of this index, of the direction with the
    /// higher peak.
    pub fn peak_bps(&self, period: usize) -> f64 {
        self.rates_in[period].max.max(self.rates_out[period].max)
    }

    /// Returns the mean bytes of a packet.
    pub fn packet_bytes(&self) -> f64 {
        (self.bytes.r#in + self.bytes.out) / self.packets.max(1) as f64
    }
}
