//! Figures about the traffic of an interface, and its needs on an EC2 instance.

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
    /// Figure for received packets.
    pub r#in: f64,
    /// Figure for sent packets.
    pub out: f64,
}

/// Traffic of one flow.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FlowShare {
    /// The flow as the network sees it, from the outermost headers.
    pub flow: Flow,
    /// Share of the flow in the bytes of both directions, from 0 to 1.
    pub share: f64,
    /// Bytes of the flow, from the IP header on.
    pub bytes: u64,
    /// Number of the flow's packets.
    pub packets: u64,
    /// Largest number of bits of the flow in a second; `None` if its record was dropped to limit
    /// memory.
    pub second_bps_max: Option<u64>,
}

/// Limits that an instance must have, so that it queues or drops no packet of the traffic.
#[derive(Clone, Debug, Serialize)]
pub struct Needs {
    /// Required headroom below limits: 0.2 means 20 %.
    pub headroom: f64,
    /// Bandwidth limit at which no packet waits, in bits per second.
    pub bandwidth_bps: Directed,
    /// Mean rate over the captured time, in bits per second.
    pub mean_bps: Directed,
    /// Limit of bandwidth to and from public addresses at which no packet waits, in bits per
    /// second.
    pub gateway_bps: Directed,
    /// Limit of packets per second, for both directions together, at which no packet waits.
    pub packets_per_second: f64,
    /// Largest number of tracked connections, for each set of idle timeouts in
    /// [`ConnectionsSeen::entries`].
    pub entries: [u64; 3],
    /// The flow with the most bits in any second, and this number of bits; `None` without packets.
    pub fastest: Option<(Flow, u64)>,
    /// Packets that the ceiling of one flow would delay or drop, for three destinations: outside of
    /// a placement group, inside of a placement group, and with ENA Express. Each has two numbers:
    /// without headroom, and with headroom.
    pub flow_over: [[u64; 2]; 3],
    /// Backlog of each direction at each baseline rate. Network credits have to cover this backlog.
    #[serde(skip)]
    pub(crate) backlog: [Backlog; 2],
}

/// Figures about the captured traffic of an interface.
#[derive(Clone, Debug, Serialize)]
pub struct TrafficSummary {
    /// Name of the interface or file.
    pub name: String,
    /// The interface's name in its system; `None` if a capture file does not contain it.
    #[serde(skip)]
    pub interface: Option<String>,
    /// Captured time, in nanoseconds.
    pub seen_ns: u64,
    /// Packets of both directions; a super-packet counts as the packets that it stands for.
    pub packets: u64,
    /// Bytes of each direction, from the IP header on.
    pub bytes: Directed,
    /// Number of skipped packets: frames without IP, and packets that are not supported.
    pub others: u64,
    /// The skipped packets of [`Self::others`], by kind.
    #[serde(skip)]
    pub named_others: SkipCounts,
    /// Packets that arrived but were not captured.
    pub lost: u64,
    /// Number of times that the clock was set back.
    pub clock_set_back: u64,
    /// Length in bytes of the longest packet, from the IP header on; the segments of a super-packet
    /// count as packets.
    pub largest_bytes: u32,
    /// Rates in received bits per second, over periods of three lengths (1 ms, 1 s and 60 s).
    pub rates_in: [Rates; 3],
    /// Rates in sent bits per second, over periods of three lengths (1 ms, 1 s and 60 s).
    pub rates_out: [Rates; 3],
    /// Rates in packets per second, both directions together, over periods of three lengths (1 ms,
    /// 1 s and 60 s).
    pub rates_packets: [Rates; 3],
    /// Approximate number of flows, as the network sees them.
    pub flow_count: f64,
    /// Effective number of flows: the number of flows of equal size that would spread the bytes as
    /// evenly as the flows of this traffic do.
    pub flows_effective: f64,
    /// Number of flows whose records were dropped to limit memory.
    pub flows_forgotten: u64,
    /// The flows with the most bytes, the largest first.
    pub flows: Vec<FlowShare>,
    /// Tunnels, the largest first; a tunnel is identified by its outer addresses and its kind.
    pub tunnels: Vec<TunnelSeen>,
    /// Packets of tunnels that are not counted separately, because the table of tunnels was full.
    pub tunnels_others: u64,
    /// Figures about the connections that were captured.
    pub connections: ConnectionsSeen,
    /// Packets sent to link-local services beyond the limit of an EC2 interface.
    pub link_local_over: u64,
    /// Fragments sent beyond the limit of an EC2 interface.
    pub fragments_over: u64,
    /// Limits that the traffic needs.
    pub needs: Needs,
    /// Bytes over time, for received and for sent packets.
    #[serde(skip)]
    pub lines: [Timeline; 2],
}

impl TrafficSummary {
    /// Returns the largest rate, in bits per second, over periods of one length, of the direction
    /// with the larger rate. `period` is an index into [`crate::rates::PERIODS_NS`].
    pub fn peak_bps(&self, period: usize) -> f64 {
        self.rates_in[period].max.max(self.rates_out[period].max)
    }

    /// Returns the mean length of a packet in bytes.
    pub fn packet_bytes(&self) -> f64 {
        (self.bytes.r#in + self.bytes.out) / self.packets.max(1) as f64
    }
}
