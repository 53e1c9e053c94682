//! A burst, as it is reported.

use serde::Serialize;
use srd_card::limits::Limit;

use crate::arrival::{Flow, PacketDirection};

/// A limit that a burst reached, or exceeded.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Reached {
    /// The counter of `ethtool -S` that counts packets which it holds up; of the ceiling of a flow,
    /// a name of ours.
    pub counter: &'static str,
    /// Name of the limit, for people.
    pub name: &'static str,
    /// The limit in bits per second; `None` for a limit of packets.
    pub bps: Option<u64>,
    /// Whether the model held packets up; otherwise arrivals came as near to it as the threshold.
    pub exceeded: bool,
    /// Packets that the model let wait before it.
    pub queued: u64,
    /// Packets that it dropped.
    pub dropped: u64,
}

/// Name of a limit.
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
    /// Its bytes in the burst, from the IP header on.
    pub bytes: u64,
    /// Its packets.
    pub packets: u64,
    /// Its part of the burst's bytes, from 0 to 1.
    pub share: f64,
    /// Its packets that the model let wait, by the first limit.
    pub queued: u64,
    /// Its packets that the model dropped, by the first limit.
    pub dropped: u64,
}

/// A tunnel whose flows share the ceiling of one flow.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Whale {
    /// The flow that the network sees.
    pub outer: Flow,
    /// Flows inside of it that were seen in the burst.
    pub inner_flows: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Packets that a counter of the driver grew by.
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
    /// Whether it goes on: it is reported in parts.
    pub continues: bool,
    /// Bytes, from the IP header on.
    pub bytes: u64,
    /// Packets; a super-packet counts as those that it stands for.
    pub packets: u64,
    /// The rate of the largest bin, in bits per second.
    pub peak_bps: u64,
    /// The mean rate over the burst, in bits per second.
    pub mean_bps: u64,
    /// The mean rate over the second that ends with it.
    pub second_bps: u64,
    /// The mean rate over the minute that ends with it, or the time that was seen of that minute.
    pub minute_bps: u64,
    /// Time of that minute that was seen, in nanoseconds.
    pub minute_seen_ns: u64,
    /// The limit of its direction when it began, in bits per second.
    pub limit_bps: u64,
    /// Packets that the model let wait before their first limit.
    pub queued: u64,
    /// Packets that the model dropped.
    pub dropped: u64,
    /// The limits that it reached or exceeded.
    pub limits: Vec<Reached>,
    /// The flows that carried most, the largest first.
    pub flows: Vec<Share>,
    /// Flows that were counted; if `flows_error_bytes` is not zero, there were more.
    pub flows_counted: u64,
    /// Largest number of bytes of one flow that its figure may lack.
    pub flows_error_bytes: u64,
    /// Tunnels whose flows share one ceiling, where that was exceeded.
    pub whales: Vec<Whale>,
    /// Growth of the driver's counters.
    pub allowances: Vec<Increment>,
    /// Packets that this program has missed meanwhile, in both directions.
    pub missed: u64,
    /// Rate of bins over time: nanoseconds from its beginning (before it, if negative), bits per
    /// second.
    #[serde(skip)]
    pub shape: Vec<(i64, u64)>,
}

impl Burst {
    /// End in nanoseconds since 1970.
    pub fn end_ns(&self) -> u64 {
        self.start_ns + self.length_ns
    }

    /// Share of its packets that the model let wait, from 0 to 1.
    pub fn queued_share(&self) -> f64 {
        self.queued as f64 / self.packets.max(1) as f64
    }

    /// Share of its packets that the model dropped, from 0 to 1.
    pub fn dropped_share(&self) -> f64 {
        self.dropped as f64 / self.packets.max(1) as f64
    }

    /// The limit that its rate is compared with, by its name and in bits per second: the exceeded
    /// limit that held up most packets, otherwise the limit of its direction.
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

    /// Severity: packets held up, then bytes.
    pub fn weight(&self) -> (u64, u64) {
        (self.queued + self.dropped, self.bytes)
    }
}
