//! Contents of the report of a burst.

use serde::Serialize;
use srd_card::limits::Limit;

use crate::sources::arrival::{Flow, PacketDirection};

/// A limit that a burst came near to or exceeded.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Reached {
    /// Counter of `ethtool -S` for packets that the limit holds up; EC2 has no counter for the
    /// ceiling of a flow, so that name is ours.
    pub counter: &'static str,
    /// Display name of the limit.
    pub name: &'static str,
    /// The limit in bits per second; `None` for a limit of packets.
    pub bps: Option<u64>,
    /// Whether the model held packets up; if not, arrivals only reached the threshold, a share of
    /// the limit.
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

/// A flow in a burst.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Share {
    /// The flow.
    pub flow: Flow,
    /// Bytes of the flow in the burst, from the IP header on.
    pub bytes: u64,
    /// Packets of the flow in the burst.
    pub packets: u64,
    /// Share of the burst's bytes, from 0 to 1.
    pub share: f64,
    /// Packets of the flow that waited in the model, counted at their first limit.
    pub queued: u64,
    /// Packets of the flow that were dropped in the model, counted at their first limit.
    pub dropped: u64,
}

/// A tunnel whose flows share the ceiling of one flow.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Whale {
    /// The flow that the network sees.
    pub outer: Flow,
    /// Number of inner flows that sent packets in the burst.
    pub inner_flows: u64,
    /// Bytes of the inner flows.
    pub bytes: u64,
}

/// Growth of a counter of the driver.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Increment {
    /// The counter's name.
    pub counter: String,
    /// Growth in packets.
    pub packets: u64,
}

/// A burst.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Burst {
    /// The interface, or the file.
    pub interface: String,
    /// Direction of the burst.
    pub way: PacketDirection,
    /// Start in nanoseconds since 1970: the beginning of its first bin.
    pub start_ns: u64,
    /// Length in nanoseconds: whole bins.
    pub length_ns: u64,
    /// Whether the burst continues after this part, because it is reported in parts.
    pub continues: bool,
    /// Bytes, from the IP header on.
    pub bytes: u64,
    /// Packets; a super-packet counts as the packets that it stands for.
    pub packets: u64,
    /// The rate of the largest bin, in bits per second.
    pub peak_bps: u64,
    /// The mean rate over the burst, in bits per second.
    pub mean_bps: u64,
    /// The mean rate, in bits per second, over the second that ends with the burst.
    pub second_bps: u64,
    /// The mean rate, in bits per second, over the minute that ends with the burst, or over the
    /// watched part of that minute.
    pub minute_bps: u64,
    /// Watched part of that minute, in nanoseconds.
    pub minute_seen_ns: u64,
    /// The limit of its direction at the start of the burst, in bits per second.
    pub limit_bps: u64,
    /// Packets that waited before their first limit in the model.
    pub queued: u64,
    /// Packets that the model dropped.
    pub dropped: u64,
    /// The limits that the burst came near to or exceeded.
    pub limits: Vec<Reached>,
    /// The flows that carried the most bytes, the largest first.
    pub flows: Vec<Share>,
    /// Number of counted flows; if `flows_error_bytes` is not zero, there were more flows.
    pub flows_counted: u64,
    /// Largest number of bytes that may be missing in the figure of one flow.
    pub flows_error_bytes: u64,
    /// Tunnels whose inner flows share one ceiling of a flow, if the ceiling was exceeded.
    pub whales: Vec<Whale>,
    /// Growth of the driver's counters.
    pub allowances: Vec<Increment>,
    /// Packets of both directions that this program missed during the burst.
    pub missed: u64,
    /// Rates of bins over time: nanoseconds from the start of the burst (negative before it), and
    /// bits per second.
    #[serde(skip)]
    pub shape: Vec<(i64, u64)>,
}

impl Burst {
    /// Returns the end in nanoseconds since 1970.
    pub fn end_ns(&self) -> u64 {
        self.start_ns + self.length_ns
    }

    /// Returns the share of its packets that waited in the model, from 0 to 1.
    pub fn queued_share(&self) -> f64 {
        self.queued as f64 / self.packets.max(1) as f64
    }

    /// Returns the share of its packets that were dropped in the model, from 0 to 1.
    pub fn dropped_share(&self) -> f64 {
        self.dropped as f64 / self.packets.max(1) as f64
    }

    /// Returns the limit for comparison with the burst's rate, as its name and bits per second: the
    /// exceeded limit that held up most packets or, without one, the limit of the burst's
    /// direction.
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

    /// Returns the severity, for sorting: first by packets held up, then by bytes.
    pub fn weight(&self) -> (u64, u64) {
        (self.queued + self.dropped, self.bytes)
    }
}
