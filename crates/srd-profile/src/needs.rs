//! Traffic of an interface, and its needs on an instance: plain figures.

use serde::Serialize;
use srd_watch::Flow;
use srd_watch::other::SkipCounts;
use srd_watch::timeline::Timeline;

use crate::connections::ConnectionsSeen;
use crate::ladder::Backlog;
use crate::rates::Rates;
use crate::tunnels::TunnelSeen;

/// A figure of either direction.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Directed {
    /// Figure of received packets.
    pub r#in: f64,
    /// Figure of sent packets.
    pub out: f64,
}

/// A flow with what it carried.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FlowShare {
    /// The flow as the network sees it.
    pub flow: Flow,
    /// Share of all bytes of both directions.
    pub share: f64,
    /// Bytes from the IP header on.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// Largest number of bits in a second.
    pub second_bps_max: Option<u64>,
}

/// Limits that an instance must have, so that no allowance is exceeded.
#[derive(Clone, Debug, Serialize)]
pub struct Needs {
    /// Headroom that limits must have: 0.2 for a fifth.
    pub headroom: f64,
    /// Bandwidth at which no packet waits, in bits per second.
    pub bandwidth_bps: Directed,
    /// The mean, in bits per second.
    pub mean_bps: Directed,
    /// Bandwidth to public addresses at which no packet waits, in bits per second.
    pub gateway_bps: Directed,
    /// Packets a second of both directions at which no packet waits.
    pub packets_per_second: f64,
    /// Tracked connections, as in [`ConnectionsSeen::entries`].
    pub entries: [u64; 3],
    /// The flow with the most bits in a second, and these.
    pub fastest: Option<(Flow, u64)>,
    /// Packets that the ceiling of one flow would hold up: outside of a placement group, inside,
    /// with ENA Express; each without and with headroom.
    pub flow_over: [[u64; 2]; 3],
    /// Backlog that credits have to make up for.
    #[serde(skip)]
    pub(crate) backlog: [Backlog; 2],
}

/// Traffic that was seen.
#[derive(Clone, Debug, Serialize)]
pub struct TrafficSummary {
    /// The interface or file.
    pub name: String,
    /// The interface's own name, if it is known.
    #[serde(skip)]
    pub interface: Option<String>,
    /// Time that was seen, in nanoseconds.
    pub seen_ns: u64,
    /// Packets of both directions; a super-packet counts as those that it stands for.
    pub packets: u64,
    /// Bytes from the IP header on.
    pub bytes: Directed,
    /// Frames without IP, and packets that were not read.
    pub others: u64,
    /// [`Self::others`] by kind.
    #[serde(skip)]
    pub named_others: SkipCounts,
    /// Packets that were not seen.
    pub lost: u64,
    /// Number of times that the clock was set back.
    pub clock_set_back: u64,
    /// The largest single packet, from the IP header on: of a super-packet, one of its segments.
    pub largest_bytes: u32,
    /// Bits a second, received.
    pub rates_in: [Rates; 3],
    /// Bits a second, sent.
    pub rates_out: [Rates; 3],
    /// Packets a second, both directions.
    pub rates_packets: [Rates; 3],
    /// About how many flows there were, as the network sees them.
    pub flow_count: f64,
    /// Among how many equal flows the bytes would be as spread.
    pub flows_effective: f64,
    /// Flows that were let go to bound memory.
    pub flows_forgotten: u64,
    /// The largest flows.
    pub flows: Vec<FlowShare>,
    /// Tunnels by their ends.
    pub tunnels: Vec<TunnelSeen>,
    /// Packets of tunnels that found no place.
    pub tunnels_others: u64,
    /// Connections.
    pub connections: ConnectionsSeen,
    /// Packets to link-local services beyond what an interface may send.
    pub link_local_over: u64,
    /// Fragments beyond what an interface may send.
    pub fragments_over: u64,
    /// Needs of the traffic.
    pub needs: Needs,
    /// Bytes over time: received, sent.
    #[serde(skip)]
    pub lines: [Timeline; 2],
}

impl TrafficSummary {
    /// Bits a second of the direction with the higher figure, over periods of this index.
    pub fn peak_bps(&self, period: usize) -> f64 {
        self.rates_in[period].max.max(self.rates_out[period].max)
    }

    /// Bytes of a packet, on average.
    pub fn packet_bytes(&self) -> f64 {
        (self.bytes.r#in + self.bytes.out) / self.packets.max(1) as f64
    }
}
