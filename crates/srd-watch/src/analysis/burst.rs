//! The report of a burst.

use serde::Serialize;
use srd_card::limits::Limit;

use crate::sources::arrival::{Flow, PacketDirection};

/// A limit that a burst came near to or exceeded.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Reached {
    /// Name of the counter in `ethtool -S` for packets that the limit queues or drops. EC2 has no
    /// counter for the ceiling of one flow, so this project chose that name.
    pub counter: &'static str,
    /// Display name of the limit.
    pub name: &'static str,
    /// The limit in bits per second; `None` for a limit of packets.
    pub bps: Option<u64>,
    /// Whether the model queued or dropped packets at this limit. If not, arrivals only reached the
    /// threshold, a share of the limit.
    pub exceeded: bool,
    /// Packets that waited before this limit in the model.
    pub queued: u64,
    /// Packets that the limit dropped in the model.
    pub dropped: u64,
}

/// Returns the display name of a limit.
pub(crate) fn name_of(limit: Limit) -> &'static str {
    match limit {
        Limit::BandwidthIn => "bandwidth in",
        Limit::BandwidthOut => "bandwidth out",
        Limit::Packets => "packets a second",
        Limit::Fragments => "fragments a second",
        Limit::Tracking => "tracked connections",
        Limit::LinkLocal => "packets a second to link-local services",
        Limit::Flow => "bandwidth of one flow",
        Limit::Gateway => "bandwidth through gateways",
    }
}

/// Traffic of one flow in a burst.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Share {
    /// The flow that has this share.
    pub flow: Flow,
    /// Bytes of the flow in the burst, from the IP header on.
    pub bytes: u64,
    /// Packets of the flow in the burst.
    pub packets: u64,
    /// Share of the burst's bytes, from 0 to 1.
    pub share: f64,
    /// Packets of the flow that waited in the model; a packet counts once, at its first limit.
    pub queued: u64,
    /// Packets of the flow that the model dropped at their first limit.
    pub dropped: u64,
}

/// A tunnel whose inner flows share the ceiling of one flow, because the network sees only the
/// outer flow.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Whale {
    /// The outer flow, which the network sees.
    pub outer: Flow,
    /// Number of inner flows that sent packets in the burst.
    pub inner_flows: u64,
    /// Bytes of all inner flows in the burst.
    pub bytes: u64,
}

/// Growth of one of the driver's counters during a burst.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Increment {
    /// Name of the driver's counter.
    pub counter: String,
    /// Growth of the counter during the burst, in packets.
    pub packets: u64,
}

/// A burst: a time in which the traffic of one direction came near to a limit or exceeded it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Burst {
    /// The name of the interface, or of the capture file.
    pub interface: String,
    /// Direction of the burst.
    pub way: PacketDirection,
    /// Start of the burst in nanoseconds since 1970: the beginning of the burst's first bin.
    pub start_ns: u64,
    /// Length in nanoseconds, a multiple of the length of a bin.
    pub length_ns: u64,
    /// Whether the next part of the same burst follows. A burst longer than a minute is reported in
    /// parts.
    pub continues: bool,
    /// Bytes of the burst, from the IP header on.
    pub bytes: u64,
    /// Packets of the burst; a super-packet counts as the packets that it stands for.
    pub packets: u64,
    /// The rate in the bin with the most bytes, in bits per second.
    pub peak_bps: u64,
    /// The mean rate over the burst, in bits per second.
    pub mean_bps: u64,
    /// The mean rate, in bits per second, over the second that ends with the burst.
    pub second_bps: u64,
    /// The mean rate, in bits per second, over the minute that ends with the burst, or over the
    /// watched part of that minute.
    pub minute_bps: u64,
    /// Watched part of the minute that ends with the burst, in nanoseconds.
    pub minute_seen_ns: u64,
    /// The bandwidth limit of the burst's direction at its start, in bits per second.
    pub limit_bps: u64,
    /// Packets that waited in the model; a packet counts once, at its first limit.
    pub queued: u64,
    /// Packets that the model dropped.
    pub dropped: u64,
    /// The limits that the burst came near to or exceeded.
    pub limits: Vec<Reached>,
    /// The flows that carried the most bytes, the largest first.
    pub flows: Vec<Share>,
    /// Number of flows that were counted. If `flows_error_bytes` is not zero, the burst had more
    /// flows.
    pub flows_counted: u64,
    /// Largest number of bytes that may be missing in the figure of any one flow; zero if all
    /// figures are exact.
    pub flows_error_bytes: u64,
    /// Tunnels with several inner flows, if the ceiling of one flow was exceeded.
    pub whales: Vec<Whale>,
    /// Growth of the driver's allowance counters during the burst; empty without such counters.
    pub allowances: Vec<Increment>,
    /// Packets of either direction that this program did not capture during the burst.
    pub missed: u64,
    /// Rate of each bin over time, as time and rate; in a long burst, of the largest of several
    /// bins. The time is in nanoseconds from the start of the burst (negative before it), and the
    /// rate in bits per second.
    #[serde(skip)]
    pub shape: Vec<(i64, u64)>,
}

impl Burst {
    /// Returns the end of the burst in nanoseconds since 1970.
    pub fn end_ns(&self) -> u64 {
        self.start_ns + self.length_ns
    }

    /// Returns the share of the burst's packets that waited in the model, from 0 to 1.
    pub fn queued_share(&self) -> f64 {
        self.queued as f64 / self.packets.max(1) as f64
    }

    /// Returns the share of the burst's packets that the model dropped, from 0 to 1.
    pub fn dropped_share(&self) -> f64 {
        self.dropped as f64 / self.packets.max(1) as f64
    }

    /// Returns the name and the bits per second of the limit to compare with the burst's rate. It
    /// is the exceeded limit that queued or dropped most packets. If no limit was exceeded, it is
    /// the bandwidth limit of the burst's direction.
    pub fn limit(&self) -> (&'static str, u64) {
        let exceeded = self.limits.iter().filter(|limit| limit.exceeded && limit.bps.is_some());
        let most = exceeded.max_by_key(|limit| limit.queued + limit.dropped);
        let of_direction = match self.way {
            PacketDirection::In => Limit::BandwidthIn,
            PacketDirection::Out => Limit::BandwidthOut,
        };
        let found = most.and_then(|limit| Some((limit.name, limit.bps?)));
        found.unwrap_or((name_of(of_direction), self.limit_bps))
    }

    /// Returns the severity of the burst, by which bursts are sorted: the packets that were queued
    /// or dropped, then the bytes.
    pub fn weight(&self) -> (u64, u64) {
        (self.queued + self.dropped, self.bytes)
    }
}
