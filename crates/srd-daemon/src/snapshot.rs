//! The state of the daemon, for people and machines: what `srd status --json` prints.
//!
//! A [`Snapshot`] is made on the thread of its reader, of pages that the workers write
//! ([`crate::plane::Statistics`]). Names and meanings of the five
//! `ena_srd_*` counters are those of the ENA driver. Everything else is ours, and fields may be
//! added: a reader ignores what it does not know.
//!
//! Bounds: one entry per peer (the configuration bounds them), per path and per flow only as far
//! as asked for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::config::{Mode, UdpOrdering};

/// The daemon at one moment.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// Version of the program.
    pub version: String,
    /// Name of the TUN device.
    pub interface: String,
    /// Whether another program has set it down: nothing passes then, whatever peers answer.
    pub interface_down: bool,
    /// The configuration file.
    pub file: String,
    /// How inner addresses relate to outer ones.
    pub mode: Mode,
    /// Whether packets are encrypted.
    pub encrypted: bool,
    /// Our public key in base64; absent without encryption.
    pub public_key: Option<String>,
    /// Where we receive; several addresses with commas between.
    pub listen: String,
    /// Largest inner packet, bytes.
    pub mtu: u32,
    /// Paths (source ports) per peer.
    pub paths: u16,
    /// Threads that move packets; each has as many source ports as there are paths.
    pub workers: u16,
    /// Since the daemon began to move packets.
    pub uptime_s: f64,
    /// How order is kept for UDP flows.
    pub udp_ordering: UdpOrdering,
    /// Speed of our own link as far as known, bits per second; zero: unknown.
    pub link_rate_bps: u64,
    /// Counters of the whole interface.
    pub counters: Counters,
    /// Dropped packets by reason, of transport and card together: `malformed`, `no_peer`, ...
    pub drops: BTreeMap<String, u64>,
    /// Every peer, in the order of the configuration.
    pub peers: Vec<PeerSnapshot>,
    /// The flows with the most bytes in the last second, busiest first, as many as asked for.
    pub flows: Vec<FlowSnapshot>,
    /// Flows that are remembered, also those that are not listed.
    pub flows_total: u64,
}

/// Whether a counter only grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It only grows while the daemon runs.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// One counter of the interface, with its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counter {
    /// Its name, as in JSON and in `srd stats`.
    pub name: &'static str,
    /// What it counts.
    pub help: &'static str,
    /// Whether it only grows.
    pub kind: Kind,
    /// How it stands.
    pub value: u64,
}

macro_rules! counters {
    ($($(#[doc = $help:literal])+ $name:ident: $kind:ident,)+) => {
        /// Counters of the whole interface since it came up; first the five of the ENA driver in
        /// its order.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Counters {
            $($(#[doc = $help])+ pub $name: u64,)+
        }

        impl Counters {
            /// Every counter with its name, in order.
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
    /// ENA Express: 0 off, 1 on, without UDP, 2 off, with UDP remembered, 3 on, with UDP;
    /// 4 more if the order of UDP is bypassed.
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
    /// Inner packets dropped because the queue of their peer was full.
    queue_drops: Counter,
    /// Inner packets marked (ECN) because the queue of their peer was long.
    ecn_marks: Counter,
    /// Bytes of inner packets that wait in the queues of peers.
    queue_bytes: Gauge,
    /// Inner packets that waited for an earlier one of their flow.
    order_waits: Counter,
    /// Holes in a flow that closed in time.
    order_holes_closed: Counter,
    /// Times that waiting for a hole was given up after the longest wait.
    order_timeouts: Counter,
    /// Inner packets that arrived after their hole was given up.
    order_late_pkts: Counter,
    /// Inner packets that wait for an earlier one now.
    order_waiting_pkts: Gauge,
    /// Inner packets lost because a piece of them did not arrive, or too many were incomplete.
    reassembly_drops: Counter,
    /// Received packets that did not authenticate.
    decrypt_failures: Counter,
    /// Data packets sent again.
    retransmissions: Counter,
    /// Times that the retransmission timer, not an acknowledgement, found the loss.
    retransmission_timeouts: Counter,
    /// Packets held for lost that arrived after all. Not all of them were sent again.
    spurious_losses: Counter,
    /// Handshakes that we began.
    handshakes_begun: Counter,
    /// Handshakes that ended with a session.
    handshakes_done: Counter,
    /// Times that a peer was declared unreachable or unresponsive.
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
    /// It answers.
    Up,
    /// It is being called, or may be called as soon as there is something to send.
    #[default]
    Connecting,
    /// It was called and does not answer.
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

/// Whether packets to a peer ride SRD.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum ExpressState {
    /// Both sides have it on.
    #[serde(rename = "on")]
    On,
    /// It is off here.
    #[serde(rename = "off")]
    #[default]
    Off,
    /// It is on here; the peer has it off, or has not said yet.
    #[serde(rename = "waiting for the peer")]
    Waiting,
}

/// Paths of a peer in each state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PathCounts {
    /// Carry packets.
    pub good: u16,
    /// Skipped for a while.
    pub skip: u16,
    /// Held to be broken.
    pub assumed_bad: u16,
    /// Denied by hand.
    pub denied: u16,
    /// Pass packets, as far as is known: none while the peer does not answer, else those that are
    /// good or skipped.
    pub passing: u16,
}

impl PathCounts {
    /// Paths there are.
    pub fn all(&self) -> u16 {
        self.good + self.skip + self.assumed_bad + self.denied
    }
}

/// Packets of a peer that are refused, with a remedy, for the log and the status.
pub fn refused_in_words(peer: &str, packets: u64, from: &str) -> String {
    let some = if packets == 1 { "packet" } else { "packets" };
    format!(
        "refused: {packets} {some} from {from} (not in allowed of peer {peer}): add the address to \
         `allowed` of {peer} here and `srd reload`, or correct the address that is used there"
    )
}

/// One peer.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PeerSnapshot {
    /// Its name.
    pub name: String,
    /// Its public key in base64; absent without encryption.
    pub public_key: Option<String>,
    /// Where it is, as far as known; several addresses with commas between.
    pub endpoint: Option<String>,
    /// The name and port that its address is found by, if the configuration has a name.
    pub endpoint_name: Option<String>,
    /// Why that name does not resolve, if it does not.
    pub endpoint_error: Option<String>,
    /// Inner addresses behind it.
    pub allowed: Vec<String>,
    /// Whether it can be reached.
    pub state: PeerState,
    /// Whether packets to it ride SRD.
    pub express: ExpressState,
    /// Whether UDP rides SRD, too, on both sides.
    pub express_udp: bool,
    /// Whether tunnels without ports ride SRD, too, on both sides.
    pub express_tunnels: bool,
    /// Why it does not answer, as one word: `cannot-send`, `unknown-key`, `other-key-for-us`,
    /// `answer-unauthentic`, `other-version`, `other-protection`, `port-closed`, `host-silent`,
    /// `no-route`, `prohibited`, `ended`, `nothing-heard`, `name-unresolved`;
    /// absent if it answers, or nothing is known.
    pub problem: Option<String>,
    /// The same for people, with what to do.
    pub problem_text: Option<String>,
    /// Since the last handshake with it; absent if there was none.
    pub last_handshake_s: Option<f64>,
    /// Handshakes that ended with a session.
    pub handshakes: u64,
    /// Smoothed round trip.
    pub rtt_us: f64,
    /// Base round trip.
    pub rtt_base_us: f64,
    /// Median queueing delay over paths.
    pub queue_delay_us: f64,
    /// Range of queueing delays over paths.
    pub delay_spread_us: f64,
    /// Inner bits per second to it, of the last second.
    pub tx_bps: u64,
    /// Inner bits per second from it, of the last second.
    pub rx_bps: u64,
    /// Inner packets sent to it over SRD.
    pub srd_tx_pkts: u64,
    /// Bytes of inner packets sent to it over SRD.
    pub srd_tx_bytes: u64,
    /// Inner packets received from it over SRD.
    pub srd_rx_pkts: u64,
    /// Bytes of inner packets received from it over SRD.
    pub srd_rx_bytes: u64,
    /// Inner packets sent to it without SRD.
    pub plain_tx_pkts: u64,
    /// Bytes of inner packets sent to it without SRD.
    pub plain_tx_bytes: u64,
    /// Inner packets received from it without SRD.
    pub plain_rx_pkts: u64,
    /// Bytes of inner packets received from it without SRD.
    pub plain_rx_bytes: u64,
    /// Data packets to it that were sent again.
    pub retransmissions: u64,
    /// Inner packets to it that were dropped because its queue was full.
    pub queue_drops: u64,
    /// Inner packets to it that were marked (ECN).
    pub ecn_marks: u64,
    /// Inner packets from it that were refused: `allowed` does not contain their source address.
    pub refused_pkts: u64,
    /// The source address of the last of them.
    pub refused_from: Option<String>,
    /// Inner packets that wait to be sent to it.
    pub queue_pkts: u64,
    /// Bytes of inner packets that wait to be sent to it.
    pub queue_bytes: u64,
    /// Congestion window.
    pub window_bytes: u64,
    /// Bytes in flight.
    pub in_flight_bytes: u64,
    /// Delivery rate measured by the transport, bits per second.
    pub delivery_rate_bps: u64,
    /// Whether the receiver's credit binds.
    pub credit_limited: bool,
    /// Largest outer UDP payload that reaches it.
    pub packet_bytes_max: u32,
    /// How many of its paths are in which state.
    pub paths: PathCounts,
    /// Each of its paths, if asked for.
    pub path_reports: Vec<PathSnapshot>,
}

/// One path of a peer.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PathSnapshot {
    /// Its number, from zero.
    pub path: u16,
    /// The source port that makes it.
    pub source_port: u16,
    /// Where its packets leave from: one of our addresses, and that port.
    pub source: String,
    /// Where they go: one of the peer's addresses.
    pub destination: String,
    /// `good`, `skip`, `assumed-bad` or `denied`.
    pub state: String,
    /// Its last queueing delay.
    pub delay_us: f64,
    /// Packets sent on it.
    pub sent_pkts: u64,
    /// Packets lost on it.
    pub lost_pkts: u64,
}

/// One inner flow.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FlowSnapshot {
    /// The name of the peer that it goes to or comes from.
    pub peer: String,
    /// `tx` or `rx`.
    pub direction: String,
    /// `tcp`, `udp`, or the protocol's number.
    pub protocol: String,
    /// Source address and port.
    pub source: String,
    /// Destination address and port.
    pub destination: String,
    /// Whether it rides SRD.
    pub srd: bool,
    /// Bits per second, of the last second.
    pub bps: u64,
    /// Packets so far.
    pub pkts: u64,
    /// Bytes so far.
    pub bytes: u64,
}

impl Snapshot {
    /// The peer that goes by this name or key; a key may be cut short to eight characters.
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
