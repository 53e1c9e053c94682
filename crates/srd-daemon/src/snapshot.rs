//! The state of the daemon for people and machines, as `srd status --json` prints it.
//!
//! A [`Snapshot`] is built on its reader's thread, from pages that the workers write
//! ([`crate::plane::Statistics`]). The five `ena_srd_*` counters have the names and meanings of the
//! ENA driver. All other fields are ours, and new fields may be added: a reader ignores fields that
//! it does not recognize.
//!
//! To add a counter of the interface, change these files:
//!
//! 1. the structure that counts: `Stats` of srd-proto, `Counters` of srd-card, or `Work` in
//!    `pages/totals.rs` for events of the daemon itself. The module comment of `stats.rs` of
//!    srd-proto also lists the outlets of its counters outside of this crate;
//! 2. the published figures: for srd-proto's, three places in `pages/totals.rs` (the struct
//!    `Transport`, its list in `counters!`, and `From<&Stats>`); for srd-card's, the list in
//!    `pages/figure.rs`; for `Work`, its list in `counters!`;
//! 3. this file: the name and the help, in the list of [`Counters`];
//! 4. `pages/read.rs`: the value under that name.
//!
//! All entries of that list appear in `srd stats`, JSON, OpenMetrics and srd-metrics(7).
//!
//! To add a counter of a peer, change these files:
//!
//! 1. the structure that counts: `Traffic` of srd-card, with its fields in `pages/figure.rs`; or
//!    `PeerFigures` in `pages/peer.rs`, which `run/worker/peers.rs` sets and `together` adds up;
//! 2. this file: a field of [`PeerSnapshot`];
//! 3. `pages/read.rs`: the value of this field, in `peer_snapshot`;
//! 4. `metrics/exposition.rs`: the name and the help, in `PEER_FAMILIES`.
//!
//! A reason for dropped packets appears in [`Snapshot::drops`] if `DropReason` of srd-proto has it,
//! if `DROPS` in `counters.rs` of srd-card contains its counter, or if the function `drops` in
//! `pages/read.rs` adds it, as it does for `interface_refused`.
//!
//! Bounds: one entry for each peer, whose number the configuration limits. Paths and flows are
//! listed only as far as they are requested.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::config::{Mode, UdpOrdering};

mod controller;

pub use controller::{ControllerSnapshot, ControllerState};

/// The state of the daemon at one moment.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// Version of the program.
    pub version: String,
    /// Name of the TUN device. In [`Mode::Cloud`] there is no device of this name.
    pub interface: String,
    /// Whether another program has set the interface down. In this state no packet passes, even if
    /// peers answer.
    pub interface_down: bool,
    /// Path of the configuration file.
    pub file: String,
    /// Whether the interface has addresses of its own, or the peers' real addresses are used.
    pub mode: Mode,
    /// Whether packets are encrypted. False if the node has no sockets for packets.
    pub encrypted: bool,
    /// Our public key in base64; `None` without encryption.
    pub public_key: Option<String>,
    /// Addresses at which packets are received, separated by commas. Empty if the node has no
    /// sockets for packets, because it has neither an interface nor other hosts.
    pub listen: String,
    /// MTU of the interface in bytes; without an interface, the largest packet that fits into an
    /// outer packet.
    pub mtu: u32,
    /// Number of paths to each peer, which is the number of UDP source ports of each worker.
    pub paths: u16,
    /// Number of threads that process packets.
    pub workers: u16,
    /// Seconds since the daemon started to process packets.
    pub uptime_s: f64,
    /// Whether UDP packets of a flow are delivered in order, or as they arrive.
    pub udp_ordering: UdpOrdering,
    /// Rate of our own link in bits per second; 0 if it is not known.
    pub link_rate_bps: u64,
    /// Counters of the whole interface.
    pub counters: Counters,
    /// Number of dropped packets for each reason, in the transport and in the card: `malformed`,
    /// `no_peer`, ...
    pub drops: BTreeMap<String, u64>,
    /// Every peer, in the order of the configuration.
    pub peers: Vec<PeerSnapshot>,
    /// The flows with the most bytes in the last second, with the busiest first. At most as many as
    /// requested.
    pub flows: Vec<FlowSnapshot>,
    /// Number of flows in memory, including those that are not listed.
    pub flows_total: u64,
    /// The connection to the controller; `None` if this host has not enrolled at one.
    pub controller: Option<ControllerSnapshot>,
}

impl Snapshot {
    /// Whether the node has instances only, and neither an interface nor sockets for packets of
    /// other hosts.
    pub fn is_alone(&self) -> bool {
        self.mode == Mode::Cloud && self.listen.is_empty()
    }
}

/// Whether a value only grows, or may also fall.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A value that only grows while the daemon runs.
    Counter,
    /// A value that may rise and fall.
    Gauge,
}

/// One counter of the interface, with its name and value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counter {
    /// Name of the counter, as in JSON and in `srd stats`.
    pub name: &'static str,
    /// Description of the events or bytes that are counted.
    pub help: &'static str,
    /// Whether the value only grows.
    pub kind: Kind,
    /// Value of the counter at the time of the snapshot.
    pub value: u64,
}

macro_rules! counters {
    ($($(#[doc = $help:literal])+ $name:ident: $kind:ident,)+) => {
        /// Counters of the whole interface since the daemon started. The first five are those of
        /// the ENA driver, in the driver's order.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Counters {
            $($(#[doc = $help])+ pub $name: u64,)+
        }

        impl Counters {
            /// Returns every counter with its name, in the order of definition.
            pub fn all(&self) -> Vec<Counter> {
                vec![$(Counter {
                    name: stringify!($name),
                    help: concat!($($help),+).trim_ascii(),
                    kind: Kind::$kind,
                    value: self.$name,
                }),+]
            }
        }
    };
}

counters! {
    /// ENA Express, as the sum of 1 if it is on, 2 if it is on for UDP, and 4 if UDP is delivered
    /// in any order.
    ena_srd_mode: Gauge,
    /// Inner packets sent over SRD.
    ena_srd_tx_pkts: Counter,
    /// Inner packets that were sent over SRD or could have been.
    ena_srd_eligible_tx_pkts: Counter,
    /// Inner packets received over SRD.
    ena_srd_rx_pkts: Counter,
    /// Percent of the memory for SRD connections that is in use.
    ena_srd_resource_utilization: Gauge,
    /// Inner packets taken from the interface.
    tx_pkts: Counter,
    /// Bytes of inner packets taken from the interface.
    tx_bytes: Counter,
    /// Inner packets given to the interface.
    rx_pkts: Counter,
    /// Bytes of inner packets given to the interface.
    rx_bytes: Counter,
    /// Bytes of inner packets sent over SRD.
    srd_tx_bytes: Counter,
    /// Bytes of inner packets received over SRD.
    srd_rx_bytes: Counter,
    /// Inner packets sent without SRD: not eligible, or the peer does not run it.
    plain_tx_pkts: Counter,
    /// Bytes of inner packets sent without SRD.
    plain_tx_bytes: Counter,
    /// Inner packets received without SRD.
    plain_rx_pkts: Counter,
    /// Bytes of inner packets received without SRD.
    plain_rx_bytes: Counter,
    /// Inner packets dropped on the way out.
    tx_drops: Counter,
    /// Inner packets dropped on the way in.
    rx_drops: Counter,
    /// Inner packets dropped because the queue of their peer was full, or because they waited in it
    /// for too long.
    queue_drops: Counter,
    /// Inner packets marked (ECN) because the queue of their peer was long.
    ecn_marks: Counter,
    /// Bytes of inner packets that wait in the queues of peers.
    queue_bytes: Gauge,
    /// Inner packets that waited for an earlier one of their flow.
    order_waits: Counter,
    /// Times that packets of a flow stopped waiting for a missing packet, after the longest wait.
    order_timeouts: Counter,
    /// Pieces of inner packets that arrived after the wait for them had ended, arrived twice, or
    /// did not fit their packet.
    order_late_pkts: Counter,
    /// Inner packets that were lost because one of their pieces did not arrive, or because too many
    /// packets were incomplete.
    reassembly_drops: Counter,
    /// Received packets that did not authenticate.
    decrypt_failures: Counter,
    /// Data packets sent again.
    retransmissions: Counter,
    /// Times that the retransmission timer, not an acknowledgement, found the loss.
    retransmission_timeouts: Counter,
    /// Packets that were declared lost and acknowledged later. Not all of them were sent again.
    spurious_losses: Counter,
    /// Handshakes that ended with a session.
    handshakes_done: Counter,
    /// Times that a context with a peer went down: the peer did not answer, or closed it.
    peer_downs: Counter,
    /// Outer packets sent.
    outer_tx_pkts: Counter,
    /// UDP payload bytes of outer packets sent.
    outer_tx_bytes: Counter,
    /// Outer packets received and accepted.
    outer_rx_pkts: Counter,
    /// UDP payload bytes of outer packets received and accepted.
    outer_rx_bytes: Counter,
}

/// Whether a peer can be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PeerState {
    /// The peer answers.
    Up,
    /// Handshakes are being sent to the peer, or will be as soon as there is a packet for it.
    #[default]
    Connecting,
    /// Handshakes were sent to the peer, and it does not answer.
    Down,
}

impl std::fmt::Display for PeerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::Connecting => "connecting",
            Self::Down => "down",
        })
    }
}

/// Whether packets to a peer are sent over SRD.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum ExpressState {
    /// SRD is switched on at both ends.
    #[serde(rename = "on")]
    On,
    /// SRD is switched off in our configuration.
    #[serde(rename = "off")]
    #[default]
    Off,
    /// SRD is switched on in our configuration. The peer has it switched off, or has not reported
    /// its setting yet.
    #[serde(rename = "waiting for the peer")]
    Waiting,
}

/// Number of paths to a peer in each state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PathCounts {
    /// Paths that carry packets as usual.
    pub good: u16,
    /// Paths that are skipped for a while, because their packets were delayed or lost.
    pub skip: u16,
    /// Paths that are assumed to be broken.
    pub assumed_bad: u16,
    /// Paths that the operator has denied.
    pub denied: u16,
    /// Paths on which packets arrive: zero while the peer does not answer, otherwise the good and
    /// the skipped paths.
    pub passing: u16,
}

impl PathCounts {
    /// Returns the number of all paths.
    pub fn all(&self) -> u16 {
        self.good + self.skip + self.assumed_bad + self.denied
    }
}

/// Returns a text about refused packets of a peer, with advice, for the log and the status.
pub fn refused_in_words(peer: &str, packets: u64, from: &str) -> String {
    let some = if packets == 1 { "packet" } else { "packets" };
    format!(
        "refused: {packets} {some} from {from} (not in allowed of peer {peer}): add the address to \
         `allowed` of {peer} here and `srd reload`, or correct the address that is used there"
    )
}

/// The state of one peer.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PeerSnapshot {
    /// Name of the peer.
    pub name: String,
    /// Public key of the peer in base64; absent without encryption.
    pub public_key: Option<String>,
    /// Known outer addresses of the peer, separated by commas; `None` if no address is known.
    pub endpoint: Option<String>,
    /// The host name and port in the configuration; `None` if the configuration contains addresses.
    pub endpoint_name: Option<String>,
    /// Error text of the resolver for the host name; `None` if the name resolves or there is no
    /// name.
    pub endpoint_error: Option<String>,
    /// Prefixes of inner addresses behind the peer.
    pub allowed: Vec<String>,
    /// Whether the peer can be reached.
    pub state: PeerState,
    /// Whether packets to the peer are sent over SRD.
    pub express: ExpressState,
    /// Whether both ends send UDP packets over SRD.
    pub express_udp: bool,
    /// Whether both ends send packets of tunnels without ports (GRE, ESP, IP in IP) over SRD.
    pub express_tunnels: bool,
    /// Reason why the peer does not answer, as one word: `cannot-send`, `unknown-key`,
    /// `other-key-for-us`, `answer-unauthentic`, `other-version`, `other-protection`,
    /// `port-closed`, `host-silent`, `no-route`, `prohibited`, `ended`, `nothing-heard`,
    /// `name-unresolved`; `None` if the peer answers, or the reason is not known.
    pub problem: Option<String>,
    /// The reason why the peer does not answer as a sentence for people, with advice; `None` if
    /// `problem` is `None`.
    pub problem_text: Option<String>,
    /// Seconds since the last handshake with the peer; `None` before the first handshake.
    pub last_handshake_s: Option<f64>,
    /// Number of handshakes with the peer that ended with a session.
    pub handshakes: u64,
    /// Smoothed round-trip time in microseconds.
    pub rtt_us: f64,
    /// Base round-trip time (the recent minimum) in microseconds.
    pub rtt_base_us: f64,
    /// Median of the queueing delays of the paths, in microseconds.
    pub queue_delay_us: f64,
    /// Difference between the queueing delays of the paths, in microseconds.
    pub delay_spread_us: f64,
    /// Rate of inner packets to the peer over the last second, in bits per second.
    pub tx_bps: u64,
    /// Rate of inner packets from the peer over the last second, in bits per second.
    pub rx_bps: u64,
    /// Inner packets sent to the peer over SRD.
    pub srd_tx_pkts: u64,
    /// Bytes of inner packets sent to the peer over SRD.
    pub srd_tx_bytes: u64,
    /// Inner packets received from the peer over SRD.
    pub srd_rx_pkts: u64,
    /// Bytes of inner packets received from the peer over SRD.
    pub srd_rx_bytes: u64,
    /// Inner packets sent to the peer without SRD.
    pub plain_tx_pkts: u64,
    /// Bytes of inner packets sent to the peer without SRD.
    pub plain_tx_bytes: u64,
    /// Inner packets received from the peer without SRD.
    pub plain_rx_pkts: u64,
    /// Bytes of inner packets received from the peer without SRD.
    pub plain_rx_bytes: u64,
    /// Number of data packets to the peer that were sent again.
    pub retransmissions: u64,
    /// Inner packets to the peer that were dropped because the peer's queue was full, or because
    /// they waited in it for too long.
    pub queue_drops: u64,
    /// Inner packets to the peer that were marked (ECN) because the peer's queue was long.
    pub ecn_marks: u64,
    /// Inner packets from the peer that were refused, because `allowed` does not contain their
    /// source address.
    pub refused_pkts: u64,
    /// Source address of the last refused packet; `None` if no packet was refused.
    pub refused_from: Option<String>,
    /// Bytes of inner packets that wait to be sent to the peer.
    pub queue_bytes: u64,
    /// Congestion window in bytes.
    pub window_bytes: u64,
    /// Number of bytes in flight.
    pub in_flight_bytes: u64,
    /// Delivery rate that the transport has measured, in bits per second.
    pub delivery_rate_bps: u64,
    /// Whether the sender is limited by the credit that the peer grants.
    pub credit_limited: bool,
    /// Largest UDP payload of outer packets that reaches the peer, in bytes.
    pub packet_bytes_max: u32,
    /// Number of the peer's paths in each state.
    pub paths: PathCounts,
    /// The paths to the peer; empty unless they were requested.
    pub path_reports: Vec<PathSnapshot>,
}

/// One path of a peer.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PathSnapshot {
    /// Number of the path, from zero.
    pub path: u16,
    /// The UDP source port that selects the path.
    pub source_port: u16,
    /// Source address of the path's packets, with the source ports of all workers.
    pub source: String,
    /// Destination address and port of the path's packets.
    pub destination: String,
    /// State of the path: `good`, `skip`, `assumed-bad` or `denied`.
    pub state: String,
    /// Last queueing delay of the path, in microseconds.
    pub delay_us: f64,
    /// Packets sent on this path.
    pub sent_pkts: u64,
    /// Packets lost on this path.
    pub lost_pkts: u64,
}

/// One flow of inner packets.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FlowSnapshot {
    /// Name of the peer to which the flow goes.
    pub peer: String,
    /// Direction of the flow, `tx` or `rx`. At present only outgoing flows are listed.
    pub direction: String,
    /// Name of the protocol, such as `tcp` or `udp`, or its number as text.
    pub protocol: String,
    /// Source address, with the port for TCP and UDP.
    pub source: String,
    /// Destination address, with the port for TCP and UDP.
    pub destination: String,
    /// Whether the packets of the flow are sent over SRD.
    pub srd: bool,
    /// Rate over the last second, in bits per second.
    pub bps: u64,
    /// Number of packets since the flow was first seen.
    pub pkts: u64,
    /// Number of bytes since the flow was first seen.
    pub bytes: u64,
}

impl Snapshot {
    /// Returns the peer with this name or key. At least the first eight characters of the key are
    /// necessary.
    pub fn peer(&self, wanted: &str) -> Option<&PeerSnapshot> {
        self.peers.iter().find(|p| p.name == wanted).or_else(|| {
            let by_key = |key: &str| crate::keys::is_meant(key, wanted);
            self.peers.iter().find(|p| p.public_key.as_deref().is_some_and(by_key))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_begin_with_the_five_of_the_driver_in_its_order() {
        let names: Vec<&str> = Counters::default().all().iter().map(|c| c.name).collect();
        let driver = [
            "ena_srd_mode",
            "ena_srd_tx_pkts",
            "ena_srd_eligible_tx_pkts",
            "ena_srd_rx_pkts",
            "ena_srd_resource_utilization",
        ];
        assert_eq!(names[..5], driver);
    }

    #[test]
    fn json_has_the_words_that_were_promised_and_unknown_fields_are_ignored() {
        let peer = PeerSnapshot { express: ExpressState::Waiting, ..PeerSnapshot::default() };
        let snapshot = Snapshot { peers: vec![peer], ..Snapshot::default() };
        let json = serde_json::to_value(&snapshot).unwrap();
        assert_eq!(json["peers"][0]["express"], "waiting for the peer");
        assert_eq!(json["peers"][0]["state"], "connecting");
        assert_eq!(json["mode"], "overlay");
        assert_eq!(json["counters"]["ena_srd_mode"], 0);
        assert_eq!(json["peers"][0]["paths"]["assumed_bad"], 0);
        let read: Snapshot = serde_json::from_str(r#"{"mtu":9,"later":1}"#).unwrap();
        assert_eq!(read.mtu, 9);
    }

    #[test]
    fn a_peer_is_found_by_name_or_by_the_beginning_of_its_key() {
        let peer = |name: &str, key: &str| PeerSnapshot {
            name: name.into(),
            public_key: Some(key.into()),
            ..PeerSnapshot::default()
        };
        let peers = vec![peer("a", "AAAAAAAAAAAA"), peer("b", "BBBBBBBBBBBB")];
        let snapshot = Snapshot { peers, ..Snapshot::default() };
        assert_eq!(snapshot.peer("b").unwrap().name, "b");
        assert_eq!(snapshot.peer("BBBBBBBB").unwrap().name, "b");
        assert!(snapshot.peer("BBBB").is_none() && snapshot.peer("").is_none());
    }
}
